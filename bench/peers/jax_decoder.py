"""The training steps of `remat fit` in JAX: a Llama and a GPT-2 of `remat::nn`, their loss, weights, the policies, and AdamW.

Weights and tokens are those of `remat fit --run`: the leaf `i`, in the order of `shapes`, is `uniform(fold_in(key(0), i), ..)`. The optimizer is
that of `remat train` with its default settings, without a limit of the gradients' norm.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

POLICIES = ["none", "dots", "dots_with_no_batch_dims", "names", "offload", "nothing"]
LLAMA_3 = dict(kind="llama", key_heads=8, hidden=8192, epsilon=1e-5, theta=500_000.0)
SCALING = dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
SIZES = {
    "gpt2": dict(kind="gpt2", layers=12, width=768, heads=12, key_heads=12, head_features=64, hidden=3072, vocabulary=50257, tied=True,
                 epsilon=1e-5),
    "llama-1b": dict(LLAMA_3, layers=16, width=2048, heads=32, head_features=64, vocabulary=128256, tied=True, scaling=SCALING),
    "decoder-3b": dict(LLAMA_3, layers=28, width=3072, heads=24, head_features=128, vocabulary=32768, tied=False, scaling=None),
}


def of_hugging_face(config):
    """The sizes in a `config.json`."""
    if config["model_type"] == "gpt2":
        width, heads = config["n_embd"], config["n_head"]
        return dict(kind="gpt2", layers=config["n_layer"], width=width, heads=heads, key_heads=heads, head_features=width // heads,
                    hidden=config.get("n_inner") or 4 * width, vocabulary=config["vocab_size"], tied=config.get("tie_word_embeddings", True),
                    epsilon=config.get("layer_norm_epsilon", 1e-5))
    width, heads = config["hidden_size"], config["num_attention_heads"]
    return dict(kind="llama", layers=config["num_hidden_layers"], width=width, heads=heads,
                key_heads=config.get("num_key_value_heads") or heads, head_features=config.get("head_dim") or width // heads,
                hidden=config["intermediate_size"], vocabulary=config["vocab_size"], tied=config.get("tie_word_embeddings", False),
                epsilon=config.get("rms_norm_eps", 1e-6), theta=config.get("rope_theta", 10_000.0), scaling=config.get("rope_scaling"))


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
        """The shapes of the weights by name, in the order of remat's leaves. A GPT-2 has as many positions as it is trained with."""
        queries, keys = self.heads * self.head_features, self.key_heads * self.head_features
        norm = lambda name, *stack: {name + ".scale": (*stack, self.width)} | ({name + ".bias": (*stack, self.width)} if self.is_gpt else {})
        linear = lambda name, n, m: {name + ".weight": (self.layers, n, m)} | ({name + ".bias": (self.layers, m)} if self.is_gpt else {})
        blocks = norm("norm1", self.layers)
        if self.is_gpt:
            blocks |= linear("attn.qkv", self.width, 3 * self.width)
        else:
            blocks |= linear("attn.q", self.width, queries) | linear("attn.k", self.width, keys) | linear("attn.v", self.width, keys)
        blocks |= linear("attn.out", queries, self.width) | norm("norm2", self.layers)
        blocks |= {} if self.is_gpt else linear("mlp.gate", self.width, self.hidden)
        blocks |= linear("mlp.up", self.width, self.hidden) | linear("mlp.down", self.hidden, self.width)
        positions = {"positions.table": (self.sequence, self.width)} if self.is_gpt else {}
        head = {} if self.tied else {"head.weight": (self.width, self.vocabulary)}
        blocks = {"blocks." + name: shape for name, shape in blocks.items()}
        return {"embed.table": (self.vocabulary, self.width)} | positions | blocks | norm("norm") | head

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
        wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + self.epsilon)
        return wide.astype(x.dtype) * w[name + ".scale"] + (w[name + ".bias"] if self.is_gpt else 0)

    def linear(self, w, name, x):
        y = x @ w[name + ".weight"]
        return y + w[name + ".bias"] if self.is_gpt else y

    def rates(self):
        """The frequencies of rotary positions, scaled as those of Llama 3 if the model has a scaling."""
        half = self.head_features // 2
        rates = self.theta ** (-np.arange(half) / half)
        if self.scaling:
            kind = self.scaling.get("rope_type", self.scaling.get("type"))
            assert kind == "llama3", f"rotary positions of type {kind}"
            low, high = self.scaling["low_freq_factor"], self.scaling["high_freq_factor"]
            turns = self.scaling["original_max_position_embeddings"] * rates / (2 * np.pi)
            share = np.clip((turns - low) / (high - low), 0, 1)
            rates = rates * (share + (1 - share) / self.scaling["factor"])
        return jnp.asarray(rates, jnp.float32)

    def rotate(self, x):
        table = jnp.arange(self.sequence, dtype=jnp.float32)[:, None, None] * self.rates()
        cos, sin = jnp.cos(table), jnp.sin(table)
        first, second = jnp.split(x.astype(jnp.float32), 2, -1)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(x.dtype)

    def queries_keys_values(self, w, h):
        named = lambda name: checkpoint_name(self.linear(w, "attn." + name, h), "qkv")
        if self.is_gpt:
            parts = jnp.reshape(named("qkv"), (*h.shape[:2], 3, self.heads, self.head_features))
            return parts[:, :, 0], parts[:, :, 1], parts[:, :, 2]
        heads = lambda name, count: jnp.reshape(named(name), (*h.shape[:2], count, self.head_features))
        q, k, v = heads("q", self.heads), heads("k", self.key_heads), heads("v", self.key_heads)
        return self.rotate(q), self.rotate(k), v

    def block(self, x, w):
        q, k, v = self.queries_keys_values(w, self.norm(w, "norm1", x))
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + checkpoint_name(self.linear(w, "attn.out", jnp.reshape(mixed, (*x.shape[:2], -1))), "attn")
        h = self.norm(w, "norm2", x)
        gate = None if self.is_gpt else checkpoint_name(self.linear(w, "mlp.gate", h), "gate")
        up = checkpoint_name(self.linear(w, "mlp.up", h), "up")
        hidden = jax.nn.gelu(up, approximate=True) if self.is_gpt else jax.nn.silu(gate) * up
        return x + checkpoint_name(self.linear(w, "mlp.down", hidden), "mlp")

    def loss(self, model, tokens, targets):
        run = self.block
        if self.policy != "none":
            run = jax.checkpoint(run, policy=checkpoint_policy(self.policy), prevent_cse=False)
        x = model["embed.table"][tokens]
        if self.is_gpt:
            x = x + model["positions.table"]
        stacked = {name.removeprefix("blocks."): leaf for name, leaf in model.items() if name.startswith("blocks.")}
        x, _ = jax.lax.scan(lambda x, w: (run(x, w), None), x, stacked)
        head = model["embed.table"].T if self.tied else model["head.weight"]
        logits = (self.norm(model, "norm", x) @ head).astype(jnp.float32)
        chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)


def learning_rate(done, steps=2000, peak=3e-3):
    """The rate after this many steps: it rises to the peak, then falls to a tenth by a cosine."""
    warmup = min(steps // 10, 100)
    share = (done - warmup) / (steps - warmup)
    falls = 0.1 * peak + 0.45 * peak * (1 + jnp.cos(jnp.pi * jnp.clip(share, 0, 1)))
    return jnp.where(done < warmup, peak * done / warmup, falls)


def adamw(model, gradient, moments, count):
    """AdamW with the defaults of `remat train`, computed in f32: matrices alone decay."""
    mu, nu = moments
    rate, count = learning_rate(count.astype(jnp.float32)), count + 1
    new = {}
    for name, weight in model.items():
        g, p = gradient[name].astype(jnp.float32), weight.astype(jnp.float32)
        m, v = 0.9 * mu[name] + 0.1 * g, 0.99 * nu[name] + 0.01 * jnp.square(g)
        update = (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.99**count)) + 1e-8)
        decay = 0.1 if name.endswith(("weight", "table")) else 0
        new[name] = (p - rate * (update + decay * p)).astype(weight.dtype), m, v
    part = lambda i: {name: leaves[i] for name, leaves in new.items()}
    return part(0), (part(1), part(2)), count
