# SPDX-License-Identifier: Apache-2.0
"""Loads the library of the data service, which has the ops distribute and distributed_dataset."""

from __future__ import annotations

from typing import Any

from ._errors import check

_loaded = False


def is_loaded() -> bool:
    return _loaded


def library() -> tuple[Any, Any]:
    """(ffi, lib) of the service."""
    global _loaded
    from ._service_ffi import ffi, lib

    if not _loaded:
        st = ffi.new("mr_status *")
        check(lib.mr_service_register_ops(st), st)
        _loaded = True
    return ffi, lib
