# SPDX-License-Identifier: Apache-2.0
"""numpy's functions within recorded functions: those that the grammar has become its own, with
numpy's meaning. Others are errors that name the line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _trace
from ._trace import ADD, COMPARE, MULTIPLY, POWER, Expr, Node
from ._types import DType, TensorSpec


def ufunc(function: Any, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What numpy calls for its functions of each value: np.add, np.sqrt."""
    name = function.__name__
    if method == "reduce" and name in _REDUCTIONS:
        given = {k: v for k, v in kwargs.items() if k in ("axis", "keepdims") and v is not None}
        given.setdefault("axis", 0)
        if given["axis"] is None:
            del given["axis"]
        _refuse(f"np.{name}.reduce", kwargs, ("axis", "keepdims"))
        return _reduce(_REDUCTIONS[name], inputs[0], given)
    if method != "__call__":
        raise _trace._error(f"np.{name}.{method} is not recorded. {_trace._INSTEAD}")
    _refuse(f"np.{name}", kwargs, ())
    made = _UFUNCS.get(name)
    if made is None:
        raise _unknown(name)
    return made(*inputs)


def function(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What numpy calls for its other functions: np.where, np.sum."""
    name = func.__name__
    made = _FUNCTIONS.get(name)
    if made is None:
        raise _unknown(name)
    try:
        return made(*args, **kwargs)
    except _trace.TraceError:
        raise
    except TypeError as e:
        text = str(e).partition("() ")[2] or str(e)
        raise _trace._error(f"np.{name} cannot be recorded like this: {text}") from None


def _unknown(name: str) -> Exception:
    return _trace._error(
        f"np.{name} is not recorded: the library has no such function; dir(mr.fn) lists those that "
        "it has. map_py runs Python for each element"
    )


def _refuse(name: str, kwargs: Mapping[str, Any], known: Sequence[str]) -> None:
    for key, value in kwargs.items():
        if key in known or (key == "where" and value is True) or value is None:
            continue
        if type(value).__name__ == "_NoValueType":
            continue
        instead = "mr.fn.cast converts" if key == "dtype" else "mr.fn has functions that do it"
        raise _trace._error(f"{name} with {key}= is not recorded; {instead}")


# ---- functions of each value ----


def _beside(a: Any, b: Any) -> tuple[Node, Node]:
    """Two operands, of which one is an Expr."""
    one = a if isinstance(a, Expr) else b
    return _trace._operand(a, one, "this function"), _trace._operand(b, one, "this function")


def _operator(symbol: str, binding: int) -> Callable[[Any, Any], Expr]:
    return lambda a, b: Expr(_trace._binary(symbol, binding, *_beside(a, b)))


def _named(name: str) -> Callable[..., Expr]:
    return lambda *inputs: _call(name, *inputs)


def _call(name: str, *inputs: Any, **options: Any) -> Expr:
    from . import fn

    made: Expr = getattr(fn, name)(*inputs, **options)
    return made


def _logical(symbol: str) -> Callable[[Any, Any], Expr]:
    def made(a: Any, b: Any) -> Expr:
        if isinstance(a, Expr):
            return a._logical(symbol, b, False)
        other: Expr = b
        return other._logical(symbol, a, True)

    return made


def _is_nan(x: Expr) -> Expr:
    return x != x


_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": _operator("+", ADD),
    "subtract": _operator("-", ADD),
    "multiply": _operator("*", MULTIPLY),
    "divide": _operator("/", MULTIPLY),
    "true_divide": _operator("/", MULTIPLY),
    "floor_divide": _operator("//", MULTIPLY),
    "remainder": _operator("%", MULTIPLY),
    "mod": _operator("%", MULTIPLY),
    "power": _operator("**", POWER),
    "less": _operator("<", COMPARE),
    "less_equal": _operator("<=", COMPARE),
    "greater": _operator(">", COMPARE),
    "greater_equal": _operator(">=", COMPARE),
    "equal": _operator("==", COMPARE),
    "not_equal": _operator("!=", COMPARE),
    "logical_and": _logical("&"),
    "logical_or": _logical("|"),
    "logical_xor": _logical("^"),
    "logical_not": lambda x: ~x,
    "bitwise_and": _logical("&"),
    "bitwise_or": _logical("|"),
    "bitwise_xor": _logical("^"),
    "invert": lambda x: ~x,
    "bitwise_not": lambda x: ~x,
    "negative": lambda x: -x,
    "positive": lambda x: x,
    "absolute": _named("abs"),
    "fabs": _named("abs"),
    "sqrt": _named("sqrt"),
    "exp": _named("exp"),
    "log": _named("log"),
    "sin": _named("sin"),
    "cos": _named("cos"),
    "floor": _named("floor"),
    "ceil": _named("ceil"),
    "rint": _named("round"),
    "square": lambda x: x**2,
    "reciprocal": lambda x: 1 / x,
    "maximum": lambda a, b: Expr(_trace._call("max", list(_beside(a, b)))),
    "minimum": lambda a, b: Expr(_trace._call("min", list(_beside(a, b)))),
    "matmul": lambda a, b: Expr(_trace._call("matmul", list(_beside(a, b)))),
    "isnan": _is_nan,
    "divmod": lambda a, b: (_UFUNCS["floor_divide"](a, b), _UFUNCS["remainder"](a, b)),
}

_REDUCTIONS = {
    "add": "sum",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}


# ---- functions of whole arrays ----


def _as_expr(x: Any) -> Expr:
    return x if isinstance(x, Expr) else Expr(_trace.as_node(x))


def _dtype(x: Expr) -> DType | None:
    return _trace._dtype_or_none(x._node)


def _reduce(name: str, x: Any, options: Mapping[str, Any]) -> Expr:
    """numpy adds bools and small integers as int64, and their mean is a float64."""
    x = _as_expr(x)
    dtype = _dtype(x)
    if dtype is not None and name in ("sum", "cumsum") and dtype.name == "bool":
        if name == "sum":
            return _call("count_nonzero", x, **options)
        x = _call("where", x, 1, 0)
    elif dtype is not None and _trace._is_integer(dtype) and name in ("sum", "cumsum"):
        wide = "uint64" if dtype.name.startswith("u") else "int64"
        x = x if dtype.name == wide else _call("cast", x, wide)
    elif dtype is not None and name == "mean" and dtype.name == "bool":
        x = _call("where", x, _trace.tensor(np.float64(1)), _trace.tensor(np.float64(0)))
    elif dtype is not None and name == "mean" and _trace._is_integer(dtype):
        x = _call("cast", x, "float64")
    return _call(name, x, **options)


def _reduction(name: str) -> Callable[..., Expr]:
    def made(a: Any, axis: Any = None, keepdims: Any = False, **kwargs: Any) -> Expr:
        _refuse(f"np.{name}", kwargs, ())
        options = {} if axis is None else {"axis": axis}
        if keepdims is True:
            options["keepdims"] = True
        return _reduce(name, a, options)

    return made


def _is_bool(x: Expr) -> bool:
    dtype = _dtype(x)
    return dtype is not None and dtype.name == "bool"


def _where(condition: Any, *choices: Any) -> Any:
    if choices:
        return _call("where", condition, *choices)
    condition = _as_expr(condition)
    rank = condition.ndim
    found = _call("where", condition if _is_bool(condition) else condition != 0)
    return (found,) if rank == 1 else tuple(found[i] for i in range(rank))


def _move_axis_first(x: Expr, axis: int) -> list[int]:
    rank = x.ndim
    if not -rank <= axis < rank:
        raise _trace._error(f"axis {axis} of a value with {rank} axes")
    axis %= rank
    return [axis, *(i for i in range(rank) if i != axis)]


def _inverse(axes: list[int]) -> list[int]:
    return [axes.index(i) for i in range(len(axes))]


def _concatenate(arrays: Any, axis: Any = 0, **kwargs: Any) -> Expr:
    _refuse("np.concatenate", kwargs, ("casting",))
    if isinstance(arrays, Expr):
        raise _trace._error("np.concatenate takes a list or a tuple; mr.fn.reshape joins axes")
    parts = [_as_expr(a) for a in arrays]
    if axis is None:
        return _call("concat", *(_call("reshape", p, [-1]) for p in parts))
    if axis == 0:
        return _call("concat", *parts)
    axes = _move_axis_first(parts[0], axis)
    joined = _call("concat", *(_call("transpose", p, axes) for p in parts))
    return _call("transpose", joined, _inverse(axes))


def _stack(arrays: Any, axis: Any = 0, **kwargs: Any) -> Expr:
    _refuse("np.stack", kwargs, ("casting",))
    if isinstance(arrays, Expr):
        raise _trace._error("np.stack takes a list or a tuple")
    joined = _call("stack", *arrays)
    if axis == 0:
        return joined
    rank = joined.ndim
    if not -rank <= axis < rank:
        raise _trace._error(f"axis {axis} of a value with {rank} axes")
    axis %= rank
    return _call("transpose", joined, [*range(1, axis + 1), 0, *range(axis + 1, rank)])


def _sort(a: Any, axis: Any = -1, **kwargs: Any) -> Expr:
    _refuse("np.sort", kwargs, ("kind", "stable"))
    if axis is None:
        return _call("sort", _call("reshape", a, [-1]))
    return _call("sort", a) if axis == -1 else _call("sort", a, axis=axis)


def _cumsum(a: Any, axis: Any = None, **kwargs: Any) -> Expr:
    _refuse("np.cumsum", kwargs, ())
    return _reduce("cumsum", a, {} if axis is None else {"axis": axis})


def _squeeze(a: Any, axis: Any = None) -> Expr:
    return _call("squeeze", a) if axis is None else _call("squeeze", a, axis=axis)


def _transpose(a: Any, axes: Any = None) -> Expr:
    return _call("transpose", a) if axes is None else _call("transpose", a, list(axes))


def _reshape(a: Any, shape: Any = None, order: str = "C", **kwargs: Any) -> Expr:
    shape = kwargs.pop("newshape", shape)
    _refuse("np.reshape", kwargs, ())
    if order != "C":
        raise _trace._error("np.reshape is recorded for the order C only")
    return _call("reshape", a, shape if isinstance(shape, (list, tuple)) else [shape])


def _take(a: Any, indices: Any, axis: Any = None, **kwargs: Any) -> Expr:
    _refuse("np.take", kwargs, ())
    if axis is None:
        return _call("gather", _call("reshape", a, [-1]), indices)
    return _call("gather", a, indices) if axis == 0 else _call("gather", a, indices, axis=axis)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, **kwargs: Any) -> Expr:
    low, high = kwargs.pop("min", a_min), kwargs.pop("max", a_max)
    _refuse("np.clip", kwargs, ())
    if low is None and high is None:
        return _as_expr(a)
    if low is None:
        return _call("min", a, high)
    return _call("max", a, low) if high is None else _call("clip", a, low, high)


def _round(a: Any, decimals: Any = 0, **kwargs: Any) -> Expr:
    _refuse("np.round", kwargs, ())
    return _call("round", a) if decimals == 0 else _call("round", a, decimals=decimals)


def _pad(array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Expr:
    _refuse("np.pad", kwargs, ("constant_values",))
    more = {} if mode == "constant" else {"mode": mode}
    if "constant_values" in kwargs:
        more["constant_values"] = kwargs["constant_values"]
    if isinstance(pad_width, (list, tuple)):
        pad_width = [list(p) if isinstance(p, tuple) else p for p in pad_width]
    return _call("pad", array, pad_width, **more)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Expr:
    if ord not in (None, 2, "fro"):
        raise _trace._error("np.linalg.norm is recorded for the Euclidean norm only")
    options = {} if axis is None else {"axis": axis}
    if keepdims:
        options["keepdims"] = True
    x = _as_expr(x)
    if ord == 2 and axis is None and x.ndim != 1:
        raise _trace._error("np.linalg.norm(x, 2) of a matrix is its greatest singular value")
    return _call("norm", x, **options)


def _dot(a: Any, b: Any, **kwargs: Any) -> Expr:
    a, b = _as_expr(a), _as_expr(b)
    if a.ndim == 0 or b.ndim == 0:
        out: Expr = a * b
        return out
    if a.ndim > 2 or b.ndim > 2:
        raise _trace._error("np.dot is recorded up to two axes; @ is, for more")
    return _call("matmul", a, b)


def _flip(m: Any, axis: Any = None) -> Any:
    m = _as_expr(m)
    rank = m.ndim
    axes = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    flipped = {a % rank for a in axes}
    last = max(flipped, default=-1)
    parts = tuple(slice(None, None, -1 if i in flipped else None) for i in range(last + 1))
    return m[parts] if parts else m


def _count(a: Any, axis: Any = None, *, keepdims: bool = False) -> Expr:
    options = {} if axis is None else {"axis": axis}
    if keepdims:
        options["keepdims"] = True
    return _call("count_nonzero", a, **options)


def _extreme(name: str) -> Callable[..., Expr]:
    def made(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Expr:
        _refuse(f"np.{name}", {"out": out}, ())
        options = {} if axis is None else {"axis": axis}
        if keepdims is True:
            options["keepdims"] = True
        return _call(name, a, **options)

    return made


def _ndim(a: Any) -> int:
    return _as_expr(a).ndim


def _shape(a: Any) -> tuple[Any, ...]:
    return _as_expr(a).shape


def _size(a: Any, axis: Any = None) -> Any:
    a = _as_expr(a)
    if axis is not None:
        return a.shape[axis]
    shape = a.spec.shape if isinstance(a.spec, TensorSpec) else None
    known = [n for n in shape or () if n is not None]
    return math.prod(known) if shape is not None and len(known) == len(shape) else _call("size", a)


def _like(name: str) -> Callable[..., Expr]:
    def made(a: Any, dtype: Any = None, **kwargs: Any) -> Expr:
        _refuse(f"np.{name}_like", kwargs, ("order", "subok"))
        a = _as_expr(a)
        of = a.dtype.name if dtype is None else dtype
        return _call(name, list(a.shape), of)

    return made


def _expand_dims(a: Any, axis: Any) -> Any:
    for k in sorted(axis) if isinstance(axis, (tuple, list)) else [axis]:
        a = _call("expand_dims", a, k)
    return a


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _reduction(name) for name in ("sum", "mean", "min", "max", "any", "all")},
    "amin": _reduction("min"),
    "amax": _reduction("max"),
    "where": _where,
    "nonzero": _where,
    "stack": _stack,
    "concatenate": _concatenate,
    "concat": _concatenate,
    "sort": _sort,
    "cumsum": _cumsum,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "transpose": _transpose,
    "permute_dims": _transpose,
    "reshape": _reshape,
    "ravel": lambda a, order="C": _reshape(a, [-1], order),
    "take": _take,
    "clip": _clip,
    "round": _round,
    "around": _round,
    "round_": _round,
    "pad": _pad,
    "norm": _norm,
    "dot": _dot,
    "flip": _flip,
    "flipud": lambda m: _flip(m, 0),
    "fliplr": lambda m: _flip(m, 1),
    "count_nonzero": _count,
    "argmax": _extreme("argmax"),
    "argmin": _extreme("argmin"),
    "unique": lambda ar: _call("sort", _call("unique_values", ar)),
    "ndim": _ndim,
    "shape": _shape,
    "size": _size,
    "zeros_like": _like("zeros"),
    "ones_like": _like("ones"),
}
