"""What the scripts for PyTorch share."""

import time

import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import common

DTYPES = dict(f32=torch.float32, bf16=torch.bfloat16)


def parser(description, sizes):
    """As `common.parser`, with what a checkpoint saves."""
    result = common.parser(description, sizes)
    result.add_argument("--policy", choices=["none", "nothing"], default="none",
                        help="nothing: a checkpoint around each part")
    return result


def begin(a):
    """Sets the threads and the seed."""
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)


def under(policy, part, *x):
    """A part of a model under a policy."""
    return checkpoint(part, *x, use_reentrant=False) if policy == "nothing" else part(*x)


def forward_flops(loss):
    """Operations of the products and convolutions of a loss."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        loss()
    return counter.get_total_flops()


def measure_and_report(a, model, loss, flops, **more):
    """Measures the loss and its gradient with respect to all weights. `flops` gives the useful operations, asked last so
    that what it takes does not count."""

    def step():
        start = time.perf_counter()
        value = loss()
        value.backward()
        seconds = time.perf_counter() - start
        model.zero_grad(set_to_none=True)
        return value.item(), seconds

    parameters = sum(weight.numel() for weight in model.parameters())
    version = torch.__version__.split("+")[0]
    measured = common.measure(step, a.repeat)
    common.report("torch " + version, a, measured, flops(), parameters=parameters, **more)


def vision_parser(description, sizes):
    """As `parser`, for images."""
    result = parser(description, sizes)
    result.add_argument("--memory-format", choices=["contiguous", "channels-last"], default="contiguous")
    return result


def format_of(a):
    """The order of the dimensions of images in memory."""
    return torch.channels_last if a.memory_format == "channels-last" else torch.contiguous_format
