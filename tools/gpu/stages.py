"""What each stage runs, the most valuable first. docs/ACCELERATORS.md says what each of them proves."""

import hashlib
import json
import os
import re
import signal
from functools import partial

from setting import plain
from steps import CardMemory

JAX_POLICIES = {"names(qkv, attn)": "names", "offload_names(qkv, attn)": "offload"}
MIB = 1 << 20


def lines_of_json(out, _err=""):
    """The lines of an output that are objects."""
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def word(text):
    """A text as a part of a file's name."""
    return re.sub(r"\W+", "-", text).strip("-")


class Programs:
    """The steps that several stages have in common."""

    def __init__(self, stage, setting):
        self.stage, self.setting = stage, setting

    def _environment(self, more=None):
        return self.setting.environment | (more or {})

    def remat(self, name, *arguments, limit, environment=None, **more):
        command = [self.setting.program("remat"), *arguments]
        return self.stage.step(name, command, limit, environment=self._environment(environment), **more)

    def bench(self, name, *arguments, limit, values=lines_of_json, **more):
        command = [self.setting.program("remat-bench"), *arguments]
        return self.stage.step(name, command, limit, environment=self._environment(), values=values, **more)

    def fit_run(self, name, model, policy, batches, context, *, device=None, dtype="bf16", steps=None, limit=None, environment=None,
                may_fail=False):
        """The training step of a model under a policy, run: the rows of `remat fit --run`, with what the card's own tool saw."""
        path = self.stage.folder / f"{word(name)}.json"
        path.unlink(missing_ok=True)
        smi = CardMemory()
        arguments = ["fit", "--run", device or self.setting.device, "--model", self.setting.models[model], "--policy", policy, "--context", context,
                     "--dtype", dtype, "--steps", steps or self.setting.sizes["steps"], "--json", path]
        for batch in batches:
            arguments += ["--run-batch", batch]

        def values(_out, _err):
            return dict(rows=json.loads(path.read_text()), smi=smi.most)

        return self.remat(name, *arguments, limit=limit or self.setting.sizes["model_limit"], values=values, may_fail=may_fail, watch=smi,
                          environment=environment)

    def jax(self, name, script, *arguments, limit, may_fail=False, environment=None):
        """A script of JAX, on the same device."""
        # A mistake in a script is to be found before a card is at hand; there, what JAX cannot do is no failure of ours.
        return self.peer(name, "jax", script, *arguments, "--platform", "cpu" if self.setting.is_stand_in else "cuda", limit=limit,
                         may_fail=may_fail and not self.setting.is_stand_in, environment=environment)

    def torch_run(self, name, policy, *more):
        """The step of GPT-2 in PyTorch."""
        shape, device = self.setting.sizes["torch"], "cpu" if self.setting.is_stand_in else "cuda"
        sizes = [word for size, value in shape.items() for word in ("--" + size, value)]
        return self.peer(name, "torch", "torch_run.py", *sizes, "--policy", policy, "--steps", self.setting.sizes["steps"], "--device", device, *more,
                         limit=self.setting.sizes["model_limit"], may_fail=not self.setting.is_stand_in)

    def peer(self, name, module, script, *arguments, limit, may_fail, environment=None):
        """A script of a peer. Where the peer is missing, that is said, and nothing fails."""
        if self.setting.peers[module] is None:
            note = f"NOT RUN: the peer; {self.setting.python} cannot import {module}"
            if note not in self.stage.notes:
                self.stage.note(note)
            return None
        smi = CardMemory()
        command = [*self.setting.peer(script), *arguments]

        def values(out, _err):
            rows = lines_of_json(out)
            if self.setting.is_stand_in and any(row.get("error") for row in rows):
                raise ValueError(rows[0]["error"])
            return dict(rows=rows, smi=smi.most)

        return self.stage.step(name, command, limit, values=values, may_fail=may_fail, watch=smi,
                               environment=self.setting.peer_environment | (environment or {}))

    def jax_run(self, name, model, policy, batches, context, *, dtype="bf16", steps=None, more=(), may_fail=False, environment=None):
        arguments = ["--model", self.setting.models[model], "--policy", JAX_POLICIES.get(policy, policy), "--context", context, "--dtype", dtype,
                     "--steps", steps or self.setting.sizes["steps"], *more]
        for batch in batches:
            arguments += ["--batch", batch]
        return self.jax(name, "jax_run.py", *arguments, limit=self.setting.sizes["model_limit"], may_fail=may_fail, environment=environment)


