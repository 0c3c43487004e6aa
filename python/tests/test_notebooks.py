# SPDX-License-Identifier: Apache-2.0
# tier: plain=long
"""The notebooks of examples/notebooks, run from top to bottom.

MR_NOTEBOOK_PYTHON names an interpreter with nbclient, ipykernel and the packages of the notebooks;
else this one runs them.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest
from typing import Any

import kit

PYTHON = os.environ.get("MR_NOTEBOOK_PYTHON") or sys.executable
NOTEBOOKS = sorted(glob.glob(os.path.join(kit.SOURCE, "examples", "notebooks", "*.ipynb")))
RUN = """
import sys, nbclient, nbformat
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpec

class Manager(KernelManager):
    kernel_spec = KernelSpec(argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])

notebook = nbformat.read(sys.argv[1], as_version=4)
nbformat.validate(notebook)
nbclient.NotebookClient(notebook, timeout=300, kernel_manager_class=Manager).execute()
"""


def has(package: str) -> bool:
    find = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
    return subprocess.run([PYTHON, "-c", find], capture_output=True).returncode == 0


class Notebooks(unittest.TestCase):
    def check(self, path: str, notebook: dict[str, Any]) -> None:
        for package in ("nbclient", "ipykernel", *notebook["metadata"]["millrace"]["needs"]):
            if not has(package):
                self.skipTest(f"{package} is not installed")
        with tempfile.TemporaryDirectory(prefix="millrace-notebook-") as folder:
            done = subprocess.run([PYTHON, "-c", RUN, path], cwd=folder, capture_output=True, text=True, timeout=900)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_there_are_notebooks_and_they_have_no_outputs(self) -> None:
        self.assertGreaterEqual(len(NOTEBOOKS), 4)
        for path in NOTEBOOKS:
            with open(path, encoding="utf-8") as f:
                cells = json.load(f)["cells"]
            self.assertTrue(cells[0]["source"][0].startswith("# "), f"{path} begins with a title")
            self.assertFalse(any(c.get("outputs") or c.get("execution_count") for c in cells), path)


def add(path: str) -> None:
    with open(path, encoding="utf-8") as f:
        notebook = json.load(f)

    def test(self: Notebooks) -> None:
        self.check(path, notebook)

    name = os.path.splitext(os.path.basename(path))[0]
    setattr(Notebooks, f"test_{name}", test)


for path in NOTEBOOKS:
    add(path)

if __name__ == "__main__":
    kit.main()
