# SPDX-License-Identifier: Apache-2.0
"""What arrays become in the formats of iterators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._errors import OutOfRange, Unimplemented, check
from ._ffi import ffi, lib

FORMATS = ("numpy", "torch", "jax", "arrow")
STRINGS = ("bytes", "str", "arrow")


def converter(format: str, strings: str) -> tuple[Callable[[Any, int], Any] | None, bool]:
    """What is called with each array and the number of its dtype (None: nothing), and whether strings
    are decoded."""
    if format not in FORMATS:
        raise ValueError(f"format is one of {', '.join(map(repr, FORMATS))}, not {format!r}")
    if strings not in STRINGS:
        raise ValueError(f"strings is one of {', '.join(map(repr, STRINGS))}, not {strings!r}")
    if format == "torch":
        import_torch()
    if format == "jax":
        _import_jax()
    return {"numpy": None, "torch": to_torch, "jax": _jax, "arrow": None}[format], strings == "str"


def import_torch() -> Any:
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ImportError as e:
        raise ImportError("format='torch' needs PyTorch: pip install 'millrace-data[torch]'") from e
    return torch


def _import_jax() -> None:
    try:
        import jax  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError as e:
        raise ImportError("format='jax' needs JAX: pip install 'millrace-data[jax]'") from e


def import_pyarrow() -> Any:
    try:
        import pyarrow as pa  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise ImportError("Arrow arrays need pyarrow: pip install 'millrace-data[arrow]'") from None
    return pa


def to_torch(array: np.ndarray[Any, Any], number: int) -> Any:
    """A tensor that may be modified in place: of memory that has no other user, else of a copy.
    number: of the dtype; arrays of bfloat16 are the bits as uint16."""
    torch = import_torch()
    if not array.flags.writeable:
        array = array.copy()
    if number == lib.MR_BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    try:
        return torch.from_numpy(array)
    except TypeError:
        if array.dtype.kind != "u":
            raise
        raise Unimplemented(
            f"PyTorch {torch.__version__} has no tensors of {array.dtype}; cast them, or use PyTorch 2.3 or later"
        ) from None


def _jax(array: np.ndarray[Any, Any], number: int) -> Any:
    """A jax.Array, which may be of this memory: nothing else writes it as long as the array lives."""
    import jax.numpy as jnp  # type: ignore[import-not-found,unused-ignore]

    return jnp.asarray(narrowed(array, number))


def narrowed(array: np.ndarray[Any, Any], number: int) -> np.ndarray[Any, Any]:
    """The array as JAX takes it: integers of 64 bits, which JAX makes 32 bits of unless
    jax_enable_x64 is set, must fit; they would be wrong without a word."""
    import jax  # type: ignore[import-not-found,unused-ignore]
    import jax.numpy as jnp

    if number == lib.MR_BFLOAT16:
        return array.view(jnp.bfloat16) if array.dtype != jnp.bfloat16 else array
    if number not in (lib.MR_INT64, lib.MR_UINT64) or not array.size:
        return array
    small = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype))
    if small == array.dtype:
        return array
    limits = np.iinfo(small)
    low, high = array.min(), array.max()
    if low < limits.min or high > limits.max:
        raise OutOfRange(
            f"{low if low < limits.min else high} does not fit {small}, which JAX makes of {array.dtype}; "
            'jax.config.update("jax_enable_x64", True) keeps 64 bits'
        )
    return array.astype(small)


def arrow_parts(format: str, strings: str) -> str | None:
    """Which values become Arrow arrays: "all", "strings", or None."""
    return "all" if format == "arrow" else "strings" if strings == "arrow" else None


def arrow_maker(spec: Any, text: bool) -> Callable[[int, int], Any]:
    """What makes a pyarrow.Array of the value of a leaf, by its number and the address of its column; of
    a scalar a pyarrow.Scalar. text: strings are of type large_string."""
    pa = import_pyarrow()
    leaves = [lib.mr_spec_leaf(spec, i) for i in range(lib.mr_spec_n_leaves(spec))]

    def make(leaf: int, column: int) -> Any:
        array, schema, st = ffi.new("struct ArrowArray *"), ffi.new("struct ArrowSchema *"), ffi.new("mr_status *")
        a = ffi.cast("mr_array *", column)
        check(lib.mrpy_export_row(array, schema, a, leaves[leaf], st), st)
        out = pa.Array._import_from_c(int(ffi.cast("intptr_t", array)), int(ffi.cast("intptr_t", schema)))
        if text and a.dtype == lib.MR_STRING:
            out = out.cast(_text_type(pa, out.type))
        return out[0] if a.rank == 0 else out

    return make


def _text_type(pa: Any, t: Any) -> Any:
    if pa.types.is_large_list(t):
        return pa.large_list(pa.field("item", _text_type(pa, t.value_type), nullable=False))
    if pa.types.is_fixed_size_list(t):
        return pa.list_(pa.field("item", _text_type(pa, t.value_type), nullable=False), t.list_size)
    return pa.large_string()
