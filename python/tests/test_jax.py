# SPDX-License-Identifier: Apache-2.0
# tier: plain=long
"""Batches as arrays of JAX: four forced devices, two processes, Orbax, a model that is resumed."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Any

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

import kit
import millrace as mr

try:
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from millrace.jax import DataLoader
except ImportError as e:
    jax = None
    why = f"JAX is not installed: {e}"
try:
    import orbax.checkpoint as ocp
except ImportError:
    ocp = None


def data_sharding() -> Any:
    return NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))


def regression(epochs_seed: int = 5) -> Any:
    """Batches of x and y = 3 x0 - 2 x1 + 1, shuffled."""
    x = np.random.default_rng(0).normal(size=(256, 2)).astype(np.float32)
    y = (3 * x[:, 0] - 2 * x[:, 1] + 1).astype(np.float32)
    return mr.from_tensor_slices({"x": x, "y": y}).shuffle(64, seed=epochs_seed).batch(16, drop_remainder=True)


def trained(steps: Any, weights: Any) -> tuple[Any, list[float]]:
    @jax.jit
    def step(w: Any, batch: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.mean((batch["x"] @ w["w"] + w["b"] - batch["y"]) ** 2)

        value, gradient = jax.value_and_grad(loss)(w)
        return jax.tree.map(lambda a, g: a - 0.1 * g, w, gradient), value

    losses = []
    for batch in steps:
        weights, value = step(weights, batch)
        losses.append(float(value))
    return weights, losses


def zeros() -> Any:
    return {"w": jnp.zeros(2), "b": jnp.zeros(())}


@unittest.skipIf(jax is None, why if jax is None else "")
class Arrays(unittest.TestCase):
    def test_batches_lie_on_all_devices(self) -> None:
        ds = mr.range(32).map(lambda x: {"x": x, "y": (x, mr.fn.zeros([3]) + mr.fn.cast(x, "float32"))}).batch(8)
        loader = DataLoader(ds, sharding=data_sharding())
        self.assertEqual(len(loader), 4)
        batches = list(loader)
        self.assertEqual(len(batches), 4)
        self.assertEqual(list(batches[0]), ["x", "y"])
        for i, b in enumerate(batches):
            self.assertIsInstance(b["x"], jax.Array)
            self.assertEqual(len(b["x"].addressable_shards), 4)
            self.assertEqual([s.data.shape for s in b["y"][1].addressable_shards], [(2, 3)] * 4)
            np.testing.assert_array_equal(b["x"], np.arange(8 * i, 8 * i + 8))
            np.testing.assert_array_equal(b["y"][1][:, 2], np.arange(8.0 * i, 8 * i + 8))

    def test_each_component_may_have_its_own_sharding(self) -> None:
        mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
        rows = NamedSharding(mesh, PartitionSpec("data", "model"))
        everywhere = NamedSharding(mesh, PartitionSpec())
        ds = mr.range(8).map(lambda x: {"a": mr.fn.zeros([4]) + mr.fn.cast(x, "float32"), "b": x}).batch(4)
        (first, _) = DataLoader(ds, sharding={"a": rows, "b": everywhere})
        self.assertEqual({s.data.shape for s in first["a"].addressable_shards}, {(2, 2)})
        self.assertEqual({s.data.shape for s in first["b"].addressable_shards}, {(4,)})
        for wrong in ({"a": rows}, {"a": rows, "b": None}, "data"):
            with self.assertRaises(mr.InvalidArgument):
                DataLoader(ds, sharding=wrong)

    def test_every_prefetch_gives_the_same(self) -> None:
        ds = mr.range(40).shuffle(10, seed=1).batch(4)
        want = [np.asarray(b).tolist() for b in DataLoader(mr.from_text(str(ds)), sharding=data_sharding(), prefetch=0)]
        for depth in (1, 2, 20):
            got = DataLoader(mr.from_text(str(ds)), sharding=data_sharding(), prefetch=depth)
            self.assertEqual([np.asarray(b).tolist() for b in got], want)

    def test_each_iterator_is_an_epoch(self) -> None:
        text = "range(40).shuffle(40, seed=1).batch(4)"
        whole = mr.from_text(text)
        want = [[x.tolist() for x in whole] for _ in range(3)]
        loader = DataLoader(mr.from_text(text), sharding=data_sharding())
        loader.get_state()
        self.assertEqual([[np.asarray(b).tolist() for b in loader] for _ in range(3)], want)

    def test_what_cannot_be_an_array_is_named(self) -> None:
        sharding = data_sharding()
        for ds, what in (
            (mr.range(4).map(lambda x: {"name": "a", "x": x}).batch(4), "name has strings"),
            (mr.range(4).map(lambda x: mr.fn.ones([x])).ragged_batch(4), "ragged"),
            (mr.range(4).window(2), "dataset"),
        ):
            with self.assertRaisesRegex(mr.InvalidArgument, what):
                DataLoader(ds, sharding=sharding)
        it = iter(DataLoader(mr.range(10).map(lambda x: {"x": x}).batch(8), sharding=sharding))
        next(it)
        with self.assertRaisesRegex(mr.InvalidArgument, "(?s)x: a batch of shape \\(2,\\).*drop_remainder"):
            next(it)
        self.assertEqual(next(it, None), None)

    def test_integers_of_64_bits_are_not_cut(self) -> None:
        sharding = data_sharding()
        ds = mr.from_tensor_slices(np.array([1, 2, 3, -(2**31)])).batch(4)
        (x,) = DataLoader(ds, sharding=sharding)
        self.assertEqual((x.dtype, x.tolist()), (jnp.int32, [1, 2, 3, -(2**31)]))
        big = mr.from_tensor_slices(np.array([1, 2, 3, 2**40])).batch(4)
        with self.assertRaisesRegex(mr.OutOfRange, "jax_enable_x64"):
            next(iter(DataLoader(big, sharding=sharding)))
        with self.assertRaisesRegex(mr.OutOfRange, "1099511627776 does not fit"):
            next(big.iterator(format="jax"))
        with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
            (x,) = big.iterator(format="jax")
            self.assertEqual((x.dtype, x.tolist()), (jnp.int64, [1, 2, 3, 2**40]))

    def test_errors_of_elements_are_passed_on(self) -> None:
        ds = mr.range(12).map(lambda x: mr.fn.cast(12 // (x - 5), "int32")).batch(4, drop_remainder=True)
        it = iter(DataLoader(ds, sharding=data_sharding()))
        got, errors = [], 0
        while True:
            try:
                got.append(np.asarray(next(it)).tolist())
            except StopIteration:
                break
            except mr.Error:
                errors += 1
        want, n = [], 0
        plain = iter(mr.from_text(str(ds)))
        while True:
            try:
                want.append(next(plain).tolist())
            except StopIteration:
                break
            except mr.Error:
                n += 1
        self.assertEqual((got, errors), (want, n))
        self.assertEqual(errors, 1)

    def test_the_format_jax(self) -> None:
        ds = mr.range(4).map(lambda x: {"x": x, "y": (mr.fn.zeros([2]) + mr.fn.cast(x, "float32"), "s")})
        x = list(ds.iterator(format="jax"))[3]
        self.assertIsInstance(x["x"], jax.Array)
        self.assertEqual((x["x"].shape, int(x["x"])), ((), 3))
        self.assertEqual(x["y"][0].tolist(), [3, 3])
        self.assertEqual(x["y"][1], b"s")
        (x,) = mr.range(3).map(lambda x: mr.fn.cast(x, "bfloat16") / 2).batch(3).iterator(format="jax")
        self.assertEqual((x.dtype, x.tolist()), (jnp.bfloat16, [0, 0.5, 1]))
        (r,) = mr.range(3).map(lambda n: mr.fn.ones([n])).ragged_batch(3).iterator(format="jax")
        self.assertIsInstance(r.values, jax.Array)
        self.assertEqual(r.to_list(), [[], [1], [1, 1]])


@unittest.skipIf(jax is None, why if jax is None else "")
class Memory(unittest.TestCase):
    def test_arrays_keep_their_values(self) -> None:
        def make(i: int) -> Any:
            return mr.range(64 * i, 64 * i + 64).map(lambda x: mr.fn.zeros([256]) + mr.fn.cast(x, "float32")).batch(8)

        kept = [b for i in range(4) for b in DataLoader(make(i), sharding=data_sharding())]
        kept += [b for i in range(4) for b in make(i).iterator(format="jax")]
        for i in range(20):
            for _ in make(i + 100):
                pass
        gc.collect()
        for n, b in enumerate(kept):
            want = np.arange(8) + 8 * (n % 32)
            np.testing.assert_array_equal(np.asarray(b)[:, 100], want)

    def test_donated_arrays_of_a_cache_do_not_change_it(self) -> None:
        double = jax.jit(lambda x: x * 2, donate_argnums=0)
        for make in (
            lambda ds: DataLoader(ds, sharding=data_sharding()),
            lambda ds: DataLoader(ds, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])),
            lambda ds: ds.iterator(format="jax"),
        ):
            ds = mr.range(64).map(lambda x: mr.fn.zeros([64]) + mr.fn.cast(x, "float32")).batch(16).cache()
            for _ in range(3):
                got = [np.asarray(double(b))[:, 5].tolist() for b in make(ds)]
                self.assertEqual(sum(got, []), [2 * x for x in range(64)])


@unittest.skipIf(jax is None, why if jax is None else "")
class Positions(unittest.TestCase):
    def test_a_loader_goes_on_from_any_batch(self) -> None:
        text = "range(60).shuffle(20, seed=3).map(x => x * 2).batch(4).prefetch(2)"
        for depth in (0, 3):
            whole = DataLoader(mr.from_text(text), sharding=data_sharding(), prefetch=depth)
            first = [np.asarray(b).tolist() for b in whole]
            second = [np.asarray(b).tolist() for b in whole]
            for n in (0, 1, 7, 15):
                loader = DataLoader(mr.from_text(text), sharding=data_sharding(), prefetch=depth)
                it = iter(loader)
                head = [np.asarray(next(it)).tolist() for _ in range(n)]
                state = json.loads(json.dumps(loader.get_state()))
                self.assertEqual(state, json.loads(json.dumps(it.get_state())))
                again = DataLoader(mr.from_text(text), sharding=data_sharding(), prefetch=1)
                again.set_state(state)
                self.assertEqual(head + [np.asarray(b).tolist() for b in again], first)
                self.assertEqual([np.asarray(b).tolist() for b in again], second)
                it.set_state(state)
                self.assertEqual(head + [np.asarray(b).tolist() for b in it], first)

    def test_wrong_states_are_refused(self) -> None:
        loader = DataLoader(mr.range(8).batch(4), sharding=data_sharding())
        state = loader.get_state()
        other = DataLoader(mr.range(12).batch(4), sharding=data_sharding())
        for wrong in (None, {}, {**state, "version": 9}, state["iterator"]):
            with self.assertRaises(mr.InvalidArgument):
                loader.set_state(wrong)  # type: ignore[arg-type]
        with self.assertRaisesRegex(mr.InvalidArgument, "another graph"):
            other.set_state(state)

    def test_a_model_is_resumed_with_the_same_losses(self) -> None:
        loader = DataLoader(regression(), sharding=data_sharding())
        weights, losses = zeros(), []
        for _ in range(3):
            weights, some = trained(loader, weights)
            losses += some
        self.assertLess(losses[-1], losses[0] / 100)
        loader = DataLoader(regression(), sharding=data_sharding())
        weights, first = trained(loader, zeros())
        it = iter(loader)
        weights, more = trained((next(it) for _ in range(5)), weights)
        saved = jax.tree.map(np.asarray, weights), json.dumps(it.get_state())
        del it, loader
        loader = DataLoader(regression(), sharding=data_sharding())
        loader.set_state(json.loads(saved[1]))
        weights = saved[0]
        rest = []
        for _ in range(2):
            weights, some = trained(loader, weights)
            rest += some
        self.assertEqual(first + more + rest, losses)

    @unittest.skipIf(ocp is None, "Orbax is not installed")
    def test_orbax_saves_positions(self) -> None:
        from millrace.jax import CheckpointRestore, CheckpointSave

        loader = DataLoader(regression(), sharding=data_sharding())
        it = iter(loader)
        weights, _ = trained((next(it) for _ in range(5)), zeros())
        with tempfile.TemporaryDirectory() as folder:
            with ocp.CheckpointManager(folder) as manager:
                manager.save(
                    5, args=ocp.args.Composite(model=ocp.args.StandardSave(weights), data=CheckpointSave(loader))
                )
                manager.wait_until_finished()
            _, want = trained(it, weights)
            again = DataLoader(regression(), sharding=data_sharding())
            with ocp.CheckpointManager(folder) as manager:
                back = manager.restore(
                    5,
                    args=ocp.args.Composite(model=ocp.args.StandardRestore(zeros()), data=CheckpointRestore(again)),
                )
            self.assertIs(back["data"], again)
            _, got = trained(again, jax.tree.map(np.asarray, back["model"]))
            self.assertEqual(len(got), 11)
            self.assertEqual(got, want)


@unittest.skipIf(jax is None, why if jax is None else "")
class Life(unittest.TestCase):
    def test_nothing_is_left_of_dropped_iterators(self) -> None:
        loader = DataLoader(mr.range(1000).batch(4).prefetch(4), sharding=data_sharding())
        for _ in loader:
            pass
        gc.collect()
        before, open_before = threading.active_count(), kit.descriptors()
        for i in range(30):
            it = iter(DataLoader(mr.range(1000).batch(4).prefetch(4), sharding=data_sharding(), prefetch=i % 4))
            for _ in range(i % 7):
                next(it)
            del it
        for _ in loader:
            break
        del loader, _
        gc.collect()
        self.assertLessEqual(threading.active_count(), before)
        self.assertLessEqual(kit.wait_for_descriptors(open_before), open_before)
        with iter(DataLoader(mr.range(100).batch(4), sharding=data_sharding())) as it:
            next(it)
        self.assertEqual(next(it, None), None)

    def test_an_interrupt_ends_a_wait(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "fifo")
            os.mkfifo(fifo)
            keep = os.open(fifo, os.O_RDWR)
            ds = mr.text_line(fifo).map(lambda s: mr.fn.cast(s == b"", "int32")).batch(4)
            it = iter(DataLoader(ds, sharding=data_sharding()))
            began = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                next(it)
            self.assertLess(time.monotonic() - began, 60)
            del it
            os.close(keep)


PROCESS = """
import json, sys
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import millrace as mr
from jax.sharding import NamedSharding, PartitionSpec
from millrace.jax import CheckpointRestore, CheckpointSave, DataLoader

