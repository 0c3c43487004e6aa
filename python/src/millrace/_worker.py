# SPDX-License-Identifier: Apache-2.0
"""Runs a Python function over the rows of a block: in this process, or in a worker process, which
runs this file alone, so that it starts without the library.

Rows travel as columns, one for each tensor of an element: an array whose axis 0 are the rows, or a
list of values where these differ in shape.
"""

from __future__ import annotations

import linecache
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

Column = Any  # an array, or a list of arrays, or of (values, row_splits) for ragged ones
Failure = tuple[int, str, str]  # row, name of the code, message
MESSAGE = 740  # bytes of a message that the library keeps


class Leaf(NamedTuple):
    """A tensor of an element. dtype: numpy's, or None for strings; shape: None where a size varies,
    None if even their number does."""

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int | None, ...] | None
    ragged: bool

    def __str__(self) -> str:
        if not self.shape:
            return self.name if self.shape is not None else f"{self.name} of any shape"
        return f"{self.name}[{', '.join('none' if n is None else str(n) for n in self.shape)}]"


class Mismatch(Exception):
    """A result is not of the type of the elements."""


class Task(NamedTuple):
    """A function and how it is called. Plans are as _types.plan_of makes them."""

    function: Callable[..., Any]
    many: Callable[[list[int]], Sequence[Any]] | None  # results for several elements at once
    kind: str  # map, filter, flat_map
    batched: bool
    several: bool  # a tuple comes as several arguments
    rng: bool
    plan: Any
    out_plan: Any
    leaves: list[Leaf]

    def run(self, columns: list[Column], n: int, keys: list[int], plan: Any) -> tuple[list[Column], list[Failure]]:
        """The columns of the n rows' results, without those of the rows that failed."""
        if self.batched:
            return self._run_batch(columns, n, keys, plan)
        rows = rows_of(columns, plan)
        if self.many is not None and n > 1:
            try:
                results = list(self.many([int(x) for x in rows]))
                if len(results) == n:
                    return self._collect(((self._flat(x), None) for x in results), {})
            except Exception:
                pass  # each alone, to find the one that fails
        failures: dict[int, Failure] = {}
        return self._collect(
            (self._one(i, x, keys[i] if self.rng else None, failures) for i, x in enumerate(rows)), failures
        )

    def _one(self, i: int, row: Any, key: int | None, failures: dict[int, Failure]) -> tuple[list[Any] | None, None]:
        try:
            return self._flat(self.call(row, key)), None
        except BaseException as e:
            if ends_program(e):
                raise
            failures[i] = (i, *describe(e))
        return None, None

    def call(self, row: Any, key: Any) -> Any:
        more = {"rng": generator(key)} if self.rng else {}
        return self.function(*row, **more) if self.several and isinstance(row, tuple) else self.function(row, **more)

    def _flat(self, result: Any) -> list[Any]:
        """The values of a result's leaves."""
        if self.kind == "flat_map":
            return self._joined([flatten(x, self.out_plan, self.leaves) for x in result])
        return flatten(result, self.out_plan, self.leaves)

    def _joined(self, rows: list[list[Any]]) -> list[Any]:
        """The elements that one element became, along a new axis 0."""
        return [joined([r[i] for r in rows], leaf) for i, leaf in enumerate(self.leaves)]

    def _collect(self, results: Any, failures: dict[int, Failure]) -> tuple[list[Column], list[Failure]]:
        columns: list[list[Any]] = [[] for _ in self.leaves]
        for values, _ in results:
            if values is not None:
                for column, value in zip(columns, values):
                    column.append(value)
        joins = self.kind == "flat_map"
        return [pack(c, leaf, joins) for c, leaf in zip(columns, self.leaves)], sorted(failures.values())

    def _run_batch(
        self, columns: list[Column], n: int, keys: list[int], plan: Any
    ) -> tuple[list[Column], list[Failure]]:
        """One call with all rows; if it fails, each alone."""
        try:
            more = {"rng": [generator(k) for k in keys]} if self.rng else {}
            args = whole(columns, plan)
            several = self.several and isinstance(args, tuple)
            result = self.function(*args, **more) if several else self.function(args, **more)
            leaves = [leaf._replace(shape=(n, *(leaf.shape or ()))) for leaf in self.leaves]
            return flatten(result, self.out_plan, leaves, axis=n), []
        except BaseException as e:
            if ends_program(e):
                raise
            if n == 1:
                return [[] for _ in self.leaves], [(0, *describe(e))]
        failures: list[Failure] = []
        parts: list[list[Column]] = []
        for i in range(n):
            part, failed = self._run_batch([c[i : i + 1] for c in columns], 1, keys[i : i + 1], plan)
            failures += [(i, code, message) for _, code, message in failed]
            if not failed:
                parts.append(part)
        return [pack([p[k][0] for p in parts], leaf) for k, leaf in enumerate(self.leaves)], failures


