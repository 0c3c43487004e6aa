# SPDX-License-Identifier: Apache-2.0
"""Methods and sources in Python from the descriptions of ops that `millrace ops --json` prints.

python/generate.py writes _generated.py with it, and `load_plugin` makes the methods of plugins."""

from __future__ import annotations

import json
import keyword
import re
import textwrap
from typing import Any

Op = dict[str, Any]

INPUTS = {  # besides `self`
    "{}sources": {"name": "sources", "doc": "The datasets by their names."},
    "[]datasets": {"name": "datasets", "doc": "The datasets, numbered from 0."},
    "choice_dataset": {"name": "choice_dataset", "doc": "Emits for each element the number of its dataset."},
}
HANDWRITTEN = ("from_tensors", "from_tensor_slices")  # sources of _memory.py
INDENT = "    "
WIDTH = 100


def kind_of(p: dict[str, Any]) -> str:
    """How _call.py converts a value of the parameter."""
    if p["pattern"]:
        return "patterns"
    return str(p["kind"])


def default_of(p: dict[str, Any]) -> Any:
    """The default in Python: what it stands for is what the library does without the argument."""
    text = p["default"]
    if p["kind"] == "bool or unset" or text in (None, "none"):
        return None
    if p["kind"] == "bool":
        return bool(text == "true")
    if text == "auto":
        return "AUTO"
    value = json.loads(text)
    if p["kind"] in ("string", "expression") and value not in p["words"]:
        return None  # an empty string
    return value


def annotation_of(p: dict[str, Any]) -> str:
    kind = kind_of(p)
    if kind == "string" and p["words"]:
        text = f"Literal[{', '.join(json.dumps(w) for w in p['words'])}]"
    else:
        text = {
            "integer": "int",
            "number": "float",
            "bool": "bool",
            "bool or unset": "bool",
            "function": "Function",
            "value": "Any",
            "integers": "int | Sequence[int]",
            "numbers": "Sequence[float]",
            "strings": "str | Sequence[str]",
            "patterns": "Paths",
            "string": "Path" if re.search(r"\b(file|folder|directory)\b", p["doc"], re.I) else "str",
            "expression": "Features",
        }[kind]
    if kind == "value" and p["name"] == "weights":
        text = "Mapping[str, float]"
    if p["auto"]:
        text += " | Auto"
    if text != "Any" and not p["required"] and not p["variadic"] and default_of(p) is None:
        text += " | None"
    return text


def python_name(name: str) -> str:
    return name + "_" if keyword.iskeyword(name) else name


def inputs_of(op: Op) -> tuple[str, ...]:
    """The parameters that are datasets, besides the receiver of a method: "*" before one that takes
    any number, "[]" before a list, "{}" before a dict."""
    if op["names inputs"]:
        return ("{}sources",)
    if op["lists inputs"]:
        return ("[]datasets", "choice_dataset") if op["least inputs"] > 1 else ("[]datasets",)
    if op["call"] == "source":
        return () if op["most inputs"] == 0 else ("*datasets",)
    if op["most inputs"] is None:
        return ("*others",)
    return ("other",) if op["most inputs"] > 1 else ()


def _parameters(op: Op, method: bool) -> list[str]:
    out = ["self"] if method else []
    for p in inputs_of(op):
        if method:
            p = p.replace("*datasets", "*others")  # zip is called in both ways
        if p.startswith("{}"):
            out.append(f"{p[2:]}: Mapping[str, Dataset]")
        else:
            out.append(f"{p[2:]}: Sequence[Dataset]" if p.startswith("[]") else f"{p}: Dataset")
    star = any(p.startswith("*") for p in out)
    for p in op["params"]:
        name = python_name(p["name"])
        if p["variadic"]:
            out.append(f"*{name}: {annotation_of(p)}")
            star = True
            continue
        if not p["positional"] and not star:
            out.append("*")
            star = True
        text = f"{name}: {annotation_of(p)}"
        if not p["required"]:
            default = default_of(p)
            text += f" = {'AUTO' if default == 'AUTO' else repr(default)}"
        out.append(text)
    return out


def signature(op: Op, method: bool) -> str:
    """`(self, n: int, *, x: bool = False) -> Dataset`."""
    parts = _parameters(op, method)
    line = f"({', '.join(parts)}) -> Dataset"
    if len(line) + len(op["op"]) < WIDTH - 12:
        return line
    inside = "".join(f"\n{INDENT * 2}{p}," for p in parts)
    return f"({inside}\n{INDENT}) -> Dataset"


def in_python(text: str, auto: bool = False) -> str:
    """Text about the grammar's words, with Python's."""
    text = re.sub(r"(^|; |=|\bor )(none|true|false)\b(?=:|$| as)", lambda m: m[1] + m[2].capitalize(), text)
    return re.sub(r"\bauto\b", "mr.AUTO", text) if auto else text


def docstring(op: Op, example: str, indent: str) -> str:
    lines = [op["doc"]]
    rows = [{"kind": "", "auto": False, "words": [], **INPUTS[x]} for x in inputs_of(op) if x in INPUTS] + op["params"]
    if rows:
        lines += ["", "Args:"]
    for p in rows:
        doc = in_python(p["doc"], p["auto"] and "auto" not in p["words"])
        if p["kind"] == "bool or unset":
            doc += f" Default: {p['default'].capitalize()}."
        if p["words"]:
            doc += " One of " + ", ".join(json.dumps(w) for w in p["words"]) + "."
        lines += textwrap.wrap(
            f"{python_name(p['name'])}: {doc}",
            WIDTH - 8 - len(indent),
            initial_indent="    ",
            subsequent_indent="        ",
            break_on_hyphens=False,
            break_long_words=False,
        )
    lines += ["", *(f"{t.capitalize()}: {in_python(op[t])}." for t in ("order", "memory", "state", "elements"))]
    lines += ["", "Example:", f"    {example}"]
    first = textwrap.wrap(lines[0], WIDTH - 8, break_on_hyphens=False)
    text = "\n".join(f"{indent}{x}" if x else "" for x in first + lines[1:]).lstrip()
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'{indent}"""{text}\n{indent}"""'


def is_method(op: Op) -> bool:
    """True for a method of datasets. Zip is one too: ds.zip(other)."""
    return op["call"] == "method" or (op["most inputs"] != 0 and not op["lists inputs"] and not op["names inputs"])


def is_source(op: Op) -> bool:
    return bool(op["call"] == "source")


def method_source(op: Op, example: str) -> str:
    """`def batch(self, ...)`, as a part of a class."""
    return textwrap.indent(
        f"@_call.method\ndef {op['op']}{signature(op, True)}:\n{docstring(op, example, INDENT)}\n", INDENT
    )


def source_source(op: Op, example: str) -> str:
    """`def tfrecord(...)`, a function of the module."""
    return f"@_call.source\ndef {op['op']}{signature(op, False)}:\n{docstring(op, example, INDENT)}\n"


def table_source(op: Op) -> str:
    """What _call.py knows of the parameters: name, kind; R: required, V: takes all arguments that
    follow."""
    rows = []
    for p in op["params"]:
        how = "V" if p["variadic"] else "R" if p["required"] else ""
        rows.append(f'("{p["name"]}", "{kind_of(p)}", "{how}")')
    inside = "".join(f"\n{INDENT * 2}{r}," for r in rows)
    inside = f"({inside}\n{INDENT})" if rows else "()"
    return f'{INDENT}"{op["op"]}": ({inputs_of(op)!r}, {inside}),\n'
