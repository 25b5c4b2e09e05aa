"""Writes vectors.txt: what jax.image.resize computes in f64, and its gradients, for crates/remat/tests/nn/resize.rs.

    pip install jax==0.10.2
    python generate.py > vectors.txt

A line is a case: method, "antialias" or "plain", shapes of operand and result, then numbers: the result, then the gradient of the sum
of its products with cos(0.9 i).
Element i of the operand is sin(1.7 i).
"""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np

SHAPES = [((5,), (8,)), ((7,), (3,)), ((2, 4, 3), (2, 3, 7)), ((3, 2, 4, 5), (3, 2, 8, 2)), ((2, 3), (5, 6)), ((1, 6), (3, 1))]


def emit(method, antialias, old, new):
    x = jnp.sin(1.7 * jnp.arange(np.prod(old))).reshape(old)
    cotangent = jnp.cos(0.9 * jnp.arange(np.prod(new))).reshape(new)
    y, pullback = jax.vjp(lambda x: jax.image.resize(x, new, method, antialias), x)
    parts = [np.asarray(part).reshape(-1) for part in (y, *pullback(cotangent))]
    shapes = (",".join(map(str, shape)) for shape in (old, new))
    print(method, "antialias" if antialias else "plain", *shapes, *(f"{float(n):.14g}" for n in np.concatenate(parts)))


for method in ["nearest", "linear", "cubic", "lanczos3", "lanczos5"]:
    for antialias in [True, False]:
        for old, new in SHAPES:
            emit(method, antialias, old, new)
