"""The training step of `remat fit --run` with GPT-2 in PyTorch, on a card: its time, and the memory that the device's allocator counted. A line of JSON
for each batch, also for one that does not fit. Weights are random, not those of remat, and moments have the dtype of the weights, as PyTorch keeps
them.

    python bench/peers/torch_run.py --batch 16 --context 1024 --policy nothing [--compile]
"""

import argparse
import json
import statistics
import time

import torch

from torch_common import Gpt2

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--batch", type=int, action="append")
parser.add_argument("--context", type=int, default=1024)
parser.add_argument("--policy", choices=["none", "nothing"], default="none")
parser.add_argument("--steps", type=int, default=5, help="timed steps, after one that compiles")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--device", default="cuda")
parser.add_argument("--layers", type=int, default=12)
a = parser.parse_args()
# The other sizes of GPT-2.
SIZES = argparse.Namespace(layers=a.layers, width=768, heads=12, hidden=3072, vocabulary=50257, sequence=1024, policy=a.policy)


def measured(batch):
    is_card = a.device == "cuda"
    wait = torch.cuda.synchronize if is_card else lambda: None
    model = Gpt2(SIZES).to(device=a.device, dtype=torch.bfloat16)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.uniform_(-0.035, 0.035)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4, fused=is_card)
    forward = torch.compile(model) if a.compile else model
    tokens = torch.randint(SIZES.vocabulary, (batch, a.context + 1), device=a.device)

    def step():
        start = time.perf_counter()
        loss = forward(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        return time.perf_counter() - start, loss.item()

    first, _ = step()
    if is_card:
        torch.cuda.reset_peak_memory_stats()
    times, losses = zip(*(step() for _ in range(a.steps)))
    counted = torch.cuda.max_memory_allocated() if is_card else None
    return dict(first_s=first, step_s=statistics.median(times), peak=counted, losses=losses)


for batch in a.batch or [8]:
    name = torch.cuda.get_device_name() if a.device == "cuda" else "cpu"
    row = dict(framework="torch " + torch.__version__, device=name, policy=a.policy, compiled=a.compile, batch=batch, error=None)
    try:
        row.update(measured(batch))
    except Exception as error:  # What does not fit is a row too.
        row["error"] = f"{type(error).__name__}: {error}"[:2000]
    print(json.dumps(row), flush=True)
