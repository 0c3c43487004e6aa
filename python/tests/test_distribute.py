# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""Distributed datasets and input functions."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Any

import numpy as np

import kit
import millrace as mr

ALONE: dict[str, Any] = {}


def job(workers: int, index: int, chief: bool = False) -> dict[str, Any]:
    addresses = [f"host{i}:1" for i in range(workers)]
    if not chief:
        return {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    task = {"type": "chief", "index": 0} if index == 0 else {"type": "worker", "index": index - 1}
    return {"cluster": {"chief": addresses[:1], "worker": addresses[1:]}, "task": task}


def rows(steps: Any) -> list[list[Any]]:
    return [[np.asarray(x).tolist() for x in step] for step in steps]


def shown(text: str, *flags: str) -> list[list[Any]]:
    """The steps that `millrace show` prints."""
    out = subprocess.run(
        [kit.MILLRACE, "show", *flags, "--", text], check=True, capture_output=True, text=True, env=environment()
    ).stdout
    return [line["replicas"] for line in map(json.loads, out.splitlines())]


def environment(**more: str) -> dict[str, str]:
    """This process's, without a launcher's variables."""
    launchers = ("TF_CONFIG", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "OMPI_", "PMI_", "TORCHELASTIC_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(launchers)}
    return kept | more


class Steps(unittest.TestCase):
    def test_a_step_has_a_batch_for_each_replica(self) -> None:
        steps = list(mr.distribute_dataset(mr.range(6).batch(4), replicas=2, cluster=ALONE))
        self.assertIsInstance(steps[0], tuple)
        self.assertEqual(rows(steps), [[[0, 1], [2, 3]], [[4], [5]]])

    def test_parts_are_those_of_the_command_line(self) -> None:
        for text, replicas in (
            ("range(6).batch(4)", 2),
            ("range(4).batch(4)", 5),
            ("range(8).batch(4)", 3),
            ("range(9).batch(4)", 4),
            ("range(0).batch(4)", 2),
            ("range(7).map(x => (x, zeros([x % 3]))).padded_batch(4)", 2),
            ("range(10).batch(5, drop_remainder=true)", 2),
        ):
            with self.subTest(text=text, replicas=replicas):
                mine = [[kit.as_json(x) for x in s] for s in mr.distribute_dataset(mr.from_text(text), replicas, ALONE)]
                self.assertEqual(mine, shown(text, "--replicas", str(replicas)))

    def test_workers_share_as_on_the_command_line(self) -> None:
        text = "range(22).shuffle(5, seed=3).batch(8)"
        for policy in ("data", "off", None):
            for worker in range(3):
                with self.subTest(policy=policy, worker=worker):
                    ds = mr.distribute_dataset(mr.from_text(text), 2, job(3, worker), policy=policy)
                    self.assertEqual((ds.num_workers, ds.worker, ds.num_replicas_in_sync), (3, worker, 6))
                    self.assertEqual(ds.policy, "OFF" if policy == "off" else "DATA")
                    flags = ["--replicas", "2", "--workers", "3", "--worker", str(worker)]
                    flags += ["--auto-shard", policy] if policy else []
                    self.assertEqual(rows(ds), shown(text, *flags))

    def test_a_replica_without_data_gets_no_rows(self) -> None:
        (step,) = mr.distribute_dataset(mr.range(4).map(lambda x: (x, "s")).batch(4), replicas=5, cluster=ALONE)
        self.assertEqual([len(x) for x, _ in step], [1, 1, 1, 1, 0])
        self.assertEqual(step[4][0].dtype, np.int64)
        self.assertEqual(step[4][1].dtype, object)

    def test_structure_and_ragged_columns(self) -> None:
        ds = mr.range(4).map(lambda n: {"a": n, "r": mr.fn.ones([n])}).ragged_batch(4)
        dd = mr.distribute_dataset(ds, replicas=2, cluster=ALONE)
        (step,) = dd
        self.assertEqual([x["r"].to_list() for x in step], [[[], [1.0]], [[1.0] * 2, [1.0] * 3]])
        self.assertEqual(dd.element_spec["a"], mr.TensorSpec((None,), mr.int64))
        self.assertTrue(dd.element_spec["r"].ragged)

    def test_cardinality(self) -> None:
        self.assertEqual(len(mr.distribute_dataset(mr.range(10).batch(4), 2, ALONE)), 3)
        endless = mr.distribute_dataset(mr.range(10).repeat().batch(4), 2, ALONE)
        self.assertEqual(endless.cardinality(), mr.INFINITE)
        with self.assertRaisesRegex(TypeError, "no end"):
            len(endless)
        self.assertTrue(endless)
        unknown = mr.distribute_dataset(mr.range(10).filter(lambda x: x > 3).batch(4), 2, ALONE)
        with self.assertRaisesRegex(TypeError, "not known"):
            len(unknown)

    def test_files_are_shared_by_file(self) -> None:
        with tempfile.TemporaryDirectory() as d:
            for i in range(2):
                with open(os.path.join(d, f"{i}.txt"), "w") as f:
                    f.write("".join(f"{i}{j}\n" for j in range(3)))
            ds = mr.text_line(os.path.join(d, "*.txt")).batch(2)
            parts = [mr.distribute_dataset(ds, 1, job(2, w), policy="FILE") for w in range(2)]
            self.assertEqual([p.policy for p in parts], ["FILE"] * 2)
            got = [[x for (b,) in p for x in b.tolist()] for p in parts]
        self.assertEqual(sorted(map(tuple, got)), [(b"00", b"01", b"02"), (b"10", b"11", b"12")])

    def test_arrays_are_writable_where_nobody_shares_them(self) -> None:
        (step,) = mr.distribute_dataset(mr.range(4).map(lambda x: x * 2).batch(4), 1, ALONE)
        step[0][0] = 7
        self.assertEqual(step[0].tolist(), [7, 2, 4, 6])

    def test_formats_and_options(self) -> None:
        ds = mr.distribute_dataset(mr.from_tensor_slices(["a", "é"]).batch(2), 2, ALONE)
        (step,) = ds.iterator(strings="str", threads=0)
        self.assertEqual([x.tolist() for x in step], [["a"], ["é"]])
        shuffled = mr.range(100).shuffle(100).batch(10)
        one, same, other = (rows(mr.distribute_dataset(shuffled, 2, ALONE).iterator(seed=s)) for s in (5, 5, 6))
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)

    def test_decisions_are_told(self) -> None:
        dd = mr.distribute_dataset(mr.range(8).batch(4), 2, job(2, 0))
        self.assertTrue(any(d.startswith("policy: AUTO chose DATA") for d in dd.decisions), dd.decisions)
        self.assertIn("replica_slices(4)", str(dd.graph))
        self.assertIn("worker 0 of 2, 2 of 4 replicas", repr(dd))


class Epochs(unittest.TestCase):
    def test_each_iterator_is_the_next_epoch(self) -> None:
        dd = mr.distribute_dataset(mr.range(8).shuffle(8, seed=1).batch(4), 2, ALONE)
        first, second = rows(dd), rows(dd)
        self.assertNotEqual(first, second)
        again = mr.distribute_dataset(mr.range(8).shuffle(8, seed=1).batch(4), 2, ALONE)
        self.assertEqual([rows(again), rows(again)], [first, second])

    def test_a_memory_cache_lasts(self) -> None:
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "lines.txt")
            with open(path, "w") as f:
                f.write("a\nb\n")
            dd = mr.distribute_dataset(mr.text_line(path).cache().batch(2), 2, ALONE)
            before = rows(dd)
            os.remove(path)
            self.assertEqual(rows(dd), before)

    def test_every_step_can_be_saved_and_restored(self) -> None:
        def make() -> mr.DistributedDataset:
            return mr.distribute_dataset(mr.range(40).shuffle(9, seed=2).batch(8), 2, job(2, 1), policy="data")

        whole = make()
        epochs = [rows(whole), rows(whole)]
        for k in range(len(epochs[0]) + 1):
            it = iter(make())
            for _ in range(k):
                next(it)
            state = json.loads(json.dumps(it.state_dict()))
            dd = make()
            other = iter(dd)
            other.load_state_dict(state)
            self.assertEqual(rows(other), epochs[0][k:])
            self.assertEqual(rows(dd), epochs[1])

    def test_a_position_of_another_job_is_refused(self) -> None:
        state = iter(mr.distribute_dataset(mr.range(8).batch(4), 2, ALONE)).state_dict()
        it = iter(mr.distribute_dataset(mr.range(8).batch(4), 4, ALONE))
        with self.assertRaisesRegex(mr.InvalidArgument, "2 replicas per worker, this one has 4"):
            it.load_state_dict(state)

    def test_statistics_and_trace(self) -> None:
        dd = mr.distribute_dataset(mr.range(8).batch(4), 2, ALONE)
        it = iter(dd)
        next(it)
        with tempfile.TemporaryDirectory() as d:
            it.trace(os.path.join(d, "t.json"))
            with open(os.path.join(d, "t.json")) as f:
                json.load(f)
        list(it)
        self.assertEqual(it.stats()[-1].elements, 8)


