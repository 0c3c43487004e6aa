# SPDX-License-Identifier: Apache-2.0
"""The data service in this process: a dispatcher, and workers that run pipelines for clients.

    from millrace.service import Dispatcher, Worker

    with Dispatcher() as dispatcher, Worker(dispatcher.address):
        for batch in ds.distribute(dispatcher.address):
            ...

`millrace dispatcher` and `millrace worker` are the same as programs.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any, TypeVar, Union

from . import _fast, _iterator, _service
from ._callbacks import close_all, finalizer
from ._errors import Error, FailedPrecondition, check, text_of

_Path = Union[str, "os.PathLike[str]"]
_S = TypeVar("_S", bound="_Server")

ffi, lib = _service.library()


def _text(x: Any) -> Any:
    """A `char *`, or NULL for None."""
    return ffi.NULL if x is None else ffi.new("char[]", os.fsencode(x))


def _address(name: str, x: Any) -> None:
    if not isinstance(x, str):
        raise TypeError(f'{name} is an address, as in "127.0.0.1:5050", not {x!r:.80}')


def _folders(x: _Path | Sequence[_Path] | None) -> tuple[bytes, ...]:
    """The real paths of folders; prefixes of URLs as they are."""
    folders = [] if x is None else [x] if isinstance(x, (str, os.PathLike)) else list(x)
    return tuple(b if b"://" in (b := os.fsencode(f)) else os.path.realpath(b) for f in folders)


def _tls(**files: _Path | bool | None) -> tuple[Any, list[Any]]:
    """A `mr_tls_opts *`, and what it refers to."""
    opts, kept = ffi.new("mr_tls_opts *"), list[Any]()
    for name, x in files.items():
        if name == "enabled":
            opts.enabled = bool(x)
        else:
            kept.append(_text(x))
            setattr(opts, name, kept[-1])
    return opts, [opts, *kept]


class _Server:
    """What a dispatcher and a worker share. They serve in a thread of the library."""

    _kind: str
    _owned: Any = None  # a `mrpy_server *`, whose destructor frees what was opened; None: closed
    _generation = -1
    _serves = False

    def _own(self) -> Any:
        self._generation = _fast.generation()
        self._owned = ffi.gc(ffi.new("mrpy_server *"), lib.mrpy_server_free)
        return self._owned

    def _start(self) -> None:
        st = ffi.new("mr_status *")
        check(self._call("start", st), st)
        self._serves = True
        _servers.add(self)

    def _call(self, name: str, *more: Any) -> Any:
        return getattr(lib, f"mr_service_{self._kind}_{name}")(getattr(self._owned, self._kind), *more)

    @property
    def address(self) -> str:
        """HOST:PORT, where others connect."""
        if self._owned is None:
            raise FailedPrecondition(f"the {self._kind} is closed")
        return text_of(self._call("address"))

    def close(self) -> None:
        """Stops serving: waits until its state is kept and its connections are closed, at most a few
        seconds. Further calls do nothing.

        Raises the error that had ended it before, if one had."""
        if self._generation != _fast.generation():
            self._owned = None  # of the parent of this process, whose threads are not here
        if self._owned is None:
            return
        with _closing:
            if self._owned is None:
                return
            st, code = ffi.new("mr_status *"), 0
            if self._serves:
                self._call("stop")
                self._serves = False
                code = self._call("wait", st)
            self._free()
        check(code, st)

    def _free(self) -> None:
        owned, self._owned = self._owned, None
        if owned is not None:
            ffi.release(owned)

    def __enter__(self: _S) -> _S:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is None:
            self.close()
        else:
            self._close_quietly()

    def _close_quietly(self) -> None:
        try:
            self.close()
        except Error as e:
            logging.getLogger("millrace").error("the %s failed: %s", self._kind, e)

    @finalizer
    def __del__(self) -> None:
        if self._owned is not None:
            self._close_quietly()

    def __reduce__(self) -> Any:
        raise TypeError(f"a {self._kind} serves in its process and cannot be pickled; pass on its address")

    def __repr__(self) -> str:
        state = "closed" if self._owned is None else self.address
        return f"<millrace.service.{type(self).__name__} {state}>"


class Dispatcher(_Server):
    """Assigns the streams of datasets to workers, and keeps the account of what was read.

        >>> from millrace.service import Dispatcher
        >>> with Dispatcher() as dispatcher:
        ...     dispatcher.address.split(":")[0]
        '127.0.0.1'

    Args:
        listen: HOST:PORT for clients and workers; port 0: a free one.
        state: the folder of the account, from which it continues after a restart; None: in memory.
        status: HOST:PORT of the status page (HTTP); port 0: a free one; None: no page.
        status_token_file: a file with the token that the page requires, except for /healthz.
        token_file: a file with the token that clients and workers must present; None: the file that
            the environment's MILLRACE_TOKEN_FILE names, else no token: then it serves processes of
            the same user on this machine.
        tls_cert, tls_key: files with a certificate and its key, in PEM form: connections are by TLS
            only. None: those that the environment's MILLRACE_TLS_CERT and MILLRACE_TLS_KEY name,
            else connections are in the clear.
        tls_client_ca: a file with the CA whose certificate everyone who connects must have; None:
            that of MILLRACE_TLS_CLIENT_CA.
        insecure: other machines may connect without TLS, if `listen` lets them.
        jobs_of_name_only: a job belongs to the name of the client that began it, and other names can
            neither read, see nor cancel it. Names are those of a token_file with names, or of the
            certificates that tls_client_ca requires.
        operators: with jobs_of_name_only, the names of workers, and of tools that see and change
            everything.

    Raises InvalidArgument for a bad option, AlreadyExists if the address is in use, FailedPrecondition
    if another dispatcher uses the folder, DataLoss if the account is damaged.
    """

    _kind = "dispatcher"

    def __init__(
        self,
        listen: str = "127.0.0.1:0",
        *,
        state: _Path | None = None,
        status: str | None = None,
        status_token_file: _Path | None = None,
        token_file: _Path | None = None,
        tls_cert: _Path | None = None,
        tls_key: _Path | None = None,
        tls_client_ca: _Path | None = None,
        insecure: bool = False,
        jobs_of_name_only: bool = False,
        operators: Sequence[str] = (),
    ) -> None:
        _address("listen", listen)
        if status is not None:
            _address("status", status)
        opts = ffi.new("mr_service_dispatcher_opts *")
        kept = [_text(x) for x in (listen, state, status, token_file, status_token_file)]
        opts.listen, opts.state, opts.status, opts.token_file, opts.status_token_file = kept
        opts.tls, tls = _tls(cert=tls_cert, key=tls_key, client_ca=tls_client_ca)
        kept += tls
        opts.insecure, opts.jobs_of_name_only = bool(insecure), bool(jobs_of_name_only)
        if isinstance(operators, str):
            raise TypeError("operators is a list of names, not a string")
        names = [_text(name) for name in operators]
        listed = ffi.new("const char *[]", names or [ffi.NULL])
        opts.operators, opts.n_operators = listed, len(names)
        st, owned = ffi.new("mr_status *"), self._own()
        try:
            check(lib.mr_service_dispatcher_open(ffi.addressof(owned, "dispatcher"), opts, st), st)
            self._start()
        except BaseException:
            self._free()
            raise

    @property
    def status_address(self) -> str | None:
        """HOST:PORT of the status page; None: there is no page."""
        if self._owned is None:
            raise FailedPrecondition("the dispatcher is closed")
        page = self._call("status_address")
        return None if page == ffi.NULL else text_of(page)


class Worker(_Server):
    """Runs streams of datasets for the clients of a dispatcher.

    Args:
        dispatcher: HOST:PORT; it may start later. Or a `Dispatcher`.
        listen: HOST:PORT for clients; port 0: a free one. Addresses that other machines can reach
            need root.
        root: a folder, or several. All pipelines of this process, not only the worker's, then open
            files only below them, until the worker is closed. None: anywhere.
        allow_writes: a folder, or several: pipelines of clients may write files below them, and read
            them. None: a pipeline that writes is refused.
        threads: how many run pipelines, besides one for each stream; None: the number of processors.
        token_file: a file with the service's token; None: the file that the environment's
            MILLRACE_TOKEN_FILE names, else no token.
        tls_cert, tls_key, tls_client_ca: as for the dispatcher; the certificate is also the one that
            the worker presents to the dispatcher.
        tls: connect to the dispatcher by TLS, and trust the system's CAs.
        tls_ca: connect to it by TLS, and trust the CA in this file; None: that of MILLRACE_TLS_CA.
        tls_name: the name that the dispatcher's certificate must have; None: its host.
        insecure: other machines may connect without TLS, if `listen` lets them.
        any_user: without a token: serve every user and machine that can connect, with the rights of
            this process.

    Raises InvalidArgument for a bad option, AlreadyExists if the address is in use, FailedPrecondition
    if other machines can connect and there is no root, or if another worker of this process has
    another root or allow_writes. Those of the workers that a process had when it was forked last in
    the child until it ends.
    """

    _kind = "worker"

    def __init__(
        self,
        dispatcher: str | Dispatcher,
        listen: str = "127.0.0.1:0",
        *,
        root: _Path | Sequence[_Path] | None = None,
        allow_writes: _Path | Sequence[_Path] | None = None,
        threads: int | None = None,
        token_file: _Path | None = None,
        tls_cert: _Path | None = None,
        tls_key: _Path | None = None,
        tls_client_ca: _Path | None = None,
        tls: bool = False,
        tls_ca: _Path | None = None,
        tls_name: str | None = None,
        insecure: bool = False,
        any_user: bool = False,
    ) -> None:
        address = dispatcher.address if isinstance(dispatcher, Dispatcher) else dispatcher
        _address("dispatcher", address)
        _address("listen", listen)
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int)):
            raise TypeError(f"threads is a number, or None for one a processor, not {threads!r:.80}")
        limits = (_folders(root), _folders(allow_writes))
        opts = ffi.new("mr_service_worker_opts *")
        kept = [_text(x) for x in (address, listen, token_file)]
        opts.dispatcher, opts.listen, opts.token_file = kept
        opts.tls, more = _tls(
            enabled=tls, cert=tls_cert, key=tls_key, client_ca=tls_client_ca, ca=tls_ca, name=tls_name
        )
        kept += more
        opts.insecure, opts.any_user = bool(insecure), bool(any_user)
        own = ffi.NULL if threads is None else ffi.new("int *", threads)
        st, owned = ffi.new("mr_status *"), self._own()
        try:
            _restrict(owned, limits)
            check(lib.mrpy_server_open_worker(owned, opts, own, st), st)
            self._start()
        except BaseException:
            self._free()
            raise


def _restrict(owned: Any, limits: tuple[tuple[bytes, ...], ...]) -> None:
    """Gives a worker a part in what the graphs of this process may read, and those of clients may write."""
    global _restricted
    with _limiting:
        # A worker without limits may share those that another one reads by, but not its right to write.
        if lib.mrpy_limits_users() and _restricted != limits and (any(limits) or _restricted[1]):
            raise FailedPrecondition(
                "another worker of this process, or of the one that forked it, has another root or allow_writes, and "
                "all of a process have the same; start the other worker as a program: millrace worker --root"
            )
        if not any(limits):
            return
        _restricted = limits
        kept = [[ffi.new("char[]", name) for name in names] for names in limits]
        read, write = (ffi.new("char *[]", names) for names in kept)
        both = ffi.new("mrpy_limits *", {"read": read, "n_read": len(read), "write": write, "n_write": len(write)})
        st = ffi.new("mr_status *")
        check(lib.mrpy_server_limit(owned, both, st), st)


_closing, _limiting = threading.RLock(), threading.RLock()


def _forked() -> None:
    """In the child: the threads that may have had the locks are not there."""
    global _closing, _limiting
    _closing, _limiting = threading.RLock(), threading.RLock()


os.register_at_fork(after_in_child=_forked)
_restricted: tuple[tuple[bytes, ...], ...] = ((), ())  # of the workers that mrpy_limits_users counts
_servers: weakref.WeakSet[_Server] = weakref.WeakSet()


def _at_exit() -> None:
    """No thread may be left when the interpreter ends: first clients, then workers."""
    try:
        _iterator.at_exit()
    finally:
        for kind in (Worker, Dispatcher):
            close_all([s for s in _servers if isinstance(s, kind)], _Server._close_quietly)


atexit.register(_at_exit)
