"""Training of a GPT-2 in JAX on the CPU, step by step as `remat train` does it.

Compared with a run, it takes that run's first weights and its text, makes the same batches (JAX's generator is ours), and prints the
largest difference of losses:

    remat train --text book.txt --steps 2000 --save first --save-every 1 ...   # stopped after step 1, or:
    remat train --text book.txt --steps 0 --save first                         # the weights before the first step
    remat train --text book.txt --save run
    bench/peers/jax_train.py --weights first/step-000000/model.safetensors --run run --text book.txt

Without `--run` it trains on random tokens and prints time and resident memory, for sizes as large as those of GPT-2:

    bench/peers/jax_train.py --layers 12 --width 768 --heads 12 --hidden 3072 --sequence 1024 --batch 1 --vocabulary 50257 --tied --policy nothing
"""

import functools
import json
import math
import os
from pathlib import Path

import common


def arguments():
    sizes = dict(layers=2, width=96, heads=4, hidden=384, sequence=64, batch=8, vocabulary=256)
    parser = common.parser(__doc__, sizes)
    parser.add_argument("--policy", choices=["none", "nothing"], default="none")
    parser.add_argument("--barriers", choices=["default", "kept"], default="default",
                        help="kept: without the pass that lets XLA merge what is recomputed with its forward twin")
    parser.add_argument("--tied", action="store_true", help="the table of tokens is the head")
    parser.add_argument("--weights", help="a safetensors file of weights to begin with")
    parser.add_argument("--run", help="the folder of a run to compare with")
    parser.add_argument("--text", help="the file that the run learnt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2000, help="those of the schedule")
    parser.add_argument("--compare", type=int, default=100, help="the steps that are compared")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--clip-norm", type=float, default=1.0)
    return parser.parse_args()


a = arguments()
common.use_cores(a.threads)
os.environ["JAX_PLATFORMS"] = "cpu"
# The seed of the batches is a 64-bit integer.
os.environ["JAX_ENABLE_X64"] = "1"
if a.barriers == "kept":
    os.environ["XLA_FLAGS"] = "--xla_disable_hlo_passes=cse_barrier_expander"

import jax  # noqa: E402, after the environment is set
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402


GOLDEN, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def initial():
    """Random weights under the names of our paths."""
    keys = iter(jax.random.split(jax.random.key(0), 1000))
    draw = lambda *shape: 0.02 * jax.random.normal(next(keys), shape, jnp.float32)
    ones, zeros = (functools.partial(f, dtype=jnp.float32) for f in (jnp.ones, jnp.zeros))
    w = {"embed.table": draw(a.vocabulary, a.width), "positions.table": draw(a.sequence, a.width)}
    if not a.tied:
        w["head.weight"] = draw(a.width, a.vocabulary)
    for name in ["norm"] + [f"blocks.{i}.norm{k}" for i in range(a.layers) for k in (1, 2)]:
        w[name + ".scale"], w[name + ".bias"] = ones(a.width), zeros(a.width)
    for i in range(a.layers):
        shapes = {"attn.qkv": (a.width, 3 * a.width), "attn.out": (a.width, a.width),
                  "mlp.up": (a.width, a.hidden), "mlp.down": (a.hidden, a.width)}
        for name, shape in shapes.items():
            w[f"blocks.{i}.{name}.weight"], w[f"blocks.{i}.{name}.bias"] = draw(*shape), zeros(shape[1])
    return w


def linear(w, name, x):
    return x @ w[name + ".weight"] + w[name + ".bias"]


def norm(w, name, x):
    centered = x - jnp.mean(x, -1, keepdims=True)
    normal = centered * jax.lax.rsqrt(jnp.mean(jnp.square(centered), -1, keepdims=True) + 1e-5)
    return normal * w[name + ".scale"] + w[name + ".bias"]


def block(w, x):
    qkv = linear(w, "attn.qkv", norm(w, "norm1", x))
    q, k, v = jnp.moveaxis(qkv.reshape(*x.shape[:2], 3, a.heads, a.width // a.heads), 2, 0)
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + linear(w, "attn.out", mixed.reshape(x.shape))
    return x + linear(w, "mlp.down", jax.nn.gelu(linear(w, "mlp.up", norm(w, "norm2", x)), approximate=True))


def loss(w, tokens, targets):
    run = block if a.policy == "none" else jax.checkpoint(block)
    x = w["embed.table"][tokens] + w["positions.table"][: tokens.shape[1]]
    for i in range(a.layers):
        prefix = f"blocks.{i}."
        x = run({name[len(prefix) :]: leaf for name, leaf in w.items() if name.startswith(prefix)}, x)
    head = w["head.weight"] if "head.weight" in w else w["embed.table"].T
    logits = norm(w, "norm", x) @ head
    surprises = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jnp.mean(surprises)


def rate(step):
    """The rate rises over the first steps, then falls to a tenth by a cosine."""
    warmup = min(a.steps // 10, 100)
    progress = jnp.clip((step - warmup) / max(a.steps - warmup, 1), 0.0, 1.0)
    end = a.learning_rate / 10
    fallen = end + (a.learning_rate - end) * 0.5 * (1 + jnp.cos(jnp.pi * progress))
    return jnp.where(step < warmup, a.learning_rate * step / max(warmup, 1), fallen).astype(jnp.float32)


@functools.partial(jax.jit, donate_argnums=(0, 1, 2))
def train_step(w, mu, nu, step, tokens, targets):
    """AdamW with b2 of 0.99; matrices decay by 0.1."""
    value, gradient = jax.value_and_grad(loss)(w, tokens, targets)
    if a.clip_norm > 0:
        length = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in gradient.values()))
        gradient = {name: jnp.where(length < a.clip_norm, leaf, leaf / length * a.clip_norm) for name, leaf in gradient.items()}
    mu = {name: 0.9 * mu[name] + 0.1 * gradient[name] for name in w}
    nu = {name: 0.99 * nu[name] + 0.01 * jnp.square(gradient[name]) for name in w}
    lr, count = rate(step), (step + 1).astype(jnp.float32)

    def update(name):
        m, v = mu[name] / (1 - 0.9**count), nu[name] / (1 - 0.99**count)
        decay = 0.1 * w[name] if w[name].ndim >= 2 else 0.0
        return w[name] - lr * (m / (jnp.sqrt(v) + 1e-8) + decay)

    return {name: update(name) for name in w}, mu, nu, value


def mixed(x):
    """splitmix64, as in crates/remat-data/src/shuffle.rs."""
    x = (x + GOLDEN) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def shuffled(seed, epoch, count, x):
    """Where the permutation of an epoch takes a window: the swap-or-not shuffle."""
    own = mixed(mixed(seed) ^ epoch)
    for round in range(6 * count.bit_length()):
        key = mixed(own ^ (round * GOLDEN & MASK))
        partner = (key % count - x) % count
        if mixed(key ^ max(x, partner)) & 1:
            x = partner
    return x


def batches():
    """The batches of a run: each window of the first nine tenths of its text once in an epoch."""
    text = np.frombuffer(Path(a.text).read_bytes(), np.uint8)
    text = text[: len(text) - len(text) // 10].astype(np.int32)
    key = jax.random.split(jax.random.key(a.seed), 3)[1]
    seed = int(jax.random.bits(key, (), jnp.uint64))
    count = max((len(text) - a.sequence) // a.sequence, 1)
    offsets = len(text) - count * a.sequence

    def start(window):
        epoch, window = divmod(window, count)
        offset = mixed(mixed(seed ^ 1) ^ epoch) % offsets
        return offset + shuffled(seed, epoch, count, window) * a.sequence

    for step in range(a.compare):
        starts = np.array([start(step * a.batch + row) for row in range(a.batch)])
        rows = starts[:, None] + np.arange(a.sequence)
        yield text[rows], text[rows + 1]


w = {name: jnp.asarray(weight) for name, weight in common.read_safetensors(a.weights).items()} if a.weights else initial()
mu, nu = ({name: jnp.zeros_like(leaf) for name, leaf in w.items()} for _ in range(2))
if a.run:
    with open(Path(a.run) / "metrics.jsonl") as lines:
        ours = [json.loads(line)["loss"] for line in lines][: a.compare]
    worst = 0.0
    for step, (tokens, targets) in enumerate(batches()):
        w, mu, nu, value = train_step(w, mu, nu, jnp.int32(step), tokens, targets)
        worst = max(worst, abs(float(value) - ours[step]))
        if step in (0, 9, 49, 99):
            print(f"step {step + 1}: JAX {float(value):.6f}, ours {ours[step]:.6f}")
    print(f"largest difference of {len(ours)} losses: {worst:.2e}")
    assert not math.isnan(worst) and worst < 1e-3
else:
    tokens = jax.random.randint(jax.random.key(1), (a.batch, a.sequence + 1), 0, a.vocabulary, jnp.int32)
    state, count = (w, mu, nu), 0
    parameters = sum(leaf.size for leaf in w.values())
    del w, mu, nu
    tokens, targets = tokens[:, :-1], tokens[:, 1:]
    compiled = train_step.lower(*state, jnp.int32(0), tokens, targets).compile()
    temporaries = compiled.memory_analysis().temp_size_in_bytes
    # Said before the first step, which may not fit.
    print(json.dumps(dict(temporaries=temporaries)), flush=True)

    def step():
        global state, count
        *state, value = compiled(*state, jnp.int32(count), tokens, targets)
        count += 1
        return float(value), None

    measured = common.measure(step, a.repeat)
    common.report("jax " + jax.__version__, a, measured, common.step_flops(a), work="train", parameters=parameters,
                  temporaries=temporaries)