def row_of(values):
    """The only row of a run, unless it has an error."""
    rows = (values or {}).get("rows") or []
    return rows[0] if rows and not rows[0].get("error") else None


def found(stage, setting):
    """a: the plugin is found, the device computes."""
    run = Programs(stage, setting)

    def listed(out, _err):
        kind = "cpu" if setting.is_stand_in else "cuda"
        row = next(line for line in out.splitlines() if line.split()[:1] == [kind])
        return dict(row=row, text=out, runs="device" in row)

    plugins = run.remat("plugin list", "plugin", "list", limit=60, values=listed)
    if plugins is not None:
        stage.check(plugins["runs"], "`remat plugin list` counts devices", plugins["text"].strip()[-600:])
    lines = run.bench("a scalar and products", "device", "--device", setting.device, "--size", setting.sizes["product"], limit=90)
    if lines is not None:
        by = {line["what"]: line for line in lines}
        stage.check(by.get("scalar", {}).get("value") == 7.0, "2 * 3 + 1 is 7 on the device")
        products = {line["dtype"]: line for line in lines if line["what"] == "product"}
        stage.check(set(products) == {"f32", "bf16"}, "products of f32 and bf16 are those of the native engine")


def conforms(stage, setting):
    """b: every property of the conformance suite, each in its own process, programs on meshes, and random programs."""
    # Compiling takes most of the time, on one core: several processes share the card.
    jobs = setting.sizes["jobs"]
    environment = setting.environment | {"REMAT_TEST_DEVICE": setting.device, "REMAT_TEST_REQUIRE_PLUGINS": "1", "REMAT_TEST_THOROUGH": "1",
                                         "REMAT_CONFORMANCE_EVERY": str(setting.sizes["every"]),
                                         "REMAT_CUDA_MEMORY_FRACTION": f"{setting.share / jobs:.3f}"}
    if not setting.is_stand_in:
        # The suite compares the bits of runs, and XLA adds the updates of a scatter in any order on GPUs otherwise.
        environment["XLA_FLAGS"] = "--xla_gpu_exclude_nondeterministic_ops=true"
    names = lambda out, _err: [line.removesuffix(": test") for line in out.splitlines() if line.endswith(": test")]

    def passed(out, err):
        ran = re.search(r"test result: \w+\. (\d+) passed; (\d+) failed", out)
        return dict(cases=sum(map(int, re.findall(r"(\d+) cases$", out, re.M))), passed=int(ran[1]), failed=int(ran[2]),
                    # The name of a test stands before the first line that it prints.
                    left_out=re.findall(r"(?:^|\.\.\. )left out: (.*)", out, re.M), not_tested=re.findall(r"^NOT TESTED: (.*)", err, re.M))

    def property_of(suite, test):
        values = stage.step(test, [setting.program(suite), "--exact", test, "--nocapture", "--test-threads", "1"],
                            setting.sizes["property_limit"], environment=environment, values=passed)
        for reason in (values or {}).get("not_tested", []):
            stage.note(f"{test}: NOT TESTED: {reason}")

    def random_programs():
        seconds = setting.sizes["search_seconds"]
        stage.step("random programs", [setting.program("remat-conformance"), "--device", setting.device, "--seed", 1, "--seconds", seconds,
                                       "--comparisons", 10**9], seconds + 120, environment=environment,
                   values=lambda out, _err: dict(table=out.strip().splitlines()[:8]))

    calls = [random_programs]
    for suite in ("conformance", "sharded"):
        tests = stage.step(f"the tests of {suite}", [setting.program(suite), "--list"], 30, values=names) or []
        chosen = setting.sizes["properties"]
        calls += [partial(property_of, suite, test) for test in tests if chosen is None or test in chosen]
    stage.at_once(jobs, calls)


