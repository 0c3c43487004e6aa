# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""What remains: no thread, process, descriptor, file or shared memory, however iterators end; forks
and the end of the interpreter."""

from __future__ import annotations

import atexit
import gc
import inspect
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from typing import Any

import numpy as np

import kit
import millrace as mr

MANY = 1000 if not kit.SANITIZED else 100
GRAPHS = [
    "range(100).map(x => x + 1, num_parallel_calls=2).shuffle(10).batch(4).prefetch(2)",
    "range(100).interleave(x => range(x, x + 3), cycle_length=3, num_parallel_calls=2).prefetch(1)",
    'text_line("lines").shuffle(5).batch(2).prefetch(2)',
    "range(50).cache().batch(3)",
    'text_line("lines").cache("cached").prefetch(1)',
    "range(100).map(x => 100 // (x - 20), num_parallel_calls=2).batch(2).prefetch(2)",
]


# Its own, since other tests run at the same time.
if "MR_LIFETIME_FOLDER" not in os.environ:
    os.environ["MR_LIFETIME_FOLDER"] = tempfile.mkdtemp(prefix="millrace-lifetime-")
os.environ["TMPDIR"] = tempfile.tempdir = os.environ["MR_LIFETIME_FOLDER"]
atexit.register(shutil.rmtree, os.environ["TMPDIR"], True)


class Left:
    """What this process has, its temporary files and shared memory included."""

    def __init__(self) -> None:
        gc.collect()
        self.threads = kit.threads()
        self.descriptors = kit.descriptors()
        self.children = children()
        self.files = files()

    def check(self, test: unittest.TestCase) -> None:
        gc.collect()
        test.assertLessEqual(kit.wait_for_threads(self.threads), self.threads, "threads are left")
        test.assertLessEqual(kit.wait_for_descriptors(self.descriptors), self.descriptors, f"descriptors are left: {opened()}")
        test.assertLessEqual(children(), self.children, "processes are left")
        test.assertLessEqual(files() - self.files, set(), "files are left")


def children() -> set[str]:
    found: set[str] = set()
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as f:
                found.update(f.read().split())
        except OSError:
            pass  # the thread has ended, or the kernel does not tell
    return found


def files() -> set[str]:
    """In the folder of temporary files of this program, and among shared memory."""
    found = set()
    for folder in {"/dev/shm", os.environ["TMPDIR"]}:
        if os.path.isdir(folder):
            found |= {os.path.join(folder, n) for n in os.listdir(folder) if "millrace" in n or n.startswith("mr-")}
    return found


def opened() -> list[str]:
    out = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            out.append(f"{fd}: {os.readlink('/proc/self/fd/' + fd)}")
        except OSError:
            pass
    return out


class InFolder(unittest.TestCase):
    def setUp(self) -> None:
        self.before = os.getcwd()
        self.folder = tempfile.TemporaryDirectory()
        os.chdir(self.folder.name)
        with open("lines", "w") as f:
            f.writelines(f"line {i}\n" for i in range(100))

    def tearDown(self) -> None:
        os.chdir(self.before)
        self.folder.cleanup()


class Dropped(InFolder):
    def test_iterators_dropped_anywhere_leave_nothing(self) -> None:
        draw = random.Random(1)
        shared = [mr.from_text(g) for g in GRAPHS]
        for ds in shared:
            next(iter(ds))
        left = None
        for i in range(MANY):
            if i == 20:
                left = Left()
            n = i % len(GRAPHS)
            ds = shared[n] if draw.random() < 0.5 else mr.from_text(GRAPHS[n])
            it = ds.iterator(threads=draw.choice([None, 0, 2]))
            try:
                for _ in range(draw.randrange(8)):
                    next(it)
            except (StopIteration, mr.Error):
                pass
            if draw.random() < 0.2:
                it.close()
            elif draw.random() < 0.2:
                it.state_dict()
            del it
        assert left is not None
        del ds
        left.check(self)
        del shared
        left.check(self)

    def test_a_dataset_between_two_epochs_has_no_threads(self) -> None:
        for text in GRAPHS[:3]:
            ds = mr.from_text(text)
            before, others = kit.threads(), kit.thread_ids()
            it = iter(ds)
            next(it)
            self.assertTrue(kit.thread_ids() - others)
            del it
            self.assertLessEqual(kit.wait_for_threads(before), before)
            list(ds)
            self.assertLessEqual(kit.wait_for_threads(before), before)

    def test_exceptions_in_loops_leave_nothing(self) -> None:
        left = Left()
        for i in range(60):
            try:
                for j, _ in enumerate(mr.from_text(GRAPHS[i % len(GRAPHS)])):
                    if j == i % 5:
                        raise KeyError("of the program")
            except (KeyError, mr.Error):
                pass
        left.check(self)

    def test_iterators_in_cycles_leave_nothing(self) -> None:
        left = Left()
        for i in range(60):
            it = iter(mr.from_text(GRAPHS[i % 4]))
            next(it)
            holder: dict[str, Any] = {"it": it}
            holder["me"] = holder
            it.holder = holder  # type: ignore[attr-defined]
            del it, holder
        left.check(self)

    def test_failed_constructions_leave_nothing(self) -> None:
        next(mr.range(3).iterator())
        left = Left()
        for _ in range(50):
            for text in (
                'text_line("absent").prefetch(2)',
                "range(10).map(x => x, num_parallel_calls=2).batch(2)",
            ):
                it = mr.from_text(text).iterator(memory_limit=100)
                with self.assertRaises(mr.Error):
                    next(it)
            with self.assertRaises(mr.Error):
                next(mr.range(3).iterator(threads=-1))
            with self.assertRaises(mr.Error):
                next(mr.range(3).iterator(ledger="absent/ledger"))
            it = iter(mr.from_text(GRAPHS[2]))
            with self.assertRaises(mr.Error):
                it.load_state_dict({"version": 1, "position": "0:AAAA"})
            next(it)
            with self.assertRaises(mr.Error):
                it.load_state_dict({"version": 1, "position": "0:AAAA"})
        del it
        left.check(self)

    def test_a_stream_freed_while_an_exception_is_raised_keeps_that(self) -> None:
        freed: list[Any] = []

        class Make:
            def __call__(self) -> Any:
                return iter([1, 2])

            def __del__(self) -> None:
                try:
                    {}["x"]
                except KeyError:
                    freed.append(sys.exc_info()[0])

        with self.assertRaises(IndexError):
            [mr.from_generator(Make(), mr.int64).__arrow_c_stream__()][7]
        self.assertEqual(len(freed), 1)

    def test_memory_of_dropped_iterators_returns(self) -> None:
        resident = []
        for i in range(MANY):
            it = iter(mr.from_text(GRAPHS[i % len(GRAPHS)]))
            try:
                next(it)
            except mr.Error:
                pass
            del it
            if i in (MANY // 4, MANY - 1):
                gc.collect()
                resident.append(kit.resident())
        self.assertLess(resident[1] - resident[0], (64 if kit.SANITIZED else 8) << 20)

    def test_threads_share_a_dataset(self) -> None:
        """Its engine goes from one iterator to another."""
        ds = mr.range(20).shuffle(20, seed=1).batch(4)
        failures: list[BaseException] = []

        def run() -> None:
            try:
                for _ in range(40):
                    got = np.sort(np.concatenate(list(ds)))
                    assert got.tolist() == list(range(20)), got
                    it = iter(ds)
                    next(it)
                    it.close()
            except BaseException as e:
                failures.append(e)

        left = Left()
        workers = [threading.Thread(target=run) for _ in range(4)]
        for w in workers:
            w.start()
        for w in workers:
            w.join(60)
        self.assertEqual(failures, [])
        left.check(self)

    def test_threads_use_an_iterator_in_all_ways(self) -> None:
        it = iter(mr.range(3000).shuffle(10, seed=1).prefetch(2))
        failures: list[BaseException] = []
        got: list[int] = []

        def run(call: Any) -> None:
            try:
                while call():
                    pass
            except StopIteration:
                pass
            except BaseException as e:
                failures.append(e)

        running = [True]

        def look() -> bool:
            it.state_dict()
            it.stats()
            repr(it)
            return running[0]

        lookers = [threading.Thread(target=run, args=(look,)) for _ in range(2)]
        takers = [threading.Thread(target=run, args=(lambda: got.append(int(next(it))) or True,)) for _ in range(2)]
        for w in lookers + takers:
            w.start()
        for w in takers:
            w.join(60)
        running[0] = False
        for w in lookers:
            w.join(60)
        self.assertEqual(failures, [])
        self.assertEqual(sorted(got), list(range(3000)))

    def test_finalizers_may_drop_iterators_during_next(self) -> None:
        """The collector runs while next makes objects, and drops other iterators of the dataset."""
        ds = mr.range(200).map(lambda x: (x, [x, x])).prefetch(1)
        threshold = gc.get_threshold()
        gc.set_threshold(3)
        try:
            for _ in range(20):
                other = iter(ds)
                next(other)
                cycle: list[Any] = [other]
                cycle.append(cycle)
                del other, cycle
                self.assertEqual(len(list(ds)), 200)
        finally:
            gc.set_threshold(*threshold)


def in_child(script: str, *, env: dict[str, str] | None = None, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Runs a program that imports millrace as mr, in a separate session."""
    head = f"import gc, os, signal, sys, threading, time\nimport millrace as mr\n{inspect.getsource(kit.settle)}\n"
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", head + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**kit.python_environment(), **(env or {})},
        start_new_session=True,
    )


