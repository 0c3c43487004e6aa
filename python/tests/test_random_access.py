# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""ds[i], len(ds), split and global_shuffle of indexed datasets."""

from __future__ import annotations

import os
import tempfile
import threading
import unittest

import numpy as np

import kit
import millrace as mr


class Lookups(unittest.TestCase):
    def test_elements_are_those_of_a_pass(self) -> None:
        slices = mr.from_tensor_slices({"a": np.arange(7), "b": [str(i) for i in range(7)]})
        for ds in (
            mr.range(5, 30, 3),
            mr.range(40).map(lambda x: (x, x * x)).skip(3).shard(4, 1),
            mr.range(10).concatenate(mr.range(100, 103)).batch(4),
            mr.range(9).zip(slices).enumerate(),
            mr.range(50).global_shuffle(seed=3, window=8),
            mr.range(50).split([0.4, 0.6], index=1, seed=2),
        ):
            every = list(ds)
            self.assertEqual(len(ds), len(every))
            for i in (0, 1, len(every) - 1, -1, -len(every)):
                self.assertEqual(repr(ds[i]), repr(every[i]), (str(ds), i))

    def test_numbers_beyond_the_end_are_index_errors(self) -> None:
        ds = mr.range(3)
        for i in (3, -4, 1 << 40):
            with self.assertRaises(IndexError) as caught:
                ds[i]
            self.assertIsInstance(caught.exception, mr.OutOfRange)
        with self.assertRaises(IndexError):
            mr.range(0)[0]
        with self.assertRaises(TypeError):
            ds["a"]  # type: ignore[call-overload]
        self.assertEqual(ds[np.int64(2)], 2)

    def test_the_op_that_is_not_indexed_is_named(self) -> None:
        for ds, op in ((mr.range(9).shuffle(3).batch(2), "shuffle"), (mr.range(3).repeat(2), "repeat")):
            with self.assertRaisesRegex(mr.FailedPrecondition, f"{op} is not indexed"):
                ds[0]
        with self.assertRaisesRegex(mr.InvalidArgument, "filter is not indexed"):
            mr.range(9).filter(lambda x: x > 2).split()

    def test_an_error_keeps_its_place(self) -> None:
        ds = mr.range(4).map(lambda x: 6 // (x - 1))
        with self.assertRaises(mr.InvalidArgument):
            ds[1]
        self.assertEqual([ds[0], ds[2], ds[3]], [-6, 6, 3])

    def test_files_are_looked_up(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "numbers.bin")
            with open(path, "wb") as f:
                f.write(bytes(range(100)))
            ds = mr.fixed_length_record(path, 4)
            self.assertEqual((len(ds), ds[24], ds[-25]), (25, bytes(range(96, 100)), bytes(range(4))))
            self.assertEqual(sorted(ds.global_shuffle(seed=1)), list(ds))
            with self.assertRaisesRegex(mr.FailedPrecondition, "compressed"):
                mr.fixed_length_record(path, 4, compression="GZIP")[0]

    def test_threads_share_a_dataset(self) -> None:
        ds = mr.range(1000).map_py(lambda x: int(x) + 1, output=mr.int64)
        wrong: list[int] = []

        def look() -> None:
            wrong.extend(i for i in range(0, 1000, 7) if ds[i] != i + 1)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


class Items:
    def __init__(self, n: int) -> None:
        self.n, self.asked = n, []  # type: int, list[int]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> int:
        self.asked.append(i)
        return i * 10


class Sequences(unittest.TestCase):
    def test_items_by_number(self) -> None:
        items = Items(30)
        ds = mr.from_sequence(items, output=mr.int64)
        self.assertEqual((ds[4], ds[-1], len(ds), ds.map(lambda x: x + 1)[2]), (40, 290, 30, 21))
        self.assertEqual(items.asked, [4, 29, 2])

    def test_items_of_others_are_not_looked_up(self) -> None:
        items = Items(30)
        ds = mr.from_sequence(items, output=mr.int64, parallel="inline")
        self.assertEqual(list(ds.skip(28)), [280, 290])
        self.assertEqual(items.asked, [28, 29])
        items.asked.clear()
        parts = [list(ds.split([0.8, 0.2], index=i, seed=1)) for i in range(2)]
        self.assertEqual((len(parts[0]), len(parts[1])), (24, 6))
        self.assertEqual(sorted(items.asked), list(range(30)))

    def test_shuffles_with_a_window(self) -> None:
        order = list(mr.from_sequence(Items(40), output=mr.int64).global_shuffle(seed=1, window=10))
        self.assertEqual(sorted(order), [i * 10 for i in range(40)])
        for block in range(4):
            self.assertEqual(len({x // 100 for x in order[block * 10 : block * 10 + 10]}), 1)


if __name__ == "__main__":
    kit.main()