def measured(stage, setting):
    """c: time and memory of steps under each policy, beside what was planned and beside peers; losses beside the native engine's."""
    run, sizes = Programs(stage, setting), setting.sizes
    compiled_before(run, setting.warm)
    for model, shape in sizes["models"].items():
        compared = sizes["compared"]
        # Peers and remat in turn, so that a slow minute hits all.
        for policy in sizes["policies"]:
            run.fit_run(f"remat {model} {policy}", model, policy, [shape["batch"]], shape["context"])
            if policy in sizes["peer_policies"]:
                run.jax_run(f"jax {model} {policy}", model, policy, [shape["batch"]], shape["context"], may_fail=True)
            if model == "gpt2" and policy in ("none", "nothing"):
                run.torch_run(f"torch {model} {policy}", policy)
                if not setting.is_stand_in:
                    run.torch_run(f"torch {model} {policy} compiled", policy, "--compile")
        for dtype, tolerance in (("f32", 2e-3), ("bf16", 0.13)):
            arguments = dict(dtype=dtype, steps=compared["steps"])
            there = run.fit_run(f"losses {model} {dtype} device", model, "nothing", [compared["batch"]], compared["context"], **arguments)
            here = run.fit_run(f"losses {model} {dtype} native", model, "nothing", [compared["batch"]], compared["context"], device="cpu",
                               **arguments)
            theirs = None
            if dtype in sizes["peer_dtypes"]:
                theirs = run.jax_run(f"losses {model} {dtype} jax", model, "nothing", [compared["batch"]], compared["context"], may_fail=True,
                                     **arguments)
            for name, other in (("the native engine", here), ("JAX", theirs)):
                if row_of(there) and row_of(other):
                    pairs = list(zip(row_of(there)["losses"], row_of(other)["losses"]))
                    worst = max(abs(a - b) for a, b in pairs)
                    stage.check(worst <= tolerance, f"losses of {model} in {dtype} are those of {name}", f"differ by {worst:.2e}")
        planned(run, model, shape, sizes["policies"])
    step = [word for name, value in sizes["step"].items() for word in ("--" + name, value)]
    for dtype in sizes["step_dtypes"]:
        for policy in ("none", "dots", "dots_with_no_batch_dims", "nothing"):
            if policy not in sizes["policies"]:
                continue
            shared = [*step, "--dtype", dtype, "--policy", policy, "--layers-as", "scan", "--repeat", sizes["steps"]]
            run.bench(f"reference step {dtype} {policy}", "step", "--device", setting.device, "--json", *shared, limit=sizes["model_limit"])
            run.jax(f"jax reference step {dtype} {policy}", "jax_step.py", *shared, limit=sizes["model_limit"], may_fail=True)


def compiled_before(run, jobs):
    """Compiles the steps that are timed, this many at a time if that is asked for, each with a share of the card: they are loaded from disk when
    they are timed. One that does not run in its share is compiled all the same. An earlier run may have done so, and its steps need not have
    ended well for what they compiled to be on disk: a file beside the results remembers it."""
    done = run.setting.results / "compiled-at-once"
    if jobs:
        done.parent.mkdir(parents=True, exist_ok=True)
        done.touch()
        sizes, calls = run.setting.sizes, []
        more = dict(steps=1, may_fail=True, environment={"REMAT_CUDA_MEMORY_FRACTION": f"{run.setting.share / jobs:.3f}"})
        for model, shape in sizes["models"].items():
            for policy in sizes["policies"]:
                of = (f"{model} {policy}", model, policy, [shape["batch"]], shape["context"])
                calls.append(partial(run.fit_run, f"compile remat {of[0]}", *of[1:], **more))
                if policy in sizes["peer_policies"]:
                    calls.append(partial(run.jax_run, f"compile jax {of[0]}", *of[1:], **more))
        run.stage.at_once(jobs, calls)
    if done.exists():
        run.stage.note("steps were compiled several at a time: XLA times candidates while it compiles, which the others disturb")


