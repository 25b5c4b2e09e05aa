"""What the documents say about cards, each with the figure that would refute it, and what the results say to it."""

import re

from setting import plain

# From here on a measured figure differs from a stated one: peaks of a compiler that works at its fast level, and times.
MORE = 1.05


class Results:
    """The stages of a run by name, with short ways to their figures."""

    def __init__(self, stages):
        self.stages = stages

    def step(self, stage, name):
        step = self.stages.get(stage, {}).get("steps", {}).get(name, {})
        return step.get("values")

    def steps(self, stage):
        return self.stages.get(stage, {}).get("steps", {})

    def row(self, stage, name):
        """The only row of a run, unless it failed."""
        values = self.step(stage, name) or {}
        rows = values.get("rows") or []
        return rows[0] if rows and not rows[0].get("error") else None

    def checks(self, stage, text):
        return [check for check in self.stages.get(stage, {}).get("checks", []) if text in check["what"]]

    def models(self):
        """The models and policies that ran, in order."""
        names = [re.fullmatch(r"remat (\S+) (.+)", name) for name in self.steps("c")]
        return [match.groups() for match in names if match]

    def planned(self, model, policy):
        """The row of `remat fit` for a policy as it was typed."""
        rows = self.step("c", f"planned {model}") or {}
        return next((row for name, row in rows.items() if plain(name) == plain(policy)), None)


def peak(row):
    """The most bytes that the card's allocator gave out, if it counts."""
    return ((row or {}).get("after") or {}).get("peak")


def verdict(pairs):
    """Of (holds, figure) pairs: confirmed if all hold, refuted if one does not, and nothing if there is none."""
    pairs = list(pairs)
    if not pairs:
        return "not measured", ""
    broken = [figure for holds, figure in pairs if not holds]
    return ("refuted", "; ".join(broken)) if broken else ("confirmed", pairs[-1][1] if len(pairs) == 1 else f"{len(pairs)} figures")


def of_checks(stage, text):
    return lambda results: verdict((check["holds"], check["detail"][:200] or check["what"]) for check in results.checks(stage, text))


def runs(results):
    """The device computes."""
    return verdict((check["holds"], check["what"]) for check in results.stages.get("a", {}).get("checks", []))


def peaks_hold(results):
    def pair(model, policy):
        measured, planned = peak(results.row("c", f"remat {model} {policy}")), (results.planned(model, policy) or {}).get("peak")
        figure = f"{model} {policy}: {gib(measured)} measured, {gib(planned)} planned"
        return (measured <= MORE * planned, figure) if measured and planned else None

    return verdict(filter(None, (pair(*of) for of in results.models())))


def own_peaks_hold(results):
    def pair(model, policy):
        row = results.row("c", f"remat {model} {policy}")
        figure = f"{model} {policy}: {gib(peak(row))} measured, {gib((row or {}).get('planned_peak'))} by the executable"
        return (peak(row) <= MORE * row["planned_peak"], figure) if peak(row) else None

    return verdict(filter(None, (pair(*of) for of in results.models())))


def all_fit(results):
    def pair(model, policy):
        values = results.step("c", f"remat {model} {policy}")
        rows = (values or {}).get("rows")
        return (not rows[0].get("error"), f"{model} {policy}: {(rows[0].get('error') or 'runs')[:120]}") if rows else None

    return verdict(filter(None, (pair(*of) for of in results.models())))


def bounds_hold(results):
    def pair(model, policy):
        row, planned = results.row("c", f"remat {model} {policy}"), results.planned(model, policy)
        if not row or not planned or not planned.get("seconds") or planned["target"] == "xla-cpu":
            return None
        return row["step_s"] >= 0.98 * planned["seconds"], f"{model} {policy}: {1e3 * row['step_s']:.1f} ms, at least {1e3 * planned['seconds']:.1f}"

    return verdict(filter(None, (pair(*of) for of in results.models())))


