"""One configuration of the reference step in PyTorch on the CPU: loss and gradient of a GPT."""

import torch
from torch import nn
from torch.nn import functional as F

import common
import torch_budget
from torch_common import DTYPES, begin, measure_and_report, parser, under


def weight(*shape):
    return nn.Parameter((0.02 * torch.randn(shape)).to(DTYPES[a.dtype]))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (weight(a.width, a.width) for _ in range(4))
        self.up, self.down = weight(a.width, a.hidden), weight(a.hidden, a.width)

    def attend(self, h):
        size = a.width // a.heads
        split = lambda w: (h @ w).unflatten(-1, (a.heads, size)).transpose(1, 2)
        q, k, v = split(self.q), split(self.k), split(self.v)
        if a.attention == "fused":
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.mT / size**0.5
            mixed = scores.masked_fill(unseen, -1e9).softmax(-1) @ v
        return mixed.transpose(1, 2).flatten(2) @ self.o

    def forward(self, x):
        x = x + self.attend(F.layer_norm(x, (a.width,)))
        return x + F.gelu(F.layer_norm(x, (a.width,)) @ self.up, approximate="tanh") @ self.down


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(a.layers))
        self.embed = weight(a.vocabulary, a.width)

    def forward(self, tokens):
        x = self.embed[tokens]
        for block in self.blocks:
            x = under(a.policy, block, x)
        logits = F.layer_norm(x, (a.width,)) @ self.embed.T
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


options = parser(__doc__, common.STEP_SIZES)
options.add_argument("--attention", choices=["plain", "fused"], default="plain")
options.add_argument("--compile", action="store_true", help="the model compiled by torch.compile")
torch_budget.add_argument(options)
a = options.parse_args()
begin(a)
unseen = torch.ones(a.sequence, a.sequence, dtype=torch.bool).triu(1)
model = Gpt()
tokens = torch.randint(a.vocabulary, (a.batch, a.sequence))
loss = torch.compile(model) if a.compile else model
if a.budgets:
    torch_budget.measure_and_report(a, model, lambda program: program(tokens), work="step", layers_as="unroll")
else:
    measure_and_report(a, model, lambda: loss(tokens), lambda: common.step_flops(a), work="step", layers_as="unroll")