class Functions(unittest.TestCase):
    def test_the_context_says_what_to_make(self) -> None:
        seen: list[mr.InputContext] = []

        def make(ctx: mr.InputContext) -> mr.Dataset:
            seen.append(ctx)
            ds = mr.range(16).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
            return ds.batch(ctx.get_per_replica_batch_size(8))

        got = [rows(mr.distribute_datasets_from_function(make, 2, job(2, w))) for w in range(2)]
        self.assertEqual(got, [[[[0, 2], [4, 6]], [[8, 10], [12, 14]]], [[[1, 3], [5, 7]], [[9, 11], [13, 15]]]])
        self.assertIn(mr.InputContext(2, 1, 4), seen)
        text = "range(16).batch(per_replica_batch_size(8)).shard(num_input_pipelines, input_pipeline_id)"
        self.assertEqual(
            rows(
                mr.distribute_datasets_from_function(
                    lambda c: mr.range(16)
                    .batch(c.get_per_replica_batch_size(8))
                    .shard(c.num_input_pipelines, c.input_pipeline_id),
                    2,
                    job(2, 0),
                )
            ),
            shown(text, "--from-function", "--replicas", "2", "--workers", "2", "--worker", "0"),
        )

    def test_nothing_is_added(self) -> None:
        dd = mr.distribute_datasets_from_function(lambda c: mr.range(6).batch(2), 2, ALONE)
        self.assertEqual(str(dd.graph), "range(6).batch(2)")
        self.assertEqual(rows(dd), [[[0, 1], [2, 3]], [[4, 5], []]])

    def test_contexts(self) -> None:
        ctx = mr.InputContext(num_replicas_in_sync=4)
        self.assertEqual((ctx.num_input_pipelines, ctx.input_pipeline_id), (1, 0))
        with self.assertRaisesRegex(mr.FailedPrecondition, "10.*4"):
            ctx.get_per_replica_batch_size(10)
        with self.assertRaises(mr.InvalidArgument):
            mr.InputContext(2, 2, 2)
        self.assertEqual(
            mr.distribute_values_from_function(lambda c: (c.replica_id_in_sync_group, c.num_replicas_in_sync), 2, job(2, 1)),
            ((2, 4), (3, 4)),
        )

    def test_what_the_function_raises_is_raised(self) -> None:
        class Mine(Exception):
            pass

        def fails(ctx: mr.InputContext) -> mr.Dataset:
            raise Mine("no data here")

        with self.assertRaisesRegex(Mine, "no data here"):
            mr.distribute_datasets_from_function(fails, cluster=ALONE)
        with self.assertRaisesRegex(mr.FailedPrecondition, "10.*4"):
            mr.distribute_datasets_from_function(
                lambda c: mr.range(3).batch(c.get_per_replica_batch_size(10)), 4, ALONE
            )
        with self.assertRaisesRegex(TypeError, "not a Dataset"):
            mr.distribute_datasets_from_function(lambda c: [1, 2], cluster=ALONE)  # type: ignore[arg-type,return-value]
        with self.assertRaisesRegex(TypeError, "InputContext"):
            mr.distribute_datasets_from_function(mr.range(3), cluster=ALONE)  # type: ignore[arg-type]


