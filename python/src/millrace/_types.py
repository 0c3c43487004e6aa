# SPDX-License-Identifier: Apache-2.0
"""Types of tensors: `mr.float32`, `mr.float32[2, 3]`, `mr.int64[...]`, and what datasets say of their elements."""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

import numpy as np

from ._errors import InvalidArgument, Unimplemented
from ._ffi import ffi, lib


class DType:
    """The type of the values of a tensor.

    `mr.float32` is a scalar where a feature is described, `mr.float32[2, 3]` has a fixed shape, and
    `mr.int64[...]` is a list of any length. numpy takes it as a dtype: `np.zeros(3, mr.float32)`.

        >>> import millrace as mr
        >>> mr.float32[2, 3]
        mr.float32[2, 3]
        >>> mr.int64[...]
        mr.int64[...]
    """

    __slots__ = ("name", "number")
    name: str
    number: int

    def __init__(self, name: str) -> None:
        if name not in _numbers:
            raise ValueError(f"there is no type {name!r}; the types are {', '.join(_numbers)}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "number", _numbers[name])

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("types cannot be changed")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the numpy arrays that hold its values: object for strings."""
        return numpy_dtype(self.number)

    numpy = dtype

    def __getitem__(self, shape: Any) -> ShapedType:
        if shape is Ellipsis:
            return ShapedType(self, None)
        sizes = shape if isinstance(shape, tuple) else (shape,)
        for n in sizes:
            if n is not None and (isinstance(n, builtins.bool) or not isinstance(n, (int, np.integer)) or n < 0):
                raise TypeError(
                    f"a shape is made of sizes, as in {self!r}[2, 3], or {self!r}[...] for any length, not {shape!r}"
                )
        return ShapedType(self, tuple(None if n is None else int(n) for n in sizes))

    def __eq__(self, other: object) -> builtins.bool:
        if isinstance(other, DType):
            return self.number == other.number
        if isinstance(other, str):
            return _by_name.get(other) is self
        if isinstance(other, (np.dtype, type)) and self.number not in (lib.MR_STRING, lib.MR_DATASET):
            try:
                return builtins.bool(self.dtype == np.dtype(other))
            except TypeError:
                return False
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"mr.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_named, (self.name,)

    def _text(self) -> str:
        return self.name


class ShapedType:
    """A dtype with a shape, as in `mr.float32[2, 3]`; a size None varies. `shape` None: a list of any
    length."""

    __slots__ = ("dtype", "shape")
    dtype: DType
    shape: tuple[int | None, ...] | None

    def __init__(self, dtype: DType, shape: tuple[int | None, ...] | None) -> None:
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", shape)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("types cannot be changed")

    def __eq__(self, other: object) -> builtins.bool:
        if not isinstance(other, ShapedType):
            return NotImplemented
        return self.dtype == other.dtype and self.shape == other.shape

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    def __repr__(self) -> str:
        inside = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.dtype!r}[{inside}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return ShapedType, (self.dtype, self.shape)

    @property
    def spec(self) -> TensorSpec:
        """The type of the tensors."""
        return TensorSpec((None,) if self.shape is None else self.shape, self.dtype)

    def __str__(self) -> str:
        sizes = () if self.shape is None else ("none" if n is None else str(n) for n in self.shape)
        return f"{self.dtype.name}[{', '.join(sizes)}]"

    def _text(self) -> str:
        return str(self)


_numbers = {
    "bool": lib.MR_BOOL,
    "int8": lib.MR_INT8,
    "int16": lib.MR_INT16,
    "int32": lib.MR_INT32,
    "int64": lib.MR_INT64,
    "uint8": lib.MR_UINT8,
    "uint16": lib.MR_UINT16,
    "uint32": lib.MR_UINT32,
    "uint64": lib.MR_UINT64,
    "float16": lib.MR_FLOAT16,
    "bfloat16": lib.MR_BFLOAT16,
    "float32": lib.MR_FLOAT32,
    "float64": lib.MR_FLOAT64,
    "bytes": lib.MR_STRING,
}
bool = DType("bool")
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
bytes = DType("bytes")
string = bytes

_all = (bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64, bytes)
_by_number = {t.number: t for t in _all}
_by_name = {t.name: t for t in _all} | {"string": bytes}
_numpy = {t.number: np.dtype(t.name) for t in _all if t.name not in ("bfloat16", "bytes")}
_numpy[lib.MR_STRING] = np.dtype(object)
_of_numpy = {t: n for n, t in _numpy.items() if n != lib.MR_STRING}


def dtype_named(name: str) -> DType:
    """The dtype of that name; "bytes" is string."""
    found = _by_name.get(name)
    return DType(name) if found is None else found


def dtype_numbered(number: int) -> DType:
    return _by_number[number]


def dtype_of_numpy(dtype: np.dtype[Any]) -> DType | None:
    """The type of numpy's dtype (in the machine's byte order); None: Millrace has none like it."""
    number = _of_numpy.get(dtype)
    if number is None and dtype.name == "bfloat16":
        return bfloat16
    return None if number is None else _by_number[number]


def numpy_dtype(number: int) -> np.dtype[Any]:
    """Of the arrays of that type. bfloat16 is that of ml_dtypes where it is installed, else float32."""
    if number == lib.MR_BFLOAT16:
        return _ml_bfloat16() or np.dtype(np.float32)
    return _numpy[number]


def _ml_bfloat16() -> np.dtype[Any] | None:
    try:
        import ml_dtypes  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


def bfloat16_array(bits: np.ndarray[Any, Any], number: int = 0) -> np.ndarray[Any, Any]:
    """The array of bfloat16 values whose bits are these uint16."""
    dtype = _ml_bfloat16()
    if dtype is not None:
        return bits.view(dtype)
    return (bits.astype(np.uint32) << 16).view(np.float32)


class TensorSpec:
    """The type of a tensor: its dtype, and its shape, in which None is a size that varies.

    Attributes:
        shape: a tuple; None if even the number of axes varies.
        dtype: a DType.
        ragged: axis 1 has rows of different lengths; such tensors are `mr.Ragged`.
    """

    __slots__ = ("shape", "dtype", "ragged")
    shape: tuple[int | None, ...] | None
    dtype: DType
    ragged: builtins.bool

    def __init__(
        self,
        shape: Sequence[int | None] | None,
        dtype: TypeLike = float32,
        ragged: builtins.bool = False,
    ) -> None:
        object.__setattr__(self, "shape", None if shape is None else tuple(shape))
        object.__setattr__(self, "dtype", as_dtype(dtype))
        object.__setattr__(self, "ragged", ragged)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("specs cannot be changed")

    def __eq__(self, other: object) -> builtins.bool:
        if not isinstance(other, TensorSpec):
            return NotImplemented
        return (self.shape, self.dtype.number, self.ragged) == (other.shape, other.dtype.number, other.ragged)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.ragged))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}{', ragged=True' if self.ragged else ''})"

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorSpec, (self.shape, self.dtype, self.ragged)


class DatasetSpec:
    """The type of an element that is a dataset; element_spec is that of its elements."""

    __slots__ = ("element_spec",)
    element_spec: Any

    def __init__(self, element_spec: Any) -> None:
        object.__setattr__(self, "element_spec", element_spec)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("specs cannot be changed")

    def __eq__(self, other: object) -> builtins.bool:
        return self.element_spec == other.element_spec if isinstance(other, DatasetSpec) else NotImplemented

    def __hash__(self) -> int:
        return hash(repr(self.element_spec))

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return DatasetSpec, (self.element_spec,)


TypeLike = Union[DType, ShapedType, str, "np.dtype[Any]", type]
#: The structure of an element: tuples and dicts with these leaves.
Spec = Union[TensorSpec, DatasetSpec, "tuple[Spec, ...]", "dict[str, Spec]"]
_of_python = {int: int64, float: float32, builtins.bool: bool, builtins.bytes: bytes, str: bytes}


def as_dtype(x: TypeLike) -> DType:
    """The DType that x means: a DType, a name, a type of numpy, or one of Python (float is float32)."""
    if isinstance(x, DType):
        return x
    if isinstance(x, str):
        return dtype_named(x)
    if isinstance(x, ShapedType):
        raise TypeError(f"a type without a shape is expected, not {x!r}")
    if isinstance(x, type) and x in _of_python:
        return _of_python[x]
    try:
        dtype = np.dtype(x)
    except TypeError:
        raise TypeError(f"expected a type, such as mr.float32, not {x!r}") from None
    if dtype.kind in "SUO":
        return bytes
    found = dtype_of_numpy(dtype)
    if found is None:
        raise TypeError(f"there is no type for numpy's {dtype}; the types are {', '.join(_numbers)}")
    return found


def as_type(x: TypeLike) -> DType | ShapedType:
    """The same for types with a shape: "int64[]" is `mr.int64[...]`."""
    if isinstance(x, (DType, ShapedType)):
        return x
    match = re.fullmatch(r"\s*(\w+)\s*\[([^][]*)\]\s*", x) if isinstance(x, str) else None
    if not match:
        return as_dtype(x.strip() if isinstance(x, str) else x)
    dtype = as_dtype(match[1])
    sizes = [n.strip() for n in match[2].split(",") if n.strip()]
    if not sizes:
        return dtype[...]
    if not all(n == "none" or n.isdecimal() for n in sizes):
        raise ValueError(f"a shape is made of sizes and none, as in float32[none, 3], not {match[2]!r}")
    return ShapedType(dtype, tuple(None if n == "none" else int(n) for n in sizes))


def as_spec(x: Any) -> Spec:
    """The spec that a structure of types means: `{"a": mr.int64[...], "b": "float32"}`."""
    if isinstance(x, (TensorSpec, DatasetSpec)):
        return x
    if isinstance(x, Mapping):
        return {name: as_spec(v) for name, v in x.items()}
    if isinstance(x, (tuple, list)):
        return tuple(as_spec(v) for v in x)
    found = as_type(x)
    return found.spec if isinstance(found, ShapedType) else TensorSpec((), found)


def spec_of(spec: Any) -> Any:
    """An `mr_spec *` as Python structure of TensorSpec."""
    kind = lib.mr_spec_kind_of(spec)
    if kind == lib.MR_SPEC_LEAF:
        return _leaf_of(lib.mr_spec_leaf(spec, 0))
    children = [lib.mr_spec_child(spec, i) for i in range(lib.mr_spec_n_children(spec))]
    if kind == lib.MR_SPEC_TUPLE:
        return tuple(spec_of(c) for c in children)
    return {_child_name(spec, i): spec_of(c) for i, c in enumerate(children)}


def _child_name(spec: Any, i: int) -> str:
    return ffi.string(lib.mr_spec_child_name(spec, i)).decode("utf-8", "surrogateescape")  # type: ignore[no-any-return]


def _leaf_of(leaf: Any) -> TensorSpec | DatasetSpec:
    if leaf.dtype == lib.MR_DATASET:
        return DatasetSpec(spec_of(leaf.element))
    shape = None if leaf.rank < 0 else tuple(None if leaf.shape[i] < 0 else int(leaf.shape[i]) for i in range(leaf.rank))
    return TensorSpec(shape, dtype_numbered(leaf.dtype), builtins.bool(leaf.ragged))


def plan_of(spec: Any) -> Any:
    """How elements are put together: a leaf is its number among the leaves (from 0)."""
    numbers: Iterator[int] = iter(range(lib.mr_spec_n_leaves(spec)))

    def plan(s: Any) -> Any:
        kind = lib.mr_spec_kind_of(s)
        if kind == lib.MR_SPEC_LEAF:
            return next(numbers)
        n = lib.mr_spec_n_children(s)
        if kind == lib.MR_SPEC_TUPLE:
            return tuple(plan(lib.mr_spec_child(s, i)) for i in range(n))
        return {_child_name(s, i): plan(lib.mr_spec_child(s, i)) for i in range(n)}

    return plan(spec)


class Ragged:
    """Rows of different lengths: row i is `values[row_splits[i]:row_splits[i + 1]]`.

        >>> import numpy as np
        >>> r = Ragged(np.array([1, 2, 3]), np.array([0, 2, 2, 3]))
        >>> len(r), r.to_list()
        (3, [[1, 2], [], [3]])
        >>> r[0]
        array([1, 2])
        >>> r[1:].to_list()
        [[], [3]]
    """

    __slots__ = ("values", "row_splits")
    values: Any
    row_splits: np.ndarray[Any, np.dtype[np.int64]]

    def __init__(self, values: Any, row_splits: Any) -> None:
        self.values = values
        self.row_splits = row_splits

    @classmethod
    def _of_dense(cls, array: Any) -> Ragged:
        """The same rows as an array whose axis 1 is regular."""
        rows, length = array.shape[0], array.shape[1]
        return cls(
            array.reshape((rows * length,) + tuple(array.shape[2:])), np.arange(rows + 1, dtype=np.int64) * length
        )

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, i: int | slice) -> Any:
        n = len(self)
        if isinstance(i, slice):
            first, end, step = i.indices(n)
            if step != 1:
                raise ValueError("slices of ragged rows go forward in steps of 1: r[2:5]")
            splits = self.row_splits[first : max(first, end) + 1]
            return Ragged(self.values[int(splits[0]) : int(splits[-1])], splits - splits[0])
        if not -n <= i < n:
            raise IndexError(f"row {i} of {n}")
        i %= n
        return self.values[int(self.row_splits[i]) : int(self.row_splits[i + 1])]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The number of rows, None for their lengths, and the shape of an entry."""
        return (len(self), None) + tuple(self.values.shape[1:])

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def to_list(self) -> list[Any]:
        """The rows as nested lists."""
        return [row.tolist() for row in self]

    def to_torch(self) -> Any:
        """A nested tensor of PyTorch in the jagged layout; shares no memory with this one."""
        from ._formats import import_torch

        torch = import_torch()
        if not hasattr(torch, "jagged"):
            raise Unimplemented(f"PyTorch {torch.__version__} has no jagged tensors; use PyTorch 2.1 or later")
        if isinstance(self.values, torch.Tensor):
            values = self.values.clone()
        else:
            values = torch.from_numpy(np.array(self.values))
        return torch.nested.nested_tensor_from_jagged(values, offsets=torch.from_numpy(np.array(self.row_splits)))

    def to_arrow(self) -> Any:
        """A pyarrow.LargeListArray of the rows; strings are large_binary, or large_string if they are
        str. Numbers are not copied."""
        from ._formats import import_pyarrow

        pa = import_pyarrow()
        flat = np.asarray(self.values)
        kind = None
        if flat.dtype == object:
            kind = pa.large_string() if flat.size and isinstance(flat.flat[0], str) else pa.large_binary()
        array = pa.array(flat.reshape(-1), type=kind)
        for axis in range(flat.ndim - 1, 0, -1):
            size = flat.shape[axis]
            if size:
                array = pa.FixedSizeListArray.from_arrays(array, size)
            else:
                array = pa.array([[]] * math.prod(flat.shape[:axis]), pa.list_(array.type, 0))
        return pa.LargeListArray.from_arrays(pa.array(np.asarray(self.row_splits)), array)

    def __repr__(self) -> str:
        return f"Ragged(values={self.values!r}, row_splits={self.row_splits!r})"


