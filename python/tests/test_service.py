# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""The data service in this process and as programs."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import unittest
import urllib.request
from collections.abc import Iterator
from typing import Any

import kit
import millrace as mr
from millrace import service
from millrace.service import Dispatcher, Worker


def numbers(ds: mr.Dataset) -> list[int]:
    return sorted(int(x) for batch in ds for x in batch)


@contextlib.contextmanager
def program(*arguments: str) -> Iterator[str]:
    """`millrace dispatcher` or `millrace worker`: the address at which it serves."""
    with subprocess.Popen([kit.MILLRACE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as p:
        try:
            assert p.stdout is not None
            word, address = p.stdout.readline().split()
            assert word == "ready"
            yield address
        finally:
            p.terminate()
            p.wait(60)


class InProcess(unittest.TestCase):
    def test_a_dataset_is_read_through_workers(self) -> None:
        with Dispatcher() as d, Worker(d.address), Worker(d):
            self.assertRegex(d.address, r"^127\.0\.0\.1:\d+$")
            self.assertEqual(numbers(mr.range(1000).batch(16).distribute(d.address)), list(range(1000)))

    def test_it_is_in_the_text_and_in_copies(self) -> None:
        ds = mr.range(6).batch(2).distribute("local", streams=2)
        self.assertEqual(str(ds), 'range(6).batch(2).distribute("local", streams=2)')
        self.assertEqual(numbers(ds), list(range(6)))
        code = (
            "import pickle, sys, millrace as mr\n"
            "assert 'millrace._service_ffi' not in sys.modules\n"
            "for ds in (pickle.loads(bytes.fromhex(sys.argv[1])), mr.from_text(sys.argv[2])):\n"
            "    print(sorted(int(x) for b in ds for x in b))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, pickle.dumps(ds).hex(), str(ds)], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.stdout.splitlines(), ["[0, 1, 2, 3, 4, 5]"] * 2, done.stderr)

    def test_order_and_positions(self) -> None:
        with Dispatcher() as d, Worker(d.address):
            ds = mr.range(40).batch(4).distribute(d.address, streams=2)
            whole = [b.tolist() for b in ds]
            again = mr.range(40).batch(4).distribute(d.address, streams=2)
            it = iter(again)
            for _ in range(3):
                next(it)
            state = it.state_dict()
            it.close()
            other = iter(mr.range(40).batch(4).distribute(d.address, streams=2))
            other.load_state_dict(state)
            self.assertEqual([b.tolist() for b in other], whole[3:])

    def test_the_account_lasts(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            state = os.path.join(folder, "account")
            with Dispatcher(state=state) as d, Worker(d.address):
                it = iter(mr.range(100).batch(5).distribute(d.address, job_name="job", streams=2))
                before = [b.tolist() for b in (next(it), next(it))]
                it.close()
                address = d.address
            self.assertTrue(os.listdir(state))
            with Dispatcher(address, state=state) as d, Worker(d.address):
                rest = mr.range(100).batch(5).distribute(d.address, job_name="job", streams=2, resume=True)
                got = [int(x) for b in before for x in b] + numbers(rest)
            self.assertEqual(sorted(got), list(range(100)))

    def test_status_page(self) -> None:
        with Dispatcher(status="127.0.0.1:0") as d:
            with urllib.request.urlopen(f"http://{d.status_address}/healthz", timeout=30) as page:
                self.assertEqual(page.status, 200)
        with Dispatcher() as d:
            self.assertIsNone(d.status_address)

    def test_a_worker_waits_for_its_dispatcher(self) -> None:
        with Dispatcher() as d:
            address = d.address
        with Worker(address), Dispatcher(address) as d:
            self.assertEqual(numbers(mr.range(10).batch(2).distribute(d.address)), list(range(10)))

    def test_root_restricts_files(self) -> None:
        with tempfile.TemporaryDirectory() as inside, tempfile.TemporaryDirectory() as outside:
            for folder in (inside, outside):
                with open(os.path.join(folder, "a.txt"), "w") as f:
                    f.write("line\n")
            lines = mr.text_line(os.path.join(outside, "a.txt"))
            with Dispatcher() as d, Worker(d.address, root=inside, threads=1):
                with self.assertRaisesRegex(mr.PermissionDenied, "a.txt"):
                    list(lines.distribute(d.address))
                self.assertEqual(list(mr.text_line(os.path.join(inside, "a.txt")).distribute(d.address)), [b"line"])
                with self.assertRaisesRegex(mr.FailedPrecondition, "another root"):
                    Worker(d.address, root=outside)
                Worker(d.address, root=[inside]).close()
            self.assertEqual(list(lines), [b"line"])

    def test_tokens(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            names = [os.path.join(folder, n) for n in ("a", "b")]
            for name in names:
                with open(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                    f.write(name[-1] * 40 + "\n")
            with Dispatcher(token_file=names[0]) as d:
                w = Worker(d.address, token_file=names[1])
                with self.assertRaises((mr.PermissionDenied, mr.FailedPrecondition)):
                    for _ in range(600):  # until it was refused, it may be closed without an error
                        threading.Event().wait(0.1)
                        w.close()
                        w = Worker(d.address, token_file=names[1])
                with self.assertRaises(mr.PermissionDenied):
                    list(mr.range(3).distribute(d.address))

    def test_jobs_of_name_only(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            names = os.path.join(folder, "names")
            with open(names, "w") as f:
                f.write("# names\nworker " + "w" * 40 + "\nalice " + "a" * 40 + "\n")
            own = os.path.join(folder, "alice")
            with open(own, "w") as f:
                f.write("a" * 40)
            tied: dict[str, Any] = {"token_file": names, "jobs_of_name_only": True}
            with self.assertRaisesRegex(mr.InvalidArgument, "needs operators"):
                Dispatcher(**tied)
            with self.assertRaisesRegex(TypeError, "a list of names"):
                Dispatcher(operators="worker", **tied)
            with Dispatcher(operators=["worker"], **tied) as d, Worker(d, token_file=names):
                ds = mr.range(5).distribute(d.address, streams=1)
                with self.assertRaises(mr.PermissionDenied):
                    list(ds)
                os.environ["MILLRACE_TOKEN_FILE"] = own
                try:
                    self.assertEqual([int(x) for x in ds], list(range(5)))
                finally:
                    del os.environ["MILLRACE_TOKEN_FILE"]

    def test_tls(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            cert, key = (os.path.join(folder, name) for name in ("cert.pem", "key.pem"))
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
                + ["-days", "30", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
                + ["-keyout", key, "-out", cert],
                check=True,
                stderr=subprocess.DEVNULL,
            )
            own: dict[str, Any] = {"tls_cert": cert, "tls_key": key, "tls_client_ca": cert}
            with Dispatcher(**own) as d, Worker(d, tls_ca=cert, **own):
                ds = mr.range(100).batch(8).distribute(d.address, connect_timeout=20.0)
                with self.assertRaisesRegex(mr.Error, "requires TLS"):
                    numbers(ds)
                settings = {"MILLRACE_TLS_CERT": cert, "MILLRACE_TLS_KEY": key, "MILLRACE_TLS_CA": cert}
                os.environ.update(settings)
                try:
                    self.assertEqual(numbers(ds), list(range(100)))
                finally:
                    for name in settings:
                        del os.environ[name]
            with self.assertRaisesRegex(mr.InvalidArgument, "tls_cert"):
                Dispatcher(tls_cert=cert)
            with self.assertRaisesRegex(mr.InvalidArgument, "without TLS"):
                Dispatcher("0.0.0.0:0", token_file=cert)
            Dispatcher("0.0.0.0:0", token_file=cert, insecure=True).close()

    def test_bad_options_say_what_to_do(self) -> None:
        wrong: Any = Worker
        with Dispatcher() as d:
            for kind, message, call in (
                (mr.InvalidArgument, "nowhere", lambda: Dispatcher("nowhere")),
                (mr.AlreadyExists, d.address, lambda: Dispatcher(d.address)),
                (TypeError, "listen is an address", lambda: Dispatcher(5050)),  # type: ignore[arg-type]
                (TypeError, "dispatcher is an address", lambda: wrong(None)),
                (TypeError, "threads is a number", lambda: wrong(d.address, threads="2")),
                (mr.InvalidArgument, "token_file", lambda: Dispatcher(token_file="/no/such/file")),
                (mr.InvalidArgument, "no/such", lambda: wrong(d.address, root="/no/such/folder")),
                (mr.FailedPrecondition, "restrict", lambda: wrong(d.address, "0.0.0.0:0")),
            ):
                with self.subTest(message=message), self.assertRaisesRegex(kind, message):
                    call()
        for server in (d,):
            with self.assertRaisesRegex(mr.FailedPrecondition, "closed"):
                server.address
            server.close()
            self.assertIn("closed", repr(server))
        with self.assertRaisesRegex(TypeError, "pickled"):
                pickle.dumps(d)


class Programs(unittest.TestCase):
    def test_programs_serve_python_and_python_serves_programs(self) -> None:
        show = [kit.MILLRACE, "show"]
        with program("dispatcher", "--listen", "127.0.0.1:0") as address:
            with program("worker", "--dispatcher", address):
                self.assertEqual(numbers(mr.range(100).batch(8).distribute(address)), list(range(100)))
            with Worker(address):
                self.assertEqual(numbers(mr.range(100).batch(8).distribute(address)), list(range(100)))
        with Dispatcher() as d, program("worker", "--dispatcher", d.address):
            self.assertEqual(numbers(mr.range(100).batch(8).distribute(d.address)), list(range(100)))
            text = f'range(100).distribute("{d.address}")'
            out = subprocess.run([*show, text], check=True, capture_output=True, text=True).stdout
            self.assertEqual(sorted(map(int, out.split())), list(range(100)))


class Ends(unittest.TestCase):
    def test_nothing_is_left_after_close(self) -> None:
        def once() -> None:
            with Dispatcher() as d, Worker(d.address, threads=2), Worker(d.address):
                it = iter(mr.range(1000).batch(2).distribute(d.address))
                next(it)
                it.close()

        once()
        threads, descriptors, shared = kit.threads(), kit.descriptors(), sorted(os.listdir("/dev/shm"))
        for _ in range(3):
            once()
        self.assertLessEqual(kit.wait_for_threads(threads), threads)
        self.assertLessEqual(kit.wait_for_descriptors(descriptors), descriptors)
        self.assertEqual([f for f in os.listdir("/dev/shm") if f not in shared and str(os.getpid()) in f], [])

    def test_what_closes_in_order_warns_of_nothing(self) -> None:
        log, seen, left = logging.getLogger("millrace"), list[logging.LogRecord](), threading.Event()

        def emit(record: logging.LogRecord) -> None:
            seen.append(record)
            if "it had no streams" in record.getMessage():
                left.set()

        handler = logging.Handler()
        handler.emit = emit  # type: ignore[method-assign]
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        try:
            with Dispatcher() as d:
                with Worker(d):
                    self.assertEqual(numbers(mr.range(100).batch(8).distribute(d.address)), list(range(100)))
                self.assertTrue(left.wait(60))
        finally:
            log.removeHandler(handler)
            log.setLevel(logging.NOTSET)
        self.assertEqual([r.getMessage() for r in seen if r.levelno > logging.INFO], [])

    def test_dropped_servers_end(self) -> None:
        threads, others = kit.threads(), kit.thread_ids()
        d = Dispatcher()
        w = Worker(d.address)
        self.assertTrue(kit.thread_ids() - others)
        del w, d
        self.assertLessEqual(kit.wait_for_threads(threads), threads)

    def test_an_interpreter_ends_with_servers_and_clients(self) -> None:
        code = (
            "import millrace as mr\nfrom millrace.service import Dispatcher, Worker\n"
            "d = Dispatcher(); w = Worker(d.address)\n"
            "it = iter(mr.range(10**6).batch(2).distribute(d.address)); next(it)\nprint('read')"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "read\n"), done.stderr)

    def test_a_child_leaves_the_servers_alone(self) -> None:
        with Dispatcher() as d, Worker(d.address) as w:
            kit.settle()
            pid = os.fork()
            if pid == 0:
                signal.alarm(60)
                w.close()
                d.close()
                os._exit(7)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7)
            self.assertEqual(numbers(mr.range(10).batch(2).distribute(d.address)), list(range(10)))

    def test_a_child_has_none_of_the_locks(self) -> None:
        """Of a thread that was within a constructor or close() at the fork."""
        held, over = threading.Event(), threading.Event()

        def hold() -> None:
            with service._limiting, service._closing:
                held.set()
                over.wait(120)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(60)
        with tempfile.TemporaryDirectory() as folder:
            kit.settle()
            pid = os.fork()
            if pid == 0:
                signal.alarm(60)
                Worker("127.0.0.1:1", root=folder).close()
                os._exit(7)
            try:
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7)
            finally:
                over.set()
                holder.join()

    def test_a_child_keeps_the_limits(self) -> None:
        """It can neither write where its parent's clients could, nor read what they could not."""

        def child(d: str) -> None:
            others: list[dict[str, Any]] = [{}, {"root": outside}, {"allow_writes": outside}]
            for other in others:
                with self.assertRaisesRegex(mr.FailedPrecondition, "another root"):
                    Worker(d, **other)
            for _ in range(2):  # also after its own last worker
                Worker(d, root=inside, allow_writes=inside).close()
                with self.assertRaises(mr.PermissionDenied):
                    list(mr.text_line(os.path.join(outside, "a.txt")))
            self.assertEqual(list(mr.text_line(os.path.join(inside, "a.txt"))), [b"line"])

        with tempfile.TemporaryDirectory() as inside, tempfile.TemporaryDirectory() as outside, Dispatcher() as d:
            for folder in (inside, outside):
                with open(os.path.join(folder, "a.txt"), "w") as f:
                    f.write("line\n")
            with Worker(d, root=inside, allow_writes=inside):
                kit.settle()
                pid = os.fork()
                if pid == 0:
                    signal.alarm(60)
                    try:
                        child(d.address)
                        os._exit(7)
                    except BaseException:
                        traceback.print_exc()
                        os._exit(1)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7)
            self.assertEqual(list(mr.text_line(os.path.join(outside, "a.txt"))), [b"line"])

    def test_ctrl_c_ends_a_client(self) -> None:
        code = """
import os, signal, threading, time
import millrace as mr
from millrace.service import Dispatcher
began = []
def press():
    time.sleep(0.5)
    began.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
with Dispatcher() as d:
    it = iter(mr.range(10).distribute(d.address))  # there is no worker
    try:
        threading.Thread(target=press).start()
        next(it)
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - began[0] < 60)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.stdout, "interrupted True\n", done.stderr)

    def test_interrupts_leave_nothing_and_free_it_once(self) -> None:
        """One after each instruction of the functions that open, close and free a server."""
        code = """
import os, sys, tempfile, time
import millrace as mr
from millrace import service
every, folder, last = int(sys.argv[1]), tempfile.mkdtemp(), 0
n = left = 0
def trace(frame, event, argument):
    global left
    if frame.f_code.co_filename != service.__file__:
        return None
    frame.f_trace_opcodes = True
    if event == 'opcode':
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
    return trace
def serve(kind):
    if kind == 'dispatcher':
        return service.Dispatcher()
    return service.Worker('127.0.0.1:1', threads=1, root=folder, allow_writes=folder)
ps = lambda: (len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')))
for kind in 'dispatcher', 'worker':
    serve(kind).close()
    for _ in range(3000):
        before, n, left, steps = ps(), 0, 0, 0
        if before[0] == 1:
            break
        time.sleep(0.02)  # a thread that was joined may be seen a little longer
    while left <= 0:
        n += every if n else 1
        left, server = n, None
        sys.settrace(trace)
        try:
            server = serve(kind)
            server.close()
        except KeyboardInterrupt:
            pass
        sys.settrace(None)
        server = None
        steps += 1
        for _ in range(3000):
            if ps() == before:
                break
            time.sleep(0.02)
        else:
            print(kind, n, before, ps())
            break
    print(kind, steps > 10, service.lib.mrpy_limits_users())
print(len(list(mr.text_line(__file__))) > 10)  # whatever the worker was restricted to
"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w") as f:
                f.write(code)
            done = subprocess.run(
                [sys.executable, "-X", "faulthandler", path, "1" if kit.LONG else "7"],
                capture_output=True, text=True, timeout=240, check=False,
            )
        self.assertEqual((done.returncode, done.stdout), (0, "dispatcher True 0\nworker True 0\nTrue\n"), done.stderr)
        self.assertNotIn("failed", done.stderr)

    def test_the_library_is_loaded_when_it_is_needed(self) -> None:
        code = (
            "import sys, millrace as mr\nlist(mr.range(3).batch(2))\n"
            "print([m for m in sys.modules if 'service' in m], 'libmillrace-t' in open('/proc/self/maps').read())"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "[] False\n")


if __name__ == "__main__":
    kit.main()
