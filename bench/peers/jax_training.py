"""Training steps in JAX as their authors write them (flax linen and nnx, optax, lax), of sizes that take memory, on remat's plugin and on XLA's CPU backend in
turn: time of a step, temporaries, time to compile, and the ratios.

    bench/peers/run jax-training [--only TEXT] [--rounds 3] [--json FILE]

`bench/peers/run` installs jax, flax and optax (requirements_jax.txt), builds the plugin and sets JAX_PLATFORMS and REMAT_PJRT_LIBRARY.
"""

import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx

import common
import jax_common
import jax_gpt

jax_common.registered()


def normal(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def labels(count, classes):
    return jax.random.randint(jax.random.key(1), (count,), 0, classes)


def cross_entropy(logits, y):
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def gradient(loss, *args):
    """Loss and gradient by the first argument: the function and its arguments."""
    return jax.value_and_grad(loss), args, False


def of_module(module, *data):
    """The gradient of the mean of the squares of what a flax module computes."""
    return gradient(lambda params, *xs: (module.apply(params, *xs) ** 2).mean(), module.init(jax.random.key(0), *data), *data)


def update(optimizer, loss, params, *data):
    """A step of an optimizer, whose state and parameters are donated. It gives those for the next step first."""

    def step(state, *data):
        params, moments = state
        value, grads = jax.value_and_grad(loss)(params, *data)
        changes, moments = optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, changes), moments), value

    return step, ((params, optimizer.init(params)), *data), True


def gpt(policy, layers_as):
    sizes = types.SimpleNamespace(**common.STEP_SIZES, dtype="f32", policy=policy, layers_as=layers_as)
    return gradient(jax_gpt.loss_of(sizes), *jax_gpt.initial(sizes))


