"""Writes vectors.txt: what JAX draws, for crates/remat/tests/tensors/random.rs.

    pip install jax==0.10.2
    python generate.py > vectors.txt

A line is a case: name, dtype, shape, and the bits of the elements in hexadecimal. 64-bit dtypes are drawn with
jax_enable_x64, all others without. Each operation runs on its own: compiled as one, XLA contracts a product and a sum
into one rounding, where the processor can, and keeps f32 between the operations on f16.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def emit(name, x):
    x = np.asarray(x)
    dtype = x.dtype.name
    if dtype == "bool":
        x = x.astype(np.uint8)
    words = x.view(f"uint{8 * x.dtype.itemsize}").reshape(-1)
    shape = ",".join(str(size) for size in x.shape)
    print(name, dtype, f"[{shape}]", *(f"{int(word):x}" for word in words))


def wide(dtype):
    return jax.enable_x64(dtype.endswith("64"))


def keys():
    key = random.key(1701)
    emit("key", random.key_data(key))
    emit("key.u32", random.key_data(random.key(0xFFFFFFFF)))
    with jax.enable_x64(True):
        emit("key.u64", random.key_data(random.key(0x123456789ABCDEF0)))
    emit("split.2", random.key_data(random.split(key)))
    emit("split.5", random.key_data(random.split(key, 5)))
    for data in [0, 1, 0xFFFFFFFF]:
        emit(f"fold_in.{data}", random.key_data(random.fold_in(key, np.uint32(data))))
    keys = random.split(key, 3)
    emit("vmap.normal", jax.vmap(lambda k: random.normal(k, (2,)))(keys))
    emit("vmap.split", random.key_data(jax.vmap(lambda k: random.split(k, 2))(keys)))


def integers():
    key = random.key(3)
    for dtype in ["uint8", "uint16", "uint32", "uint64"]:
        with wide(dtype):
            emit(f"bits.{dtype}", random.bits(key, (3, 5), dtype))
            emit(f"bits.scalar.{dtype}", random.bits(key, (), dtype))
            emit(f"bits.empty.{dtype}", random.bits(key, (0, 2), dtype))
    for dtype in INTEGERS:
        with wide(dtype):
            info = np.iinfo(dtype)
            low, high = (-3 if info.min < 0 else 2), 100
            emit(f"randint.{dtype}", random.randint(key, (4, 3), low, high, dtype))
            emit(f"randint.empty_range.{dtype}", random.randint(key, (3,), 7, 7, dtype))
            if info.bits < 32:
                emit(f"randint.whole.{dtype}", random.randint(key, (8,), info.min, info.max + 1, dtype))
                emit(f"randint.beyond.{dtype}", random.randint(key, (8,), -70000, 70000, dtype))
    with jax.enable_x64(True):
        # Bounds wider than the dtype that is drawn.
        for dtype in ["int32", "uint32"]:
            info = np.iinfo(dtype)
            bounds = np.int64(info.min), np.int64(info.max + 1)
            emit(f"randint.whole.{dtype}", random.randint(key, (8,), *bounds, dtype))
            bounds = np.int64(5), np.int64(2**40)
            emit(f"randint.beyond.{dtype}", random.randint(key, (8,), *bounds, dtype))
        bounds = np.uint64(0), np.uint64(2**64 - 1)
        emit("randint.clipped.int64", random.randint(key, (8,), *bounds, "int64"))
        emit("randint.large.uint64", random.randint(key, (8,), np.uint64(1), np.uint64(2**63 + 5), "uint64"))
    bounds = jnp.array([[0], [10]]), jnp.array([5, 50, 500])
    emit("randint.bounds", random.randint(key, (2, 3), *bounds, "int32"))


def floats():
    key = random.key(5)
    for dtype in FLOATS:
        with wide(dtype):
            emit(f"uniform.{dtype}", random.uniform(key, (7, 9), dtype))
            emit(f"uniform.scalar.{dtype}", random.uniform(key, (), dtype))
            emit(f"uniform.range.{dtype}", random.uniform(key, (40,), dtype, -3.0, 5.5))
            emit(f"normal.{dtype}", random.normal(key, (10, 20), dtype))
            emit(f"truncated_normal.{dtype}", random.truncated_normal(key, -1.5, 2.0, (100,), dtype))
            emit(f"truncated_normal.zero.{dtype}", random.truncated_normal(key, 0.0, 0.25, (50,), dtype))
            emit(f"exponential.{dtype}", random.exponential(key, (100,), dtype))
            emit(f"gumbel.{dtype}", random.gumbel(key, (100,), dtype))
            p = jnp.array([[0.1], [0.5], [0.9]], dtype)
            emit(f"bernoulli.{dtype}", random.bernoulli(key, p, (3, 20)))
    bounds = jnp.array([[0.0], [10.0]], "float32"), jnp.array([20.0, 40.0, 80.0], "float32")
    emit("uniform.bounds", random.uniform(key, (2, 3), "float32", *bounds))


def discrete():
    key = random.key(11)
    logits = jnp.log(jnp.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25]], "float32"))
    emit("categorical", random.categorical(key, logits))
    emit("categorical.axis0", random.categorical(key, logits, axis=0))
    emit("categorical.draws", random.categorical(key, logits, shape=(6, 5, 3)))
    for n in [0, 1, 2, 10, 2000]:
        emit(f"permutation.{n}", random.permutation(key, n))
    x = jnp.arange(24, dtype="int16").reshape(4, 6)
    emit("shuffle.vector", random.permutation(key, jnp.linspace(0, 1, 9, dtype="float32")))
    emit("shuffle.0", random.permutation(key, x))
    emit("shuffle.1", random.permutation(key, x, axis=1))
    emit("permuted.0", random.permutation(key, x, axis=0, independent=True))
    emit("permuted.1", random.permutation(key, x, axis=1, independent=True))
    emit("choice", random.choice(key, 10, (3, 4)))
    emit("choice.without", random.choice(key, 30, (3, 4), replace=False))
    p = jnp.arange(1, 21, dtype="float32") / 210
    emit("choice.p", random.choice(key, 20, (5, 6), p=p))
    emit("choice.p.without", random.choice(key, 20, (2, 5), replace=False, p=p))
    emit("choice.p.one", random.choice(key, 1, (3,), p=jnp.ones(1)))


def gammas():
    key = random.key(13)
    concentrations = [[0.0], [0.05], [0.7], [1.0], [3.5], [200.0]]
    for dtype in FLOATS:
        with wide(dtype):
            a = jnp.array(concentrations, dtype)
            emit(f"gamma.{dtype}", random.gamma(key, a, (6, 8), dtype))
            emit(f"gamma.scalar.{dtype}", random.gamma(key, jnp.array(2.5, dtype), (), dtype))
            emit(f"log_gamma.{dtype}", random.loggamma(key, a, (6, 8), dtype))
            b = jnp.array([0.05, 0.5, 1.0, 4.0], dtype)
            emit(f"beta.{dtype}", random.beta(key, a[1:], b, (5, 4), dtype))
            emit(f"dirichlet.{dtype}", random.dirichlet(key, jnp.reshape(a, (2, 3)), (5, 2), dtype))
            # Of the number, or of its logarithm, each by its own concentration.
            for name, draw in [("gamma", random.gamma), ("log_gamma", random.loggamma)]:
                slopes = jax.grad(lambda a: draw(key, a, (5, 8), dtype).astype(a.dtype).sum())
                emit(f"{name}.slope.{dtype}", slopes(jnp.broadcast_to(a[1:], (5, 8))))


def poissons():
    key = random.key(17)
    rates = jnp.array([[0.0], [0.3], [4.5], [9.9], [12.0], [300.0], [900.0]], "float32")
    for dtype in INTEGERS:
        with wide(dtype):
            few = 5 if np.iinfo(dtype).bits == 8 else 7
            emit(f"poisson.{dtype}", random.poisson(key, rates[:few], (few, 20), dtype))
    emit("poisson.scalar", random.poisson(key, 20.0))
    emit("poisson.outside", random.poisson(key, jnp.array([-1.0, jnp.nan]), (2,)))


print("# jax", jax.__version__)
with jax.disable_jit():
    keys()
    integers()
    floats()
    discrete()
    gammas()
    poissons()
