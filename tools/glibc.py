"""Which glibc an executable or a library needs."""

import re
import subprocess


def versions(text):
    """The versions of glibc among the symbols that `objdump -T` prints, with a symbol of each."""
    return {tuple(map(int, version.split("."))): symbol for version, symbol in re.findall(r"\(?GLIBC_([\d.]+)\)?\s+(\S+)", text)}


def needed(path, most):
    """The newest version that a file needs. Raises SystemExit, with the symbols, if it is later than `most`."""
    found = versions(subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout)
    late = {version: symbol for version, symbol in found.items() if version > most}
    if late:
        shown = ", ".join(f"{symbol} of {'.'.join(map(str, version))}" for version, symbol in sorted(late.items()))
        raise SystemExit(f"{path} needs a newer glibc than {'.'.join(map(str, most))}: {shown}")
    return ".".join(map(str, max(found, default=(0,))))
