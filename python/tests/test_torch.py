# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""PyTorch: elements as tensors, and millrace.torch.DataLoader in one process and in several."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

import kit
import millrace as mr

try:
    import torch
    import torch.utils.data as data

    import millrace.torch
    from millrace.torch import DataLoader
except ImportError as e:
    print(e)
    sys.exit(77)

MODES: Any = ("drop", "pad", "empty")


def lists(loader: Any) -> list[Any]:
    return [x.tolist() for x in loader]


def ranks(ds: mr.Dataset, world: int, **options: Any) -> list[list[Any]]:
    """The elements of each rank."""
    return [lists(DataLoader(ds, rank=r, world_size=world, **options)) for r in range(world)]


def files(folder: str, sizes: tuple[int, ...]) -> mr.Dataset:
    """Lines "file-line", in files of as many lines."""
    for i, n in enumerate(sizes):
        with open(os.path.join(folder, f"{i}.txt"), "w") as f:
            f.write("".join(f"{i}{j}\n" for j in range(n)))
    return mr.text_line(os.path.join(folder, "*.txt")).map(lambda s: mr.fn.to_number(s, "int64"))


class Tensors(unittest.TestCase):
    def elements(self, ds: mr.Dataset) -> list[Any]:
        with ds.iterator(format="torch") as it:
            return list(it)

    def test_every_type_arrives_as_itself(self) -> None:
        for t in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split():
            ds = mr.range(3).map(lambda x: mr.fn.cast(x, t)).batch(3)
            if not hasattr(torch, t):
                with self.assertRaisesRegex(mr.Unimplemented, t):
                    self.elements(ds)
                continue
            (x,) = self.elements(ds)
            self.assertEqual(x.dtype, getattr(torch, t))
            self.assertEqual(x.to(torch.float64).tolist(), [0, 1, 1 if t == "bool" else 2])
            scalar = self.elements(ds.unbatch())[1]
            self.assertEqual((scalar.shape, scalar.dtype), ((), getattr(torch, t)))

    def test_structure_and_strings(self) -> None:
        (x,) = self.elements(mr.from_text('range(2).map(x => (x, {"b": x * 2, "s": "é"})).batch(2)'))
        self.assertIsInstance(x, tuple)
        self.assertEqual(x[1]["b"].tolist(), [0, 2])
        self.assertEqual(x[1]["s"].tolist(), ["é".encode()] * 2)
        ds = mr.from_tensor_slices(["é", "b"]).batch(2)
        (s,) = ds.iterator(format="torch", strings="str")
        self.assertEqual(s.tolist(), ["é", "b"])

    def test_empty_tensors(self) -> None:
        (x,) = self.elements(mr.range(1).map(lambda x: mr.fn.zeros([0, 3])))
        self.assertEqual(x.shape, (0, 3))

    def test_memory_of_a_batch_is_not_copied(self) -> None:
        ds = mr.range(4).map(lambda x: mr.fn.cast(x, "float32")).batch(4)
        (a,) = ds
        self.assertTrue(a.flags.writeable)
        self.assertEqual(torch.from_numpy(a).data_ptr(), a.ctypes.data)
        from millrace._formats import to_torch

        self.assertEqual(to_torch(a, mr.float32.number).data_ptr(), a.ctypes.data)

    def test_modifying_a_tensor_shows_nowhere_else(self) -> None:
        memory = np.arange(6, dtype=np.float32).reshape(3, 2)
        constant = np.array([5.0, 7.0], np.float32)
        cases: dict[str, mr.Dataset] = {
            "slices of an array": mr.from_tensor_slices(memory),
            "a tensor": mr.from_tensors(memory),
            "repeated": mr.from_tensors(memory).repeat(3),
            "a constant": mr.range(3).map(lambda x: constant),
            "the same twice": mr.range(3).map(lambda x: (lambda y: (y, y))(mr.fn.ones([2]) * mr.fn.cast(x, "float32"))),
            "a cache": mr.range(3).map(lambda x: mr.fn.ones([2])).cache(),
            "a cache of batches": mr.range(4).batch(2).cache(),
            "slices of a batch": mr.from_tensor_slices(memory).batch(3).unbatch(),
            "parts of a batch": mr.range(6).batch(6).map(lambda x: (x, x[:3], x[3:])),
            "windows": mr.range(5).window(3, shift=1).flat_map(lambda w: w.batch(3)),
        }
        for name, ds in cases.items():
            with self.subTest(name):
                # Of a copy: the first pass, which fills caches, is one whose tensors are modified too.
                before = [copy.deepcopy(x) for x in pickle.loads(pickle.dumps(ds))]
                for _ in range(2):
                    it = ds.iterator(format="torch")
                    for want, got in zip(before, it):
                        parts = got if isinstance(got, tuple) else (got,)
                        wanted = want if isinstance(want, tuple) else (want,)
                        for w, g in zip(wanted, parts):
                            np.testing.assert_array_equal(w, g.numpy())
                            g.fill_(99)
                self.assertEqual(memory.tolist(), [[0, 1], [2, 3], [4, 5]])
                self.assertEqual(constant.tolist(), [5, 7])

    def test_tensors_outlive_everything(self) -> None:
        def kept() -> list[Any]:
            return self.elements(mr.range(1000).batch(10))

        x = kept()
        self.elements(mr.range(5000).batch(10))
        self.assertEqual(torch.cat(x).tolist(), list(range(1000)))


