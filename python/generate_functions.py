#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/millrace/fn.py and src/millrace/_methods.py from the descriptors of functions, which
`millrace ops --json` prints.

    python3 generate_functions.py path/to/millrace [--check]
"""

from __future__ import annotations

import argparse
import json
import keyword
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import translate

COLUMNS = 100
TYPES = {
    "integer": "int",
    "number": "float",
    "string": "str",
    "bool": "bool",
    "dtype": "TypeLike",
    "numbers": "Numbers",
    "integers": "int | Sequence[int]",
    "value": "Any",
    "other": "Any",
}  # of options, by their kind; those of kind "tensor" are inputs


@dataclass
class Parameter:
    name: str
    kind: str
    type: str
    doc: str
    required: bool
    variadic: bool
    default: str | None
    words: list[str]

    @property
    def is_input(self) -> bool:
        return self.kind == "tensor"

    @property
    def python_name(self) -> str:
        return self.name + "_" if keyword.iskeyword(self.name) else self.name

    @property
    def annotation(self) -> str:
        if self.is_input:
            out = "Shape" if self.type == "a list of integers" else "Tensor"
        elif self.words:
            out = f"Literal[{', '.join(json.dumps(w) for w in self.words)}]"
        else:
            out = TYPES[self.kind]
        none = self.python_default == "None" and out != "Any"
        return f"{out} | None" if none else out

    @property
    def python_default(self) -> str | None:
        if self.required or self.variadic:
            return None
        words = {"none": "None", "true": "True", "false": "False", None: "None"}
        if self.default in words:
            return words[self.default]
        if self.kind == "dtype":
            return json.dumps(self.default)
        return self.default

    @property
    def text(self) -> str:
        if self.variadic:
            return f"*{self.python_name}: {self.annotation}"
        default = self.python_default
        return f"{self.python_name}: {self.annotation}" + (f" = {default}" if default else "")


@dataclass
class Function:
    name: str
    doc: str
    python: str  # an example
    parameters: list[Parameter]

    @property
    def takes_names(self) -> bool:
        return any(p.variadic and p.doc.startswith("name=feature") for p in self.parameters)

    @property
    def is_method(self) -> bool:
        first = self.parameters[0]
        takes = first.is_input and first.required and first.type != "a list of integers"
        return takes and self.name != "random_int"

    def signature(self, method: bool) -> str:
        inputs = self.parameters[1:] if method else self.parameters
        texts = [p.text for p in inputs]
        if method:
            first = self.parameters[0]
            texts = ["self", *([first.text] if first.variadic else []), *texts]
        if self.takes_names:  # of features, which may be that of the input
            texts.insert(1, "/")
            texts.append("**named_features: Any")
        return f"({', '.join(texts)}) -> Expr"

    def docstring(self, method: bool, indent: str) -> str:
        if method:
            return f'{indent}r"""`mr.fn.{self.name}` of this value. {self.doc}"""'
        lines = wrapped(self.doc, indent)
        lines += ["", f"{indent}    {self.python}", "", f"{indent}Args:"]
        for p in self.parameters:
            words = f" One of {', '.join(map(repr, p.words))}." if p.words else ""
            lines += wrapped(f"{p.python_name}: {p.doc}{words}", indent + "    ", "    ")
        body = "\n".join(lines).strip()
        return f'{indent}r"""{body}\n{indent}"""'


def wrapped(text: str, indent: str, more: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent + more,
        break_on_hyphens=False,
        break_long_words=False,
    )


def split_arguments(text: str) -> list[str]:
    """The parts between commas outside of quotes and brackets."""
    out, level, quoted, part = [], 0, False, ""
    for c in text:
        quoted ^= c == '"'
        level += 0 if quoted else (c in "([{") - (c in ")]}")
        if c == "," and not level and not quoted:
            out.append(part.strip())
            part = ""
        else:
            part += c
    return [*out, part.strip()] if part.strip() else out


def read_functions(program: str) -> list[Function]:
    lines = subprocess.run(
        [program, "ops", "--json"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    translate.load_names(program)
    names = Parameter.__dataclass_fields__
    out = []
    for row in map(json.loads, lines):
        if "function" not in row or row["form"]:  # operators have a form
            continue
        parameters = [Parameter(**{k: p[k] for k in names}) for p in row["params"]]
        example = translate.python_of(row["example"])
        out.append(Function(row["function"], row["doc"], example, parameters))
    return sorted(out, key=lambda f: f.name)


def wrap_signature(head: str, indent: str) -> str:
    """A line of a definition, in several lines if it is long."""
    if len(indent + head) <= 99:
        return f"{indent}{head}:"
    open_at = head.index("(")
    close_at = head.rindex(")")
    arguments = split_arguments(head[open_at + 1 : close_at])
    lines = "".join(f"{indent}    {a},\n" for a in arguments)
    return f"{indent}{head[: open_at + 1]}\n{lines}{indent}{head[close_at:]}:"


FN_HEAD = '''# SPDX-License-Identifier: Apache-2.0
# Generated by generate_functions.py from the table of functions; do not edit.
# mypy: disable-error-code="empty-body"
# pyright: reportReturnType=false
# ruff: noqa: A001, A002, E501
"""Functions for recorded functions: `ds.map(lambda x: mr.fn.resize(x, [8, 8]))`.

