"""Writes vectors.txt: losses of optax in f64 and their gradients, for crates/remat/tests/nn/losses.rs.

    pip install jax==0.10.2 optax==0.2.8
    python generate.py > vectors.txt

A line is a case: name, then numbers: the loss, its gradient by the first operand and, if that is a float, by the second.
Predictions and logits are 3 cos(0.9 i) as 3 by 4, and targets are sin(1.7 i) of the same shape. Labels and probabilities are
made of these. Classes are (0, 3, 2); "where" counts the first and the last position only.
"""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np
import optax


def emit(name, loss, *args):
    value, gradients = jax.value_and_grad(loss, argnums=tuple(range(len(args))))(*args)
    parts = [np.asarray(part).reshape(-1) for part in (value, *gradients)]
    print(name, *(repr(float(number)) for number in np.concatenate(parts)))


i = np.arange(12.0)
x = jnp.asarray(3.0 * np.cos(0.9 * i)).reshape(3, 4)
y = jnp.asarray(np.sin(1.7 * i)).reshape(3, 4)
classes = jnp.asarray([0, 3, 2])

emit("squared", lambda x, y: optax.squared_error(x, y).mean(), x, y)
emit("absolute", lambda x, y: jnp.abs(x - y).mean(), x, y)
emit("huber.1", lambda x, y: optax.huber_loss(x, y, delta=1.0).mean(), x, y)
emit("huber.2.5", lambda x, y: optax.huber_loss(x, y, delta=2.5).mean(), x, y)
emit("binary", lambda x, y: optax.sigmoid_binary_cross_entropy(x, y).mean(), 20.0 * x, 0.5 + 0.5 * y)
emit("kl", lambda x, y: optax.kl_divergence(x, y).mean(), jax.nn.log_softmax(x), jax.nn.softmax(y))
for smoothing in [0.0, 0.1, 1.0]:
    labels = optax.smooth_labels(jax.nn.one_hot(classes, 4, dtype=jnp.float64), smoothing)
    emit(f"smoothed.{smoothing}", lambda x: optax.softmax_cross_entropy(x, labels).mean(), x)
    counted = jnp.asarray([True, False, True])
    emit(f"smoothed.where.{smoothing}", lambda x: optax.softmax_cross_entropy(x, labels).mean(where=counted), x)
