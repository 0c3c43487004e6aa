# SPDX-License-Identifier: Apache-2.0
"""Iterators: they run a dataset, and make numpy arrays of its elements."""

from __future__ import annotations

import _thread
import base64
import binascii
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _fast
from ._callbacks import finalizer
from ._errors import Error, FailedPrecondition, InvalidArgument, add_caret, check, error_at, without_secrets
from ._ffi import ffi, lib
from ._python import runs_python
from ._report import Stats, since, stats_of, write_trace
from ._types import plan_of

if TYPE_CHECKING:
    from ._dataset import Dataset

VERSION = 1  # of state_dict()
LATEST = 1 << 62  # an epoch after all others
MOST_EPOCHS = 1 << 31
READ, CHANGE, CANCEL = range(3)  # of _fast.Iterator._locked


class OpenIterator:
    """Owns an iterator of the library, in out[0], and its ledger."""

    out: Any
    ledger: Ledger | None
    generation: int
    lock: threading.RLock

    @property
    def it(self) -> Any:
        """The iterator, or NULL."""
        return self.out[0]

    @property
    def usable(self) -> bool:
        return bool(self.it != ffi.NULL and self.generation == _fast.generation())

    def _close_it(self, it: Any) -> None:
        raise NotImplementedError

    def _free(self) -> None:
        it, self.out[0] = self.out[0], ffi.NULL
        if it != ffi.NULL:
            self._close_it(it)

    def close(self) -> None:
        if self.generation != _fast.generation():
            self._close()  # a fork: another thread may have had the lock
            return
        with self.lock:
            self._close()

    def _close(self) -> None:
        ledger, self.ledger = self.ledger, None
        self._free()
        if ledger is not None and self.generation == _fast.generation():
            ledger.close()

    @finalizer
    def __del__(self) -> None:
        if getattr(self, "generation", None) is not None:
            self.close()


class Engine(OpenIterator):
    """An `mr_iterator` of a dataset, which passes over it once for each Iterator. Between them it
    rests: it has no threads and no files, but what lasts, the caches and the states of shuffles."""

    def __init__(self, ds: Dataset, options: Options, ledger: Ledger | None) -> None:
        self.out = ffi.new("mr_iterator **")  # closed by whatever ends the constructor
        self.ds = ds._pointer()
        self.options = options
        self.ledger = ledger
        self.generation = _fast.generation()
        self.epochs = 0  # begun
        self.lock = threading.RLock()  # of what uses it without the lock of an iterator
        check_end()
        _engines.add(self)
        opts = ffi.new("mr_iterator_opts *")
        options.fill(opts)
        opts.ledger = ledger.pointer if ledger is not None else ffi.NULL
        made, st = ffi.new("mr_cancel **"), ffi.new("mr_status *")
        while True:
            check(lib.mr_cancel_new(ffi.NULL, made, st), st)
            opts.cancel = cancel = ffi.gc(made[0], lib.mr_cancel_unref)
            try:
                if guarded(ffi.NULL, cancel, lambda st: lib.mr_iterator_open(self.out, self.ds, opts, st)) == DONE:
                    break
            except BaseException:
                self._free()
                raise
            self._free()
        self.epochs = 1

    def _close_it(self, it: Any) -> None:
        lib.mr_iterator_close(it)

    def begin(self, epoch: int) -> None:
        """Goes to the beginning of that epoch, which is not before the present one."""
        if self.epochs <= epoch:
            self.rest()
        while self.epochs <= epoch:
            end = guarded(self.it, ffi.NULL, lambda st: lib.mr_iterator_rewind(self.it, st))
            if end == AGAIN:
                self.rest()
                continue
            self.epochs += 1
            if end == WOKEN:
                self.resume()

    def save(self, undelivered: int = 0) -> bytes:
        """The position; undelivered: the address of a block of one row, before which it is."""
        out, size, st = ffi.new("void **"), ffi.new("size_t *"), ffi.new("mr_status *")
        if undelivered:
            block = ffi.cast("mr_block *", undelivered)
            check(lib.mr_iterator_save_at(self.it, block, 0, out, size, st), st)
        else:
            check(lib.mr_iterator_save(self.it, out, size, st), st)
        data = bytes(ffi.buffer(out[0], size[0]))
        lib.mr_free(out[0])
        return data

    def restore(self, position: bytes) -> None:
        size = len(position)
        while guarded(self.it, ffi.NULL, lambda st: lib.mr_iterator_restore(self.it, position, size, st)) != DONE:
            self.rest()

    def resume(self) -> None:
        """Continues after an interrupt."""
        while guarded(self.it, ffi.NULL, lambda st: lib.mr_iterator_resume(self.it, st)) != DONE:
            pass

    def rest(self) -> None:
        """Ends its threads."""
        st = ffi.new("mr_status *")
        check(lib.mr_iterator_rest(self.it, st), st)

    @property
    def pipeline(self) -> Any:
        """The `mr_iterator *` whose statistics and spans are shown."""
        return self.it


