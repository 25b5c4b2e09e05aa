"""The gradients of `remat-bench reads` in JAX on the CPU: a line of JSON for each, with planned memory and time."""

import argparse
import json
import os
import statistics
import time

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402, after the environment is set
import jax.numpy as jnp  # noqa: E402

POLICIES = {"none": None, "nothing": jax.checkpoint_policies.nothing_saveable, "dots": jax.checkpoint_policies.dots_saveable}


def both(x, weights):
    return jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1])


def added(x, part):
    return jnp.tanh(x * 0.5 + part)


# The shapes before the first step and of the array that is read, and one step.
READS = {
    "weights": ((64, 128), lambda count: (count, 2, 128, 128), lambda x, arrays, ids, i: both(x, arrays[0][i])),
    "apart": ((64, 128), lambda count: (2, 128, 128), lambda x, arrays, ids, i: both(x, arrays[i])),
    "steps": ((64, 256), lambda count: (count, 64, 256), lambda x, arrays, ids, i: added(x, arrays[0][i])),
    "embeddings": ((64, 128), lambda count: (2048, 128), lambda x, arrays, ids, i: added(x, arrays[0][ids[i]])),
    "shared": ((64, 512), lambda count: (512, 512), lambda x, arrays, ids, i: jnp.tanh(x @ arrays[0])),
    "columns": ((16384,), lambda count: (16384, count), lambda x, arrays, ids, i: added(x, arrays[0][:, i])),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    names = lambda text: text.split(",")
    parser.add_argument("--read", type=names, default=list(READS))
    parser.add_argument("--count", type=lambda text: [int(n) for n in names(text)], default=[12, 24, 48, 96])
    parser.add_argument("--policy", choices=POLICIES, default="none")
    parser.add_argument("--repeat", type=int, default=20, help="gradients that are timed, after one that is not")
    return parser.parse_args()


def measure(a, read, count):
    first, shape, step = READS[read]
    keys = jax.random.split(jax.random.key(1), count if read == "apart" else 1)
    arrays = [0.05 * jax.random.normal(key, shape(count)) for key in keys]
    ids = jax.random.randint(jax.random.key(2), (count, 64), 0, 2048)
    first = jax.random.normal(jax.random.key(0), first)

    def loss(arrays, x, ids):
        for i in range(count):
            run = lambda x, arrays, i=i: step(x, arrays, ids, i)
            x = (run if a.policy == "none" else jax.checkpoint(run, policy=POLICIES[a.policy]))(x, arrays)
        return x.sum()

    start = time.perf_counter()
    compiled = jax.jit(jax.grad(loss)).lower(arrays, first, ids).compile()
    compile_s = time.perf_counter() - start
    jax.block_until_ready(compiled(arrays, first, ids))
    times = []
    for _ in range(a.repeat):
        start = time.perf_counter()
        jax.block_until_ready(compiled(arrays, first, ids))
        times.append(time.perf_counter() - start)
    memory = compiled.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    record = dict(framework="jax " + jax.__version__, read=read, count=count, policy=a.policy, planned_peak=peak)
    print(json.dumps(dict(**record, step_s=statistics.median(times), compile_s=compile_s)), flush=True)


a = arguments()
for read in a.read:
    for count in a.count:
        measure(a, read, count)
