# SPDX-License-Identifier: Apache-2.0
"""The library's log, in logging.getLogger("millrace")."""

from __future__ import annotations

import logging
from typing import Any

from ._callbacks import callback
from ._errors import text_of
from ._ffi import ffi, lib

logger = logging.getLogger("millrace")
_levels = {
    lib.MR_LOG_DEBUG: logging.DEBUG,
    lib.MR_LOG_INFO: logging.INFO,
    lib.MR_LOG_WARNING: logging.WARNING,
    lib.MR_LOG_ERROR: logging.ERROR,
}


@callback()
def mrpy_log(ctx: Any, level: int, message: Any) -> None:
    logger.log(_levels.get(level, logging.INFO), "%s", text_of(message))


def start() -> None:
    lib.mr_log_set(lib.mrpy_log, ffi.NULL, lib.MR_LOG_INFO)


def stop() -> None:
    lib.mr_log_set(ffi.NULL, ffi.NULL, lib.MR_LOG_ERROR)