def _close_soon(engine: Any) -> None:
    """Closes it in a thread, and waits for that a moment only. A finalizer may call it anywhere, also
    within a lock of the module threading."""
    closed = _thread.allocate_lock()
    closed.acquire()

    def close() -> None:
        try:
            engine.close()
        finally:
            closed.release()

    try:
        _thread.start_new_thread(close, ())
    except RuntimeError:  # there can be no more threads
        engine.close()
    else:
        closed.acquire(timeout=0.05)


DONE, WOKEN, AGAIN = range(3)


def guarded(
    it: Any, cancel: Any, call: Callable[[Any], int], distributed: Any = ffi.NULL, check: Callable[..., None] = check
) -> int:
    """A call that may take long: Ctrl-C ends it. Where the program's handler of SIGINT raises nothing:
    WOKEN, done, but what the signal cancelled must resume; AGAIN: not done."""
    st = ffi.new("mr_status *")
    code = 0

    def run() -> None:
        nonlocal code
        code = call(st)

    woken = _fast.guarded(_address(it), _address(cancel), run, _address(distributed))
    if woken and code == lib.MR_CANCELLED:
        return AGAIN
    check(code, st)
    return WOKEN if woken else DONE


def interruptible(call: Callable[[], int], undone: int = lib.MR_CANCELLED) -> int:
    """What the call returns, which may wait for remote files: Ctrl-C ends that. Where the program's
    handler of SIGINT raises nothing, a call that returns `undone` is repeated."""
    out = undone
    made, st = ffi.new("mr_cancel **"), ffi.new("mr_status *")

    def run() -> None:
        nonlocal out
        out = call()

    while True:
        check(lib.mr_cancel_new(ffi.NULL, made, st), st)
        try:
            woken = _fast.guarded(0, _address(made[0]), run)
        finally:
            lib.mr_cancel_unref(made[0])
        if not woken or out != undone:
            return out


def _address(pointer: Any) -> int:
    return int(ffi.cast("intptr_t", pointer))


_engines: weakref.WeakSet[OpenIterator] = weakref.WeakSet()
_iterators: weakref.WeakSet[Iterator] = weakref.WeakSet()
_ended = False  # no engine may be used any more


def check_end() -> None:
    if _ended:
        raise RuntimeError("the interpreter is ending: datasets cannot be iterated any more")


class Ledger:
    """A file that lists the records of every element; `millrace why` reads it."""

    def __init__(self, path: str | os.PathLike[str], steps: bool = False) -> None:
        out, st = ffi.new("mr_ledger **"), ffi.new("mr_status *")
        check(lib.mr_ledger_create(os.fsencode(path), steps, out, st), st)
        self.pointer = out[0]

    def close(self) -> None:
        pointer, self.pointer = self.pointer, ffi.NULL
        st = ffi.new("mr_status *")
        check(lib.mr_ledger_close(pointer, st), st)


_units = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def bytes_of(limit: int | str | None) -> int:
    """1000000, "512M" and "2G" as bytes; None: 0."""
    if limit is None:
        return 0
    if isinstance(limit, int) and not isinstance(limit, bool) and limit < 1 << 63:
        return limit
    text = limit.strip().upper() if isinstance(limit, str) else ""
    unit = text[-1:] if text[-1:] in _units else ""
    number = text[: len(text) - len(unit)]
    if not number.isdecimal() or int(number) * _units[unit] >= 1 << 63:
        raise InvalidArgument(f"a memory limit is a number of bytes, or text such as '512M' or '2G', not {limit!r}")
    return int(number) * _units[unit]


