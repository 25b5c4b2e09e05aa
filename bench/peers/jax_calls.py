"""Calls of small functions in JAX, as `remat-bench calls --device` measures them: lines of JSON."""

import argparse
import json
import os
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--platform", choices=["cpu", "cuda"], default="cuda")
a = parser.parse_args()
os.environ["JAX_PLATFORMS"] = a.platform

import jax  # noqa: E402, after the environment is set
import jax.numpy as jnp  # noqa: E402

CALLS, SAMPLES = 1000, 25


def seconds(f, argument):
    """The median time of a call that returns before the result is there."""
    jax.block_until_ready(f(argument))
    times = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        for _ in range(CALLS):
            result = f(argument)
        times.append((time.perf_counter() - start) / CALLS)
        jax.block_until_ready(result)
    return statistics.median(times)


affine = jax.jit(lambda x: x * 2 + 1)
sums = jax.jit(lambda xs: [x + 1 for x in xs])
for call, f, argument in [("a jitted scalar function", affine, jnp.float32(3)),
                          ("a jitted function of 100 f32[8]", sums, [jnp.ones(8, jnp.float32) for _ in range(100)])]:
    print(json.dumps(dict(framework="jax " + jax.__version__, call=call, seconds=seconds(f, argument))), flush=True)
