# SPDX-License-Identifier: Apache-2.0
"""Recording: a Python function is called once, with ``Expr`` arguments, and what it does with them
becomes an expression of the grammar (``x => x + 1``), which the C library runs.

An ``Expr`` holds a node of a syntax tree. A node knows its precedence and its parts, which are
text and other nodes, so that printing is joining. Names of parameters are decided last, when the
whole outermost function is known: until then a parameter appears in the text as a mark with its
number, and a lambda is enclosed by marks. A text with such marks is *open*.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import itertools
import keyword
import linecache
import os
import random
import re
import struct
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from ._errors import TraceError
from ._hints import OF_EXPR
from ._methods import Methods
from ._types import DatasetSpec, DType, ShapedType, Spec, TensorSpec, as_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Expr", "Feature", "Recorded", "TraceError", "record", "text_of", "is_recording"]

MAX_TEXT = 16 << 20  #: bytes of a text of the grammar
MAX_DEPTH = 1000  #: levels of an expression
MAX_LITERAL = 64  #: values of an array that is written into the text; longer ones are references

# Precedence, lowest first, as in the grammar's printer.
LAMBDA, IF, OR, AND, NOT, COMPARE, ADD, MULTIPLY, SIGN, POWER, POSTFIX, ATOM = range(12)

# Marks in open texts. Literals never contain control characters, which are escaped there.
_VAR, _VAR_END = "\x01", "\x02"  # a parameter's number
_FN, _FN_BODY, _FN_END = "\x05", "\x06", "\x07"  # a lambda: numbers of parameters, then its body
_LOOSE, _LOOSE_END = "\x0e", "\x0f"  # needs brackets if a point follows


# ---- errors ----

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Folders whose files no user wrote."""
    import sysconfig

    paths = sysconfig.get_paths()
    numpy = os.path.dirname(os.path.dirname(os.path.abspath(np.__file__)))
    folders = {paths["stdlib"], paths["purelib"], paths["platlib"], numpy}
    return tuple(os.path.abspath(p) + os.sep for p in folders)



class _MissingAttribute(TraceError, AttributeError):
    pass


_MissingAttribute.__name__ = _MissingAttribute.__qualname__ = "TraceError"  # as tracebacks show it
_MissingAttribute.__module__ = "millrace"


def _is_ours(file: str) -> bool:
    return file.startswith(_HERE)


def _place_of(frames: Iterable[tuple[str, int]]) -> tuple[str | None, int | None]:
    """The innermost place in the user's code; frames begin with the innermost."""
    outside = None
    for file, line in frames:
        if _is_ours(file):
            continue
        if not file.startswith((*_libraries(), "<frozen", "<__array_function__")):
            return file, line
        outside = outside or (file, line)
    return outside or (None, None)


def _frames_here() -> Iterator[tuple[str, int]]:
    frame = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]


