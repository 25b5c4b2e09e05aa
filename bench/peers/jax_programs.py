"""Programs of others (flax, optax, equinox, jax.scipy) in JAX, on remat's plugin and on XLA's CPU backend in turn: time of a call, temporaries, time to
compile, and the ratios.

    bench/peers/run jax [--only TEXT] [--seconds 1] [--json FILE]

The programs are those of crates/remat-stablehlo/tests/fixtures/large_programs.py. `bench/peers/run` installs jax, flax, optax and equinox
(requirements_jax.txt), builds the plugin and sets JAX_PLATFORMS and REMAT_PJRT_LIBRARY.
"""

import argparse
import json
import pathlib
import statistics
import time

import jax

import jax_common

write = jax_common.registered()
BACKENDS = ("cpu", "remat")


class Program:
    """A program that is compiled for a backend, with its arguments there."""

    def __init__(self, function, args, backend):
        device = jax.devices(backend)[0]
        self.args = jax.device_put(args, device)
        begun = time.perf_counter()
        self.compiled = jax.jit(function).lower(*self.args).compile()
        self.compile_s = time.perf_counter() - begun
        self.temporaries = self.compiled.memory_analysis().temp_size_in_bytes
        self.times = []

    def run(self, seconds):
        """Calls it for about so many seconds, and notes the time of one call."""
        begun, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - begun < seconds:
            jax.block_until_ready(self.compiled(*self.args))
            count += 1
        self.times.append((time.perf_counter() - begun) / count)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run what contains this text")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each program on each backend, in five rounds in turn")
    parser.add_argument("--json")
    options = parser.parse_args()
    chosen = jax_common.containing(options.only, write.LARGE)
    print(f"{'program':34} {'XLA ms':>9} {'remat ms':>9} {'ratio':>6} {'XLA KiB':>9} {'remat KiB':>9} {'ratio':>6} {'compile s':>15}")
    rows = []
    for name in chosen:
        function, shapes, *_ = write.LARGE[name]
        args = [write.argument(i, shape, dtype) for i, (shape, dtype) in enumerate(shapes)]
        programs = {backend: Program(function, args, backend) for backend in BACKENDS}
        for _ in range(6):
            for program in programs.values():
                program.run(options.seconds / 5)
        # The first round is warm-up.
        xla, ours = (statistics.median(programs[backend].times[1:]) for backend in BACKENDS)
        row = dict(name=name, xla_s=xla, remat_s=ours, time=ours / xla, **{
            f"{backend}_{what}": getattr(program, what) for backend, program in programs.items() for what in ("temporaries", "compile_s")})
        row["memory"] = row["remat_temporaries"] / max(row["cpu_temporaries"], 1)
        row["compile"] = row["remat_compile_s"] / row["cpu_compile_s"]
        rows.append(row)
        print(f"{name:34} {1e3 * xla:9.3f} {1e3 * ours:9.3f} {row['time']:6.2f} {row['cpu_temporaries'] / 1024:9.0f} "
              f"{row['remat_temporaries'] / 1024:9.0f} {row['memory']:6.2f} {row['cpu_compile_s']:7.2f} {row['remat_compile_s']:7.2f}", flush=True)
    of = {what: sorted(row[what] for row in rows) for what in ("time", "memory", "compile")}
    print("median of the ratios: " + ", ".join(f"{what} {statistics.median(ratios):.2f} (most {ratios[-1]:.2f})" for what, ratios in of.items()))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(dict(jax=jax.__version__, rows=rows), indent=1))


if __name__ == "__main__":
    main()