def ends_program(e: BaseException) -> bool:
    """An interrupt, or sys.exit() and the like in the main thread, where the handlers of signals call it too.
    In other threads it is an error like others."""
    if isinstance(e, Exception) or isinstance(e, KeyboardInterrupt):
        return not isinstance(e, Exception)
    if in_worker:
        return isinstance(e, SystemExit)
    return threading.current_thread() is threading.main_thread()


in_worker = False
source_file: str | None = None  # of the function of a worker process


def generator(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[key, 0]))


# ---- elements


def rows_of(columns: list[Column], plan: Any) -> list[Any]:
    """The elements, put together of their columns."""
    if isinstance(plan, int):
        return list(columns[plan])
    if isinstance(plan, tuple):
        return list(zip(*[rows_of(columns, p) for p in plan]))
    names = list(plan)
    return [dict(zip(names, values)) for values in zip(*[rows_of(columns, p) for p in plan.values()])]


def whole(columns: list[Column], plan: Any) -> Any:
    """The columns, in the structure of an element."""
    if isinstance(plan, int):
        return columns[plan]
    if isinstance(plan, tuple):
        return tuple(whole(columns, p) for p in plan)
    return {name: whole(columns, p) for name, p in plan.items()}


def shown(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"an array {x.dtype}{list(x.shape)}"
    return f"{type(x).__name__} {x!r:.60}"


def flatten(result: Any, plan: Any, leaves: list[Leaf], axis: int | None = None) -> list[Any]:
    """The values of the leaves of a result, checked. axis: of columns with that many rows."""
    out: list[Any] = []

    def walk(x: Any, p: Any) -> None:
        if isinstance(x, tuple) and len(x) == 1 and (not isinstance(p, int) or _is_the_value(x[0], leaves[p])):
            x = x[0]
        if isinstance(p, int):
            out.append(value_of(x, leaves[p]))
        elif isinstance(p, tuple):
            if not isinstance(x, tuple) or len(x) != len(p):
                raise Mismatch(f"the result is {shown(x)}, expected a tuple of {len(p)}")
            for a, b in zip(x, p):
                walk(a, b)
        else:
            if not isinstance(x, dict) or x.keys() != p.keys():
                found = f"a dict of {', '.join(map(repr, x))}" if isinstance(x, dict) else shown(x)
                raise Mismatch(f"the result is {found}, expected a dict of {', '.join(map(repr, p))}")
            for name, b in p.items():
                walk(x[name], b)

    walk(result, plan)
    return out


def _is_the_value(x: Any, leaf: Leaf) -> bool:
    """Of a tuple of one, which is its component, as in the grammar: not an array along another axis."""
    return leaf.shape is None or hasattr(x, "row_splits") or np.ndim(x) == len(leaf.shape)


def value_of(x: Any, leaf: Leaf) -> Any:
    """x as a value of the leaf: a number or bytes for a scalar, an array, or a Ragged."""
    kind = type(x)
    if leaf.shape == ():
        if leaf.dtype is None:
            if kind is bytes:
                return x
            if kind is str:
                return x.encode("utf-8", "surrogateescape")
        elif isinstance(x, np.generic):
            if x.dtype == leaf.dtype:
                return x
        elif kind is bool or kind is int or kind is float:
            return literal(x, leaf)
    if leaf.ragged and hasattr(x, "row_splits"):
        x = cast(Any, x)
        values = as_array(x.values, leaf)
        _check(values.dtype, (len(x.row_splits) - 1, None, *values.shape[1:]), leaf)
        return values, np.asarray(x.row_splits, np.int64)
    a = as_array(x, leaf)
    _check(a.dtype, a.shape, leaf)
    return a[()] if leaf.shape == () else a


def _check(dtype: np.dtype[Any], shape: tuple[Any, ...], leaf: Leaf) -> None:
    same = dtype == (object if leaf.dtype is None else leaf.dtype)
    fits = leaf.shape is None or (
        len(shape) == len(leaf.shape) and all(n is None or m is None or n == m for n, m in zip(leaf.shape, shape))
    )
    if not same or not fits:
        name = "bytes" if dtype.kind == "O" else str(dtype)
        raise Mismatch(f"the result is {Leaf(name, None, tuple(shape), False)}, but the elements are {leaf}")


def literal(x: Any, leaf: Leaf) -> Any:
    """A number of Python takes the type of the elements if that can hold it."""
    dtype = leaf.dtype
    assert dtype is not None
    natural = "b" if isinstance(x, bool) else "i" if isinstance(x, int) else "f"
    if dtype.kind == "b" and natural == "b":
        return x
    if dtype.kind in "iu" and natural == "i":
        info = np.iinfo(dtype)
        if info.min <= x <= info.max:
            return x
        raise Mismatch(f"the result {x} does not fit into {leaf}")
    if dtype.kind in "fV" and natural in "if":
        return x
    raise Mismatch(f"the result is {type(x).__name__} {x!r:.40}, but the elements are {leaf}")


def as_array(x: Any, leaf: Leaf | None) -> np.ndarray[Any, Any]:
    """x as an array: of the leaf's dtype where x is made of Python's numbers."""
    if np.ma.is_masked(x):
        raise Mismatch("the result is an array with masked values, which no tensor has; fill them: x.filled(0)")
    if isinstance(x, np.ndarray):
        a = np.asarray(x)
    elif x is None:
        raise Mismatch("the result is None; return a value, or use filter_py to drop elements")
    elif isinstance(x, (np.generic, str, bytes)):
        a = np.asarray(x, object) if isinstance(x, (str, bytes)) else np.asarray(x)
    elif hasattr(x, "__array__") or hasattr(x, "__array_interface__"):
        a = np.asarray(x)
    elif hasattr(x, "__dlpack__"):
        a = np.from_dlpack(x)
    elif isinstance(x, (bool, int, float, list, tuple, range)):
        a = of_python(x, leaf)
    else:
        raise Mismatch(f"the result is {type(x).__name__}, which is not a tensor: {x!r:.60}")
    if a.dtype.kind in "SU" or (a.dtype == object):
        return strings(a)
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    return a


def of_python(x: Any, leaf: Leaf | None) -> np.ndarray[Any, Any]:
    """Numbers of Python: int64 and float32, or what the elements are."""
    if isinstance(x, (list, tuple)) and x and not isinstance(x[0], (bool, int, float, str, bytes, list, tuple)):
        parts = [as_array(v, leaf._replace(shape=None) if leaf else None) for v in x]
        if any(p.shape != parts[0].shape for p in parts):
            raise Mismatch("the entries of the list that is the result differ in shape")
        return np.stack(parts)
    try:
        a = np.asarray(x)
    except ValueError:
        raise Mismatch("the entries of the list that is the result differ in length") from None
    if a.dtype.kind in "SU":
        return np.asarray(x, object)
    if a.size == 0:
        return a.astype(np.float32 if leaf is None else object if leaf.dtype is None else leaf.dtype)
    if a.dtype == object or any_number_of_numpy(x):
        return a
    want = None if leaf is None else leaf.dtype
    if a.dtype.kind in "iu":
        if want is not None and want.kind in "iu":
            info = np.iinfo(want)
            if info.min <= int(a.min()) and int(a.max()) <= info.max:
                return a.astype(want)
            raise Mismatch(f"the result has values that do not fit into {leaf}")
        return a.astype(want) if want is not None and want.kind == "f" else a.astype(np.int64)
    if a.dtype.kind == "f":
        return a.astype(want if want is not None and want.kind == "f" else np.float32)
    return a


def any_number_of_numpy(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return any(map(any_number_of_numpy, x))
    return isinstance(x, np.generic)


def strings(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of bytes."""
    out = np.empty(a.size, object)
    for i, x in enumerate(a.reshape(-1).tolist()):
        if isinstance(x, str):
            x = x.encode("utf-8", "surrogateescape")
        elif isinstance(x, int) and not -(2**63) <= x < 2**64:
            raise Mismatch(f"the result has {x!r:.40}, which is too large for an integer of 64 bits")
        elif not isinstance(x, bytes):
            raise Mismatch(f"the result has {type(x).__name__} {x!r:.40} among objects, which may be str and bytes")
        out[i] = x
    return out.reshape(a.shape)


# ---- columns


def pack(values: list[Any], leaf: Leaf, joins: bool = False) -> Column:
    """The values as one array where they have one shape."""
    if not values:
        return []
    if leaf.shape == () and not joins:
        if leaf.dtype is None:
            out = np.empty(len(values), object)
            out[:] = values
            return out
        return np.asarray(values, leaf.dtype)
    if any(not isinstance(v, np.ndarray) for v in values):
        return values
    first = values[0].shape
    return np.stack(values) if all(v.shape == first for v in values) else values


def joined(values: list[Any], leaf: Leaf) -> Any:
    """Values along a new axis 0: an array, or (values, row_splits)."""
    dtype = np.dtype(object) if leaf.dtype is None else leaf.dtype
    if leaf.shape == ():
        out = np.empty(len(values), dtype)
        out[:] = values
        return out
    if any(isinstance(v, tuple) for v in values):
        raise Mismatch("flat_map_py cannot return elements that are Ragged; return their values and lengths")
    varies = leaf.shape is not None and leaf.shape[0] is None
    if not varies:
        if any(v.shape != values[0].shape for v in values):
            raise Mismatch("the elements that one element becomes differ in shape")
        rest = tuple(0 if n is None else n for n in leaf.shape or ())
        return np.stack(values) if values else np.empty((0, *rest), dtype)
    rest = values[0].shape[1:] if values else tuple(0 if n is None else n for n in (leaf.shape or ())[1:])
    if any(v.shape[1:] != rest for v in values):
        raise Mismatch("the elements that one element becomes differ in more than the length of axis 0")
    lengths = np.array([0] + [len(v) for v in values], np.int64)
    return np.concatenate(values) if values else np.empty((0, *rest), dtype), np.cumsum(lengths)


# ---- errors


def describe(e: BaseException) -> tuple[str, str]:
    """The name of the code, and the message: the exception, then its traceback, the innermost frames
    first to be kept."""
    code = "INVALID_ARGUMENT"
    for kind in type(e).__mro__:
        if kind.__name__ == "Error" and kind.__module__ == "millrace":
            code = str(getattr(e, "code", code))
    if isinstance(e, Mismatch):
        return code, _cut(str(e), MESSAGE)
    # Of a SyntaxError the lines of the program come first, indented.
    said = [s for s in traceback.format_exception_only(type(e), e) if s.strip() and not s.startswith(" ")]
    head = _cut(said[0].splitlines()[0] if said else type(e).__name__, 260)
    frames = []
    for f in traceback.extract_tb(e.__traceback__):
        if os.path.dirname(os.path.abspath(f.filename)) == _package:
            continue
        # cloudpickle leaves the names of files out.
        file = source_file if source_file and f.filename == "<dynamic-code>" else f.filename
        line = f.line or linecache.getline(file, f.lineno or 0).strip()
        frames.append(f'  File "{file}", line {f.lineno}, in {f.name}\n' + (f"    {line}\n" if line else ""))
    room = MESSAGE - 2 * len(head.encode()) - 60
    kept: list[str] = []
    for text in reversed(frames):
        room -= len(text.encode())
        if room < 0:
            kept.insert(0, "  ...\n")
            break
        kept.insert(0, text)
    if not kept:
        return code, head
    return code, f"{head}\nTraceback (most recent call last):\n{''.join(kept)}{head}"


_package = os.path.dirname(os.path.abspath(__file__))


def _cut(text: str, most: int) -> str:
    data = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")
    return data.decode() if len(data) <= most else data[: most - 3].decode("utf-8", "ignore") + "..."


# ---- messages between processes: a header through a socket, the rest in memory that both map


class Memory:
    """A file in memory, which one side writes and the other reads."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def put(self, x: Any) -> bytes:
        """Writes x; the header says how to read it."""
        buffers: list[pickle.PickleBuffer] = []
        data = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
        views = [b.raw() for b in buffers]
        parts: list[Any] = [data, *views]
        sizes = [len(p) for p in parts]
        at = 0
        while parts:
            written = os.pwritev(self.fd, parts[:512], at)
            at += written
            while parts and written >= len(parts[0]):
                written -= len(parts.pop(0))
            if parts and written:
                parts[0] = memoryview(parts[0])[written:]
        return struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)

    def get(self, header: bytes) -> Any:
        (n,) = struct.unpack_from("<I", header)
        sizes = struct.unpack_from(f"<{n}Q", header, 4)
        parts: list[bytearray] = [bytearray(size) for size in sizes]
        left: list[Any] = [memoryview(p) for p in parts if len(p)]
        at = 0
        while left:
            got = os.preadv(self.fd, left[:512], at)
            if got <= 0:
                raise EOFError("the memory is shorter than its header says")
            at += got
            while left and got >= len(left[0]):
                got -= len(left.pop(0))
            if left and got:
                left[0] = left[0][got:]
        return pickle.loads(parts[0], buffers=parts[1:])

    def shrink(self, most: int) -> None:
        """Gives memory back after an unusually large message."""
        if os.fstat(self.fd).st_size > most:
            os.ftruncate(self.fd, 0)


def send(s: socket.socket, header: bytes) -> None:
    s.sendall(struct.pack("<I", len(header)) + header)


def receive(s: socket.socket) -> bytes | None:
    """None: the other side is gone."""
    size = _exactly(s, 4)
    return None if size is None else _exactly(s, struct.unpack("<I", size)[0])


def _exactly(s: socket.socket, n: int) -> bytes | None:
    data = b""
    while len(data) < n:
        try:
            part = s.recv(n - len(data))
        except ConnectionError:
            return None
        if not part:
            return None
        data += part
    return data


def _end_with(life: int) -> None:
    """Ends this process when the other one ends, even while a function runs."""
    try:
        while os.read(life, 1):
            pass
    finally:
        os._exit(0)


def main(fds: list[int]) -> None:
    """A worker process. fds: socket, life pipe, memory of requests, of results, of the task."""
    global in_worker, source_file
    in_worker = True
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which ends us
    for fd in fds:
        os.set_inheritable(fd, False)
    threading.Thread(target=_end_with, args=(fds[1],), daemon=True).start()
    s, requests, results = socket.socket(fileno=fds[0]), Memory(fds[2]), Memory(fds[3])
    try:
        with open(fds[4], "rb") as f:
            sys.path[:], source_file, payload = pickle.load(f)
        fields = pickle.loads(payload)
        task = Task(**fields)
    except BaseException as e:
        send(s, b"!" + _cut("".join(traceback.format_exception(e)), 1 << 16).encode())
        os._exit(1)
    send(s, b".")
    while True:
        header = receive(s)
        if header is None:
            sys.stdout.flush()
            os._exit(0)
        columns, n, keys = requests.get(header)
        out = task.run(columns, n, keys, task.plan)
        del columns
        results.shrink(64 << 20)
        send(s, results.put(out))


if __name__ == "__main__":
    main([int(x) for x in sys.argv[1:]])
