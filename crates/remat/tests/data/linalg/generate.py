"""Writes vectors.txt: the values and derivatives that JAX computes in f64, for crates/remat/tests/linalg.rs. Values are held to
SciPy's as well.

    pip install jax==0.10.2 scipy
    python generate.py > vectors.txt

A line is a case: name, then numbers. Element i of an operand is sin(0.7 i + seed); matrices of systems have 2 added on the diagonal,
and matrices to factor are m mᵀ + 1 for such a matrix m, with sin(0.7 i + 9) added above the diagonal.
"""

import itertools

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.lax.linalg import cholesky, triangular_solve


def emit(name, x):
    print(name, *(repr(float(value)) for value in np.asarray(x, np.float64).reshape(-1)))


def wave(shape, seed):
    return np.sin(0.7 * np.arange(np.prod(shape)) + seed).reshape(shape)


def matrices(batch, n, seed):
    return wave((batch, n, n), seed) + 2.0 * np.eye(n)


def definite(batch, n):
    m = matrices(batch, n, 1.0)
    return m @ m.transpose(0, 2, 1) + np.eye(n) + np.triu(wave((batch, n, n), 9.0), 1)


def derivatives(name, f, operands):
    """The value, its derivative along the waves from seed 5 on, and the pullback of the wave of seed 8."""
    tangents = tuple(wave(x.shape, 5.0 + i) for i, x in enumerate(operands))
    value, tangent = jax.jvp(f, operands, tangents)
    emit(name, value)
    emit(f"{name}.tangent", tangent)
    for i, cotangent in enumerate(jax.vjp(f, *operands)[1](jnp.asarray(wave(value.shape, 8.0)))):
        emit(f"{name}.cotangent{i}", cotangent)
    return np.asarray(value)


for batch, n, k in [(2, 3, 2), (1, 4, 1), (1, 1, 1)]:
    for left, lower, transposed, unit in itertools.product([0, 1], repeat=4):
        name = f"solve.{batch}x{n}x{k}.{left}{lower}{transposed}{unit}"
        options = dict(left_side=bool(left), lower=bool(lower), transpose_a=bool(transposed), unit_diagonal=bool(unit))

        def f(a, b):
            return triangular_solve(a, b, **options)

        a, b = matrices(batch, n, 1.0), wave((batch, n, k) if left else (batch, k, n), 2.0)
        x = derivatives(name, f, (a, b))
        for a, b, x in zip(a, b, x):
            # x a = b is aᵀ xᵀ = bᵀ.
            trans = transposed if left else 1 - transposed
            b, x = (b, x) if left else (b.T, x.T)
            expected = scipy.linalg.solve_triangular(a, b, trans=trans, lower=bool(lower), unit_diagonal=bool(unit))
            np.testing.assert_allclose(x, expected, rtol=1e-12, atol=1e-13)
        if (batch, n, k) == (2, 3, 2):
            half = [jnp.asarray(x, jnp.bfloat16) for x in (matrices(batch, n, 1.0), wave((batch, n, k) if left else (batch, k, n), 2.0))]
            emit(f"{name}.bf16", f(*half))

for batch, n in [(2, 3), (1, 4), (1, 1)]:
    a = definite(batch, n)
    l = derivatives(f"cholesky.{batch}x{n}", cholesky, (a,))
    for a, l in zip(a, l):
        np.testing.assert_allclose(l, scipy.linalg.cholesky((a + a.T) / 2, lower=True), rtol=1e-12, atol=1e-13)

    # Without `symmetrize_input` JAX reads the lower triangle and differentiates as if it read both.
    def of_lower(a):
        return cholesky(jnp.tril(a) + jnp.swapaxes(jnp.tril(a, -1), 1, 2))

    derivatives(f"cholesky_of_lower.{batch}x{n}", of_lower, (definite(batch, n),))

# The second of these matrices is not positive definite.
a = np.stack([np.eye(2) * 4.0, np.array([[1.0, 2.0], [2.0, 1.0]])])
derivatives("cholesky.indefinite", cholesky, (a,))
