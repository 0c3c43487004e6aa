# SPDX-License-Identifier: Apache-2.0
"""Python values as text of the grammar. What has no text (arrays, datasets) becomes a name, whose
value the parser gets besides the text."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from ._callbacks import callback
from ._errors import InvalidArgument, check
from ._ffi import ffi, lib
from ._trace import Feature
from ._types import DType, ShapedType, as_dtype, dtype_of_numpy


class Auto:
    """`mr.AUTO`: the library chooses, and adapts while it runs."""

    def __repr__(self) -> str:
        return "mr.AUTO"

    def __reduce__(self) -> str:
        return "AUTO"


AUTO = Auto()


class Text:
    """Text of the grammar that goes into a call as it stands."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


WRITTEN = 64  # values of an array up to which texts show them; a larger one is shown as a reference
MANY = 1024  # numbers in a list from which on it is passed as an array


def quoted(text: str | bytes) -> str:
    """A string literal."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    try:
        shown = data.decode("utf-8")
    except UnicodeDecodeError:
        shown = data.decode("latin-1")
        return '"' + "".join(_escaped(c) if c < "\x7f" else f"\\x{ord(c):02x}" for c in shown) + '"'
    return '"' + "".join(_escaped(c) for c in shown) + '"'


def _escaped(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    if c == "\n":
        return "\\n"
    if c == "\t":
        return "\\t"
    return f"\\x{ord(c):02x}" if c < " " or c == "\x7f" else c


# What the library still has of Python's memory, by the address that it returns it with.
_lent: dict[Any, Any] = {}


@callback()
def mrpy_release(ctx: Any, data: Any) -> None:
    _lent.pop(ctx, None)


def lend(owner: Any, data: Any, size: int, *, read_only: bool = True) -> Any:
    """An `mr_buffer *` of `size` bytes at data, which keeps owner; owned by the caller."""
    handle = ffi.new_handle(owner)
    out, st = ffi.new("mr_buffer **"), ffi.new("mr_status *")
    _lent[handle] = handle
    code = lib.mr_buffer_wrap(out, data, size, read_only, lib.mrpy_release, handle, st)
    if code < 0:
        del _lent[handle]
    check(code, st)
    return out[0]


class Names:
    """The names in a text, with their values; `text_of` adds what it needs."""

    def __init__(self) -> None:
        self.names: list[Any] = []
        self.values: list[Callable[[Any], Any]] = []
        self._datasets: dict[int, str] = {}
        self._free: list[Any] = []
        self._known: set[str] = set()

    def add(self, name: str, put: Callable[[Any], Any]) -> str:
        self.names.append(ffi.new("char[]", name.encode()))
        self.values.append(put)
        return name

    def dataset(self, ds: Any, name: str | None = None) -> str:
        """The name of a dataset: "ds" for the first one."""
        known = self._datasets.get(id(ds))
        if known is not None and name is None:
            return known
        if name is None:
            name = f"ds{len(self._datasets)}" if self._datasets else "ds"
        pointer = ds._ds

        def put(v: Any) -> None:
            v.kind = lib.MR_V_DATASET
            v.dataset = pointer

        self._datasets[id(ds)] = name
        self._free.append(ds)
        return self.add(name, put)

    def array(self, a: Any, name: str | None = None) -> str:
        """The name of an array: of numpy, or what numpy makes of it."""
        array = owned_array(a)

        def put(v: Any) -> None:
            v.kind = lib.MR_V_TENSOR
            v.tensor = array[0]

        self._free.append(array)
        return self.add(name or f"constant{len(self.names)}", put)

    def add_all(self, constants: dict[str, Any]) -> None:
        """Constants of a recorded function, by their names in its text."""
        for name, value in constants.items():
            if name in self._known:
                continue
            self._known.add(name)
            if hasattr(value, "_ds"):
                self.dataset(value, name)
            else:
                self.array(value, name)

    def env(self) -> Any:
        """The `mr_env *` of the names; valid as long as this object is."""
        n = len(self.names)
        names = ffi.new("const char *[]", self.names or [ffi.NULL])
        values = ffi.new("mr_value[]", max(n, 1))
        for i, put in enumerate(self.values):
            put(values[i])
        env = ffi.new("mr_env *")
        env.names, env.values, env.n = names, values, n
        self._free += [names, values, env]
        return env


def owned_array(a: Any) -> Any:
    """An `mr_array *` with one row, the array; of numpy's memory where it is contiguous."""
    if np.ma.is_masked(a):
        raise TypeError("an array with masked values has no tensor; fill them: x.filled(0)")
    array = np.asarray(a)
    if array.dtype.kind in "SUO":
        return _strings(array)
    if array.dtype.kind in "mM":
        raise TypeError(
            f"there is no type for {array.dtype}: pass the integers, array.astype('int64'), or the seconds"
        )
    kind = dtype_of_numpy(array.dtype.newbyteorder("="))
    if kind is None:
        raise TypeError(f"there is no type for arrays of {array.dtype}")
    if array.ndim > 8:
        raise InvalidArgument(f"an array has at most 8 axes, not {array.ndim}")
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape)
    out = ffi.gc(ffi.new("mr_array *"), lib.mr_array_reset)
    data = ffi.cast("void *", array.ctypes.data)
    out.dtype, out.storage, out.rank, out.rows = kind.number, lib.MR_DENSE, array.ndim, 1
    out.resident = array.size > WRITTEN
    for axis in range(array.ndim):
        out.shape[axis] = array.shape[axis]
    out.data = data
    out.owner = lend(array, data, array.nbytes)
    return out


