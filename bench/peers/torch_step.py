"""One configuration of the reference step in PyTorch on the CPU: loss and gradient of a GPT."""

import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import common


def arguments():
    parser = common.parser(__doc__, common.STEP_SIZES)
    parser.add_argument("--policy", choices=["none", "nothing"], default="none",
                        help="nothing: a checkpoint around each block")
    parser.add_argument("--attention", choices=["plain", "fused"], default="plain")
    return parser.parse_args()


a = arguments()
torch.set_num_threads(a.threads)
torch.manual_seed(0)
DTYPE = dict(f32=torch.float32, bf16=torch.bfloat16)[a.dtype]


def weight(*shape):
    return nn.Parameter((0.02 * torch.randn(shape)).to(DTYPE))


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
            mixed = scores.masked_fill(UNSEEN, -1e9).softmax(-1) @ v
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
            x = checkpoint(block, x, use_reentrant=False) if a.policy == "nothing" else block(x)
        logits = F.layer_norm(x, (a.width,)) @ self.embed.T
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


UNSEEN = torch.ones(a.sequence, a.sequence, dtype=torch.bool).triu(1)
model = Gpt()
tokens = torch.randint(a.vocabulary, (a.batch, a.sequence))


def step():
    start = time.perf_counter()
    loss = model(tokens)
    loss.backward()
    seconds = time.perf_counter() - start
    model.zero_grad(set_to_none=True)
    return loss.item(), seconds


measured = common.measure(step, a.repeat)
common.report(
    "torch " + torch.__version__.split("+")[0],
    a,
    measured,
    common.step_flops(a),
    work="step",
    layers_as="unroll",
    parameters=sum(p.numel() for p in model.parameters()),
)
