"""What scripts share that run programs on remat's plugin and on XLA in one process."""

import argparse
import importlib.metadata
import json
import pathlib
import statistics
import sys
import time

import jax

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BACKENDS = ("cpu", "remat")


def containing(text, names):
    """The names that contain this text. It is an error if none does, so that a mistake in it does not pass for a run."""
    names = list(names)
    chosen = [name for name in names if text in name]
    if not chosen:
        sys.exit(f"nothing contains `{text}`; there are\n  " + "\n  ".join(names))
    return chosen


def registered():
    """Registers the plugin, whose library REMAT_PJRT_LIBRARY names unless the wheel is installed, and gives the module with the programs of others."""
    platforms = jax.config.jax_platforms
    sys.path.insert(0, str(ROOT / "crates/remat-stablehlo/tests/fixtures"))
    import large_programs
    import write

    # That module sets the platform for fixtures; here it is that of the environment.
    jax.config.update("jax_platforms", platforms)
    if not importlib.metadata.entry_points(group="jax_plugins", name="remat"):
        sys.path.insert(0, str(ROOT / "crates/remat-pjrt/python"))
        from remat import jax_plugin

        jax_plugin.initialize()
    large_programs.add(write.large)
    return write


class Program:
    """A program that is compiled for a backend, with its arguments there. One that donates its first argument gives the next one as its first result."""

    def __init__(self, function, args, donates, backend):
        # Copies, since what is donated is donated once.
        self.args = jax.device_put(args, jax.devices(backend)[0], may_alias=False)
        self.donates = donates
        begun = time.perf_counter()
        self.compiled = jax.jit(function, donate_argnums=(0,) if donates else ()).lower(*self.args).compile()
        self.compile_s = time.perf_counter() - begun
        self.temporaries = self.compiled.memory_analysis().temp_size_in_bytes
        self.times = []

    def run(self, seconds):
        """Calls it for about so many seconds, and notes the time of one call."""
        begun, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - begun < seconds:
            results = jax.block_until_ready(self.compiled(*self.args))
            if self.donates:
                self.args = (results[0], *self.args[1:])
            count += 1
        self.times.append((time.perf_counter() - begun) / count)


def compare(description, programs, seconds):
    """Runs programs on both backends in turn, and prints a table with the ratios, as the arguments of the command say. A program is made by a function, when its
    turn comes: what to compile, its arguments, and whether it donates the first one."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run what contains this text")
    parser.add_argument("--rounds", type=int, default=3, help="of each program on each backend, in turn, after one to warm up")
    parser.add_argument("--seconds", type=float, default=seconds, help="of each program on each backend in a round, at least one call")
    parser.add_argument("--json", help="write the table to this file too")
    options = parser.parse_args()
    programs = {name: programs[name] for name in containing(options.only, programs)}
    width = max(map(len, programs))
    print(f"{'program':{width}} {'XLA ms':>9} {'remat ms':>9} {'ratio':>6} {'XLA KiB':>9} {'remat KiB':>9} {'ratio':>6} {'compile s':>15}")
    rows = []
    for name, made in programs.items():
        function, args, donates = made()
        of = {backend: Program(function, args, donates, backend) for backend in BACKENDS}
        for _ in range(options.rounds + 1):
            for program in of.values():
                program.run(options.seconds)
        xla, ours = (statistics.median(of[backend].times[1:]) for backend in BACKENDS)
        row = dict(name=name, xla_s=xla, remat_s=ours, time=ours / xla, **{
            f"{backend}_{what}": getattr(program, what) for backend, program in of.items() for what in ("temporaries", "compile_s")})
        row["memory"] = row["remat_temporaries"] / max(row["cpu_temporaries"], 1)
        row["compile"] = row["remat_compile_s"] / row["cpu_compile_s"]
        rows.append(row)
        # The arrays of one program go before those of the next.
        del of, function, args
        print(f"{name:{width}} {1e3 * xla:9.3f} {1e3 * ours:9.3f} {row['time']:6.2f} {row['cpu_temporaries'] / 1024:9.0f} "
              f"{row['remat_temporaries'] / 1024:9.0f} {row['memory']:6.2f} {row['cpu_compile_s']:7.2f} {row['remat_compile_s']:7.2f}", flush=True)
    ratios = {what: sorted(row[what] for row in rows) for what in ("time", "memory", "compile")}
    print("median of the ratios: " + ", ".join(f"{what} {statistics.median(of):.2f} (most {of[-1]:.2f})" for what, of in ratios.items()))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(dict(jax=jax.__version__, rows=rows), indent=1))
