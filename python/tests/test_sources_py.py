# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""from_generator and from_sequence: values, positions, errors."""

from __future__ import annotations

import gc
import importlib.util
import json
import pickle
import threading
import time
import unittest
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

import kit
import millrace as mr

PROCESS = ["process"] if importlib.util.find_spec("cloudpickle") else []


class Counter:
    """An iterator with a state."""

    def __init__(self, n: int) -> None:
        self.at, self.n = 0, n
        self.rng = np.random.Generator(np.random.PCG64(1))

    def __iter__(self) -> Counter:
        return self

    def __next__(self) -> Any:
        if self.at == self.n:
            raise StopIteration
        self.at += 1
        if self.at % 10 == 7:
            raise OSError(f"lost {self.at}")
        return self.at, self.rng.integers(100), [f"{self.at}"]

    def state_dict(self) -> dict[str, Any]:
        return {
            "at": self.at, "rng": self.rng.bit_generator.state, "more": (b"\xff", np.arange(3), np.int8(4), {1: None})
        }  # fmt: skip

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]
        self.rng.bit_generator.state = state["rng"]
        assert state["more"][0] == b"\xff" and state["more"][1].tolist() == [0, 1, 2] and state["more"][3] == {1: None}
        state["more"][1][0] = 7  # it is the generator's own


def events(it: Any) -> list[Any]:
    out: list[Any] = []
    while True:
        try:
            x = next(it)
            out.append((int(x[0]), int(x[1]), x[2].tolist()))
        except StopIteration:
            return out
        except mr.InvalidArgument as e:
            out.append((e.element, str(e).split("\n")[0].rsplit(": ", 1)[-1]))