sharding = NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))


def make():
    ds = mr.range(64).shuffle(64, seed=2).shard(jax.process_count(), jax.process_index())
    return DataLoader(ds.map(lambda x: {"x": mr.fn.cast(x, "float32")}).batch(4, drop_remainder=True), sharding=sharding)


@jax.jit
def step(w, x):
    return w * 0.9 + jnp.sum(x), jnp.sum(x)


def run(w, batches):
    sums = []
    for b in batches:
        assert b["x"].shape == (8,) and not b["x"].is_fully_addressable
        assert [s.data.shape for s in b["x"].addressable_shards] == [(2,), (2,)]
        w, s = step(w, b["x"])
        sums.append(float(s))
    return w, sums


loader = make()
it = iter(loader)
w, first = run(jnp.zeros(()), (next(it) for _ in range(3)))
manager = ocp.CheckpointManager(sys.argv[3])
manager.save(3, args=ocp.args.Composite(data=CheckpointSave(loader)))
manager.wait_until_finished()
_, rest = run(w, it)
again = make()
manager.restore(3, args=ocp.args.Composite(data=CheckpointRestore(again)))
_, resumed = run(w, again)
assert rest == resumed and len(rest) == 5, (rest, resumed)
assert sum(first + rest) == sum(range(64)), (first, rest)
print("losses", json.dumps(first + rest))
"""


# Each line is an epoch: how many steps there were, and how it ended.
UNEQUAL = """
import sys
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
import jax.numpy as jnp
import numpy as np
import millrace as mr
from jax.sharding import NamedSharding, PartitionSpec
from millrace.jax import DataLoader