class RaggedTensors(unittest.TestCase):
    def ragged(self) -> Any:
        ds = mr.range(4).map(lambda n: mr.fn.ones([n]) * mr.fn.cast(n, "float32")).ragged_batch(4)
        (x,) = ds.iterator(format="torch")
        return x

    def test_values_are_a_tensor(self) -> None:
        x = self.ragged()
        self.assertIsInstance(x, mr.Ragged)
        self.assertEqual(x.values.tolist(), [1, 2, 2, 3, 3, 3])
        self.assertEqual(x.to_list(), [[], [1], [2, 2], [3, 3, 3]])
        x.values.fill_(0)
        self.assertEqual(self.ragged().values.tolist(), [1, 2, 2, 3, 3, 3])

    @unittest.skipUnless(hasattr(torch, "jagged"), "this PyTorch has no jagged tensors")
    def test_to_torch_is_nested_and_jagged(self) -> None:
        x = self.ragged()
        nested = x.to_torch()
        self.assertTrue(nested.is_nested)
        self.assertEqual(nested.layout, torch.jagged)
        self.assertEqual([row.tolist() for row in nested.unbind()], [[], [1], [2, 2], [3, 3, 3]])
        nested.values().fill_(0)
        self.assertEqual(x.values.tolist(), [1, 2, 2, 3, 3, 3])
        (y,) = mr.range(3).map(lambda n: mr.fn.ones([n, 2])).ragged_batch(3)
        self.assertEqual([tuple(row.shape) for row in y.to_torch().unbind()], [(0, 2), (1, 2), (2, 2)])


