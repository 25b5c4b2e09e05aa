#!/usr/bin/env python3
"""The errors of sums of many terms in JAX (on XLA:CPU) and numpy: the rows of `remat-bench accuracy`, computed in f32 and in f64.

Errors are relative to the largest element of the result. numpy has no windows, so that it has no rows of them.
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


def window(size):
    def mean(x):
        sums = jax.lax.reduce_window(x, np.array(0, x.dtype), jax.lax.add, (1, 1, size, size), (1, 1, size, size), "VALID")
        return sums / size**2

    return mean


def of_loss(x):
    def loss(x):
        return -jnp.take_along_axis(jax.nn.log_softmax(x), jnp.arange(64)[:, None], -1).sum()

    return jax.grad(loss)(x)


def sums():
    """Names, functions of JAX and of numpy, shapes and offsets."""
    lse = lambda x: x.max(1) + np.log(np.exp(x - x.max(1, keepdims=True)).sum(1))
    return [
        ("sum of [10000000]", jnp.sum, np.sum, (10_000_000,), 0),
        ("sum of [64,100000] along 1", lambda x: x.sum(1), lambda x: x.sum(1), (64, 100_000), 0),
        ("sum of [16384,1024] along 0", lambda x: x.sum(0), lambda x: x.sum(0), (16_384, 1024), 0),
        ("sum of [32,4096,128] along 1", lambda x: x.sum(1), lambda x: x.sum(1), (32, 4096, 128), 0),
        ("sum of [32,56,56,64] along 0, 1, 2", lambda x: x.sum((0, 1, 2)), lambda x: x.sum((0, 1, 2)), (32, 56, 56, 64), 0),
        ("sum of [32,56,56,64] along 1, 2", lambda x: x.sum((1, 2)), lambda x: x.sum((1, 2)), (32, 56, 56, 64), 0),
        ("logsumexp of [8,128000] along 1", lambda x: jax.nn.logsumexp(x, 1), lse, (8, 128_000), 0),
        ("cumsum of [10000000]", jnp.cumsum, np.cumsum, (10_000_000,), 0),
        ("cumsum of [2048,2048] along 1", lambda x: jnp.cumsum(x, 1), lambda x: np.cumsum(x, 1), (2048, 2048), 0),
        ("cumsum of [2048,2048] along 0", lambda x: jnp.cumsum(x, 0), lambda x: np.cumsum(x, 0), (2048, 2048), 0),
        ("cumlogsumexp of [100000]", jax.lax.cumlogsumexp, np.logaddexp.accumulate, (100_000,), 0),
        ("means of windows of 28 by 28", window(28), None, (1, 16, 112, 112), 0),
        ("mean of a window of 112 by 112", window(112), None, (1, 16, 112, 112), 0),
        ("gradient of cross entropy near 0", of_loss, None, (64, 1000), 0),
        ("gradient of cross entropy near 10000", of_loss, None, (64, 1000), 1e4),
    ]


def error(function, exact, x):
    got, expected = np.asarray(function(x), np.float64), np.asarray(exact(x.astype(np.float64)))
    return np.abs(got - expected).max() / np.abs(expected).max()


def milliseconds(function, x, repeat):
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        jax.block_until_ready(function(x))
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="runs that are timed")
    repeat = parser.parse_args().repeat
    print(f"{'':36} {'JAX equal':>10} {'uniform':>8} {'ms':>8} {'numpy equal':>12} {'uniform':>8} {'ms':>8}")
    for name, in_jax, in_numpy, shape, offset in sums():
        size = int(np.prod(shape))
        equal = np.full(shape, offset + 0.1, np.float32)
        # Multiples of the golden ratio modulo 1 are spread evenly.
        uniform = (offset + (np.arange(size) * 0.6180339887498949) % 1).astype(np.float32).reshape(shape)
        compiled = jax.jit(in_jax)
        cells = [f"{error(compiled, compiled, x):.1e}" for x in (equal, uniform)]
        cells.append(f"{milliseconds(compiled, jnp.asarray(uniform), repeat):.2f}")
        if in_numpy:
            cells += [f"{error(in_numpy, in_numpy, x):.1e}" for x in (equal, uniform)]
            cells.append(f"{milliseconds(in_numpy, uniform, repeat):.2f}")
        print(f"{name:36} {cells[0]:>10} {cells[1]:>8} {cells[2]:>8} " + " ".join(f"{c:>{w}}" for c, w in zip(cells[3:], (12, 8, 8))))


if __name__ == "__main__":
    main()
