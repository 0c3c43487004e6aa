# SPDX-License-Identifier: Apache-2.0
"""Functions of Python that the library calls."""

from __future__ import annotations

import functools
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar

from . import _fast
from ._ffi import ffi, lib


def callback(
    name: str | None = None, *, ffi: Any = ffi, error: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`ffi.def_extern`. The handler of a signal can raise, as that of Ctrl-C does, where a function
    begins, before its `try`. Then a function with an argument `st` fails, and another one is called again,
    as nothing else ends what it ends. What was raised is raised again once the library has returned."""

    def define(function: Callable[..., Any]) -> Callable[..., Any]:
        code = function.__code__
        arguments = code.co_varnames[: code.co_argcount]

        def failed(kind: type[BaseException], e: BaseException, trace: TracebackType) -> Any:
            if threading.current_thread() is not threading.main_thread():  # it runs no handlers: a bug
                traceback.print_exception(e)
                return None
            _fast.raise_later(e)
            given = {k: trace.tb_frame.f_locals[k] for k in arguments}
            if "st" not in given:
                return function(**given)
            number: int = lib.MR_CANCELLED
            lib.mrpy_fail(given["st"], number, b"interrupted")
            return number

        more = {} if error is None else {"error": error}
        made: Callable[..., Any] = ffi.def_extern(name=name or function.__name__, onerror=failed, **more)(function)
        return made

    return define


_F = TypeVar("_F", bound=Callable[..., None])


def finalizer(function: _F) -> _F:
    """For `__del__`, of which Python would print and forget what the handler of a signal raises: that is
    raised by the next call of the library, also where it would wait. What fails as the interpreter ends
    lacks names of modules, which are gone by then, and `at_exit` has closed everything."""
    ends = sys.is_finalizing

    @functools.wraps(function)
    def drop(self: Any) -> None:
        try:
            function(self)
        except Exception:
            if not ends():
                raise
        except BaseException as e:
            _fast.raise_later(e.with_traceback(None))  # its frames hold the object

    return drop  # type: ignore[return-value]


_T = TypeVar("_T")
MOST_FAILURES = 100


def close_all(things: Iterable[_T], close: Callable[[_T], None]) -> None:
    """Closes them as the interpreter ends, where what the handler of a signal raises must not leave the
    others. `close` can be called again, and waits for no functions of Python, which may never return."""
    left, failures = list(things), 0
    while left:
        try:
            while left:
                close(left[-1])
                left.pop()
                failures = 0
        except BaseException:
            failures += 1
            if failures == MOST_FAILURES:  # the cause is not a signal
                left.pop()
                failures = 0