class Jobs(unittest.TestCase):
    def test_the_chief_comes_first(self) -> None:
        for w in range(3):
            dd = mr.distribute_dataset(mr.range(9).batch(3), 1, job(3, w, chief=True), policy="data")
            same = mr.distribute_dataset(mr.range(9).batch(3), 1, job(3, 0, chief=True), w, "data")
            bare = {"cluster": job(3, 0, chief=True)["cluster"]}
            told = mr.distribute_dataset(mr.range(9).batch(3), 1, bare, w, "data")
            self.assertEqual((dd.worker, same.worker, told.worker), (w, w, w))
            self.assertEqual(rows(dd), [[[w]], [[3 + w]], [[6 + w]]])
            self.assertEqual(rows(same), rows(told))

    def test_bad_arguments_say_what_to_do(self) -> None:
        ds = mr.range(8).batch(4)
        wrong: Any = mr.distribute_dataset
        for kind, message, call in (
            (mr.InvalidArgument, "no entry 'cluster'.*TF_CONFIG", lambda: wrong(ds, 1, {"worker": ["a:1"]})),
            (TypeError, "a dict as in TF_CONFIG", lambda: wrong(ds, 1, ["a:1"])),
            (mr.InvalidArgument, "0 to 1, not 2", lambda: wrong(ds, 1, job(2, 0), 2)),
            (mr.InvalidArgument, "0 to 0, not 1", lambda: wrong(ds, 1, ALONE, 1)),
            (mr.InvalidArgument, "task", lambda: wrong(ds, 1, {"cluster": {"worker": ["a:1"]}})),
            (mr.InvalidArgument, "at least 1", lambda: wrong(ds, 0, ALONE)),
            (mr.InvalidArgument, "sideways", lambda: wrong(ds, 1, ALONE, policy="sideways")),
            (TypeError, "policy", lambda: wrong(ds, 1, ALONE, policy=3)),
            (TypeError, "replicas is a number", lambda: wrong(ds, 2.0, ALONE)),
            (TypeError, "expected a Dataset", lambda: wrong([1], 1, ALONE)),
            (mr.InvalidArgument, "at least 1, not 0", lambda: wrong(ds, 1, ALONE, elastic=0)),
            (TypeError, "elastic is a number", lambda: wrong(ds, 1, ALONE, elastic="8")),
            (mr.InvalidArgument, "3 replicas cannot share 2", lambda: wrong(ds, 3, ALONE, elastic=2)),
            (mr.NotFound, "reads no list of files", lambda: wrong(ds, 1, job(2, 0), policy="file")),
            (mr.FailedPrecondition, "batch", lambda: wrong(mr.range(4), 2, ALONE)),
        ):
            with self.subTest(message=message), self.assertRaisesRegex(kind, message):
                call()

    def test_an_elastic_job_continues_with_other_workers(self) -> None:
        ds = mr.range(50).shuffle(20).batch(8)

        def begin(workers: int, replicas: int = 1) -> list[Any]:
            jobs = [job(workers, i) if workers > 1 else ALONE for i in range(workers)]
            return [iter(mr.distribute_dataset(ds, replicas, c, elastic=12)) for c in jobs]

        def rows(its: list[Any]) -> list[int]:
            return [int(x) for it in its for batch in next(it) for x in batch]

        (alone,) = begin(1)
        want = [[int(x) for x in step[0]] for step in alone]
        self.assertEqual(sorted(sum(want, [])), list(range(50)))
        got, its = [], begin(4)
        for workers, replicas in ((2, 3), (1, 1), (3, 2), (1, 12), (5, 1)):
            got.append(rows(its))
            state = mr.join_states(json.loads(json.dumps([it.state_dict() for it in its])))
            its = begin(workers, replicas)
            for it in its:
                it.load_state_dict(state)
        while len(got) < len(want):
            got.append(rows(its))
        self.assertEqual(got, want)
        with self.assertRaises(StopIteration):
            next(its[0])

    def test_an_epoch_begins_with_other_streams_whatever_was_read(self) -> None:
        def begin(streams: int, batch: int) -> Any:
            return iter(mr.distribute_dataset(mr.range(40).shuffle(10).batch(batch), 2, ALONE, elastic=streams))

        first, reference = begin(4, 8), begin(3, 5)
        at_start, whole, at_end = first.state_dict(), [rows(reference)], None
        rows(first)
        at_end = first.state_dict()
        whole.append(rows(iter(reference)))
        used = begin(3, 5)
        for state, want in ((at_start, whole), (at_end, [[], whole[1]])):
            for it, times in ((begin(3, 5), 1), (begin(3, 5), 2), (used, 1), (used, 2)):
                for _ in range(times):
                    it.load_state_dict(state)
                self.assertEqual([rows(it), rows(iter(it))], want)

    def test_states_of_different_steps_are_not_joined(self) -> None:
        ds = mr.range(50).batch(8)
        first, second = (iter(mr.distribute_dataset(ds, 1, job(2, i), elastic=4)) for i in range(2))
        next(first)
        states = [first.state_dict(), second.state_dict()]
        later = {**states[0], "position": states[0]["position"].replace("0:", "1:", 1)}
        for bad, message in (
            (states, "step"), (states[:1], "no stream 2 of 4"), ([], "no states"), ([states[0], later], r"epochs, \[0, 1\]"),
        ):  # fmt: skip
            with self.subTest(message=message), self.assertRaisesRegex(mr.InvalidArgument, message):
                mr.join_states(bad)
        plain = iter(mr.distribute_dataset(ds, 1, ALONE))
        with self.assertRaisesRegex(mr.FailedPrecondition, "elastic"):
            plain.load_state_dict(states[0])

    def test_the_environment_is_read(self) -> None:
        program = (
            "import millrace as mr; dd = mr.distribute_dataset(mr.range(8).batch(4), 2, policy='data')\n"
            "print(dd.worker, dd.num_workers, [[x.tolist() for x in s] for s in dd])"
        )
        for more, wanted in (
            ({}, "0 1 [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]"),
            ({"TF_CONFIG": json.dumps(job(2, 1))}, "1 2 [[[1], [3]], [[5], [7]]]"),
            (
                {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1234", "LOCAL_RANK": "0"},
                "0 2 [[[0], [2]], [[4], [6]]]",
            ),
        ):
            done = subprocess.run(
                [sys.executable, "-c", program], env=environment(**more), capture_output=True, text=True, check=False
            )
            self.assertEqual(done.stdout.strip(), wanted, done.stderr)
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment(TF_CONFIG="{"), capture_output=True, text=True, check=False
        )
        self.assertIn("InvalidArgument: TF_CONFIG", done.stderr)