class Loader(unittest.TestCase):
    def test_one_process_reads_everything(self) -> None:
        ds = mr.range(10).batch(4)
        loader = DataLoader(ds)
        self.assertIsInstance(loader, data.IterableDataset)
        self.assertEqual(lists(loader), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]])
        self.assertEqual(len(loader), 3)
        self.assertEqual((loader.rank, loader.world_size), (0, 1))
        with self.assertRaises(TypeError):
            len(DataLoader(ds.filter(lambda x: x[0] > 0)))
        with self.assertRaises(TypeError):
            len(DataLoader(ds.repeat()))

    def test_each_pass_is_the_next_epoch(self) -> None:
        ds = mr.range(20).shuffle(20, seed=3).batch(20)
        loader = DataLoader(ds)
        a, b = lists(loader), lists(loader)
        self.assertNotEqual(a, b)
        again = DataLoader(ds)
        again.set_epoch(1)
        self.assertEqual(lists(again), b)
        again.set_epoch(0)
        self.assertEqual(lists(again), a)
        self.assertEqual(lists(again), b)
        it = iter(loader)
        next(it)
        list(iter(ds))  # epochs of the dataset itself are its own
        loader.set_epoch(0)
        self.assertEqual(lists(loader), a)

    def test_collate_makes_what_the_loop_gets(self) -> None:
        ds = mr.range(4).map(lambda x: {"a": x, "b": x * 2}).batch(2)
        loader = DataLoader(ds, collate=lambda e: [e["a"] + e["b"]])
        self.assertEqual([x.tolist() for (x,) in loader], [[0, 3], [6, 9]])

    def test_rank_of_the_environment(self) -> None:
        os.environ.update(RANK="1", WORLD_SIZE="2")
        try:
            loader = DataLoader(mr.range(4).batch(1))
            self.assertEqual(lists(loader), [[1], [3]])
            self.assertEqual(lists(DataLoader(mr.range(4).batch(1), rank=0, world_size=1)), [[0], [1], [2], [3]])
            os.environ["RANK"] = "2"
            with self.assertRaisesRegex(mr.InvalidArgument, "RANK and WORLD_SIZE: rank 2 is not one of 0 to 1"):
                lists(DataLoader(mr.range(4)))
            os.environ["RANK"] = "x"
            with self.assertRaisesRegex(mr.InvalidArgument, "numbers, not 'x'"):
                lists(DataLoader(mr.range(4)))
        finally:
            del os.environ["RANK"], os.environ["WORLD_SIZE"]

    def test_bad_arguments(self) -> None:
        ds = mr.range(4).batch(2)
        bad: list[tuple[type[Exception], str, dict[str, Any]]] = [
            (mr.InvalidArgument, "even_steps is 'drop', 'pad' or 'empty', not 'no'", {"even_steps": "no"}),
            (mr.InvalidArgument, "unknown auto-shard policy 'no'", {"shard": "no"}),
            (mr.InvalidArgument, "rank and world_size go together", {"rank": 0}),
            (mr.InvalidArgument, "rank 2 is not one of 0 to 1", {"rank": 2, "world_size": 2}),
            (mr.InvalidArgument, "prefetch_to_device is a number", {"prefetch_to_device": -1}),
            (mr.InvalidArgument, "at least 1, not 0", {"elastic": 0}),
            (TypeError, "elastic is a number of streams, not '8'", {"elastic": "8"}),
            (TypeError, "collate is a function", {"collate": 1}),
        ]
        for error, message, options in bad:
            with self.assertRaisesRegex(error, message):
                DataLoader(ds, **options)
        for name, hint in (("batch_size", r"ds.batch\(n\)"), ("shuffle", "before it is batched")):
            with self.assertRaisesRegex(TypeError, f"there is no argument '{name}'; .*{hint}"):
                DataLoader(ds, **{name: 1})
        with self.assertRaisesRegex(TypeError, "expected a millrace.Dataset, not list"):
            DataLoader([1])  # type: ignore[arg-type]

    def test_errors_are_those_of_elements(self) -> None:
        for world in (1, 2):
            loader = DataLoader(mr.range(8).map(lambda x: 12 // (x - 2)), rank=0, world_size=world, shard="data")
            it, got, errors = iter(loader), [], 0
            while True:
                try:
                    got.append(next(it).tolist())
                except mr.InvalidArgument:
                    errors += 1
                except StopIteration:
                    break
            self.assertEqual(errors, 1)
            # Of two ranks, both lose the round with the error.
            self.assertEqual(got, [-6, -12, 12, 6, 4, 3, 2] if world == 1 else [-6, 6, 3])

    def test_cpu_device_and_pinned_memory_without_a_gpu(self) -> None:
        ds = mr.range(4).batch(2)
        self.assertEqual(lists(DataLoader(ds, device="cpu")), [[0, 1], [2, 3]])
        if not torch.cuda.is_available():
            with self.assertLogs("millrace", "WARNING") as log:
                self.assertEqual(lists(DataLoader(ds, pin_memory=True)), [[0, 1], [2, 3]])
            self.assertIn("there is no GPU", log.output[0])

    def test_dropped_loaders_leave_no_threads(self) -> None:
        ds = mr.range(10_000).map(lambda x: x + 1, num_parallel_calls=2).batch(2).prefetch(4)
        next(iter(DataLoader(ds)))
        before = kit.threads()
        for i in range(50):
            it = iter(DataLoader(ds))
            for _ in range(i % 5):
                next(it)
            del it
        self.assertLessEqual(kit.wait_for_threads(before), before)


class Shares(unittest.TestCase):
    def test_even_steps_of_elements(self) -> None:
        want = {
            "drop": [[[0, 1], [4, 5]], [[2, 3], [6, 7]]],
            "pad": [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [2, 3]]],
            "empty": [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], []]],
        }
        known = mr.range(10).batch(2)
        for mode in MODES:
            for ds in (known, known.filter(lambda x: x[0] >= 0), known.prefetch(2)):
                self.assertEqual(ranks(ds, 2, even_steps=mode), want[mode])
            self.assertEqual(len(DataLoader(known, rank=1, world_size=2, even_steps=mode)), len(want[mode][0]))

    def test_fewer_elements_than_ranks(self) -> None:
        for ds in (mr.range(2).batch(1), mr.range(2).batch(1).filter(lambda x: x[0] >= 0)):
            self.assertEqual(ranks(ds, 3, even_steps="drop"), [[], [], []])
            self.assertEqual(ranks(ds, 3, even_steps="empty"), [[[0]], [[1]], [[]]])
            for r in range(3):
                with self.assertRaisesRegex(mr.FailedPrecondition, "rank 2 has no element to repeat"):
                    lists(DataLoader(ds, rank=r, world_size=3, even_steps="pad"))
        for mode in MODES:
            self.assertEqual(ranks(mr.range(0).batch(1), 2, even_steps=mode), [[], []])

    def test_even_steps_of_files(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ds = files(folder, (5, 2, 3)).batch(2)
            a, b = [[0, 1], [2, 3], [4, 20], [21, 22]], [[10, 11]]
            self.assertEqual(ranks(ds, 2), [a[:1], b])
            self.assertEqual(ranks(ds, 2, even_steps="empty"), [a, b + [[]] * 3])
            self.assertEqual(ranks(ds, 2, even_steps="pad"), [a, b * 4])
            with self.assertRaisesRegex(mr.InvalidArgument, "found 3 elements"):
                ranks(ds, 4)
            everything = sorted(x for rank in ranks(ds, 4, shard="data", even_steps="empty") for b in rank for x in b)
            self.assertEqual(everything, [0, 1, 2, 3, 4, 10, 11, 20, 21, 22])
            stated = ranks(ds.with_options(auto_shard_policy="DATA"), 2, even_steps="empty")
            self.assertEqual(stated, ranks(ds, 2, shard="data", even_steps="empty"))

    def test_a_rank_may_wrap_around_more_than_once(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ds = files(folder, (7, 2)).batch(1)
            self.assertEqual(ranks(ds, 2, even_steps="pad")[1], [[10], [11], [10], [11], [10], [11], [10]])

    def test_off_gives_everything_to_everyone(self) -> None:
        ds = mr.range(3).batch(1)
        for mode in MODES:
            self.assertEqual(ranks(ds, 2, shard="off", even_steps=mode), [[[0], [1], [2]]] * 2)

    def test_hint_and_infinite_data(self) -> None:
        ds = mr.range(6).shard(-1, 0).batch(2)
        self.assertEqual(ranks(ds, 2, shard="hint", even_steps="pad"), [[[0, 2], [4]], [[1, 3], [5]]])
        loader = DataLoader(mr.range(3).batch(1).repeat(), rank=1, world_size=2)
        it = iter(loader)
        self.assertEqual([next(it).tolist() for _ in range(4)], [[1], [0], [2], [1]])
        with self.assertRaises(TypeError):
            len(loader)

    def test_ranks_shuffle_alike_without_a_seed(self) -> None:
        ds = mr.range(100).shuffle(100).batch(10)
        for _ in range(2):
            shares = ranks(ds, 2)
            self.assertEqual(sorted(x for rank in shares for b in rank for x in b), list(range(100)))

    def test_batches_without_rows(self) -> None:
        ds = mr.from_text(
            'range(3).map(x => {"f": ones([2, 3]), "h": cast(x, "bfloat16"), "s": "t", "n": x}).batch(1, drop_remainder=true)'
        )
        last = list(DataLoader(ds, rank=1, world_size=2, even_steps="empty"))[-1]
        self.assertEqual((last["f"].shape, last["f"].dtype), ((0, 2, 3), torch.float32))
        self.assertEqual((last["h"].shape, last["h"].dtype), ((0,), torch.bfloat16))
        self.assertEqual(last["s"].shape, (0,))
        ragged = mr.range(3).map(lambda n: mr.fn.ones([n])).ragged_batch(1)
        self.assertEqual(list(DataLoader(ragged, rank=1, world_size=2, even_steps="empty"))[-1].to_list(), [])
        with self.assertRaisesRegex(mr.FailedPrecondition, "batch the dataset first"):
            list(DataLoader(mr.range(3), rank=1, world_size=2, even_steps="empty"))


class Positions(unittest.TestCase):
    def datasets(self, folder: str) -> list[mr.Dataset]:
        lines = files(folder, (5, 2, 6))
        return [
            mr.range(23).shuffle(10).batch(2),
            mr.range(22).shuffle(10, seed=1).filter(lambda x: x % 5 != 0).batch(2).prefetch(2),
            lines.shuffle(4).batch(2),
            lines.batch(2),
        ]

    def test_resumed_anywhere_in_any_mode(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for ds in self.datasets(folder):
                for world in (1, 2, 3):
                    for mode in MODES:
                        with self.subTest(ds=str(ds), world=world, mode=mode):
                            self.check(ds, world, mode)

    def check(self, ds: mr.Dataset, world: int, mode: Any) -> None:
        def make(rank: int) -> Any:
            return DataLoader(ds, rank=rank, world_size=world, even_steps=mode)

        values: list[list[Any]] = []
        states: list[list[str]] = []
        following: list[list[Any]] = []
        for r in range(world):
            loader = make(r)
            values.append([])
            states.append([])
            for x in loader:
                values[r].append(x.tolist())
                states[r].append(json.dumps(loader.state_dict()))
            following.append(lists(loader))
        self.assertEqual(len({len(v) for v in values}), 1)
        for r in range(world):
            for of in range(world):  # frameworks save the state of rank 0 alone
                for i, state in enumerate(states[of]):
                    loader = make(r)
                    loader.load_state_dict(json.loads(state))
                    self.assertEqual(loader.state_dict(), json.loads(state))
                    if world == 1 and json.loads(state)["done"]:
                        continue  # the seed of this ds may be drawn again
                    if not json.loads(state)["done"]:
                        self.assertEqual(lists(loader), values[r][i + 1 :], (r, of, i))
                    if world > 1:
                        self.assertEqual(lists(loader), following[r], (r, of, i))

    def test_a_finished_epoch_is_followed_by_the_next(self) -> None:
        ds = mr.range(6).shuffle(6, seed=1).batch(3)
        loader = DataLoader(ds)
        lists(loader)
        state = loader.state_dict()
        second = lists(loader)
        again = DataLoader(ds)
        again.load_state_dict(state)
        self.assertEqual(lists(again), second)
        again.load_state_dict(state)
        again.set_epoch(0)  # the epoch that was saved: it has nothing left
        self.assertEqual(lists(again), [])
        self.assertEqual(lists(again), second)
        again.load_state_dict(state)
        again.set_epoch(1)
        self.assertEqual(lists(again), second)

    def test_set_epoch_keeps_a_position_in_that_epoch(self) -> None:
        ds = mr.range(8).shuffle(8, seed=1).batch(2)
        loader = DataLoader(ds)
        lists(loader)
        it = iter(loader)
        next(it)
        state, rest = loader.state_dict(), lists(it)
        again = DataLoader(ds)
        again.load_state_dict(state)
        again.set_epoch(1)
        self.assertEqual(lists(again), rest)
        again.load_state_dict(state)
        again.set_epoch(2)
        self.assertEqual(len(lists(again)), 4)

    def test_the_position_outlives_the_iterator(self) -> None:
        loader = DataLoader(mr.range(6).batch(2))
        for _ in loader:
            break
        loader.close()
        again = DataLoader(mr.range(6).batch(2))
        again.load_state_dict(loader.state_dict())
        self.assertEqual(lists(again), [[2, 3], [4, 5]])

    def test_other_jobs_and_rubbish_are_refused(self) -> None:
        loader = DataLoader(mr.range(6).batch(1), rank=0, world_size=2)
        it = iter(loader)
        next(it)
        with self.assertRaisesRegex(mr.FailedPrecondition, "of a job with 2 ranks, and this one has 1 rank"):
            DataLoader(mr.range(6).batch(1)).load_state_dict(loader.state_dict())
        with self.assertRaisesRegex(mr.InvalidArgument, "not what state_dict"):
            loader.load_state_dict({"a": 1})
        with self.assertRaisesRegex(mr.InvalidArgument, "version 9"):
            loader.load_state_dict({**loader.state_dict(), "version": 9})
        for epoch in (-1, 10**20, "1", None):
            with self.assertRaisesRegex(mr.InvalidArgument, "the position is damaged"):
                loader.load_state_dict({**loader.state_dict(), "epoch": epoch})
        with self.assertRaises(mr.InvalidArgument):
            loader.set_epoch(10**20)

    def test_pickled_loaders(self) -> None:
        loader = pickle.loads(pickle.dumps(DataLoader(mr.range(4).batch(2), rank=1, world_size=2)))
        self.assertEqual(lists(loader), [[2, 3]])


class Workers(unittest.TestCase):
    """Inside a DataLoader of torch each worker reads its share once."""

    def shares(self, loader: Any, workers: int, start: str) -> list[Any]:
        wrapped: Any = data.DataLoader(loader, batch_size=None, num_workers=workers, multiprocessing_context=start)
        return lists(wrapped)

    def test_elements_are_dealt_to_workers(self) -> None:
        ds = mr.range(22).batch(2)
        for start in ("fork", "spawn"):
            for workers in (1, 2, 3) if start == "fork" else (2,):
                self.assertEqual(self.shares(DataLoader(ds), workers, start), lists(ds.iterator()))

    def test_files_are_dealt_to_workers(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ds = files(folder, (5, 2, 3)).batch(1)
            for workers in (2, 3, 5):  # of the last, more than files
                got = self.shares(DataLoader(ds), workers, "fork")
                self.assertEqual(sorted(got), sorted(lists(ds.iterator())))

    def test_shuffles_without_a_seed_lose_nothing(self) -> None:
        loader = DataLoader(mr.range(40).shuffle(40).batch(2))
        a, b = self.shares(loader, 2, "fork"), self.shares(loader, 2, "fork")
        self.assertEqual(sorted(sum(a, [])), list(range(40)))
        self.assertNotEqual(a, b)

    def test_workers_of_several_ranks(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for ds in (mr.range(14).batch(2), files(folder, (5, 2, 3)).batch(1)):
                for mode in MODES:
                    for r in range(2):
                        loader = DataLoader(ds, rank=r, world_size=2, even_steps=mode)
                        for workers in (2, 3):
                            self.assertEqual(self.shares(loader, workers, "fork"), lists(loader), (str(ds), mode, r))

    def test_workers_that_stay_go_on_to_the_next_epoch(self) -> None:
        loader = DataLoader(mr.range(20).shuffle(20, seed=1).batch(2))
        first, second = lists(loader), lists(loader)
        fresh = DataLoader(loader.ds)
        wrapped: Any = data.DataLoader(
            fresh, batch_size=None, num_workers=2, persistent_workers=True, multiprocessing_context="fork"
        )
        self.assertEqual([lists(wrapped), lists(wrapped)], [first, second])

    def test_after_a_fork_with_an_open_iterator(self) -> None:
        loader = DataLoader(mr.range(2000).map(lambda x: x, num_parallel_calls=2).batch(10).prefetch(4))
        it = iter(loader)
        next(it)
        self.assertEqual(len(self.shares(loader, 2, "fork")), 200)
        self.assertEqual(len(lists(it)), 199)

    def test_stateful_loader_of_torchdata(self) -> None:
        try:
            from torchdata.stateful_dataloader import StatefulDataLoader
        except ImportError:
            self.skipTest("torchdata is not installed")
        ds = mr.range(40).shuffle(40, seed=1).batch(2)
        for workers in (0, 2):

            def make() -> Any:
                return StatefulDataLoader(
                    DataLoader(ds),
                    batch_size=None,
                    num_workers=workers,
                    multiprocessing_context="fork" if workers else None,
                )

            loader = make()
            it = iter(loader)
            for _ in range(7):
                next(it)
            state, rest = loader.state_dict(), lists(it)
            again = make()
            again.load_state_dict(state)
            self.assertEqual(lists(again), rest)


class Elastic(unittest.TestCase):
    """The rows of each step are those of one rank, whatever their number."""

    def step(self, its: list[Any]) -> list[int] | None:
        found = [next(it, None) for it in its]
        self.assertEqual(len({x is None for x in found}), 1)
        return None if found[0] is None else [int(x) for rows in found for x in rows]

    def test_it_continues_with_other_ranks(self) -> None:
        ds = mr.range(50).shuffle(20).batch(8)
        alone = DataLoader(ds, elastic=12)
        want = [lists(alone), lists(alone)]
        fresh = DataLoader(ds, elastic=12)
        fresh.set_epoch(1)
        self.assertEqual(lists(fresh), want[1])
        self.assertEqual([sorted(sum(epoch, [])) for epoch in want], [list(range(50))] * 2)
        self.assertNotEqual(*want)
        state: Any = None
        got: list[list[int]] = []
        for world in (4, 2, 1, 5, 3, 12, 1, 2, 7):
            loaders = [DataLoader(ds, elastic=12, rank=r, world_size=world) for r in range(world)]
            if state is not None:
                for loader in loaders:
                    loader.load_state_dict(state)
            its = [iter(loader) for loader in loaders]
            for _ in range(2):
                rows = self.step(its)
                if rows is None:  # the next epoch
                    its = [iter(loader) for loader in loaders]
                    rows = self.step(its)
                assert rows is not None
                got.append(rows)
            state = json.loads(json.dumps(millrace.torch.join_states([x.state_dict() for x in loaders])))
            for loader in loaders:
                loader.close()
        n = len(want[0]) + len(want[1])
        self.assertEqual(got[:n], want[0] + want[1])
        self.assertGreaterEqual(len(got), n)

    def test_ranks_without_rows_get_none(self) -> None:
        ds = mr.range(5).map(lambda x: (x, mr.fn.zeros([2]))).batch(2)
        loaders = [DataLoader(ds, elastic=4, rank=r, world_size=4) for r in range(4)]
        steps = [list(loader) for loader in loaders]
        self.assertEqual({len(s) for s in steps}, {len(steps[0])})
        self.assertEqual(sorted(int(x) for s in steps for batch, _ in s for x in batch), list(range(5)))
        self.assertIn((0, 2), [tuple(zeros.shape) for s in steps for _, zeros in s])

    def test_a_step_with_an_error_is_behind_its_position(self) -> None:
        ds = mr.range(12).map(lambda x: 10 // x).batch(4)
        loader = DataLoader(ds, elastic=4)
        it = iter(loader)
        with self.assertRaisesRegex(mr.InvalidArgument, "step 0, stream 0"):
            next(it)
        again = DataLoader(ds, elastic=4)
        again.load_state_dict(loader.state_dict())
        self.assertEqual(lists(again), [x.tolist() for x in it])

    def test_lengths(self) -> None:
        ds = mr.range(48).batch(8)
        loader = DataLoader(ds, elastic=4, rank=1, world_size=2)
        try:
            n = len(loader)
        except TypeError as e:
            self.assertIn("not known", str(e))
        else:
            self.assertEqual(n, len(lists(loader)))

    def test_the_dataset_can_say_it(self) -> None:
        ds = mr.range(50).batch(8).with_options(elastic_streams=4)
        self.assertEqual(DataLoader(ds).elastic, 4)
        self.assertEqual(lists(DataLoader(ds)), lists(DataLoader(mr.range(50).batch(8), elastic=4)))
        self.assertIsNone(DataLoader(mr.from_tensors("elastic_streams=4").batch(1)).elastic)

    def test_what_does_not_fit_is_refused(self) -> None:
        ds = mr.range(50).batch(8)
        loaders = [DataLoader(ds, elastic=4, rank=r, world_size=2) for r in range(2)]
        its = [iter(loader) for loader in loaders]
        next(its[0])
        join = millrace.torch.join_states
        one, other = (loader.state_dict() for loader in loaders)
        plain = DataLoader(ds)
        next(iter(plain))
        for error, message, call in (
            (mr.InvalidArgument, "different steps", lambda: join([one, other])),
            (mr.InvalidArgument, "no stream", lambda: join([one])),
            (mr.InvalidArgument, "no states", lambda: join([])),
            (mr.InvalidArgument, "elastic=64", lambda: join([plain.state_dict()])),
            (mr.FailedPrecondition, "not elastic, and this is an elastic job of 4 streams", lambda: loaders[0].load_state_dict(plain.state_dict())),
            (mr.FailedPrecondition, "of 4 streams, and this is a job that is not", lambda: plain.load_state_dict(one)),
            (mr.FailedPrecondition, "of 4 streams, and this is an elastic job of 8", lambda: DataLoader(ds, elastic=8).load_state_dict(one)),
            (mr.FailedPrecondition, "torch.distributed", loaders[0].job_state_dict),
            (mr.InvalidArgument, "3 replicas cannot share 2", lambda: lists(DataLoader(ds, elastic=2, rank=0, world_size=3))),
        ):
            with self.subTest(message=message), self.assertRaisesRegex(error, message):
                call()
        # Another job needs all parts of the position.
        alone = DataLoader(ds, elastic=4)
        alone.load_state_dict(one)
        with self.assertRaisesRegex(mr.Error, "join|part"):
            next(iter(alone))
        with self.assertRaisesRegex(mr.FailedPrecondition, "elastic=64"):
            DataLoader(ds, rank=0, world_size=2).load_state_dict(plain.state_dict())
        wrapped: Any = data.DataLoader(DataLoader(ds, elastic=4), batch_size=None, num_workers=2)
        with self.assertRaisesRegex(Exception, "num_workers=0"):
            list(wrapped)


def in_group(rank: int, port: int, job: Callable[[int], Any], results: Any) -> None:
    # Debian's PyTorch has no libuv.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), USE_LIBUV="0")
    torch.set_num_threads(1)
    try:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
        out = job(rank)
    except Exception as e:
        out = repr(e)
    results.put((rank, out))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def both(job: Callable[[int], Any]) -> list[Any]:
    """What the job returns on two ranks, of a process group over gloo."""
    port = kit.free_port()
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=in_group, args=(r, port, job, results)) for r in range(2)]
    for p in processes:
        p.start()
    found = dict(results.get(timeout=300) for _ in processes)
    for p in processes:
        p.join(60)
    return [found[0], found[1]]


def unequal_files(rank: int) -> Any:
    """In each mode the batches of two epochs, and what a resumed loader reads."""
    out: list[Any] = []
    for mode in MODES:
        ds = mr.text_line(os.path.join(os.environ["MR_TEST_FOLDER"], "*.txt")).batch(2)
        loader = DataLoader(ds, even_steps=mode)
        epochs = [[x.tolist() for x in loader] for _ in range(2)]
        it = iter(loader)
        next(it)
        again = DataLoader(ds, even_steps=mode)
        again.load_state_dict(loader.state_dict())
        out.append([epochs, [x.tolist() for x in again]])
    return out


def one_fails(rank: int) -> Any:
    """One rank has an error in its third batch."""
    ds = mr.text_line(os.path.join(os.environ["MR_TEST_FOLDER"], "*.txt")).map(
        lambda s: mr.fn.to_number(s, "int64")
    )
    loader = DataLoader(ds)
    out: list[Any] = []
    it = iter(loader)
    while True:
        try:
            out.append(next(it).tolist())
        except mr.Error as e:
            out.append(e.code)
        except StopIteration:
            return out


def both_see(rank: int) -> Any:
    loader = DataLoader(mr.range(7).batch(1))
    return loader.rank, loader.world_size, lists(loader), len(loader)


def elastic(rank: int) -> Any:
    """The state of the job, and the rows of each step."""
    loader = DataLoader(mr.range(50).shuffle(20).batch(8), elastic=4)
    it = iter(loader)
    rows = [next(it).tolist() for _ in range(3)]
    return rows, loader.job_state_dict()


def all_jobs(rank: int) -> Any:
    """One pair of processes serves all tests, since importing PyTorch takes long."""
    out: dict[str, Any] = {}
    for job, folder in ((both_see, ""), (unequal_files, "unequal"), (one_fails, "rubbish"), (elastic, "")):
        os.environ["MR_TEST_FOLDER"] = os.path.join(os.environ["MR_TEST_ROOT"], folder)
        out[job.__name__] = job(rank)
    return out


class TwoProcesses(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.root = tempfile.TemporaryDirectory()
        for name, sizes in (("unequal", (5, 2, 3)), ("rubbish", (4, 4))):
            os.mkdir(os.path.join(cls.root.name, name))
            files(os.path.join(cls.root.name, name), sizes)
        with open(os.path.join(cls.root.name, "rubbish", "1.txt"), "w") as f:
            f.write("10\n11\nrubbish\n13\n")
        os.environ["MR_TEST_ROOT"] = cls.root.name
        cls.results = both(all_jobs)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.root.cleanup()

    root: tempfile.TemporaryDirectory[str]
    results: list[Any]

    def of(self, name: str) -> list[Any]:
        for result in self.results:
            self.assertIsInstance(result, dict, result)
        return [result[name] for result in self.results]

    def test_the_states_of_an_elastic_job_are_gathered(self) -> None:
        (first, state), (second, other) = self.of("elastic")
        self.assertEqual(state, other)
        ds = mr.range(50).shuffle(20).batch(8)
        want = lists(DataLoader(ds, elastic=4))
        self.assertEqual([a + b for a, b in zip(first, second)], want[:3])
        alone = DataLoader(ds, elastic=4)
        alone.load_state_dict(state)
        self.assertEqual(lists(alone), want[3:])

    def test_the_ranks_are_those_of_the_group(self) -> None:
        self.assertEqual(self.of("both_see"), [(0, 2, [[0], [2], [4]], 3), (1, 2, [[1], [3], [5]], 3)])

    def test_ranks_with_files_agree_on_the_steps(self) -> None:
        text = mr.text_line(os.path.join(self.root.name, "unequal", "*.txt")).batch(2)
        for m, mode in enumerate(MODES):
            want = ranks(text, 2, even_steps=mode)
            for r, result in enumerate(self.of("unequal_files")):
                epochs, resumed = result[m]
                self.assertEqual(epochs, [want[r]] * 2, mode)
                self.assertEqual(resumed, want[r][1:], mode)

    def test_an_error_of_one_rank_ends_the_step_of_all(self) -> None:
        zero, one = self.of("one_fails")
        self.assertEqual(one, [10, 11, "INVALID_ARGUMENT", 13])
        self.assertEqual(zero, [0, 1, "ABORTED", 3])


class Example(unittest.TestCase):
    """examples/python/torch_images.py"""

    def run_it(self, folder: str, checkpoint: str, *more: str) -> list[str]:
        script = os.path.join(kit.SOURCE, "examples", "python", "torch_images.py")
        words = [sys.executable, script, "--folder", os.path.join(folder, "shapes"), "--checkpoint", checkpoint, *more]
        out = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(out.returncode, 0, out.stderr)
        return out.stdout.splitlines()

    def test_it_goes_on_where_it_was_stopped(self) -> None:
        example = kit.load(os.path.join("examples", "python", "torch_images.py"))
        with tempfile.TemporaryDirectory() as folder:
            try:
                example.make_images(pathlib.Path(folder) / "shapes")
            except mr.NotFound as e:  # libturbojpeg writes the files
                self.skipTest(str(e))
            whole = self.run_it(folder, os.path.join(folder, "a.pt"))
            self.assertEqual(len(whole), 12)
            first = self.run_it(folder, os.path.join(folder, "b.pt"), "--stop-after", "5")
            self.assertEqual(first, whole[:5])
            second = self.run_it(folder, os.path.join(folder, "b.pt"))
            self.assertEqual(second, ["continues after step 5", *whole[5:]])


@unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
class OnGpu(unittest.TestCase):
    def test_batches_arrive_on_the_device(self) -> None:
        ds = mr.range(1000).map(lambda x: {"x": x, "y": mr.fn.cast(x, "float32"), "s": "t"}).batch(10)
        for ahead in (0, 2):
            for pin in (None, False):
                loader = DataLoader(ds, device="cuda", prefetch_to_device=ahead, pin_memory=pin)
                got = list(loader)
                self.assertEqual(torch.cat([e["x"] for e in got]).tolist(), list(range(1000)))
                self.assertTrue(all(e["y"].is_cuda for e in got))

    def test_positions_do_not_count_what_is_on_its_way(self) -> None:
        ds = mr.range(20).shuffle(20, seed=1).batch(2)
        loader = DataLoader(ds, device="cuda")
        values, states = [], []
        for x in loader:
            values.append(x.tolist())
            states.append(loader.state_dict())
        for i, state in enumerate(states[:-1]):
            again = DataLoader(ds, device="cuda")
            again.load_state_dict(state)
            self.assertEqual(lists(again), values[i + 1 :])

    def test_pinned_memory(self) -> None:
        for x in DataLoader(mr.range(4).batch(2), pin_memory=True):
            self.assertTrue(x.is_pinned())


if __name__ == "__main__":
    kit.main()