def _frames_of(traceback: types.TracebackType | None) -> Iterator[tuple[str, int]]:
    found = []
    while traceback is not None:
        found.append((traceback.tb_frame.f_code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    yield from reversed(found)


def _at(message: str, file: str | None, line: int | None) -> str:
    if file is None or line is None:
        return message
    source = linecache.getline(file, line).strip()
    return f"{file}, line {line}: {message}" + (f"\n    {source}" if source else "")


def _error(message: str, kind: type[TraceError] = TraceError) -> TraceError:
    file, line = _place_of(_frames_here())
    return kind(_at(message, file, line), file, line)


_INSTEAD = (
    "Use mr.fn.where(c, a, b) for a choice of values, mr.fn.cond(c, a, b) to compute only the one "
    "that is needed, or map_py to run Python for each element"
)
_CONSTANT = "the function is called once, to be recorded, and no element is known then"


def _no_bool() -> TraceError:
    return _error(
        "an Expr is neither true nor false while a function is recorded, so `if`, `while`, `and`, "
        "`or`, `not`, `in`, chained comparisons, and Python's min, max, any, all and sorted cannot "
        "use it. Write & | ~ for conditions (each comparison in brackets), mr.fn.any(x == [1, 2]) for "
        f"x in [1, 2], and mr.fn.max(x, 3). {_INSTEAD}"
    )


def _no_conversion(to: str, instead: str) -> TraceError:
    return _error(
        f"an Expr cannot become {to}: {_CONSTANT}. {instead}, or map_py to run Python for each "
        "element"
    )


# ---- literals ----


def _digits(value: float, single: bool) -> str:
    """The grammar's form of a finite number: the fewest digits that are read as the same value."""
    text = ""
    if single:
        text = _layout(str(np.float32(value)) if value else repr(value))
    if not single or np.float32(float(text)) != np.float32(value):
        text = _layout(repr(value))
    return text


def _layout(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    mantissa, _, power = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(power or 0) + len(whole) - 1 - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if not digits:
        return sign + "0.0"
    if exponent < -5 or exponent > 15:
        point = "." if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{point}{digits[1:]}e{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 1, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"


def _string(value: bytes) -> str:
    out = ['"']
    escapes = {"\n": "\\n", "\t": "\\t", "\\": "\\\\", '"': '\\"'}
    for c in value.decode("utf-8", "surrogateescape"):
        point = ord(c)
        if 0xDC80 <= point <= 0xDCFF:  # a byte that is not UTF-8
            out.append(f"\\x{point - 0xDC00:02x}")
        elif c in escapes:
            out.append(escapes[c])
        elif point < 0x20 or point == 0x7F:
            out.append(f"\\x{point:02x}")
        else:
            out.append(c)
    out.append('"')
    return "".join(out)


# ---- nodes ----


class Variable:
    """A parameter of a function that is being recorded."""

    __slots__ = ("number", "name", "spec")
    _numbers = itertools.count(1)

    def __init__(self, name: str, spec: Spec) -> None:
        self.number = next(Variable._numbers)
        self.name = name
        self.spec = spec


class Node:
    """A part of a syntax tree. ``parts`` are text, and nodes with the least precedence that they
    need to be there without brackets."""

    __slots__ = (
        "kind",
        "binding",
        "parts",
        "length",
        "depth",
        "variables",
        "draws",
        "level",
        "spec",
        "failed",
        "value",
    )

    def __init__(
        self,
        kind: str,
        binding: int,
        parts: tuple[str | tuple[Node, int], ...],
        *,
        variables: frozenset[Variable] = frozenset(),
        value: Any = None,
    ) -> None:
        self.kind = kind
        self.binding = binding
        self.parts = parts
        self.length = 0
        self.depth = 1
        self.draws = False
        self.level = _level()
        self.spec: Spec | None = None  # None: not asked for yet
        self.failed = False  # it was asked for, without success
        self.value = value
        for part in parts:
            if isinstance(part, str):
                self.length += len(part)
                continue
            child, least = part
            self.length += child.length + (2 if child.binding < least else 0)
            self.depth = max(self.depth, child.depth + 1)
            self.draws = self.draws or child.draws
            if child.variables and not child.variables <= variables:
                variables = variables | child.variables
        self.variables: frozenset[Variable] = variables
        if self.length > MAX_TEXT:
            raise _error(
                f"the text of this value would have more than {MAX_TEXT >> 20} MiB: a value that "
                "is used several times is written out each time. Compute it in a separate map first: "
                "ds.map(lambda x: (x, f(x))).map(lambda x, y: ...)"
            )
        if self.depth > MAX_DEPTH:
            raise _error(
                f"this value is nested more than {MAX_DEPTH} levels deep. Use functions of whole "
                "tensors (mr.fn.sum, mr.fn.cumsum, ...) instead of a loop, or several maps"
            )

    def children(self) -> Iterator[Node]:
        return (part[0] for part in self.parts if not isinstance(part, str))

    def print(self, least: int = LAMBDA) -> str:
        """The text, which is open unless the node is constant."""
        out: list[str] = []
        waiting: list[str | tuple[Node, int]] = [(self, least)]
        while waiting:
            part = waiting.pop()
            if isinstance(part, str):
                out.append(part)
                continue
            node, needed = part
            if node.binding < needed:
                out.append("(")
                waiting.append(")")
            waiting.extend(reversed(node.parts))
        return "".join(out)


def _word(text: str) -> Node:
    return Node("word", ATOM, (text,))


def _variable_node(v: Variable) -> Node:
    node = Node("name", ATOM, (f"{_VAR}{v.number}{_VAR_END}",), variables=frozenset([v]))
    node.spec = v.spec
    return node


def _integer(value: int) -> Node:
    if not -(2**63) <= value < 2**63:
        raise _error(
            f"{value} is not an int64 (-2**63 to 2**63 - 1); write a float, or a uint64 array"
        )
    return Node("int", SIGN if value < 0 else ATOM, (str(value),), value=value)


def _float(value: float, single: bool = False) -> Node:
    if value != value:
        return Node("binary", ADD, ("1e999 - 1e999",))
    if value in (float("inf"), float("-inf")):
        return Node("float", SIGN if value < 0 else ATOM, ("-1e999" if value < 0 else "1e999",))
    negative = struct.pack(">d", value)[0] & 0x80
    text = _digits(value, single)
    return Node("float", SIGN if negative else ATOM, (text,))


def _commas(nodes: Sequence[Node], keys: Sequence[str | None] | None = None) -> list[Any]:
    out: list[Any] = []
    for i, node in enumerate(nodes):
        if i:
            out.append(", ")
        if keys and keys[i] is not None:
            out.append(f"{keys[i]}")
        out.append((node, LAMBDA))
    return out


def _list(nodes: Sequence[Node]) -> Node:
    return Node("list", ATOM, ("[", *_commas(nodes), "]"))


def _tuple(nodes: Sequence[Node]) -> Node:
    if not nodes:
        raise _error("an element has at least one component; the tuple is empty")
    return nodes[0] if len(nodes) == 1 else Node("tuple", ATOM, ("(", *_commas(nodes), ")"))


def _record(names: Sequence[str], nodes: Sequence[Node]) -> Node:
    if not nodes:
        raise _error("an element has at least one component; the dict is empty")
    keys = [_string(n.encode("utf-8", "surrogateescape")) + ": " for n in names]
    return Node("record", ATOM, ("{", *_commas(nodes, keys), "}"), value=tuple(names))


def _call(name: str, nodes: Sequence[Node], keys: Sequence[str | None] | None = None) -> Node:
    named = [None if k is None else k + "=" for k in keys] if keys else None
    return Node("call", ATOM, (name + "(", *_commas(nodes, named), ")"), value=name)


def _binary(symbol: str, binding: int, a: Node, b: Node) -> Node:
    left, right = binding, binding + 1
    if binding == COMPARE:
        left = right
    if binding == POWER:
        left, right = POSTFIX, SIGN
    return Node("binary", binding, ((a, left), f" {symbol} ", (b, right)), value=symbol)


def _unary(symbol: str, a: Node) -> Node:
    if symbol == "not":
        return Node("unary", NOT, ("not ", (a, NOT)))
    if a.kind in ("int", "float") and a.binding == ATOM:
        return Node("unary", SIGN, ("-(", (a, LAMBDA), ")"))
    return Node("unary", SIGN, ("-", (a, SIGN)))


def _index(a: Node, indices: Sequence[Node]) -> Node:
    return Node("index", POSTFIX, ((a, POSTFIX), "[", *_commas(indices), "]"))


def _choice(condition: Node, a: Node, b: Node) -> Node:
    return Node("if", IF, ((a, OR), " if ", (condition, OR), " else ", (b, LAMBDA)))


# ---- sessions ----


class Engine(Protocol):
    """What recording needs from the C library and from datasets."""

    def infer(self, text: str, spec: Spec) -> Spec:
        """The spec of the results of a function for elements of ``spec``; raises if it is
        wrong."""
        ...

    def dataset(self, text: str, spec: Spec) -> Any:
        """A ``Dataset`` within a function that is being recorded: its open text, and the spec of
        its elements."""


class _State(threading.local):
    level: int = 0  # functions that are being recorded, one within the other
    arrays: dict[str, NDArray[Any]] | None = None
    names: dict[int, str] | None = None
    variables: tuple[Variable, ...] = ()  # of the functions that are being recorded
    embedded: dict[int, int] | None = None  # draws within the texts of datasets: uses of nodes


_state = _State()
_engine: Engine | None = None
_array_numbers = itertools.count()


def use_engine(engine: Engine | None) -> Engine | None:
    """Sets the engine; returns the one before."""
    global _engine
    before, _engine = _engine, engine
    return before


def _level() -> int:
    return _state.level


def is_recording() -> bool:
    """True while a function is being recorded."""
    return _state.level > 0


# ---- open texts ----

_MARKS = re.compile("[\x01\x05\x06\x07\x0e\x0f]")


def is_open(text: str) -> bool:
    """True if the text refers to parameters of functions that are being recorded."""
    return _MARKS.search(text) is not None


def _numbers_in(text: str) -> set[int]:
    return {int(n) for n in re.findall(f"{_VAR}([0-9]+){_VAR_END}", text)}


def _declared_in(text: str) -> set[int]:
    lists = re.findall(f"{_FN}([^{_FN_BODY}]*){_FN_BODY}", text)
    return {int(m.partition(":")[0]) for found in lists for m in found.split(",")}


_RESERVED = frozenset(["true", "false", "none", "auto", "and", "or", "not", "if", "else"])


def _proper_name(name: str) -> str:
    """A name of the grammar: the Python one where it is one."""
    if name in _RESERVED or re.fullmatch("array[0-9]+", name):
        return name + "_"
    return name if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) else "x"


def _close(text: str, names: Mapping[int, str]) -> str:
    """Replaces the marks; names are those of the parameters of functions around."""
    out: list[str] = []
    at = 0
    while True:
        match = _MARKS.search(text, at)
        if not match:
            out.append(text[at:])
            return "".join(out)
        out.append(text[at : match.start()])
        mark, at = match[0], match.end()
        if mark == _VAR:
            end = text.index(_VAR_END, at)
            out.append(names[int(text[at:end])])
            at = end + 1
        elif mark == _LOOSE:
            end = _matching(text, at, _LOOSE, _LOOSE_END)
            inner = _close(text[at:end], names)
            out.append(f"({inner})" if text[end + 1 : end + 2] in (".", "[") else inner)
            at = end + 1
        else:
            end = _matching(text, at, _FN, _FN_END)
            out.append(_close_lambda(text[at:end], names))
            at = end + 1


def _matching(text: str, at: int, opening: str, closing: str) -> int:
    level = 1
    for match in re.compile(f"[{opening}{closing}]").finditer(text, at):
        level += 1 if match[0] == opening else -1
        if level == 0:
            return match.start()
    raise AssertionError("a mark is missing")


def _close_lambda(text: str, names: Mapping[int, str]) -> str:
    declared, _, body = text.partition(_FN_BODY)
    own = [(int(n), name) for n, _, name in (d.partition(":") for d in declared.split(","))]
    outer = {names[n] for n in _numbers_in(body) if n in names}
    inner = dict(names)
    taken: set[str] = set(outer)
    for number, wanted in own:
        name, k = wanted, 1
        while name in taken:
            k += 1
            name = f"{wanted}{k}"
        taken.add(name)
        inner[number] = name
    listed = ", ".join(inner[n] for n, _ in own)
    return f"{listed if len(own) == 1 else f'({listed})'} => {_close(body, inner)}"


def _open_lambda(variables: Sequence[Variable], body: str) -> str:
    declared = ",".join(f"{v.number}:{v.name}" for v in variables)
    return f"{_FN}{declared}{_FN_BODY}{body}{_FN_END}"


def _free_in(text: str) -> set[int]:
    return _numbers_in(text) - _declared_in(text)


# ---- types ----


def _ask(text: str, variables: Sequence[Variable]) -> Spec:
    """The spec of an open text."""
    if _engine is None:
        raise TypeError("types are known only with the C library")
    whole = _open_lambda(variables, text)
    spec: Spec = TensorSpec((), DType("int64"))
    if not variables:
        whole = _open_lambda([Variable("x", spec)], text)
    elif len(variables) == 1:
        spec = variables[0].spec
    else:
        spec = tuple(v.spec for v in variables)
    return _engine.infer(_close(whole, {}), spec)


def _is_settled(node: Node) -> bool:
    """True if the node's spec stands for it in the typing of its parent. Literals take the type
    of the other operand, and lists of sizes are read, so that these stand for themselves."""
    return bool(node.variables) and node.kind not in ("list", "tuple", "record", "dataset", "range")


def _spec_of(node: Node) -> Spec:
    """The spec of a node: of one operation at a time, over the specs of its operands.
    Raises what the library says if it is wrong."""
    if node.spec is not None:
        return node.spec
    todo = [node]
    while todo:
        top = todo[-1]
        if top.spec is not None:
            todo.pop()
            continue
        missing = [n for n in _operands(top) if n.spec is None]
        if missing:
            todo.extend(missing)
            continue
        top.spec = _spec_of_one(top)
        todo.pop()
    assert node.spec is not None
    return node.spec


def _operands(node: Node) -> list[Node]:
    """The settled nodes nearest to node below it."""
    out: list[Node] = []
    waiting = list(node.children())
    while waiting:
        child = waiting.pop()
        if _is_settled(child):
            out.append(child)
        else:
            waiting.extend(child.children())
    return out


def _spec_of_one(node: Node) -> Spec:
    part = _part_spec(node)
    if part is not None:
        return part
    stand_in: dict[int, Variable] = {}
    out: list[str] = []
    waiting: list[str | tuple[Node, int]] = list(reversed(node.parts))
    free: dict[int, Variable] = {}
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        child, least = item
        if _is_settled(child):
            assert child.spec is not None
            v = stand_in.setdefault(id(child), Variable("x", child.spec))
            free[v.number] = v
            out.append(f"{_VAR}{v.number}{_VAR_END}")
            continue
        brackets = child.binding < least
        if brackets:
            out.append("(")
            waiting.append(")")
        if child.kind == "dataset":
            free.update((v.number, v) for v in child.variables)
        waiting.extend(reversed(child.parts))
    if node.kind == "dataset":
        free.update((v.number, v) for v in node.variables)
    return _ask("".join(out), list(free.values()))


def _part_spec(node: Node) -> Spec | None:
    """The spec of a component of a structure."""
    if node.kind != "index" or node.value is None:
        return None
    whole = next(node.children()).spec
    if isinstance(whole, dict) and isinstance(node.value, str):
        return whole.get(node.value)
    if isinstance(whole, tuple) and isinstance(node.value, int):
        if -len(whole) <= node.value < len(whole):
            return whole[node.value]
    return None


def _spec_or_none(node: Node) -> Spec | None:
    """The spec, or None where it is not known or the library refuses the expression: that error
    comes when the graph is built, with the whole text."""
    if node.failed:
        return None
    try:
        return _spec_of(node)
    except Exception:
        node.failed = True
        return None


def _tensor_or_none(node: Node) -> TensorSpec | None:
    spec = _spec_or_none(node)
    return spec if isinstance(spec, TensorSpec) else None


def _dtype_or_none(node: Node) -> DType | None:
    spec = _tensor_or_none(node)
    return spec.dtype if spec else None


# ---- values as nodes ----


def _is_integer(dtype: DType) -> bool:
    return dtype.name.startswith(("int", "uint"))


def _is_floating(dtype: DType) -> bool:
    return "float" in dtype.name


def _array_type(a: NDArray[Any]) -> tuple[NDArray[Any], DType]:
    if a.dtype.kind in "SUO":
        flat = [_bytes_of(v) for v in a.reshape(-1).tolist()]
        out = np.empty(len(flat), dtype=object)
        out[:] = flat
        return out.reshape(a.shape), DType("bytes")
    try:
        return a, as_dtype(a.dtype)
    except TypeError as e:
        raise _error(f"an array of {a.dtype} cannot be a constant: {e}") from None


def _bytes_of(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, Expr):
        raise _error("an array of Exprs is not recorded; mr.fn.tensor of a list is")
    raise _error(f"an array of objects may contain bytes and str, not {type(value).__name__}")


def _literals_say(a: NDArray[Any], dtype: DType, wide: bool) -> bool:
    """True if literals of the grammar, in a cast if needed, are read as these values."""
    if _is_integer(dtype):
        return dtype.name != "uint64" or bool(np.all(a < 2**63))
    if _is_floating(dtype):
        values = a.astype(np.float64)
        if not np.all(np.isfinite(values)):
            return False
        with np.errstate(over="ignore"):
            return wide or bool(np.all(values.astype(np.float32).astype(np.float64) == values))
    return True


def _nested(value: Any, dtype: DType, wide: bool) -> Node:
    if isinstance(value, list):
        return _list([_nested(v, dtype, wide) for v in value])
    if dtype.name == "bytes":
        return Node("string", ATOM, (_string(value),))
    if dtype.name == "bool":
        return _word("true" if value else "false")
    return _integer(int(value)) if _is_integer(dtype) else _float(float(value), not wide)


def _array(a: NDArray[Any], beside: DType | None) -> Node:
    """A constant array. The second argument: the dtype of the other operand, where that is known: a literal
    takes it, so that an array of another type must be written with its own."""
    a, dtype = _array_type(a)
    if a.size > MAX_LITERAL:
        return _reference(a, dtype)
    shape = f"[{', '.join(map(str, a.shape))}]"
    if a.size == 0:
        if dtype.name == "float32" and a.ndim == 1:
            return _list([])
        return Node("call", ATOM, (f'zeros({shape}, "{dtype.name}")',))
    wide = dtype.name == "float64" and beside == dtype
    if dtype.name == "bfloat16" or not _literals_say(a, dtype, wide):
        return _raw(a, dtype, shape)
    out = _nested(a.tolist(), dtype, wide)
    own = dtype.name in ("bool", "bytes") or (
        dtype == beside or (beside is None and dtype.name in ("int64", "float32"))
    )
    return out if own else _call("cast", [out, _word(f'"{dtype.name}"')])


def _raw(a: NDArray[Any], dtype: DType, shape: str) -> Node:
    little = np.ascontiguousarray(a)
    if little.dtype.byteorder == ">":
        little = little.astype(little.dtype.newbyteorder("<"))
    raw = f'decode_raw({_string(little.tobytes())}, "{dtype.name}")'
    if a.ndim == 0:
        return Node("index", POSTFIX, (raw + "[0]",))
    return Node("call", ATOM, (raw if a.ndim == 1 else f"reshape({raw}, {shape})",))


def _reference(a: NDArray[Any], dtype: DType) -> Node:
    if _state.arrays is None or _state.names is None:
        raise _error("an array of this size belongs into a function that is being recorded")
    name = _state.names.get(id(a))
    if name is None:
        kept = a
        if a.flags.writeable or a.base is not None:
            kept = a.copy()
            kept.flags.writeable = False
        name = f"array{next(_array_numbers)}"
        _state.names[id(a)] = name
        _state.names[id(kept)] = name
        _state.arrays[name] = kept
        _state.arrays[name + "!"] = a  # keeps its id from being used again
    node = _word(name)
    node.spec = TensorSpec(tuple(a.shape), dtype)
    node.value = "array"
    return node


class Feature:
    """A feature that a record may lack, or a sparse one: what ``mr.fn.feature`` and
    ``mr.fn.sparse`` make."""

    __slots__ = ("text",)

    def __init__(self, name: str, dtype: Any, options: Mapping[str, Any]) -> None:
        parts = [_type_text(dtype)]
        parts += [f"{key}={_feature_value(v)}" for key, v in options.items()]
        self.text = f"{name}({', '.join(parts)})"

    def __repr__(self) -> str:
        return self.text


def _feature_value(value: Any) -> str:
    """Of a default: floats may be nan and infinite by name."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_feature_value, value))}]"
    if isinstance(value, np.ndarray):
        return _feature_value(value.tolist())
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    return option(value).print()


def _type_text(value: Any) -> str:
    if isinstance(value, (DType, ShapedType)):
        return str(value)
    if isinstance(value, str):
        from ._types import as_type

        return str(as_type(value))
    return as_dtype(value).name


def _is_type(value: object) -> bool:
    return isinstance(value, (DType, ShapedType, Feature, np.dtype)) or (
        isinstance(value, type)
        and (issubclass(value, np.generic) or value in (int, float, bool, bytes, str))
    )


def _scalar(value: Any) -> Node | None:
    """A Python scalar as a literal; None: the value is not a scalar."""
    if isinstance(value, np.generic):
        return None
    if isinstance(value, bool):
        return _word("true" if value else "false")
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float):
        return _float(float(value))
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)
        return Node("string", ATOM, (_string(raw),))
    if isinstance(value, os.PathLike):
        return Node("string", ATOM, (_string(os.fsencode(value)),))
    return None


def is_dataset(value: object) -> bool:
    """True for datasets, which print themselves."""
    return hasattr(type(value), "_text") and not isinstance(value, Expr)


def _dataset_node(value: Any) -> Node:
    text: str = value._text()
    if _state.arrays is not None:
        _state.arrays.update(getattr(value, "_arrays", None) or {})
    free = _free_in(text)
    variables = frozenset(v for v in _state.variables if v.number in free)
    return Node("dataset", POSTFIX, (text,), variables=variables)


_Made = dict[int, tuple[Any, Node]]  # by id; with the value, for an id is free again after it


def as_node(
    value: Any, what: str = "a value", beside: DType | None = None, made: _Made | None = None
) -> Node:
    """A value of the user's as a node. Lists are tensors, tuples and dicts are structures: ``made``
    has those within the same value, for one that is there several times."""
    if isinstance(value, Expr):
        return value._node
    node = _scalar(value)
    if node is not None:
        return node
    if np.ma.is_masked(value):
        raise TypeError("an array with masked values has no tensor; fill them: x.filled(0)")
    if isinstance(value, (np.ndarray, np.generic)):
        return _array(np.asarray(value), beside)
    if isinstance(value, (list, tuple, Mapping)):
        made = {} if made is None else made
        if id(value) not in made:
            made[id(value)] = value, _structure(value, what, beside, made)
        return made[id(value)][1]
    if is_dataset(value):
        return _dataset_node(value)
    if value is None:
        raise _error(f"{what} is None, which no tensor can be; is a `return` missing?")
    if isinstance(value, (types.GeneratorType, types.CoroutineType)):
        raise _error(
            f"{what} is a {type(value).__name__}; a recorded function returns tensors, tuples, "
            "dicts and datasets. Use flat_map_py for generators"
        )
    if callable(value):
        name = getattr(value, "__name__", "")
        called = f"the function {name}; call it: {name}(...)" if name.isidentifier() else "a function; call it"
        raise _error(f"{what} is {called}")
    if isinstance(value, complex):
        raise _error("complex numbers have no dtype here; use two floats")
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return _array(_to_numpy(value), beside)
    raise _error(
        f"{what} is of type {type(value).__name__}, which cannot be recorded: expected an Expr, a "
        "number, a string, an array, or a list, tuple or dict of them"
    )


def _structure(
    value: list[Any] | tuple[Any, ...] | Mapping[Any, Any], what: str, beside: DType | None, made: _Made
) -> Node:
    if isinstance(value, list):
        return _list([as_node(v, what, beside, made) for v in value])
    if isinstance(value, tuple):
        return _tuple([as_node(v, what, beside, made) for v in value])
    for name in value:
        if not isinstance(name, str) or not name or "\0" in name:
            raise _error(f"the names of components are strings that are not empty, not {name!r}")
    return _record(list(value), [as_node(v, what, beside, made) for v in value.values()])


def _to_numpy(value: Any) -> NDArray[Any]:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        return np.asarray(value)
    except Exception as e:
        raise _error(f"a {type(value).__name__} cannot become a numpy array: {e}") from e


def option(value: Any, name: str = "this argument") -> Node:
    """A value that must be a constant: an option of a function or an op."""
    if isinstance(value, Expr):
        raise _error(
            f"{name} must be a constant, not a value that differs between elements. "
            f"{_INSTEAD.partition(', or ')[2].capitalize()}"
        )
    if value is None:
        return _word("none")
    if _is_type(value):
        return _word(value.text if isinstance(value, Feature) else _type_text(value))
    if isinstance(value, np.ndarray):
        return option(value.tolist(), name)
    if isinstance(value, np.generic):
        return option(value.item(), name)
    if isinstance(value, (list, tuple)):
        return _list([option(v, name) for v in value])
    if isinstance(value, Mapping):
        return _record([str(k) for k in value], [option(v, name) for v in value.values()])
    node = _scalar(value)
    if node is not None:
        return node
    raise _error(f"{name} is a {type(value).__name__}, which has no text")


def text_of(value: Any, *, constant: bool = False) -> str:
    """The text of an argument of an op, open if it uses parameters of functions that are being
    recorded. ``constant``: it must not."""
    if constant:
        return option(value).print()
    node = as_node(value)
    if is_recording():
        _check_draws(node, -1)
    return node.print()


def spec_of_text(text: str) -> Spec:
    """The spec of an open text, such as that of a dataset within a function."""
    free = _free_in(text)
    return _ask(text, [v for v in _state.variables if v.number in free])


# ---- Expr ----


def _wrap(node: Node) -> Any:
    """An Expr, or the Dataset that a node stands for."""
    if isinstance(node.spec, DatasetSpec) and _engine is not None:
        text = node.print()
        if node.binding < POSTFIX:
            text = f"{_LOOSE}{text}{_LOOSE_END}"
        return _engine.dataset(text, node.spec.element_spec)
    return Expr(node)


def _operand(value: Any, other: Expr, what: str) -> Node:
    """The other operand of an Expr."""
    if value is None or isinstance(value, (dict, set, tuple)) or is_dataset(value):
        raise _error(
            f"{what} takes tensors, not {'None' if value is None else type(value).__name__}"
        )
    beside = None
    if isinstance(value, (np.ndarray, np.generic)):
        beside = _dtype_or_none(other._node)
    return as_node(value, f"an operand of {what}", beside)


def _want_bools(symbol: str, *nodes: Node) -> None:
    for node in nodes:
        dtype = _dtype_or_none(node)
        if dtype is not None and dtype.name != "bool":
            raise _error(
                f"{symbol} is `{ {'&': 'and', '|': 'or', '~': 'not', '^': '!='}[symbol] }` of "
                f"bools, and this operand is {dtype}; there are no operations on bits. Compare it "
                "first, in brackets: (x > 0) & (x < 5)"
            )


class Expr(Methods):
    """A value that is known only when the graph runs: what a recorded function gets.

    Operators, indexing, slices, the functions of ``mr.fn`` (also as methods), and numpy's
    functions of the same names make further Exprs.
    """

    __slots__ = ("_node",)
    _node: Node
    __array_priority__ = 1000

    def __init__(self, node: Node) -> None:
        object.__setattr__(self, "_node", node)

    # Types

    @property
    def dtype(self) -> DType:
        """The dtype, ``mr.float32`` for example."""
        return self._tensor("dtype").dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The lengths of the axes: ints where they are known, otherwise Exprs."""
        shape = self._shape("shape")
        return tuple(self._length(i, len(shape)) if n is None else n for i, n in enumerate(shape))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape("ndim"))

    @property
    def T(self) -> Expr:
        """The axes in reverse order."""
        return Expr(_call("transpose", [self._node]))

    @property
    def spec(self) -> Spec:
        """The structure, with ``mr.TensorSpec`` leaves."""
        try:
            return _spec_of(self._node)
        except TraceError:
            raise
        except Exception as e:
            raise _error(f"the type of this value is not known: {e}") from e

    def _tensor(self, what: str) -> TensorSpec:
        spec = self.spec
        if not isinstance(spec, TensorSpec):
            kind = "a dict" if isinstance(spec, dict) else "a tuple" if isinstance(spec, tuple) else "a dataset"
            raise _error(f"{kind} has no {what}; its components have")
        return spec

    def _shape(self, what: str) -> tuple[int | None, ...]:
        spec = self._tensor(what)
        if spec.shape is None:
            raise _error(f"{what} is not known here: the number of axes differs between elements")
        if spec.ragged:
            raise _error(f"{what} of a ragged tensor is not known: its rows differ in length")
        return spec.shape

    def _length(self, axis: int, rank: int) -> Expr:
        if axis == 0:
            return Expr(_call("length", [self._node]))
        axes = [axis, *(i for i in range(rank) if i != axis)]
        first = _call("transpose", [self._node, _list([_integer(i) for i in axes])])
        return Expr(_call("length", [first]))

    def astype(self, dtype: Any) -> Expr:
        """``mr.fn.cast``."""
        return call("cast", (self, dtype), {}, {"x": "Tensor", "dtype": "TypeLike"})

    # Structures

    def _names(self) -> tuple[str, ...]:
        spec = _spec_or_none(self._node)
        if isinstance(spec, dict):
            return tuple(spec)
        raise _error("this value is not a dict: it has no names")

    def keys(self) -> tuple[str, ...]:
        """The names of the components, for ``{**element, "more": x}``."""
        return self._names()

    def values(self) -> tuple[Any, ...]:
        """The components."""
        return tuple(self[name] for name in self._names())

    def items(self) -> tuple[tuple[str, Any], ...]:
        """The names and the components."""
        return tuple((name, self[name]) for name in self._names())

    def __contains__(self, name: object) -> bool:
        spec = _spec_or_none(self._node)
        if isinstance(spec, dict):
            return name in spec
        raise _no_bool()

    def __len__(self) -> int:
        spec = _spec_or_none(self._node)
        if isinstance(spec, (dict, tuple)):
            return len(spec)
        if isinstance(spec, TensorSpec) and spec.shape and isinstance(spec.shape[0], int):
            return spec.shape[0]
        raise _error(
            "len() needs a number, and this length is known only when the graph runs. Use "
            "mr.fn.length(x), which is recorded"
        )

    def __iter__(self) -> Iterator[Any]:
        spec = _spec_or_none(self._node)
        if isinstance(spec, dict):
            return iter(tuple(spec))
        if isinstance(spec, tuple):
            return iter([self[i] for i in range(len(spec))])
        raise _error(
            "a tensor cannot be iterated over, or unpacked, while a function is recorded. Use "
            "functions of whole tensors (mr.fn.sum, x[1:], ...), flat_map and from_tensor_slices "
            "for its rows, or map_py to run Python for each element"
        )

    def __reversed__(self) -> NoReturn:
        raise _error("reversed() iterates over a tensor; x[::-1] is recorded")

    def __getitem__(self, at: Any) -> Any:
        return _get_item(self, at)

    def __setitem__(self, at: object, value: object) -> NoReturn:
        raise _error(
            "a value cannot be changed in place. Make a new one with mr.fn.where or "
            "mr.fn.concat; a dict's components: {**x, 'name': value}"
        )

    def __delitem__(self, at: object) -> NoReturn:
        raise _error("a value cannot be changed in place; return the components that are wanted")

    # Operators

    def _with(self, symbol: str, binding: int, other: Any, reflected: bool = False) -> Expr:
        node = _operand(other, self, symbol)
        a, b = (node, self._node) if reflected else (self._node, node)
        return Expr(_binary(symbol, binding, a, b))

    def __add__(self, other: Any) -> Expr:
        return self._with("+", ADD, other)

    def __radd__(self, other: Any) -> Expr:
        return self._with("+", ADD, other, True)

    def __sub__(self, other: Any) -> Expr:
        return self._with("-", ADD, other)

    def __rsub__(self, other: Any) -> Expr:
        return self._with("-", ADD, other, True)

    def __mul__(self, other: Any) -> Expr:
        return self._with("*", MULTIPLY, other)

    def __rmul__(self, other: Any) -> Expr:
        return self._with("*", MULTIPLY, other, True)

    def __truediv__(self, other: Any) -> Expr:
        return self._with("/", MULTIPLY, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return self._with("/", MULTIPLY, other, True)

    def __floordiv__(self, other: Any) -> Expr:
        return self._with("//", MULTIPLY, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return self._with("//", MULTIPLY, other, True)

    def __mod__(self, other: Any) -> Expr:
        return self._with("%", MULTIPLY, other)

    def __rmod__(self, other: Any) -> Expr:
        return self._with("%", MULTIPLY, other, True)

    def __pow__(self, other: Any) -> Expr:
        return self._with("**", POWER, other)

    def __rpow__(self, other: Any) -> Expr:
        return self._with("**", POWER, other, True)

    def __lt__(self, other: Any) -> Expr:
        return self._with("<", COMPARE, other)

    def __le__(self, other: Any) -> Expr:
        return self._with("<=", COMPARE, other)

    def __gt__(self, other: Any) -> Expr:
        return self._with(">", COMPARE, other)

    def __ge__(self, other: Any) -> Expr:
        return self._with(">=", COMPARE, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self._with("==", COMPARE, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self._with("!=", COMPARE, other)

    def _logical(self, symbol: str, other: Any, reflected: bool) -> Expr:
        node = _operand(other, self, symbol)
        _want_bools(symbol, self._node, node)
        a, b = (node, self._node) if reflected else (self._node, node)
        if symbol == "^":
            if _dtype_or_none(self._node) is None:
                raise _error("^ is not recorded; != is, for bools")
            return Expr(_binary("!=", COMPARE, a, b))
        return Expr(_binary("and", AND, a, b) if symbol == "&" else _binary("or", OR, a, b))

    def __and__(self, other: Any) -> Expr:
        return self._logical("&", other, False)

    def __rand__(self, other: Any) -> Expr:
        return self._logical("&", other, True)

    def __or__(self, other: Any) -> Expr:
        return self._logical("|", other, False)

    def __ror__(self, other: Any) -> Expr:
        return self._logical("|", other, True)

    def __xor__(self, other: Any) -> Expr:
        return self._logical("^", other, False)

    def __rxor__(self, other: Any) -> Expr:
        return self._logical("^", other, True)

    def __invert__(self) -> Expr:
        _want_bools("~", self._node)
        return Expr(_unary("not", self._node))

    def __lshift__(self, other: Any) -> NoReturn:
        raise _error("<< is not recorded; x * 2 ** n is")

    __rlshift__ = __lshift__

    def __rshift__(self, other: Any) -> NoReturn:
        raise _error(">> is not recorded; x // 2 ** n is")

    __rrshift__ = __rshift__

    def __matmul__(self, other: Any) -> Expr:
        return Expr(_call("matmul", [self._node, as_node(other, "an operand of @")]))

    def __rmatmul__(self, other: Any) -> Expr:
        return Expr(_call("matmul", [as_node(other, "an operand of @"), self._node]))

    def __divmod__(self, other: Any) -> tuple[Expr, Expr]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Expr, Expr]:
        return other // self, other % self

    def __neg__(self) -> Expr:
        return Expr(_unary("-", self._node))

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return Expr(_call("abs", [self._node]))

    def __round__(self, decimals: int | None = None) -> Expr:
        more = [] if decimals is None else [option(decimals, "ndigits")]
        return Expr(_call("round", [self._node, *more], [None, "decimals"][: 1 + len(more)]))

    def __floor__(self) -> Expr:
        return Expr(_call("floor", [self._node]))

    def __ceil__(self) -> Expr:
        return Expr(_call("ceil", [self._node]))

    # What cannot be recorded

    def __bool__(self) -> NoReturn:
        raise _no_bool()

    def __hash__(self) -> int:
        raise _error(
            "an Expr cannot be looked up in a dict or a set: its value is not known while a "
            "function is recorded. Use mr.fn.lookup or mr.fn.gather, or map_py to run Python for "
            "each element"
        )

    def __int__(self) -> NoReturn:
        raise _no_conversion("an int", "Use mr.fn.cast(x, mr.int64)")

    def __float__(self) -> NoReturn:
        raise _no_conversion(
            "a float", "Use mr.fn.cast(x, mr.float32), and mr.fn.sqrt and the like instead of math's"
        )

    def __complex__(self) -> NoReturn:
        raise _no_conversion("a complex number", "Use two floats")

    def __index__(self) -> NoReturn:
        raise _no_conversion(
            "an index", "Use mr.fn.gather or x[i] of a tensor, mr.range instead of range"
        )

    def __trunc__(self) -> NoReturn:
        raise _no_conversion("an int", "Use mr.fn.cast(x, mr.int64)")

    def __bytes__(self) -> NoReturn:
        raise _no_conversion("bytes", "Strings are bytes already")

    def __str__(self) -> str:
        raise _no_conversion("text", "Use mr.fn.format('{}', x); print(repr(x)) shows the Expr")

    def __format__(self, spec: str) -> str:
        raise _no_conversion("text", "Use mr.fn.format('{}', x) instead of f'{x}'")

    def __array__(self, *args: Any, **kwargs: Any) -> NDArray[Any]:
        raise _no_conversion(
            "a numpy array", "Use numpy's functions that mr.fn has too, mr.fn.tensor of a list, and mr.fn.gather(a, x) for a[x]"
        )

    def __jax_array__(self) -> NoReturn:
        raise _no_conversion("a JAX array", "Use functions of mr.fn")

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        name = getattr(func, "__name__", "this function")
        raise _error(
            f"torch's {name} cannot be recorded. Use functions of mr.fn, or map_py to run Python "
            "for each element"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _error("an Expr is a value and cannot be called")

    def __enter__(self) -> NoReturn:
        raise _error("an Expr is a value and cannot be used in `with`")

    def __exit__(self, *args: Any) -> None:
        pass

    def __await__(self) -> NoReturn:
        raise _error("an Expr is a value and cannot be awaited")

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __reduce__(self) -> NoReturn:
        raise _error("an Expr cannot be pickled: it belongs to the function that is being recorded")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise _error(f"a value cannot be changed in place: {name} is set")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        instead = "mr.fn lists the functions, which are methods too"
        if name in ("numpy", "tolist", "item", "tobytes", "cpu", "detach"):
            instead = f"{_CONSTANT}. Use functions of mr.fn, or map_py"
        elif name in OF_EXPR:
            instead = OF_EXPR[name]
        elif _is_recorded_by_numpy(name):
            instead = f"write np.{name}(x, ...)"
        spec = self._node.spec
        if isinstance(spec, dict) and name in spec:
            instead = f"components are looked up by name: x[{name!r}]"
        raise _error(f"an Expr has no attribute {name!r}: {instead}", _MissingAttribute)

    def __repr__(self) -> str:
        text = self._node.print() if self._node.length <= 2000 else "..."
        names = {v.number: v.name for v in self._node.variables}
        names.update((n, "x") for n in _numbers_in(text) if n not in names)
        with contextlib.suppress(KeyError, AssertionError):
            text = _close(text, names)
        return f"Expr({text})"

    # numpy

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from ._numpy import ufunc as recorded

        return recorded(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from ._numpy import function as recorded

        return recorded(func, args, kwargs)


def _is_recorded_by_numpy(name: str) -> bool:
    from ._numpy import _FUNCTIONS

    return name in _FUNCTIONS and hasattr(np, name)


# ---- indexing ----


def _get_item(x: Expr, at: Any) -> Any:
    node = x._node
    if isinstance(at, (str, bytes)):
        name = at if isinstance(at, str) else at.decode("utf-8", "surrogateescape")
        text = _string(name.encode("utf-8", "surrogateescape"))
        out = _index(node, [Node("string", ATOM, (text,))])
        out.value = name
        whole = _spec_or_none(node)
        if isinstance(whole, dict):
            out.spec = whole.get(name)
        return _wrap(out)
    if isinstance(at, (int, np.integer)) and not isinstance(at, (bool, np.bool_)):
        out = _index(node, [_integer(int(at))])
        out.value = int(at)
        spec = _spec_or_none(node)
        if isinstance(spec, tuple) and -len(spec) <= at < len(spec):
            out.spec = spec[int(at)]
        return _wrap(out)
    if isinstance(at, tuple):
        return _get_parts(x, at)
    if isinstance(at, slice) or at is None or at is Ellipsis:
        return _get_parts(x, (at,))
    if isinstance(at, (list, np.ndarray, Expr)):
        return _get_rows(x, at)
    raise _error(
        f"an index is an integer, a range, a name or an Expr of integers, not {type(at).__name__}"
    )


def _get_rows(x: Expr, at: Any) -> Expr:
    """x[i] with computed numbers: a row, or several of them."""
    where = as_node(at, "an index", DType("int64"))
    spec = _tensor_or_none(where)
    if spec is not None and spec.dtype.name == "bool":
        if spec.shape is None or len(spec.shape) != 1:
            raise _error("only a vector of bools selects rows; mr.fn.where chooses values")
        return Expr(_call("gather", [x._node, _call("where", [where])]))
    if isinstance(at, (list, np.ndarray)) and np.ndim(at) != 0:
        return Expr(_call("gather", [x._node, where]))
    if spec is not None and spec.shape is not None and len(spec.shape) > 0:
        return Expr(_call("gather", [x._node, where]))
    return Expr(_index(x._node, [where]))


def _bound(value: Any) -> Node | None:
    if value is None:
        return None
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_)):
        return _integer(int(value))
    if isinstance(value, Expr):
        return value._node
    raise _error(f"the bounds of a range are integers, not {type(value).__name__}")


def _range_node(at: slice) -> Node:
    parts: list[str | tuple[Node, int]] = []
    for i, value in enumerate((at.start, at.stop, at.step)):
        bound = _bound(value)
        if i == 1 or (i == 2 and bound is not None):
            parts.append(":")
        if bound is not None:
            parts.append((bound, LAMBDA))
    return Node("range", LAMBDA, tuple(parts))


def _get_parts(x: Expr, at: tuple[Any, ...]) -> Expr:
    """x[1:5, :, 0], also with ... and None as in numpy."""
    if sum(a is Ellipsis for a in at) > 1:
        raise _error("an index has at most one ...")
    if any(a is Ellipsis for a in at):
        k = next(i for i, a in enumerate(at) if a is Ellipsis)
        given = sum(a is not None for a in at) - 1
        fill = [slice(None)] * max(x.ndim - given, 0) if k + 1 < len(at) else []
        at = (*at[:k], *fill, *at[k + 1 :])
    added, parts, axis = [], [], 0
    for a in at:
        if a is None:
            added.append(axis)
            axis += 1
            continue
        parts.append(a)
        if isinstance(a, slice):
            axis += 1
        elif isinstance(a, (bool, np.bool_)) or not isinstance(a, (int, np.integer, Expr)):
            raise _error(
                "an index of several axes consists of integers, ranges, Exprs, None and ..., "
                f"not {type(a).__name__}; mr.fn.gather takes rows of any axis"
            )
    out = x
    whole = all(
        isinstance(a, slice) and a.start is None and a.stop is None and a.step is None
        for a in parts
    )
    if parts and not (whole and added):
        nodes = [_range_node(a) if isinstance(a, slice) else as_node(a) for a in parts]
        out = Expr(_index(x._node, nodes))
    for k in added:
        out = Expr(_call("expand_dims", [out._node, _integer(k)]))
    return out


# ---- functions ----

_DRAWS = ("random_", "shuffle_rows")


def _argument(name: str, kind: str, value: Any, beside: DType | None) -> Node:
    """An argument of a function: of its inputs, tuples are lists, since no input is a tuple."""
    if kind == "TypeLike" and isinstance(value, str):
        try:
            _type_text(value)
        except (TypeError, ValueError) as e:
            raise _error(str(e)) from None
    if kind not in ("Tensor", "Shape"):
        return option(value, name)
    if value is None:
        return _word("none")
    if isinstance(value, tuple):
        value = list(value)
    return as_node(value, name, beside)


def call(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], kinds: Mapping[str, str]
) -> Expr:
    """A call of a function as it is written: positional arguments stay positional. ``kinds`` are
    the parameters in order, with ``*`` before the one that takes all further arguments, and ``**``
    before the one that takes names."""
    nodes: list[Node] = []
    keys: list[str | None] = []
    order = [k for k in kinds if not k.startswith("**")]
    names = next((k for k in kinds if k.startswith("**")), None)
    exprs = [a for a in (*args, *kwargs.values()) if isinstance(a, Expr)]
    beside = _dtype_or_none(exprs[0]._node) if exprs and _has_arrays(args, kwargs) else None
    star = next((i for i, k in enumerate(order) if k.startswith("*")), len(order))
    if name in ("reshape", "transpose") and len(args) > 2:
        args = (args[0], list(args[1:]))  # as numpy's methods take them
    for i, value in enumerate(args):
        at = min(i, star)
        if at == len(order):
            raise TypeError(f"{name}() takes {len(order)} arguments, {len(args)} were given")
        nodes.append(_argument(order[at].lstrip("*"), kinds[order[at]], value, beside))
        keys.append(None)
    given = order[: min(len(args), star)]
    if names is not None and star < len(order) and any(key in given for key in kwargs):  # then all go in braces
        features = {key: v for key, v in kwargs.items() if key in given or key not in kinds}
        kwargs = {key: v for key, v in kwargs.items() if key not in features}
        nodes.append(_argument(order[star].lstrip("*"), kinds[order[star]], features, beside))
        keys.append(None)
    for key, value in kwargs.items():
        if key in given:
            raise TypeError(f"{name}() got several values for {key}")
        kind = kinds.get(key) or (names and kinds[names])
        if kind is None:
            raise TypeError(f"{name}() has no argument {key!r}; it has {', '.join(kinds)}")
        nodes.append(_argument(key, kind, value, beside))
        keys.append(key[:-1] if keyword.iskeyword(key[:-1]) else key)
    required = [k for k in order[len(args) :] if k in _REQUIRED.get(name, ()) and k not in kwargs]
    if required:
        raise TypeError(f"{name}() needs {required[0]}")
    out = _call(name, nodes, keys)
    out.draws = out.draws or name.startswith(_DRAWS)
    if name.startswith(_DRAWS):
        out.value = "draws"
    return Expr(out)


_REQUIRED: dict[str, tuple[str, ...]] = {}


def _has_arrays(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return any(isinstance(a, (np.ndarray, np.generic)) for a in (*args, *kwargs.values()))


def kinds_of(function: Callable[..., Any], skip: int = 0) -> dict[str, str]:
    """The kinds of a generated function's parameters: the names of their annotations."""
    out: dict[str, str] = {}
    signature = inspect.signature(function)
    required = []
    for p in list(signature.parameters.values())[skip:]:
        stars = "*" if p.kind == p.VAR_POSITIONAL else "**" if p.kind == p.VAR_KEYWORD else ""
        out[stars + p.name] = str(p.annotation).removesuffix(" | None")
        if p.default is p.empty and not stars:
            required.append(p.name)
    _REQUIRED[function.__name__] = tuple(required)
    return out


class _Unquoted(str):
    """An annotation as `help` should show it, without quotation marks."""

    __repr__ = str.__str__


def unquote(function: Callable[..., Any]) -> None:
    function.__annotations__ = {k: _Unquoted(v) for k, v in function.__annotations__.items()}


def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of ``mr.fn`` that a signature describes."""
    name = function.__name__
    unquote(function)
    kinds: dict[str, str] = {}

    @functools.wraps(function)
    def record_call(*args: Any, **kwargs: Any) -> Any:
        if not kinds:
            kinds.update(kinds_of(function))
        return call(name, args, kwargs, kinds)

    record_call.__millrace_name__ = name  # type: ignore[attr-defined]
    return record_call


def tensor(value: Any) -> Expr:
    """See `mr.fn.tensor`."""
    if isinstance(value, tuple):
        value = list(value)
    return Expr(as_node(value))


def _is_function(name: str) -> bool:
    if _engine is None or not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
        return False
    try:
        _engine.infer(f"x => {name}()", TensorSpec((), DType("int64")))
    except Exception as e:
        return "unknown function" not in str(e)
    return True


def registered_function(name: str) -> Any:
    """A function that a plugin registered, by its name: the library checks its arguments."""
    if name.startswith("_") or not _is_function(name):
        similar = difflib.get_close_matches(name, dir(sys.modules["millrace.fn"]), 1)
        hint = f"did you mean {similar[0]!r}?" if similar else "dir(millrace.fn) lists them"
        raise AttributeError(f"there is no function {name!r}; {hint}")

    def registered(*args: Any, **kwargs: Any) -> Expr:
        keys = [None] * len(args) + list(kwargs)
        nodes = []
        for value in (*args, *kwargs.values()):
            constant = value is None or _is_type(value)
            nodes.append(option(value) if constant else as_node(value, f"an argument of {name}"))
        return Expr(_call(name, nodes, keys))

    registered.__name__ = registered.__qualname__ = name
    registered.__millrace_name__ = name  # type: ignore[attr-defined]
    return registered


def cond(condition: Any, a: Any, b: Any) -> Any:
    """``a if condition else b``: see ``mr.fn.cond``."""
    sides = []
    for side in (a, b):
        if isinstance(side, types.FunctionType):
            side = side()
        sides.append(as_node(side, "a side of cond"))
    out = _choice(as_node(condition, "the condition"), *sides)
    if all(n.kind == "dataset" for n in sides):
        out.spec = _spec_or_none(out)
    return _wrap(out)


# ---- recording ----


class Recorded:
    """A recorded function: ``text`` is its lambda, ``arrays`` the constants that the text refers
    to by name."""

    __slots__ = ("text", "arrays", "variables", "result")

    def __init__(
        self,
        text: str,
        arrays: dict[str, NDArray[Any]],
        variables: tuple[Variable, ...] = (),
        result: Any = None,
    ) -> None:
        self.text = text
        self.arrays = arrays
        self.variables = variables
        self.result = result

    @property
    def is_open(self) -> bool:
        """True if the function uses parameters of a function around it."""
        return is_open(self.text)

    def __repr__(self) -> str:
        return f"Recorded({self.text!r})"


def _parameters(fn: Callable[..., Any]) -> tuple[list[str], bool]:
    """The names of the parameters without a default, and whether it takes any number of them."""
    if isinstance(fn, np.ufunc):
        return ["x", "y", "z"][: fn.nin] or ["x"], False
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return ["x"], False
    names, variadic = [], False
    for p in signature.parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            variadic = True
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty:
            names.append(p.name)
        elif p.kind is p.KEYWORD_ONLY and p.default is p.empty:
            raise _error(
                f"a recorded function gets its arguments by position, and {p.name} has to be named"
            )
    if not names and not variadic:
        names = [p.name for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD][:1]
        if not names:
            raise _error("a recorded function has one parameter or more; this one has none")
    return names, variadic


def _make_variables(
    fn: Callable[..., Any], specs: Spec, names: Sequence[str] | None
) -> tuple[Variable, ...]:
    found, variadic = (list(names), False) if names else _parameters(fn)
    several = isinstance(specs, tuple)
    if variadic:
        first = inspect.getfullargspec(fn).varargs or "x"
        more = (len(specs) if isinstance(specs, tuple) else 1) - len(found)
        found += [f"{first}{i}" for i in range(more)] if more > 1 else [first] * more
    if len(found) == 1:
        return (Variable(_proper_name(found[0]), specs),)
    if not several or not isinstance(specs, tuple) or len(specs) != len(found):
        parts = len(specs) if isinstance(specs, tuple) else 1
        by_name = " (a dict is one, whose entries are looked up as x['name'])" if isinstance(specs, dict) else ""
        raise _error(
            f"the function has {len(found)} parameters ({', '.join(found)}) and the elements have "
            f"{parts} component{'' if parts == 1 else 's'}{by_name}: as many are needed, or a single "
            "parameter that takes the whole element"
        )
    return tuple(Variable(_proper_name(n), s) for n, s in zip(found, specs, strict=True))


@contextlib.contextmanager
def _session(variables: Sequence[Variable]) -> Iterator[dict[str, NDArray[Any]]]:
    outermost = _state.level == 0
    if outermost:
        _state.arrays, _state.names, _state.embedded = {}, {}, {}
    assert _state.arrays is not None
    around = _state.variables
    _state.level += 1
    _state.variables = (*around, *variables)
    try:
        yield _state.arrays
    finally:
        _state.level -= 1
        _state.variables = around
        if outermost:
            _state.arrays = _state.names = _state.embedded = None


def _check_draws(root: Node, level: int) -> None:
    """A call that draws random numbers is written wherever its value is used, and would draw
    others there. A level of -1 only counts the uses in the text of a dataset."""
    if not root.draws:
        return
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen and node.draws:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in node.children())
    uses = {id(root): 1}
    for node in reversed(order):
        for child in node.children():
            if child.draws:
                uses[id(child)] = uses.get(id(child), 0) + uses[id(node)]
    if level < 0:
        embedded = _state.embedded or {}
        embedded.update((i, embedded.get(i, 0) + n) for i, n in uses.items())
        return
    for node in order:
        times = uses[id(node)] + (_state.embedded or {}).get(id(node), 0)
        inner = 0 < node.level < level
        if node.value == "draws" and (times > 1 or inner):
            name = str(node.parts[0]).rstrip("()")
            raise _error(
                f"the value of {name}() is used "
                + ("in a function within the one that draws it" if inner else "more than once")
                + ", and each use would draw anew. Draw it in a separate map first: "
                f"ds.map(lambda x: (x, mr.fn.{name}(...))).map(lambda x, r: ...)"
            )


def _random_state() -> tuple[Any, ...]:
    state: Any = np.random.get_state(legacy=False)
    inner = state.get("state", {})
    return random.getstate(), inner.get("pos"), bytes(inner.get("key", b""))


def record(
    fn: Callable[..., Any],
    specs: Spec,
    *,
    argument_names: Sequence[str] | None = None,
) -> Recorded:
    """Calls ``fn`` once, with Exprs of ``specs``, and returns what it does as a lambda.

    A tuple of specs is passed as several arguments where ``fn`` has several parameters. Within
    another function that is being recorded the text may be open (``Recorded.is_open``).

    Raises TraceError, which names the line, for what cannot be recorded.
    """
    bare = getattr(fn, "__millrace_name__", None)
    if isinstance(bare, str):
        return Recorded(bare, {})
    if not callable(fn):
        raise _error(f"expected a function, as in lambda x: x * 2, not {type(fn).__name__}")
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn):
        kind = "a coroutine" if inspect.iscoroutinefunction(fn) else "a generator"
        file, line = _place_of_function(fn)
        raise TraceError(
            _at(f"{kind} cannot be recorded; flat_map_py and map_py run Python", file, line),
            file,
            line,
        )
    variables = _make_variables(fn, specs, argument_names)
    before = _random_state()
    with _session(variables) as arrays:
        result = _run(fn, [_wrap(_variable_node(v)) for v in variables])
        level = _state.level
        try:
            root = as_node(result, "the result")
            _check_draws(root, level)
            _check_origin(root)
        except TraceError as e:
            raise _relocated(e, fn) from None
        text = _open_lambda(variables, root.print())
        if not _free_in(text):
            text = _close(text, {})
        kept = {k: v for k, v in arrays.items() if not k.endswith("!")}
    if _random_state() != before:
        file, line = _place_of_function(fn)
        warnings.warn_explicit(
            "the recorded function drew numbers with random or numpy.random: they are constants "
            "now, the same for all elements; mr.fn.random_uniform and the like draw for each",
            UserWarning,
            file or "<unknown>",
            line or 1,
        )
    return Recorded(text, kept, variables, result)


def _check_origin(root: Node) -> None:
    lost = root.variables.difference(_state.variables)
    if lost:
        raise _error(
            f"the result uses {next(iter(lost)).name}, a parameter of another function, which was "
            "recorded before"
        )


def _place_of_function(fn: Any) -> tuple[str | None, int | None]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    if code is None:
        code = getattr(getattr(type(fn), "__call__", None), "__code__", None)  # noqa: B004
    return (code.co_filename, code.co_firstlineno) if code else (None, None)


def _relocated(e: TraceError, fn: Any) -> TraceError:
    """An error of the result is one of the function, which has returned."""
    file, line = _place_of_function(fn)
    if file is None or e.file is None:
        return e
    message = str(e.args[0]).partition(f", line {e.line}: ")[2].partition("\n    ")[0]
    return TraceError(_at(message or str(e.args[0]), file, line), file, line)


def _run(fn: Callable[..., Any], args: Sequence[Any]) -> Any:
    try:
        return fn(*args)
    except TraceError:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as e:
        # What Python or a library says of an Expr that it cannot use.
        if "Expr" not in str(e) and not any(isinstance(a, Expr) for a in e.args):
            e.add_note("The function was being recorded, with an Expr for each value; map_py runs Python for each element.")
            raise
        file, line = _place_of(_frames_of(e.__traceback__))
        if file is None:  # a function of C
            file, line = _place_of(_frames_here())
        message = f"this cannot be recorded: {e}. {_INSTEAD}"
        raise TraceError(_at(message, file, line), file, line) from e
