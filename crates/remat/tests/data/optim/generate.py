"""Writes vectors.txt: what optax computes in f64, for crates/remat/tests/optim.rs.

    pip install jax==0.10.2 optax==0.2.8
    python generate.py > vectors.txt

A line is a case: name, then numbers. The model is a matrix of 2 by 2 and a vector of 3, in this order; its gradients in
step t are cos(7 i + 3 t) for the number i of the element, times (t + 1).
"""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np
import optax

STEPS = 6


def emit(name, x):
    print(name, *(repr(float(value)) for value in np.asarray(x).reshape(-1)))


def join(tree):
    return np.concatenate([np.asarray(tree["a"]).reshape(-1), np.asarray(tree["b"])])


def split(x):
    return {"a": jnp.asarray(x[:4].reshape(2, 2)), "b": jnp.asarray(x[4:])}


def gradient(step):
    return split(np.cos(7.0 * np.arange(7) + 3.0 * step) * (step + 1))


def run(name, optimizer):
    model = split(np.linspace(-1.0, 2.0, 7))
    state = optimizer.init(model)
    for step in range(STEPS):
        updates, state = optimizer.update(gradient(step), state, model)
        model = optax.apply_updates(model, updates)
    emit(name, join(model))


cosine = optax.warmup_cosine_decay_schedule(0.01, 0.2, 2, 5, 0.05)
run("adamw", optax.adamw(0.1))
run("adamw.options", optax.adamw(cosine, b1=0.8, b2=0.9, eps=1e-3, weight_decay=0.1))
run("adamw.matrices", optax.adamw(0.1, weight_decay=0.5, mask={"a": True, "b": False}))
run("sgd", optax.sgd(0.1))
run("sgd.momentum", optax.sgd(0.1, momentum=0.9))
run("sgd.nesterov", optax.sgd(0.1, momentum=0.9, nesterov=True))
run("lion", optax.lion(0.1))
run("lion.options", optax.lion(optax.linear_schedule(0.2, 0.1, 4), b1=0.5, b2=0.8, weight_decay=0.2))
run("clipped", optax.chain(optax.clip_by_global_norm(3.0), optax.sgd(0.1)))
emit("global_norm", optax.global_norm(gradient(2)))

steps = jnp.arange(12)
emit("schedule.linear", jax.vmap(optax.linear_schedule(0.5, 2.0, 7))(steps))
emit("schedule.cosine", jax.vmap(optax.cosine_decay_schedule(0.5, 9, alpha=0.1))(steps))
emit("schedule.warmup_cosine", jax.vmap(optax.warmup_cosine_decay_schedule(0.1, 1.0, 3, 9, 0.25))(steps))