def fast_types() -> dict[int, tuple[Any, Any]]:
    """By number, what millrace._fast makes of values of a type: an array, and a scalar."""
    types: dict[int, tuple[Any, Any]] = {n: (t, t.type) for n, t in _numpy.items()}
    types[lib.MR_BFLOAT16] = (np.dtype(np.uint16), _bfloat16_scalar)
    return types


def _bfloat16_scalar(x: float) -> Any:
    dtype = _ml_bfloat16()
    return np.float32(x) if dtype is None else dtype.type(x)


def pointer_of(spec: Spec) -> Any:
    """A spec as `mr_spec *`, owned by the caller."""
    out = _pointer_of(spec)
    if out == ffi.NULL:
        raise MemoryError("a spec")
    return out


def _pointer_of(spec: Spec) -> Any:
    if isinstance(spec, DatasetSpec):
        return lib.mr_spec_dataset(_pointer_of(spec.element_spec))
    if isinstance(spec, TensorSpec):
        leaf = ffi.new("mr_leaf *")
        leaf.dtype, leaf.ragged = spec.dtype.number, spec.ragged
        rank, most = -1 if spec.shape is None else len(spec.shape), len(leaf.shape)
        if rank > most:
            raise InvalidArgument(f"a tensor has at most {most} axes, and this type has {rank}: {spec}")
        leaf.rank = rank
        for i, n in enumerate(spec.shape or ()):
            leaf.shape[i] = -1 if n is None else n
        return lib.mr_spec_of_leaf(leaf)
    if isinstance(spec, tuple):
        return lib.mr_spec_tuple([_pointer_of(s) for s in spec], len(spec))
    names = [ffi.new("char[]", k.encode("utf-8", "surrogateescape")) for k in spec]
    return lib.mr_spec_record(names, [_pointer_of(s) for s in spec.values()], len(spec))
