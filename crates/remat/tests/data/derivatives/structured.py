"""Writes structured.txt: derivatives of operations over rows, windows and matrices where they are easily got wrong: at infinities,
NaN, zeros of both signs, equal elements, large and tiny elements, and where a row saturates.

    pip install jax==0.10.2
    python structured.py > structured.txt

Each line: dtype, function, operands, `|`, then what JAX gives: the derivative of the result along the directions of all operands,
and the pullback of a direction to each operand. Elements are separated by commas, rows of matrices by semicolons. Element i of
the direction of operand k, and of the cotangent (k = 0), is DIRECTION[(i + k) % 4]. Results are flattened.
"""

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)

inf, nan = float("inf"), float("nan")
DIRECTION = [1.0, -2.0, 0.5, 3.0]


def direction(x, k):
    size = int(np.prod(np.shape(x)))
    return jnp.array([DIRECTION[(i + k) % 4] for i in range(size)], x.dtype).reshape(np.shape(x))


def number(x):
    if x != x:
        return "NaN"
    shortest = str(x)
    return shortest.removesuffix(".0").replace("e+", "e")


def text(x):
    x = np.asarray(x)
    rows = x if x.ndim == 2 else [x.reshape(-1)]
    return ";".join(",".join(number(e) for e in row) for row in rows)


def window(x, start, combine):
    return lax.reduce_window(x, x.dtype.type(start), combine, (2,), (1,), ((1, 1),))


def updated(combine):
    """`x.at[[0, 2, 0]]` combined with u, which JAX differentiates for sums and products alone: equal elements share equally, as in
    its reductions."""

    def function(x, u):
        group = lambda *elements: combine(jnp.stack(elements))
        return jnp.stack([group(x[0], u[0], u[2]), x[1], group(x[2], u[1]), x[3]])

    return function


def cross_entropy(x):
    return jax.nn.logsumexp(x) - x[1]


def attention(query, key, bias):
    """Of two queries and three keys with one feature each; the values are the keys. JAX's own function rounds to f32."""
    scores = query @ key.T + bias
    return jax.nn.softmax(scores, axis=-1) @ key


def tangent(function):
    """The derivative of a function of one operand along its direction."""
    return lambda x: jax.jvp(function, (x,), (direction(x, 0),))[1]


def pullback(function):
    """The pullback of a direction to the first operand."""

    def of(*operands):
        out, pull = jax.vjp(function, *operands)
        return pull(direction(out, 0))[0]

    return of


def solve(a, b):
    return lax.linalg.triangular_solve(a, b, left_side=True, lower=True)


ROWS = {
    "reduce_prod": jnp.prod,
    "reduce_max": jnp.max,
    "reduce_min": jnp.min,
    "cumprod": lax.cumprod,
    "cumprod.reverse": lambda x: lax.cumprod(x, reverse=True),
    "cumlogsumexp": lax.cumlogsumexp,
    "cumlogsumexp.reverse": lambda x: lax.cumlogsumexp(x, reverse=True),
    "cummax": lax.cummax,
    "cummin": lax.cummin,
    "logsumexp": jax.nn.logsumexp,
    "softmax": jax.nn.softmax,
    "log_softmax": jax.nn.log_softmax,
    "cross_entropy": cross_entropy,
    "cross_entropy.tangent": tangent(cross_entropy),
    "max_window": lambda x: window(x, -inf, lax.max),
    "min_window": lambda x: window(x, inf, lax.min),
    "sort": jnp.sort,
    "top_k": lambda x: lax.top_k(x, 2)[0],
}
# What they multiply does not depend on the operand.
LINEAR = {
    "cumsum": lax.cumsum,
    "sum_window": lambda x: window(x, 0.0, lax.add),
    "reduce_sum": jnp.sum,
}


def rows(large):
    tiny = 1 / large
    return [
        [inf, 1, 2, 3],
        [-inf, 1, 2, 3],
        [-inf] * 4,
        [inf, inf, 0, 1],
        [inf, -inf, 0, 1],
        [1, nan, 2, 3],
        [0.0, -0.0, 0.0, -0.0],
        [2, 0, 3, 4],
        [2, 0, -0.0, 4],
        [large, 1, -large, 2],
        [large] * 4,
        [1] * 4,
        [1, 1000, -1000, 2],
        [tiny, 1, tiny, -1],
    ]


def triples(large):
    """A lower bound, an operand, an upper bound: beside each other, equal, in the wrong order, infinite."""
    return [
        ([-inf, -large, 0, -0.0], [1, large, 0, 0], [inf, inf, 1, 1]),
        ([0, 0, 0, 0], [inf, -inf, nan, -0.0], [1, 1, 1, 1]),
        ([2, 2, 2, nan], [0, 1.5, 3, 0], [1, 1, 1, 1]),
        ([-inf, inf, -inf, -large], [-inf, inf, -inf, -large], [inf, inf, -inf, large]),
    ]