class Errors(unittest.TestCase):
    def test_an_element_that_fails_is_told_once(self) -> None:
        ds = mr.range(6).map(lambda x: 10 // (x - 3)).batch(1)
        it = iter(mr.distribute_dataset(ds, 1, ALONE))
        got: list[Any] = []
        for _ in range(10):
            try:
                got.append(next(it)[0].tolist())
            except mr.InvalidArgument as e:
                got.append("error")
                self.assertIn("map", str(e.op))
            except StopIteration:
                break
        self.assertEqual(got.count("error"), 1)
        self.assertEqual(got[-1], [10 // 2])

    def test_a_closed_iterator_ends(self) -> None:
        with mr.distribute_dataset(mr.range(8).batch(4), 2, ALONE).iterator() as it:
            next(it)
        self.assertEqual(list(it), [])
        with self.assertRaises(mr.FailedPrecondition):
            it.state_dict()

    def test_close_ends_a_next_of_another_thread(self) -> None:
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "pipe")
            os.mkfifo(path)
            it = iter(mr.distribute_dataset(mr.text_line(path).batch(2), 2, ALONE))
            got: list[Any] = []
            thread = threading.Thread(target=lambda: got.append(list(it)))
            thread.start()
            with open(path, "w"):
                time.sleep(0.1)
                it.close()
                thread.join(30)
        self.assertEqual(got, [[]])

    def test_ctrl_c_ends_a_wait_and_nothing_is_lost(self) -> None:
        program = """
import os, signal, threading, time
import millrace as mr
def press():
    time.sleep(0.05)
    began.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
many = MANY
left = []
while len(left) != 2:  # else the element was there before the signal: one that takes longer
    slow = mr.range(many).filter(lambda x: mr.fn.sum(mr.fn.zeros([4000], mr.int64) + x) == 4000 * (many - 1))
    it = iter(mr.distribute_dataset(slow.concatenate(mr.range(3)).batch(2), 2, {}))
    began = []
    try:
        threading.Thread(target=press).start()
        next(it)
        time.sleep(100)
    except KeyboardInterrupt:
        in_time = time.monotonic() - began[0] < 60
    left = [[[y - (many - 1) * (y > 2) for y in x.tolist()] for x in step] for step in it]
    many *= 4
print("interrupted", in_time)
print(left)
"""
        program = program.replace("MANY", str(300_000 if not kit.SANITIZED else 3_000))
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.stdout.splitlines(), ["interrupted True", "[[[0], [0]], [[1], [2]]]"], done.stderr)

    def test_ctrl_c_ends_a_wait_for_a_pipe(self) -> None:
        program = """
import os, signal, sys, threading, time
import millrace as mr
dd = mr.distribute_dataset(mr.text_line(sys.argv[1]).batch(2), 2, {})
w = os.open(sys.argv[1], os.O_RDWR)
began = []
def press():
    time.sleep(0.2)
    began.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
try:
    threading.Thread(target=press).start()
    next(iter(dd))
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - began[0] < 60)
"""
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "pipe")
            os.mkfifo(path)
            done = subprocess.run(
                [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=300, check=False
            )
        self.assertEqual(done.stdout.splitlines(), ["interrupted True"], done.stderr)

    def test_a_forked_child_is_refused(self) -> None:
        it = iter(mr.distribute_dataset(mr.range(8).batch(4), 2, job(2, 0), policy="data"))
        next(it)
        kit.settle()
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            try:
                next(it)
            except mr.ForkError:
                os._exit(3)
            os._exit(4)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 3)

    def test_nothing_is_left(self) -> None:
        dd = mr.distribute_dataset(mr.range(100).map(lambda x: x, num_parallel_calls=2).batch(8).prefetch(2), 2, job(2, 0))
        list(dd)
        threads, descriptors = kit.threads(), kit.descriptors()
        for k in range(20):
            it = iter(dd)
            for _ in range(k % 4):
                next(it)
            del it
        gc.collect()
        self.assertLessEqual(kit.wait_for_threads(threads), threads)
        self.assertLessEqual(kit.wait_for_descriptors(descriptors), descriptors)


class Guides(unittest.TestCase):
    """The Python lines of docs/guides.md."""

    def test_every_line_runs(self) -> None:
        found = 0
        with open(os.path.join(kit.SOURCE, "docs", "guides.md")) as f:
            lines = [line for line in f if re.match(r"\| \d+\.\d+ \|", line)]
        for line in lines:
            number = line.split("|")[1].strip()
            for code in re.findall(r"`([^`]*)`", line):
                if "mr." not in code or code.startswith("millrace "):
                    continue
                found += 1
                with self.subTest(row=number, code=code), tempfile.TemporaryDirectory() as d:
                    folder = os.getcwd()
                    os.chdir(d)
                    try:
                        exec(code.replace("\\|", "|"), {"mr": mr, "ds": mr.range(6).batch(4), "np": np})
                    finally:
                        os.chdir(folder)
        self.assertGreater(found, 20)


if __name__ == "__main__":
    kit.main()
