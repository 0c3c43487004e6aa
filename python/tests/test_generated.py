# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick
"""The committed methods, functions and stubs are those of `millrace ops --json`."""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
import unittest
from typing import Any

import kit
import millrace as mr

PACKAGE = os.path.join(kit.SOURCE, "python", "src", "millrace")
codegen = kit.load("python/src/millrace/_codegen.py")


def rows() -> list[dict[str, Any]]:
    """Not of a program with a plugin of the environment's."""
    environment = {k: v for k, v in os.environ.items() if k != "MILLRACE_PLUGINS"}
    lines = subprocess.run([kit.MILLRACE, "ops", "--json"], check=True, capture_output=True, text=True, env=environment)
    return [json.loads(line) for line in lines.stdout.splitlines()]


OPS = [row for row in rows() if "op" in row]
FUNCTIONS = [row for row in rows() if "function" in row and not row["form"]]


def parameters(f: ast.FunctionDef) -> list[str]:
    a = f.args
    names = [*a.posonlyargs, *a.args, *([a.vararg] if a.vararg else []), *a.kwonlyargs]
    return [x.arg for x in names if x.arg != "self"]


def functions_of(body: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    return {x.name: x for x in body if isinstance(x, ast.FunctionDef)}


class Generated(unittest.TestCase):
    def test_the_files_are_what_is_generated(self) -> None:
        for script in ("generate.py", "generate_functions.py"):
            command = [sys.executable, os.path.join(kit.SOURCE, "python", script), kit.MILLRACE, "--check"]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_there_are_many(self) -> None:
        self.assertGreater(len(OPS), 50)
        self.assertGreater(len(FUNCTIONS), 80)

    def test_every_op_is_a_method_or_a_source_with_help(self) -> None:
        for op in OPS:
            name = op["op"]
            places = [(mr.Dataset, True)] * codegen.is_method(op) + [(mr, False)] * codegen.is_source(op)
            self.assertTrue(places, name)
            for place, is_method in places:
                with self.subTest(op=name, method=is_method):
                    f = getattr(place, name)
                    if name in codegen.HANDWRITTEN:
                        self.assertTrue(f.__doc__)
                        continue
                    self.assertIn(op["doc"].split()[-1], f.__doc__ or "")
                    have = [p for p in inspect.signature(f).parameters if p != "self"]
                    for p in op["params"]:
                        self.assertIn(codegen.python_name(p["name"]), have)
                        self.assertIn(f"{codegen.python_name(p['name'])}:", f.__doc__ or "")

    def test_every_op_has_a_stub(self) -> None:
        tree = ast.parse(open(os.path.join(PACKAGE, "_generated.pyi")).read())
        classes = [x for x in tree.body if isinstance(x, ast.ClassDef)]
        methods = functions_of(classes[0].body)
        sources = functions_of(tree.body)
        for op in OPS:
            for wanted, found in ((codegen.is_method(op), methods), (codegen.is_source(op), sources)):
                if not wanted or op["op"] in codegen.HANDWRITTEN:
                    continue
                with self.subTest(op=op["op"]):
                    names = parameters(found[op["op"]])
                    for p in op["params"]:
                        self.assertIn(codegen.python_name(p["name"]), names)
        self.assertEqual(set(methods), {op["op"] for op in OPS if codegen.is_method(op)})

    def test_sources_are_functions_of_the_module(self) -> None:
        from millrace import _generated

        for name in _generated.SOURCES:
            with self.subTest(source=name):
                found = getattr(mr, name)
                if name != "zip":  # which takes structures too
                    self.assertIs(found, getattr(_generated, name))
                self.assertTrue(inspect.getdoc(found))

    def test_every_function_has_help_and_types(self) -> None:
        for function in FUNCTIONS:
            with self.subTest(function=function["function"]):
                f = vars(mr.fn)[function["function"]]
                self.assertIn(function["doc"].split()[0], f.__doc__ or "")
                signature = inspect.signature(f)
                for p in function["params"]:
                    if p["variadic"] and p["doc"].startswith("name=feature"):
                        continue
                    name = codegen.python_name(p["name"])
                    self.assertIn(name, signature.parameters)
                    self.assertIsNot(signature.parameters[name].annotation, inspect.Parameter.empty)
                self.assertIn("Expr", str(signature.return_annotation))
                first = function["params"][0] if function["params"] else None
                if first and first["kind"] == "tensor" and first["required"] and first["type"] != "a list of integers":
                    if function["function"] != "random_int":
                        self.assertTrue(hasattr(mr.Expr, function["function"]))


if __name__ == "__main__":
    kit.main()
