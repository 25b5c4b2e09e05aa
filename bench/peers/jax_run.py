"""The training step of `remat fit --run` in JAX, on the device that JAX finds: its time, the memory that XLA planned and that the device's
allocator counted, and its losses. A line of JSON for each batch, also for one that does not fit; the process goes on behind it.

    python bench/peers/jax_run.py --model llama-1b --batch 8 --context 2048 --policy nothing
"""

import argparse
import json
import os
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", default="gpt2", help="gpt2, llama-1b, decoder-3b, or a config.json")
parser.add_argument("--batch", type=int, action="append", help="several run one after the other")
parser.add_argument("--context", type=int, default=1024)
parser.add_argument("--policy", default="none")
parser.add_argument("--dtype", choices=["f32", "bf16"], default="bf16")
parser.add_argument("--steps", type=int, default=5, help="timed steps, after one that compiles")
parser.add_argument("--attention", choices=["xla", "cudnn"], default="xla")
parser.add_argument("--platform", choices=["cpu", "cuda"], default="cuda")
a = parser.parse_args()
os.environ["JAX_PLATFORMS"] = a.platform
# As much of the card as remat takes.
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", os.environ.get("REMAT_CUDA_MEMORY_FRACTION", "0.95"))

import jax  # noqa: E402, after the environment is set
import jax.numpy as jnp  # noqa: E402

import jax_decoder  # noqa: E402

if a.attention == "cudnn":
    definition = jax.nn.dot_product_attention
    jax.nn.dot_product_attention = lambda *args, **more: definition(*args, **more, implementation="cudnn")
if a.dtype == "f32":
    # As remat multiplies.
    jax.config.update("jax_default_matmul_precision", "highest")

DTYPE = dict(f32=jnp.float32, bf16=jnp.bfloat16)[a.dtype]
if a.model in jax_decoder.SIZES:
    sizes = jax_decoder.SIZES[a.model]
else:
    with open(a.model) as file:
        sizes = jax_decoder.of_hugging_face(json.load(file))


def counted():
    """What the allocator counts; nothing on CPUs."""
    stats = jax.devices()[0].memory_stats()
    return stats and dict(in_use=stats["bytes_in_use"], peak=stats.get("peak_bytes_in_use"), limit=stats.get("bytes_limit"))


def measured(batch):
    decoder = jax_decoder.Decoder(sizes, a.policy, a.context)
    model = decoder.weights(DTYPE)
    zeros = lambda: {name: jnp.zeros(leaf.shape, jnp.float32) for name, leaf in model.items()}
    state = (model, (zeros(), zeros()), jnp.int32(0))
    del model
    tokens, targets = decoder.tokens(batch)
    before = counted()

    def step(model, moments, count, tokens, targets):
        loss, gradient = jax.value_and_grad(decoder.loss)(model, tokens, targets)
        return loss, jax_decoder.adamw(model, gradient, moments, count)

    start = time.perf_counter()
    options = {"xla_allow_excess_precision": False}
    compiled = jax.jit(step, donate_argnums=(0, 1, 2)).lower(*state, tokens, targets).compile(compiler_options=options)
    compile_s = time.perf_counter() - start
    stats = compiled.memory_analysis()
    planned = stats.argument_size_in_bytes + stats.output_size_in_bytes + stats.temp_size_in_bytes - stats.alias_size_in_bytes
    times, calls, losses = [], [], []
    for _ in range(a.steps + 1):
        start = time.perf_counter()
        loss, state = compiled(*state, tokens, targets)
        calls.append(time.perf_counter() - start)
        jax.block_until_ready((loss, state))
        times.append(time.perf_counter() - start)
        losses.append(float(loss))
    return dict(compile_s=compile_s, first_s=times[0], step_s=statistics.median(times[1:]), call_s=statistics.median(calls[1:]),
                planned_peak=planned, temporaries=stats.temp_size_in_bytes, before=before, after=counted(), losses=losses)


for batch in a.batch or [8]:
    row = dict(framework="jax " + jax.__version__, device=jax.devices()[0].device_kind, policy=a.policy, batch=batch, error=None)
    try:
        row.update(measured(batch))
    except Exception as error:  # What does not fit is a row too.
        row["error"] = f"{type(error).__name__}: {error}"[:2000]
    print(json.dumps(row), flush=True)
