#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier oracle: plain=full
# tier held: plain=full
"""Compares the program with a second implementation (model.py) on random expressions.

    oracle.py MILLRACE [--held PROGRAM] [--cases N] [--held-cases N] [--seed S] [--jobs N] [--only NUMBER]

Draws expressions with what they should print, and runs each with two of --threads {0, 1, 4} x
--block-rows {1, 3, 1024}, now and then saving and restoring at a random line. With --held many more graphs go through one process
each hundred (held.c), which holds values, errors, identities, cardinality and memory at once, over threads,
blocks, rows asked for and chains of positions. TAP goes to $TAP_FILE,
one test for each hundred cases. A failing case is printed with the number that draws it again
(--seed S --only NUMBER). MR_TEST_SEED and MR_TEST_TIER=long set the defaults.
"""
import argparse
import concurrent.futures
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import model  # noqa: E402
from model import Error, Tensor, TooLong, scalar

LINES = 60
ANY_EPOCH = 2 ** 64 - 1
NAMES = "xyzuvwpqst"


class Part:
    """A piece of an expression: its text, the type of its value, and its value in a scope."""

    def __init__(self, text, kind, value, cost=0):
        self.text, self.kind, self.value, self.cost = text, kind, value, cost


# Types: ("leaf", dtype, shape), ("tuple", types), ("record", {name: type}), ("dataset", type)
def leaf(dtype, shape=()):
    return ("leaf", dtype, tuple(shape))


INT, BOOL = leaf("int64"), leaf("bool")


def map_kind(kind, fn):
    if kind[0] == "tuple":
        return ("tuple", [map_kind(k, fn) for k in kind[1]])
    if kind[0] == "record":
        return ("record", {n: map_kind(k, fn) for n, k in sorted(kind[1].items())})  # the order of values' leaves
    return fn(kind)


def kind_leaves(kind):
    out = []
    map_kind(kind, lambda k: out.append(k) or k)
    return out


def plain(kind):
    return all(k[0] == "leaf" for k in kind_leaves(kind))


def add_axis(kind, n):
    return map_kind(kind, lambda k: leaf(k[1], (n,) + k[2]))


def drop_axis(kind):
    return map_kind(kind, lambda k: leaf(k[1], k[2][1:]))


def common(kind, other):
    """The dimensions in which two types agree."""
    parts = iter(kind_leaves(other))
    return map_kind(kind, lambda k: leaf(k[1], [a if a == b else None for a, b in zip(k[2], next(parts)[2])]))


