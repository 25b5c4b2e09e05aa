"""What the scripts for PyTorch share."""

import time

import torch
from torch import nn
from torch.nn import functional as F
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


class Block(nn.Module):
    """A block of a GPT-2 of the sizes in `a`."""

    def __init__(self, a):
        super().__init__()
        self.size = a.width // a.heads
        self.norm1, self.norm2 = nn.LayerNorm(a.width), nn.LayerNorm(a.width)
        self.qkv, self.out = nn.Linear(a.width, 3 * a.width), nn.Linear(a.width, a.width)
        self.up, self.down = nn.Linear(a.width, a.hidden), nn.Linear(a.hidden, a.width)

    def forward(self, x):
        split = lambda part: part.unflatten(-1, (-1, self.size)).transpose(1, 2)
        q, k, v = map(split, self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """A GPT-2 of the sizes in `a`, under its policy: the mean loss of tokens, in f32."""

    def __init__(self, a):
        super().__init__()
        self.policy = a.policy
        self.tokens, self.positions = nn.Embedding(a.vocabulary, a.width), nn.Embedding(a.sequence, a.width)
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.width)

    def forward(self, tokens):
        x = self.tokens(tokens[:, :-1]) + self.positions.weight[: tokens.shape[1] - 1]
        for block in self.blocks:
            x = under(self.policy, block, x)
        logits = self.norm(x) @ self.tokens.weight.T
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


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
