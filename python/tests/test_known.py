# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""The graphs of tests/known with their known results: from their texts, and from the Python that makes
the same graphs by methods and recorded functions."""

from __future__ import annotations

import json
import os
import tempfile
import unittest
from typing import Any

import kit

import millrace as mr
from millrace import _trace, _values

known = kit.load("tests/known/run.py")
translate = kit.load("python/translate.py")
translate.load_names(kit.MILLRACE)


def literal(x: Any) -> Any:
    """A number that takes part in a recorded expression as it is written."""
    return _trace._wrap(_trace.as_node(x))


NAMES = {"mr": mr, "literal": literal, "raw": _values.Text}


def cases() -> list[dict[str, Any]]:
    with open(os.path.join(kit.SOURCE, "tests/known/known_answers.jsonl")) as f:
        everything = [json.loads(line) for line in f]
    return [c for c in everything if not c.get("args")]  # others distribute


class KnownAnswers(unittest.TestCase):
    def run_dataset(self, ds: mr.Dataset, case: dict[str, Any], how: str) -> None:
        values: list[Any] = []
        error: mr.Error | None = None
        try:
            with ds.iterator(threads=len(case["id"]) % 3) as it:
                for x in it:
                    values.append(kit.as_json(x))
        except mr.Error as e:
            error = e
        if case.get("exit", 0) == 0:
            self.assertIsNone(error, f"{how}: {error}")
        else:
            self.assertIsNotNone(error, f"{how}: no error")
            for part in case.get("stderr_contains", []):
                self.assertIn(part.lower(), str(error).lower() + " " + error.code.lower().replace("_", " "))
        if "lines" in case:
            known.check_values(values, case["lines"], how)

    def run_case(self, case: dict[str, Any]) -> None:
        text = case["expr"]
        if case.get("exit") == 2:
            with self.assertRaises(mr.Error):
                mr.from_text(text)
            return
        ds = mr.from_text(text)
        self.run_dataset(ds, case, "text")
        python = translate.python_of(text)
        made = eval(python, NAMES)
        self.assertEqual(str(made), str(ds), f"{python} is not the same graph")
        self.run_dataset(made, case, python)

    def test_texts_and_methods_give_the_known_answers(self) -> None:
        before = os.getcwd()
        for case in cases():
            with self.subTest(case=case["id"]), tempfile.TemporaryDirectory() as folder:
                known.make_files(case, folder)
                os.chdir(folder)
                try:
                    self.run_case(case)
                finally:
                    os.chdir(before)

    def test_graphs_that_cannot_be_built_are_errors_of_methods_too(self) -> None:
        refused = 0
        for case in cases():
            if case.get("exit") != 2:
                continue
            with self.subTest(case=case["id"]):
                try:
                    python = translate.python_of(case["expr"])
                except (ValueError, IndexError, KeyError):
                    continue  # not even a text
                with self.assertRaises((mr.Error, TypeError, ValueError, AttributeError), msg=python):
                    eval(python, NAMES)
                refused += 1
        self.assertGreater(refused, 5)


if __name__ == "__main__":
    kit.main()