class Options:
    """How a dataset is run; iterators with equal options can share an engine."""

    positions = True  # may be saved

    def __init__(
        self,
        seed: int | None,
        threads: int | None,
        memory_limit: int | str | None,
        on_mismatch: str = "refuse",
    ) -> None:
        if on_mismatch not in ("refuse", "by_name"):
            raise ValueError(f'on_mismatch is "refuse" or "by_name", not {on_mismatch!r}')
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
            raise TypeError(f"threads is a number, or None for one a processor, not {threads!r}")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            raise TypeError(f"a seed is an int, not {seed!r}")
        self.key = (seed, threads, bytes_of(memory_limit), on_mismatch)

    def with_mismatch(self, on_mismatch: str) -> Options:
        seed, threads, limit, _ = self.key
        return Options(seed, threads, limit, on_mismatch)

    def fill(self, opts: Any) -> None:
        seed, threads, limit, on_mismatch = self.key
        opts.positions = self.positions
        if seed is not None:
            opts.has_seed, opts.seed = True, seed & 0xFFFFFFFFFFFFFFFF
        if threads is not None:
            opts.has_threads, opts.threads = True, threads
        opts.memory_limit = limit
        if on_mismatch == "by_name":
            opts.on_mismatch = lib.MR_RESTORE_BY_NAME
        opts.trace_spans = TRACE_SPANS


TRACE_SPANS = 1 << 14  # the longest ones are kept


class Shared:
    """What the iterators of one Dataset object share."""

    def __init__(self) -> None:
        self.epochs = 0  # begun by its iterators
        self.idle: list[Engine] = []  # up to one; list.pop gives it to one thread
        self.done: weakref.ref[Iterator] | None = None  # one that ended and still has its engine


