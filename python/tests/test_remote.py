# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=long
"""URLs: what a program in Python meets when a server stalls, fails, or changes."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import signal
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any

import kit
import millrace as mr


def _remote_kit() -> Any:
    """tests/remote/kit.py; its folder is not in sys.path, since files there have names of Python's modules."""
    path = os.path.join(kit.SOURCE, "tests", "remote", "kit.py")
    spec = importlib.util.spec_from_file_location("remote_kit", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    os.environ["MR_BUILD"] = kit.BUILD
    spec.loader.exec_module(module)
    return module


remote = _remote_kit()
BOUND = 20.0  # in seconds, from SIGINT to KeyboardInterrupt; it takes 0.01
TEXT = b"".join(b"%015d\n" % i for i in range(1 << 17))
SECRET = "5ec2e7-of-a-test"
server = remote.Server()
asked = threading.Event()


def stall(s: Any, h: Any, path: str) -> None:
    """Answers nothing."""
    asked.set()
    h.close_connection = True
    time.sleep(3600)


def stall_in_body(s: Any, h: Any, path: str) -> None:
    asked.set()
    s.send(h, path, cut=1000, pause=3600)


def setUpModule() -> None:
    if not remote.has_libcurl():
        raise unittest.SkipTest("built without libcurl")
    server.put("/a.txt", TEXT)
    server.put("/slow", TEXT)
    server.always.update({"/stalls": stall, "/stalls.idx": stall, "/slow": stall_in_body, "/bucket": stall, "/bucket/a": stall})
    os.environ.update(AWS_ENDPOINT_URL=server.address, AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="key")


def url(path: str) -> str:
    return str(server.address) + path


class Interrupts(unittest.TestCase):
    def interrupt(self, call: Callable[[], Any], *, is_asked: bool = False) -> None:
        """Ctrl-C while the server stalls ends the call."""
        if not is_asked:
            asked.clear()
        sent = []

        def send() -> None:
            if asked.wait(60):
                time.sleep(0.1)  # until the call waits
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            with self.assertRaises(KeyboardInterrupt):
                call()
            self.assertTrue(asked.is_set())
            self.assertLess(time.monotonic() - sent[0], BOUND)
        finally:
            thread.join()

    def test_whatever_waits_for_a_server_ends(self) -> None:
        graphs = [url("/slow")] * 4
        with tempfile.TemporaryDirectory() as out:
            calls: dict[str, Callable[[], Any]] = {
                "the body": lambda: list(mr.text_line(url("/slow"))),
                "the head": lambda: list(mr.text_line(url("/stalls"))),
                "read_file": lambda: list(mr.from_tensors(url("/stalls")).map(lambda f: mr.fn.read_file(f))),
                "several": lambda: list(
                    mr.from_tensor_slices(graphs).interleave(lambda f: mr.text_line(f), num_parallel_calls=4).prefetch(2)
                ),
                "the cache": lambda: list(mr.text_line(url("/slow")).with_options(cache_dir=out + "/cache")),
                "a listing": lambda: list(mr.list_files("s3://bucket/a-*")),
                "a listing for columns": lambda: mr.parquet("s3://bucket/a-*"),
                "columns": lambda: mr.parquet(url("/stalls")),
                "a shape": lambda: mr.npy(url("/stalls")),
                "a graph's text": lambda: mr.from_text(f'parquet("{url("/stalls")}")'),
                "an index": lambda: mr.tfrecord(url("/stalls")).cardinality(),
                "an index while it runs": lambda: list(mr.tfrecord(url("/stalls")).global_shuffle(seed=1)),
                "skip": lambda: list(mr.tfrecord(url("/stalls")).skip(5)),
                "a number": lambda: mr.fixed_length_record(url("/stalls"), 8)[3],
                "len": lambda: len(mr.fixed_length_record(url("/stalls"), 8)),
                "writing": lambda: mr.write(mr.range(3), "s3://bucket/a", shards=1),
                "writing what stalls": lambda: mr.write(mr.text_line(url("/slow")), out + "/w", shards=1),
            }
            for name, call in calls.items():
                with self.subTest(name):
                    self.interrupt(call)

    def test_what_was_not_counted_is_counted_later(self) -> None:
        ds = mr.fixed_length_record(url("/counted"), 16)
        more = ds.skip(3).batch(2)
        server.put("/counted", TEXT[:160])
        server.always["/counted"] = stall
        self.interrupt(more.cardinality)
        del server.always["/counted"]
        self.assertEqual((more.cardinality(), len(ds)), (4, 10))

    def test_credentials(self) -> None:
        given = {k: os.environ.pop(k) for k in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = url("/stalls")
        try:
            self.interrupt(lambda: list(mr.text_line("s3://bucket/a")))
            for call in (lambda: mr.parquet("s3://bucket/a"), lambda: mr.write(mr.range(3), "s3://bucket/a", shards=1)):
                self.interrupt(call, is_asked=True)  # one request for all
        finally:
            os.environ.update(given)
            del os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"]

    def test_a_handler_that_raises_nothing(self) -> None:
        """The call continues, and its answer comes."""
        made = os.path.join(remote.directory.name, "made")
        mr.write([{"a": 1}, {"a": 2}], made, "parquet", shards=1)
        with open(made + "-00000-of-00001.parquet", "rb") as f:
            server.put("/later", f.read())
        came = threading.Event()

        def answer(s: Any, h: Any, path: str) -> None:
            asked.set()
            came.wait(60)
            s.send(h, path)

        server.always["/later"] = answer
        before = signal.signal(signal.SIGINT, lambda *_: came.set())
        try:
            for call, want in (
                (lambda: [int(r["a"]) for r in mr.parquet(url("/later"))], [1, 2]),
                (lambda: mr.parquet(url("/later")).cardinality(), 2),
                (lambda: int(mr.parquet(url("/later"))[1]["a"]), 2),
            ):
                asked.clear()
                came.clear()
                thread = threading.Thread(target=lambda: asked.wait(60) and os.kill(os.getpid(), signal.SIGINT))
                thread.start()
                self.assertEqual(call(), want)
                thread.join()
                self.assertTrue(came.is_set())
        finally:
            signal.signal(signal.SIGINT, before)


class Failures(unittest.TestCase):
    def test_errors_say_what_and_keep_secrets(self) -> None:
        os.environ["MILLRACE_REMOTE_RETRIES"] = "2"
        self.addCleanup(os.environ.pop, "MILLRACE_REMOTE_RETRIES")
        server.always["/503"] = remote.status(503)
        server.always["/403"] = remote.status(403)
        query = f"?X-Amz-Signature={SECRET}&plain=seen"
        for kind, builtin, call in (
            (mr.NotFound, FileNotFoundError, lambda: list(mr.text_line(url("/none") + query))),
            (mr.NotFound, FileNotFoundError, lambda: mr.parquet(url("/none") + query)),
            (mr.Unavailable, Exception, lambda: list(mr.text_line(url("/503") + query))),
            (mr.PermissionDenied, PermissionError, lambda: list(mr.text_line(url("/403") + query))),
            (mr.DataLoss, Exception, lambda: mr.parquet(url("/a.txt") + query)),
            (mr.NotFound, FileNotFoundError, lambda: list(mr.from_tensors(url("/none") + query).map(lambda f: mr.fn.read_file(f)))),
        ):
            with self.assertRaises(kind) as caught:
                call()
            e = caught.exception
            self.assertIsInstance(e, builtin)
            self.assertIn("plain=seen", str(e))
            everything = repr((e, e.args, vars(e), getattr(e, "__notes__", None)))
            self.assertNotIn(SECRET, everything)

    def test_names_that_are_no_urls(self) -> None:
        for name, kind, words in (
            (pathlib.PurePosixPath(url("/a.txt")), mr.NotFound, "pass a string"),
            ("s3a://bucket/a", mr.NotFound, "schemes s3, gs"),
            ("http://", mr.InvalidArgument, "no host"),
            ("http://x/\0y", mr.InvalidArgument, "NUL"),
        ):
            with self.assertRaisesRegex(kind, words):
                list(mr.text_line(name))
        for prefix in (url("/w"), "gs://bucket/w"):
            with self.assertRaisesRegex(mr.Unimplemented, "read but not written"):
                mr.write(mr.range(3), prefix)

    def test_a_state_holds_no_secret_and_knows_its_object(self) -> None:
        path = url("/p.txt")
        server.put("/p.txt", TEXT)
        with mr.text_line(path + f"?sig={SECRET}").iterator() as it:
            for _ in range(1000):
                next(it)
            state = it.state_dict()
        self.assertNotIn(SECRET, repr(state))
        with mr.text_line(path + "?sig=another").iterator() as it:
            it.load_state_dict(state)
            self.assertEqual(next(it), b"%015d" % 1000)
        server.put("/p.txt", TEXT, '"2"')
        with mr.text_line(path).iterator() as it, self.assertRaisesRegex(mr.FailedPrecondition, "replaced"):
            it.load_state_dict(state)
            next(it)


class Processes(unittest.TestCase):
    def test_threads_and_abandoned_iterators(self) -> None:
        counts: list[int] = []

        def count() -> None:
            for _ in range(10):
                next(iter(mr.text_line(url("/a.txt"))))
            counts.append(sum(1 for _ in mr.text_line(url("/a.txt"))))

        threads = [threading.Thread(target=count) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(counts, [1 << 17] * 4)

    def test_fork_with_an_open_iterator(self) -> None:
        it = iter(mr.text_line(url("/a.txt")))
        next(it)
        kit.settle()
        r, w = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                try:
                    first = repr(next(it))
                except mr.ForkError:
                    first = "refused"
                os.write(w, f"{first} {sum(1 for _ in mr.text_line(url('/a.txt')))}".encode())
            finally:
                os._exit(0)
        os.close(w)
        with os.fdopen(r, "rb") as f:
            said = f.read()
        os.waitpid(child, 0)
        self.assertEqual(said, b"refused %d" % (1 << 17))
        self.assertEqual(sum(1 for _ in it), (1 << 17) - 1)

    def test_credentials_that_change(self) -> None:
        """Those of a request are those of when its object was opened or listed."""
        seen: list[str] = []

        def note(s: Any, h: Any, path: str) -> None:
            found = re.search(r"Credential=([^/]*)", h.headers.get("Authorization", ""))
            seen.append(found.group(1) if found else "none")
            s.send(h, path)

        server.put("/bucket/c", b"x\n")
        server.always["/bucket/c"] = note
        before = os.environ["AWS_ACCESS_KEY_ID"]
        ds = mr.text_line("s3://bucket/c")
        try:
            for name in ("first", "second"):
                os.environ["AWS_ACCESS_KEY_ID"] = name
                self.assertEqual(list(ds), [b"x"])
        finally:
            os.environ["AWS_ACCESS_KEY_ID"] = before
        self.assertEqual(seen, ["first", "second"])


if __name__ == "__main__":
    kit.main()
