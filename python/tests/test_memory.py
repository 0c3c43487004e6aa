# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""The memory of elements: arrays outlive what they came from, what is shared is read-only, and what is
written to shows nowhere else. Freed memory of malloc is overwritten."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import unittest
import weakref
from typing import Any

import numpy as np

import kit
import millrace as mr

known = kit.load("tests/known/run.py")
FILL = 0xA5  # what consumers write


def arrays(x: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays of an element, those of its datasets too."""
    if isinstance(x, np.ndarray):
        return [x]
    if isinstance(x, mr.Ragged):
        return [*arrays(x.values), *arrays(x.row_splits)]
    if isinstance(x, (tuple, list)):
        return [a for v in x for a in arrays(v)]
    if isinstance(x, dict):
        return arrays(tuple(x.values()))
    if isinstance(x, mr.Dataset):
        return arrays(list(x))
    return []


def raw(a: np.ndarray[Any, Any]) -> Any:
    return a.tolist() if a.dtype == object else a.tobytes()


def fill(a: np.ndarray[Any, Any]) -> None:
    a.reshape(-1).view(np.uint8)[:] = FILL


class Run:
    """Two epochs of a graph; `writes`: every writable array is overwritten when it has been seen."""

    def __init__(self, ds: mr.Dataset, threads: int, writes: bool) -> None:
        self.seen: list[Any] = []
        self.kept: list[tuple[np.ndarray[Any, Any], Any]] = []
        self.writable = 0
        for _ in range(2):
            with ds.iterator(threads=threads, seed=3) as it:
                for _ in range(200):
                    try:
                        x = next(it)
                    except StopIteration:
                        break
                    except mr.Error as e:
                        self.seen.append(e.code)
                        continue
                    self._see(x, writes)

    def _see(self, x: Any, writes: bool) -> None:
        found = arrays(x)
        self.seen.append([raw(a) for a in found])
        for a in found:
            if not writes:
                continue
            if a.flags.writeable and a.dtype != object:
                self.writable += 1
                fill(a)
            self.kept.append((a, raw(a)))

    def changed(self) -> list[np.ndarray[Any, Any]]:
        return [a for a, then in self.kept if raw(a) != then]


# Where memory is shared, or nearly.
SHARED = [
    "range(12).batch(4).cache()",
    "range(12).map(x => zeros([3]) + 1.0).cache().batch(2)",
    "range(12).map(x => ones([x])).cache()",
    "range(12).map(x => ones([x])).ragged_batch(3).cache()",
    "range(12).batch(4).unbatch()",
    "range(12).map(x => [x, x, x]).batch(4).unbatch().batch(3)",
    "range(12).batch(12).map(x => (x, x[2:8], x[4:]))",
    "range(12).batch(6).map(x => {\"a\": x, \"b\": reshape(x, [2, 3]), \"c\": x[0:1]})",
    "range(12).map(x => [1.0, 2.0, 3.0])",
    "range(12).map(x => (zeros([4]), [x, x]))",
    "range(6).map(x => [x, x]).repeat(3).shuffle(5, seed=1)",
    "range(6).map(x => [x, x]).shuffle(5, seed=1).cache().repeat(2)",
    "range(12).map(x => [x, x], num_parallel_calls=4).prefetch(3)",
    "range(12).map(x => [x, x]).window(3)",
    "range(12).map(x => [x, x]).window(3, shift=1).flat_map(d => d.batch(3))",
    "zip(range(12).map(x => [x, x]), range(12).map(x => [x, x]).cache())",
    "range(4).map(x => [x, x]).interleave(x => from_tensors(x).repeat(3), cycle_length=2, num_parallel_calls=2)",
    "range(12).scan([0, 0], (s, x) => (s + [x, 1], s))",
    "range(12).batch(4).map(x => x, num_parallel_calls=2).cache(\"c\")",
    "from_tensors([[1, 2], [3, 4]]).repeat(4)",
    "from_tensor_slices([[1, 2], [3, 4], [5, 6]]).repeat(2)",
    "from_tensor_slices([[1, 2], [3, 4], [5, 6]]).batch(2)",
    "range(12).map(x => split(\"a b c\")).batch(3)",
    "range(5).map(x => [x, x]).concatenate(range(5).map(x => [x, x]).cache())",
]


class Writing(unittest.TestCase):
    def check(self, make: Any, threads: int = 0) -> Run:
        clean = Run(make(), threads, False)
        written = Run(make(), threads, True)
        self.assertEqual(written.seen, clean.seen, "what was written shows in another element")
        self.assertEqual(written.changed(), [], "an array that was handed out has changed")
        return written

    def test_writing_shows_nowhere_else(self) -> None:
        before, writable = os.getcwd(), 0
        for text in SHARED:
            try:
                mr.from_text(text)
            except mr.Unimplemented:
                continue
            for threads in (0, 2):
                with self.subTest(text=text, threads=threads), tempfile.TemporaryDirectory() as folder:
                    os.chdir(folder)
                    try:
                        writable += self.check(lambda text=text: mr.from_text(text), threads).writable
                    finally:
                        os.chdir(before)
        self.assertGreater(writable, 300)

    def test_writing_shows_nowhere_else_in_the_known_answers(self) -> None:
        with open(os.path.join(kit.SOURCE, "tests/known/known_answers.jsonl")) as f:
            cases = [json.loads(line) for line in f]
        before = os.getcwd()
        for number, case in enumerate(cases):
            if case.get("args") or case.get("exit") == 2 or (kit.SANITIZED and number % 8):
                continue
            with self.subTest(case=case["id"]), tempfile.TemporaryDirectory() as folder:
                known.make_files(case, folder)
                os.chdir(folder)
                try:
                    self.check(lambda case=case: mr.from_text(case["expr"]), number % 3)
                finally:
                    os.chdir(before)

    def test_arrays_of_the_program_are_not_written_to(self) -> None:
        source = np.arange(4096.0).reshape(64, 64)
        want = source.copy()
        for make in (
            lambda: mr.from_tensor_slices(source),
            lambda: mr.from_tensors(source),
            lambda: mr.from_tensor_slices(source).batch(8),
            lambda: mr.from_tensor_slices((source, source)).map(lambda a, b: (b, a + 1)).batch(64),
            lambda: mr.range(3).map(lambda x: source),
            lambda: mr.range(3).map(lambda x: (source, x)).batch(2),
        ):
            self.check(make)
            np.testing.assert_array_equal(source, want)

    def test_shared_memory_is_read_only(self) -> None:
        source = np.arange(4096.0).reshape(64, 64)
        for ds in (
            mr.from_tensors(source),
            mr.from_tensor_slices(source),
            mr.range(2).map(lambda x: source),
            mr.from_text("range(8).batch(4).map(x => (x, x))"),
        ):
            for x in ds:
                for a in arrays(x):
                    self.assertFalse(a.flags.writeable, str(ds)[:80])
                    with self.assertRaises(ValueError):
                        a.flags.writeable = True
        ds = mr.from_text("range(8).map(x => [x, x]).cache().batch(2)")
        list(ds)
        for x in ds:
            self.assertFalse(x.flags.writeable)

    def test_what_is_not_shared_is_writable(self) -> None:
        for text in (
            "range(64).batch(4)",
            "range(64).map(x => [x, x])",
            "range(64).map(x => ones([x + 1]))",
            "range(64).map(x => [x, x]).shuffle(8, seed=1).batch(4)",
        ):
            for x in mr.from_text(text).iterator(threads=2):
                self.assertTrue(x.flags.writeable, text)

    def test_slices_of_one_batch_are_not_writable_together(self) -> None:
        held = list(mr.from_text("range(64).map(x => [x, x]).batch(16).unbatch()"))
        want: list[Any] = [[i, i] for i in range(64)]
        for i, x in enumerate(held):
            if x.flags.writeable:
                fill(x)
                want[i] = None
        for x, w in zip(held, want, strict=True):
            if w is not None:
                self.assertEqual(x.tolist(), w)


class Lasting(unittest.TestCase):
    def churn(self) -> None:
        """What reuses freed memory."""
        gc.collect()
        for _ in range(3):
            for x in mr.from_text("range(4000).map(x => [x, x, x]).batch(100).prefetch(2)"):
                if x.flags.writeable:
                    fill(x)

    def test_arrays_outlive_iterators_and_datasets(self) -> None:
        for text in SHARED + [
            'range(50).map(x => concat("string ", cast(x, "string"))).batch(7)',
            "range(50).map(x => ones([x])).ragged_batch(7)",
            "range(50).shuffle(20, seed=1).batch(7).prefetch(2)",
        ]:
            with self.subTest(text=text), tempfile.TemporaryDirectory() as folder:
                before = os.getcwd()
                os.chdir(folder)
                try:
                    ds = mr.from_text(text)
                    kept = arrays(list(ds))
                    kept += arrays(list(ds))  # of the cache
                except mr.InvalidArgument:
                    continue
                finally:
                    os.chdir(before)
                then = [raw(a) for a in kept]
                del ds
                self.churn()
                self.assertEqual([raw(a) for a in kept], then)

    def test_arrays_outlive_close_and_errors(self) -> None:
        ds = mr.from_text("range(20).map(x => [100 // (x - 15), x]).batch(5)")
        kept: list[Any] = []
        it = iter(ds)
        with self.assertRaises(mr.Error):
            while True:
                kept.append(next(it))
        then = [raw(a) for a in kept]
        it.close()
        self.churn()
        self.assertEqual([raw(a) for a in kept], then)

    def test_views_keep_the_memory(self) -> None:
        x = next(iter(mr.range(1000).batch(1000)))
        part = x[10:20]
        del x
        self.churn()
        self.assertEqual(part.tolist(), list(range(10, 20)))
        ragged = next(iter(mr.from_text("range(50).map(x => ones([x])).ragged_batch(50)")))
        row, splits = ragged[49], ragged.row_splits
        del ragged
        self.churn()
        np.testing.assert_array_equal(row, np.ones(49))
        self.assertEqual(len(splits), 51)

    def test_arrays_of_the_program_live_as_long_as_a_dataset_needs_them(self) -> None:
        def make() -> tuple[mr.Dataset, Any]:
            source = np.arange(10000).reshape(100, 100)
            return mr.from_tensor_slices(source).batch(10), weakref.ref(source)

        ds, source = make()
        self.churn()
        np.testing.assert_array_equal(np.concatenate(list(ds)), np.arange(10000).reshape(100, 100))
        x = next(iter(mr.from_tensors(np.arange(1000.0))))
        self.churn()
        np.testing.assert_array_equal(x, np.arange(1000.0))
        del ds
        gc.collect()
        self.assertIsNone(source(), "the array of a dropped dataset is kept")

    def test_structures_and_iterators_are_not_kept(self) -> None:
        class Marked(mr.Iterator):
            pass

        it = Marked(mr.range(10).batch(2))
        next(it)
        gone = weakref.ref(it)
        it.myself = it  # type: ignore[attr-defined]
        del it
        gc.collect()
        self.assertIsNone(gone())


class References(unittest.TestCase):
    def test_nothing_leaks_for_each_element(self) -> None:
        graphs = [
            "range({n}).map(x => (x, {{\"a\": [x, x], \"s\": \"text\"}}))",
            "range({n}).map(x => ones([x % 3])).ragged_batch(2)",
            "range({n}).map(x => split(\"a b c\")).batch(2)",
            "range({n}).map(x => 1 // (x % 2))",
            "range({n}).map(x => cast(x, \"bfloat16\"))",
            "range({n}).window(2)",
        ]

        def run(text: str, n: int) -> int:
            it = iter(mr.from_text(text.format(n=n)))
            while True:
                try:
                    next(it)
                except StopIteration:
                    break
                except mr.Error:
                    pass
            del it
            gc.collect()
            return sys.getallocatedblocks()

        for text in graphs:
            with self.subTest(text=text):
                run(text, 10)
                few, many = run(text, 10), run(text, 3000)
                self.assertLess(many - few, 300)

    def test_memory_does_not_grow_with_elements(self) -> None:
        n = 1_000_000 if kit.LONG else 100_000
        if kit.SANITIZED:
            n //= 10
        ds = mr.from_text(f"range({n}).map(x => (x, [x, x], \"text\")).repeat(2)")
        resident: list[int] = []
        for i, _ in enumerate(ds):
            if i in (n // 5, 2 * n - 1):
                resident.append(kit.resident())
        self.assertLess(resident[1] - resident[0], 24 << 20 if kit.SANITIZED else 6 << 20)


if __name__ == "__main__":
    kit.main(MALLOC_PERTURB_=str(FILL))