class Generators(unittest.TestCase):
    def test_values_types_and_epochs(self) -> None:
        made: list[int] = []

        def make() -> Any:
            made.append(1)
            for i in range(5):
                yield {"x": np.full((2,), i, np.int16), "s": f"{i}", "f": i / 2}

        ds = mr.from_generator(make)
        self.assertEqual(
            ds.element_spec,
            {"x": mr.TensorSpec((2,), mr.int16), "s": mr.TensorSpec((), mr.bytes), "f": mr.TensorSpec((), mr.float32)},
        )
        self.assertEqual(ds.cardinality(), mr.UNKNOWN)
        for _ in range(2):
            self.assertEqual([(x["x"].tolist(), x["s"], x["f"]) for x in ds],
                             [([i, i], str(i).encode(), i / 2) for i in range(5)])  # fmt: skip
        self.assertEqual(len(made), 3)
        (batch,) = ds.map(lambda x: x["x"]).batch(5)
        self.assertEqual(batch.shape, (5, 2))

    def test_output(self) -> None:
        ds = mr.from_generator(lambda: (list(range(n)) for n in range(3)), output=mr.int32[...])
        self.assertEqual([x.tolist() for x in ds], [[], [0], [0, 1]])
        self.assertEqual(list(mr.from_generator(lambda: [], output=mr.int64)), [])
        with self.assertRaisesRegex(mr.InvalidArgument, "output="):
            mr.from_generator(lambda: [])
        with self.assertRaises(TypeError):
            mr.from_generator([1, 2])  # type: ignore[arg-type]
        ds = mr.from_generator(lambda: [1, "a", 2.5, 3], output=mr.int64)
        it = iter(ds)
        self.assertEqual(next(it), 1)
        for _ in range(2):
            with self.assertRaises(mr.InvalidArgument):
                next(it)
        self.assertEqual(next(it), 3)

    def test_an_exception_is_an_error_in_its_place(self) -> None:
        def make() -> Any:
            yield 1
            yield 2
            raise KeyError("gone")

        it = iter(mr.from_generator(make))
        self.assertEqual([next(it), next(it)], [1, 2])
        with self.assertRaises(mr.InvalidArgument) as e:
            next(it)
        self.assertIn("KeyError: 'gone'", str(e.exception))
        self.assertIn("in make", str(e.exception))
        self.assertEqual(e.exception.element, 2)
        with self.assertRaises(StopIteration):
            next(it)

    def test_positions_are_exact_with_states(self) -> None:
        for build in (lambda: mr.from_generator(lambda: Counter(40)),
                      lambda: mr.from_generator(lambda: Counter(40)).prefetch(5),
                      lambda: mr.from_generator(lambda: Counter(40)).map(lambda *e: e, num_parallel_calls=2),
                      lambda: mr.from_generator(lambda: Counter(40)).shuffle(7, seed=2)):  # fmt: skip
            whole = events(iter(build()))
            self.assertEqual(len(whole), 40)
            for at in (0, 1, 6, 7, 20, 39, 40):
                it = iter(build())
                for _ in range(at):
                    try:
                        next(it)
                    except mr.InvalidArgument:
                        pass
                state = json.loads(json.dumps(it.state_dict()))
                again = iter(build())
                again.load_state_dict(state)
                self.assertEqual(events(again), whole[at:] if at < 40 else [], at)

    def test_elements_of_a_slow_generator_do_not_wait_for_the_next_ones(self) -> None:
        got = [threading.Event() for _ in range(8)]

        def live() -> Iterator[int]:
            for i in range(8):
                time.sleep(0.02)
                self.assertTrue(i < 2 or got[i - 1].wait(60))
                yield i

        made = mr.from_generator(live, mr.int64)
        for ds in (
            made,
            made.map_py(int, output=mr.int64, num_workers=1),
            made.map_py(int, output=mr.int64, num_workers=4),
            made.map(lambda x: x + 0, num_parallel_calls=4).prefetch(2),
        ):
            it = iter(ds)
            for i, x in enumerate(it):
                self.assertEqual(x, i)
                with self.assertRaisesRegex(mr.FailedPrecondition, "state_dict"):
                    it.state_dict()
                got[i].set()
            for event in got:
                event.clear()

    def test_without_states_saving_is_an_error(self) -> None:
        it = iter(mr.from_generator(lambda: (i for i in range(5))).prefetch(2))
        self.assertEqual(next(it), 0)
        with self.assertRaisesRegex(mr.FailedPrecondition, "state_dict"):
            it.state_dict()
        self.assertEqual(list(it), [1, 2, 3, 4])

    def test_a_state_that_does_not_load_begins_no_generator_again(self) -> None:
        other = iter(mr.range(3))
        next(other)
        state = other.state_dict()
        damaged = {**state, "position": state["position"][:-8] + "AAAAAAA="}
        made: list[int] = []

        def make() -> Iterator[int]:
            made.append(1)
            yield from range(9)

        for build in (
            lambda ds: ds,
            lambda ds: ds.map_py(int, output=mr.int64, num_workers=2).prefetch(2),
            lambda ds: mr.zip(ds, mr.from_generator(lambda: Counter(9))).map(lambda x, _: x),
            lambda ds: mr.distribute_dataset(ds.batch(1), 1, {}),
        ):
            with self.subTest(ds=str(build(mr.range(1)))):
                ds = build(mr.from_generator(make, mr.int64))
                it = iter(ds)
                # Neither before it has begun, nor with what is not a state, is anything lost.
                self.fails_to_load(it, mr.InvalidArgument, state, damaged)
                self.assertEqual([int(np.squeeze(next(it))) for _ in range(3)], [0, 1, 2])
                self.fails_to_load(it, mr.InvalidArgument, {**state, "version": 9}, {**state, "position": "x"})
                self.assertEqual(int(np.squeeze(next(it))), 3)
                for wrong in (state, damaged):
                    before = len(made)
                    self.fails_to_load(it, mr.Error, wrong)
                    for ask in (lambda: next(it), it.state_dict):
                        with self.assertRaisesRegex(mr.FailedPrecondition, "load_state_dict failed"):
                            ask()
                    self.assertEqual(len(made), before)
                self.assertEqual(int(np.squeeze(next(iter(ds)))), 0)

    def fails_to_load(self, it: Any, error: Any, *states: Any) -> None:
        for state in states:
            with self.assertRaises(error):
                it.load_state_dict(state)

    def test_a_state_that_does_not_load_leaves_one_with_positions_in_place(self) -> None:
        other = iter(mr.range(3))
        state = other.state_dict()
        for on_mismatch in (None, "by_name"):
            it = iter(mr.from_generator(lambda: Counter(40)).batch(2).prefetch(1))
            next(it)
            with self.assertRaises(mr.InvalidArgument):
                it.load_state_dict(state, on_mismatch)
            self.assertEqual(next(it)[0].tolist(), [3, 4])

    def test_several_generators(self) -> None:
        """Of which some have positions: saving is an error as long as one of the others is open."""

        def plain(n: int) -> Any:
            return mr.from_generator(lambda: iter(range(n)), mr.int64)

        exact = mr.from_generator(lambda: Counter(9)).map(lambda i, *_: i)
        for build, saves in (
            (lambda: mr.zip(plain(5), plain(7)), False),
            (lambda: mr.zip(plain(5), exact), False),
            (lambda: mr.zip(exact, plain(5)).prefetch(2), False),
            (lambda: plain(3).concatenate(plain(3)).prefetch(1), False),
            (lambda: mr.zip(exact, mr.from_generator(lambda: Counter(5))).prefetch(2), True),
            (lambda: exact.concatenate(mr.from_generator(lambda: Counter(3)).map(lambda i, *_: i)), True),
        ):
            it = iter(build())
            with self.subTest(graph=str(it.dataset)):
                first = next(it)
                if saves:
                    again = iter(build())
                    again.load_state_dict(json.loads(json.dumps(it.state_dict())))
                    self.assertEqual(self.rest(again), self.rest(it))
                    continue
                with self.assertRaisesRegex(mr.FailedPrecondition, "plain.*state_dict"):
                    it.state_dict()
                self.assertEqual(len(self.rest(it)), len(self.rest(iter(build()))) - 1)
                self.assertEqual(str(next(iter(build()))), str(first))

    def rest(self, it: Any) -> list[str]:
        out = []
        while True:
            try:
                out.append(str(next(it)))
            except StopIteration:
                return out
            except mr.InvalidArgument as e:
                out.append(str(e))

    def test_a_state_that_cannot_be_kept(self) -> None:
        class Bad(Counter):
            def state_dict(self) -> dict[str, Any]:
                return {"x": object()}

        it = iter(mr.from_generator(lambda: Bad(3)))
        next(it)
        with self.assertRaisesRegex(mr.InvalidArgument, "object"):
            it.state_dict()
        self.assertEqual(next(it)[0], 2)

    def test_generators_are_closed_and_forgotten(self) -> None:
        closed: list[int] = []

        def make() -> Any:
            try:
                yield from range(100)
            finally:
                closed.append(1)

        threads = kit.threads()
        ds = mr.from_generator(make)
        for n in range(5):
            it = iter(ds)
            for _ in range(n):
                next(it)
            del it
        self.assertEqual(len(closed), 1 + 4)  # one that was never begun has nothing to close
        self.assertLessEqual(kit.wait_for_threads(threads), threads)
        kept = weakref.ref(make)
        del ds, make
        gc.collect()
        self.assertIsNone(kept())

    def test_the_iterator_that_shows_the_type_is_closed(self) -> None:
        closed: list[int] = []

        class Closed(Counter):
            def close(self) -> None:
                closed.append(self.at)

        ds = mr.from_generator(lambda: Closed(3))
        self.assertEqual(closed, [1])
        list(ds)
        self.assertEqual(closed, [1, 3])

    def test_printing(self) -> None:
        def numbers() -> Any:
            yield 1

        ds = mr.from_generator(numbers)
        self.assertIn("numbers", str(ds))
        self.assertEqual(ds, ds)
        self.assertNotEqual(ds, mr.from_generator(numbers))
        with self.assertRaises(mr.FailedPrecondition):
            ds.to_proto()


