# SPDX-License-Identifier: Apache-2.0
"""The Python that makes the graph of a text of the grammar: for examples in docstrings, and for tests
that build the graphs of texts through methods and recorded functions.

    >>> python_of('range(3).map(x => x * 2 if x > 0 and x < 2 else 0).batch(2, drop_remainder=true)')
    'mr.range(3).map(lambda x: mr.fn.cond((x > 0) & (x < 2), x * 2, 0)).batch(2, drop_remainder=True)'

What only the grammar computes becomes a call of one of two names, which tests define: raw("7 / 2") is
text of an argument, literal(7) a number that takes part in a recorded function.
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
from dataclasses import dataclass, field
from typing import Any

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 bytes string".split()
)
TOKEN = re.compile(
    r"""\s*(?:\#[^\n]*\n\s*)*(?:
    (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<symbol>=>|\*\*|//|==|!=|<=|>=|[-+*/%<>=.,:()\[\]{}]))""",
    re.X | re.S,
)
BINARY: list[Any] = [["or"], ["and"], None, ["==", "!=", "<", "<=", ">", ">="], ["+", "-"], ["*", "/", "//", "%"]]
# In Python, where & and | bind more tightly than comparisons.
BINDS = {c: 1 for c in BINARY[3]} | {"+": 2, "-": 2} | {c: 3 for c in BINARY[5]}


@dataclass
class Tree:
    kind: str  # number string name word lambda if binary sign not call method index list tuple record range empty
    text: str = ""
    children: list[Tree] = field(default_factory=list)
    names: list[str | None] = field(default_factory=list)
    begin: int = 0
    end: int = 0


class Parser:
    def __init__(self, text: str) -> None:
        self.text, self.tokens, at = text, [], 0
        while True:
            match = TOKEN.match(text, at)
            if not match:
                break
            at = match.end()
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind], match.start(kind), match.end(kind)))
        if text[at:].strip() and not text[at:].strip().startswith("#"):
            raise ValueError(f"not understood at {text[at:]!r}")
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        i = self.at + ahead
        return self.tokens[i][1] if i < len(self.tokens) and self.tokens[i][0] != "string" else ""

    def take(self, expected: str | None = None) -> tuple[str, str, int, int]:
        if self.at >= len(self.tokens):
            raise ValueError("unexpected end")
        token = self.tokens[self.at]
        if expected is not None and token[1] != expected:
            raise ValueError(f"expected {expected}, found {token[1]}")
        self.at += 1
        return token

    def node(self, kind: str, begin: int, text: str = "", children: Any = (), names: Any = ()) -> Tree:
        return Tree(kind, text, list(children), list(names), begin, self.tokens[self.at - 1][3])

    def begin(self) -> int:
        return self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)

    def is_lambda(self) -> bool:
        if self.peek(1) == "=>":
            return True
        if self.peek() != "(":
            return False
        i = 1
        while self.peek(i) and self.peek(i) != ")" and (self.peek(i) == "," or self.peek(i).isidentifier()):
            i += 1
        return self.peek(i) == ")" and self.peek(i + 1) == "=>"

    def expression(self) -> Tree:
        begin = self.begin()
        if self.is_lambda():
            names = []
            if self.peek() == "(":
                self.take()
                while self.peek() != ")":
                    names.append(self.take()[1])
                    if self.peek() == ",":
                        self.take()
                self.take(")")
            else:
                names.append(self.take()[1])
            self.take("=>")
            return self.node("lambda", begin, "", [self.expression()], names)
        a = self.binary(0)
        if self.peek() == "if":
            self.take()
            c = self.binary(0)
            self.take("else")
            b = self.expression()
            return self.node("if", begin, "", [a, c, b])
        return a

    def binary(self, level: int) -> Tree:
        begin = self.begin()
        if level == len(BINARY):
            return self.sign()
        operators = BINARY[level]
        if operators is None:
            if self.peek() == "not":
                self.take()
                return self.node("not", begin, "", [self.binary(level)])
            return self.binary(level + 1)
        a = self.binary(level + 1)
        while self.peek() in operators:
            op = self.take()[1]
            a = self.node("binary", begin, op, [a, self.binary(level + 1)])
            if level == 3:
                break
        return a

    def sign(self) -> Tree:
        begin = self.begin()
        if self.peek() == "-":
            self.take()
            return self.node("sign", begin, "-", [self.sign()])
        if self.peek() == "+":
            self.take()
            return self.sign()
        a = self.postfix()
        if self.peek() == "**":
            self.take()
            return self.node("binary", begin, "**", [a, self.sign()])
        return a

    def arguments(self) -> tuple[list[Tree], list[str | None]]:
        self.take("(")
        values, names = [], []
        while self.peek() != ")":
            if self.tokens[self.at][0] == "name" and self.peek(1) == "=":
                names.append(self.take()[1])
                self.take("=")
            else:
                names.append(None)
            values.append(self.expression())
            if self.peek() != ")":
                self.take(",")
        self.take(")")
        return values, names

    def postfix(self) -> Tree:
        begin = self.begin()
        a = self.atom()
        while self.peek() in (".", "["):
            if self.take()[1] == ".":
                name = self.take()[1]
                values, names = self.arguments()
                a = self.node("method", begin, name, [a, *values], [None, *names])
                continue
            parts = []
            comma = False
            while self.peek() != "]":
                parts.append(self.part())
                if self.peek() != "]":
                    self.take(",")
                    comma = True
            self.take("]")
            a = self.node("index", begin, "," if comma else "", [a, *parts])
        return a

    def part(self) -> Tree:
        begin = self.begin()
        empty = Tree("empty")
        parts = [empty if self.peek() == ":" else self.expression()]
        if self.peek() != ":":
            return parts[0]
        while self.peek() == ":":
            self.take()
            parts.append(empty if self.peek() in (":", ",", "]") else self.expression())
        return self.node("range", begin, "", parts)

    def atom(self) -> Tree:
        begin = self.begin()
        kind, text, _, _ = self.take()
        if kind in ("number", "string"):
            return self.node(kind, begin, text)
        if kind == "name":
            if text in ("true", "false", "none", "auto"):
                return self.node("word", begin, text)
            if self.peek() == "(":
                values, names = self.arguments()
                return self.node("call", begin, text, values, names)
            return self.node("name", begin, text)
        if text == "{":
            values, names = [], []
            while self.peek() != "}":
                names.append(self.take()[1])
                self.take(":")
                values.append(self.expression())
                if self.peek() != "}":
                    self.take(",")
            self.take("}")
            return self.node("record", begin, "", values, names)
        close = {"(": ")", "[": "]"}[text]
        values = []
        while self.peek() != close:
            values.append(self.expression())
            if self.peek() != close:
                self.take(",")
        self.take(close)
        if text == "(" and len(values) == 1:
            return values[0]
        return self.node("list" if text == "[" else "tuple", begin, "", values)


