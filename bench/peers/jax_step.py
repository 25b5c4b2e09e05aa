"""One configuration of the reference step in JAX on the CPU, or on a card: loss and gradient of a GPT."""

import functools
import os
import time

import common


def arguments():
    parser = common.parser(__doc__, common.STEP_SIZES)
    parser.add_argument("--policy", choices=["none", "dots", "dots_with_no_batch_dims", "nothing"], default="none")
    parser.add_argument("--layers-as", choices=["scan", "unroll"], default="scan")
    parser.add_argument("--barriers", choices=["default", "kept"], default="default",
                        help="kept: without the pass that lets XLA merge what is recomputed with its forward twin")
    parser.add_argument("--platform", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--plugin", help="run on this PJRT plugin, instead of the XLA that comes with JAX")
    return parser.parse_args()


a = arguments()
common.use_cores(a.threads)
os.environ["JAX_PLATFORMS"] = "plugin" if a.plugin else a.platform
if a.plugin:
    os.environ["PJRT_NAMES_AND_LIBRARY_PATHS"] = "plugin:" + a.plugin
if a.barriers == "kept":
    os.environ["XLA_FLAGS"] = "--xla_disable_hlo_passes=cse_barrier_expander"

import jax  # noqa: E402, after the environment is set
import jax.numpy as jnp  # noqa: E402

DTYPE = dict(f32=jnp.float32, bf16=jnp.bfloat16)[a.dtype]
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


def attention(h, block):
    size = a.width // a.heads
    q, k, v = (jnp.reshape(h @ block[name], (a.batch, a.sequence, a.heads, size)) for name in ("q", "k", "v"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / size**0.5
    positions = jnp.arange(a.sequence)
    scores = jnp.where(positions[:, None] >= positions[None, :], scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return jnp.reshape(mixed, h.shape) @ block["o"]


def apply_block(x, block):
    x = x + attention(normalise(x), block)
    return x + jax.nn.gelu(normalise(x) @ block["up"], approximate=True) @ block["down"]


def loss(model, tokens):
    run = apply_block if a.policy == "none" else jax.checkpoint(apply_block, policy=POLICIES[a.policy])
    x = model["embed"][tokens]
    if a.layers_as == "scan":
        x, _ = jax.lax.scan(lambda x, block: (run(x, block), None), x, model["blocks"])
    else:
        for layer in range(a.layers):
            x = run(x, jax.tree.map(lambda stacked: stacked[layer], model["blocks"]))
    logits = (normalise(x) @ model["embed"].T)[:, :-1]
    surprises = -jax.nn.log_softmax(logits)
    return jnp.mean(jnp.take_along_axis(surprises, tokens[:, 1:, None], axis=-1))


def initial():
    """The weights and the tokens, from the key 0 all of them."""
    normal = functools.partial(jax.random.normal, jax.random.key(0))
    draw = lambda *shape: (0.02 * normal(shape)).astype(DTYPE)
    square = {name: draw(a.layers, a.width, a.width) for name in "qkvo"}
    blocks = dict(square, up=draw(a.layers, a.width, a.hidden), down=draw(a.layers, a.hidden, a.width))
    tokens = jax.random.randint(jax.random.key(0), (a.batch, a.sequence), 0, a.vocabulary)
    return dict(blocks=blocks, embed=draw(a.vocabulary, a.width)), tokens


model, tokens = initial()
start = time.perf_counter()
traced = jax.jit(jax.value_and_grad(loss)).trace(model, tokens)
trace_s = time.perf_counter() - start
compiled = traced.lower().compile()
compile_s = time.perf_counter() - start - trace_s


def step():
    value, _ = jax.block_until_ready(compiled(model, tokens))
    return float(value), None


measured = common.measure(step, a.repeat)
common.report(
    "jax " + jax.__version__,
    a,
    measured,
    common.step_flops(a),
    work="step",
    attention="plain",
    parameters=sum(leaf.size for leaf in jax.tree.leaves(model)),
    trace_s=trace_s,
    compile_s=compile_s,
    temporaries=compiled.memory_analysis().temp_size_in_bytes,
)
