# SPDX-License-Identifier: Apache-2.0
"""Elements by number: `ds[i]`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from . import _fast
from ._errors import add_caret, check, error_at
from ._ffi import ffi, lib
from ._types import plan_of

if TYPE_CHECKING:
    from ._dataset import Dataset


class Lookup(_fast.Iterator):
    """An `mr_random_access` of a dataset, which keeps files open between lookups. It is never
    iterated: the base class makes elements of blocks."""

    def __init__(self, ds: Dataset) -> None:
        from ._formats import converter

        pointer = ds._pointer()
        out, st = ffi.new("mr_random_access **"), ffi.new("mr_status *")
        self.generation = _fast.generation()
        check(lib.mr_random_access_open(out, pointer, ffi.NULL, st), st)
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

    def count(self) -> int:
        out = ffi.new("int64_t *")
        with self._lock:
            check(lib.mr_random_access_count(self._access, out, self._status), self._status)
        return int(out[0])

    def at(self, i: int) -> Any:
        with self._lock:
            self._number[0] = i
            if lib.mr_random_access_at(self._access, self._number, 1, self._block, self._status) != lib.MR_OK:
                error = error_at(int(ffi.cast("intptr_t", self._status)))
                add_caret(error, self._text)
                raise error
            return self._element(self._address)


def lookup_of(ds: Dataset) -> Lookup:
    """That of a Dataset object, made when it is first needed; another one in a forked process."""
    found = ds._lookup
    if found is None or found.generation != _fast.generation():
        ds._lookup = found = Lookup(ds)
    return found
