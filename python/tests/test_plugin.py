# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick
"""Plugins: examples/own_op, compiled and loaded."""

from __future__ import annotations

import inspect
import os
import pydoc
import shutil
import subprocess
import tempfile
import unittest

import kit
import millrace as mr


def compiled(folder: str) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise unittest.SkipTest("there is no C compiler")
    out = os.path.join(folder, "own_op.so")
    includes = [f"-I{os.path.join(kit.BUILD, name)}" for name in ("include", "generated")]
    source = os.path.join(kit.SOURCE, "examples", "own_op", "own_op.c")
    subprocess.run([compiler, "-shared", "-fPIC", *includes, source, "-o", out], check=True)
    return out


class Plugin(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.TemporaryDirectory() as folder:
            before = mr.range(1)
            assert not hasattr(before, "every") and not hasattr(mr.fn, "celsius")
            mr.load_plugin(compiled(folder))  # it stays loaded when the file is gone

    def test_its_ops_are_methods(self) -> None:
        self.assertEqual([int(x) for x in mr.range(10).every(3)], [0, 3, 6, 9])
        self.assertEqual(str(mr.range(10).every(n=3)), "range(10).every(3)")
        self.assertEqual(mr.range(10).every(3).cardinality(), 4)
        with self.assertRaisesRegex(mr.InvalidArgument, "every.*n|n.*1"):
            mr.range(10).every(0)
        with self.assertRaises(TypeError):
            mr.range(10).every()

    def test_they_have_signatures_and_help(self) -> None:
        self.assertEqual(str(inspect.signature(mr.Dataset.every)), "(self, n: int) -> Dataset")
        text = pydoc.render_doc(mr.Dataset.every)
        for words in ("The first of every n elements.", "One of every n elements is kept.", "range(10).every(3)"):
            self.assertIn(words, text)
        self.assertIn("Degrees Fahrenheit", mr.fn.celsius.__doc__ or "")
        self.assertEqual(list(inspect.signature(mr.fn.celsius).parameters), ["x"])

    def test_its_functions_are_recorded(self) -> None:
        boiling = mr.from_tensors(212.0)
        self.assertEqual(str(boiling.map(lambda x: mr.fn.celsius(x))), str(boiling.map(lambda x: x.celsius())))
        self.assertAlmostEqual(float(next(iter(boiling.map(lambda x: x.celsius())))), 100.0, places=4)
        with self.assertRaisesRegex(mr.InvalidArgument, "celsius expects float32"):
            mr.range(3).map(lambda x: mr.fn.celsius(x))

    def test_its_callbacks_are_named(self) -> None:
        self.assertEqual([int(x) for x in mr.range(3).map("negated")], [0, -1, -2])

    def test_positions(self) -> None:
        it = iter(mr.range(10).every(3))
        next(it)
        state = it.state_dict()
        rest = [int(x) for x in it]
        it.load_state_dict(state)
        self.assertEqual([int(x) for x in it], rest)

    def test_what_is_no_plugin(self) -> None:
        with self.assertRaisesRegex(mr.NotFound, "nothing.so"):
            mr.load_plugin("./nothing.so")
        with self.assertRaises(FileNotFoundError):
            mr.load_plugin("nothing.so")
        library = next(line.split()[-1] for line in open("/proc/self/maps") if "libc.so" in line)
        with self.assertRaisesRegex(mr.FailedPrecondition, "is it a plugin"):
            mr.load_plugin(library)


if __name__ == "__main__":
    kit.main()
