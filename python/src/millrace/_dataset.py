# SPDX-License-Identifier: Apache-2.0
"""Datasets: immutable graphs of the library."""

from __future__ import annotations

import os
from typing import Any

from ._errors import FailedPrecondition, check
from ._ffi import ffi, lib
from ._iterator import Iterator, Shared
from ._types import spec_of
from ._values import Names

INFINITE: int = lib.MR_INFINITE
UNKNOWN: int = lib.MR_UNKNOWN_COUNT


class Dataset:
    """A pipeline: a source and the operations on its elements. It runs when it is iterated.

        >>> import millrace as mr
        >>> ds = mr.from_text("range(5).batch(2)")
        >>> for x in ds:
        ...     print(x)
        [0 1]
        [2 3]
        [4]

    Each iterator of a Dataset object is its next epoch: shuffles draw another order, and memory
    caches keep what the first epoch read. Datasets cannot be changed; they can be hashed, compared,
    pickled, and printed: `str(ds)` is the text of the pipeline.
    """

    __slots__ = ("_ds", "_spec", "_shared", "__weakref__")
    _ds: Any
    _spec: Any
    _shared: Shared | None

    def __init__(self) -> None:
        raise TypeError(
            "datasets are made by sources, as in millrace.range(10), or by millrace.from_text('range(10)')"
        )

    @property
    def element_spec(self) -> Any:
        """The structure of an element: TensorSpec, or tuples and dicts of them.

            >>> import millrace as mr
            >>> mr.from_text("range(5).batch(2)").element_spec
            TensorSpec(shape=(None,), dtype=mr.int64)
        """
        if self._spec is None:
            self._spec = spec_of(lib.mr_dataset_spec(self._ds))
        return self._spec

    def cardinality(self) -> int:
        """The number of elements, `mr.INFINITE`, or `mr.UNKNOWN` where only running would show it."""
        return int(lib.mr_dataset_cardinality(self._ds))

    def __len__(self) -> int:
        n = self.cardinality()
        if n == INFINITE:
            raise TypeError("this dataset has no end; take(n) is its first n elements")
        if n == UNKNOWN:
            raise TypeError(
                "the number of elements is not known without running; assert_cardinality(n) states it"
            )
        return n

    def __iter__(self) -> Iterator:
        return Iterator(self)

    def iterator(
        self,
        *,
        format: str = "numpy",
        strings: str = "bytes",
        seed: int | None = None,
        threads: int | None = None,
        memory_limit: int | str | None = None,
        ledger: str | os.PathLike[str] | None = None,
    ) -> Iterator:
        """An iterator, with options.

        Args:
            format: what elements are made of: "numpy", "torch", "jax" or "arrow".
            strings: "bytes", "str" (UTF-8 is decoded) or "arrow".
            seed: the job's seed: ops and functions without a seed draw from it.
            threads: how many the library starts; 0: all work is done by the thread that calls next.
                None: the number of processors that this process may use.
            memory_limit: most resident memory of this process, in bytes or as "2G". None: that of the
                graph, or of the control group.
            ledger: a file that records which records each element was made of, for `millrace why`.
        """
        return Iterator(
            self,
            format=format,
            strings=strings,
            seed=seed,
            threads=threads,
            memory_limit=memory_limit,
            ledger=ledger,
        )

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        try:
            return self._text()
        except FailedPrecondition:
            return f"<no text: elements of {self.element_spec!r}>"

    def __repr__(self) -> str:
        return f"<millrace.Dataset {self}>"

    def _text(self) -> str:
        """The canonical text; FailedPrecondition where there is none."""
        return text_of_dataset(self._ds)


def new_dataset(pointer: Any) -> Dataset:
    """A Dataset of an `mr_dataset *` that the caller owns."""
    ds: Dataset = object.__new__(Dataset)
    ds._ds = ffi.gc(pointer, lib.mr_dataset_unref)
    ds._spec = None
    ds._shared = None
    return ds


def dataset_at(pointer: int) -> Dataset:
    """The Dataset at an address, with a reference of its own."""
    return new_dataset(lib.mr_dataset_ref(ffi.cast("mr_dataset *", pointer)))


def text_of_dataset(pointer: Any) -> str:
    out, st = ffi.new("char **"), ffi.new("mr_status *")
    check(lib.mr_dataset_to_text(pointer, out, st), st)
    text: str = ffi.string(out[0]).decode("utf-8", "surrogateescape")
    lib.mr_free(out[0])
    return text


def parse(text: str, names: Names | None = None, *, call: bool = False) -> Dataset:
    """The dataset that a text describes. call: the text was made of a call in Python."""
    data = text.encode("utf-8", "surrogateescape")
    out, st = ffi.new("mr_dataset **"), ffi.new("mr_status *")
    env = names.env() if names is not None and names.names else ffi.NULL
    check(lib.mr_dataset_from_text(data, len(data), env, out, st), st, call=call)
    return new_dataset(out[0])


def from_text(text: str) -> Dataset:
    """The dataset that a text describes, in the grammar of the command line.

        >>> import millrace as mr
        >>> list(mr.from_text("range(3).map(x => x * x)"))
        [0, 1, 4]
    """
    if not isinstance(text, str):
        raise TypeError(f"a pipeline's text is a str, not {type(text).__name__}")
    return parse(text)
