"""Times products of a matrix and 1 to 16 rows in PyTorch, both orders and layouts: the shapes of `cargo bench -p remat-kernels --bench matmul skinny`."""

import time

import torch

SIZE = 4096


def least(function, runs=30):
    """The least of some runs, in microseconds."""
    function()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def main():
    torch.set_grad_enabled(False)
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.randn(SIZE, SIZE).to(dtype)
        for rows in (1, 2, 4, 8, 16):
            skinny = torch.randn(rows, SIZE).to(dtype)
            for name, product in (
                ("skinny by matrix", lambda: skinny @ matrix),
                ("skinny by transposed matrix", lambda: skinny @ matrix.T),
                ("matrix by skinny", lambda: matrix @ skinny.T),
            ):
                print(f"{dtype} {name}, {rows} rows: {least(product):.0f} us")


if __name__ == "__main__":
    main()
