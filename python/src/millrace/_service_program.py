# SPDX-License-Identifier: Apache-2.0
"""What `millrace worker --python MODULE` runs: a worker of the data service in a Python process, so
that graphs can call the functions that MODULE registers (`millrace.register`).

    python3 -m millrace._service_program MODULE NAME=VALUE...
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
import traceback
from typing import Any

from . import _service
from ._callbacks import callback
from ._errors import Error, check, text_of

ffi, lib = _service.library()
_texts = ("dispatcher", "listen", "status", "status_token_file", "token_file")
_ready: list[Any] = []


@callback(ffi=ffi)
def mrpy_worker_ready(ctx: Any) -> None:
    worker = _ready[0]
    print("ready", text_of(lib.mr_service_worker_address(worker)))
    page = lib.mr_service_worker_status_address(worker)
    if page != ffi.NULL:
        print("status", text_of(page))
    sys.stdout.flush()


def _array(values: list[str], kept: list[Any]) -> Any:
    kept += [ffi.new("char[]", v.encode("utf-8", "surrogateescape")) for v in values]
    array = ffi.new("const char *[]", kept[-len(values) :] if values else [ffi.NULL])
    kept.append(array)
    return array


def _serve(settings: dict[str, list[str]]) -> None:
    st, kept = ffi.new("mr_status *"), list[Any]()
    roots, tags = settings.get("root", []), settings.get("tag", [])
    check(lib.mr_service_restrict_files(_array(roots, kept), len(roots), st), st)
    writes = settings.get("allow_writes", [])
    check(lib.mr_service_allow_writes(_array(writes, kept), len(writes), st), st)
    opts = ffi.new("mr_service_worker_opts *")
    for name in _texts:
        if name in settings:
            setattr(opts, name, _array(settings[name], kept)[0])
    opts.tags, opts.n_tags = _array(tags, kept), len(tags)
    opts.memory_limit = int(settings.get("memory_limit", ["0"])[0])
    opts.insecure = "insecure" in settings
    if "tls_client_ca" in settings:  # the rest is in the environment
        tls = ffi.new("mr_tls_opts *")
        kept.append(tls)
        tls.client_ca = _array(settings["tls_client_ca"], kept)[0]
        opts.tls = tls
    opts.weight = float(settings.get("weight", ["0"])[0])
    opts.any_user, opts.no_uring, opts.watch = "any_user" in settings, "no_uring" in settings, True
    opts.ready = lib.mrpy_worker_ready
    executor = ffi.new("mr_executor **")
    if "threads" in settings:
        check(lib.mr_executor_new(int(settings["threads"][0]), executor, st), st)
        opts.executor = executor[0]
    out = ffi.new("mr_service_worker **")
    try:
        check(lib.mr_service_worker_open(out, opts, st), st)
        worker = out[0]
        _ready.append(worker)

        def stop(number: int, frame: Any) -> None:
            signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
            lib.mr_service_worker_stop(worker)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        if os.environ.get("MILLRACE_TLS_CERT"):
            signal.signal(signal.SIGHUP, lambda number, frame: lib.mr_service_reload_certificates())
        ended = threading.Event()
        code: list[int] = []

        def wait() -> None:
            code.append(lib.mr_service_worker_wait(worker, st))
            ended.set()

        check(lib.mr_service_worker_start(worker, st), st)
        threading.Thread(target=wait, daemon=True).start()
        while not ended.wait(0.2):  # a signal that another thread receives does not wake this one
            pass
        lib.mr_service_worker_close(worker)
        check(code[0], st)
    finally:
        if executor[0] != ffi.NULL:
            lib.mr_executor_free(executor[0])


def main(module: str, *arguments: str) -> int:
    logging.basicConfig(format="millrace: %(message)s", level=logging.INFO, stream=sys.stderr)
    settings: dict[str, list[str]] = {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        settings.setdefault(name, []).append(value)
    try:
        importlib.import_module(module)
    except Exception:
        traceback.print_exc()
        print(f"millrace worker: cannot import {module}, which --python names", file=sys.stderr)
        return 1
    try:
        _serve(settings)
    except Error as e:
        print(f"millrace worker: {e}", file=sys.stderr)
        return 2 if e.code == "INVALID_ARGUMENT" else 1
    return 0


if __name__ == "__main__":
    # def_extern made the functions of this module, not those of another import of it.
    sys.exit(main(*sys.argv[1:]))
