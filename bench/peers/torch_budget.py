"""PyTorch's budget for saved activations, under `torch.compile`: memory and time of a step for several of them.

    bench/peers/torch_step.py --attention fused --budgets 1.0,0.5,0.0
    bench/peers/torch_unet.py --budgets 1.0,0.5,0.0

A budget is a ratio: 0 saves the inputs of the compiled forward pass, 1 what PyTorch saves by default. The peak of the bytes that the step
allocates for tensors is counted, gradients included, as the profiler reports each allocation. Scratch memory of libraries is not in it.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch._functorch import config
from torch._inductor.compile_fx import compile_fx
from torch.profiler import ProfilerActivity, profile


def compiled(model, budget):
    """The model compiled for a budget. A backend of its own keeps it apart from those for others."""

    def backend(graph, inputs):
        with config.patch(activation_memory_budget=budget):
            return compile_fx(graph, inputs)

    return torch.compile(model, backend=backend)


def allocated_peak(step):
    """The most bytes of tensors that a step allocates and that are there at one time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event["ts"]):
        live += event["args"]["Bytes"]
        peak = max(peak, live)
    return peak


def measure_and_report(a, model, loss, **more):
    """Runs the step for each budget in turn, and prints a line for each: its peak, the seconds of its threads, and the median of
    their ratios to those for the first budget. `loss` computes the loss with a compiled model."""
    torch._dynamo.config.recompile_limit = 2 * len(a.budgets) + 8
    programs = [compiled(model, budget) for budget in a.budgets]

    def step(program):
        # Seconds of all threads: what the machine does besides does not count.
        start = time.process_time()
        value = loss(program)
        value.backward()
        seconds = time.process_time() - start
        model.zero_grad(set_to_none=True)
        return value.item(), seconds

    losses = [step(program)[0] for program in programs]
    turns = [[step(program)[1] for program in programs] for _ in range(a.repeat + 1)][1:]
    gradients = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    version = torch.__version__.split("+")[0]
    for i, (budget, program) in enumerate(zip(a.budgets, programs)):
        seconds = [turn[i] for turn in turns]
        print(json.dumps(dict(
            framework="torch " + version, **vars(a) | dict(budgets=budget), loss=losses[i], cpu_s=statistics.median(seconds),
            ratio=statistics.median(turn[i] / turn[0] for turn in turns), gradients=gradients,
            allocated_peak=allocated_peak(lambda: step(program)), **more)), flush=True)


def add_argument(parser):
    """The argument of the scripts that measure budgets."""
    numbers = lambda text: [float(number) for number in text.split(",")]
    parser.add_argument("--budgets", type=numbers, help="compile the model for each of these shares of saved activations")