me = jax.process_index()
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
sharding = NamedSharding(mesh, PartitionSpec("data"))
total = jax.jit(jnp.sum)


def epoch(ds, **options):
    n = 0
    it = iter(DataLoader(ds, sharding=sharding, **options))
    try:
        for b in it:
            total(b).block_until_ready()
            n += 1
        end = "end"
    except mr.Error as e:
        end = f"{type(e).__name__}: {e}"
        assert list(it) == []
    print("steps", n, end, flush=True)


def of(batches):
    return mr.range(8 * batches).filter(lambda x: x >= 0).batch(8)


epoch(of(3))
epoch(of(5 + me))
epoch(of(7 - me), prefetch=0)
epoch(of(0 if me else 1))
epoch(mr.range(40).map(lambda x: x // (x - 20 if me else 1)).batch(8))
it = iter(DataLoader(of(9), sharding=sharding))  # closed while its thread is ahead of the other's
for _ in range(2):
    next(it)
it.close()
local = NamedSharding(jax.sharding.Mesh(np.array(jax.local_devices()), ("data",)), PartitionSpec("data"))
assert len(list(DataLoader(of(1 + me), sharding=local))) == 1 + me  # no global arrays: each for itself
epoch(of(2))
"""


@unittest.skipIf(jax is None, why if jax is None else "")
class Processes(unittest.TestCase):
    def run_two(self, text: str) -> list[list[str]]:
        address = f"127.0.0.1:{kit.free_port()}"
        env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        with tempfile.TemporaryDirectory() as folder:
            running = [
                subprocess.Popen(
                    [sys.executable, "-c", text, address, str(i), folder],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=env,
                )
                for i in range(2)
            ]
            results = []
            try:
                results = [p.communicate(timeout=240) for p in running]
            finally:
                for p in running:
                    p.kill()
        for p, (_, err) in zip(running, results, strict=True):
            self.assertEqual(p.returncode, 0, err[-3000:])
        return [out.splitlines() for out, _ in results]

    @unittest.skipIf(ocp is None, "Orbax is not installed")
    def test_two_processes_make_one_batch(self) -> None:
        lines = [[line for line in out if line.startswith("losses")] for out in self.run_two(PROCESS)]
        self.assertEqual(lines[0], lines[1])

    def test_unequal_batches_are_an_error_of_all_processes(self) -> None:
        chief, other = ([line for line in out if line.startswith("steps")] for out in self.run_two(UNEQUAL))
        wanted = [
            "steps 3 end",
            "steps 5 FailedPrecondition: process 0 has 5 batches, and process 1 has more; ",
            "steps 6 FailedPrecondition: process 1 has 6 batches, and process 0 has more; ",
            "steps 0 FailedPrecondition: process 1 has 0 batches, and process 0 has more; ",
            "steps 2 FailedPrecondition: process 1 failed at batch 2, counted from 0: ",
            "steps 2 end",
        ]
        self.assertEqual([line[: len(w)] for line, w in zip(chief, wanted, strict=True)], wanted)
        self.assertIn("division by zero", other[4])
        self.assertNotIn("process", other[4])
        self.assertEqual(other[:4] + other[5:], chief[:4] + chief[5:])


@unittest.skipIf(jax is None, why if jax is None else "")
class Example(unittest.TestCase):
    def run_example(self, *arguments: str) -> list[str]:
        path = os.path.join(kit.SOURCE, "examples/python/jax_tokens.py")
        out = subprocess.run([sys.executable, path, *arguments], capture_output=True, text=True, timeout=300)
        self.assertEqual(out.returncode, 0, out.stderr[-3000:])
        return out.stdout.splitlines()

    def test_tokens_are_packed_and_a_run_goes_on(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "text")
            with open(file, "w") as f:
                for i in range(2000):
                    f.write(f"document {i} of many " * (i % 5) + "\n")
            whole = self.run_example("--steps", "60", "--work", f"{folder}/a", file)
            losses = [float(line.split()[-1]) for line in whole]
            self.assertEqual(len(losses), 60)
            self.assertLess(losses[-1], losses[0] * 0.7)
            parts = self.run_example("--steps", "25", "--work", f"{folder}/b", file)
            parts += self.run_example("--steps", "60", "--work", f"{folder}/b", file)
            self.assertEqual(parts, whole)


if __name__ == "__main__":
    kit.main()