def pairs(large):
    return [
        ([inf, -inf, nan, 0], [1, large, -0.0, nan]),
        ([large, -large, 0, nan], [inf, nan, 1, 2]),
    ]


def updates(large):
    """Four elements and three updates of the elements 0, 2 and 0."""
    return [
        ([inf, 1, -inf, 2], [1, 2, 3]),
        ([1, 1, 2, 2], [1, 2, 1]),
        ([nan, 1, 2, 3], [1, nan, 2]),
        ([0, 1, -0.0, 3], [-0.0, 0, 0]),
        ([large, 1, -large, 3], [inf, -inf, -large]),
        ([1, 2, 3, 4], [0, large, 0]),
    ]


def attentions(large):
    keys = [[1], [2], [3]]
    none = [[0, 0, 0], [0, 0, 0]]
    root = float(np.sqrt(large))
    return [
        ([[1000], [-1000]], keys, none),
        ([[large], [-large]], keys, none),
        ([[0], [0]], [[2], [2], [2]], none),
        ([[1], [1]], keys, [[-inf, 0, 0], [-inf, -inf, 0]]),
        ([[1], [1]], keys, [[-inf, -inf, -inf], [0, 0, 0]]),
        ([[1], [1]], keys, [[0, large, 0], [-large, -large, -large]]),
        ([[root], [1]], [[root], [-root], [root]], none),
        ([[nan], [1]], keys, none),
        ([[1], [1]], keys, [[inf, 0, 0], [0, 0, 0]]),
        ([[1], [1]], [[1], [inf], [2]], [[0, -inf, 0], [0, 0, 0]]),
    ]


def definite(large):
    tiny = 1 / large
    return [
        [[large, 0], [0, tiny]],
        [[large, large / 8], [large / 8, large]],
        [[tiny, tiny / 8], [tiny / 8, tiny]],
        [[4, 2], [2, 1]],
        [[0, 0], [0, 0]],
        [[0, 0], [0, 1]],
        [[1, 0], [0, -1]],
        [[inf, 0], [0, 1]],
        [[1, 0], [0, inf]],
        [[4, nan], [1, 9]],
    ]


def systems(large):
    tiny = 1 / large
    return [
        ([[large, 0], [large, large]], [[1], [2]]),
        ([[tiny, 0], [tiny, tiny]], [[1], [2]]),
        ([[tiny, 0], [1, large]], [[tiny], [1]]),
        ([[0, 0], [1, 1]], [[1], [2]]),
        ([[1, 0], [1, -0.0]], [[1], [2]]),
        ([[inf, 0], [1, 1]], [[1], [2]]),
        ([[1, 0], [inf, 1]], [[1], [2]]),
        ([[1, nan], [2, 4]], [[1], [2]]),
        ([[1, 0], [2, nan]], [[1], [2]]),
        ([[1, 0], [2, 4]], [[1], [inf]]),
    ]


def cases(large):
    """Functions with their operands."""
    for name, function in ROWS.items():
        for row in rows(large):
            yield name, function, [row]
    for name, function in LINEAR.items():
        for row in ([inf, -inf, nan, large], [1] * 4):
            yield name, function, [row]
    several = {
        "clamp": (lax.clamp, triples),
        "select_n": (lambda x, y: lax.select_n(np.array([True, False] * 2), x, y), pairs),
        "scatter_mul": (lambda x, u: x.at[np.array([2, 0, 3])].mul(u, unique_indices=True), updates),
        "scatter_max": (updated(jnp.max), updates),
        "scatter_min": (updated(jnp.min), updates),
        "attention": (attention, attentions),
        "attention.pullback": (pullback(attention), attentions),
        "triangular_solve": (solve, systems),
    }
    for name, (function, operands) in several.items():
        for given in operands(large):
            yield name, function, given
    for matrix in definite(large):
        yield "cholesky", lax.linalg.cholesky, [matrix]


def main():
    for dtype, large in ((np.float64, 1e300), (np.float32, 1e30)):
        for name, function, given in cases(large):
            operands = [jnp.array(x, dtype) for x in given]
            directions = [direction(x, k) for k, x in enumerate(operands)]
            _, derivative = jax.jvp(function, operands, directions)
            value, pull = jax.vjp(function, *operands)
            cotangents = pull(direction(value, 0))
            results = [np.asarray(derivative).reshape(-1)] + [np.asarray(x).reshape(-1) for x in cotangents]
            print(np.dtype(dtype).name, name, *map(text, operands), "|", *map(text, results))


main()