def string_value(text: str) -> bytes:
    """The bytes of a string literal."""
    out = b""
    pairs = re.findall(r"\\x[0-9a-fA-F]{2}|(?:\\u[0-9a-fA-F]{4})+|\\.|[^\\]+", text[1:-1], re.S)
    simple = {"n": b"\n", "t": b"\t", "\\": b"\\", '"': b'"', "'": b"'"}
    for p in pairs:
        if p.startswith("\\x"):
            out += bytes([int(p[2:], 16)])
        elif p.startswith("\\u"):
            out += json.loads(f'"{p}"').encode("utf-8", "surrogatepass")
        elif p.startswith("\\"):
            out += simple[p[1]]
        else:
            out += p.encode("utf-8", "surrogateescape")
    return out


class Printer:
    def __init__(self, text: str, ops: Any, functions: Any) -> None:
        # A name of both is a method and a function: a call is that of the function.
        self.text, self.ops, self.functions = text, ops - functions, functions

    def of(self, t: Tree, bound: frozenset[str], inside: bool) -> str:
        """inside: within a recorded function."""
        return getattr(self, "_" + t.kind)(t, bound, inside)  # type: ignore[no-any-return]

    def _number(self, t: Tree, bound: Any, inside: bool) -> str:
        if re.fullmatch(r"\d+", t.text):
            return str(int(t.text))
        return repr(float(t.text)) if "inf" not in repr(float(t.text)) else "float('inf')"

    def _string(self, t: Tree, bound: Any, inside: bool) -> str:
        data = string_value(t.text)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return repr(data)
        return json.dumps(text, ensure_ascii=False) if text.isprintable() else repr(text)

    def _word(self, t: Tree, bound: Any, inside: bool) -> str:
        return {"true": "True", "false": "False", "none": "None", "auto": "mr.AUTO"}[t.text]

    def _name(self, t: Tree, bound: Any, inside: bool) -> str:
        if t.text in bound:
            return _safe(t.text)
        if t.text in DTYPES:
            return f"mr.{t.text}"
        if t.text in ("nan", "inf"):
            return f"float('{t.text}')"
        if t.text in self.ops:
            return f"mr.{t.text}"
        return f"mr.fn.{t.text}"

    def _lambda(self, t: Tree, bound: frozenset[str], inside: bool) -> str:
        names = ", ".join(_safe(str(n)) for n in t.names)
        return f"lambda {names}: {self.of(t.children[0], bound | set(t.names), True)}"

    def _if(self, t: Tree, bound: Any, inside: bool) -> str:
        a, c, b = (self.of(x, bound, inside) for x in t.children)
        return f"mr.fn.cond({c}, {a}, {b})"

    def _operand(self, t: Tree, bound: Any, inside: bool, above: int = 9, left: bool = True) -> str:
        """above: how tightly the operator binds whose operand it is."""
        text = self.of(t, bound, inside)
        if t.kind == "binary" and inside:
            binds = BINDS.get(t.text, 0)
            return text if binds > above or (binds == above > 1 and left) else f"({text})"
        if t.kind == "list" and inside and not _is_literal(t):
            return f"mr.fn.tensor({text})"  # Python would add lists, and compare them
        return f"({text})" if t.kind in ("binary", "sign", "not", "lambda") else text

    def _binary(self, t: Tree, bound: Any, inside: bool) -> str:
        a, b = t.children
        op = {"and": "&", "or": "|"}.get(t.text, t.text)
        above = BINDS.get(t.text, 9)
        left, right = self._operand(a, bound, inside, above), self._operand(b, bound, inside, above, False)
        if _is_literal(a) and _is_literal(b):
            left = f"literal({self.of(a, bound, inside)})"
        return f"{left} {op} {right}"

    def _sign(self, t: Tree, bound: Any, inside: bool) -> str:
        x = t.children[0]
        if x.kind == "number" or not _is_literal(x):
            return f"-{self._operand(x, bound, inside)}"
        return f"-literal({self.of(x, bound, inside)})"

    def _not(self, t: Tree, bound: Any, inside: bool) -> str:
        x = t.children[0]
        text = f"literal({self.of(x, bound, inside)})" if _is_literal(x) else self._operand(x, bound, inside)
        return f"~{text}"

    def _arguments(self, values: list[Tree], names: list[str | None], bound: Any, inside: bool) -> str:
        out = []
        for v, n in zip(values, names, strict=True):
            if not inside and _is_computed(v):
                text = f"raw({self.text[v.begin : v.end]!r})"
            else:
                text = self.of(v, bound, inside)
            out.append(f"{_safe(n)}={text}" if n else text)
        return ", ".join(out)

    def _call(self, t: Tree, bound: Any, inside: bool) -> str:
        arguments = self._arguments(t.children, t.names, bound, inside)
        place = "mr" if t.text in self.ops else "mr.fn"
        return f"{place}.{_safe(t.text)}({arguments})"

    def _method(self, t: Tree, bound: Any, inside: bool) -> str:
        receiver = self._operand(t.children[0], bound, inside)
        return f"{receiver}.{_safe(t.text)}({self._arguments(t.children[1:], t.names[1:], bound, inside)})"

    def _index(self, t: Tree, bound: Any, inside: bool) -> str:
        x, *parts = t.children
        if x.kind == "name" and x.text not in bound and not parts:
            return f"{self.of(x, bound, inside)}[...]"
        text = self._operand(x, bound, inside)
        if _is_literal(x):
            text = f"literal({text})"
        comma = "," if t.text and len(parts) == 1 else ""
        return f"{text}[{', '.join(self.of(p, bound, inside) for p in parts)}{comma}]"

    def _range(self, t: Tree, bound: Any, inside: bool) -> str:
        return ":".join(self.of(p, bound, inside) for p in t.children)

    def _empty(self, t: Tree, bound: Any, inside: bool) -> str:
        return ""

    def _list(self, t: Tree, bound: Any, inside: bool) -> str:
        return "[" + ", ".join(self.of(x, bound, inside) for x in t.children) + "]"

    def _tuple(self, t: Tree, bound: Any, inside: bool) -> str:
        return "(" + ", ".join(self.of(x, bound, inside) for x in t.children) + ")"

    def _record(self, t: Tree, bound: Any, inside: bool) -> str:
        pairs = (
            f"{self._string(Tree('string', str(n)), bound, inside)}: {self.of(x, bound, inside)}"
            for n, x in zip(t.names, t.children, strict=True)
        )
        return "{" + ", ".join(pairs) + "}"