def policies_save(results):
    def pairs():
        for model in dict(results.models()):
            none, nothing = (peak(results.row("c", f"remat {model} {policy}")) for policy in ("none", "nothing"))
            if none and nothing:
                yield nothing < none, f"{model}: {gib(none)} without a policy, {gib(nothing)} with nothing kept"

    return verdict(pairs())


def same_bits(results):
    def pairs():
        for model in dict(results.models()):
            losses = {policy: row["losses"] for of, policy in results.models() if of == model
                      for row in [results.row("c", f"remat {model} {policy}")] if row}
            if len(losses) > 1:
                first = next(iter(losses.values()))
                other = [policy for policy, of in losses.items() if of != first]
                yield not other, f"{model}: {'other losses under ' + ', '.join(other) if other else 'the same losses under each policy'}"

    return verdict(pairs())


def fused_takes_no_more(results):
    definition, fused = (results.row("f", f"attention by {name}") for name in ("definition", "cudnn"))
    if not peak(definition) or not peak(fused):
        return verdict([])
    return verdict([(peak(fused) <= MORE * peak(definition), f"{gib(peak(fused))} and {gib(peak(definition))} by the definition")])


def suite_passes(results):
    steps = {name: step for name, step in results.steps("b").items() if not name.startswith("the tests of")}
    return verdict((step["ended"] == "ok", f"{name}: {step['ended']}") for name, step in steps.items())


def gib(size):
    """Bytes for a reader."""
    if size is None:
        return "?"
    return f"{size / 2**30:.2f} GiB" if size >= 2**28 else f"{size / 2**20:.2f} MiB"


# Where it is said, what, what would refute it, and the function that reads the results.
CLAIMS = [
    ("README, COMPARISON", "XLA runs the same program on GPUs", "the device is not found, or a scalar or a product is wrong", runs),
    ("ACCELERATORS", "what differs between engines is in the table", "a property of the conformance suite fails on the card", suite_passes),
    ("FITTING", "the peak of a step is that of `remat fit`, with the same plugin", f"a measured peak above {MORE:g} of the planned one", peaks_hold),
    ("ACCELERATORS", "`donated_peak` is what a step takes", f"a measured peak above {MORE:g} of the executable's own figure", own_peaks_hold),
    ("FITTING", "GPT-2 and the Llama of 1 B fit under each policy", "one of them does not run at that batch", all_fit),
    ("FITTING", "a step takes at least the bound of the roofline", "a step in less than 0.98 of it", bounds_hold),
    ("FITTING", "keeping nothing takes less memory than no policy", "a measured peak that is not less", policies_save),
    ("FITTING", "the largest batch fits", "it does not run", of_checks("d", "runs at the batch that was predicted")),
    ("README", "what cannot fit is an error, not a crash", "the error names no bytes, or the process does not go on",
     lambda results: verdict((check["holds"], check["detail"][:120] or check["what"]) for text in ("names the bytes", "goes on after it")
                             for check in results.checks("d", text))),
    ("ACCELERATORS", "bits are the same under another policy (said of CPUs alone)", "another loss under another policy", same_bits),
    ("ACCELERATORS", "`state = step.call((state, batch))?` trains in place", "arrays or bytes that grow over 1,000 steps",
     lambda results: verdict((check["holds"], f"{check['what']}: {check['detail']}") for text in ("after half of the steps", "does not grow")
                             for check in results.checks("e", text))),
    ("README, RELIABILITY", "a stopped or killed run resumes bit for bit", "other weights, state or losses",
     of_checks("e", "are those of the undisturbed one")),
    ("ACCELERATORS", "calls return at once", "the last of eight calls returns after half of their time", of_checks("f", "calls return before")),
    ("ACCELERATORS", "cuDNN's attention gives the same losses", "losses that differ by more than a rounding of bf16",
     of_checks("f", "losses with cuDNN's attention")),
    ("ACCELERATORS", "cuDNN's attention takes no more memory", f"a peak above {MORE:g} of that of the definition", fused_takes_no_more),
    ("README", "losses are those of the native engine", "losses that differ by more than 2e-3 in f32, or a rounding in bf16",
     of_checks("c", "are those of the native engine")),
]
