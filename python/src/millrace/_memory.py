# SPDX-License-Identifier: Apache-2.0
"""Datasets of what is in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _call, _fast, _trace
from ._errors import check
from ._ffi import ffi, lib
from ._values import Names, text_of

if TYPE_CHECKING:
    from ._dataset import Dataset


def _components(op: str, components: tuple[Any, ...], named: dict[str, Any]) -> Dataset:
    from ._dataset import open_dataset, parse

    if not components and not named:
        raise TypeError(f"{op}: expected a structure of arrays, such as (images, labels)")
    if _trace.is_recording() and _call._uses_parameters((list(components), list(named.values()))):
        parts = [_trace.text_of(c) for c in components] + [f"{k}={_trace.text_of(v)}" for k, v in named.items()]
        return open_dataset(f"{op}({', '.join(parts)})")
    names = Names()
    parts = [text_of(c, names) for c in components]
    parts += [f"{k[:-1] if k.endswith('_') else k}={text_of(v, names)}" for k, v in named.items()]
    return parse(f"{op}({', '.join(parts)})", names, call=True)


@_call.named("from_tensor_slices")
def from_tensor_slices(*components: Any, **named: Any) -> Dataset:
    """The slices along axis 0 of arrays.

    Args:
        components: arrays, or tuples and dicts of them: numpy's, whatever has __dlpack__, nested
            lists. Contiguous arrays are not copied, and must not be changed afterwards. Several make
            a tuple.
        named: the same by name: elements are dicts.

    Ints in lists are int64 and floats float32; arrays keep their type.

    Example:
        mr.from_tensor_slices((images, labels)).shuffle(1000).batch(32)
    """
    return _components("from_tensor_slices", components, named)


@_call.named("from_tensors")
def from_tensors(*components: Any, **named: Any) -> Dataset:
    """One element, made of the components.

    Args:
        components: arrays, or tuples and dicts of them, as in `from_tensor_slices`, or datasets.
        named: the same by name: the element is a dict.

    Example:
        mr.from_tensors((mean, stddev)).repeat()
    """
    return _components("from_tensors", components, named)


def from_arrow(obj: Any) -> Dataset:
    """The rows of Arrow data as dicts: of a table, batches or a reader of pyarrow, polars, duckdb and
    others; anything with __arrow_c_stream__. The columns are not copied.

    A stream that can be read once, such as a reader, makes one epoch; `cache()` keeps its rows.
    """
    from ._dataset import new_dataset

    if not hasattr(obj, "__arrow_c_stream__"):
        raise TypeError(
            f"expected an object with __arrow_c_stream__, such as a table of pyarrow or polars, not {type(obj).__name__}"
        )
    capsule = obj.__arrow_c_stream__()
    pointer = _fast.capsule_pointer(capsule, "arrow_array_stream")
    ds = new_dataset(lib.mr_from_arrow(ffi.cast("struct ArrowArrayStream *", pointer)))
    st = ffi.new("mr_status *")
    check(lib.mr_dataset_check(ds._ds, st), st)
    return ds
