"""One configuration of the reference step in JAX on the CPU, or on a card: loss and gradient of a GPT."""

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

import jax_gpt  # noqa: E402

model, tokens = jax_gpt.initial(a)
start = time.perf_counter()
traced = jax.jit(jax.value_and_grad(jax_gpt.loss_of(a))).trace(model, tokens)
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
