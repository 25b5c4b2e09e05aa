"""The decoders of `remat fit` in JAX: a Llama and a GPT-2, their loss, weights, and the policies.

Weights and tokens are those of `remat fit --run`: the leaf `i`, in the order of `shapes`, is `uniform(fold_in(key(0), i), ..)`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

POLICIES = ["none", "dots", "dots_with_no_batch_dims", "names", "offload", "nothing"]
SIZES = {
    "gpt2": dict(kind="gpt2", layers=12, width=768, heads=12, key_heads=12, head_features=64, hidden=3072, vocabulary=50257, tied=True,
                 positions=1024),
    "llama-1b": dict(kind="llama", layers=16, width=2048, heads=32, key_heads=8, head_features=64, hidden=8192, vocabulary=128256, tied=True,
                     positions=0),
    "decoder-3b": dict(kind="llama", layers=28, width=3072, heads=24, key_heads=8, head_features=128, hidden=8192, vocabulary=32768,
                       tied=False, positions=0),
}


def of_hugging_face(config):
    """The sizes in a `config.json`."""
    if config["model_type"] == "gpt2":
        width, heads = config["n_embd"], config["n_head"]
        return dict(kind="gpt2", layers=config["n_layer"], width=width, heads=heads, key_heads=heads, head_features=width // heads,
                    hidden=4 * width, vocabulary=config["vocab_size"], tied=True, positions=config["n_positions"])
    width, heads = config["hidden_size"], config["num_attention_heads"]
    return dict(kind="llama", layers=config["num_hidden_layers"], width=width, heads=heads,
                key_heads=config.get("num_key_value_heads", heads), head_features=width // heads, hidden=config["intermediate_size"],
                vocabulary=config["vocab_size"], tied=config.get("tie_word_embeddings", False), positions=0)


def checkpoint_policy(name):
    saved = jax.checkpoint_policies
    return {
        "dots": saved.dots_saveable,
        "dots_with_no_batch_dims": saved.dots_with_no_batch_dims_saveable,
        "names": saved.save_only_these_names("qkv", "attn"),
        "offload": saved.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=["qkv", "attn"], offload_src="device", offload_dst="pinned_host"),
        "nothing": saved.nothing_saveable,
    }[name]


class Decoder:
    """The sizes of a model, as attributes, and its functions."""

    def __init__(self, sizes, policy, sequence):
        self.__dict__.update(sizes)
        self.policy, self.sequence = policy, sequence
        self.is_gpt = self.kind == "gpt2"

    def shapes(self):
        """The shapes of the weights by name, in the order of remat's leaves."""
        queries, keys = self.heads * self.head_features, self.key_heads * self.head_features
        norm = lambda name, *stack: {name + ".scale": (*stack, self.width)} | ({name + ".bias": (*stack, self.width)} if self.is_gpt else {})
        linear = lambda name, n, m: {name + ".weight": (self.layers, n, m)} | ({name + ".bias": (self.layers, m)} if self.is_gpt else {})
        blocks = norm("norm1", self.layers) | linear("q", self.width, queries) | linear("k", self.width, keys)
        blocks |= linear("v", self.width, keys) | linear("out", queries, self.width) | norm("norm2", self.layers)
        blocks |= {} if self.is_gpt else linear("gate", self.width, self.hidden)
        blocks |= linear("up", self.width, self.hidden) | linear("down", self.hidden, self.width)
        positions = {"positions": (self.positions, self.width)} if self.is_gpt else {}
        head = {} if self.tied else {"head": (self.vocabulary, self.width)}
        return {"embed": (self.vocabulary, self.width)} | positions | {"blocks." + name: shape for name, shape in blocks.items()} | norm(
            "norm") | head

    def weights(self, dtype):
        """Random weights."""
        def leaf(number, name, shape):
            if name.endswith("scale"):
                return jnp.ones(shape, dtype)
            if name.endswith("bias"):
                return jnp.zeros(shape, dtype)
            key = jax.random.fold_in(jax.random.key(0), number)
            return jax.jit(lambda key: jax.random.uniform(key, shape, jnp.float32, -0.035, 0.035).astype(dtype))(key)

        return {name: leaf(i, name, shape) for i, (name, shape) in enumerate(self.shapes().items())}

    def tokens(self, batch):
        drawn = jax.random.randint(jax.random.key(1), (batch, self.sequence + 1), 0, self.vocabulary, jnp.int32)
        return drawn[:, :-1], drawn[:, 1:]

    def norm(self, w, name, x):
        wide = x.astype(jnp.float32)
        if self.is_gpt:
            wide = wide - jnp.mean(wide, -1, keepdims=True)
        wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + 1e-5)
        return wide.astype(x.dtype) * w[name + ".scale"] + (w[name + ".bias"] if self.is_gpt else 0)

    def linear(self, w, name, x):
        y = x @ w[name + ".weight"]
        return y + w[name + ".bias"] if self.is_gpt else y

    def rotate(self, x):
        half = self.head_features // 2
        rates = jnp.exp(jnp.arange(half, dtype=jnp.float32) * (-np.log(500_000.0) / half))
        table = jnp.arange(self.sequence, dtype=jnp.float32)[:, None, None] * rates
        cos, sin = jnp.cos(table).astype(x.dtype), jnp.sin(table).astype(x.dtype)
        first, second = jnp.split(x, 2, -1)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    def block(self, x, w):
        h = self.norm(w, "norm1", x)
        heads = lambda name, count: jnp.reshape(checkpoint_name(self.linear(w, name, h), "qkv"), (*h.shape[:2], count, self.head_features))
        q, k, v = heads("q", self.heads), heads("k", self.key_heads), heads("v", self.key_heads)
        if not self.is_gpt:
            q, k = self.rotate(q), self.rotate(k)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + self.linear(w, "out", checkpoint_name(jnp.reshape(mixed, (*x.shape[:2], -1)), "attn"))
        h = self.norm(w, "norm2", x)
        up = checkpoint_name(self.linear(w, "up", h), "up")
        hidden = jax.nn.gelu(up, approximate=True) if self.is_gpt else jax.nn.silu(checkpoint_name(self.linear(w, "gate", h), "gate")) * up
        return x + self.linear(w, "down", hidden)

    def loss(self, model, tokens, targets):
        run = self.block
        if self.policy != "none":
            run = jax.checkpoint(run, policy=checkpoint_policy(self.policy), prevent_cse=False)
        x = model["embed"][tokens]
        if self.is_gpt:
            x = x + model["positions"][: self.sequence]
        stacked = {name.removeprefix("blocks."): leaf for name, leaf in model.items() if name.startswith("blocks.")}
        x, _ = jax.lax.scan(lambda x, w: (run(x, w), None), x, stacked)
        logits = (self.norm(model, "norm", x) @ model.get("head", model["embed"]).T).astype(jnp.float32)
        chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)


def adamw(model, gradient, moments, count):
    """AdamW with remat's defaults, computed in f32."""
    mu, nu = moments
    count = count + 1
    new = {}
    for name, weight in model.items():
        g, p = gradient[name].astype(jnp.float32), weight.astype(jnp.float32)
        m, v = 0.9 * mu[name] + 0.1 * g, 0.999 * nu[name] + 0.001 * jnp.square(g)
        update = (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)
        new[name] = (p - 1e-3 * (update + 1e-4 * p)).astype(weight.dtype), m, v
    part = lambda i: {name: leaves[i] for name, leaves in new.items()}
    return part(0), (part(1), part(2)), count
