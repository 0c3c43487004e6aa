# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""Recording: the text that each function becomes, its values, and the line that the error names for
what cannot be recorded."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import linecache
import math
import random
import statistics
import unittest
import warnings
from collections import namedtuple
from typing import Any

import numpy as np

import kit
import millrace as mr
from millrace import _trace, fn

translate = kit.load("python/translate.py")

# ---- what elements the functions get ----

F32, F64, I64, U8 = np.float32, np.float64, np.int64, np.uint8
I = [I64(3), I64(0), I64(-2)]
F = [F32(0.5), F32(-2.25)]
V = [np.array([3, 1, 2]), np.array([5, 4, -6])]
M = [np.array([[1.5, -2.0, 3.25], [0.5, 4.0, -1.0]], F32)]
D = [np.array([0.25, 8.0])]
B = [np.array([True, False, True]), np.array([False, False, True])]
C = [np.array([7, 200, 255], U8)]
P = [(I64(2), np.array([1, 2, 3])), (I64(-1), np.array([4, 5, 6]))]
R = [{"image": np.arange(12, dtype=U8).reshape(2, 2, 3), "label": I64(4)}]
S = [b"Some text, here", b"a\xff"]
T = [np.array([[1, 2, 3], [4, 5, 6]])]
NAMES = {id(v): k for k, v in list(globals().items()) if k.isupper() and len(k) == 1}


def dataset_of(elements: list[Any]) -> mr.Dataset:
    """A dataset of these elements."""
    first = elements[0]
    if isinstance(first, tuple):
        return mr.from_tensor_slices(tuple(np.stack([e[i] for e in elements]) for i in range(len(first))))
    if isinstance(first, dict):
        return mr.from_tensor_slices({k: np.stack([e[k] for e in elements]) for k in first})
    if isinstance(first, bytes):
        return mr.from_tensor_slices(np.array(elements, dtype=object))
    return mr.from_tensor_slices(np.stack(elements))


# ---- closures and helpers ----

SCALE = 3
RATE = 0.1
NAME = "label"
TABLE = [10, 20, 30, 40]
WEIGHTS = np.array([1, 2, 3])
MEANS = np.array([0.1, 2.5, -1.0], F32)
EXACT = np.array([0.1, 0.2])
SMALL = np.array([1, -2, 3], np.int8)
WORDS = np.array(["a", "b\n"])
Point = namedtuple("Point", "x y")
OPTIONS = {"axis": 0}


def double(x: Any) -> Any:
    return x * 2


def polynomial(x: Any, *coefficients: Any) -> Any:
    out: Any = 0
    for c in coefficients:
        out = out * x + c
    return out


def double_and_add(a: Any, *, b: int) -> Any:
    return a * 2 + b


def split(e: Any) -> Any:
    image, label = e["image"], e["label"]
    return {"x": image / 255, "y": label}


class Normalizer:
    def __init__(self, mean: float) -> None:
        self.mean = mean

    def __call__(self, x: Any) -> Any:
        return x - self.mean

    def method(self, x: Any) -> Any:
        return x + self.mean


def scoped(x: Any) -> Any:
    y = x + 1
    return mr.range(3).map(lambda x: x * y)


def deep(x: Any) -> Any:
    return mr.range(2).flat_map(lambda y: mr.range(2).map(lambda x: (x + y, x - y)))


def three(x: Any) -> Any:
    return mr.range(2).flat_map(lambda y: mr.range(y).map(lambda z: x + y + z))


SAME = "the same function of numpy's arrays"
# Elements, a function, its text, and how its values are checked: SAME, another function of numpy's
# arrays, or None: the values are only computed.
Row = tuple[list[Any], Any, str, Any]

