"""What the scripts share: arguments, timing, memory, and the line of JSON that says what was measured.

The names in that line are those of `remat-bench --json`. Times are seconds, sizes bytes.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

STEP_SIZES = dict(layers=8, width=512, heads=8, hidden=2048, sequence=512, batch=4, vocabulary=8192)


def parser(description, sizes):
    """A parser with the sizes and with what every script takes."""
    result = argparse.ArgumentParser(description=description)
    for name, value in sizes.items():
        result.add_argument("--" + name, type=int, default=value)
    result.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    result.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    result.add_argument("--repeat", type=int, default=4, help="steps that are timed, after one that is not")
    return result


def use_cores(count):
    """Keeps this process, and whatever pools of threads it will start, on this number of cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def step_flops(a):
    """Useful operations of the GPT step: three times the products of the forward pass, the whole attention square."""
    block = 2 * (4 * a.width**2 + 2 * a.width * a.hidden) + 4 * a.sequence * a.width
    return 3 * a.batch * a.sequence * (a.layers * block + 2 * a.width * a.vocabulary)


def read_safetensors(path):
    """The arrays of a file of f32 by name, in place."""
    import numpy as np

    content = np.memmap(path, np.uint8, "r")
    length = int.from_bytes(bytes(content[:8]), "little")
    header, data = json.loads(bytes(content[8 : 8 + length])), content[8 + length :]
    header.pop("__metadata__", None)

    def array(entry):
        if entry["dtype"] != "F32":
            raise ValueError(f"{path} has a tensor of {entry['dtype']}, and F32 alone is read")
        begin, end = entry["data_offsets"]
        return data[begin:end].view(np.float32).reshape(entry["shape"])

    return {name: array(entry) for name, entry in header.items()}


def resident(field):
    """The bytes of a field of this process's status."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def measure(step, repeat):
    """Runs a step once to warm up and then `repeat` times. `step` gives the loss, and the seconds that count where those
    are not all."""
    highest_before = resident("VmHWM")
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")  # Makes what is resident now the peak.
    before = resident("VmRSS")
    times = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        loss, seconds = step()
        times.append(time.perf_counter() - start if seconds is None else seconds)
    highest = resident("VmHWM")
    return dict(
        step_s=statistics.median(times[1:]),
        resident_peak=max(highest, highest_before),
        resident_growth=highest - before,
        loss=loss,
    )


def report(framework, arguments, measured, flops, **more):
    """Prints the line."""
    gflops = flops / measured["step_s"] / 1e9
    print(json.dumps(dict(framework=framework, **vars(arguments), **measured, gflops=gflops, **more)), flush=True)