class Forks(InFolder):
    def child(self, f: Any) -> int:
        """The exit status of f() in a forked child, which must not hang."""
        kit.settle()
        pid = os.fork()
        if pid == 0:
            status = 99
            try:
                status = f() or 0
            except BaseException as e:
                print(f"in the child: {e!r}", file=sys.stderr)
            finally:
                os._exit(status)
        for _ in range(600):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.fail("the child hangs")

    def test_iterators_of_the_parent_are_refused_at_once(self) -> None:
        for text in GRAPHS:
            ds = mr.from_text(text)
            it = iter(ds)
            next(it)
            ended = iter(ds)
            unused = iter(ds)
            state = it.state_dict()
            kept = next(it)

            def use(it: Any = it, unused: Any = unused, ended: Any = ended, ds: Any = ds, kept: Any = kept) -> int:
                calls = (
                    lambda: next(it),  # noqa: F821 (deleted below)
                    lambda: next(unused),  # noqa: F821
                    it.state_dict,
                    it.stats,
                    lambda: it.load_state_dict(state),  # noqa: F821
                    lambda: it.trace("t"),  # noqa: F821
                )
                for number, call in enumerate(calls):
                    try:
                        call()
                    except mr.ForkError as e:
                        if e.code != "FAILED_PRECONDITION" or "after the fork" not in str(e):
                            return 50 + number
                    else:
                        return 40 + number
                it.close()
                repr(kept)
                for _ in mr.range(10).batch(2).prefetch(1):
                    pass
                if "cached" in str(ds):  # the parent writes the file
                    return 0
                new = iter(ds)  # the same Dataset object
                new.load_state_dict(state)
                next(new)
                new.close()
                del it, unused, ended, new, kept
                gc.collect()
                return 0

            with self.subTest(text=text):
                self.assertEqual(self.child(use), 0)
                next(it)  # the parent's still works

    @unittest.skipIf(kit.SANITIZED, "AddressSanitizer is not whole after fork: its allocator may be locked there")
    def test_new_iterators_work_however_busy_the_parent_is(self) -> None:
        stop = False

        def busy(number: int) -> None:
            while not stop:
                for _ in mr.from_text(GRAPHS[number % 4]).iterator(threads=2):
                    if stop:
                        break

        workers = [threading.Thread(target=busy, args=(i,)) for i in range(3)]
        for w in workers:
            w.start()
        shared = mr.from_text(GRAPHS[0])
        open_iterator = iter(shared)
        next(open_iterator)

        def use() -> int:
            for text in GRAPHS[:4]:
                if not list(mr.from_text(text)):
                    return 1
            return 0 if len(list(shared)) == 25 else 2

        try:
            for _ in range(20):
                self.assertEqual(self.child(use), 0)
        finally:
            stop = True
            for w in workers:
                w.join(60)

    def test_a_child_that_ends_normally_does_not_hang(self) -> None:
        """With its own exit of the interpreter: finalizers of the parent's iterators run there."""
        done = in_child(
            """
            ds = mr.from_text("range(1000).map(x => x, num_parallel_calls=2).prefetch(2)")
            it = iter(ds); next(it)
            stream = ds.__arrow_c_stream__()
            settle()
            pid = os.fork()
            if pid == 0:
                try:
                    next(it)
                except mr.ForkError:
                    print("refused", flush=True)
                print(len(list(mr.range(3).prefetch(1))), flush=True)
                sys.exit(7)
            _, status = os.waitpid(pid, 0)
            print(os.waitstatus_to_exitcode(status), next(it))
            """,
            # What only the stacks of the parent's threads refer to counts as leaked in the child.
            env={"ASAN_OPTIONS": kit.PRELOAD["ASAN_OPTIONS"] + ":detect_leaks=0"} if kit.SANITIZED else None,
        )
        self.assertEqual((done.returncode, done.stdout.split()), (0, ["refused", "3", "7", "1"]), done.stderr)
        self.assertEqual(done.stderr, "")

    def test_a_pool_of_forked_processes(self) -> None:
        ds = mr.range(40).shuffle(8, seed=1).batch(4).prefetch(1)
        it = iter(ds)
        next(it)
        global work

        def work(n: int) -> int:
            try:
                next(it)
            except mr.ForkError:
                return int(sum(int(x.sum()) for x in ds.take(5 + n - n)))
            return -1

        context = multiprocessing.get_context("fork")
        kit.settle()
        with context.Pool(2) as pool:
            found = pool.map(work, range(6), chunksize=1)
            pool.close()
            pool.join()
        self.assertNotIn(-1, found)
        next(it)
        it.close()

    def test_forks_from_threads_and_within_loops(self) -> None:
        it = iter(mr.range(100).prefetch(2))
        results: list[int] = []

        def fork() -> None:
            results.append(self.child(lambda: 0 if list(mr.range(5).prefetch(1)) == [0, 1, 2, 3, 4] else 1))

        for i, _ in enumerate(it):
            if i % 30 == 0:
                w = threading.Thread(target=fork)
                w.start()
                w.join()
        self.assertEqual(results, [0] * 4)

    def test_interrupts_in_a_child_are_its_own(self) -> None:
        def use() -> int:
            os.mkfifo("f")
            keep = os.open("f", os.O_RDWR)
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                next(iter(mr.text_line("f")))
            except KeyboardInterrupt:
                os.close(keep)
                return 0
            return 1

        it = iter(mr.range(10).prefetch(1))
        next(it)
        self.assertEqual(self.child(use), 0)