def _strings(array: np.ndarray[Any, Any]) -> Any:
    flat = array.reshape(-1).tolist()
    parts = []
    for x in flat:
        if isinstance(x, str):
            x = x.encode("utf-8", "surrogateescape")
        elif not isinstance(x, bytes):
            raise TypeError(f"an array of objects may have str and bytes alone, not {type(x).__name__}: {x!r:.60}")
        parts.append(x)
    joined = b"".join(parts)
    out = ffi.gc(ffi.new("mr_array *"), lib.mr_array_reset)
    st = ffi.new("mr_status *")
    shape = ffi.new("int64_t[]", list(array.shape) or [0])
    check(lib.mr_array_alloc(out, lib.MR_STRING, array.ndim, shape, 1, st), st)
    out.resident = len(parts) > WRITTEN
    if parts:
        data = ffi.from_buffer(joined)
        kept = lend((joined, data), data, len(joined))
        code = lib.mr_buffer_hold(out.owner, kept, st)
        lib.mr_buffer_unref(kept)
        check(code, st)
        sizes = np.fromiter((len(p) for p in parts), np.uint64, len(parts))
        views = np.frombuffer(ffi.buffer(out.data, 16 * len(parts)), np.uint64).reshape(-1, 2)
        views[:, 1] = sizes
        views[:, 0] = int(ffi.cast("uintptr_t", data)) + np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.uint64)
    return out


def text_of(x: Any, names: Names) -> str:
    """The text of a value."""
    if x is None:
        return "none"
    if isinstance(x, Text):
        return x.text
    if isinstance(x, (bool, np.bool_)):
        return "true" if x else "false"
    if isinstance(x, Auto):
        return "auto"
    if isinstance(x, (int, np.int64)):  # pyright: ignore[reportArgumentType]
        return str(int(x))
    if isinstance(x, (float, np.float32)) and math.isfinite(x):  # pyright: ignore[reportArgumentType]
        return _float(float(x))
    if isinstance(x, (float, np.float32)):  # pyright: ignore[reportArgumentType]
        return names.array(np.float32(x))
    if isinstance(x, (str, bytes)):
        return quoted(x)
    if isinstance(x, os.PathLike):
        return quoted(os.fspath(x))
    if isinstance(x, (DType, ShapedType)):
        return str(x)
    if isinstance(x, Feature):
        return x.text
    if isinstance(x, np.dtype):
        return as_dtype(x).name
    if isinstance(x, dict):
        return "{" + ", ".join(f"{quoted(_key(k))}: {text_of(v, names)}" for k, v in x.items()) + "}"
    if isinstance(x, tuple):
        return "(" + ", ".join(text_of(v, names) for v in x) + (",)" if len(x) == 1 else ")")
    if isinstance(x, list):
        return _list(x, names)
    if hasattr(x, "_ds") and hasattr(x, "element_spec"):
        return names.dataset(x)
    if isinstance(x, (np.ndarray, np.generic)):
        return names.array(x)
    if hasattr(x, "__dlpack__"):
        return names.array(np.from_dlpack(x))
    if hasattr(x, "__array__"):
        return names.array(np.asarray(x))
    if callable(x):
        raise TypeError(f"a function is not expected here: {x!r}")
    raise TypeError(f"{type(x).__name__} is not a value that a pipeline can have: {x!r:.80}")


def _key(k: Any) -> str:
    if not isinstance(k, str):
        raise TypeError(f"the names of a record are str, not {type(k).__name__}: {k!r:.60}")
    return k


def _float(x: float) -> str:
    text = repr(x)
    return text if any(c in text for c in ".en") else text + ".0"


def _list(x: list[Any], names: Names) -> str:
    numbers = _count(x)
    if numbers < 0:
        return names.array(np.ma.asarray(x) if any(map(np.ma.is_masked, x)) else np.asarray([np.asarray(v) for v in x]))
    if numbers >= MANY:
        array = np.asarray(x)
        if array.dtype.kind in "iu":
            return names.array(array.astype(np.int64))
        if array.dtype.kind == "f" and _pure(x):
            return names.array(array.astype(np.float32))
        if array.dtype.kind in "SU" and _pure(x):
            return names.array(np.array(x, dtype=object))
    return "[" + ", ".join(text_of(v, names) for v in x) + "]"


def _count(x: Any) -> int:
    """The number of plain values in nested lists; -1 if an array is among them."""
    if isinstance(x, list):
        total = 0
        for v in x:
            n = _count(v)
            if n < 0:
                return -1
            total += n
        return total
    return -1 if isinstance(x, np.ndarray) or hasattr(x, "__dlpack__") else 1


def _pure(x: list[Any]) -> bool:
    """No bools, which numpy would convert."""
    return all(_pure(v) if isinstance(v, list) else not isinstance(v, (bool, np.bool_)) for v in x)
