# SPDX-License-Identifier: Apache-2.0
"""Elements by number: `ds[i]`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _fast
from ._errors import Cancelled, add_caret, check, error_at
from ._ffi import ffi, lib
from ._types import plan_of

if TYPE_CHECKING:
    from ._dataset import Dataset

_T = TypeVar("_T")
INTERRUPTED = -1  # of Lookup.generation


class Lookup(_fast.Iterator):
    """An `mr_random_access` of a dataset, which keeps files open between lookups. It is never
    iterated: the base class makes elements of blocks."""

    def __init__(self, ds: Dataset) -> None:
        from ._formats import converter

        pointer = ds._pointer()
        out, st = ffi.new("mr_random_access **"), ffi.new("mr_status *")
        self.generation = _fast.generation()
        made = ffi.new("mr_cancel **")
        check(lib.mr_cancel_new(ffi.NULL, made, st), st)
        self._cancel = ffi.gc(made[0], lib.mr_cancel_unref)
        opts = ffi.new("mr_iterator_opts *")
        opts.cancel = self._cancel
        check(self._guarded(lambda: lib.mr_random_access_open(out, pointer, opts, st)), st)
        self._text = str(ds)
        self._keeps = pointer  # names of columns are the dataset's
        self._access = ffi.gc(out[0], lib.mr_random_access_close)
        self._lock = threading.Lock()
        self._number, self._status = ffi.new("int64_t *"), st
        self._block = ffi.gc(ffi.new("mr_block *"), lib.mr_block_reset)
        self._address = int(ffi.cast("intptr_t", self._block))
        convert, strings = converter("numpy", "bytes")
        spec = lib.mr_dataset_spec(pointer)
        ragged = [bool(lib.mr_spec_leaf(spec, i).ragged) for i in range(lib.mr_spec_n_leaves(spec))]
        self._attach(0, plan_of(spec), ragged, convert, strings, None, False)

    def _guarded(self, call: Callable[[], int]) -> int:
        """What the call returns. Ctrl-C ends it, and this object: the Dataset makes another."""
        out = 0

        def run() -> None:
            nonlocal out
            out = call()

        try:
            _fast.guarded(0, int(ffi.cast("intptr_t", self._cancel)), run)
        finally:
            if lib.mr_cancel_is_cancelled(self._cancel):
                self.generation = INTERRUPTED
        return out

    def count(self) -> int:
        out = ffi.new("int64_t *")
        with self._lock:
            count = lib.mr_random_access_count
            check(self._guarded(lambda: count(self._access, out, self._status)), self._status)
        return int(out[0])

    def at(self, i: int) -> Any:
        with self._lock:
            self._number[0] = i
            look = lib.mr_random_access_at
            if self._guarded(lambda: look(self._access, self._number, 1, self._block, self._status)) != lib.MR_OK:
                error = error_at(int(ffi.cast("intptr_t", self._status)))
                add_caret(error, self._text)
                raise error
            return self._element(self._address)


def look_up(ds: Dataset, call: Callable[[Lookup], _T]) -> _T:
    """What the call returns of the dataset's Lookup. It is made when it is first needed, and again in a
    forked process and after an interrupt whose handler raised nothing."""
    while True:
        found = ds._lookup
        if found is None or found.generation != _fast.generation():
            ds._lookup = found = Lookup(ds)
        try:
            return call(found)
        except Cancelled:
            if found.generation != INTERRUPTED:
                raise
