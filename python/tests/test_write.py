# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""mr.write: the same files as `millrace write`, of datasets and of Python elements."""

from __future__ import annotations

import filecmp
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any

import numpy as np

import kit
import millrace as mr

FORMATS = ("tfrecord", "jsonl", "npy", "arrow", "parquet")


class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def at(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def left(self) -> list[str]:
        return sorted(os.listdir(self.folder))


class Datasets(Case):
    def test_files_are_those_of_the_command_line(self) -> None:
        text = 'range(11).map(x => {"a": x, "b": [cast(x, "float32"), 0.5]})'
        for form in FORMATS:
            with self.subTest(format=form):
                mine = mr.write(mr.from_text(text), self.at(f"mine-{form}"), form, 3)
                command = [kit.MILLRACE, "write", "--out", self.at(f"other-{form}"), "--shards", "3", "--format", form]
                done = subprocess.run([*command, "--expr", text], check=True, capture_output=True, text=True)
                self.assertEqual(str(mine), done.stdout.strip().replace("other", "mine"))
                self.assertEqual(mine.records, 11)
                self.assertEqual(len(mine.files), 3)
                for path in mine.files:
                    self.assertTrue(filecmp.cmp(path, path.replace("mine", "other"), shallow=False), path)

    def test_strings_are_written_unchanged(self) -> None:
        lines = ["a", "", "é"]
        w = mr.write(mr.from_tensor_slices(lines), self.at("s"), shards=2)
        self.assertEqual(sorted(mr.tfrecord(w.pattern)), sorted(s.encode() for s in lines))

    def test_no_elements_and_defaults(self) -> None:
        w = mr.write(mr.range(0), self.at("none"))
        self.assertEqual((w.records, len(w.files)), (0, 8))
        self.assertEqual(str(w), f"0 records in 8 files: {self.at('none')}-*-of-00008.tfrecord")
        self.assertEqual(list(mr.tfrecord(w.pattern)), [])

    def test_compression(self) -> None:
        ds = mr.range(1000).map(lambda x: mr.fn.format("record {}", x))
        plain = mr.write(ds, self.at("plain"), shards=1)
        for compression in ("GZIP", "ZLIB", "ZSTD"):
            w = mr.write(ds, self.at(compression), shards=1, compression=compression)  # type: ignore[arg-type]
            self.assertLess(os.path.getsize(w.files[0]), os.path.getsize(plain.files[0]))
            self.assertEqual(len(list(mr.tfrecord(w.pattern, compression=compression))), 1000)  # type: ignore[arg-type]
        w = mr.write(ds, self.at("records"), shards=1, compression="zstd-record")
        self.assertEqual(len(list(mr.tfrecord(w.pattern, record_compression="ZSTD"))), 1000)

    def test_a_prefix_may_look_like_a_pattern(self) -> None:
        w = mr.write(mr.from_tensor_slices(["a"]), self.at("x[1]*"), shards=1)
        self.assertEqual(list(mr.tfrecord(w.pattern)), [b"a"])
        self.assertTrue(os.path.exists(w.files[0]))

    def test_datasets_of_python_functions(self) -> None:
        ds = mr.range(20).map_py(lambda x: np.float32(x) / 2, parallel="thread", num_workers=2)
        w = mr.write(ds, self.at("py"), "npy", 1)
        np.testing.assert_array_equal(np.load(w.files[0]), np.arange(20, dtype=np.float32) / 2)


class Elements(Case):
    def test_dicts(self) -> None:
        rows = [{"image": bytes([i, 255]), "label": i, "weights": [0.5] * i, "name": f"n{i}"} for i in range(5)]
        w = mr.write(iter(rows), self.at("train"), shards=2)
        got = mr.tfrecord(sorted(w.files)).map(
            lambda r: mr.fn.parse_example(r, image=mr.bytes, label=mr.int64, weights=mr.float32[...], name=mr.bytes)
        )
        found = sorted(([x["label"].item(), x["image"], x["name"], x["weights"].tolist()] for x in got), key=str)
        wanted = [[r["label"], r["image"], str(r["name"]).encode(), r["weights"]] for r in rows]
        self.assertEqual(found, sorted(wanted, key=str))

    def test_arrays_and_scalars(self) -> None:
        data = np.arange(24, dtype=np.int16).reshape(4, 3, 2)
        w = mr.write(data, self.at("a"), "npy", 1)
        saved = np.load(w.files[0])
        self.assertEqual(saved.dtype, np.int16)
        np.testing.assert_array_equal(saved, data)
        w = mr.write(range(5), self.at("n"), "jsonl", 1)
        with open(w.files[0]) as f:
            self.assertEqual(f.read(), "0\n1\n2\n3\n4\n")
        w = mr.write([b"\x00", "é"], self.at("b"), shards=1)
        self.assertEqual(list(mr.tfrecord(w.pattern)), [b"\x00", "é".encode()])
        w = mr.write([(1, 2.5)], self.at("t"), "jsonl", 1)
        with open(w.files[0]) as f:
            self.assertEqual(f.read(), '{"0": 1, "1": 2.5}\n')

    def test_a_schema_says_the_types(self) -> None:
        for schema in ({"x": mr.float32, "y": mr.int64[...]}, '{"x": float32, "y": int64[]}', {"x": "float32", "y": "int64[]"}):
            with self.subTest(schema=schema):
                w = mr.write([{"x": 1, "y": []}, {"x": 2, "y": [3]}], self.at("s"), "jsonl", 1, schema)
                with open(w.files[0]) as f:
                    self.assertEqual(f.read(), '{"x": 1.0, "y": []}\n{"x": 2.0, "y": [3]}\n')
        w = mr.write([], self.at("e"), "arrow", 1, {"x": mr.float32[2]})
        self.assertEqual(list(mr.arrow(w.pattern)), [])
        fixed = mr.write([{"x": [1.0, 2.0]}], self.at("f"), "arrow", 1, {"x": mr.float32[2]})
        self.assertEqual(mr.arrow(fixed.pattern).element_spec, {"x": mr.TensorSpec((2,), mr.float32)})

    def test_a_long_stream_is_not_held(self) -> None:
        alive = most = 0

        class Item:
            def __init__(self) -> None:
                nonlocal alive, most
                alive += 1
                most = max(most, alive)

            def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray[Any, Any]:
                return np.zeros(1000, np.float32)

            def __del__(self) -> None:
                nonlocal alive
                alive -= 1

        w = mr.write(({"x": np.asarray(Item())} for _ in range(2000)), self.at("long"), shards=1)
        self.assertEqual(w.records, 2000)
        self.assertLess(most, 1500)


class Errors(Case):
    def test_bad_arguments_say_what_to_do(self) -> None:
        wrong: Any = mr.write
        for kind, message, call in (
            (ValueError, "format is one of 'tfrecord'", lambda: wrong(mr.range(2), self.at("a"), "csv")),
            (TypeError, "number of files", lambda: wrong(mr.range(2), self.at("a"), shards="8")),
            (mr.InvalidArgument, "99", lambda: wrong(mr.range(2), self.at("a"), shards=100_000)),
            (mr.InvalidArgument, "1", lambda: wrong(mr.range(2), self.at("a"), shards=0)),
            (mr.InvalidArgument, "no name after its folder.*train", lambda: wrong(mr.range(2), self.folder + "/")),
            (mr.NotFound, "no/such", lambda: wrong(mr.range(2), self.at("no/such/a"))),
            (TypeError, "schema is for Python elements", lambda: wrong(mr.range(2), self.at("a"), schema="int64")),
            (TypeError, "expected a Dataset or an iterable", lambda: wrong(3, self.at("a"))),
            (TypeError, "expected a Dataset or an iterable", lambda: wrong({"x": [1]}, self.at("a"))),
            (mr.InvalidArgument, "schema=", lambda: wrong([], self.at("a"))),
            (ValueError, "compression is one of", lambda: wrong(mr.range(2), self.at("a"), compression="LZ4")),
            (mr.InvalidArgument, "npy|NPY", lambda: wrong(mr.range(2), self.at("a"), "npy", compression="GZIP")),
            (mr.InvalidArgument, "string", lambda: wrong(["a"], self.at("a"), "npy")),
            (mr.InvalidArgument, "set|dict|element", lambda: wrong([{1: 2}], self.at("a"))),
        ):
            with self.subTest(message=message), self.assertRaisesRegex(kind, message):
                call()
        self.assertEqual(self.left(), [])

    def test_what_the_iterable_raises_is_raised(self) -> None:
        class Mine(Exception):
            pass

        def rows() -> Iterator[dict[str, int]]:
            yield {"x": 1}
            raise Mine("no more")

        with self.assertRaisesRegex(Mine, "no more"):
            mr.write(rows(), self.at("a"))
        self.assertEqual(self.left(), [])

    def test_an_element_that_does_not_fit_is_named(self) -> None:
        with self.assertRaisesRegex(mr.InvalidArgument, "'?y'?"):
            mr.write([{"x": 1, "y": 2}, {"x": 1}], self.at("a"))
        with self.assertRaises(mr.InvalidArgument) as caught:
            mr.write([[1, 2], [1, 2, 3]], self.at("b"), "npy")
        self.assertIn("1", str(caught.exception))
        with self.assertRaises(mr.InvalidArgument):
            mr.write(mr.range(5).map(lambda x: 10 // (x - 3)), self.at("c"))
        self.assertEqual(self.left(), [])

    def test_an_earlier_set_remains_after_a_failure(self) -> None:
        before = mr.write(["a"], self.at("s"), shards=2)
        with self.assertRaises(mr.InvalidArgument):
            mr.write(mr.range(5).map(lambda x: 10 // (x - 3)), self.at("s"), shards=2)
        self.assertEqual(list(mr.tfrecord(before.pattern)), [b"a"])
        with self.assertRaises(mr.AlreadyExists):
            mr.write(["b"], self.at("s"), shards=3)
        self.assertEqual(len(self.left()), 2)
        after = mr.write(["b"], self.at("s"), shards=3, overwrite=True)
        self.assertEqual(list(mr.tfrecord(after.pattern)), [b"b"])
        self.assertEqual(len(self.left()), 3)

    def test_ctrl_c_leaves_nothing(self) -> None:
        program = """
import os, signal, sys, threading, time
import millrace as mr
began = []
def press():
    time.sleep(0.3)
    began.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
try:
    threading.Thread(target=press).start()
    mr.write(mr.range(10**15), sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - began[0] < 60, os.listdir(os.path.dirname(sys.argv[1])))
"""
        done = subprocess.run(
            [sys.executable, "-c", program, self.at("a")], capture_output=True, text=True, timeout=120, check=False
        )
        self.assertEqual(done.stdout, "interrupted True []\n", done.stderr)

    def test_ctrl_c_as_the_files_are_opened_or_completed_leaves_a_whole_set_or_none(self) -> None:
        library = mr._write.lib  # type: ignore[attr-defined]

        class Library:
            def __getattr__(self, name: str) -> Any:
                found = getattr(library, name)
                if name != interrupted:
                    return found

                def call(*args: Any) -> Any:
                    code = found(*args)
                    signal.raise_signal(signal.SIGINT)
                    return code

                return call

        for interrupted in ("mr_shard_writer_open", "mr_write_iterator", "mr_shard_writer_close"):
            mr._write.lib = Library()  # type: ignore[attr-defined]
            try:
                with self.assertRaises(KeyboardInterrupt):
                    mr.write(mr.range(4), self.at("a"), "jsonl", shards=1)
            finally:
                mr._write.lib = library  # type: ignore[attr-defined]
            whole = interrupted == "mr_shard_writer_close"
            self.assertEqual(self.left(), ["a-00000-of-00001.jsonl"] if whole else [], interrupted)
        mr.write(mr.range(4), self.at("a"), "jsonl", shards=1)


if __name__ == "__main__":
    kit.main()