class Pickles(unittest.TestCase):
    def test_what_lives_in_this_process_is_named(self) -> None:
        for ds in (mr.from_generator(lambda: iter([1])), mr.range(2).map_py(lambda x: x), mr.from_sequence([1, 2])):
            with self.assertRaisesRegex(mr.FailedPrecondition, "a Python object of this process.*mr.register"):
                pickle.dumps(ds)


class Items:
    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        if not isinstance(i, int):
            raise TypeError(type(i))
        if i % 50 == 13:
            raise OSError(f"lost {i}")
        return np.full(3, i), f"{i}"


class Several(Items):
    asked: list[int] = []

    def __getitems__(self, numbers: list[int]) -> Any:
        Several.asked.append(len(numbers))
        return [self[i] for i in numbers]


class Sequences(unittest.TestCase):
    def check(self, ds: Any, order: Any) -> None:
        it = iter(ds)
        for i in order:
            if i % 50 == 13:
                with self.assertRaisesRegex(mr.InvalidArgument, f"lost {i}"):
                    next(it)
                continue
            row, text = next(it)
            self.assertEqual((row.tolist(), text), ([i] * 3, str(i).encode()))
        with self.assertRaises(StopIteration):
            next(it)

    def test_items_in_order(self) -> None:
        for parallel in ["inline", "thread", *PROCESS]:
            for items in (Items(200), Several(200)):
                workers: Any = mr.AUTO if parallel == "inline" else 2
                ds = mr.from_sequence(items, parallel, workers)
                self.assertEqual(len(ds), 200)
                with self.subTest(parallel=parallel, items=type(items)):
                    self.check(ds, range(200))
        self.assertTrue(any(n > 1 for n in Several.asked))

    def test_a_global_shuffle_permutes_numbers(self) -> None:
        plain = mr.from_sequence(np.arange(500) * 2)
        ds = plain.global_shuffle(seed=5)
        first, second = list(ds), list(ds)
        self.assertEqual(sorted(first), list(range(0, 1000, 2)))
        self.assertEqual(sorted(second), sorted(first))
        self.assertNotEqual(first, second)
        self.assertNotEqual(first, sorted(first))
        self.assertEqual(list(plain.global_shuffle(seed=5)), first)
        self.assertEqual(list(plain), sorted(first))
        it = iter(plain.global_shuffle(seed=5))
        for i in range(77):
            self.assertEqual(next(it), first[i])
        again = iter(plain.global_shuffle(seed=5))
        again.load_state_dict(it.state_dict())
        self.assertEqual(list(again), first[77:])
        fixed = plain.global_shuffle(5, reshuffle_each_iteration=False)
        self.assertEqual(list(fixed), list(fixed))

    def test_positions_are_numbers(self) -> None:
        asked: list[int] = []

        class Watched(Items):
            def __getitem__(self, i: int) -> Any:
                asked.append(i)
                return i

        ds = mr.from_sequence(Watched(1000), "inline")
        it = iter(ds.skip(0))
        for _ in range(600):
            next(it)
        state = it.state_dict()
        asked.clear()
        again = iter(ds.skip(0))
        again.load_state_dict(state)
        self.assertEqual(next(again), 600)
        self.assertGreaterEqual(min(asked), 600)

    def test_what_is_no_sequence(self) -> None:
        with self.assertRaises(TypeError):
            mr.from_sequence(iter([1]))
        with self.assertRaisesRegex(mr.InvalidArgument, "output"):
            mr.from_sequence([])
        self.assertEqual(list(mr.from_sequence([], output=mr.int64)), [])
        self.assertEqual(list(mr.from_sequence(["a", "b"])), [b"a", b"b"])
        self.assertEqual(list(mr.from_sequence([1, 2, 3])[1:].map(lambda x: x * 2)), [4, 6])

    def test_lookups_run_at_once(self) -> None:
        both = threading.Barrier(2)

        class Slow(Items):
            def __getitem__(self, i: int) -> Any:
                if i < 2:  # each is alone in its block, as the first ones are
                    both.wait(60)
                return i

        self.assertEqual(list(mr.from_sequence(Slow(6), num_workers=2, output=mr.int64)), list(range(6)))


if __name__ == "__main__":
    kit.main()
