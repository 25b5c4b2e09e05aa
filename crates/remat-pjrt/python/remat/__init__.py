"""remat for Python: JAX's programs on its native engine, and the command `remat`.

    JAX_PLATFORMS=remat python train.py

runs a program of JAX on the engine; without the variable, nothing changes.
"""

import ctypes

from .library import library_path

__all__ = ["versions"]

# The versions of JAX under which all tests of the plugin pass.
JAX_TESTED = ("0.10.2", "0.12.0.1")


def versions():
    """What is installed: the version of the engine, the largest instruction set that it uses on this CPU, the versions of StableHLO and of the
    PJRT C API that the plugin has, and those of JAX under which it is tested.

    Raises FileNotFoundError if there is no library, and OSError if it cannot be opened.
    """
    say = ctypes.CDLL(library_path()).remat_versions
    say.restype = ctypes.c_char_p
    said = dict(line.split(" ", 1) for line in say().decode().splitlines())
    return said | {"jax": JAX_TESTED}
