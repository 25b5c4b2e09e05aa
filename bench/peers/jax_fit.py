"""The decoder of `remat fit` in JAX, compiled ahead of time for a TPU that is not here: its memory on each chip.

Needs `jax` and the libtpu that `remat plugin install tpu` has downloaded; each policy is compiled in a process of its own:

    TPU_LIBRARY_PATH=~/.cache/remat/plugins/libtpu/libtpu.so python bench/peers/jax_fit.py --policy nothing
"""

import argparse
import os
import re
import subprocess
import sys

POLICIES = ["none", "dots", "dots_with_no_batch_dims", "names", "offload", "nothing"]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name, default in dict(layers=28, width=3072, heads=24, key_heads=8, head_features=128, hidden=8192, vocabulary=32768,
                          batch=32, sequence=2048, chips=8).items():
    parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
parser.add_argument("--policy", choices=POLICIES, help="all of them, one after the other, where there is none")
parser.add_argument("--topology", default="v5e:2x4")
parser.add_argument("--fast", action="store_true", help="level O0")
a = parser.parse_args()

if a.policy is None:
    for policy in POLICIES:
        subprocess.run([sys.executable, *sys.argv, "--policy", policy], check=False)
    sys.exit()

os.environ.update(TPU_SKIP_MDS_QUERY="1", TPU_ACCELERATOR_TYPE="v5litepod-4", TPU_WORKER_HOSTNAMES="localhost",
                  TPU_LOG_DIR="disabled", ALLOW_MULTIPLE_LIBTPU_LOAD="1", JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="2")

import jax  # noqa: E402, after the environment is set
import jax.numpy as jnp  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402
from jax.experimental import topologies  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402
import numpy as np  # noqa: E402

saved = jax.checkpoint_policies
CHECKPOINT = {
    "dots": saved.dots_saveable,
    "dots_with_no_batch_dims": saved.dots_with_no_batch_dims_saveable,
    "names": saved.save_only_these_names("qkv", "attn"),
    "offload": saved.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["qkv", "attn"], offload_src="device", offload_dst="pinned_host"),
    "nothing": saved.nothing_saveable,
}


def norm(x, scale):
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def rotate(x, cos, sin):
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def angles(dtype):
    half = a.head_features // 2
    rates = jnp.exp(jnp.arange(half, dtype=jnp.float32) * (-np.log(500_000.0) / half))
    table = jnp.arange(a.sequence, dtype=jnp.float32)[:, None, None] * rates
    return jnp.cos(table).astype(dtype), jnp.sin(table).astype(dtype)


def block(x, w):
    h = norm(x, w["norm1"])
    heads = lambda name, count: jnp.reshape(checkpoint_name(h @ w[name], "qkv"), (*h.shape[:2], count, a.head_features))
    q, k, v = heads("q", a.heads), heads("k", a.key_heads), heads("v", a.key_heads)
    cos, sin = angles(x.dtype)
    mixed = jax.nn.dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
    x = x + checkpoint_name(jnp.reshape(mixed, (*x.shape[:2], -1)), "attn") @ w["out"]
    h = norm(x, w["norm2"])
    return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]


def loss(model, tokens, targets):
    run = block if a.policy == "none" else jax.checkpoint(block, policy=CHECKPOINT[a.policy], prevent_cse=False)
    x, _ = jax.lax.scan(lambda x, w: (run(x, w), None), model["embed"][tokens], model["blocks"])
    logits = (norm(x, model["norm"]) @ model["head"].T).astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)


def shapes():
    queries, keys = a.heads * a.head_features, a.key_heads * a.head_features
    weights = dict(norm1=(a.width,), q=(a.width, queries), k=(a.width, keys), v=(a.width, keys), out=(queries, a.width),
                   norm2=(a.width,), gate=(a.width, a.hidden), up=(a.width, a.hidden), down=(a.hidden, a.width))
    blocks = {name: (a.layers, *shape) for name, shape in weights.items()}
    return dict(embed=(a.vocabulary, a.width), blocks=blocks, norm=(a.width,), head=(a.vocabulary, a.width))


topology = topologies.get_topology_desc(a.topology, "tpu")
mesh = Mesh(np.array(topology.devices).reshape(a.chips), ("data",))


def cut(shape):
    """Along the largest axis that the chips divide; of stacked weights not along that of the layers."""
    axes = [i for i in range(int(shape[0] == a.layers), len(shape)) if shape[i] % a.chips == 0]
    best = max(axes, key=lambda i: (shape[i], -i))
    return NamedSharding(mesh, P(*[None] * best, "data"))


array = lambda shape, dtype, sharding: jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
is_shape = lambda leaf: isinstance(leaf, tuple)
model = jax.tree.map(lambda shape: array(shape, jnp.bfloat16, cut(shape)), shapes(), is_leaf=is_shape)
tokens = array((a.batch, a.sequence), jnp.int32, NamedSharding(mesh, P("data")))
out = (NamedSharding(mesh, P()), jax.tree.map(cut, shapes(), is_leaf=is_shape))
lowered = jax.jit(jax.value_and_grad(loss), out_shardings=out).lower(model, tokens, tokens)
options = {"xla_allow_excess_precision": False}
if a.fast:
    options["optimization_level"] = 9
GIB = 1 << 30
try:
    stats = lowered.compile(compiler_options=options).memory_analysis()
    peak = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes - stats.alias_size_in_bytes
    print(f"{a.policy:24} peak {peak / GIB:8.2f} GiB  temporaries {stats.temp_size_in_bytes / GIB:8.2f}  "
          f"on the host {stats.host_temp_size_in_bytes / GIB:6.2f}", flush=True)
except Exception as error:
    needs = re.search(r"\(([\d.]+)G\)", str(error))
    print(f"{a.policy:24} does not fit: {needs.group(1) + ' GiB' if needs else str(error)[:300]}", flush=True)
