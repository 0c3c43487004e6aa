# SPDX-License-Identifier: Apache-2.0
"""The worker processes of an iterator: _worker.py run by new interpreters.

Each has a socket for headers and memory for requests and results, which no name in a file system
refers to, so that nothing is left of it, whatever ends. A worker ends when its socket or its life
pipe is closed, and so with this process.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import _worker
from ._errors import Cancelled, InvalidArgument, ResourceExhausted, Unavailable
from ._ffi import ffi, lib
from ._python import LACKS
from ._worker import Column, Failure, Memory, Task

POLL = 0.05  # seconds between looks at whether the iterator was cancelled
KEPT = 64 << 20  # bytes of shared memory that a worker keeps


def payload_of(op: str, task: Task) -> bytes:
    """The task as the workers read it."""
    import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]

    try:
        data: bytes = cloudpickle.dumps(task._asdict(), protocol=5)
    except Exception as e:
        raise InvalidArgument(
            f"{op}: the function cannot be sent to worker processes ({type(e).__name__}: {e}); make what it uses "
            "within the function, or run it in threads: parallel='thread'"
        ) from e
    # A namedtuple is pickled by the name of its class, which the workers do not have.
    return data


class Worker:
    def __init__(self, task: int) -> None:
        """task: a descriptor of the memory with the task."""
        self.ready = False
        self.busy = False
        self.socket: socket.socket | None = None
        self.files: list[int] = []
        python = sys.executable or "python3"
        try:
            self._start(python, task)
        except BaseException as e:
            self._close_files()
            if not isinstance(e, OSError):
                raise
            kind = ResourceExhausted if e.errno in LACKS else Unavailable
            raise kind(f"cannot start a worker process ({python}): {e}") from e

    def _start(self, python: str, task: int) -> None:
        theirs: list[int] = []
        try:
            self.socket, other = socket.socketpair()
            theirs.append(other.detach())
            life, end_of_life = os.pipe()
            theirs.append(life)
            self.files.append(end_of_life)
            for name in ("requests", "results"):
                self.files.append(os.memfd_create(f"millrace-{name}"))
            self.requests, self.results = map(Memory, self.files[1:])
            theirs.append(os.open(f"/proc/self/fd/{task}", os.O_RDONLY))  # with a separate offset
            fds = [*theirs[:2], *self.files[1:], theirs[2]]
            self.process = subprocess.Popen(
                [python, "-P", _worker.__file__, *map(str, fds)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
            )
        finally:
            for fd in theirs:
                os.close(fd)

    def _close_files(self) -> None:
        if self.socket is not None:
            self.socket.close()
        while self.files:
            os.close(self.files.pop())

    def receive(self, cancel: Any, name: str) -> bytes:
        """The next header that it sends."""
        assert self.socket is not None
        while True:
            found = lib.mrpy_wait(self.socket.fileno(), cancel)
            if found == 0:
                break
            raise Cancelled("the iterator was cancelled")
        header = _worker.receive(self.socket)
        if header is None:
            raise Unavailable(self.death(name))
        if header[:1] == b"!":
            raise InvalidArgument(
                "a worker process could not load the function:\n" + header[1:].decode("utf-8", "replace")[-600:]
            )
        return header

    def death(self, name: str) -> str:
        """Why it is gone."""
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if code < 0:
            try:
                how = f"was killed by {signal.Signals(-code).name}"
            except ValueError:
                how = f"was killed by signal {-code}"
        else:
            how = f"ended with status {code}"
        hint = "; the kernel does that when memory runs out" if code == -signal.SIGKILL else ""
        return f"worker process {self.process.pid} of {name} {how} while it ran the function{hint}; the next iterator starts another one"

    def close(self) -> None:
        if self.busy or not self.ready:
            self.process.kill()
        self._close_files()

    def wait(self) -> None:
        try:
            self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class _Turn:
    """Of a call that waits for a worker."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.worker: Worker | None = None
        self.starts = False  # it has leave to start one


class Pool:
    """The workers of one function and one iterator; they are started as calls need them."""

    def __init__(self, payload: bytes, most: int, function: Callable[..., Any]) -> None:
        self.most = most
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.turns: collections.deque[_Turn] = collections.deque()
        self.workers: list[Worker] = []
        self.starting = 0
        self.idle: list[Worker] = []
        self.task = os.memfd_create("millrace-task")
        with open(self.task, "wb", closefd=False) as f:
            code = getattr(function, "__code__", None)
            pickle.dump((sys.path, getattr(code, "co_filename", None), payload), f)

    @contextlib.contextmanager
    def run(
        self, columns: list[Column], n: int, keys: list[int], cancel: Any
    ) -> Iterator[tuple[list[Column], list[Failure]]]:
        """The results of a worker; the memory that they came through is free after the block."""
        worker = self._take(cancel)
        try:
            worker.busy = True
            if not worker.ready:
                worker.receive(cancel, self.name)
                worker.ready = True
            worker.requests.shrink(KEPT)
            header = worker.requests.put((columns, n, keys))
            try:
                assert worker.socket is not None
                _worker.send(worker.socket, header)
            except ConnectionError:
                raise Unavailable(worker.death(self.name)) from None
            results = worker.results.get(worker.receive(cancel, self.name))
            worker.busy = False
        except BaseException:
            self._drop(worker)
            raise
        with self.lock:
            self.idle.append(worker)
            self._assign()
        yield results

    def _take(self, cancel: Any) -> Worker:
        turn = _Turn()
        try:
            with self.lock:
                self.turns.append(turn)
                self._assign()
            while not turn.came.wait(POLL):
                if cancel != ffi.NULL and lib.mr_cancel_is_cancelled(cancel):
                    raise Cancelled("the iterator was cancelled")
            if turn.worker is not None:
                return turn.worker
            worker = Worker(self.task)
        except BaseException:
            with self.lock:
                if turn in self.turns:
                    self.turns.remove(turn)
                if turn.worker is not None:
                    self.idle.append(turn.worker)
                elif turn.starts:
                    self.starting -= 1
                self._assign()
            raise
        with self.lock:
            self.starting -= 1
            self.workers.append(worker)
        return worker

    def _assign(self) -> None:
        """Gives workers, or leave to start one, to the calls that wait, in the order in which they came:
        a free worker is not for the call that comes just then. With the lock."""
        while self.turns and (self.idle or len(self.workers) + self.starting < self.most):
            turn = self.turns.popleft()
            if self.idle:
                turn.worker = self.idle.pop()
            else:
                turn.starts = True
                self.starting += 1
            turn.came.set()

    def _drop(self, worker: Worker) -> None:
        """Of a worker that died, or runs for a cancelled iterator."""
        with self.lock:
            self.workers.remove(worker)
            self._assign()
        worker.busy = True
        worker.close()
        worker.wait()

    def close(self) -> None:
        """Ends the workers; nothing runs any more. After an interrupt it is called again."""
        if os.getpid() != self.pid:
            return  # a fork: they are the parent's
        for worker in self.workers:
            worker.close()
        while self.workers:
            self.workers[-1].wait()
            self.workers.pop()
        if self.task >= 0:
            os.close(self.task)
            self.task = -1