def planned(run, model, shape, policies, largest=False):
    """The rows of `remat fit`, by the compiler alone."""
    name = f"{'largest batch' if largest else 'planned'} {model}"
    path = run.stage.folder / f"{word(name)}.json"
    path.unlink(missing_ok=True)
    chosen = [word for policy in policies for word in ("--policy", policy)]
    arguments = ["fit", "--model", run.setting.models[model], "--batch", shape["batch"], "--context", shape["context"], "--target",
                 run.setting.chip(), *chosen, "--json", path, *(["--largest-batch"] if largest else [])]
    values = lambda _out, _err: {row["policy"]: row for row in json.loads(path.read_text())["rows"]}
    return run.remat(name, *arguments, limit=600, values=values)


def largest(stage, setting):
    """d: the largest batch that runs, against the one that was predicted; and a step that does not fit."""
    run, sizes = Programs(stage, setting), setting.sizes
    policies = sizes["searched"]
    for model in sizes["searched_models"]:
        shape = sizes["models"][model]
        predicted = predictions(run, model, shape, policies)
        limit = {"REMAT_MEMORY_LIMIT": str(STAND_IN_MEMORY)} if setting.is_stand_in else {}
        for policy, batch in predicted.items():
            def runs(batch, name=f"{model} {policy} batch", policy=policy):
                values = run.fit_run(f"{name} {batch}", model, policy, [batch], shape["context"], steps=2, may_fail=True, environment=limit)
                return row_of(values) is not None

            fits, fails = search(batch, runs, sizes["tries"])
            stage.check(fits is not None and fits >= batch, f"{model} runs at the batch that was predicted under {policy}",
                        f"predicted {batch}, runs at {fits}, fails at {fails}")
            if not setting.is_stand_in:
                def jax_runs(batch, name=f"jax {model} {policy} batch", policy=policy):
                    return row_of(run.jax_run(f"{name} {batch}", model, policy, [batch], shape["context"], steps=2, may_fail=True)) is not None

                if setting.peers["jax"] is not None:
                    search(batch, jax_runs, sizes["tries"])
        # One process: a step that does not fit, and then one that does.
        policy, batch = next(iter(predicted.items()), ("none", shape["batch"]))
        values = run.fit_run(f"{model} too large, and then on", model, policy, [16 * batch, shape["batch"]], shape["context"], steps=2,
                             environment=limit, may_fail=True)
        rows = (values or {}).get("rows") or [{}, {}]
        error = rows[0].get("error") or ""
        stage.check(re.search(r"\d+(\.\d+)? ?(bytes|B|[KMGT]i?B)\b", error), f"{model}: the error of a step that does not fit names the bytes",
                    error[:400])
        stage.check(len(rows) == 2 and rows[1].get("step_s"), f"{model}: the process goes on after it", rows[-1].get("error") or "")


# What a step of the stand-in may need: the memory of a card.
STAND_IN_MEMORY = 24 * MIB


def predictions(run, model, shape, policies):
    """The largest batch of each policy, by `remat fit`; of the stand-in by the line through two batches."""
    if not run.setting.is_stand_in:
        rows = planned(run, model, shape, policies, largest=True) or {}
        return {policy: row["largest_batch"] for policy in policies for name, row in rows.items()
                if plain(name) == plain(policy) and row.get("largest_batch")}
    found = {}
    for policy in policies:
        peaks = [row_of(run.fit_run(f"{model} {policy} batch {n}", model, policy, [n], shape["context"], steps=2)) for n in (2, 4)]
        if all(peaks):
            two, four = (row["planned_peak"] for row in peaks)
            found[policy] = int(2 + (0.7 * STAND_IN_MEMORY - two) / ((four - two) / 2))
    return found


