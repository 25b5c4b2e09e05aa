"""Writes vectors.txt: cross-attention in f64 as JAX computes it, and its gradients, for crates/remat/tests/nn/cross.rs.

    pip install jax==0.10.2
    python generate.py > vectors.txt

A line is a case: name, then numbers: the result, then the gradient of the mean of its squares with respect to the sequence, the source
and each leaf of the layer. Element i of leaf k of the layer is 0.4 sin(0.7 i + 1.3 k), in the order of its fields; the sequences are
cos(0.9 i) and cos(0.9 i + 1).
"""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np

BATCH, POSITIONS, SOURCE_POSITIONS, FEATURES, SOURCE_FEATURES, SIZE = 2, 3, 4, 6, 5, 3


def leaves(heads, key_heads):
    """Weight and bias of the maps to queries, keys and values, and of that from the heads."""
    sizes = [(FEATURES, heads * SIZE), (SOURCE_FEATURES, key_heads * SIZE), (SOURCE_FEATURES, key_heads * SIZE), (heads * SIZE, FEATURES)]
    shapes = [shape for inputs, outputs in sizes for shape in [(inputs, outputs), (outputs,)]]
    return [jnp.asarray(0.4 * np.sin(0.7 * np.arange(np.prod(s)) + 1.3 * k)).reshape(s) for k, s in enumerate(shapes)]


def dot_product_attention(q, k, v, mask=True, is_causal=False):
    """jax.nn.dot_product_attention in f64."""
    k, v = (jnp.repeat(heads, q.shape[2] // heads.shape[2], axis=2) for heads in (k, v))
    scores = jnp.einsum("btnh,bsnh->bnts", q, k) / np.sqrt(SIZE)
    seen = jnp.tril(jnp.ones(scores.shape[2:], bool)) if is_causal else True
    return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(jnp.where(mask & jnp.asarray(seen), scores, -jnp.inf)), v)


def attend(x, source, layer, heads, key_heads, **options):
    wq, bq, wk, bk, wv, bv, wo, bo = layer
    q = (x @ wq + bq).reshape(BATCH, POSITIONS, heads, SIZE)
    k = (source @ wk + bk).reshape(BATCH, SOURCE_POSITIONS, key_heads, SIZE)
    v = (source @ wv + bv).reshape(BATCH, SOURCE_POSITIONS, key_heads, SIZE)
    y = dot_product_attention(q, k, v, **options)
    # JAX's own takes the softmax in f32.
    if not isinstance(x, jax.core.Tracer):
        np.testing.assert_allclose(y, jax.nn.dot_product_attention(q, k, v, **options), rtol=1e-6, atol=1e-6)
    return y.reshape(BATCH, POSITIONS, heads * SIZE) @ wo + bo


def emit(name, heads, key_heads, **options):
    f = lambda *args: attend(*args, heads, key_heads, **options)
    x = jnp.cos(0.9 * jnp.arange(BATCH * POSITIONS * FEATURES)).reshape(BATCH, POSITIONS, FEATURES)
    source = jnp.cos(0.9 * jnp.arange(BATCH * SOURCE_POSITIONS * SOURCE_FEATURES) + 1.0)
    args = x, source.reshape(BATCH, SOURCE_POSITIONS, SOURCE_FEATURES), leaves(heads, key_heads)
    gradients = jax.grad(lambda *args: (f(*args) ** 2).mean(), argnums=(0, 1, 2))(*args)
    parts = [np.asarray(part).reshape(-1) for part in (f(*args), *jax.tree.leaves(gradients))]
    print(name, *(f"{float(number):.14g}" for number in np.concatenate(parts)))


lengths = jnp.asarray([4, 2]).reshape(2, 1, 1, 1)
emit("plain", 2, 2)
emit("grouped", 4, 2)
emit("causal", 4, 1, is_causal=True)
emit("mask", 4, 2, mask=jnp.arange(4) < lengths)
