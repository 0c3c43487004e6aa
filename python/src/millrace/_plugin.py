# SPDX-License-Identifier: Apache-2.0
"""Plugins: ops and functions in C that a shared object registers become methods and functions."""

from __future__ import annotations
import __future__

import inspect
import json
import os
from types import FunctionType
from typing import Any

from . import _call, _codegen, _programs, _trace, _values, fn
from ._dataset import Dataset
from ._errors import FailedPrecondition, check
from ._ffi import ffi, lib


def load_plugin(path: str | os.PathLike[str]) -> None:
    """Loads a shared object with more ops and functions, as `millrace --load` does.

    Its ops are methods of `mr.Dataset`, or functions of this module if they are sources; its functions
    are in `mr.fn`, and methods of what recorded functions are called with. It stays loaded. Other
    processes load it too: those of `millrace` where MILLRACE_PLUGINS names it.

        mr.load_plugin("./own_op.so")
        mr.range(10).every(3).map(lambda x: mr.fn.celsius(mr.fn.cast(x, mr.float32)))

    Args:
        path: the file; a name without "/" is searched for in the system's library directories.

    Raises:
        NotFound: it cannot be opened.
        FailedPrecondition: it is not a plugin, or one for another release of Millrace.
    """
    text = os.fspath(path)
    before = _ops()
    st = ffi.new("mr_status *")
    check(lib.mrpy_plugin_load(os.fsencode(text), st), st)
    for row in _descriptions(text):
        if row.get("op") in _ops() - before:
            _add_op(row)
        elif "function" in row and not row["form"] and row["function"] not in vars(fn):
            _add_function(row)


def _ops() -> set[str]:
    """The names of the ops that this process has."""
    names: set[str] = set()
    while (op := lib.mr_op_at(len(names))) != ffi.NULL:
        names.add(ffi.string(op.name).decode())
    return names


def _descriptions(path: str) -> list[dict[str, Any]]:
    """What the program says of all ops and functions once it has loaded the plugin."""
    import subprocess

    command = [_programs.path(), "ops", "--json", "--load", path]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise FailedPrecondition(f"the program cannot load what this process has loaded: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def _define(source: str, name: str) -> Any:
    """The function that a text defines."""
    import textwrap

    names = {"_call": _call, "AUTO": _values.AUTO, "__name__": "millrace"}
    flags = __future__.annotations.compiler_flag
    exec(compile(textwrap.dedent(source), f"<plugin: {name}>", "exec", flags, dont_inherit=True), names)
    return names[name]


def _add_op(row: dict[str, Any]) -> None:
    import millrace

    name = row["op"]
    _call.add_tables(_define(f"tables = {{{_codegen.table_source(row)}}}", "tables"))
    example = f"mr.from_text({row['example']!r})"
    if _codegen.is_method(row):
        setattr(Dataset, name, _define(_codegen.method_source(row, example), name))
    if _codegen.is_source(row):
        setattr(millrace, name, _define(_codegen.source_source(row, example), name))


def _add_function(row: dict[str, Any]) -> None:
    name = row["function"]
    function: FunctionType = _trace.registered_function(name)
    parameters = [_parameter(p) for p in row["params"]]
    lines = [row["doc"], "", f"    {row['example']}", "", "Args:"]
    lines += [f"    {p['name']}: {p['doc']}" for p in row["params"]]
    function.__doc__ = "\n".join(lines)
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    setattr(fn, name, function)
    first = row["params"][0] if row["params"] else None
    if first is None or first["kind"] != "tensor" or not first["required"] or hasattr(_trace.Expr, name):
        return

    def method(self: _trace.Expr, *args: Any, **kwargs: Any) -> _trace.Expr:
        out: _trace.Expr = function(self, *args, **kwargs)
        return out

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`mr.fn.{name}` of this value. {row['doc']}"
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    rest = [] if first["variadic"] else parameters[1:]
    method.__signature__ = inspect.Signature([itself, *rest])  # type: ignore[attr-defined]
    setattr(_trace.Expr, name, method)


def _parameter(p: dict[str, Any]) -> inspect.Parameter:
    name = _codegen.python_name(p["name"])
    if p["variadic"]:
        return inspect.Parameter(name, inspect.Parameter.VAR_POSITIONAL)
    how = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, how) if p["required"] else inspect.Parameter(name, how, default=None)