class Cnn(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.avg_pool(nn.relu(nn.Conv(32, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.avg_pool(nn.relu(nn.Conv(64, (3, 3))(x)), (2, 2), (2, 2))
        return nn.Dense(10)(nn.relu(nn.Dense(256)(x.reshape(x.shape[0], -1))))


class ResNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(64, (3, 3))(x)
        for _ in range(4):
            y = nn.relu(nn.GroupNorm(8)(nn.Conv(64, (3, 3), use_bias=False)(x)))
            x = nn.relu(x + nn.GroupNorm(8)(nn.Conv(64, (3, 3), use_bias=False)(y)))
        return nn.Dense(10)(x.mean((1, 2)))


class Lstm(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.RNN(nn.LSTMCell(256))(x)


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        for _ in range(2):
            x = x + nn.MultiHeadDotProductAttention(num_heads=8)(nn.LayerNorm()(x), mask=mask)
        return x


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(3):
            x = nn.relu(nn.Dense(512)(x))
        return nn.Dense(10)(x)


class Vae(nn.Module):
    @nn.compact
    def __call__(self, x, noise):
        hidden = nn.relu(nn.Dense(500)(x))
        mean, log_variance = nn.Dense(20)(hidden), nn.Dense(20)(hidden)
        z = mean + jnp.exp(0.5 * log_variance) * noise
        return nn.Dense(784)(nn.relu(nn.Dense(500)(z))), mean, log_variance


def cnn_adam():
    module, x = Cnn(), normal(0, 128, 28, 28, 1)
    return update(optax.adam(1e-3), lambda p, x, y: cross_entropy(module.apply(p, x), y), module.init(jax.random.key(0), x), x, labels(128, 10))


def mlp_adamw():
    module, x = Mlp(), normal(0, 256, 784)
    return update(optax.adamw(1e-3), lambda p, x, y: cross_entropy(module.apply(p, x), y), module.init(jax.random.key(0), x), x, labels(256, 10))


def adamw_alone():
    """The optimizer alone, of ten million parameters, from gradients that are there."""
    optimizer = optax.adamw(1e-3)
    params = {f"layer {i}": normal(i, 1000, 1000) for i in range(10)}

    def step(state, grads):
        params, moments = state
        changes, moments = optimizer.update(grads, moments, params)
        return (optax.apply_updates(params, changes), moments), ()

    return step, ((params, optimizer.init(params)), jax.tree.map(jnp.sin, params)), True


def block_with_dropout():
    class Block(nnx.Module):
        def __init__(self, rngs):
            self.norm, self.attention = nnx.LayerNorm(256, rngs=rngs), nnx.MultiHeadAttention(8, 256, decode=False, rngs=rngs)
            self.up, self.down = nnx.Linear(256, 1024, rngs=rngs), nnx.Linear(1024, 256, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, x):
            x = x + self.dropout(self.attention(self.norm(x)))
            return x + self.dropout(self.down(nnx.gelu(self.up(x))))

    graph, params, rest = nnx.split(Block(nnx.Rngs(0)), nnx.Param, ...)
    # The counts of random numbers are copied, since a trace may change only its own.
    return gradient(lambda params, x: (nnx.merge(graph, params, rest, copy=True)(x) ** 2).mean(), params, normal(0, 8, 256, 256))


def gru_scan():
    width, steps, batch = 256, 64, 64
    params = {name: 0.1 * normal(i, width, width) for i, name in enumerate("zrhZRH")}

    def cell(params, h, x):
        z, r = (jax.nn.sigmoid(x @ params[name] + h @ params[name.upper()]) for name in "zr")
        return (1 - z) * h + z * jnp.tanh(x @ params["h"] + (r * h) @ params["H"])

    def loss(params, xs):
        step = lambda h, x: (lambda h: (h, h))(cell(params, h, x))
        return (jax.lax.scan(step, jnp.zeros((batch, width)), xs)[1] ** 2).mean()

    return gradient(loss, params, normal(9, steps, batch, width))


def vae():
    module, x, noise = Vae(), jax.nn.sigmoid(normal(0, 256, 784)), normal(1, 256, 20)

    def loss(params, x, noise):
        logits, mean, log_variance = module.apply(params, x, noise)
        divergence = -0.5 * (1 + log_variance - mean**2 - jnp.exp(log_variance)).sum(-1)
        return (optax.sigmoid_binary_cross_entropy(logits, x).sum(-1) + divergence).mean()

    return gradient(loss, module.init(jax.random.key(0), x, noise), x, noise)


def per_example():
    """The norm of the gradient of each example."""
    params = [0.1 * normal(i, *shape) for i, shape in enumerate([(64, 128), (128, 10)])]

    def loss(params, x, y):
        return cross_entropy(jnp.tanh(x @ params[0]) @ params[1], y)

    def norms(params, x, y):
        grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, y)
        return sum(jnp.square(g).sum((1, 2)) for g in grads) ** 0.5

    return norms, (params, normal(5, 256, 64), labels(256, 10)), False


def n_body():
    """The potential energy of bodies, with a pair of them in each element of an array."""

    def energy(positions, masses):
        apart = positions[:, None] - positions[None]
        distance = jnp.sqrt((apart**2).sum(-1) + 1e-3)
        return -(masses[:, None] * masses / distance).sum() / 2

    return gradient(energy, normal(0, 2048, 3), jnp.ones(2048))


def tanh_chain():
    """Layers under a policy that keeps products."""

    def loss(params, x):
        for w in params:
            x = jax.checkpoint(lambda x, w: jnp.tanh(jnp.sin(x @ w)) * 1.5, policy=jax.checkpoint_policies.dots_saveable)(x, w)
        return (x**2).mean()

    return gradient(loss, [normal(i, 512, 512) / 512**0.5 for i in range(16)], normal(17, 2048, 512))


MODELS = {
    "GPT, unrolled": lambda: gpt("none", "unroll"),
    "GPT, unrolled, nothing_saveable": lambda: gpt("nothing", "unroll"),
    "GPT, scanned": lambda: gpt("none", "scan"),
    "GPT, scanned, nothing_saveable": lambda: gpt("nothing", "scan"),
    "linen CNN, adam": cnn_adam,
    "linen ResNet blocks": lambda: of_module(ResNet(), normal(0, 8, 32, 32, 3)),
    "linen LSTM, 64 steps": lambda: of_module(Lstm(), normal(0, 64, 64, 128)),
    "linen attention": lambda: of_module(Attention(), normal(0, 8, 256, 256)),
    "nnx block, dropout": block_with_dropout,
    "GRU by lax.scan": gru_scan,
    "linen MLP, adamw": mlp_adamw,
    "linen VAE": vae,
    "gradients of examples": per_example,
    "N bodies": n_body,
    "adamw, 10 M parameters": adamw_alone,
    "tanh chain, dots_saveable": tanh_chain,
}


def main():
    jax_common.compare(__doc__, MODELS, seconds=0.5)


if __name__ == "__main__":
    main()
