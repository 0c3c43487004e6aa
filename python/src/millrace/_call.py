# SPDX-License-Identifier: Apache-2.0
"""Calls of ops: Python arguments become text of the grammar, which the library parses, checks and
builds, so that nothing of that is done twice."""

from __future__ import annotations

import difflib
import functools
import glob
import inspect
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, Union

import numpy as np

from . import _trace
from ._codegen import python_name
from ._types import DatasetSpec, TensorSpec, int64
from ._values import Auto, Names, Text, quoted, text_of

if TYPE_CHECKING:
    from ._dataset import Dataset

#: A Python function, which is recorded; an op or function of the library; or the text of one.
Function = Union[Callable[..., Any], str]
Path = Union[str, "os.PathLike[str]"]
#: Names of files. In a str, `*`, `?` and `[` make a pattern; a pathlib.Path is one file.
Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]
#: A description of records: {"name": mr.int64[...], ...}, a list of types, or its text.
Features = Union[str, Mapping[str, Any], Sequence[Any], Any]

_F = TypeVar("_F", bound=Callable[..., Any])
Row = tuple[str, str, str]  # of a parameter: see _codegen.table_source
Table = tuple[tuple[str, ...], tuple[Row, ...]]  # inputs (_codegen.inputs_of) and parameters
_tables: dict[str, Table] = {}


def add_tables(tables: Mapping[str, Table]) -> None:
    _tables.update(tables)


def named(name: str) -> Callable[[_F], _F]:
    """Marks a function that is an op, which can be passed where a function is expected."""

    def mark(function: _F) -> _F:
        function.__millrace_name__ = name  # type: ignore[attr-defined]
        return function

    return mark


def method(signature: _F) -> _F:
    """A method that calls the op of its name; the function is its signature and documentation."""
    return _op(signature, True)


def source(signature: _F) -> _F:
    """A function that calls the op of its name."""
    return _op(signature, False)


def _op(function: _F, is_method: bool) -> _F:
    op = function.__name__
    _trace.unquote(function)
    bind: list[Callable[..., inspect.BoundArguments]] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not bind:
            bind.append(inspect.signature(function).bind)
        try:
            given = bind[0](*args, **kwargs).arguments
        except TypeError as e:
            # Python names an argument that is missing before one that is misspelt.
            unknown = [k for k in kwargs if k not in inspect.signature(function).parameters]
            what = f"got an unexpected keyword argument {unknown[0]!r}" if unknown else str(e)
            raise TypeError(f"{op}: {what}; {_parameters(function, is_method, kwargs)}") from None
        receiver = given.pop("self") if is_method else None
        return Call(op, receiver, given, len(args) - is_method).result()

    call.__millrace_name__ = op  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def _parameters(function: Callable[..., Any], is_method: bool, given: Mapping[str, Any]) -> str:
    """What the op takes, for an error; a name that is nearly right comes first."""
    names = list(inspect.signature(function).parameters)[is_method:]
    for name in given:
        near = difflib.get_close_matches(name, names, 1)
        if name not in names and near:
            return f"did you mean {near[0]}?"
    return f"it takes {', '.join(names)}" if names else "it takes no arguments"


def _check_dataset(op: str, x: Any) -> None:
    from ._dataset import Dataset

    if not isinstance(x, (Dataset, _trace.Expr)):
        raise TypeError(f"{op}: expected a dataset, not {type(x).__name__}")