They take Exprs and constants, and make Exprs. Most are methods of Expr too: `x.resize([8, 8])`.
Strings are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec

from . import _trace
from ._trace import Expr, Feature
from ._types import TypeLike

_P = ParamSpec("_P")
Tensor = Any  #: an Expr, or a constant: a number, a string, an array or a list
Shape = Any  #: a list or tuple of ints and Exprs
Numbers = Sequence[float] | Any


def _recorded(function: Callable[_P, Expr]) -> Callable[_P, Expr]:
    return _trace.recorded(function)


def cond(condition: Tensor, a: Any, b: Any) -> Any:
    """`a if condition else b` for a single bool: only the one that is needed is computed.

    a and b are tensors, tuples, dicts or datasets of the same types, or functions without
    parameters that return them. `where` chooses for each value of a tensor.

        mr.range(4).map(lambda x: mr.fn.cond(x == 0, 0, 6 // x))
    """
    return _trace.cond(condition, a, b)


def tensor(value: Tensor) -> Expr:
    """A constant, or a list that has Exprs in it, as an Expr.

    Python adds lists and compares them as lists; so that these are tensors:

        mr.range(3).map(lambda x: mr.fn.tensor([x, 1]) + 1)
    """
    return _trace.tensor(value)


def feature(dtype: TypeLike, shape: Sequence[int] | None = None, default: Any = None) -> Feature:
    """A feature that a record may lack, for `parse_example` and the like.

        mr.fn.feature(mr.float32, shape=[2], default=[0, 0])
    """
    options = {"shape": shape, "default": default}
    return Feature("feature", dtype, {k: v for k, v in options.items() if v is not None})


def sparse(dtype: TypeLike, index: str, value: str, size: int) -> Feature:
    """A sparse feature: the values of one feature at the positions that are in another.

        mr.fn.sparse(mr.float32, index="i", value="v", size=9)
    """
    return Feature("sparse", dtype, {"index": index, "value": value, "size": size})
'''

METHODS_HEAD = '''# SPDX-License-Identifier: Apache-2.0
# Generated by generate_functions.py from the table of functions; do not edit.
# mypy: disable-error-code="empty-body"
# pyright: reportReturnType=false
# ruff: noqa: A001, A002, E501
"""The functions of `mr.fn` as methods of Expr."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec

from ._types import TypeLike

if TYPE_CHECKING:
    from ._trace import Expr

_P = ParamSpec("_P")
Tensor = Any
Shape = Any
Numbers = Sequence[float] | Any


def _recorded(
    function: Callable[Concatenate[Methods, _P], Expr],
) -> Callable[Concatenate[Methods, _P], Expr]:
    name = function.__name__

    @functools.wraps(function)
    def call(self: Methods, /, *args: _P.args, **kwargs: _P.kwargs) -> Expr:
        from . import fn

        out: Expr = getattr(fn, name)(self, *args, **kwargs)
        return out

    return call


class Methods:
    """What Expr inherits: a method for each function whose first argument is a tensor."""

    __slots__ = ()
'''

FN_FOOT = '''

def __getattr__(name: str) -> Any:
    """Functions that plugins registered."""
    return _trace.registered_function(name)


def __dir__() -> list[str]:
    return [name for name, value in globals().items() if getattr(value, "__module__", "") == __name__]
'''


def make_files(program: str) -> dict[str, str]:
    """The text of each file, by its name under src/millrace."""
    functions = read_functions(program)
    out = FN_HEAD
    for f in functions:
        head = wrap_signature(f"def {f.name}{f.signature(False)}", "")
        out += f"\n\n@_recorded\n{head}\n{f.docstring(False, '    ')}\n"
    out += FN_FOOT
    methods = METHODS_HEAD
    for f in functions:
        if not f.is_method:
            continue
        head = wrap_signature(f"def {f.name}{f.signature(True)}", "    ")
        methods += f"\n    @_recorded\n{head}\n{f.docstring(True, '        ')}\n"
    return {"fn.py": out, "_methods.py": methods}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="the program millrace")
    parser.add_argument("--check", action="store_true", help="only compare with the files")
    args = parser.parse_args()
    package = Path(__file__).parent / "src" / "millrace"
    stale = []
    for name, text in make_files(args.program).items():
        path = package / name
        if args.check:
            if not path.exists() or path.read_text() != text:
                stale.append(str(path))
        else:
            path.write_text(text)
    for path in stale:
        print(f"{path} differs: run generate_functions.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
