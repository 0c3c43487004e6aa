# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""mr.mix against a model of its draws, and positions that are restored with other sources and weights."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

import kit
import millrace as mr

oracle = kit.load("tests/oracle/model.py")
NAMES = ("web", "code", "books", "chat", "maths")
CASES = 300 if kit.LONG else 60


class Source:
    """The epochs of a source, and where it is."""

    def __init__(self, name: str, size: int, shuffled: bool) -> None:
        self.name, self.shuffled = name, shuffled
        first = 1000 * NAMES.index(name)
        self.graph = mr.range(first, first + size)
        if shuffled:
            self.graph = self.graph.shuffle(size + 1, seed=NAMES.index(name))
        self.epochs: list[list[int]] = []
        self.restart()

    def restart(self) -> None:
        self.epoch, self.at, self.once = 0, 0, False

    def elements(self) -> list[int]:
        epochs = iter(lambda: list(map(int, self.graph)), None)
        while len(self.epochs) <= self.epoch:
            self.epochs.append(next(epochs))
        return self.epochs[self.epoch]


class Mixture:
    """What mix does, one element at a time."""

    def __init__(self, seed: int, stop: str) -> None:
        self.seed, self.stop = seed, stop
        self.words = oracle.philox(87654321, seed % (2**31 - 1))
        self.known: dict[str, Source] = {}  # also those that are removed
        self.sources: list[Source] = []

    def become(self, sources: list[Source], weights: list[float]) -> None:
        for s in sources:
            if s.name not in self.known:
                s.restart()
                self.known[s.name] = s
        self.sources, self.weights = sources, weights

    def graph(self) -> mr.Dataset:
        weights = {s.name: w for s, w in zip(self.sources, self.weights)}
        return mr.mix({s.name: s.graph for s in self.sources}, weights=weights, seed=self.seed, stop=self.stop)  # pyright: ignore[reportArgumentType]

    def draw(self) -> Source:
        if len(self.sources) == 1:
            return self.sources[0]
        logits = [oracle.float32(math.log(oracle.float32(w))) for w in self.weights]
        sums = np.cumsum([math.exp(x - max(logits)) for x in logits])
        at = oracle.uniform(next(self.words), next(self.words)) * sums[-1]
        return self.sources[int(np.sum(sums <= at))]

    def next(self) -> int | None:
        while not all(s.once for s in self.sources):
            if self.stop == "first" and any(s.once for s in self.sources):
                return None
            s = self.draw()
            if s.at == len(s.elements()):
                if s.once and self.stop == "all":
                    continue
                s.once = True
                if self.stop != "repeat":
                    continue
                if all(x.once for x in self.sources):
                    return None
                s.epoch, s.at = s.epoch + 1, 0
            s.at += 1
            return s.elements()[s.at - 1]
        return None

    def take(self, n: int) -> list[int]:
        out: list[int] = []
        while len(out) < n and (x := self.next()) is not None:
            out.append(x)
        return out


def flat(x: Any) -> list[int]:
    return [n for v in x for n in flat(v)] if isinstance(x, list) else [x]


def pull(it: Iterator[Any], n: int) -> list[int]:
    return [int(x) for _, x in zip(range(n), it)]


