"""The products of `remat bench products` in PyTorch on the CPU: a line of JSON for each."""

import json
import re
import sys
import time

import torch

DTYPES = dict(f32=torch.float32, f64=torch.float64, bf16=torch.bfloat16, f16=torch.float16, i8=torch.int8)


def measure(product, dtype, threads, milliseconds):
    """The least time of a call, after one to warm up, as `remat bench products` measures it."""
    batch, m, k, left, _, n, right = re.fullmatch(r"(?:(\d+) x )?\[(\d+),(\d+)\](ᵀ?) \[(\d+),(\d+)\](ᵀ?)", product).groups()
    batch, m, k, n = int(batch or 1), int(m), int(k), int(n)

    def operand(rows, columns, transposed):
        shape = (columns, rows) if transposed else (rows, columns)
        x = torch.sin(torch.arange(batch * rows * columns) * 0.7) * (100 if dtype == "i8" else 1)
        x = x.to(DTYPES[dtype])
        x = x.reshape(shape if batch == 1 else (batch, *shape))
        return x.mT if transposed else x

    torch.set_num_threads(threads)
    x, y = operand(m, k, left), operand(k, n, right)
    # Bytes are summed in i32, as ours are.
    multiply = torch._int_mm if dtype == "i8" else torch.matmul
    multiply(x, y)
    seconds, runs, begin = float("inf"), 0, time.perf_counter()
    while runs < 4 or time.perf_counter() - begin < milliseconds / 1000:
        start = time.perf_counter()
        multiply(x, y)
        seconds = min(seconds, time.perf_counter() - start)
        runs += 1
    return seconds, 2 * batch * m * n * k / seconds / 1e9


# The products are those of the lines of remat that come in, but for batches of bytes and bytes without a sign, for which PyTorch has none.
milliseconds = int(sys.argv[sys.argv.index("--milliseconds") + 1]) if "--milliseconds" in sys.argv else 400
for line in sys.stdin:
    of = json.loads(line)
    if of["dtype"] == "u8" or (of["dtype"] == "i8" and " x " in of["product"]):
        continue
    seconds, gflops = measure(of["product"], of["dtype"], of["threads"], milliseconds)
    more = {name: of[name] for name in ("name", "product", "dtype", "threads")}
    print(json.dumps(dict(framework="torch " + torch.__version__.split("+")[0], seconds=seconds, gflops=gflops, **more)), flush=True)