class Call:
    """A call of an op while its text is made."""

    def __init__(self, name: str, receiver: Any, given: dict[str, Any], positional: int) -> None:
        """given: the arguments by their Python names; as many as `positional` were given by position."""
        self.name, self.receiver = name, receiver
        self.names = Names()
        inputs, rows = _tables[name]
        self.inputs: list[Any] = []
        for key in inputs:
            if key.startswith("*"):
                self.inputs += given.pop("datasets", ()) + given.pop("others", ())
                positional = 0
            else:
                self.inputs.append(given.pop(key.lstrip("[]{}")))
                positional -= 1
                if key.startswith("{}"):
                    _check_names(name, key[2:], self.inputs[-1])
        for x in self.inputs:
            for y in _items(x):
                _check_dataset(name, y)
        self.arguments: list[tuple[str, str, Any]] = []  # name where it is written, kind, value
        self.recorded: dict[int, _trace.Recorded] = {}
        for i, (key, kind, how) in enumerate(rows):
            if python_name(key) not in given:
                continue
            value = given[python_name(key)]
            if how == "V":
                self.arguments += [("", kind, v) for v in value]
                continue
            if value is None and how != "R":
                continue  # none is what is not given
            if kind == "value" and isinstance(value, FunctionType):
                kind = "function"  # window_size of group_by_window may be one
            if kind == "function" and not isinstance(value, str):
                self.recorded[len(self.arguments)] = _trace.record(value, self.argument_specs(key))  # pyright: ignore[reportArgumentType]
            by_position = how == "R" or (i < positional and i == len(self.arguments))
            self.arguments.append(("" if by_position else key, kind, value))
        self.is_open = _trace.is_recording() and (
            any(r.is_open for r in self.recorded.values())
            or any(_uses_parameters(x) for x in (receiver, self.inputs, *(v for _, _, v in self.arguments)))
        )

    def argument_specs(self, parameter: str) -> Any:
        """The specs of what the function `parameter` is called with."""
        element = self.receiver.element_spec
        if (self.name, parameter) == ("group_by_window", "reduce_fn"):
            return TensorSpec((), int64), DatasetSpec(element)
        if self.name == "group_by_window" and parameter in ("window_size", "window_size_fn"):
            return TensorSpec((), int64)
        if (self.name, parameter) == ("scan", "fn"):
            return self.spec_of_value(self.arguments[0][2]), element
        return element

    def spec_of_value(self, value: Any) -> Any:
        """The spec of the element that a value is."""
        if _trace.is_recording() and _uses_parameters(value):
            return _trace.spec_of_text(_trace.text_of(value))
        from ._dataset import parse

        names = Names()
        text = f"from_tensors({text_of(value, names)})"
        return parse(text, names, call=True).element_spec

    def text(self, i: int) -> str:
        """The text of argument i."""
        key, kind, value = self.arguments[i]
        before = f"{key}=" if key else ""
        if kind == "function":
            if i not in self.recorded:
                return before + str(value)
            recorded = self.recorded[i]
            if not self.is_open:
                self.names.add_all(recorded.arrays)
            return before + recorded.text
        if self.is_open and kind != "expression":
            if value is None or isinstance(value, Auto):
                return before + text_of(value, self.names)
            return before + _trace.text_of(value)
        return before + argument_text(kind, value, self.names)

    def input_text(self, x: Any) -> str:
        if isinstance(x, (list, tuple)):
            return "[" + ", ".join(map(self.input_text, x)) + "]"
        if isinstance(x, Mapping):
            return "{" + ", ".join(f"{quoted(k)}: {self.input_text(v)}" for k, v in x.items()) + "}"
        return _trace.text_of(x) if self.is_open else self.names.dataset(x)

    def result(self) -> Dataset:
        from ._dataset import open_dataset, parse

        text = f"{self.name}("
        if self.receiver is not None:
            text = f"{self.input_text(self.receiver)}.{text}"
        parts = [self.input_text(x) for x in self.inputs]
        parts += [self.text(i) for i in range(len(self.arguments))]
        text += ", ".join(parts) + ")"
        if self.is_open:
            return open_dataset(text)
        return parse(text, self.names, call=True)


def _check_names(op: str, key: str, x: Any) -> None:
    if not isinstance(x, Mapping):
        raise TypeError(f"{op}: {key} is a dict of datasets by their names, not {type(x).__name__}")
    if not x:
        raise ValueError(f"{op}: {key} has no source")
    for name in x:
        if not isinstance(name, str):
            raise TypeError(f"{op}: names of sources are str, not {type(name).__name__}")


def _items(x: Any) -> Iterable[Any]:
    """The datasets of an input: of a list, of a dict, or one."""
    if isinstance(x, Mapping):
        return x.values()
    return x if isinstance(x, (list, tuple)) else (x,)


def _uses_parameters(x: Any) -> bool:
    """True if x depends on a parameter of a function that is being recorded."""
    if isinstance(x, (list, tuple)):
        return any(map(_uses_parameters, x))
    if isinstance(x, Mapping):
        return any(map(_uses_parameters, x.values()))
    return isinstance(x, _trace.Expr) or getattr(x, "_open", None) is not None


def argument_text(kind: str, value: Any, names: Names) -> str:
    """The text of a value for a parameter of that kind."""
    if value is None or isinstance(value, (Auto, Text)):
        return text_of(value, names)
    if kind in ("integer", "integers"):
        return _integers(value, names)
    if kind in ("number", "numbers"):
        return _numbers(value, names)
    if kind == "patterns":
        return _patterns(value, names)
    if kind == "expression":
        return expression_text(value, names)
    if kind == "strings" and isinstance(value, tuple):
        value = list(value)
    return text_of(value, names)


def _integers(value: Any, names: Names) -> str:
    if isinstance(value, (list, tuple, np.ndarray)):
        return "[" + ", ".join(_integers(v, names) for v in value) + "]"
    if isinstance(value, (bool, np.bool_)):
        return text_of(value, names)
    try:
        return str(operator.index(value))
    except TypeError:
        return text_of(value, names)  # the library says what is wrong with it


def _numbers(value: Any, names: Names) -> str:
    if isinstance(value, (list, tuple, np.ndarray)):
        return "[" + ", ".join(_numbers(v, names) for v in value) + "]"
    return text_of(value.item() if isinstance(value, np.generic) else value, names)


def _patterns(value: Any, names: Names) -> str:
    if isinstance(value, os.PathLike):
        return quoted(glob.escape(os.fspath(value)))
    if isinstance(value, (list, tuple, np.ndarray)):
        return "[" + ", ".join(_patterns(v, names) for v in value) + "]"
    return text_of(value, names)


def expression_text(value: Any, names: Names) -> str:
    """A description of records; a str is text of the grammar."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(k)}: {expression_text(v, names)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(expression_text(v, names) for v in value) + "]"
    if isinstance(value, type):
        from ._types import as_dtype

        return as_dtype(value).name
    return text_of(value, names)
