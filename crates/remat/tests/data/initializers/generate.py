"""Writes vectors.txt: weights that jax.nn.initializers draws in f32, for crates/remat/tests/nn/initializer.rs.

    pip install jax==0.10.2
    python generate.py > vectors.txt

A line is a case: name, then numbers. The key is 7. Linear maps have 6 inputs and 5 outputs; kernels 4 inputs, 5 outputs and
windows of 3 by 2.
"""

import jax
import jax.numpy as jnp
import numpy as np


def emit(name, x):
    print(name, *(repr(float(value)) for value in np.asarray(x).reshape(-1)))


for source in ["lecun", "he", "glorot"]:
    for kind in ["normal", "uniform"]:
        init = getattr(jax.nn.initializers, f"{source}_{kind}")
        emit(f"{source}.{kind}.linear", init()(jax.random.key(7), (6, 5), jnp.float32))
        emit(f"{source}.{kind}.conv", init(in_axis=1, out_axis=0)(jax.random.key(7), (5, 4, 3, 2), jnp.float32))

init = jax.nn.initializers.orthogonal
emit("orthogonal.linear", init()(jax.random.key(7), (6, 5), jnp.float32))
emit("orthogonal.conv", init(column_axis=0)(jax.random.key(7), (5, 4, 3, 2), jnp.float32))