class Mix(unittest.TestCase):
    def draw_mixture(self, r: random.Random, known: dict[str, Source]) -> tuple[list[Source], list[float]]:
        names = r.sample(NAMES, r.randint(1, 4))
        for n in names:
            if n not in known:
                known[n] = Source(n, r.randint(1, 25), r.random() < 0.5)
        return [known[n] for n in names], [r.choice([0.1, 0.5, 1.0, 3.0]) for _ in names]

    def test_a_job_whose_mixture_changes_is_that_of_the_model(self) -> None:
        for case in range(CASES):
            r = random.Random(case)
            model = Mixture(r.choice([0, 7, -1, 42]), r.choice(["first", "all", "repeat"]))
            pool: dict[str, Source] = {}
            model.become(*self.draw_mixture(r, pool))
            it = model.graph().iterator(threads=r.choice([0, 2]))
            for change in range(r.randint(1, 5)):
                with self.subTest(case=case, change=change, graph=str(it.dataset)):
                    n = r.randint(0, 20)
                    got, expected = pull(it, n), model.take(n)
                    self.assertEqual(got, expected)
                    if len(got) < n:
                        break
                    state = json.loads(json.dumps(it.state_dict()))
                    model.become(*self.draw_mixture(r, pool))
                    it = model.graph().iterator(threads=r.choice([0, 2]), on_mismatch="by_name")
                    it.load_state_dict(state)
            else:
                with self.subTest(case=case, rest=str(it.dataset)):
                    self.assertEqual(pull(it, 10**6), model.take(10**6))

    def test_proportions(self) -> None:
        ds = mr.mix({"a": mr.range(0, 1).repeat(), "b": mr.range(1, 2).repeat()}, weights={"a": 3, "b": 1}, seed=5)
        counts = Counter(pull(iter(ds), 4000))
        self.assertAlmostEqual(counts[0] / 4000, 0.75, delta=0.03)

    def test_restored_at_every_position_by_what_is_above(self) -> None:
        web, code, books = mr.range(0, 30), mr.range(100, 120).shuffle(5, seed=1), mr.range(200, 215)
        for tail in (
            lambda d: d,
            lambda d: d.batch(4),
            lambda d: d.shuffle(6, seed=2),
            lambda d: d.map(lambda x: x + 0).enumerate().map(lambda i, x: x).batch(3).prefetch(2),
        ):
            a = tail(mr.mix({"web": web, "code": code}, seed=3, stop="all"))
            b = tail(mr.mix({"code": code, "books": books}, seed=3, stop="all"))
            c = tail(mr.mix({"books": books, "web": web, "code": code}, seed=3, stop="all"))
            for k in range(0, 6):
                it, seen = iter(a), []
                for on in (b, c):
                    seen += [np.ravel(x) for x in itertools.islice(it, k)]
                    state = it.state_dict()
                    it = on.iterator()
                    if k < 2:
                        with self.assertRaisesRegex(mr.InvalidArgument, "on_mismatch"):
                            it.load_state_dict(state)
                    it.load_state_dict(state, on_mismatch="by_name")
                seen += [np.ravel(x) for x in it]
                # Nothing is lost or repeated, whatever was held above when the mixture changed.
                with self.subTest(graph=str(c), after=k):
                    everything = [*range(30), *range(100, 120), *range(200, 215)]
                    self.assertEqual(sorted(np.concatenate(seen).tolist()), everything)

    def test_nested_and_in_functions(self) -> None:
        inner = mr.mix({"x": mr.range(9), "y": mr.range(100, 109)}, seed=1, stop="all")
        more = mr.mix({"y": mr.range(100, 109), "x": mr.range(9)}, weights={"x": 9, "y": 1}, seed=1, stop="all")
        a = mr.mix({"in": inner, "out": mr.range(200, 209)}, seed=2, stop="all")
        b = mr.mix({"in": more, "out": mr.range(200, 209)}, seed=2, stop="all")
        it = iter(a)
        seen = pull(it, 11)
        other = b.iterator(on_mismatch="by_name")
        other.load_state_dict(it.state_dict())
        self.assertEqual(sorted(seen + list(map(int, other))), [*range(9), *range(100, 109), *range(200, 209)])
        made = mr.range(3).flat_map(lambda n: mr.mix({"a": mr.range(n), "b": mr.range(10, 12)}, seed=1, stop="all"))
        self.assertEqual(sorted(map(int, made)), [0, 0, 1, 10, 10, 10, 11, 11, 11])

    def test_distributed_datasets(self) -> None:
        def job(text: str) -> Any:
            return mr.distribute_dataset(mr.from_text(text + ".batch(4)"), replicas=2, cluster={})

        a = iter(job('mix({"a": range(30), "b": range(100, 120)}, seed=1, stop="all")'))
        seen = [next(a) for _ in range(3)]
        b = job('mix({"b": range(100, 120), "c": range(200, 210)}, seed=1, stop="all")').iterator(on_mismatch="by_name")
        b.load_state_dict(a.state_dict())
        numbers = np.concatenate([np.ravel(x) for step in seen + list(b) for x in step])
        self.assertEqual(sorted(n for n in numbers.tolist() if n >= 100), [*range(100, 120), *range(200, 210)])

    def test_mistakes(self) -> None:
        r = mr.range(3)
        for call, kind, text in (
            (lambda: mr.mix([r]), TypeError, "a dict of datasets"),  # type: ignore[arg-type]
            (lambda: mr.mix({"a": 3}), TypeError, "expected a dataset"),  # type: ignore[dict-item]
            (lambda: mr.mix({1: r}), TypeError, "names of sources"),  # type: ignore[dict-item]
            (lambda: mr.mix({}), ValueError, "no source"),
            (lambda: mr.mix({"a": r}, weights={"b": 1}), mr.InvalidArgument, "is not a source"),
            (lambda: mr.mix({"a": r}, weights={"a": 0}), mr.InvalidArgument, "positive"),
            (lambda: mr.mix({"a": r}, stop="last"), mr.InvalidArgument, "repeat"),  # type: ignore[arg-type]
            (lambda: r.iterator(on_mismatch="name"), ValueError, "by_name"),
        ):
            with self.assertRaisesRegex(kind, text):
                call()

    def test_the_example(self) -> None:
        path = os.path.join(kit.SOURCE, "examples", "python", "mixture.py")
        done = subprocess.run([sys.executable, path], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith("120 records, each once\n"))
        self.assertIn('"web" is back', done.stderr)

    def test_the_command_line_and_distributed_datasets(self) -> None:
        a = 'mix({"web": range(40), "code": range(100, 140).shuffle(7)}, weights={"web": 0.7, "code": 0.3}, stop="all")'
        b = 'mix({"code": range(100, 140).shuffle(7), "books": range(200, 220)}, stop="all")'
        with tempfile.TemporaryDirectory() as folder:
            state = os.path.join(folder, "state")
            job = ["--replicas", "2", "--workers", "2", "--elastic", "4"]
            for tail, flags in (("", []), (".batch(4)", job)):

                def show(graph: str, *more: str) -> subprocess.CompletedProcess[str]:
                    command = [kit.MILLRACE, "show", "--seed", "5", *flags, graph + tail, *more]
                    return subprocess.run(command, capture_output=True, text=True)

                first = show(a, "--save-after", "5", "--state", state)
                self.assertEqual(first.returncode, 0, first.stderr)
                refused = show(b, "--restore", state)
                self.assertEqual(refused.returncode, 1)
                self.assertIn("--restore-by-name", refused.stderr)
                second = show(b, "--restore", state, "--restore-by-name")
                self.assertEqual(second.returncode, 0, second.stderr)
                self.assertIn('"web" is removed', second.stderr)
                self.assertIn('"books" is new', second.stderr)
                third = show(a, "--restore", state, "--restore-by-name")
                self.assertEqual(third.stdout, show(a, "--restore", state).stdout)
                numbers = [
                    int(x)
                    for out in (first.stdout, second.stdout)
                    for line in out.splitlines()
                    for x in flat(json.loads(line)["replicas"] if flags else json.loads(line))
                ]
                rest = [n for n in numbers if n >= 100]
                self.assertEqual(sorted(rest), [*range(100, 140), *range(200, 220)])

    def test_workers_that_read_ahead_do_not_change_the_mixture(self) -> None:
        a = 'mix({"a": range(30), "b": range(100, 120)}, seed=1, stop="all").batch(4)'
        b = 'mix({"b": range(100, 120), "c": range(200, 210)}, seed=1, stop="all").batch(4)'
        cluster = {"cluster": {"worker": ["host:1", "host:2"]}}

        def job(text: str, **options: Any) -> list[mr.DistributedDataset]:
            return [mr.distribute_dataset(mr.from_text(text), 1, cluster, i, **options) for i in range(2)]

        def numbers(iterators: list[Any], n: int) -> list[int]:
            steps = [step for it in iterators for step in itertools.islice(it, n)]
            return [int(x) for step in steps for batch in step for x in np.ravel(batch)]

        started = [iter(ds) for ds in job(a)]
        seen = numbers(started, 3)
        states = [it.state_dict() for it in started]
        for ds, state in zip(job(b), states, strict=True):
            with self.assertRaisesRegex(mr.FailedPrecondition, "elastic streams"):
                ds.iterator(on_mismatch="by_name").load_state_dict(state)
        again = [ds.iterator(on_mismatch="by_name") for ds in job(a)]  # the mixture did not change
        for it, state in zip(again, states, strict=True):
            it.load_state_dict(state)
        self.assertEqual(sorted(seen + numbers(again, 99)), [*range(30), *range(100, 120)])

        started = [iter(ds) for ds in job(a, elastic=5)]
        seen = numbers(started, 3)
        whole = mr.join_states([it.state_dict() for it in started])
        changed = [ds.iterator(on_mismatch="by_name") for ds in job(b, elastic=5)]
        for it in changed:
            it.load_state_dict(whole)
        rest = [n for n in seen + numbers(changed, 3) if n >= 100]
        self.assertEqual(len(rest), len(set(rest)))
        last = mr.distribute_dataset(mr.from_text(b), 3, {}, elastic=5).iterator()
        last.load_state_dict(mr.join_states([it.state_dict() for it in changed]))
        self.assertEqual(sorted(rest + numbers([last], 99)), [*range(100, 120), *range(200, 210)])

    def test_one_dataset_in_two_sources(self) -> None:
        base = mr.from_text("range(60).take(41)")  # is not cut: each process reads it once for each source
        for ds in (
            mr.mix({"even": base.filter(lambda x: x % 2 == 0), "all": base.shuffle(9)}, stop="all"),
            mr.zip(base, base).map(lambda x, y: x * 100 + y),
        ):
            steps = iter(mr.distribute_dataset(ds.batch(8), 3, {}, elastic=4))
            got = [int(x) for step in steps for batch in step for x in np.ravel(batch)]
            self.assertEqual(sorted(got), sorted(map(int, ds)))


if __name__ == "__main__":
    kit.main()
