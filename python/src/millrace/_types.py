# SPDX-License-Identifier: Apache-2.0
"""Types of tensors: ``mr.int64``, ``mr.float32[2, 3]``, ``mr.int64[...]``, and what elements
consist of: ``TensorSpec``, ``DatasetSpec`` and ``Ragged``.

The text of a type is the grammar's: ``str(mr.float32[2, 3])`` is ``float32[2, 3]``, and
``str(mr.int64[...])`` is ``int64[]``. Wherever a type is expected, that text may stand too.
"""

from __future__ import annotations

import builtins
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union, overload

import numpy as np

if TYPE_CHECKING:
    from types import EllipsisType

    from numpy.typing import NDArray

__all__ = [
    "DType",
    "ShapedType",
    "TensorSpec",
    "DatasetSpec",
    "Ragged",
    "Spec",
    "TypeLike",
    "as_dtype",
    "as_type",
    "as_spec",
]

_KINDS = {
    "bool": "?",
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i8",
    "uint8": "u1",
    "uint16": "u2",
    "uint32": "u4",
    "uint64": "u8",
    "float16": "f2",
    "bfloat16": "",
    "float32": "f4",
    "float64": "f8",
    "bytes": "O",
}


class DType:
    """The type of the values of a tensor, such as ``mr.int64``.

    With a shape in brackets it is the type of a tensor: ``mr.float32[2, 3]``. ``mr.int64[...]``
    is a vector of any length.
    """

    __slots__ = ("name",)

    #: The name in the grammar: ``"int64"``; that of strings is ``"bytes"``.
    name: str

    def __init__(self, name: str) -> None:
        if name not in _KINDS:
            raise ValueError(f"there is no dtype {name!r}; there are {', '.join(_KINDS)}")
        object.__setattr__(self, "name", name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a dtype cannot be changed")

    def __getitem__(self, shape: int | None | EllipsisType | tuple[int | None, ...]) -> ShapedType:
        if shape is Ellipsis:
            return ShapedType(self, (None,))
        return ShapedType(self, shape if isinstance(shape, tuple) else (shape,))

    def __class_getitem__(cls, item: object) -> Any:
        raise TypeError("DType takes no parameters; write mr.float32[2, 3]")

    @property
    def is_integer(self) -> builtins.bool:
        """True for ``int8`` to ``uint64``."""
        return self.name.startswith(("int", "uint"))

    @property
    def is_floating(self) -> builtins.bool:
        """True for ``float16``, ``bfloat16``, ``float32`` and ``float64``."""
        return "float" in self.name

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type of arrays of this type.

        Strings are bytes in object arrays. ``bfloat16`` is that of the package ``ml_dtypes``
        where it is installed, otherwise ``uint16``, its bits.
        """
        if self.name != "bfloat16":
            return np.dtype(_KINDS[self.name])
        try:
            ml_dtypes: Any = importlib.import_module("ml_dtypes")
        except ImportError:
            return np.dtype(np.uint16)
        bits: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bits

    def __repr__(self) -> str:
        return f"millrace.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> builtins.bool:
        return isinstance(other, DType) and other.name == self.name

    def __hash__(self) -> int:
        return hash((DType, self.name))

    def __reduce__(self) -> tuple[type[DType], tuple[str]]:
        return DType, (self.name,)


bool_ = DType("bool")
int8 = DType("int8")
int16 = DType("int16")
int32 = DType("int32")
int64 = DType("int64")
uint8 = DType("uint8")
uint16 = DType("uint16")
uint32 = DType("uint32")
uint64 = DType("uint64")
float16 = DType("float16")
bfloat16 = DType("bfloat16")
float32 = DType("float32")
float64 = DType("float64")
bytes_ = DType("bytes")


@dataclass(frozen=True, slots=True)
class ShapedType:
    """A dtype with a shape: ``mr.float32[2, 3]``. ``None`` is an axis of any length."""

    dtype: DType
    shape: tuple[int | None, ...]

    def __post_init__(self) -> None:
        for n in self.shape:
            if n is not None and (not isinstance(n, int) or isinstance(n, builtins.bool) or n < 0):
                raise ValueError(
                    f"a shape consists of lengths and None, not {n!r}; "
                    "mr.int64[...] is a vector of any length"
                )

    @property
    def spec(self) -> TensorSpec:
        """The spec of a tensor of this type."""
        return TensorSpec(self.shape, self.dtype)

    def __str__(self) -> str:
        if self.shape == (None,):
            return f"{self.dtype.name}[]"
        return f"{self.dtype.name}[{', '.join('none' if n is None else str(n) for n in self.shape)}]"

    def __repr__(self) -> str:
        shape = "..." if self.shape == (None,) else ", ".join(map(str, self.shape)) or "()"
        return f"{self.dtype!r}[{shape}]"


#: What may stand where a type is expected: ``mr.int64``, ``mr.float32[2]``, ``"int64[]"``,
#: ``numpy.float32``, and the Python types ``int``, ``float``, ``bool``, ``bytes`` and ``str``.
TypeLike = Union[DType, ShapedType, str, "np.dtype[Any]", type]

_PYTHON: dict[type, DType] = {
    int: int64,
    float: float32,
    builtins.bool: bool_,
    builtins.bytes: bytes_,
    str: bytes_,
}


def as_dtype(value: TypeLike) -> DType:
    """The dtype that a name, a numpy type or a Python type means."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        name = "bytes" if value == "string" else value
        if name in _KINDS:
            return DType(name)
        raise ValueError(f"there is no dtype {value!r}; there are {', '.join(_KINDS)}")
    if isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    if isinstance(value, ShapedType):
        raise TypeError(f"expected a dtype without a shape, not {value!r}")
    try:
        found = np.dtype(value)
    except TypeError:
        raise TypeError(f"expected a dtype such as mr.float32, not {value!r}") from None
    if found.kind in "SUO":
        return bytes_
    if found.name in _KINDS:
        return DType(found.name)
    raise TypeError(f"the numpy type {found} has no counterpart; there are {', '.join(_KINDS)}")


def as_type(value: TypeLike) -> DType | ShapedType:
    """The same for types with a shape: ``"int64[]"`` is ``mr.int64[...]``."""
    if isinstance(value, (DType, ShapedType)):
        return value
    if isinstance(value, str) and value.endswith("]"):
        match = re.fullmatch(r"\s*(\w+)\s*\[([^][]*)\]", value)
        if not match:
            raise ValueError(f"expected a type such as 'float32[2, 3]', not {value!r}")
        dtype = as_dtype(match[1])
        axes = [a.strip() for a in match[2].split(",") if a.strip()]
        if not axes:
            return dtype[...]
        if not all(a == "none" or a.isdecimal() for a in axes):
            raise ValueError(f"a shape consists of lengths and none, not {match[2]!r}")
        return ShapedType(dtype, tuple(None if a == "none" else int(a) for a in axes))
    return as_dtype(value.strip() if isinstance(value, str) else value)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What is known of a tensor: its shape and its dtype.

    ``None`` is an axis whose length is known only when the graph runs; a shape that is ``None``
    as a whole has an unknown number of axes. ``ragged``: the rows along axis 0 differ in length.
    """

    shape: tuple[int | None, ...] | None
    dtype: DType
    ragged: builtins.bool = False

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype.name}[?]"
        return f"{self.dtype.name}[{', '.join('?' if n is None else str(n) for n in self.shape)}]"


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """A component that is itself a dataset, as ``window`` makes them."""

    element_spec: Spec


#: The structure of an element: tuples and dicts with these leaves.
Spec = Union[TensorSpec, DatasetSpec, "tuple[Spec, ...]", "dict[str, Spec]"]


def as_spec(value: Any) -> Spec:
    """The spec that a structure of types means: ``{"a": mr.int64[...], "b": "float32"}``."""
    if isinstance(value, (TensorSpec, DatasetSpec)):
        return value
    if isinstance(value, Mapping):
        return {name: as_spec(v) for name, v in value.items()}
    if isinstance(value, (tuple, list)):
        return tuple(as_spec(v) for v in value)
    found = as_type(value)
    return found.spec if isinstance(found, ShapedType) else TensorSpec((), found)


class Ragged:
    """Rows of different lengths: row ``i`` is ``values[row_splits[i]:row_splits[i + 1]]``.

    ``values`` is an array, or itself ``Ragged`` where two axes vary.
    """

    __slots__ = ("values", "row_splits")

    values: NDArray[Any] | Ragged
    row_splits: NDArray[np.int64]

    def __init__(self, values: NDArray[Any] | Ragged, row_splits: Any) -> None:
        splits = np.asarray(row_splits, dtype=np.int64)
        if splits.ndim != 1 or len(splits) == 0 or splits[0] != 0:
            raise ValueError("row_splits must be a vector that begins with 0")
        if np.any(splits[1:] < splits[:-1]) or splits[-1] != len(values):
            raise ValueError(
                f"row_splits must ascend to the number of values, {len(values)}, not {splits[-1]}"
            )
        self.values = values
        self.row_splits = splits

    @classmethod
    def from_rows(cls, rows: Any, dtype: TypeLike | None = None) -> Ragged:
        """Makes one from a list of rows."""
        kind = None if dtype is None else as_dtype(dtype).numpy
        arrays = [np.asarray(r, dtype=kind) for r in rows]
        splits = np.concatenate([[0], np.cumsum([len(a) for a in arrays], dtype=np.int64)])
        if not arrays:
            return cls(np.empty(0, dtype=kind or np.float32), splits)
        full = [a for a in arrays if len(a)] or arrays[:1]
        return cls(np.concatenate(full), splits)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of the values."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The number of rows, ``None`` for the axis that varies, and the axes of the values."""
        return (len(self), None, *self.values.shape[1:])

    @property
    def row_lengths(self) -> NDArray[np.int64]:
        """The length of each row."""
        return np.diff(self.row_splits)

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    @overload
    def __getitem__(self, at: int) -> NDArray[Any] | Ragged: ...
    @overload
    def __getitem__(self, at: slice) -> Ragged: ...
    def __getitem__(self, at: int | slice) -> NDArray[Any] | Ragged:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step != 1:
                raise IndexError("rows are sliced in steps of 1")
            stop = max(start, stop)
            first, last = int(self.row_splits[start]), int(self.row_splits[stop])
            return Ragged(self.values[first:last], self.row_splits[start : stop + 1] - first)
        if not -len(self) <= at < len(self):
            raise IndexError(f"row {at} of {len(self)}")
        at %= len(self)
        return self.values[int(self.row_splits[at]) : int(self.row_splits[at + 1])]

    def __iter__(self) -> Iterator[NDArray[Any] | Ragged]:
        return (self[i] for i in range(len(self)))

    def to_list(self) -> list[Any]:
        """The rows as nested lists."""
        return [row.to_list() if isinstance(row, Ragged) else row.tolist() for row in self]

    def to_torch(self) -> Any:
        """A nested tensor with the jagged layout. The values are copied if they are read-only."""
        torch: Any = importlib.import_module("torch")
        if isinstance(self.values, Ragged):
            raise ValueError("a torch tensor has one jagged axis; these rows have two")
        values = self.values if self.values.flags.writeable else self.values.copy()
        splits = np.array(self.row_splits)
        return torch.nested.nested_tensor_from_jagged(
            torch.from_numpy(values), torch.from_numpy(splits)
        )

    def to_arrow(self) -> Any:
        """An Arrow array of lists."""
        pyarrow: Any = importlib.import_module("pyarrow")
        return pyarrow.LargeListArray.from_arrays(
            pyarrow.array(self.row_splits), _arrow_values(self.values)
        )

    def __eq__(self, other: object) -> builtins.bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        if not np.array_equal(self.row_splits, other.row_splits):
            return False
        if isinstance(self.values, Ragged) or isinstance(other.values, Ragged):
            return self.values is other.values or self.values == other.values
        return self.values.dtype == other.values.dtype and np.array_equal(
            self.values, other.values
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ragged({self.values!r}, row_splits={self.row_splits.tolist()})"


def _arrow_values(values: NDArray[Any] | Ragged) -> Any:
    pyarrow: Any = importlib.import_module("pyarrow")
    if isinstance(values, Ragged):
        return values.to_arrow()
    flat = values.reshape(-1)
    kind = pyarrow.binary() if values.dtype == object else None
    out = pyarrow.array(flat, type=kind)
    for n in reversed(values.shape[1:]):
        out = pyarrow.FixedSizeListArray.from_arrays(out, n)
    return out
