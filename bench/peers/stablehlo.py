#!/usr/bin/env python3
"""Holds JAX to remat's numbers: takes the module that `remat-bench stablehlo` prints, compiles it by JAX's own XLA, and
compares what it gives. `--time` times the step as well.

    remat-bench stablehlo --layers 2 --width 64 --heads 4 --hidden 128 --sequence 32 --vocabulary 100 | bench/peers/stablehlo.py
"""

import argparse
import json
import os
import re
import statistics
import sys
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--time", action="store_true", help="time the step on random arguments")
parser.add_argument("--repeat", type=int, default=4)
parser.add_argument("--tolerance", type=float, default=1e-4, help="the largest relative difference of a result")
a = parser.parse_args()
given = json.load(sys.stdin)

os.environ["JAX_PLATFORMS"] = "cpu"
if "optimization_barrier" in given["step"]:
    # As remat's engine sets it: else XLA:CPU drops barriers, and merges what is recomputed with the forward pass. The other pass makes
    # a kernel of a small loop, and the process ends where there is a barrier in one.
    os.environ["XLA_FLAGS"] = "--xla_disable_hlo_passes=cse_barrier_expander,small-while-loop-hoisting"

import jax  # noqa: E402, after the environment is set
import numpy as np  # noqa: E402
from jax._src import xla_bridge  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jax._src.lib import xla_client  # noqa: E402
from jax._src.lib.mlir import ir  # noqa: E402

client = xla_bridge.get_backend()
devices = xla_client.DeviceList(tuple(client.local_devices()[:1]))


def compiled(text):
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        return client.compile_and_load(module, devices, xla_client.CompileOptions())


def arguments(text, values):
    """An array for each argument of a module, of what `values` gives for a shape and a dtype."""
    dtypes = dict(f32=np.float32, i32=np.int32, ui32=np.uint32)
    main = text.split("@main(")[1].split(") ->")[0]
    found = re.findall(r"tensor<((?:\d+x)*)([a-z]+\d+)>", main)
    shapes = [([int(size) for size in dims.split("x") if size], dtype) for dims, dtype in found]
    return [jax.device_put(values(shape, dtype).astype(dtypes[dtype])) for shape, dtype in shapes]


# The key of the seed 0, as often as the module draws with it.
keys = arguments(given["module"], lambda shape, dtype: np.zeros(shape))
results = [np.asarray(x) for x in compiled(given["module"]).execute(keys)]
worst = 0.0
for got, expected in zip(results, given["results"], strict=True):
    worst = max(worst, abs(float(got) - expected) / max(abs(expected), 1e-30))
print(f"jax {jax.__version__}: {len(results)} results, largest relative difference {worst:.1e}")
if worst > a.tolerance:
    sys.exit("the results differ")

if a.time:
    step = compiled(given["step"])
    random = np.random.default_rng(0)
    args = arguments(
        given["step"], lambda shape, dtype: random.normal(size=shape) * 0.02 if dtype == "f32" else np.zeros(shape)
    )
    times = []
    for _ in range(a.repeat + 1):
        start = time.perf_counter()
        for out in step.execute(args):
            out.block_until_ready()
        times.append(time.perf_counter() - start)
    stats = step.get_compiled_memory_stats()
    print(f"step {statistics.median(times[1:]):.3f} s, temporaries {stats.temp_size_in_bytes / 2**20:.1f} MiB")