def _safe(name: str) -> str:
    return name + "_" if keyword.iskeyword(name) else name


def _is_literal(t: Tree) -> bool:
    """Python would compute with it."""
    if t.kind in ("number", "string", "word"):
        return True
    if t.kind in ("list", "sign"):
        return all(_is_literal(x) for x in t.children)
    return False


def _is_computed(t: Tree) -> bool:
    """An argument that the grammar computes, outside of functions."""
    if t.kind in ("binary", "not", "if") or (t.kind == "sign" and t.children[0].kind != "number"):
        return True
    if t.kind in ("list", "tuple", "record"):
        return any(map(_is_computed, t.children))
    if t.kind == "call":
        return t.text in NUMBER_FUNCTIONS
    return False


NUMBER_FUNCTIONS: set[str] = set()
_known: tuple[set[str], set[str]] | None = None


def load_names(millrace: str) -> None:
    """Learns the names of ops and functions from the program."""
    global _known
    lines = subprocess.run([millrace, "ops", "--json"], check=True, capture_output=True, text=True).stdout
    entries = [json.loads(x) for x in lines.splitlines()]
    _known = {e["op"] for e in entries if "op" in e}, {e["function"] for e in entries if "function" in e}
    NUMBER_FUNCTIONS.clear()
    NUMBER_FUNCTIONS.update(_known[1] - {"feature", "sparse"})


def python_of(text: str) -> str:
    """The Python source for a text."""
    parser = Parser(text)
    tree = parser.expression()
    if parser.at != len(parser.tokens):
        raise ValueError(f"not understood: {parser.peek()}")
    ops, functions = _known or (set(), set())
    if not ops:
        ops = {"range"} if _known is None else ops
    return Printer(text, ops, functions).of(tree, frozenset(), False)
