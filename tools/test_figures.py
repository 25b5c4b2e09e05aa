#!/usr/bin/env python3
"""Tests of tools/figures: what makes the check fail, and with which message."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


def script(name):
    """A command of this folder, as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(HERE / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


FIGURES = script("figures")

SPEED = """{
  "title": "Speed",
  "measurements": {
    "new": {
      "title": "A step", "machine": "A", "date": "2026-11-24", "revision": "abc", "command": "bench step",
      "columns": ["model", "ours s", "rounds", "theirs s"], "hidden_columns": ["rounds"],
      "rows": [["a GPT", 0.40, [0.39, 0.41], 1.00], ["a U-Net", [0.10, 0.06], null, 0.2]],
      "more_rows": [["a CNN", 0.3, null, 0.9]],
      "notes": ["Idle."]
    },
    "old": {
      "title": "A step", "machine": "B", "date": "2026-11-22", "revision": null, "command": null,
      "columns": ["model", "ours s", "theirs s"], "rows": [["a GPT", 0.8, 1.0]], "notes": []
    },
    "ratios": {
      "title": "Ratios", "machine": null, "date": null, "revision": null, "command": null,
      "columns": ["ratio", "A, 2026-11-24", "B, 2026-11-22"],
      "rows": [["a GPT", "=2 {speed/new | a GPT | ours s} / {speed/new | a GPT | theirs s}", "= {speed/old | a GPT | ours s}"]], "notes": []
    }
  }
}
"""
PAGE = "# Figures\n\n<!-- figures: speed new old -->\n<!-- end -->\n\n<!-- figures: speed ratios -->\n<!-- end -->\n\n<!-- figures: machines -->\n<!-- end -->\n"
README = """# It

It takes 0.4 of the time of
theirs, and three tenths on a CNN ([how](docs/PERFORMANCE.md#a-3.5-ms)); see version 1.2.3 of GPT-2 on 2026-11-24 with 64 rows.
Under --budget 50% more.

```text
12 ms
```
"""
CLAIMS = {
    "README.md": {
        "claims": [
            {"quote": "takes 0.4 of the time", "values": {"0.4": "{speed/new | a GPT | ours s} / {speed/new | a GPT | theirs s}"}},
            {"quote": "three tenths on a CNN", "values": {"three tenths": "{speed/new | a CNN | ours s} / {speed/new | a CNN | theirs s}"}},
        ],
        "exempt": [{"quote": "--budget 50%", "why": "a setting"}],
    }
}


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "docs" / "figures").mkdir(parents=True)
        self.data("machines.json").write_text('{"A": "a CPU", "B": "another", "any CPU": null}')
        self.data("speed.json").write_text(SPEED)
        self.page.write_text(PAGE)
        (self.root / "README.md").write_text(README)
        self.claim(CLAIMS)
        # A CNN takes a third of the time, which three tenths may stand for.
        self.assertEqual(self.run_it(), (0, ""))

    @property
    def page(self):
        return self.root / "docs" / "PERFORMANCE.md"

    def data(self, name):
        return self.root / "docs" / "figures" / name

    def claim(self, claims):
        self.data("claims.json").write_text(json.dumps(claims))

    def run_it(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = FIGURES.main([*arguments, "--root", str(self.root)])
        return code, said.getvalue()

    def fails(self, *messages):
        code, said = self.run_it("--check")
        self.assertEqual(code, 1, said)
        for message in messages:
            self.assertIn(message, said)
        return said

    def replace(self, path, old, new):
        text = path.read_text()
        self.assertEqual(text.count(old), 1, old)
        path.write_text(text.replace(old, new))

    def says(self, text):
        """What the check says if README.md also has this text."""
        (self.root / "README.md").write_text(README + text + "\n")
        return self.run_it("--check")[1]

    def test_tables_are_those_of_the_data(self):
        self.assertEqual(self.run_it("--check"), (0, ""))
        text = self.page.read_text()
        self.assertIn("A step. A: `bench step`:\n\n| model | machine, date | ours s | theirs s |\n|---|---|---|---|\n", text)
        self.assertIn("| a GPT | A, 2026-11-24 | 0.40 | 1.00 |\n| a U-Net | A, 2026-11-24 | 0.10 / 0.06 | 0.2 |\n| a GPT | B, 2026-11-22 | 0.8 | 1.0 |\n", text)
        self.assertIn("| a GPT | 0.40 | 0.8 |", text)
        self.assertIn("| A | a CPU |\n| B | another |\n<!-- end -->", text)
        self.assertNotIn("CNN", text)

    def test_one_measurement_has_machine_date_and_revision_in_its_caption(self):
        self.page.write_text("<!-- figures: speed new -->\n<!-- end -->\n")
        self.assertEqual(self.run_it(), (0, ""))
        self.assertIn("A step. A, 2026-11-24, revision `abc`. `bench step`:\n\n| model | ours s | theirs s |", self.page.read_text())

    def test_a_changed_cell_of_the_document(self):
        self.replace(self.page, "| a GPT | B, 2026-11-22 | 0.8 |", "| a GPT | B, 2026-11-22 | 0.7 |")
        said = self.fails("the table of `<!-- figures: speed new old -->` is not what its data make", "has   | a GPT | B, 2026-11-22 | 0.7 | 1.0 |")
        self.assertEqual(said.count("is not what its data make"), 1)

    def test_a_changed_cell_of_the_data(self):
        self.replace(self.data("speed.json"), '["a GPT", 0.8, 1.0]', '["a GPT", 0.9, 1.0]')
        self.fails("speed new old -->` is not what", "speed ratios -->` is not what", "wants | a GPT | 0.40 | 0.9 |")

    def test_a_row_that_the_document_lacks(self):
        self.replace(self.page, "| a U-Net | A, 2026-11-24 | 0.10 / 0.06 | 0.2 |\n", "")
        self.fails("wants | a U-Net | A")

    def test_a_row_that_is_not_in_the_data(self):
        self.replace(self.page, "| a GPT | 0.40 | 0.8 |\n", "| a GPT | 0.40 | 0.8 |\n| a lie | 0.1 | 0.1 |\n")
        self.fails("has   | a lie |")

    def test_a_missing_row_behind_a_claim(self):
        self.replace(self.data("speed.json"), '["a CNN", 0.3, null, 0.9]', '["a C", 0.3, null, 0.9]')
        self.fails("speed.json, new has no row `a CNN`")

    def test_a_missing_column_measurement_or_entry(self):
        for old, new, message in [
            ("| theirs s}", "| s}", "speed.json, new has no column `s`"),
            ("{speed/new | a CNN | ours s}", "{speed/newest | a CNN | ours s}", "docs/figures has no measurement `speed/newest`"),
            ("{speed/new | a CNN | ours s}", "{speed/new | a CNN | ours s#2}", "has no entry 2"),
            ("{speed/new | a CNN | ours s}", "{speed/new | a U-Net | ours s}", "is `0.10 / 0.06`, which is no number"),
            ("{speed/new | a CNN | ours s}", "{speed/new}", "is not `{FILE/NAME | row | column}`"),
            ("{speed/new | a CNN | ours s}", "open('x')", "is no expression over cells"),
            ("{speed/new | a CNN | ours s}", "1 / 0 *", "is no expression over cells"),
            ("{speed/new | a CNN | ours s}", "1 / 0 + 1", "divides by zero"),
        ]:
            with self.subTest(message):
                self.claim(json.loads(json.dumps(CLAIMS).replace(old, new, 1 if "CNN" in old else -1)))
                self.fails(message)

    def test_two_rows_of_one_name(self):
        self.replace(self.data("speed.json"), '["a CNN", 0.3, null, 0.9]', '["a CNN", 0.3, null, 0.9], ["a CNN", 0.4, null, 0.9]')
        self.fails("speed.json, new has 2 rows `a CNN`")
        self.claim(json.loads(json.dumps(CLAIMS).replace("a CNN | ", "a CNN | 0.3 | ")))
        self.assertEqual(self.run_it("--check"), (0, ""))

    def test_a_number_that_no_claim_covers(self):
        for text, number in [
            ("It takes 12 ms.", "12"), ("10 to 25 seconds", "10"), ("10-25 seconds", "25"), ("3, 4 and 5 MiB", "4"), ("a step of 2x the speed", "2"),
            ("faster by 30 %", "30"), ("-3.9% overhead", "3.9"), ("7 times", "7"), ("1.07", "1.07"), ("an error of 3.3e-6", "3.3e-6"),
            ("| a GPT | 397 |", "397"), ("| 1.0 / 2 |", "2"), ("106,492 tokens/s", "106,492"), ("950 GFLOP/s", "950"), ("half the memory", "half"),
            ("two thirds of it", "two thirds"), ("twice as fast", "twice"), ("about eighteen minutes", "eighteen"), ("in a minute", "a"),
            ("`--limit 5GiB`", "5"), ("Ten times", "Ten"), ("on 2026-11-24, 10 s", "10"),
        ]:
            with self.subTest(text):
                self.assertIn(f"README.md:10: `{number}` is a figure that no claim of docs/figures/claims.json covers", self.says(text))

    def test_what_is_no_figure_of_a_performance(self):
        for text in ["JAX 0.10.2", "up to 32 plans", "3x3 windows", "windows of 3 x 3", "GPT-2", "in GPT-2 times vary", "f32[5,4]", "a second memory", "2,000 steps", "[it](a/3.5-ms.md)",
                     "<!-- 12 ms -->", "```\n5 s\n```"]:
            with self.subTest(text):
                self.assertEqual(self.says(text), "")

    def test_a_number_in_the_quote_of_a_claim_that_no_value_proves(self):
        claims = json.loads(json.dumps(CLAIMS))
        claims["README.md"]["claims"][0]["quote"] = "It takes 0.4 of the time of theirs, and three tenths"
        del claims["README.md"]["claims"][1]
        self.claim(claims)
        self.fails("`three tenths` is a figure that no claim of docs/figures/claims.json covers")

    def test_a_claim_that_is_not_true(self):
        self.replace(self.root / "README.md", "takes 0.4 of", "takes 0.5 of")
        self.claim(json.loads(json.dumps(CLAIMS).replace('"takes 0.4 of', '"takes 0.5 of').replace('"0.4"', '"0.5"')))
        self.fails("README.md says `0.5` in `takes 0.5 of the time`, and docs/figures has 0.4")

    def test_rounding(self):
        for said, value, is_right in [
            ("0.4", "0.449", True), ("0.4", "0.451", False), ("0.40", "0.406", False), ("10", "9.6", True), ("1,000", "1000.6", False),
            ("half", "0.54", True), ("half", "0.56", False), ("a fifth", "0.2", True), ("eighteen", "17.5", True), ("twice", "2.3", False),
        ]:
            with self.subTest(said=said, value=value):
                number, slack = FIGURES.stated(said)
                self.assertEqual(abs(FIGURES.Decimal(value) - number) <= slack, is_right)

    def test_a_quote_that_is_gone_or_there_twice(self):
        self.replace(self.root / "README.md", "takes 0.4 of the time", "needs 0.4 of the time")
        self.fails("README.md has no longer `takes 0.4 of the time`", "`0.4` is a figure that no claim")
        (self.root / "README.md").write_text(README + "Under --budget 50% more.\n")
        self.fails("README.md has 2 times `--budget 50%`")

    def test_a_value_that_is_not_in_its_quote(self):
        self.claim(json.loads(json.dumps(CLAIMS).replace('{"0.4"', '{"0.39"')))
        self.fails("`0.39` stands 0 times in the quote `takes 0.4 of the time`")

    def test_malformed_files(self):
        for old, new, message in [
            ('"title": "Speed",', '"title": "Speed"', "speed.json is malformed: Expecting"),
            ('"title": "Speed",', '"titel": "Speed",', "speed.json is malformed: it is no object of a `title` and `measurements`"),
            ('"revision": "abc", ', "", "speed.json, new is malformed: it lacks revision"),
            ('"notes": ["Idle."]', '"notes": ["Idle."], "note": 1', "speed.json, new is malformed: nothing reads `note`"),
            ('"notes": ["Idle."]', '"notes": "Idle."', "speed.json, new is malformed: its notes are no list of texts"),
            ('"notes": ["Idle."]', '"notes": [], "notes": []', "speed.json is malformed: the key `notes` twice"),
            ("[0.10, 0.06], null, 0.2]", "[0.10, 0.06], null]", "the row `a U-Net` has 3 cells for 4 columns"),
            ("[0.10, 0.06], null, 0.2]", "[0.10, 0.06], null, {}]", "the row `a U-Net` has a cell that is no text or number"),
            ("[0.10, 0.06], null, 0.2]", '[0.10, 0.06], null, "a|b"]', "a cell of the row `a U-Net` has a `|` or a line break"),
            ("[0.10, 0.06], null, 0.2]", "[0.10, 0.06], null, NaN]", "speed.json is malformed: NaN is no figure"),
            ('"machine": "A"', '"machine": "C"', "speed.json, new: machines.json has no machine `C`"),
            ('"date": "2026-11-24"', '"date": "24.11.2026"', "its date `24.11.2026` is not YYYY-MM-DD"),
            ('"machine": "A", "date": "2026-11-24"', '"machine": null, "date": null', "the row `a GPT` has a figure without machine and date"),
            ('["rounds"]', '["round"]', "`hidden_columns` names what is no column"),
            ('"=2 {speed/new', '"={speed/new', "is neither `= {one cell}` nor says how many decimals it has"),
            ('"= {speed/old | a GPT | ours s}"', '"= {speed/new | a CNN | ours s}"', "stands below `B, 2026-11-22` and is of A, 2026-11-24"),
        ]:
            with self.subTest(message):
                self.data("speed.json").write_text(SPEED)
                self.replace(self.data("speed.json"), old, new)
                self.fails(message)
                page = self.page.read_text()
                self.assertEqual((self.run_it()[0], self.page.read_text()), (1, page), "what is wrong is not written")

    def test_malformed_claims(self):
        for claims, message in [
            ([], "claims.json is malformed: it is no object"),
            ({}, "claims.json has no `README.md`"),
            ({**CLAIMS, "X.md": {}}, "there is no document `X.md`"),
            ({"README.md": {"claim": []}}, "claims.json is malformed: `README.md` has `claims` and `exempt`"),
            ({"README.md": {"exempt": [{"quote": "--budget 50%", "why": ""}]}}, "an entry under `exempt` of README.md has quote and why"),
            ({"README.md": {"claims": [{"quote": "takes 0.4 of", "values": {}}]}}, "an entry under `claims` of README.md has quote and values"),
        ]:
            with self.subTest(message):
                self.claim(claims)
                self.fails(message)
        self.data("claims.json").unlink()
        self.fails("claims.json is malformed: [Errno 2]")

    def test_unused_files(self):
        self.data("other.json").write_text(SPEED.replace("{speed/", "{other/"))
        self.data("notes.txt").write_text("")
        self.fails("docs/figures/other.json is unused", "docs/figures/notes.txt is no JSON file")

    def test_a_cell_that_no_document_shows_is_computed_too(self):
        self.replace(self.data("speed.json"), '["a CNN", 0.3, null, 0.9]', '["a CNN", 0.3, "=1 {speed/new | gone | ours s}", 0.9]')
        self.fails("speed.json, new: speed.json, new has no row `gone`")

    def test_marks(self):
        for page, message in [
            ("<!-- figures: speed new -->\n| a |\n", "`<!-- figures: speed new -->` has no `<!-- end -->`"),
            ("<!-- figures: speed new -->\n<!-- figures: speed old -->\n<!-- end -->\n", "`<!-- figures: speed new -->` has no `<!-- end -->`"),
            ("<!-- figures: speed new -->\n<!-- end -->\n" * 2, "has `<!-- figures: speed new -->` twice"),
            ("<!-- figures: speed -->\n<!-- end -->\n", "names no file and measurement"),
            ("<!-- figures: speed newest -->\n<!-- end -->\n", "docs/figures has no measurement `speed/newest`"),
            ("<!-- figures: speed new ratios -->\n<!-- end -->\n", "speed.json, ratios has another title or other columns than speed.json, new"),
        ]:
            with self.subTest(message):
                self.page.write_text(page)
                self.fails(message)
        self.page.unlink()
        self.fails("cannot read")


class Repository(unittest.TestCase):
    def test_documents_are_what_the_data_make(self):
        result = subprocess.run([sys.executable, HERE / "figures", "--check"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr, result.stdout), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
