# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick
"""The package as a whole: examples in docstrings, typical use, versions, what an import brings."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
import unittest

import numpy as np

import kit
import millrace as mr


def run(source: str) -> str:
    return subprocess.run([sys.executable, "-c", source], check=True, capture_output=True, text=True).stdout


class Package(unittest.TestCase):
    def test_examples_in_docstrings_run(self) -> None:
        tried = 0
        if np.lib.NumpyVersion(np.__version__) >= "2.0.0":  # which shows 0 as np.int64(0)
            before = np.get_printoptions()
            np.set_printoptions(legacy="1.25")
            self.addCleanup(lambda: np.set_printoptions(**before))
        names = ["millrace", *(f"millrace.{found.name}" for found in pkgutil.iter_modules(mr.__path__))]
        for name in names:
            try:
                module = importlib.import_module(name)
            except ImportError as e:
                cause = e.__cause__ or e.__context__ or e
                missing = getattr(cause, "name", None) or ""
                self.assertIsInstance(cause, ModuleNotFoundError)
                self.assertFalse(missing.startswith("millrace") and not missing.endswith("_ffi"), e)
                continue  # of a framework that is not installed, or a library that is not built here
            with self.subTest(module=name):
                results = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
                self.assertEqual(results.failed, 0)
                tried += results.attempted
        self.assertGreater(tried, 15)

    def test_typical_use_runs(self) -> None:
        kit.load("python/tests/typing_use.py").main()

    def test_one_version(self) -> None:
        with open(os.path.join(kit.SOURCE, "python", "pyproject.toml"), "rb") as f:
            project = tomllib.load(f)["project"]
        with open(os.path.join(kit.SOURCE, "CMakeLists.txt")) as f:
            found = re.search(r"project\(millrace VERSION ([\d.]+)", f.read())
        assert found is not None
        self.assertEqual(project["version"], found[1])
        self.assertEqual(mr.__version__, found[1])
        self.assertEqual(project["name"], "millrace-data")

    def test_an_import_brings_numpy_and_nothing_else_of_others(self) -> None:
        source = "import sys, numpy; before = set(sys.modules); import millrace; print(*set(sys.modules) - before)"
        packages = {name.split(".")[0] for name in run(source).split()} - set(sys.stdlib_module_names)
        self.assertIn("millrace", packages)
        self.assertLessEqual(packages, {"millrace", "_cffi_backend", "_millrace_ffi", "numpy"})

    def test_the_console_script_is_the_program(self) -> None:
        source = "import sys; sys.argv = ['millrace', 'show', 'range(2)']; import millrace._programs as p; p.main()"
        self.assertEqual(run(source), "0\n1\n")

    def test_classes_are_shown_by_their_public_names(self) -> None:
        self.assertEqual(mr.Dataset.__module__, "millrace")
        self.assertIn("millrace.DataLoss", str(mr.DataLoss))


if __name__ == "__main__":
    kit.main()
