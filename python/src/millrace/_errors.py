# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the library: what failed, in which op, at which element, file and record."""

from __future__ import annotations

from typing import Any

from . import _fast
from ._ffi import ffi, lib


class Error(Exception):
    """An error of the library. Its subclasses are also the built-in exceptions of their kind.

    Attributes:
        code: the kind of error, for example "DATA_LOSS".
        op: path of the op that failed, the last op of the graph first: "batch/map/tfrecord".
        element: number of the element that failed, among those the op emits, from 0.
        file: the file that was read or written.
        record: number of the record in the file, from 0.
        offset: where the record begins in the (uncompressed) file, in bytes.

    None stands for what is unknown.
    """

    code: str = "UNKNOWN"
    op: str | None
    element: int | None
    file: str | None
    record: int | None
    offset: int | None

    def __init__(
        self,
        message: str = "",
        *,
        op: str | None = None,
        element: int | None = None,
        file: str | None = None,
        record: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.op = op
        self.element = element
        self.file = file
        self.record = record
        self.offset = offset

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self.message, dict(self.__dict__))


def _unpickle(kind: type[Error], message: str, attributes: dict[str, Any]) -> Error:
    error = kind(message)
    error.__dict__.update(attributes)
    return error


class InvalidArgument(Error, ValueError):
    """An argument, a graph or an element is not what it must be."""

    code = "INVALID_ARGUMENT"


class NotFound(Error, FileNotFoundError):
    """A file does not exist, or no file matches a pattern."""

    code = "NOT_FOUND"


class AlreadyExists(Error, FileExistsError):
    """What would be made is there already."""

    code = "ALREADY_EXISTS"


class DataLoss(Error, OSError):
    """Data are damaged or incomplete."""

    code = "DATA_LOSS"


class Unavailable(Error, ConnectionError):
    """A service cannot be reached now."""

    code = "UNAVAILABLE"


class DeadlineExceeded(Error, TimeoutError):
    """It took longer than allowed."""

    code = "DEADLINE_EXCEEDED"


class ResourceExhausted(Error, MemoryError):
    """Memory, a memory limit, or room on a disk is used up."""

    code = "RESOURCE_EXHAUSTED"


class Unimplemented(Error, NotImplementedError):
    """The library cannot do this."""

    code = "UNIMPLEMENTED"


class PermissionDenied(Error, PermissionError):
    """A file may not be read or written."""

    code = "PERMISSION_DENIED"


class FailedPrecondition(Error):
    """The call needs something that is not so, for example a position of an op that cannot save."""

    code = "FAILED_PRECONDITION"


class Cancelled(Error):
    """The iterator was cancelled."""

    code = "CANCELLED"


class Aborted(Error):
    """The work was given up, for example because another worker failed."""

    code = "ABORTED"


class OutOfRange(Error, IndexError):
    """A position, or the number of an element, lies outside of the data."""

    code = "OUT_OF_RANGE"


class Internal(Error):
    """A bug in the library, or in an op that a program added."""

    code = "INTERNAL"


class ForkError(FailedPrecondition):
    """An iterator was used in a process forked from the one that made it."""


class TraceError(Error, TypeError):
    """A function does something that cannot be recorded. `file` and `line` name the place in the
    user's code."""

    code = "INVALID_ARGUMENT"
    line: int | None

    def __init__(self, message: str = "", file: str | None = None, line: int | None = None) -> None:
        super().__init__(message, file=file)
        self.line = line


_kinds: dict[int, type[Error]] = {
    lib.MR_CANCELLED: Cancelled,
    lib.MR_INVALID_ARGUMENT: InvalidArgument,
    lib.MR_DEADLINE_EXCEEDED: DeadlineExceeded,
    lib.MR_NOT_FOUND: NotFound,
    lib.MR_ALREADY_EXISTS: AlreadyExists,
    lib.MR_PERMISSION_DENIED: PermissionDenied,
    lib.MR_RESOURCE_EXHAUSTED: ResourceExhausted,
    lib.MR_FAILED_PRECONDITION: FailedPrecondition,
    lib.MR_ABORTED: Aborted,
    lib.MR_OUT_OF_RANGE: OutOfRange,
    lib.MR_UNIMPLEMENTED: Unimplemented,
    lib.MR_INTERNAL: Internal,
    lib.MR_UNAVAILABLE: Unavailable,
    lib.MR_DATA_LOSS: DataLoss,
}