class Iterator(_fast.Iterator):
    """Runs a dataset from its first element to its last: `iter(ds)`, or `ds.iterator(...)`.

        >>> import millrace as mr
        >>> it = iter(mr.from_text("range(10)"))
        >>> next(it), next(it)
        (0, 1)
        >>> state = it.state_dict()
        >>> next(it)
        2
        >>> it.load_state_dict(state)
        >>> next(it)
        2

    It is a context manager; `close()` or the end of the with block ends its threads, as does
    dropping it.
    """

    def __init__(
        self,
        ds: Dataset,
        *,
        format: str = "numpy",
        strings: str = "bytes",
        seed: int | None = None,
        threads: int | None = None,
        memory_limit: int | str | None = None,
        ledger: str | os.PathLike[str] | None = None,
        on_mismatch: str = "refuse",
    ) -> None:
        from ._formats import arrow_parts, converter

        ds._pointer()
        self._engine: Engine | None = None
        self._closed = False
        self._done = False
        self._before = self._last_stats = Stats([])
        self._saved: bytes | None = None  # its position, where it has no engine any more
        self._lost = False  # it has no engine and no position, and cannot return to where it was
        self._options = Options(seed, threads, memory_limit, on_mismatch)
        self._convert, self._str = converter(format, strings)
        self._arrow = arrow_parts(format, strings)
        self._ledger = ledger
        self.dataset = ds
        if ds._shared is None:
            ds._shared = Shared()
        self._epoch = ds._shared.epochs
        ds._shared.epochs += 1
        _iterators.add(self)

    # ---- called by millrace._fast, with the lock

    def _open(self) -> None:
        """Gets an engine for the first element, or continues after an interrupt."""
        if self._closed:
            self._hand_back()  # a handler of a signal closed it during a call
            return
        if self._done and self._engine is None:
            return
        if self._lost:
            raise FailedPrecondition(
                "load_state_dict failed, and the iterator could not save its position before; load a state, or make "
                "another iterator"
            )
        engine = self._engine
        if engine is not None:
            engine.resume()
            self._resumed()
            return
        engine = self._claim(self._epoch)
        try:
            if self._saved is not None:
                engine.restore(self._saved)
                engine.epochs = self._epoch + 1
            else:
                engine.begin(self._epoch)
            self._attach_engine(engine)
        except BaseException:
            self._detach()
            self._engine = None
            engine.close()
            raise
        self._saved = None

    def _error(self, status: int) -> Error:
        error = error_at(status)
        add_caret(error, str(self.dataset))
        return error

    def _ended(self) -> None:
        self._done = True
        shared = self.dataset._shared
        assert shared is not None
        if self._ledger is None:
            shared.done = weakref.ref(self)

    # ---- engines

    def _claim(self, epoch: int) -> Engine:
        """An engine that has not begun a later epoch."""
        shared = self.dataset._shared
        assert shared is not None
        if self._ledger is not None:
            return self._make_engine(self._ledger)
        last = shared.done() if shared.done is not None else None
        if last is not None and last is not self:
            last._try_locked(last._give_up)
        shared.done = None
        try:
            idle = shared.idle.pop()
        except IndexError:
            return self._make_engine(None)
        check_end()
        if idle.usable and idle.options.key == self._options.key and idle.epochs <= epoch:
            return idle
        if idle.usable:
            shared.idle.append(idle)
        return self._make_engine(None)

    def _make_engine(self, ledger: str | os.PathLike[str] | None) -> Engine:
        return Engine(self.dataset, self._options, None if ledger is None else Ledger(ledger))

    def _give_up(self) -> None:
        """Returns the engine after the last element, for the next iterator."""
        if self._done:
            self._hand_back(keep_position=True)

    def _attach_engine(self, engine: Engine) -> None:
        from ._formats import arrow_maker

        self._engine = engine
        self._before = stats_of(engine.pipeline)
        spec = lib.mr_dataset_spec(engine.ds)
        n = lib.mr_spec_n_leaves(spec)
        self._attach(
            _address(engine.it),
            plan_of(spec),
            [bool(lib.mr_spec_leaf(spec, i).ragged) for i in range(n)],
            self._convert,
            self._str,
            None if self._arrow is None else arrow_maker(spec, self._str),
            self._arrow == "all",
        )

    def _hand_back(self, keep_position: bool = False) -> None:
        """Returns the engine to the dataset, for the next epoch."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        with engine.lock:  # at_exit may close it, if this iterator is being dropped
            self._put_back(engine, keep_position)

    def _put_back(self, engine: Engine, keep_position: bool) -> None:
        if keep_position:
            try:
                self._saved = engine.save(self._undelivered) if engine.usable else None
            except Error:
                self._saved = None
        self._detach()
        if not engine.usable or engine.ledger is not None:
            engine.close()
            return
        self._last_stats = since(stats_of(engine.pipeline), self._before)
        engine.rest()
        idle = self.dataset._shared.idle if self.dataset._shared is not None else []
        old = idle[:]
        idle[:] = [engine]
        for e in old:
            e.close()

    def _let_go(self, interrupted: bool) -> None:
        """Has no engine afterwards. After an interrupt it does not wait for functions of Python: a thread
        that runs one ends only when it returns. Then the engine is lost, with what it has cached."""
        engine = self._engine
        if engine is not None and interrupted and runs_python(self._graph()):
            self._engine = None
            self._detach()
            _close_soon(engine)
        else:
            self._hand_back()

    def _was_interrupted(self) -> bool:
        """Whether an interrupt has ended its last `next`."""
        return self._interrupted

    def _graph(self) -> Dataset:
        return self.dataset

    # ---- for users

    def state_dict(self) -> dict[str, Any]:
        """The position after the last element, for `load_state_dict` of an iterator of an equal
        dataset, in any process. It can be stored as JSON."""
        position: bytes = self._locked(self._position, READ)
        return {
            "version": VERSION,
            "graph": without_secrets(str(self.dataset)),
            "position": f"{self._epoch}:{base64.b64encode(position).decode()}",
        }

    def _position(self) -> bytes:
        if self._closed:
            raise FailedPrecondition("the iterator is closed")
        if self._engine is None and self._saved is not None:
            return self._saved
        if self._engine is None:
            if self._done:
                raise FailedPrecondition("the position after the last element is lost: a later iterator has begun")
            self._open()
        assert self._engine is not None
        return self._engine.save(self._undelivered)

    def load_state_dict(self, state: dict[str, Any], on_mismatch: str | None = None) -> None:
        """Goes to a position that `state_dict` returned. Later iterators of the Dataset are the epochs
        that follow. on_mismatch: as for `Dataset.iterator`; None: as there.

        If it fails the iterator stays where it is, or, if it has begun and cannot save positions, is of
        no use until another state is loaded."""
        epoch, position = parse_state(state)
        options = self._options if on_mismatch is None else self._options.with_mismatch(on_mismatch)
        self._locked(lambda: self._load(epoch, position, options), CHANGE)

    def _load(self, epoch: int, position: bytes, options: Options) -> None:
        if self._closed:
            raise FailedPrecondition("the iterator is closed; make another one")
        before, engine = (self._saved, self._lost, self._options), None
        if self._engine is not None:
            try:
                before = (self._engine.save(self._undelivered), False, self._options)
            except Error:
                before = (None, True, self._options)
        try:
            self._options = options
            if self._was_interrupted():
                self._let_go(interrupted=True)
            engine, self._engine = self._engine, None
            self._detach()
            if engine is not None and engine.options.key != options.key:
                engine.close()
                engine = None
            if engine is None:
                engine = self._claim(LATEST)
            engine.rest()
            engine.restore(position)
        except BaseException:
            self._saved, self._lost, self._options = before
            if engine is not None:
                engine.close()
            raise
        engine.epochs = epoch + 1
        self._done = self._lost = False
        self._saved = None
        self._epoch = epoch
        shared = self.dataset._shared
        assert shared is not None
        shared.epochs = epoch + 1
        self._attach_engine(engine)

    def stats(self) -> Stats:
        """What each op of the graph has done for this iterator."""
        found: Stats = self._locked(self._stats, READ)
        return found

    def _stats(self) -> Stats:
        if self._engine is None:
            return self._last_stats
        return since(stats_of(self._engine.pipeline), self._before)

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes when each op worked and waited, on which thread, to a file for Perfetto
        (https://ui.perfetto.dev) and chrome://tracing. Of a long run the shortest spans are left out."""
        self._locked(lambda: self._trace(path), READ)

    def _trace(self, path: str | os.PathLike[str]) -> None:
        if self._engine is None:
            raise FailedPrecondition("the iterator has not begun, or it is closed")
        write_trace(self._engine.pipeline, path)

    def close(self) -> None:
        """Ends its threads and closes its files. A `next` that waits in another thread ends."""
        if self._closed or self._foreign:
            return
        interrupted = self._was_interrupted()
        self._closed = True  # before the lock is free, so that the `next` that ends does not wait again
        self._cancel()
        self._locked(lambda: self._let_go(interrupted), CANCEL)

    def _cancel(self) -> None:
        """Ends a wait that _fast does not know."""

    def __enter__(self) -> Iterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @finalizer
    def __del__(self) -> None:
        if getattr(self, "_engine", None) is None or self._foreign:
            return
        self._closed = True
        self._let_go(self._was_interrupted())

    def __reduce__(self) -> Any:
        raise TypeError("iterators cannot be pickled; pickle the dataset and the iterator's state_dict()")

    def __repr__(self) -> str:
        state = "closed " if self._closed else ""
        return f"<{state}millrace.Iterator of {without_secrets(str(self.dataset))}>"


def parse_state(state: Any) -> tuple[int, bytes]:
    if not isinstance(state, dict) or "position" not in state or "version" not in state:
        hint = "; json.loads makes a dict of it" if isinstance(state, (str, bytes)) else ""
        raise InvalidArgument(f"not what state_dict() returns: {state!r:.80}{hint}")
    if state["version"] != VERSION:
        raise InvalidArgument(
            f"the position has version {state['version']!r}, and this package reads version {VERSION}"
        )
    number, found, data = str(state["position"]).partition(":")
    try:
        epoch, position = int(number), base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidArgument("the position is damaged: it is not a number and base64 text") from None
    if not 0 <= epoch < MOST_EPOCHS:
        raise InvalidArgument(f"the position is damaged: it is in epoch {epoch}")
    return epoch, position


def at_exit() -> None:
    """No thread may be left when the interpreter ends."""
    global _ended
    _ended = True
    left: list[Iterator | OpenIterator] = [*_iterators, *_engines]
    for x in left:
        try:
            x.close()  # daemon threads may be in next, and functions of Python may not return
        except BaseException:  # also what the handlers of signals raise
            pass
    _engines.clear()  # those whose closing was interrupted are waited for once