class Draw:
    """Draws expressions. Most fit; `wrong` is set where one was made that must not build."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.places = 0
        self.names = 0
        self.wrong = False
        self.depth = 0

    def chance(self, p):
        return self.r.random() < p

    def place(self, scope):
        """The number of a source that is not inside a function."""
        if scope:
            return None
        self.places += 1
        return self.places - 1

    def fresh(self):
        name = NAMES[self.names % len(NAMES)] + (str(self.names // len(NAMES)) if self.names >= len(NAMES) else "")
        self.names += 1
        return name

    # ---- literals
    def literal_value(self, dtype):
        if dtype == "int64":
            v = self.r.choice([0, 1, 2, 3, 4, 5, 7, 8, 9, -1, -2, -3, -4])
            return str(v), v
        if dtype == "float32":
            text = self.r.choice(["0.5", "1.25", "-2.0", "3.5", "0.1", "1e2", "-7.75"])
            return text, model.float32(float(text))
        if dtype == "bool":
            v = self.chance(0.5)
            return ("true" if v else "false"), v
        v = self.r.choice(["", "a", "b", "foo", "bar", "x y", "\u00e9lan", "0"])
        return json.dumps(v, ensure_ascii=False), v

    def literal(self, dtype, shape):
        if not shape:
            text, v = self.literal_value(dtype)
            return text, [v]
        parts = [self.literal(dtype, shape[1:]) for _ in range(shape[0])]
        return "[" + ", ".join(p[0] for p in parts) + "]", [v for p in parts for v in p[1]]

    def constant(self, kind):
        """A literal of a type with known or unknown dimensions."""
        if kind[0] == "tuple":
            parts = [self.constant(k) for k in kind[1]]
            return Part("(" + ", ".join(p.text for p in parts) + ")", kind,
                        lambda env: tuple(p.value(env) for p in parts))
        if kind[0] == "record":
            parts = {n: self.constant(k) for n, k in kind[1].items()}
            return Part("{" + ", ".join(f'"{n}": {p.text}' for n, p in parts.items()) + "}", kind,
                        lambda env: {n: p.value(env) for n, p in parts.items()})
        shape = tuple(self.r.randint(1, 3) if d is None else d for d in kind[2])
        text, data = self.literal(kind[1], shape)
        return Part(text, leaf(kind[1], shape), lambda env: Tensor(kind[1], shape, data))

    # ---- expressions over a scope: a list of Parts that can be used in place
    def atoms(self, scope, test):
        out = []

        def walk(part):
            kind = part.kind
            if test(kind):
                out.append(part)
            if kind[0] == "tuple":
                for i, k in enumerate(kind[1]):
                    walk(Part(f"{part.text}[{i}]", k, lambda env, i=i: part.value(env)[i]))
            elif kind[0] == "record":
                for n, k in kind[1].items():
                    walk(Part(f'{part.text}["{n}"]', k, lambda env, n=n: part.value(env)[n]))
        for part in scope:
            walk(part)
        return out

    def integer(self, scope, depth=2):
        """A scalar int64."""
        tensors = self.atoms(scope, lambda k: k[0] == "leaf")
        ints = [a for a in tensors if a.kind == INT]
        if depth <= 0 or self.chance(0.25):
            if ints and self.chance(0.8):
                return self.r.choice(ints)
            shaped = [a for a in tensors if a.kind[2]]
            if shaped and self.chance(0.8):
                return self.measure(self.r.choice(shaped))
            floats = [a for a in tensors if a.kind == leaf("float32")]
            if floats and self.chance(0.5):
                a = self.r.choice(floats)
                return Part(f'cast({a.text}, "int64")', INT, lambda env: model.cast(a.value(env), "int64"))
            text, v = self.literal_value("int64")
            return Part(text, INT, lambda env: scalar("int64", v))
        what = self.r.random()
        if what < 0.1:
            a = self.integer(scope, depth - 1)
            return Part(f"abs({a.text})", INT, lambda env: Tensor(
                "int64", (), [model.wrap(abs(a.value(env).data[0]))]))
        if what < 0.2:
            c, a, b = self.boolean(scope, depth - 1), self.integer(scope, depth - 1), self.integer(scope, depth - 1)
            return Part(f"({a.text} if {c.text} else {b.text})", INT,
                        lambda env: (a if c.value(env).data[0] else b).value(env))
        if what < 0.25:
            a = self.integer(scope, depth - 1)
            return Part(f"(-{a.text})", INT, lambda env: Tensor("int64", (), [model.wrap(-a.value(env).data[0])]))
        if what < 0.3:
            name = self.r.choice(["min", "max"])
            a, b = self.integer(scope, depth - 1), self.integer(scope, depth - 1)
            pick = min if name == "min" else max
            return Part(f"{name}({a.text}, {b.text})", INT, lambda env: scalar(
                "int64", pick(a.value(env).data[0], b.value(env).data[0])))
        if what < 0.4:
            lists = [a for a in tensors if a.kind[2] and a.kind[1] == "int64" and len(a.kind[2]) == 1]
            if lists:
                a, i = self.r.choice(lists), self.r.choice([0, -1, 1])
                known = a.kind[2][0]
                if known is None or -known <= i < known:
                    return Part(f"{a.text}[{i}]", INT, lambda env: self.row(a.value(env), i))
        op = self.r.choice(["+", "-", "*", "//", "%", "+", "-", "*", "//", "%", "**"])
        a = self.integer(scope, depth - 1)
        b = self.integer(scope, depth - 1)
        left = f"({a.text})" if op == "**" else a.text
        return Part(f"({left} {op} {b.text})", INT,
                    lambda env: model.elementwise(op, a.value(env), b.value(env)))

    @staticmethod
    def row(value, i):
        model.need(-value.shape[0] <= i < value.shape[0], "row")
        return value.rows()[i]

    def measure(self, a):
        names = ["size", "length"]
        if a.kind[1] == "int64":
            names += ["sum", "min", "max", "mean", "sum"]
        name = self.r.choice(names)

        def value(env):
            v = a.value(env)
            if name == "size":
                return scalar("int64", len(v.data))
            if name == "length":
                return scalar("int64", v.shape[0])
            return model.reduce_all(name, v)
        return Part(f"{name}({a.text})", INT, value)

    def boolean(self, scope, depth=2):
        what = self.r.random()
        if depth > 0 and what < 0.3:
            op = self.r.choice(["and", "or"])
            a, b = self.boolean(scope, depth - 1), self.boolean(scope, depth - 1)

            def value(env):
                left = a.value(env)
                return left if left.data[0] == (op == "or") else b.value(env)
            return Part(f"({a.text} {op} {b.text})", BOOL, value)
        if depth > 0 and what < 0.4:
            a = self.boolean(scope, depth - 1)
            return Part(f"(not {a.text})", BOOL, lambda env: scalar("bool", not a.value(env).data[0]))
        found = self.atoms(scope, lambda k: k == BOOL)
        if found and what < 0.6:
            return self.r.choice(found)
        floats = self.atoms(scope, lambda k: k == leaf("float32"))
        if floats and what < 0.65:
            a, b, op = self.r.choice(floats), self.r.choice(floats), self.r.choice(["<", ">=", "==", "!="])
            return Part(f"({a.text} {op} {b.text})", BOOL,
                        lambda env: model.elementwise(op, a.value(env), b.value(env)))
        strings = self.atoms(scope, lambda k: k == leaf("string"))
        if strings and what < 0.7:
            a, op = self.r.choice(strings), self.r.choice(["==", "!="])
            text, v = self.literal("string", ())
            return Part(f"({a.text} {op} {text})", BOOL,
                        lambda env: model.elementwise(op, a.value(env), Tensor("string", (), v)))
        op = self.r.choice(["==", "!=", "<", "<=", ">", ">="])
        a, b = self.integer(scope, depth - 1), self.integer(scope, depth - 1)
        if self.chance(0.5):
            m = self.r.randint(2, 4)
            return Part(f"({a.text} % {m} {op} {m // 2})", BOOL, lambda env: model.elementwise(
                op, model.elementwise("%", a.value(env), scalar("int64", m)), scalar("int64", m // 2)))
        return Part(f"({a.text} {op} {b.text})", BOOL,
                    lambda env: model.elementwise(op, a.value(env), b.value(env)))

    def floating(self, scope):
        """A scalar float32, or a float64 from a division."""
        if self.chance(0.3):
            a, n = self.integer(scope, 1), self.r.choice([2, 4, 8])
            return Part(f"{a.text} / {n}", leaf("float64"),
                        lambda env: model.elementwise("/", a.value(env), scalar("int64", n)))
        found = self.atoms(scope, lambda k: k == leaf("float32"))
        shaped = self.atoms(scope, lambda k: k[0] == "leaf" and k[1] == "float32" and k[2])
        if shaped and self.chance(0.5):
            a, name = self.r.choice(shaped), self.r.choice(["sum", "min", "max", "mean"])
            return Part(f"{name}({a.text})", leaf("float32"), lambda env: model.reduce_all(name, a.value(env)))
        if found and self.chance(0.7):
            a = self.r.choice(found)
        else:
            b = self.integer(scope, 1)
            a = Part(f'cast({b.text}, "float32")', leaf("float32"),
                     lambda env: model.cast(b.value(env), "float32"))
        op = self.r.choice(["+", "-", "*"])
        text, v = self.r.choice([("2", 2.0), ("0.5", 0.5), ("1.25", 1.25)])
        return Part(f"({a.text} {op} {text})", leaf("float32"),
                    lambda env: model.elementwise(op, a.value(env), scalar("float32", v)))

    def tensor(self, scope):
        what = self.r.random()
        shaped = self.atoms(scope, lambda k: k[0] == "leaf" and k[2])
        if shaped and what < 0.35:
            a = self.r.choice(shaped)
            if a.kind[1] == "int64" and self.chance(0.6):
                op, b = self.r.choice(["+", "*", "-", "//", "%"]), self.integer(scope, 1)
                return Part(f"({a.text} {op} {b.text})", a.kind,
                            lambda env: model.elementwise(op, a.value(env), b.value(env)))
            if a.kind[2][0] is not None and a.kind[2][0] > 0 and self.chance(0.4):
                return Part(f"{a.text}[0]", leaf(a.kind[1], a.kind[2][1:]), lambda env: a.value(env).rows()[0])
            if self.chance(0.4):
                return Part(f"concat({a.text}, {a.text})", leaf(a.kind[1], (a.kind[2][0] and 2 * a.kind[2][0],) + a.kind[2][1:]),
                            lambda env: self.joined(a.value(env)))
            return a
        parts = [self.integer(scope, 1) for _ in range(self.r.randint(1, 3))]
        text = ", ".join(p.text for p in parts)
        text = f"[{text}]" if self.chance(0.8) else f"stack({text})"
        return Part(text, leaf("int64", (len(parts),)), lambda env: Tensor(
            "int64", (len(parts),), [p.value(env).data[0] for p in parts]))

    @staticmethod
    def joined(v):
        return Tensor(v.dtype, (2 * v.shape[0],) + v.shape[1:], v.data * 2)

    def result(self, scope, depth=2):
        """What a map's function returns."""
        what = self.r.random()
        if depth and what < 0.2:
            parts = [self.result(scope, depth - 1) for _ in range(self.r.randint(2, 3))]
            return Part("(" + ", ".join(p.text for p in parts) + ")", ("tuple", [p.kind for p in parts]),
                        lambda env: tuple(p.value(env) for p in parts))
        if depth and what < 0.3:
            names = self.r.sample(["a", "b", "len", "key"], self.r.randint(1, 2))
            parts = {n: self.result(scope, depth - 1) for n in names}
            return Part("{" + ", ".join(f'"{n}": {p.text}' for n, p in parts.items()) + "}",
                        ("record", {n: p.kind for n, p in parts.items()}),
                        lambda env: {n: p.value(env) for n, p in parts.items()})
        if what < 0.4:
            return self.floating(scope)
        if what < 0.5:
            return self.boolean(scope)
        strings = self.atoms(scope, lambda k: k[0] == "leaf" and k[1] == "string")
        if strings and what < 0.6:
            a = self.r.choice(strings)
            text, v = self.literal("string", ())
            return Part(f"({a.text} + {text})", a.kind,
                        lambda env: model.elementwise("+", a.value(env), Tensor("string", (), v)))
        leaves = self.atoms(scope, lambda k: k[0] == "leaf")
        if leaves and what < 0.63:
            a, c, dtype = self.r.choice(leaves), self.boolean(scope, 1), None
            return Part(f"({a.text} if {c.text} else {a.text})", a.kind,
                        lambda env: (c.value(env), a.value(env))[1])
        if what < 0.65:
            return self.tensor(scope)
        if what < 0.72:
            whole = self.r.choice(scope)
            if plain(whole.kind):
                return whole
        return self.integer(scope)

    def function(self, kind, scope, body):
        """(text, result part, call): a lambda for elements of a type; body draws from the inner scope."""
        if kind[0] == "tuple" and self.chance(0.7):
            names = [self.fresh() for _ in kind[1]]
            inner = [Part(n, k, lambda env, n=n: env[n]) for n, k in zip(names, kind[1])]
            bind = lambda env, v: {**env, **dict(zip(names, v))}
            head = f"({', '.join(names)})"
        else:
            name = self.fresh()
            inner = [Part(name, kind, lambda env: env[name])]
            bind = lambda env, v: {**env, name: v}
            head = name
        outer = scope if self.chance(0.6) else []
        made = body(inner + outer)
        return f"{head} => {made.text}", made, lambda env: lambda v: made.value(bind(env, v))

    # ---- datasets
    def number(self, scope, value, low=0, high=4):
        """An argument: the literal, or inside a function perhaps something computed."""
        if scope and self.chance(0.35):
            a = self.integer(scope, 1)
            k = self.r.randint(2, 4)
            base = low if self.chance(0.9) else low - 1
            if self.chance(0.1):
                return Part(a.text, INT, lambda env: a.value(env).data[0])
            text = f"abs({a.text}) % {k}" + (f" + {base}" if base > 0 else f" - {-base}" if base < 0 else "")
            return Part(text, INT, lambda env: abs(a.value(env).data[0]) % k + base
                        if a.value(env).data[0] != -1 << 63 else self.too_long())
        return Part(str(value), INT, lambda env: value)

    @staticmethod
    def too_long():
        raise TooLong

    def source(self, scope):
        what = self.r.random()
        inner = self.atoms(scope, lambda k: k[0] == "dataset")
        if inner and what < 0.7:
            return self.r.choice(inner)
        if scope and what < 0.2:
            shaped = self.atoms(scope, lambda k: k[0] == "leaf" and k[2])
            if shaped:
                a = self.r.choice(shaped)
                return Part(f"from_tensor_slices({a.text})", ("dataset", drop_axis(a.kind)),
                            lambda env: model.slices(a.value(env)))
        place = self.place(scope)
        if scope and what < 0.35:
            a = self.result(scope, 0)
            return Part(f"from_tensors({a.text})", ("dataset", a.kind),
                        lambda env: model.from_list([a.value(env)]))
        if what < 0.6 or scope and what < 0.8:
            if self.chance(0.4):
                a, b, c = self.r.randint(-5, 5), self.r.randint(2, 14), self.r.choice([1, 1, 2, 3, -1, -2])
                if c < 0:
                    a, b = b, a
                a = self.number(scope, a)
                b = self.number(scope, b)
                return Part(f"range({a.text}, {b.text}, {c})", ("dataset", INT),
                            lambda env: model.source_range(a.value(env), b.value(env), c, place))
            n = self.number(scope, self.r.choice([0, 1, 2, 3, 4, 5, 6, 7, 9, 13]) if not scope else self.r.randint(0, 5))
            return Part(f"range({n.text})", ("dataset", INT), lambda env: model.source_range(0, n.value(env), 1, place))
        if what < 0.62:
            a, b = self.r.randint(-2, 4), self.r.choice([1, 2, -1])
            return Part(f"counter({a}, {b})", ("dataset", INT), lambda env: model.source_counter(a, b, place))
        if what < 0.64:
            seed, again = self.r.choice([0, 1, -1, 42, 2147483648]), self.chance(0.3)
            text = f"random(seed={seed}{', rerandomize_each_iteration=true' if again else ''})"
            return Part(text, ("dataset", INT), lambda env: model.source_random(seed, again, place))
        if what < 0.66 and not scope:
            a, b, n = self.r.randint(-2, 4), self.r.choice([1, 2, -1]), self.r.randint(0, 9)
            return Part(f"counter({a}, {b}).take({n})", ("dataset", INT),
                        lambda env: model.taken(model.source_counter(a, b, place), n))
        rows = self.r.choice([1, 1, 2, 3, 4, 5, 6, 8, 9, 12])
        kinds = [leaf(self.r.choice(["int64", "int64", "float32", "string", "bool"]),
                      self.r.choice([(), (), (2,), (3,), (1, 2)])) for _ in range(self.r.choice([1, 1, 2, 3]))]
        named = self.chance(0.25)
        slices = self.chance(0.85)
        names = self.r.sample(["a", "b", "id", "label"], len(kinds))
        full = [self.constant(leaf(k[1], (rows,) + k[2] if slices else k[2])) for k in kinds]
        text = ", ".join(f"{n}={p.text}" if named else p.text for n, p in zip(names, full))

        def value(env):
            parts = [p.value(env) for p in full]
            whole = dict(zip(names, parts)) if named else tuple(parts) if len(parts) > 1 else parts[0]
            return model.slices(whole, place) if slices else model.from_list([whole], place)
        kind = ("record", dict(zip(names, kinds))) if named else ("tuple", kinds) if len(kinds) > 1 else kinds[0]
        return Part(f"{'from_tensor_slices' if slices else 'from_tensors'}({text})", ("dataset", kind), value)

    def dataset(self, scope, ops):
        self.depth += 1
        if not scope and self.depth < 3 and self.chance(0.12):
            parts = [self.dataset(scope, ops // 2) for _ in range(self.r.randint(2, 3))]
            made = Part(f"zip({', '.join(p.text for p in parts)})",
                        ("dataset", ("tuple", [p.kind[1] for p in parts])),
                        lambda env: model.zipped([p.value(env) for p in parts]))
        elif not scope and self.depth < 3 and self.chance(0.15):
            made = self.served()
        else:
            made = self.source(scope)
        if self.depth < 4 and self.chance(0.08):
            made = self.selection(scope, made)
        for _ in range(ops):
            made = self.method(made, scope)
        self.depth -= 1
        return made

    def served(self):
        """A graph that runs as streams of a service, each with its part of the elements at the cut."""
        places, self.places = self.places, 0  # the streams number their source by themselves
        below = self.source([])
        self.places = places + 1
        if self.chance(0.4):
            whole = self.one_of(below, self.r.choice([STOPS, PASSES]))
            stopped = self.one_of(whole, STOPS)
            below = stopped if stopped is not whole else below
        n, block = self.r.randint(1, 3), self.r.choice([1, 1, 2, 3])

        def part(env):
            whole = below.value(env)
            return model.sharded(whole, n, env["stream"], own_errors=True) if "stream" in env else whole
        made = Part(below.text, below.kind, part)
        for _ in range(self.r.choice([0, 1, 1, 2])):
            made = self.one_of(made, PASSES)
        if not plain(made.kind[1]):  # it cannot be sent, and its source has the number of a stream's
            self.places = places
            return self.source([])
        options = f", block_length={block}" if block > 1 else ""
        return Part(f'{made.text}.distribute("local", streams={n}{options})', made.kind, lambda env: model.distributed(
            made.value({}).card, [made.value({"stream": s}) for s in range(n)], block))

    def one_of(self, d, names):
        """d with one more op of these; d where none fits."""
        for _ in range(20):
            name = self.r.choice(names)
            made = getattr(self, "op_" + name)(d, [], d.kind[1])
            if made and (name != "repeat" or "take" not in made[0]):
                text, kind, value = made
                return Part(f"{d.text}.{text}", ("dataset", kind), value)
        return d

    def alike(self, scope, kind):
        """A dataset of the given types."""
        n, name, place = self.r.randint(0, 5), self.fresh(), self.place(scope)
        if kind == INT:
            a = self.r.randint(-2, 3)
            return Part(f"range({a}, {a + n})", ("dataset", kind), lambda env: model.source_range(a, a + n, 1, place))
        other = self.constant(kind)
        return Part(f"range({n}).map({name} => {other.text})", ("dataset", other.kind), lambda env: model.map_leaves(
            model.source_range(0, n, 1, place), lambda v: other.value(env)))

    def selection(self, scope, first):
        """One of several datasets at a time."""
        kind = first.kind[1]
        if not plain(kind) or any(k[1] == "float64" or 0 in k[2] for k in kind_leaves(kind)):
            return first
        parts = [first] + [self.alike(scope, kind) for _ in range(self.r.randint(0, 2))]
        for part in parts[1:]:
            kind = common(kind, part.kind[1])
        text, stop = "[" + ", ".join(p.text for p in parts) + "]", self.r.choice([None, True, False])
        tail = "" if stop is None else f", stop_on_empty_dataset={str(stop).lower()}"
        if self.chance(0.5):
            choice = self.alike(scope, INT)
            if self.chance(0.6):
                n, name, inner = len(parts), self.fresh(), choice
                choice = Part(f"{inner.text}.map({name} => {name} % {n})", inner.kind, lambda env: model.map_leaves(
                    inner.value(env), lambda v: model.elementwise("%", v, scalar("int64", n))))
            return Part(f"choose_from_datasets({text}, {choice.text}{tail})", ("dataset", kind), lambda env: model.chosen(
                [p.value(env) for p in parts], choice.value(env), stop is not False))
        seed, again = self.r.choice([0, 7, -1, 42]), self.chance(0.2)
        if self.chance(0.4):
            return self.mixture(parts, kind, seed)
        weights = [self.r.choice([0.0, 0.5, 1.0, 3.0, 0.1]) for _ in parts] if self.chance(0.5) else None
        text += f", weights={weights}" if weights else ""
        text += f", seed={seed}{tail}" + (", rerandomize_each_iteration=true" if again else "")
        return Part(f"sample_from_datasets({text})", ("dataset", kind), lambda env: model.sampled(
            [p.value(env) for p in parts], weights, seed, stop is True, again))

    def mixture(self, parts, kind, seed):
        names, stop = ["web", "code", "a b"][:len(parts)], self.r.choice([None, "first", "all", "repeat"])
        weights = [self.r.choice([0.5, 1.0, 3.0, 0.1]) for _ in parts] if self.chance(0.5) else None
        text = ", ".join(f'"{n}": {p.text}' for n, p in zip(names, parts))
        given = ", ".join(f'"{n}": {w}' for n, w in zip(names, weights or []))
        tail = (f", weights={{{given}}}" if weights else "") + (f', stop="{stop}"' if stop else "")
        return Part(f"mix({{{text}}}, seed={seed}{tail})", ("dataset", kind), lambda env: model.mixed(
            [p.value(env) for p in parts], weights, seed, stop or "first"))

    def opened_again(self):
        """A shuffle or a cache that is opened again and again below an op that may end early, and is itself opened
        again: what is pulled and not used must not count. Nothing in between reads ahead."""
        d = self.dataset([], self.r.choice([0, 0, 1]))
        for names in (["shuffle", "shuffle", "cache"], ["repeat"], BETWEEN, BETWEEN, EARLY, ABOVE, ["repeat"]):
            for _ in range(self.r.choice([1, 1, 1, 0] if names in (BETWEEN, ABOVE) else [1])):
                d = self.method(d, [], names)
        return d

    def method(self, d, scope, names=None):
        """One more op after d; ops that do not fit its type are drawn again, from all in the end."""
        for tries in itertools.count():
            name = self.r.choice(names if names and tries < 20 else METHODS)
            made = getattr(self, "op_" + name)(d, scope, d.kind[1])
            if made:
                text, kind, value = made
                return Part(f"{d.text}.{text}", ("dataset", kind), value)

    def op_map(self, d, scope, kind):
        if self.chance(0.12) and self.depth < 3:
            text, made, call = self.function(kind, scope, lambda s: self.dataset(s, self.r.randint(0, 2)))
        elif not plain(kind):
            return None
        elif self.chance(0.25):
            k, c = self.r.choice([6, 10, 12, 100]), self.r.randint(0, 5)

            def body(s):
                a = self.integer(s, 0)
                return Part(f"{k} // ({a.text} - {c})", INT, lambda env: model.elementwise(
                    "//", scalar("int64", k), model.elementwise("-", a.value(env), scalar("int64", c))))
            text, made, call = self.function(kind, scope, body)
        else:
            text, made, call = self.function(kind, scope, self.result)
        calls = self.r.choice(["", "", "", ", num_parallel_calls=3", ", num_parallel_calls=auto"])
        return f"map({text}{calls})", made.kind, lambda env: model.map_leaves(d.value(env), call(env))

    def op_filter(self, d, scope, kind):
        text, _made, call = self.function(kind, scope, self.boolean)
        return f"filter({text})", kind, lambda env: model.filtered(d.value(env), call(env))

    def op_take_while(self, d, scope, kind):
        text, _made, call = self.function(kind, scope, self.boolean)
        return f"take_while({text})", kind, lambda env: model.taken_while(d.value(env), call(env))

    def op_unique(self, d, scope, kind):
        if kind[0] != "leaf" or kind[1] not in ("int64", "string"):
            return None
        return "unique()", kind, lambda env: model.distinct(d.value(env))

    def op_scan(self, d, scope, kind):
        if not plain(kind):
            return None
        state = self.r.choice([INT, INT, INT, leaf("int64", (2,)), ("tuple", [INT, leaf("string")])])
        first = self.integer(scope, 1) if state == INT and scope and self.chance(0.5) else self.constant(state)

        def step(inner):
            held = next(p for p in self.atoms(inner, lambda k: True) if p.kind == state)
            if state == INT:
                next_state = self.integer(inner)
            elif state[0] == "leaf":
                a, op = self.integer(inner, 1), self.r.choice(["+", "-", "*"])
                next_state = Part(f"({held.text} {op} {a.text})", state,
                                  lambda env: model.elementwise(op, held.value(env), a.value(env)))
            else:
                a = self.integer(inner, 1)
                text, v = self.literal("string", ())
                next_state = Part(f"({a.text}, {held.text}[1] + {text})", state, lambda env: (
                    a.value(env), model.elementwise("+", held.value(env)[1], Tensor("string", (), v))))
            out = self.result(inner, 1)
            return Part(f"({next_state.text}, {out.text})", ("tuple", [state, out.kind]),
                        lambda env: (next_state.value(env), out.value(env)))
        text, made, call = self.function(("tuple", [state, kind]), scope, step)
        return f"scan({first.text}, {text})", made.kind[1][1], lambda env: model.scanned(
            d.value(env), first.value(env), call(env))

    def op_group_by_window(self, d, scope, kind):
        if not plain(kind) or self.depth > 2:
            return None
        n = self.r.randint(1, 4)

        def key(inner):
            a = self.integer(inner, 1)
            if self.chance(0.15):
                return a
            return Part(f"({a.text} % {n})", INT, lambda env: model.elementwise("%", a.value(env), scalar("int64", n)))
        key_text, _made, key_call = self.function(kind, scope, key)
        pair = ("tuple", [INT, ("dataset", kind)])
        text, made, call = self.function(pair, scope, lambda s: self.dataset(s, self.r.choice([0, 1, 1, 2])))
        size = self.number(scope, self.r.choice([1, 2, 3, 3, 5, 9]), 1)
        size_text, size_of = size.text, lambda env: (lambda n: lambda key: n)(size.value(env))
        if self.chance(0.3):
            size_text, _made, size_call = self.function(INT, scope, lambda s: self.number(s, 2, 1))
            size_of = lambda env: lambda key: self.plain_number(size_call(env)(scalar("int64", key)))
        return f"group_by_window({key_text}, {text}, {size_text})", made.kind[1], lambda env: model.grouped(
            d.value(env), key_call(env), call(env), size_of(env))

    @staticmethod
    def plain_number(v):
        return v.data[0] if isinstance(v, Tensor) else v

    def op_bucket_by_sequence_length(self, d, scope, kind):
        if not plain(kind):
            return None
        bounds = sorted(self.r.randint(-1, 6) for _ in range(self.r.randint(0, 3)))
        sizes = [self.r.randint(1, 4) for _ in range(len(bounds) + 1)]
        text, _made, call = self.function(kind, scope, lambda s: self.integer(s, 1))
        drop = self.chance(0.2)
        return (f"bucket_by_sequence_length({text}, {bounds}, {sizes}{', drop_remainder=true' if drop else ''})",
                add_axis(kind, None), lambda env: model.bucketed(d.value(env), call(env), bounds, sizes, drop))

    def inner(self, scope):
        return self.dataset(scope, self.r.choice([0, 0, 1, 1, 2]))

    def op_flat_map(self, d, scope, kind):
        if self.depth > 3:
            return None
        text, made, call = self.function(kind, scope, self.inner)
        return f"flat_map({text})", made.kind[1], lambda env: model.interleaved(d.value(env), call(env), 1, 1)

    def op_interleave(self, d, scope, kind):
        if self.depth > 3:
            return None
        text, made, call = self.function(kind, scope, self.inner)
        cycle = self.r.choice([None, 1, 2, 3, 4, 5])
        block = self.r.choice([None, 1, 2, 3])
        calls = self.r.choice([None, None, "auto", 1])
        for name, v in (("cycle_length", cycle), ("block_length", block), ("num_parallel_calls", calls)):
            text += f", {name}={v}" if v else ""
        return f"interleave({text})", made.kind[1], lambda env: model.interleaved(
            d.value(env), call(env), cycle or 16, block or 1, calls is not None)

    def op_batch(self, d, scope, kind):
        if not plain(kind):
            return None
        n, drop = self.r.choice([1, 2, 3, 4, 7]), self.chance(0.3)
        size = self.number(scope, n, 1)
        known = n if drop and size.text == str(n) else None
        return f"batch({size.text}{', drop_remainder=true' if drop else ''})", add_axis(kind, known), \
            lambda env: model.batched(d.value(env), size.value(env), drop, model.stack)

    def op_padded_batch(self, d, scope, kind):
        if not plain(kind):
            return None
        n, drop = self.r.choice([1, 2, 3, 5]), self.chance(0.2)
        size = self.number(scope, n, 1)
        text = size.text + (", drop_remainder=true" if drop else "")
        fill = wanted = None
        parts = kind_leaves(kind)
        if kind == leaf("int64", kind[2] if kind[0] == "leaf" else ()) and self.chance(0.3):
            wanted = [None if self.chance(0.5) else max(0, (dim or 1) + self.r.randint(-1, 3)) for dim in kind[2]]
            self.wrong = self.wrong or not scope and any(
                w is not None and k is not None and w < k for w, k in zip(wanted, kind[2]))
            if scope and any(w is not None and k is not None and w < k for w, k in zip(wanted, kind[2])):
                return None
            text += f", padded_shapes=[{', '.join('none' if w is None else str(w) for w in wanted)}]"
        if all(k[1] == "int64" for k in parts) and self.chance(0.4):
            fill = -1
            text += ", padding_values=-1"
        known = n if drop and size.text == str(n) else None
        # Axes keep what is known of them, unless lengths (or none) are given.
        made = kind if wanted is None else leaf("int64", wanted)
        return f"padded_batch({text})", add_axis(made, known), lambda env: model.batched(
            d.value(env), size.value(env), drop, lambda values: model.stack_padded(values, fill, wanted))

    def op_ragged_batch(self, d, scope, kind):
        if not plain(kind):
            return None
        n, drop = self.r.choice([1, 2, 3, 4]), self.chance(0.2)
        size = self.number(scope, n, 1)
        kinds = [None in k[2] for k in kind_leaves(kind)]
        known = n if drop and size.text == str(n) else None
        made = map_kind(kind, lambda k: ("ragged",) if None in k[2] else leaf(k[1], (known,) + k[2]))
        return f"ragged_batch({size.text}{', drop_remainder=true' if drop else ''})", made, \
            lambda env: model.batched(d.value(env), size.value(env), drop, lambda v: model.stack_ragged(v, kinds))

    def shaped(self, kind):
        parts = kind_leaves(kind)
        if not plain(kind) or any(not k[2] for k in parts):
            return False
        return len({k[2][0] for k in parts} - {None}) < 2

    def op_unbatch(self, d, scope, kind):
        if plain(kind) and not scope and self.chance(0.1) and any(not k[2] for k in kind_leaves(kind)):
            self.wrong = True
            return "unbatch()", kind, d.value
        if not self.shaped(kind):
            return None
        rows = {k[2][0] for k in kind_leaves(kind)} - {None}
        axis = rows.pop() if rows else None
        return "unbatch()", drop_axis(kind), lambda env: model.unbatched(d.value(env), axis)

    def op_rebatch(self, d, scope, kind):
        if not self.shaped(kind):
            return None
        sizes = [self.r.randint(1, 4) for _ in range(self.r.randint(1, 3))]
        drop = self.chance(0.3)
        text = str(sizes[0]) if len(sizes) == 1 else str(sizes)
        rows = {k[2][0] for k in kind_leaves(kind)} - {None}
        even = drop or len(rows) == 1 and rows.pop() % sizes[0] == 0
        return f"rebatch({text}{', drop_remainder=true' if drop else ''})", add_axis(
            drop_axis(kind), sizes[0] if even and len(set(sizes)) == 1 else None), \
            lambda env: model.rebatched(d.value(env), sizes, drop)

    def op_shuffle(self, d, scope, kind):
        size = self.number(scope, self.r.choice([1, 2, 3, 5, 10, 100, -2]), 1)
        seed = self.r.choice([0, -1, 1, 42, 2147483648, self.r.randint(0, 10 ** 6)])
        again = self.chance(0.8)
        return f"shuffle({size.text}, seed={seed}{'' if again else ', reshuffle_each_iteration=false'})", kind, \
            lambda env: model.shuffled(d.value(env), size.value(env), seed, again)

    def op_repeat(self, d, scope, kind):
        if self.chance(0.05):
            return "repeat()", kind, lambda env: model.repeated(d.value(env), -1)
        if self.chance(0.1):
            n = self.r.randint(1, 25)
            return f"repeat().take({n})", kind, lambda env: model.taken(model.repeated(d.value(env), -1), n)
        n = self.number(scope, self.r.choice([0, 1, 1, 2, 2, 2, 2, 3, 3, 3]))
        return f"repeat({n.text})", kind, lambda env: model.repeated(d.value(env), n.value(env))

    def op_take(self, d, scope, kind):
        n = self.number(scope, self.r.choice([-1, -7, 0, 1, 2, 3, 4, 5, 6, 7, 9, 11]))
        return f"take({n.text})", kind, lambda env: model.taken(d.value(env), n.value(env))

    def op_skip(self, d, scope, kind):
        n = self.number(scope, self.r.choice([-1] + 3 * [0, 1, 1, 2, 3]))
        return f"skip({n.text})", kind, lambda env: model.skipped(d.value(env), n.value(env))

    def op_shard(self, d, scope, kind):
        n = self.r.randint(1, 4)
        i = self.number(scope, self.r.randrange(n))
        return f"shard({n}, {i.text})", kind, lambda env: model.sharded(d.value(env), n, i.value(env))

    def op_prefetch(self, d, scope, kind):
        return f"prefetch({self.r.choice(['0', '1', '2', 'auto'])})", kind, d.value

    def op_zip(self, d, scope, kind):
        if self.depth > 2:
            return None
        other = self.dataset(scope, self.r.randint(0, 2))
        return f"zip({other.text})", ("tuple", [kind, other.kind[1]]), \
            lambda env: model.zipped([d.value(env), other.value(env)])

    def op_concatenate(self, d, scope, kind):
        if not plain(kind):
            return None
        n, name = self.r.randint(0, 4), self.fresh()
        if any(k[1] == "float64" or 0 in k[2] for k in kind_leaves(kind)):
            return None
        other, place = self.constant(kind), self.place(scope)
        return f"concatenate(range({n}).map({name} => {other.text}))", common(kind, other.kind), \
            lambda env: model.concatenated(d.value(env), model.map_leaves(
                model.source_range(0, n, 1, place), lambda v: other.value(env)))

    def op_enumerate(self, d, scope, kind):
        start = self.r.choice([None, 5, -2])
        return f"enumerate({'' if start is None else f'start={start}'})", ("tuple", [INT, kind]), \
            lambda env: model.enumerated(d.value(env), start or 0)

    def op_window(self, d, scope, kind):
        if not plain(kind):
            return None
        size = self.number(scope, self.r.randint(1, 4), 1)
        shift = self.number(scope, self.r.randint(1, 5), 1) if self.chance(0.6) else size
        stride, drop = self.r.choice([1, 1, 1, 2, 3]), self.chance(0.3)
        text = size.text + (f", shift={shift.text}" if shift is not size else "")
        text += f", stride={stride}" if stride > 1 else ""
        text += ", drop_remainder=true" if drop else ""
        return f"window({text})", map_kind(kind, lambda k: ("dataset", k)), lambda env: model.windowed(
            d.value(env), size.value(env), shift.value(env), stride, drop)

    def op_cache(self, d, scope, kind):
        return "cache()", kind, lambda env: model.cached(d.value(env))

    def op_ignore_errors(self, d, scope, kind):
        return "ignore_errors()", kind, lambda env: model.without_errors(d.value(env))

    def op_assert_cardinality(self, d, scope, kind):
        if self.chance(0.6):
            return None
        n = self.r.randint(0, 8)
        return f"assert_cardinality({n})", kind, lambda env: model.asserted(d.value(env), n)

    def op_with_options(self, d, scope, kind):
        return "with_options(deterministic=true)", kind, d.value

    def op_wrong(self, d, scope, kind):
        """Something that cannot be built; a wrong number in a function only fails when it runs."""
        if self.chance(0.8):
            return None
        typed = ['repeat("x")', "zip(4)", "batch(2, nonsense=1)", "map(x => x and missing)", "take(1.5)",
                 'concatenate(from_tensors(("q", [[[1.5]]], true, 2, 1.5, "q")))', "filter(x => 3)", "nothing()"]
        text = self.r.choice(typed if scope else typed + ["batch(0)", "shard(5, 7)", "window(0)", "shuffle(0, seed=1)",
                                                         "prefetch(-2)", "interleave(x => range(2), cycle_length=0)"])
        self.wrong = True
        return text, kind, d.value


METHODS = [name[3:] for name in sorted(vars(Draw)) if name.startswith("op_")] + [
    "map", "map", "map", "flat_map", "interleave", "ignore_errors", "batch", "shuffle", "repeat", "take"]
BETWEEN = ["filter", "batch", "unbatch", "rebatch", "window", "flat_map", "shuffle", "unique", "skip", "shard", "take"]
# What a service cuts its graph below, and what it cuts it above.
PASSES = ["map", "filter", "flat_map", "interleave", "batch", "padded_batch", "unbatch", "rebatch", "group_by_window",
          "bucket_by_sequence_length", "shuffle", "repeat", "cache", "prefetch", "ignore_errors", "with_options"]
STOPS = ["take", "skip", "take_while", "unique", "scan", "enumerate", "shard"]
EARLY = ["zip", "zip", "take", "take_while"]
ABOVE = ["batch", "window", "flat_map", "unbatch"]


def draw_case(seed, number):
    """What should come out of a drawn expression, or None where the model gives up.

    events: (text, identities) of elements and errors, LINES of them at most; lines and exit: what the
    program prints, which ends at the first error.
    """
    draw = Draw(f"{seed}/{number}")
    made = draw.opened_again() if draw.chance(0.2) else draw.dataset([], draw.r.choice([1, 2, 3, 4, 5, 6, 8]))
    if len(made.text) > 3000:
        return None
    case = {"expr": made.text, "lines": [], "events": [], "exit": 0, "ended": True, "more": False}
    if draw.wrong:
        case["exit"] = 2
        return case
    model.Steps.left = 20000
    # A position cannot be saved while an element is looked for that never comes.
    endless = any(word in made.text for word in ("counter(", "random(", "repeat()"))
    ahead = endless and ("prefetch" in made.text or "num_parallel_calls" in made.text)
    model.Steps.iterators = [] if ahead else None
    try:
        dataset = made.value({})
        case["cardinality"] = dataset.card
        for row in dataset.iterator():
            value = row if isinstance(row, Error) else model.realized(row.value)
            case["events"].append((model.event(value), () if value is row else row.ids))
            if not case["exit"]:
                try:
                    case["lines"].append(model.printed(value))
                except Error:
                    case["exit"] = 1
            if len(case["events"]) == LINES:
                case["more"] = True
                case["ended"] = case["exit"] == 1
                break
        if ahead:
            model.read_ahead()
    except Error:  # the graph itself cannot be made
        case["exit"] = 1
    except (TooLong, RecursionError, MemoryError):
        return None
    return case


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b


def show(program, case, extra):
    """(exit status, values, standard error); the status is a text where the output makes no sense"""
    try:
        run = subprocess.run([program, "show", *extra, case["expr"]], capture_output=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return "hangs", [], ""
    err = run.stderr.decode(errors="replace").strip()
    try:
        return run.returncode, [json.loads(line) for line in run.stdout.decode().splitlines()], err
    except ValueError:
        return "output is not JSON", [], err


def difference(case, lines, ends, got, how):
    status, values, err = got
    wanted = case["exit"] if ends else 0
    for i, (a, b) in enumerate(itertools.zip_longest(values, lines, fillvalue="(nothing)")):
        if not same(a, b):
            return (f"{how}: line {i + 1} is {json.dumps(a)[:300]} instead of {json.dumps(b)[:300]}, "
                    f"status {status} for {wanted} {err[:200]}")
    if status != wanted:
        return f"{how}: exit status {status} instead of {wanted}: {err[:300]}"
    return None


def compare(program, seed, number):
    """(case, None or what differs)"""
    case = draw_case(seed, number)
    if case is None:
        return None, None
    r = random.Random(f"{seed}/{number}/options")
    limit = ["--limit", str(LINES)]
    for _ in range(2):
        extra = ["--threads", str(r.choice([0, 1, 4])), "--block-rows", str(r.choice([1, 3, 1024]))]
        how = " ".join(extra)
        why = difference(case, case["lines"], case["ended"], show(program, case, extra + limit), how)
        if why:
            return case, why
    if case["exit"] == 2 or r.random() < 0.5:
        return case, None
    n = r.randint(0, len(case["lines"]) - (case["exit"] == 1 or not case["ended"]) if case["lines"] else 0)
    if n == len(case["lines"]) and case["exit"] == 1:
        return case, None
    with tempfile.TemporaryDirectory(prefix="millrace-oracle-") as folder:
        state = ["--state", os.path.join(folder, "state")]
        how += f" --save-after {n}"
        got = show(program, case, extra + ["--save-after", str(n)] + state)
        why = difference(case, case["lines"][:n], False, got, how)
        if not why:
            left = ["--limit", str(LINES - n)]
            got = show(program, case, extra + left + ["--restore", state[1]])
            why = difference(case, case["lines"][n:], case["ended"], got, how + ", then --restore")
    return case, why


def held_text(seed, number):
    """The case as held.c reads it; "" where the model gives up."""
    case = draw_case(seed, number)
    if case is None or case["exit"] == 1 and "cardinality" not in case:
        return ""
    text = case["expr"]
    loose = "cache(" in text
    lines = [f"case {number}"]
    if case["exit"] == 2:
        lines.append("wrong")
    else:
        lines.append(f"cardinality {case['cardinality']}")
    if loose:
        lines.append("loose")
    for text, ids in case["events"]:
        if ids:
            lines.append("ids " + " ".join(
                f"{'?' if p is None else p}:{f}:{n}:{ANY_EPOCH if loose else e}" for p, f, n, e in ids))
        lines.append("event " + text)
    if case["more"]:
        lines.append("more")
    lines.append("graph " + case["expr"])
    return "".join(line + "\n" for line in lines)


def held(program, seed, numbers):
    """(cases run, KiB of the one that used most, [(number, what differs)]) of one process for many cases"""
    texts = [held_text(seed, number) for number in numbers]
    run = subprocess.run([program], input="".join(texts).encode(), capture_output=True, check=False)
    last, done, most, bad = None, 0, 0, []
    for line in run.stdout.decode(errors="replace").splitlines():
        word, _, rest = line.partition(" ")
        if word == "start":
            last = int(rest)
        elif word == "FAIL":
            number, _, why = rest.partition(": ")
            bad.append((int(number), why))
        elif word == "most":
            most = int(rest.split()[0])
        done += word in ("ok", "FAIL")
    if run.returncode not in (0, 1):
        bad.append((last, f"the process ended with {run.returncode}: {run.stderr.decode(errors='replace')[-2000:]}"))
    return done, most, bad


def hold_all(pool, options, tap):
    """Everything at once, many graphs to a process."""
    numbers = range(options.held_cases) if options.only is None else [options.only]
    parts = [numbers[i:i + 100] for i in range(0, len(numbers), 100)]
    done = failed = most = 0
    program = os.path.abspath(options.held)
    todo = pool.map(held, itertools.repeat(program), itertools.repeat(options.seed), parts)
    for part, (n, kib, bad) in zip(parts, todo):
        done += n
        most = max(most, kib)
        failed += len(bad)
        for number, why in bad:
            print(f"FAIL --seed {options.seed} --only {number} held: {why}\n     {draw_case(options.seed, number)['expr']}",
                  flush=True)
        print("not ok" if bad else "ok", f"- oracle::held {part[0]} and on", file=tap)
    print(f"{done} graphs held, {failed} other, {most} KiB in use at most")
    return failed


def main():
    parser = argparse.ArgumentParser(description="Compares the program with a second implementation.")
    parser.add_argument("program")
    parser.add_argument("--cases", type=int,
                        default=3000 if os.environ.get("MR_TEST_TIER") == "long" else 300)
    parser.add_argument("--held", help="the program of held.c, which runs many graphs in one process")
    parser.add_argument("--held-cases", type=int,
                        default=20000 if os.environ.get("MR_TEST_TIER") == "long" else 400)
    parser.add_argument("--seed", default=os.environ.get("MR_TEST_SEED", "1"))
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--only", type=int, help="this case of the seed and no other")
    options = parser.parse_args()
    sys.setrecursionlimit(5000)
    program = os.path.abspath(options.program)
    numbers = range(options.cases) if options.only is None else [options.only]
    counts = {"same": 0, "other": 0, "not drawn": 0}
    worst = {}
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        todo = pool.map(compare, itertools.repeat(program), itertools.repeat(options.seed), numbers, chunksize=10)
        for number, (case, why) in zip(numbers, todo):
            counts["not drawn" if case is None else "other" if why else "same"] += 1
            worst.setdefault(number // 100, 0)
            if why:
                worst[number // 100] += 1
                print(f"FAIL --seed {options.seed} --only {number}: {case['expr']}\n     {why}", flush=True)
            elif options.only is not None:
                print(json.dumps(case))
        with open(os.environ.get("TAP_FILE", os.devnull), "w", encoding="utf-8") as tap:
            for group, failed in worst.items():
                print("not ok" if failed else "ok", f"- oracle::cases {100 * group} and on", file=tap)
            bad = hold_all(pool, options, tap) if options.held else 0
    print(", ".join(f"{n} {what}" for what, n in counts.items()))
    return 1 if counts["other"] or bad else 0


if __name__ == "__main__":
    sys.exit(main())
