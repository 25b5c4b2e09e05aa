"""Training steps of a GPT-2 with AdamW in PyTorch on the CPU: time and resident memory, on random tokens.

    bench/peers/torch_train.py --layers 12 --width 768 --heads 12 --hidden 3072 --sequence 1024 --batch 1 --vocabulary 50257 --policy nothing
"""

import time

import torch
from torch import nn
from torch.nn import functional as F

import common
from torch_common import begin, parser, under


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(a.width), nn.LayerNorm(a.width)
        self.qkv, self.out = nn.Linear(a.width, 3 * a.width), nn.Linear(a.width, a.width)
        self.up, self.down = nn.Linear(a.width, a.hidden), nn.Linear(a.hidden, a.width)

    def forward(self, x):
        split = lambda part: part.unflatten(-1, (a.heads, a.width // a.heads)).transpose(1, 2)
        q, k, v = map(split, self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(a.vocabulary, a.width), nn.Embedding(a.sequence, a.width)
        self.blocks = nn.ModuleList(Block() for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.width)

    def forward(self, tokens):
        x = self.tokens(tokens[:, :-1]) + self.positions.weight[: tokens.shape[1] - 1]
        for block in self.blocks:
            x = under(a.policy, block, x)
        logits = self.norm(x) @ self.tokens.weight.T
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


options = parser(__doc__, dict(layers=12, width=768, heads=12, hidden=3072, sequence=1024, batch=1, vocabulary=50257))
options.add_argument("--clip-norm", type=float, default=1.0)
a = options.parse_args()
begin(a)
model = Gpt2()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.99), weight_decay=0.1)
tokens = torch.randint(a.vocabulary, (a.batch, a.sequence + 1))


def step():
    start = time.perf_counter()
    loss = model(tokens)
    loss.backward()
    if a.clip_norm > 0:
        nn.utils.clip_grad_norm_(model.parameters(), a.clip_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item(), time.perf_counter() - start


parameters = sum(weight.numel() for weight in model.parameters())
measured = common.measure(step, a.repeat)
version = torch.__version__.split("+")[0]
common.report("torch " + version, a, measured, common.step_flops(a), work="train", parameters=parameters)
