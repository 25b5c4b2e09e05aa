"""Steps and stages: processes with limits, and what they left behind as files.

A step is one process in a group of its own, with a time limit. A stage is a function that runs steps and judges what they say. Whatever
happens to a step, and to the code of a stage, is an entry in the stage's file, which is written after each step: a run that is ended from
outside has left what it did, and the next one goes on behind it.
"""

import json
import os
import signal
import subprocess
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# What is kept of the output of a step.
KEPT = 4000

# With fewer seconds left no step begins, unless it may take even less.
LEAST = 20

# Seconds between the request to end and the end.
GRACE = 5


class Unfinished(Exception):
    """There is no time left for the next step."""


class Clock:
    """The time that a run of the script may take, and that of its current stage."""

    def __init__(self, budget=None):
        self.end = None if budget is None else time.monotonic() + budget
        self.stage_end = None

    def begin(self, limit):
        self.stage_end = time.monotonic() + limit

    def left(self):
        ends = [end for end in (self.end, self.stage_end) if end is not None]
        return min(ends) - time.monotonic() if ends else float("inf")


def ended(returncode):
    """How a process ended, in words."""
    if returncode is None:
        return "could not be started"
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = str(-returncode)
        return f"crashed: {name}"
    return "ok" if returncode == 0 else f"exit code {returncode}"