OPERATORS: list[Row] = [
    (I, lambda x: x, "x => x", SAME),
    (I, lambda x: x + 1, "x => x + 1", SAME),
    (I, lambda x: 1 + x, "x => 1 + x", SAME),
    (I, lambda x: x - 1 - 2, "x => x - 1 - 2", SAME),
    (I, lambda x: x - (1 - x), "x => x - (1 - x)", SAME),
    (I, lambda x: 5 - x, "x => 5 - x", SAME),
    (I, lambda x: x * 2 + 1, "x => x * 2 + 1", SAME),
    (I, lambda x: (x + 2) * 2, "x => (x + 2) * 2", SAME),
    (I, lambda x: 2 * (x + 2), "x => 2 * (x + 2)", SAME),
    (I, lambda x: x / 4, "x => x / 4", SAME),
    (I, lambda x: x // 2, "x => x // 2", SAME),
    (I, lambda x: 7 // (x * x + 1), "x => 7 // (x * x + 1)", SAME),
    (I, lambda x: x % 2, "x => x % 2", SAME),
    (I, lambda x: 7 % (x * x + 1), "x => 7 % (x * x + 1)", SAME),
    (I, lambda x: x**2, "x => x ** 2", SAME),
    (I, lambda x: 2 ** (x + 3), "x => 2 ** (x + 3)", SAME),
    (F, lambda x: x**-1, "x => x ** -1", SAME),
    (I, lambda x: (-x) ** 2, "x => (-x) ** 2", SAME),
    (I, lambda x: -(x**2), "x => -x ** 2", SAME),
    (F, lambda x: (-2) ** (x / x), "x => (-2) ** (x / x)", SAME),
    (I, lambda x: -x, "x => -x", SAME),
    (I, lambda x: - -x, "x => --x", SAME),
    (I, lambda x: +x, "x => x", SAME),
    (I, lambda x: x - -1, "x => x - -1", SAME),
    (I, lambda x: abs(x), "x => abs(x)", SAME),
    (F, lambda x: round(x), "x => round(x)", lambda x: np.round(x)),
    (F, lambda x: round(x, 1), "x => round(x, decimals=1)", lambda x: np.round(x, 1)),
    (F, lambda x: math.floor(x), "x => floor(x)", lambda x: np.floor(x)),
    (F, lambda x: math.ceil(x), "x => ceil(x)", lambda x: np.ceil(x)),
    (I, lambda x: divmod(x, 2), "x => (x // 2, x % 2)", SAME),
    (I, lambda x: divmod(7, x * x + 1), "x => (7 // (x * x + 1), 7 % (x * x + 1))", SAME),
    (I, lambda x: x == 3, "x => x == 3", SAME),
    (I, lambda x: x != 3, "x => x != 3", SAME),
    (I, lambda x: x < 3, "x => x < 3", SAME),
    (I, lambda x: 3 > x, "x => x < 3", SAME),
    (I, lambda x: x <= 0, "x => x <= 0", SAME),
    (I, lambda x: x >= x + 0, "x => x >= x + 0", SAME),
    (I, lambda x: (x > 0) & (x < 3), "x => x > 0 and x < 3", SAME),
    (I, lambda x: (x > 0) | (x < 3), "x => x > 0 or x < 3", SAME),
    (I, lambda x: ~(x > 0), "x => not x > 0", SAME),
    (I, lambda x: ~((x > 0) & (x < 3)), "x => not (x > 0 and x < 3)", SAME),
    (I, lambda x: ~(x > 0) | (x == 3), "x => not x > 0 or x == 3", SAME),
    (I, lambda x: ((x > 0) | (x < -1)) & (x != 3), "x => (x > 0 or x < -1) and x != 3", SAME),
    (I, lambda x: (x == 0) == (x < 1), "x => (x == 0) == (x < 1)", SAME),
    (B, lambda x: x & True, "x => x and true", SAME),
    (B, lambda x: False | x, "x => false or x", SAME),
    (B, lambda x: x ^ ~x, "x => x != (not x)", None),
    (I, lambda x: (x != 0) & (10 // x > 3), "x => x != 0 and 10 // x > 3", lambda x: x != 0 and 10 // x > 3),
    (M, lambda x: x @ x.T, "x => matmul(x, transpose(x))", SAME),
    (V, lambda x: [1, 0, 1] @ x, "x => matmul([1, 0, 1], x)", SAME),
    (S, lambda x: "<" + x + b">", 'x => "<" + x + ">"', lambda x: b"<" + x + b">"),
    (S, lambda x: x == "a\n\t\"\\", 'x => x == "a\\n\\t\\"\\\\"', lambda x: x == b'a\n\t"\\'),
    (S, lambda x: x != b"\xc3\xa9\xff\x00", 'x => x != "é\\xff\\x00"', lambda x: x != b"\xc3\xa9\xff\x00"),
]

LITERALS: list[Row] = [
    (F, lambda x: x * 2, "x => x * 2", SAME),
    (F, lambda x: x * 0.1, "x => x * 0.1", SAME),
    (F, lambda x: x + 1e-7, "x => x + 1e-7", SAME),
    (F, lambda x: x + 0.00001, "x => x + 0.00001", SAME),
    (F, lambda x: x + 1e16, "x => x + 1e16", SAME),
    (F, lambda x: x + 123456.75, "x => x + 123456.75", SAME),
    (F, lambda x: x * -0.5, "x => x * -0.5", SAME),
    (F, lambda x: x < float("inf"), "x => x < 1e999", SAME),
    (F, lambda x: x > float("-inf"), "x => x > -1e999", SAME),
    (F, lambda x: x + float("nan"), "x => x + (1e999 - 1e999)", SAME),
    (I, lambda x: (x, 1.5, True, "a", None or 2), 'x => (x, 1.5, true, "a", 2)', None),
    (I, lambda x: x + 2**40, "x => x + 1099511627776", SAME),
    (I, lambda x: -(2**63) + x * 0, "x => -9223372036854775808 + x * 0", SAME),
    (I, lambda x: 7, "x => 7", SAME),
    (I, lambda x: [1, 2.5], "x => [1, 2.5]", lambda x: np.array([1, 2.5], F32)),
    (I, lambda x: [], "x => []", lambda x: np.array([], F32)),
    (I, lambda x: [[x, 1], [2, x]], "x => [[x, 1], [2, x]]", SAME),
    (I, lambda x: x * SCALE, "x => x * 3", SAME),
    (F, lambda x: x * RATE, "x => x * 0.1", SAME),
    (V, lambda x: x * WEIGHTS, "x => x * [1, 2, 3]", SAME),
    (V, lambda x: WEIGHTS - x, "x => [1, 2, 3] - x", SAME),
    (M, lambda x: x - MEANS, "x => x - [0.1, 2.5, -1.0]", SAME),
    (D, lambda x: x + EXACT, "x => x + [0.1, 0.2]", SAME),
    (I, lambda x: (x, SMALL), 'x => (x, cast([1, -2, 3], "int8"))', SAME),
    (I, lambda x: (x, np.array([0.5, 2.0])), 'x => (x, cast([0.5, 2.0], "float64"))', SAME),
    (I, lambda x: (x, WORDS), 'x => (x, ["a", "b\\n"])', None),
    (I, lambda x: (x, np.zeros((0, 3), U8)), 'x => (x, zeros([0, 3], "uint8"))', SAME),
    (I, lambda x: (x, np.uint16(9)), 'x => (x, cast(9, "uint16"))', SAME),
    (I, lambda x: x + np.int64(9), "x => x + 9", SAME),
    (F, lambda x: x * np.float32(0.1), "x => x * 0.1", SAME),
    (C, lambda x: x + np.array([1, 0, 0], U8), "x => x + [1, 0, 0]", SAME),
    (I, lambda x: (x, np.array([2**63], np.uint64)), 'x => (x, decode_raw("\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80", "uint64"))', SAME),
    (I, lambda x: x + mr.fn.tensor([x, 1]) * 2, "x => x + [x, 1] * 2", lambda x: x + np.array([x, 1]) * 2),
]

STRUCTURES: list[Row] = [
    (P, lambda a, b: a + b, "(a, b) => a + b", SAME),
    (P, lambda pair: pair[0], "pair => pair[0]", SAME),
    (P, lambda pair: pair[-1][0], "pair => pair[-1][0]", SAME),
    (P, lambda pair: sum(pair), "pair => 0 + pair[0] + pair[1]", SAME),
    (P, lambda *parts: parts[1] - parts[0], "(parts0, parts1) => parts1 - parts0", SAME),
    (P, lambda a, b: (b, (a, a)), "(a, b) => (b, (a, a))", SAME),
    (P, lambda a, b: {"s": a, "t": [a, a]}, '(a, b) => {"s": a, "t": [a, a]}', SAME),
    (P, lambda a, b: (a,), "(a, b) => a", lambda a, b: a),
    (P, lambda a, b: Point(a, b), "(a, b) => (a, b)", SAME),
    (P, lambda x, k=3: x[0] * k, "x => x[0] * 3", SAME),
    (R, lambda e: e["label"], 'e => e["label"]', SAME),
    (R, lambda e: e[NAME] + 1, 'e => e["label"] + 1', SAME),
    (R, split, 'e => {"x": e["image"] / 255, "y": e["label"]}', None),
    (R, lambda e: {**e, "label": e["label"] * 2}, 'e => {"image": e["image"], "label": e["label"] * 2}', SAME),
    (R, lambda e: {k: v + 1 for k, v in e.items()}, 'e => {"image": e["image"] + 1, "label": e["label"] + 1}', SAME),
    (R, lambda e: tuple(e.values()), 'e => (e["image"], e["label"])', SAME),
    (R, lambda e: e["label"] if "label" in e else 0, 'e => e["label"]', SAME),
    (I, lambda none: none + 1, "none_ => none_ + 1", SAME),
    (I, double, "x => x * 2", SAME),
    (I, functools.partial(double_and_add, b=2), "a => a * 2 + 2", SAME),
    (I, lambda x: polynomial(x, 1, 2, 3), "x => ((0 * x + 1) * x + 2) * x + 3", SAME),
    (F, Normalizer(0.5), "x => x - 0.5", SAME),
    (F, Normalizer(0.5).method, "x => x + 0.5", SAME),
    (I, lambda x: functools.reduce(lambda a, b: a * 2 + b, [x, x, 1]), "x => (x * 2 + x) * 2 + 1", SAME),
]

INDEXING: list[Row] = [
    (V, lambda x: x[0], "x => x[0]", SAME),
    (V, lambda x: x[-1], "x => x[-1]", SAME),
    (V, lambda x: x[1:], "x => x[1:]", SAME),
    (V, lambda x: x[:-1], "x => x[:-1]", SAME),
    (V, lambda x: x[::-1], "x => x[::-1]", SAME),
    (V, lambda x: x[:], "x => x[:]", SAME),
    (M, lambda x: x[1, 2], "x => x[1, 2]", SAME),
    (M, lambda x: x[:, 1], "x => x[:, 1]", SAME),
    (M, lambda x: x[0:1, ::2], "x => x[0:1, ::2]", SAME),
    (M, lambda x: x[..., 0], "x => x[:, 0]", SAME),
    (M, lambda x: x[0, ...], "x => x[0]", SAME),
    (M, lambda x: x[None], "x => expand_dims(x, 0)", SAME),
    (M, lambda x: x[:, None], "x => expand_dims(x, 1)", SAME),
    (M, lambda x: x[0, None, 1:], "x => expand_dims(x[0, 1:], 0)", SAME),
    (V, lambda x: x[[2, 0]], "x => gather(x, [2, 0])", SAME),
    (V, lambda x: x[np.array([1, 1])], "x => gather(x, [1, 1])", SAME),
    (V, lambda x: x[x > 1], "x => gather(x, where(x > 1))", SAME),
    (P, lambda a, b: b[a], "(a, b) => b[a]", SAME),
    (P, lambda a, b: b[a : a + 1], "(a, b) => b[a:a + 1]", SAME),
    (P, lambda a, b: b[b % 3], "(a, b) => gather(b, b % 3)", SAME),
    (M, lambda x: x[0][1:] + x[1, 1:], "x => x[0][1:] + x[1, 1:]", SAME),
    (M, lambda x: (x + 1)[0], "x => (x + 1)[0]", SAME),
    (I, lambda x: mr.fn.tensor(TABLE)[x], "x => [10, 20, 30, 40][x]", lambda x: np.array(TABLE)[x]),
    (M, lambda x: x * x.shape[1], "x => x * 3", SAME),
    (M, lambda x: x.reshape([x.shape[0] * x.shape[1]]), "x => reshape(x, [6])", SAME),
    (M, lambda x: x + x.ndim + len(x), "x => x + 2 + 2", SAME),
    (C, lambda x: x if x.dtype == np.uint8 else x * 2, "x => x", SAME),
]

FUNCTIONS: list[Row] = [
    (F, lambda x: mr.fn.sqrt(mr.fn.abs(x)), "x => sqrt(abs(x))", lambda x: np.sqrt(np.abs(x))),
    (V, lambda x: x.sum(), "x => sum(x)", SAME),
    (M, lambda x: x.sum(axis=1, keepdims=True), "x => sum(x, axis=1, keepdims=true)", SAME),
    (V, lambda x: x.max() - x.min(), "x => max(x) - min(x)", SAME),
    (V, lambda x: x.max(2), "x => max(x, 2)", lambda x: np.maximum(x, 2)),
    (M, lambda x: x.transpose(1, 0), "x => transpose(x, [1, 0])", SAME),
    (M, lambda x: x.reshape(3, -1), "x => reshape(x, [3, -1])", SAME),
    (M, lambda x: x.reshape((6,)), "x => reshape(x, [6])", SAME),
    (I, lambda x: mr.fn.cast(x, mr.float32), "x => cast(x, float32)", lambda x: F32(x)),
    (I, lambda x: mr.fn.cast(x, "float32"), 'x => cast(x, "float32")', lambda x: F32(x)),
    (I, lambda x: x.astype(np.float32) * 0.5, "x => cast(x, float32) * 0.5", SAME),
    (I, lambda x: mr.fn.zeros([2, 3]) + mr.fn.ones((3,)), "x => zeros([2, 3]) + ones([3])", lambda x: np.ones((2, 3), F32)),
    (I, lambda x: mr.fn.one_hot(x, 4), "x => one_hot(x, 4)", None),
    (R, lambda e: e["image"].resize([1, 1], method="nearest"), 'e => resize(e["image"], [1, 1], method="nearest")', lambda e: e["image"][1:, 1:]),
    (R, lambda e: mr.fn.resize(e["image"], (1, 1), "area"), 'e => resize(e["image"], [1, 1], "area")', lambda e: e["image"].astype(F32).mean((0, 1), keepdims=True)),
    (R, lambda e: e["image"].normalize([1, 2, 3], stddev=[1.0, 1.0, 2.0]), 'e => normalize(e["image"], [1, 2, 3], stddev=[1.0, 1.0, 2.0])', None),
    (V, lambda x: mr.fn.pad(x, [1, 2], constant_values=9), "x => pad(x, [1, 2], constant_values=9)", lambda x: np.pad(x, (1, 2), constant_values=9)),
    (V, lambda x: mr.fn.topk(x, 2)[1], "x => topk(x, 2)[1]", lambda x: np.argsort(-x, kind="stable")[:2]),
    (V, lambda x: [*mr.fn.topk(x, 1)], "x => [topk(x, 1)[0], topk(x, 1)[1]]", None),
    (S, lambda x: x.split(",", maxsplit=1)[0].upper(), 'x => upper(split(x, ",", maxsplit=1)[0])', lambda x: x.split(b",")[0].upper()),
    (S, lambda x: mr.fn.length(x), "x => length(x)", lambda x: I64(len(x))),
    (S, lambda x: mr.fn.regex_replace(x, "[a-z]", r"<\0>", global_=False), 'x => regex_replace(x, "[a-z]", "<\\\\0>", global=false)', None),
    (S, lambda x: mr.fn.format("{}!", x), 'x => format("{}!", x)', lambda x: x + b"!"),
    (S, lambda x: mr.fn.lookup(x, ["a", "b"], oov=2), 'x => lookup(x, ["a", "b"], oov=2)', None),
    (S, lambda x: x.decode_raw(mr.uint8)[0], "x => decode_raw(x, uint8)[0]", lambda x: U8(x[0])),
    (I, lambda x: mr.fn.random_uniform([2], seed=1) * 0, "x => random_uniform([2], seed=1) * 0", lambda x: np.zeros(2, F32)),
    (I, mr.fn.abs, "abs", lambda x: abs(x)),
    (I, lambda x: mr.fn.cond(x == 0, 0, 6 // x), "x => 0 if x == 0 else 6 // x", lambda x: I64(0) if x == 0 else 6 // x),
    (I, lambda x: mr.fn.cond(x > 0, lambda: x, lambda: -x) + 1, "x => (x if x > 0 else -x) + 1", lambda x: abs(x) + 1),
    (I, lambda x: mr.fn.cond(x > 0, mr.fn.cond(x > 2, 2, 1), 0), "x => (2 if x > 2 else 1) if x > 0 else 0", lambda x: np.clip(x, 0, 2)),
    (I, lambda x: mr.fn.cond(x > 0, 1, mr.fn.cond(x < 0, -1, 0)), "x => 1 if x > 0 else -1 if x < 0 else 0", lambda x: np.sign(x)),
    (I, lambda x: mr.fn.cond(x > 0, (x, {"a": 1}), (0, {"a": x}))[1], 'x => ((x, {"a": 1}) if x > 0 else (0, {"a": x}))[1]', lambda x: {"a": I64(1) if x > 0 else x}),
]

NUMPY: list[Row] = [
    (F, lambda x: np.sqrt(np.exp(x)), "x => sqrt(exp(x))", SAME),
    (F, lambda x: np.sin(x) ** 2 + np.cos(x) ** 2, "x => sin(x) ** 2 + cos(x) ** 2", SAME),
    (F, np.abs, "x => abs(x)", SAME),
    (F, lambda x: np.floor(x) + np.ceil(x) + np.rint(x), "x => floor(x) + ceil(x) + round(x)", SAME),
    (V, lambda x: np.add(1, x), "x => 1 + x", SAME),
    (V, lambda x: np.square(np.negative(x)), "x => (-x) ** 2", SAME),
    (V, lambda x: np.logical_and(x > 1, np.logical_not(x == 3)), "x => x > 1 and not x == 3", SAME),
    (V, lambda x: np.maximum(x, 2), "x => max(x, 2)", SAME),
    (V, lambda x: np.minimum(WEIGHTS, x), "x => min([1, 2, 3], x)", SAME),
    (M, lambda x: np.matmul(x, np.transpose(x)), "x => matmul(x, transpose(x))", SAME),
    (V, lambda x: np.where(x > 1, x, 0), "x => where(x > 1, x, 0)", SAME),
    (V, lambda x: np.where(x > 1)[0], "x => where(x > 1)", SAME),
    (V, lambda x: np.nonzero(x - 1)[0], "x => where(x - 1 != 0)", SAME),
    (V, lambda x: np.stack([x, x * 2]), "x => stack(x, x * 2)", SAME),
    (V, lambda x: np.stack([x, x * 2], axis=-1), "x => transpose(stack(x, x * 2), [1, 0])", SAME),
    (V, lambda x: np.concatenate([x, WEIGHTS]), "x => concat(x, [1, 2, 3])", SAME),
    (M, lambda x: np.concatenate((x, x), axis=1), "x => transpose(concat(transpose(x, [1, 0]), transpose(x, [1, 0])), [1, 0])", SAME),
    (M, lambda x: np.sum(x, axis=0), "x => sum(x, axis=0)", SAME),
    (C, lambda x: np.sum(x), 'x => sum(cast(x, "uint64"))', SAME),
    (V, lambda x: np.mean(x), 'x => mean(cast(x, "float64"))', SAME),
    (M, lambda x: np.mean(x, axis=-1, keepdims=True), "x => mean(x, axis=-1, keepdims=true)", SAME),
    (B, lambda x: np.sum(x), "x => count_nonzero(x)", SAME),
    (B, lambda x: np.any(x), "x => any(x)", SAME),
    (V, lambda x: np.amax(x) + np.argmin(x), "x => max(x) + argmin(x)", SAME),
    (V, lambda x: np.add.reduce(x), "x => sum(x, axis=0)", SAME),
    (M, lambda x: np.sort(x, axis=0), "x => sort(x, axis=0)", SAME),
    (M, lambda x: np.cumsum(x, axis=1), "x => cumsum(x, axis=1)", SAME),
    (M, lambda x: np.expand_dims(np.squeeze(x[:1]), 0), "x => expand_dims(squeeze(x[:1]), 0)", SAME),
    (M, lambda x: np.reshape(x, (3, 2)), "x => reshape(x, [3, 2])", SAME),
    (M, lambda x: np.ravel(x), "x => reshape(x, [-1])", SAME),
    (M, lambda x: np.take(x, [0, 2], axis=1), "x => gather(x, [0, 2], axis=1)", SAME),
    (V, lambda x: np.clip(x, 0, 3), "x => clip(x, 0, 3)", SAME),
    (V, lambda x: np.clip(x, None, 3), "x => min(x, 3)", SAME),
    (M, lambda x: np.round(x, 1), "x => round(x, decimals=1)", SAME),
    (V, lambda x: np.pad(x, (1, 2)), "x => pad(x, [1, 2])", SAME),
    (M, lambda x: np.pad(x, ((0, 1), (1, 0)), mode="edge"), 'x => pad(x, [[0, 1], [1, 0]], mode="edge")', SAME),
    (M, lambda x: np.linalg.norm(x, axis=1), "x => norm(x, axis=1)", SAME),
    (M, lambda x: np.dot(x, x.T), "x => matmul(x, transpose(x))", SAME),
    (M, lambda x: np.flip(x, axis=1), "x => x[:, ::-1]", SAME),
    (V, lambda x: np.unique(x % 2), "x => sort(unique_values(x % 2))", SAME),
    (M, lambda x: x + np.shape(x)[0] + np.ndim(x), "x => x + 2 + 2", SAME),
    (M, lambda x: x / np.size(x), "x => x / 6", SAME),
    (V, lambda x: np.size(x[x > 1]), "x => size(gather(x, where(x > 1)))", SAME),
    (M, lambda x: np.zeros_like(x) + 1, 'x => zeros([2, 3], "float32") + 1', SAME),
    (F, lambda x: np.isnan(x), "x => x != x", SAME),
]

DATASETS: list[Row] = [
    (I, lambda x: mr.range(x + 3).batch(2), "x => range(x + 3).batch(2)", None),
    (I, lambda x: mr.range(3).map(lambda y: x + y), "x => range(3).map(y => x + y)", None),
    (I, lambda x: mr.range(3).map(lambda x: x + 1), "x => range(3).map(x => x + 1)", None),
    (I, scoped, "x => range(3).map(x2 => x2 * (x + 1))", None),
    (I, deep, "x => range(2).flat_map(y => range(2).map(x => (x + y, x - y)))", None),
    (I, three, "x => range(2).flat_map(y => range(y).map(z => x + y + z))", None),
    (I, lambda x: (x, mr.from_tensors(x, x + 1).repeat(2)), "x => (x, from_tensors(x, x + 1).repeat(2))", None),
    (V, lambda x: mr.from_tensor_slices(x).filter(lambda v: v > x[0]), "x => from_tensor_slices(x).filter(v => v > x[0])", None),
    (I, lambda x: mr.range(4).scan(x, lambda s, y: (s + y, s)), "x => range(4).scan(x, (s, y) => (s + y, s))", None),
    (I, lambda x: mr.zip(mr.range(2), mr.range(x, x + 2)), "x => zip(range(2), range(x, x + 2))", None),
    (I, lambda x: mr.fn.cond(x > 0, mr.range(x), mr.range(1)), "x => range(x) if x > 0 else range(1)", None),
    (I, lambda x: mr.fn.cond(x > 0, mr.range(x), mr.range(1)).batch(2), "x => (range(x) if x > 0 else range(1)).batch(2)", None),
    (S, lambda f: mr.from_tensors(f.upper()).repeat(x := 2).take(x), "f => from_tensors(upper(f)).repeat(2).take(2)", None),
]

TABLES = {
    "operators": OPERATORS,
    "literals": LITERALS,
    "structures": STRUCTURES,
    "indexing": INDEXING,
    "functions": FUNCTIONS,
    "numpy": NUMPY,
    "datasets": DATASETS,
}


def place(function: Any) -> str:
    """Where a row of a table is."""
    code = getattr(function, "__code__", None)
    return f"line {code.co_firstlineno}" if code else repr(function)


class Texts(unittest.TestCase):
    def test_the_tables_have_150_rows(self) -> None:
        self.assertGreaterEqual(sum(map(len, TABLES.values())), 150)

    def same(self, got: Any, want: Any, where: str) -> None:
        if isinstance(want, dict):
            self.assertEqual(set(got), set(want), where)
            for k in want:
                self.same(got[k], want[k], where)
        elif isinstance(want, tuple):
            self.assertEqual(len(got), len(want), where)
            for a, b in zip(got, want, strict=True):
                self.same(a, b, where)
        elif isinstance(want, bytes):
            self.assertEqual(got, want, where)
        else:
            want = np.asarray(want)
            self.assertEqual(np.shape(got), want.shape, where)
            if isinstance(got, (np.ndarray, np.generic)) and want.dtype.kind != "O":
                self.assertEqual(got.dtype.kind, want.dtype.kind, where)
            np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=where)

    def check_row(self, elements: list[Any], function: Any, text: str, expected: Any) -> None:
        ds = dataset_of(elements)
        recorded = _trace.record(function, ds.element_spec)
        where = place(function)
        self.assertEqual(recorded.text, text, where)
        self.assertFalse(recorded.is_open, where)
        made = ds.map(function)  # the library reads the text, types it, and prints it again
        self.assertTrue(str(made).endswith(f".map({text})"), f"{where}: {str(made)[-300:]}")
        values = [v for v in made]
        self.assertEqual(len(values), len(elements), where)
        if expected is None:
            return
        for got, element in zip(values, elements, strict=True):
            f = function if expected is SAME else expected
            one = not isinstance(element, tuple) or len(inspect.signature(f).parameters) == 1 and "*" not in str(inspect.signature(f))
            if isinstance(element, tuple) and "k=3" in str(inspect.signature(f)):
                one = True
            with np.errstate(all="ignore"):
                self.same(got, f(element) if one else f(*element), where)

    def check_table(self, name: str) -> None:
        for elements, function, text, expected in TABLES[name]:
            with self.subTest(text=text, line=place(function)):
                self.check_row(elements, function, text, expected)

    def test_operators(self) -> None:
        self.check_table("operators")

    def test_literals_and_constants(self) -> None:
        self.check_table("literals")

    def test_structures_and_closures(self) -> None:
        self.check_table("structures")

    def test_indices_ranges_and_shapes(self) -> None:
        self.check_table("indexing")

    def test_functions_and_methods(self) -> None:
        self.check_table("functions")

    def test_functions_of_numpy(self) -> None:
        self.check_table("numpy")

    def test_datasets_within_functions(self) -> None:
        self.check_table("datasets")


# ---- what cannot be recorded ----


def if_else(x: Any) -> Any:
    if x > 0:  # here
        return x
    return -x


def while_loop(x: Any) -> Any:
    while x < 10:  # here
        x = x * 2
    return x


def for_loop(x: Any) -> Any:
    total = 0
    for v in x:  # here
        total = total + v
    return total


def helper(x: Any) -> Any:
    y = x + 1
    return int(y)  # here


def calls_helper(x: Any) -> Any:
    return helper(x) + 1


def in_place(x: Any) -> Any:
    x[0] = 1  # here
    return x


def delete(x: Any) -> Any:
    del x[0]  # here
    return x


def attribute(x: Any) -> Any:
    x.size_hint = 3  # here
    return x


def unpack(x: Any) -> Any:
    a, b, c = x  # here
    return a + b + c


def with_block(x: Any) -> Any:
    with x:  # here
        return x


def asserts(x: Any) -> Any:
    assert x > 0  # here
    return x


def comprehension(x: Any) -> Any:
    return [  # here
        v * 2
        for v in x
    ]


def matched(x: Any) -> Any:
    match x:
        case 3:  # here
            return 0
    return x


def no_return(x: Any) -> Any:  # here
    x + 1


def twice(x: Any) -> Any:  # here
    r = mr.fn.random_uniform()
    return r * x.astype("float32"), r


def draws_outside(x: Any) -> Any:
    r = mr.fn.random_int(0, 5)
    return mr.range(3).map(lambda y: y + r)  # here


async def coroutine(x: Any) -> Any:  # here
    return x


def generator(x: Any) -> Any:  # here
    yield x


@functools.cache
def cached(x: Any) -> Any:
    return x + 1


def doubled(x: Any) -> Any:
    for _ in range(40):
        x = x + x  # here
    return x


def nested_deep(x: Any) -> Any:
    for _ in range(2000):
        x = x + 1  # here
    return x


class relu:
    """A name for what torch's functions call with arguments of other types."""


ONE: list[Any] = []
PAIRS = {1: "a"}
Refused = tuple[list[Any], Any, str]

REFUSED: list[Refused] = [
    (I, if_else, "mr.fn.cond"),
    (I, while_loop, "map_py"),
    (V, for_loop, "iterated"),
    (I, calls_helper, "mr.fn.cast"),
    (V, in_place, "in place"),
    (V, delete, "in place"),
    (V, attribute, "in place"),
    (V, unpack, "unpacked"),
    (I, with_block, "with"),
    (I, asserts, "neither true nor false"),
    (V, comprehension, "iterated"),
    (I, matched, "neither true nor false"),
    (I, no_return, "return"),
    (I, twice, "more than once"),
    (I, draws_outside, "within the one that draws it"),
    (I, doubled, "several times"),
    (I, nested_deep, "1000 levels"),
    (I, coroutine, "map_py"),
    (I, generator, "flat_map_py"),
    (I, lambda x: x if x > 0 else -x, "mr.fn.cond"),
    (I, lambda x: x > 0 and x < 3, "& | ~"),
    (I, lambda x: x > 0 or x < 3, "& | ~"),
    (I, lambda x: not x > 0, "& | ~"),
    (I, lambda x: 0 < x < 3, "chained"),
    (I, lambda x: bool(x), "neither true nor false"),
    (I, lambda x: int(x), "mr.fn.cast(x, mr.int64)"),
    (F, lambda x: float(x), "mr.fn.cast(x, mr.float32)"),
    (F, lambda x: complex(x), "complex"),
    (F, lambda x: math.sqrt(x), "mr.fn.sqrt"),
    (F, lambda x: math.trunc(x), "mr.fn.cast"),
    (F, lambda x: statistics.mean([x, 1]), "map_py"),
    (I, lambda x: max(x, 1), "min, max"),
    (I, lambda x: sorted([x, 1]), "sorted"),
    (I, lambda x: any([x > 0]), "any"),
    (I, lambda x: range(x), "mr.range"),
    (I, lambda x: [1, 2, 3][x], "mr.fn.gather"),
    (I, lambda x: PAIRS[x], "mr.fn.lookup"),
    (I, lambda x: {x}, "dict or a set"),
    (I, lambda x: x in [1, 2], "`in`"),
    (I, lambda x: 1 in x, "`in`"),
    (I, lambda x: cached(x), "dict or a set"),
    (I, lambda x: str(x), "mr.fn.format"),
    (I, lambda x: f"{x}", "mr.fn.format"),
    (I, lambda x: "%d" % x, "map_py"),
    (S, lambda x: "-".join([x, x]), "cannot be recorded"),
    (I, lambda x: bytes(x), "bytes"),
    (V, lambda x: list(x), "iterated"),
    (V, lambda x: sum(x), "iterated"),
    (V, lambda x: list(reversed(x)), "x[::-1]"),
    (V, lambda x: [*x], "iterated"),
    (V, lambda x: dict(x), "no dict|iterated"),
    (V, lambda x: {**x}, "no dict"),
    (I, lambda x: len(x), "mr.fn.length"),
    (V, lambda x: len(x[x > 1]), "mr.fn.length"),
    (I, lambda x: x(1), "called"),
    (I, lambda x: x << 1, "2 ** n"),
    (I, lambda x: x >> 1, "2 ** n"),
    (I, lambda x: x & 1, "bits"),
    (I, lambda x: ~x, "bits"),
    (I, lambda x: x ^ x, "bits"),
    (I, lambda x: x + None, "None"),
    (I, lambda x: x + 1j, "complex"),
    (I, lambda x: x + (1, 2), "tuple"),
    (I, lambda x: x + 2**70, "int64"),
    (I, lambda x: x + object(), "object"),
    (I, lambda x: x.tolist(), "tolist"),
    (I, lambda x: x.foo, "mr.fn"),
    (M, lambda x: x.ravel(), "write np.ravel(x, ...)"),
    (I, lambda x: x.astype("int65"), "int65"),
    (I, lambda x: mr.fn.cast(x, "int65"), "int65"),
    (I, lambda x: np.array([x, 1]), "mr.fn.tensor"),
    (I, lambda x: np.asarray(x), "numpy array"),
    (I, lambda x: np.tan(x), "np.tan"),
    (I, lambda x: np.add(x, 1, out=np.zeros(1)), "out="),
    (V, lambda x: np.sum(x, dtype=np.float32), "mr.fn.cast"),
    (V, lambda x: np.add.accumulate(x), "accumulate"),
    (M, lambda x: np.linalg.inv(x), "np.inv"),
    (M, lambda x: np.linalg.norm(x, 1), "Euclidean"),
    (V, lambda x: np.sort(x, order="f"), "order="),
    (F, lambda x: np.random.normal(x), "numpy array|float"),
    (I, lambda x: type(x).__torch_function__(relu, (), (x,)), "torch's relu"),
    (V, lambda x: mr.fn.sum(x, axis=x[0]), "axis must be a constant"),
    (V, lambda x: x["a", 0], "index"),
    (V, lambda x: x[1.5], "index"),
    (V, lambda x: x[..., 0, ...], "..."),
    (V, lambda x: x["a":], "bounds"),
    (I, lambda x: {1: x}, "names of components"),
    (I, lambda x: {}, "empty"),
    (I, lambda x: (), "empty"),
    (I, lambda x: np.array([1 + 2j]), "complex128"),
    (I, lambda x: (x for _ in range(2)), "generator"),
    (I, lambda x: lambda y: x, "function"),
    (I, lambda x: {1, 2}, "set"),
    (I, lambda x: mr.fn.cond(x > 0, x, None), "None"),
]


class Names(unittest.TestCase):
    def test_a_feature_may_have_the_name_of_an_argument(self) -> None:
        ds = mr.from_tensor_slices([b""])
        made = ds.map(lambda r: mr.fn.parse_example(r, x=mr.fn.feature(mr.int64, default=7), y=mr.fn.feature(mr.int64, default=8)))
        self.assertEqual(list(made), [{"x": 7, "y": 8}])
        by_method = ds.map(lambda r: r.parse_example(x=mr.fn.feature(mr.int64, default=7)))
        self.assertEqual(list(by_method), [{"x": 7}])
        self.assertEqual(made, mr.from_text(str(made)))


class Refusals(unittest.TestCase):
    def test_the_table_has_60_rows(self) -> None:
        self.assertGreaterEqual(len(REFUSED), 60)

    def line_of(self, function: Any) -> int:
        """The line that is marked in a function, or that of a lambda."""
        code = inspect.unwrap(function).__code__
        if code.co_name == "<lambda>":
            return int(code.co_firstlineno)
        if function is calls_helper:
            code = helper.__code__
        lines, begin = inspect.getsourcelines(code)
        return begin + next(i for i, line in enumerate(lines) if line.rstrip().endswith("# here"))

    def test_errors_name_the_line_and_say_what_to_do(self) -> None:
        for elements, function, part in REFUSED:
            with self.subTest(line=place(function), part=part):
                ds = dataset_of(elements)
                with self.assertRaises(mr.TraceError) as caught:
                    ds.map(function)
                e = caught.exception
                self.assertEqual(e.file, __file__, e)
                self.assertEqual(e.line, self.line_of(function), e)
                self.assertTrue(str(e).startswith(f"{__file__}, line {e.line}: "), e)
                self.assertTrue(any(p in str(e) for p in part.split("|")), e)
                source = linecache.getline(__file__, e.line or 0).strip()
                self.assertIn(source, str(e))
                self.assertFalse(_trace.is_recording())

    def test_functions_of_c_have_the_line_of_the_call(self) -> None:
        with self.assertRaisesRegex(mr.TraceError, "'upper' for 'str'") as caught:
            mr.from_tensor_slices(["a"]).map(str.upper)
        self.assertEqual(caught.exception.file, __file__)
        self.assertIn("map(str.upper)", str(caught.exception))

    def test_errors_of_the_users_own_code_stay_as_they_are(self) -> None:
        def fails(x: Any) -> Any:
            raise ValueError("mine")

        with self.assertRaisesRegex(ValueError, "^mine$"):
            mr.range(3).map(fails)
        self.assertFalse(_trace.is_recording())

    def test_type_errors_are_the_librarys_with_the_text(self) -> None:
        with self.assertRaises(mr.InvalidArgument) as caught:
            mr.range(3).map(lambda x: x + mr.fn.cast(x, mr.float32))
        self.assertIn("different types", str(caught.exception))
        with self.assertRaises(mr.InvalidArgument):
            mr.range(3).map(lambda x: x + 0.5)
        with self.assertRaises(mr.InvalidArgument):
            dataset_of(F).map(lambda x: x * np.float64(0.5))  # arrays keep their type

    def test_functions_of_numpy_take_components(self) -> None:
        pairs = mr.from_tensor_slices((np.arange(3), np.array([2, 0, 1])))
        self.assertEqual(str(pairs.map(np.maximum)).partition(".map")[2], "((x, y) => max(x, y))")
        self.assertEqual([int(x) for x in pairs.map(np.maximum)], [2, 1, 2])

    def test_numbers_of_parameters(self) -> None:
        for function in (lambda a, b, c: a, lambda: 1, lambda **named: 1):
            with self.assertRaises(mr.TraceError) as caught:
                dataset_of(P).map(function)
            self.assertEqual(caught.exception.file, __file__)
        with self.assertRaisesRegex(mr.TraceError, "2 parameters .a, b. and the elements have 1 component"):
            mr.range(3).map(lambda a, b: a)
        with self.assertRaisesRegex(mr.TraceError, "by position"):
            mr.range(3).map(lambda *, a: a)
        with self.assertRaises((mr.TraceError, TypeError)):
            mr.range(3).map(3)  # type: ignore[arg-type]

    def test_an_expr_does_not_leave_its_function(self) -> None:
        kept: list[Any] = []
        mr.range(3).map(lambda x: (kept.append(x), x)[1])
        with self.assertRaisesRegex(mr.TraceError, "another function"):
            mr.range(3).map(lambda y: y + kept[0])
        with self.assertRaises(mr.TraceError):
            bool(kept[0])


class Behaviour(unittest.TestCase):
    def test_a_function_is_called_once(self) -> None:
        calls: list[Any] = []
        ds = mr.range(5).map(lambda x: (calls.append(x), x * 2)[1])
        self.assertEqual(len(calls), 1)
        self.assertEqual(list(ds), [0, 2, 4, 6, 8])
        self.assertEqual(len(calls), 1)

    def test_large_arrays_are_references_and_snapshots(self) -> None:
        table = np.arange(1000) ** 2
        ds = mr.range(3).map(lambda x: mr.fn.tensor(table)[x] + table[1])
        table[:] = 0
        self.assertEqual(list(ds), [1, 2, 5])
        self.assertNotIn("998001", str(ds))
        both = mr.range(2).map(lambda x: (table + x)[0] + (table * x)[0])
        self.assertEqual(list(both), [0, 1])

    def test_large_arrays_within_datasets_of_functions(self) -> None:
        table = np.arange(500) * 3
        ds = mr.range(2).flat_map(lambda x: mr.range(2).map(lambda y: mr.fn.tensor(table)[x + y * 100]))
        self.assertEqual(list(ds), [0, 300, 3, 303])

    def test_types_of_exprs(self) -> None:
        seen: dict[str, Any] = {}

        def look(e: Any) -> Any:
            image, label = e["image"], e["label"]
            seen["shape"], seen["dtype"], seen["ndim"] = image.shape, image.dtype, image.ndim
            half = image / 2
            seen["half"] = half.dtype if hasattr(half, "dtype") else None
            seen["keys"], seen["len"] = tuple(e.keys()), len(e)
            seen["sum"] = mr.fn.sum(label).shape
            seen["repr"] = repr(label + 1)
            return e

        dataset_of(R).map(look)
        self.assertEqual(seen["shape"], (2, 2, 3))
        self.assertEqual(seen["dtype"], mr.uint8)
        self.assertEqual(seen["dtype"], np.uint8)
        self.assertEqual(seen["half"], mr.float64)
        self.assertEqual((seen["ndim"], seen["keys"], seen["len"]), (3, ("image", "label"), 2))
        self.assertEqual(seen["sum"], ())
        self.assertEqual(seen["repr"], 'Expr(e["label"] + 1)')

    def test_lengths_that_are_not_known_are_recorded(self) -> None:
        ds = dataset_of(M).batch(2).map(lambda x: x.shape[0] * x.shape[2])
        self.assertTrue(str(ds).endswith("map(x => length(x) * 3)"), ds)
        self.assertEqual(list(ds), [3])
        ragged = mr.from_tensors("a b c").map(lambda x: x.split()).map(lambda x: x.shape[0] + 1)
        self.assertEqual(list(ragged), [4])

    def test_windows_are_datasets(self) -> None:
        ds = mr.range(5).window(2).flat_map(lambda w: w.batch(2))
        self.assertEqual([v.tolist() for v in ds], [[0, 1], [2, 3], [4]])
        pairs = mr.zip(mr.range(4), mr.range(4, 8)).window(2).flat_map(lambda a, b: mr.zip(a, b.map(lambda y: -y)))
        self.assertEqual(list(pairs), [(0, -4), (1, -5), (2, -6), (3, -7)])
        self.assertIn("flat_map((a, b) => zip(a, b.map(y => -y)))", str(pairs))

    def test_functions_by_name(self) -> None:
        ds = mr.from_tensor_slices([-1, 2]).map(mr.fn.abs)
        self.assertTrue(str(ds).endswith(".map(abs)"), ds)
        self.assertEqual(list(ds), [1, 2])
        self.assertTrue(str(mr.range(3).flat_map(mr.range)).endswith("flat_map(range)"))

    def test_random_numbers_in_python_are_constants_and_a_warning(self) -> None:
        for draw in (random.random, np.random.rand):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                mr.range(3).map(lambda x, draw=draw: (x, draw()))
            self.assertEqual([w.category for w in caught], [UserWarning])
            self.assertEqual(caught[0].filename, __file__)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            mr.range(3).map(lambda x: x + 1)
        self.assertEqual(caught, [])

    def test_a_draw_that_is_used_once_draws_for_each_element(self) -> None:
        ds = mr.range(50).map(lambda x: mr.fn.random_uniform(seed=1))
        self.assertGreater(len({float(v) for v in ds}), 40)

    def test_recording_in_several_threads(self) -> None:
        async def work() -> list[Any]:
            loop = asyncio.get_running_loop()
            made = [loop.run_in_executor(None, lambda k=k: mr.range(3).map(lambda x: x * k)) for k in range(20)]
            return [list(await m) for m in made]

        self.assertEqual(asyncio.run(work()), [[0, k, 2 * k] for k in range(20)])

    def test_printing_needs_no_recursion(self) -> None:
        def chain(x: Any) -> Any:
            for _ in range(900):
                x = x + 1
            return x

        self.assertEqual(list(mr.range(1).map(chain)), [900])

    def test_structures_within_structures_many_times(self) -> None:
        def nested(twice: Any, n: int) -> Any:
            def fn(x: Any) -> Any:
                for _ in range(n):
                    x = twice(x)
                return x

            return fn

        for twice in (lambda x: (x, x), lambda x: [x, x], lambda x: {"a": x, "b": x}, lambda x: x + x):
            with self.assertRaisesRegex(mr.TraceError, "MiB"):  # not after 2**60 steps
                mr.range(3).map(nested(twice, 60))
        self.assertEqual(str(mr.range(3).map(nested(lambda x: (x, x), 2))), "range(3).map(x => ((x, x), (x, x)))")

    def test_structures_that_are_made_anew_are_not_taken_for_others(self) -> None:
        class Made(dict):  # type: ignore[type-arg]
            def values(self) -> Any:
                return ((v, i) for i, v in enumerate(super().values()))

        spec = mr.range(3).map(lambda x: Made(a=x, b=x, c=x))
        self.assertEqual(str(spec), 'range(3).map(x => {"a": (x, 0), "b": (x, 1), "c": (x, 2)})')

    def test_every_function_has_a_method_and_help(self) -> None:
        rows = [r for r in translate_rows() if "function" in r and not r["form"]]
        self.assertGreater(len(rows), 80)
        for row in rows:
            name = row["function"]
            made = getattr(fn, name)
            self.assertIn(row["doc"][:40].split("`")[0], " ".join((made.__doc__ or "").split()), name)
            wanted = [p["name"] for p in row["params"]]
            got = [p.rstrip("_") for p in inspect.signature(made).parameters if p != "named_features"]
            self.assertEqual(got, [w.rstrip("_") for w in wanted], name)
            first = row["params"][0]
            if first["kind"] == "tensor" and first["required"] and first["type"] != "a list of integers":
                self.assertTrue(name == "random_int" or hasattr(_trace.Expr, name), name)

    def test_examples_of_functions_are_graphs(self) -> None:
        translate.load_names(kit.MILLRACE)
        for row in translate_rows():
            if "function" not in row or "train-*" in row["example"] or row["form"]:
                continue
            with self.subTest(function=row["function"]):
                made = eval(translate.python_of(row["example"]), {"mr": mr})
                self.assertEqual(str(made), str(mr.from_text(row["example"])))

    def test_generated_files_are_those_of_the_program(self) -> None:
        generate = kit.load("python/generate_functions.py")
        for name, text in generate.make_files(kit.MILLRACE).items():
            with open(f"{kit.SOURCE}/python/src/millrace/{name}") as f:
                self.assertEqual(f.read(), text, f"python3 python/generate_functions.py {kit.MILLRACE}")

    def test_names_of_other_libraries_have_hints(self) -> None:
        with self.assertRaisesRegex(AttributeError, "has no attribute 'AUTOTUNE'; use mr.AUTO"):
            mr.AUTOTUNE  # type: ignore[attr-defined]
        with self.assertRaisesRegex(AttributeError, "'range'; sources are functions .*: millrace.range"):
            mr.Dataset.range(3)  # type: ignore[attr-defined]
        with self.assertRaisesRegex(AttributeError, "its elements are numpy arrays"):
            mr.range(3).as_numpy_iterator()  # type: ignore[attr-defined]
        with self.assertRaises(AttributeError) as raised:
            mr.range(3).bach(2)  # type: ignore[attr-defined]
        self.assertEqual(raised.exception.name, "bach")  # the interpreter looks for similar names
        self.assertFalse(hasattr(mr.range(3), "__array__"))
        rows = mr.from_tensor_slices({"id": [1, 2], "name": ["a", "b"]})
        with self.assertRaisesRegex(mr.TraceError, r"looked up by name: x\['name'\]"):
            rows.map(lambda e: e.name)
        with self.assertRaisesRegex(mr.TraceError, r"looked up as x\['name'\]"):
            rows.map(lambda id, name: id)
        for hint, f in (("np.ravel", lambda e: e["id"].flatten()), ("starts_with", lambda e: e["name"].startswith(b"a")),
                        (r"the function size; call it: size\(", lambda e: e["id"] / e["id"].size)):  # fmt: skip
            with self.assertRaisesRegex(mr.TraceError, hint):
                rows.map(f)
        with self.assertRaises(TypeError) as raised_by_c:
            rows.map(lambda e: hashlib.md5(e["name"]))
        self.assertIn("map_py", raised_by_c.exception.__notes__[0])

    def test_help_shows_types_without_quotation_marks(self) -> None:
        self.assertIn("buffer_size: int, seed: int | None = None", str(inspect.signature(mr.Dataset.shuffle)))
        self.assertIn("axis: int | Sequence[int] | None", str(inspect.signature(fn.sum)))
        self.assertIn("seed: int | None = None", str(inspect.signature(mr.Dataset.iterator)))
        self.assertEqual("(text: str) -> Dataset", str(inspect.signature(mr.from_text)))
        self.assertEqual("(*datasets: Any) -> Dataset", str(inspect.signature(mr.zip)))
        self.assertTrue({"resize", "cond"} <= set(dir(fn)) and not {"Any", "annotations"} & {*dir(fn), *dir(mr)})

    def test_unknown_functions_and_wrong_arguments(self) -> None:
        with self.assertRaisesRegex(AttributeError, "no function 'nothing_like_it'; dir"):
            fn.nothing_like_it
        with self.assertRaisesRegex(AttributeError, "did you mean 'reshape'"):
            fn.reshpe
        with self.assertRaisesRegex(TypeError, "several values for size"):
            mr.range(3).map(lambda x: mr.fn.resize(x, [1, 1], size=[2, 2]))
        with self.assertRaisesRegex(TypeError, "no argument 'sise'"):
            mr.range(3).map(lambda x: mr.fn.resize(x, sise=[1, 1]))
        with self.assertRaisesRegex(TypeError, "takes 1 argument"):
            mr.range(3).map(lambda x: mr.fn.sqrt(x, 2))
        with self.assertRaisesRegex(TypeError, "needs shape"):
            mr.range(3).map(lambda x: mr.fn.reshape(x))


def translate_rows() -> list[dict[str, Any]]:
    import json
    import subprocess

    out = subprocess.run([kit.MILLRACE, "ops", "--json"], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


if __name__ == "__main__":
    kit.main()
