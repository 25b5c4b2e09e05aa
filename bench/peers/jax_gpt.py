"""The reference GPT in JAX: its weights and its loss. Sizes, dtype, policy and form of the layers are fields of `a`, as `jax_step.py` takes them."""

import functools

import jax
import jax.numpy as jnp

DTYPES = dict(f32=jnp.float32, bf16=jnp.bfloat16)
POLICIES = {
    "dots": jax.checkpoint_policies.dots_saveable,
    "dots_with_no_batch_dims": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "nothing": jax.checkpoint_policies.nothing_saveable,
}


def normalise(x):
    """In f32, as everywhere."""
    wide = x.astype(jnp.float32)
    centered = wide - jnp.mean(wide, -1, keepdims=True)
    return (centered * jax.lax.rsqrt(jnp.mean(jnp.square(centered), -1, keepdims=True) + 1e-5)).astype(x.dtype)


def attention(a, h, block):
    size = a.width // a.heads
    q, k, v = (jnp.reshape(h @ block[name], (a.batch, a.sequence, a.heads, size)) for name in ("q", "k", "v"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / size**0.5
    positions = jnp.arange(a.sequence)
    scores = jnp.where(positions[:, None] >= positions[None, :], scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return jnp.reshape(mixed, h.shape) @ block["o"]


def apply_block(a, x, block):
    x = x + attention(a, normalise(x), block)
    return x + jax.nn.gelu(normalise(x) @ block["up"], approximate=True) @ block["down"]


def loss_of(a):
    """The loss as a function of the weights and the tokens."""
    block_of = functools.partial(apply_block, a)
    run = block_of if a.policy == "none" else jax.checkpoint(block_of, policy=POLICIES[a.policy])

    def loss(model, tokens):
        x = model["embed"][tokens]
        if a.layers_as == "scan":
            x, _ = jax.lax.scan(lambda x, block: (run(x, block), None), x, model["blocks"])
        else:
            for layer in range(a.layers):
                x = run(x, jax.tree.map(lambda stacked: stacked[layer], model["blocks"]))
        logits = (normalise(x) @ model["embed"].T)[:, :-1]
        surprises = -jax.nn.log_softmax(logits)
        return jnp.mean(jnp.take_along_axis(surprises, tokens[:, 1:, None], axis=-1))

    return loss


def initial(a):
    """The weights and the tokens, from the key 0 all of them."""
    normal = functools.partial(jax.random.normal, jax.random.key(0))
    draw = lambda *shape: (0.02 * normal(shape)).astype(DTYPES[a.dtype])
    square = {name: draw(a.layers, a.width, a.width) for name in "qkvo"}
    blocks = dict(square, up=draw(a.layers, a.width, a.hidden), down=draw(a.layers, a.hidden, a.width))
    tokens = jax.random.randint(jax.random.key(0), (a.batch, a.sequence), 0, a.vocabulary)
    return dict(blocks=blocks, embed=draw(a.vocabulary, a.width)), tokens