def end_group(process):
    """Ends a process and those that it started: first asks, then makes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(GRACE)
            # What it started may have outlived it.
            os.killpg(process.pid, signal.SIGKILL)
            return
        except (subprocess.TimeoutExpired, ProcessLookupError):
            continue
    process.wait()


def run(command, limit, environment=None, folder=None, watch=None):
    """Runs a command for at most `limit` seconds, with its output in files, so that nobody waits for a pipe that a child holds. `watch` is
    called with the process every `watch.every` seconds. Returns a record of what happened, and its whole output."""
    record = dict(command=" ".join(map(str, command)), limit=round(limit, 1))
    begun = time.monotonic()
    folder = Path(folder or ".")
    folder.mkdir(parents=True, exist_ok=True)
    # Steps run in threads too.
    out_path, err_path = (folder / f"{kind}.{os.getpid()}.{threading.get_ident()}" for kind in ("out", "err"))
    returncode, is_late = None, False
    try:
        with open(out_path, "wb") as out, open(err_path, "wb") as err:
            try:
                process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                           env=os.environ | (environment or {}), start_new_session=True)
            except OSError as error:
                record.update(ended=f"could not be started: {error}", seconds=0.0, stdout="", stderr="")
                return record, "", ""
            try:
                while returncode is None:
                    try:
                        returncode = process.wait(watch.every if watch else max(0.05, limit - (time.monotonic() - begun)))
                    except subprocess.TimeoutExpired:
                        if watch:
                            watch(process)
                    if returncode is None and time.monotonic() - begun >= limit:
                        is_late = True
                        break
            finally:
                if returncode is None:
                    end_group(process)
        stdout, stderr = (path.read_text(errors="replace") for path in (out_path, err_path))
    finally:
        for path in (out_path, err_path):
            path.unlink(missing_ok=True)
    how = f"ended after its limit of {limit:.0f} s" if is_late else ended(returncode)
    record.update(ended=how, seconds=round(time.monotonic() - begun, 2), stdout=stdout[-KEPT:], stderr=stderr[-KEPT:])
    return record, stdout, stderr


class Stage:
    """A stage while it runs: its steps, and its file."""

    def __init__(self, name, title, limit, path, clock, setting):
        self.name, self.title, self.limit, self.path = name, title, limit, Path(path)
        self.clock, self.setting = clock, setting
        self.folder = self.path.parent / f"{name}.files"
        self.steps, self.checks, self.notes = {}, [], []
        self.lock = threading.RLock()

    def resume(self):
        """Takes over the steps that went well in an earlier run. Others run again."""
        try:
            earlier = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return False
        self.steps = {name: step for name, step in earlier.get("steps", {}).items() if step.get("ended") == "ok"}
        return earlier.get("status") == "passed"

    def step(self, name, command, limit, *, environment=None, values=None, may_fail=False, watch=None):
        """Runs a step, unless it is done. `values` reads what counts from its output (text, errors). Returns these, or nothing if the step
        failed, which fails the stage unless it `may_fail`."""
        done = self.steps.get(name)
        if done is None:
            left = self.clock.left()
            if left < min(limit, LEAST):
                raise Unfinished(f"{left:.0f} s are left for `{name}`, which may take {limit:.0f}")
            print(f"  {self.name}: {name}", flush=True)
            done, out, err = run(command, min(limit, left), environment, self.folder, watch)
            if left < limit and done["ended"].startswith("ended after its limit"):
                # It might have had the time that it may take: the next run gives it that.
                raise Unfinished(f"`{name}` was cut after {left:.0f} s of the {limit:.0f} s that it may take")
            if environment:
                done["environment"] = environment
            done["may_fail"] = may_fail
            if values is not None and (done["ended"] == "ok" or may_fail):
                try:
                    done["values"] = values(out, err)
                except Exception as error:  # Whatever a program printed, it is no reason to stop.
                    done["ended"] = f"its output was not understood: {type(error).__name__}: {error}"
            with self.lock:
                self.steps[name] = done
                self.write("unfinished")
            if done["ended"] != "ok":
                print(f"    {done['ended']}", flush=True)
        return done.get("values", {} if done["ended"] == "ok" else None)

    def at_once(self, jobs, calls):
        """Calls functions that run steps, `jobs` of them at a time. The first that finds no time left ends the stage, once the others are done."""
        with ThreadPoolExecutor(jobs) as pool:
            running = [pool.submit(call) for call in calls]
        return [one.result() for one in running]

    def check(self, holds, what, detail=""):
        """Something that has to hold, for the report."""
        self.checks.append(dict(what=what, holds=bool(holds), detail=str(detail)))
        if not holds:
            print(f"    does not hold: {what} {detail}", flush=True)

    def note(self, text):
        """Something that a reader has to know, such as what was left out."""
        self.notes.append(text)
        print(f"    note: {text}", flush=True)

    def failures(self):
        failed = [f"{name}: {step['ended']}" for name, step in self.steps.items()
                  if step["ended"] != "ok" and not step.get("may_fail")]
        return failed + [f"{check['what']} {check['detail']}".strip() for check in self.checks if not check["holds"]]

    def write(self, status):
        """Writes the file, which is whole at any time."""
        content = dict(stage=self.name, title=self.title, status=status, limit=self.limit, setting=self.setting,
                       failures=self.failures(), notes=self.notes, checks=self.checks, steps=self.steps)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(content, indent=1))
        temporary.replace(self.path)

    def run(self, body):
        """Runs the stage, and returns its status: passed, failed or unfinished."""
        self.clock.begin(self.limit)
        begun = time.monotonic()
        try:
            body(self)
            status = "failed" if self.failures() else "passed"
        except Unfinished as reason:
            self.note(f"not finished: {reason}")
            status = "unfinished"
        except Exception:
            self.checks.append(dict(what="the script of this stage", holds=False, detail=traceback.format_exc(limit=4)))
            print(traceback.format_exc(), flush=True)
            status = "failed"
        self.write(status)
        print(f"{self.name}: {status} after {time.monotonic() - begun:.0f} s", flush=True)
        for failure in self.failures():
            print(f"  {failure}", flush=True)
        return status


class CardMemory:
    """The most memory of the card that is in use, as `nvidia-smi` says, twice a second."""

    every = 0.5

    def __init__(self):
        self.most = None

    def __call__(self, _process):
        try:
            said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"],
                                  capture_output=True, text=True, timeout=5).stdout
            used = int(said.split()[0]) << 20
        except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
            return
        self.most = max(self.most or 0, used)
