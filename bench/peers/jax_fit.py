"""The decoder of `remat fit` in JAX, compiled ahead of time for a TPU that is not here: its memory on each chip.

Needs `jax` and the libtpu that `remat plugin install tpu` has downloaded; each policy is compiled in a process of its own:

    TPU_LIBRARY_PATH=~/.cache/remat/plugins/libtpu/libtpu.so python bench/peers/jax_fit.py --policy nothing
"""

import argparse
import os
import re
import subprocess
import sys

# As in jax_decoder, which is imported once the environment is set.
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
from jax.experimental import topologies  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402
import numpy as np  # noqa: E402

import jax_decoder  # noqa: E402

sizes = {name: getattr(a, name) for name in ("layers", "width", "heads", "key_heads", "head_features", "hidden", "vocabulary")}
decoder = jax_decoder.Decoder(dict(sizes, kind="llama", tied=False, epsilon=1e-5, theta=500_000.0, scaling=None), a.policy, a.sequence)

topology = topologies.get_topology_desc(a.topology, "tpu")
mesh = Mesh(np.array(topology.devices).reshape(a.chips), ("data",))


def cut(shape):
    """Along the largest axis that the chips divide; of stacked weights not along that of the layers."""
    axes = [i for i in range(int(shape[0] == a.layers), len(shape)) if shape[i] % a.chips == 0]
    best = max(axes, key=lambda i: (shape[i], -i))
    return NamedSharding(mesh, P(*[None] * best, "data"))


array = lambda shape, dtype, sharding: jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
model = {name: array(shape, jnp.bfloat16, cut(shape)) for name, shape in decoder.shapes().items()}
tokens = array((a.batch, a.sequence), jnp.int32, NamedSharding(mesh, P("data")))
out = (NamedSharding(mesh, P()), {name: cut(shape) for name, shape in decoder.shapes().items()})
lowered = jax.jit(jax.value_and_grad(decoder.loss), out_shardings=out).lower(model, tokens, tokens)
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
