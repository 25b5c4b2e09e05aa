"""Training steps of a GPT-2 with AdamW in PyTorch on the CPU: time and resident memory, on random tokens.

    bench/peers/torch_train.py --layers 12 --width 768 --heads 12 --hidden 3072 --sequence 1024 --batch 1 --vocabulary 50257 --policy nothing
"""

import time

import torch
from torch import nn

import common
from torch_common import Gpt2, begin, parser

options = parser(__doc__, dict(layers=12, width=768, heads=12, hidden=3072, sequence=1024, batch=1, vocabulary=50257))
options.add_argument("--clip-norm", type=float, default=1.0)
a = options.parse_args()
begin(a)
model = Gpt2(a)
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