class Ends(InFolder):
    """The end of the interpreter: no crash, no hang, no message, nothing left."""

    def ends(self, script: str, *, status: int = 0, err: str | None = "") -> str:
        with tempfile.TemporaryDirectory() as scratch:
            done = in_child(script, env={"TMPDIR": scratch})
            self.assertEqual(done.returncode, status, done.stderr)
            if err is not None:
                self.assertEqual(done.stderr, err)
            self.assertEqual(os.listdir(scratch), [])
        return done.stdout

    def test_with_open_iterators(self) -> None:
        for text in GRAPHS:
            if "cache" in text:  # which logs that it was not completed
                self.ends(f"it = iter(mr.from_text({text!r})); next(it)", err=None)
                continue
            self.ends(f"it = iter(mr.from_text({text!r})); next(it)")
            self.ends(f"its = [iter(mr.from_text({text!r})) for _ in range(3)]; [next(i) for i in its]; its.append(its)")

    def test_with_threads_in_next(self) -> None:
        self.ends(
            """
            os.mkfifo("f"); keep = os.open("f", os.O_RDWR)
            its = [iter(mr.text_line("f")), iter(mr.text_line("f").batch(2).prefetch(1)), iter(mr.range(10).repeat().map(lambda x: x + 1))]
            for it in its:
                threading.Thread(target=lambda it=it: [None for x in it], daemon=True).start()
            time.sleep(0.3)
            """
        )

    def test_with_daemon_threads_that_open_iterators(self) -> None:
        """Iterators are dropped while the interpreter closes all of them."""
        for _ in range(5):
            self.ends(
                """
                def work():
                    while True:
                        for x in mr.range(20).map(lambda x: x + 1, num_parallel_calls=2).batch(3).prefetch(1):
                            pass
                for _ in range(3):
                    threading.Thread(target=work, daemon=True).start()
                time.sleep(0.3)
                """,
                err=None,
            )

    def test_order_of_atexit(self) -> None:
        out = self.ends(
            """
            import atexit
            it = iter(mr.range(10).prefetch(1))
            next(it)
            def later():  # registered after millrace: runs before its own
                print(next(it), len(list(mr.range(3))))
            atexit.register(later)
            """
        )
        self.assertEqual(out.split(), ["1", "3"])
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                textwrap.dedent(
                    """
                    import atexit
                    holder = []
                    def last():  # registered before millrace: runs after its own
                        print(next(holder[0], "closed"))
                        try:
                            next(iter(mr.range(3)))
                        except RuntimeError as e:
                            print(e)
                    atexit.register(last)
                    import millrace as mr
                    holder.append(iter(mr.range(10).prefetch(1)))
                    next(holder[0])
                    """
                ),
            ],
            capture_output=True,
            text=True,
            timeout=600,
            env=kit.python_environment(),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "closed")
        self.assertIn("the interpreter is ending", lines[1])

    def test_by_exceptions_and_signals(self) -> None:
        body = "it = iter(mr.from_text('range(100).map(x => x, num_parallel_calls=2).prefetch(2)')); next(it)\n"
        self.ends(body + "sys.exit(3)", status=3)
        self.ends(body + "raise ValueError('x')", status=1, err=None)
        self.ends(body + "os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", status=-signal.SIGTERM, err=None)

    def test_finalizers_at_the_end_may_use_iterators(self) -> None:
        self.ends(
            """
            class Late:
                def __init__(self): self.it = iter(mr.range(10)); next(self.it)
                def __del__(self): next(self.it, None)
            sys.late = Late()
            """,
            err=None,
        )

    def test_a_main_module_that_is_cleared_last(self) -> None:
        """As where a library, such as torch, keeps it."""
        self.ends(
            """
            import ctypes
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules["__main__"]))
            ds = mr.range(10).map(lambda x: x + 1).prefetch(2)
            for _ in ds: pass
            it = iter(ds); next(it)
            """
        )

    def test_no_process_or_shared_memory_remains(self) -> None:
        before = files()
        for text in GRAPHS[:3]:
            self.ends(f"it = iter(mr.from_text({text!r})); next(it); os._exit(0)")
        self.assertLessEqual(files() - before, set())


if __name__ == "__main__":
    kit.main()
