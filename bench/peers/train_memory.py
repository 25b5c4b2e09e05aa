"""A training step of a GPT-2 in each framework: the most memory that was resident in its process, as the system counts it."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES = dict(layers=12, width=768, heads=12, hidden=3072, sequence=1024, batch=8, vocabulary=50257)

# The policy of remat, and the arguments of the scripts. `nothing` is a checkpoint around each block in all of them.
CONFIGURATIONS = {
    "remat": ["none", "names(attn)", "nothing"],
    "torch": ["--policy none", "--policy nothing"],
    "jax": ["--policy none", "--policy nothing", "--policy nothing --barriers kept"],
}


def sizes(shared):
    """Those of the arguments behind `--`."""
    parser = argparse.ArgumentParser(prog="bench/peers/run train-memory --")
    for name, value in SIZES.items():
        parser.add_argument("--" + name, type=int, default=value)
    return vars(parser.parse_args(shared))


def flags(values):
    return [text for name, value in values.items() for text in ("--" + name, str(value))]


def resident(session):
    """What of the processes of a session is resident now, in bytes: `remat bench` trains in a process of its own."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # Behind the name, which may have spaces: state, parent, group, session.
            if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                status = (folder / "status").read_text().splitlines()
                total += next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:")), 0)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total


def run(command, limit):
    """Runs it, and ends it where more than the limit is resident: what it printed, its peak in bytes, and why it was not measured, if it was not."""
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(list(map(str, command)), stdout=printed, stderr=errors, start_new_session=True)
        over = False
        while True:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            if not over and resident(process.pid) > limit:
                over = True
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.1)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        errors.seek(0)
        said, why = errors.read(), f"over {limit / 2**30:.0f}" if over else None
        if process.returncode != 0 and not over:
            if "RESOURCE_EXHAUSTED" not in said:
                sys.exit(f"{' '.join(map(str, command))} failed\n{said}")
            why = "out of memory"
        # With that of the processes that it started itself.
        return printed.read(), usage.ru_maxrss * 1024, why


def ours(program, policy, values, limit):
    names = dict(layers="layers", width="width", heads="heads", sequence="context", batch="batch", vocabulary="vocab")
    if values["hidden"] != 4 * values["width"]:
        sys.exit("a GPT-2 of remat has four times its width as hidden features")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "policies.json"
        sized = flags({own: values[name] for name, own in names.items()})
        _, peak, why = run([program, "bench", "policies", "--model", "gpt2", *sized, "--only", policy, "--repeat", "1", "--json", table], limit)
        row = {} if why else json.loads(table.read_text())["rows"][0]
    if row.get("error"):
        sys.exit(f"remat {policy}: {row['error']}")
    return dict(peak=peak, why=why, planned=row.get("planned"))


def theirs(python, framework, arguments, values, limit):
    tied = ["--tied"] if framework == "jax" else []
    script = HERE / f"{framework}_train.py"
    printed, peak, why = run([python, script, *flags(values), *tied, "--repeat", "1", *arguments.split()], limit)
    record = {name: value for line in printed.splitlines() for name, value in json.loads(line).items()}
    return dict(peak=peak, why=why, planned=record.get("temporaries"))


def measure(frameworks, only, program, python, values, limit):
    """A record for each configuration, one after the other; `program` and `python` give the commands where they are needed."""
    for framework in frameworks:
        for arguments in CONFIGURATIONS.get(framework, []):
            name = f"{framework} {arguments}".replace("--", "")
            if only not in name:
                continue
            print(name, file=sys.stderr)
            if framework == "remat":
                record = ours(program(), arguments, values, limit)
            else:
                record = theirs(python(), framework, arguments, values, limit)
            yield dict(name=name, **record)


def row(record):
    gib = lambda size: f"{size / 2**30:.2f}" if size else "-"
    return [record["name"], record["why"] or gib(record["peak"]), gib(record["planned"])]


HEADER = ["", "resident GiB", "planned GiB"]