def search(predicted, runs, tries):
    """The largest batch that runs and the smallest that does not, of some near the predicted one."""
    fits, fails, batch = None, None, predicted
    for _ in range(tries):
        if runs(batch):
            fits = batch
            batch = max(fits + 1, fits * 21 // 20) if fails is None else (fits + fails) // 2
        else:
            fails = batch
            batch = max(1, fails * 19 // 20) if fits is None else (fits + fails) // 2
        if batch in (fits, fails):
            break
    return fits, fails


def lasts(stage, setting):
    """e: memory stays flat; runs that are stopped or killed are resumed bit for bit."""
    run, sizes = Programs(stage, setting), setting.sizes
    model, shape = next(iter(sizes["models"].items()))
    values = run.fit_run(f"{sizes['long_steps']} steps", model, "nothing", [min(shape["batch"], 4)], min(shape["context"], 256),
                         steps=sizes["long_steps"], limit=240)
    if row_of(values):
        samples = row_of(values)["samples"]
        middle, last = samples[len(samples) // 2], samples[-1]
        for what in ("arrays", "in_use"):
            if last[what] is not None:
                stage.check(middle[what] == last[what], f"{what} after half of the steps are those after all", f"{middle[what]}, {last[what]}")
        growth = last["resident"] - middle["resident"]
        stage.check(growth < 64 * MIB, "the process does not grow", f"by {growth / MIB:.1f} MiB")
        losses = row_of(values)["losses"]
        stage.check(losses[-1] < losses[0], "the loss falls", f"{losses[0]:.3f} to {losses[-1]:.3f}")
    # The same sums in each run: XLA adds atomically on GPUs otherwise, in an order that differs each time.
    environment = {} if setting.is_stand_in else {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true"}
    steps = sizes["stopped_steps"]
    folder = lambda name: stage.folder / "runs" / name
    train = lambda name: ["train", "--device", setting.device, "--text", setting.package / "text", "--steps", steps, "--save-every", steps // 4, "--sample", 0,
                          "--save", folder(name)]
    resume = lambda name: ["train", "--resume", folder(name), "--steps", steps]
    for name in ("undisturbed", "undisturbed again"):
        run.remat(name, *fresh(stage, name, train(word(name)), folder(word(name))), limit=120, environment=environment)
    for name, number in (("stopped", signal.SIGINT), ("killed", signal.SIGKILL)):
        step = f"{name} after a checkpoint"
        run.remat(step, *fresh(stage, step, train(name), folder(name)), limit=120, environment=environment, may_fail=True,
                  watch=Stopper(folder(name), number))
        ended = stage.steps[step]["ended"]
        stage.check(ended != "ok", f"the run that is {name} ends before its last step", ended)
        run.remat(f"{name}, resumed", *resume(name), limit=120, environment=environment)
    prints = {name: fingerprint(folder(name)) for name in ("undisturbed", "undisturbed-again", "stopped", "killed")}
    for name, of in prints.items():
        stage.check(of and of == prints["undisturbed"], f"weights, state and losses of the run `{name}` are those of the undisturbed one",
                    "" if of else "there is no last checkpoint")


def fresh(stage, step, arguments, folder):
    """The arguments, for a folder that is empty if the step has yet to run."""
    if step not in stage.steps and folder.is_dir():
        for file in sorted(folder.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
    return arguments


class Stopper:
    """Sends a signal to a training run once it has a checkpoint."""

    # A card takes a step in about as long, and the run must not have ended before it is stopped.
    every = 0.02

    def __init__(self, folder, number):
        self.folder, self.number, self.is_done = folder, number, False

    def __call__(self, process):
        if not self.is_done and next(self.folder.glob("step-*/model.safetensors"), None):
            self.is_done = True
            os.killpg(process.pid, self.number)


def fingerprint(folder):
    """The hashes of the last checkpoint, and the losses of all steps."""
    steps = sorted(folder.glob("step-*"))
    if not steps:
        return None
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(steps[-1].glob("*.safetensors"))}
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    losses = {line["step"]: line["loss"] for line in lines if "loss" in line}
    return dict(step=steps[-1].name, hashes=hashes, losses=losses)


def overhead(stage, setting):
    """f: calls beside JAX, runs that overlap their calls, and cuDNN's attention against the definition."""
    run, sizes = Programs(stage, setting), setting.sizes
    run.bench("calls", "calls", "--device", setting.device, "--json", limit=120)
    run.jax("jax calls", "jax_calls.py", limit=120, may_fail=True)
    model, shape = next(iter(sizes["models"].items()))
    rows = {}
    for attention in ("definition", "cudnn"):
        values = run.fit_run(f"attention by {attention}", model, "nothing", [shape["batch"]], shape["context"],
                             environment={"REMAT_CUDA_ATTENTION": attention}, may_fail=attention == "cudnn")
        rows[attention] = row_of(values)
    run.jax_run("jax attention by the definition", model, "nothing", [shape["batch"]], shape["context"], may_fail=True)
    if not setting.is_stand_in:
        run.jax_run("jax attention by cudnn", model, "nothing", [shape["batch"]], shape["context"], more=["--attention", "cudnn"], may_fail=True)
    if all(rows.values()):
        worst = max(abs(a - b) for a, b in zip(*(row["losses"] for row in rows.values())))
        stage.check(worst <= 0.13, "losses with cuDNN's attention are those of the definition", f"differ by {worst:.2e}")
    else:
        stage.check(not stage.steps["attention by cudnn"].get("values") or rows["cudnn"], "cuDNN's attention runs",
                    ((stage.steps["attention by cudnn"].get("values") or {}).get("rows") or [{}])[0].get("error", ""))
    if rows["definition"]:
        returned = rows["definition"]["timeline"][-1][0]
        ready = rows["definition"]["timeline"][-1][1]
        # A CPU's threads compute what they call, so that little is ahead there.
        stage.check(setting.is_stand_in or returned < 0.5 * ready, "calls return before their results are computed",
                    f"the last of {len(rows['definition']['timeline'])} returned after {1e3 * returned:.1f} ms, and was ready after {1e3 * ready:.1f} ms")


def trains(stage, setting):
    """g: `remat train` on this repository's text, and text from the model."""
    run, steps = Programs(stage, setting), setting.sizes["text_steps"]
    folder = stage.folder / "run"
    step = "train"

    def reached(out, _err):
        last = re.findall(rf"^step {steps}/{steps}\s+loss ([\d.]+)", out, re.M)
        held = re.findall(r"held-out loss after training: ([\d.]+)", out)
        rate = re.findall(r"steps in ([\d.]+) s, ([\d,]+) tokens/s", out)
        return dict(loss=float(last[-1]), held_out=float(held[-1]), seconds=float(rate[-1][0]), tokens_per_second=rate[-1][1])

    arguments = ["train", "--device", setting.device, "--text", setting.package / "text", "--steps", steps, "--save", folder]
    values = run.remat(step, *fresh(stage, step, arguments, folder), limit=300, values=reached)
    if values and not setting.is_stand_in:
        stage.check(values["loss"] < 2.0, "the loss of the repository's text falls below 2", values["loss"])
    text = run.remat("generate", "generate", folder, "--prompt", "fn main", "--length", 100, limit=60, values=lambda out, _err: dict(text=out))
    if text is not None:
        stage.check(len(text["text"]) > 50, "the model writes text")


# Name, title, limit in seconds, what it runs.
STAGES = [
    ("a", "the plugin is found, and the device computes", 120, found),
    ("c", "time and memory under each policy, beside the plan, the native engine and JAX", 1500, measured),
    ("b", "the conformance suite", 900, conforms),
    ("d", "the largest batch, and a step that does not fit", 1200, largest),
    ("e", "1,000 steps; stopped and killed runs", 900, lasts),
    ("f", "calls, asynchronous runs, cuDNN's attention", 600, overhead),
    ("g", "training on the repository's text", 400, trains),
]