def text_of(chars: Any) -> str:
    """A C string (char array or pointer) as str; what is not UTF-8 is kept as surrogates."""
    text: str = ffi.string(chars).decode("utf-8", "surrogateescape")
    return text


def error_of(status: Any, *, call: bool = False) -> Error:
    """The exception for an `mr_status *`. call: the text was made of a method call, so that its line
    and column mean nothing to the user."""
    st = status[0]
    room = ffi.new("char[]", 4096)
    # A traceback of Python has lines, which the library would show as one.
    first, newline, traceback = text_of(st.message).partition("\nTraceback (most recent call last):\n")
    if newline:
        st.message[len(first.encode("utf-8", "surrogateescape"))] = b"\0"
    lib.mr_status_format(status, room, 4096)
    lines = text_of(room).split("\n")
    message = lines[0] + newline + traceback
    if st.code in _kinds:  # the class says it
        message = message.replace(text_of(lib.mr_code_text(st.code)) + ": ", "", 1)
    if call:
        message = _without_place(message)
    error = _kinds.get(st.code, Error)(
        message,
        op=text_of(st.op) or None,
        element=int(st.element) if st.element >= 0 else None,
        file=text_of(st.file) or None,
        record=int(st.record) if st.record >= 0 else None,
        offset=int(st.offset) if st.offset >= 0 else None,
    )
    if len(lines) > 1:
        error.add_note("\n".join(lines[1:]))
    if isinstance(error, OSError) and st.sys_errno:
        error.errno = st.sys_errno
        error.filename = error.file
    return error


def _without_place(message: str) -> str:
    """Leaves out "line 1, column 9: "."""
    before, found, after = message.partition("line 1, column ")
    column, colon, rest = after.partition(": ")
    return before + rest if found and colon and column.isdigit() else message


def error_at(pointer: int) -> Error:
    """The same, for the address of a status."""
    return error_of(ffi.cast("mr_status *", pointer))


_SHOWN = 100  # characters of a line with a caret


def without_secrets(text: str) -> str:
    """What may be printed of a text: its URLs without passwords and signatures."""
    if "://" not in text:
        return text
    copy = ffi.new("char[]", text.encode("utf-8", "surrogateescape"))
    lib.mr_text_drop_secrets(copy)
    shown: str = ffi.string(copy).decode("utf-8", "surrogateescape")
    return shown


def add_caret(error: Error, text: str) -> None:
    """Notes where in a pipeline's text the expression is whose value is an error, as for errors of the
    text. The message ends with it: "integer division by zero in 10 // x"."""
    if hasattr(error, "__notes__") or error.op is None:
        return
    text = without_secrets(text)
    begin, end = _span(text, error.op)
    at = error.message.find(" in ")
    while at >= 0:
        part = error.message[at + 4 :].removesuffix("...")
        column = text.find(part, begin, end) if part else -1
        if column >= 0 and (begin > 0 or end < len(text) or text.find(part, column + 1) < 0):
            first = max(0, min(column - _SHOWN // 4, len(text) - _SHOWN))
            before, after = "..." if first else "", "..." if len(text) > first + _SHOWN else ""
            line = f"  {before}{text[first : first + _SHOWN]}{after}"
            error.add_note(line + "\n" + " " * (2 + len(before) + column - first) + "^")
            return
        at = error.message.find(" in ", at + 1)


def _span(text: str, op: str) -> tuple[int, int]:
    """Where the call of an op is, if the pipeline is a chain at that place; else the whole text."""
    path = op.split("/")
    begins, depth, quoted, escaped = [0], 0, False, False
    for i, c in enumerate(text):
        if quoted:
            quoted = escaped or c != '"'
            escaped = c == "\\" and not escaped
        elif c == '"':
            quoted = True
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "." and depth == 0:
            begins.append(i + 1)
    ends = [b - 1 for b in begins[1:]] + [len(text)]
    if len(path) <= len(begins):
        begin, end = begins[-len(path)], ends[-len(path)]
        if text.startswith(path[-1] + "(", begin):
            return begin, end
    return 0, len(text)


def check(code: int, status: Any, *, call: bool = False) -> None:
    """Raises the error that a call returned, or what a handler of a signal raised within it."""
    if code < 0:
        _fast.raise_now()
        raise error_of(status, call=call)
