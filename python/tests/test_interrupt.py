# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""Ctrl-C: it ends whatever waits in the library, and the iterator then continues without loss."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import kit
import millrace as mr

BOUND = 20.0  # in seconds, from SIGINT to KeyboardInterrupt; it takes 0.1
TRIES = 5
LINES = 12

# F: a pipe whose lines come slowly.
GRAPHS = [
    "F",
    "F.batch(3)",
    "F.padded_batch(3)",
    "F.ragged_batch(3).rebatch(2)",
    "F.map(x => x, num_parallel_calls=2).batch(2).prefetch(2)",
    "F.shuffle(3, seed=1)",
    "zip(range(100), F).batch(2)",
    "F.enumerate()",
    "F.cache()",
    "F.batch(2).rebatch(3)",
    "F.interleave(x => from_tensors(x), cycle_length=2)",
    'from_tensor_slices(["f"]).flat_map(f => text_line(f))',
    "F.scan(0, (s, x) => (s + 1, (s, x)))",
    "F.group_by_window(x => 0, (k, d) => d.batch(2), window_size=4)",
]


def show(x: Any) -> str:
    return str(kit.as_json(x))


@contextlib.contextmanager
def folder() -> Iterator[str]:
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as path:
        os.chdir(path)
        try:
            yield path
        finally:
            os.chdir(before)


@contextlib.contextmanager
def handler_of_interrupts(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_soon(seconds: float = 0.15) -> threading.Timer:
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    return timer


class Signals:
    """A handler of SIGINT, and what sends the signal; `sent` of them have come."""

    def __init__(self) -> None:
        self.raises = False  # within the call that shall be interrupted
        self.came = threading.Semaphore(0)
        self.sent = 0

    def handle(self, *_: Any) -> None:
        self.came.release()
        if self.raises:
            self.raises = False
            raise KeyboardInterrupt

    def send(self) -> None:
        """Returns when the handler has run, so that a busy machine does not merge two."""
        os.kill(os.getpid(), signal.SIGINT)
        if self.came.acquire(timeout=60):
            self.sent += 1

    def take(self, it: Iterator[Any], n: int | None = None) -> list[Any]:
        """Up to n elements, while signals raise. What takes them is C, which loses none."""
        got: list[Any] = []
        elements = itertools.islice(it, n)
        while True:
            try:
                self.raises = True
                got.extend(elements)
                self.raises = False
                return got
            except KeyboardInterrupt:
                elements = itertools.islice(it, None if n is None else n - len(got))


class Pipe:
    """Lines that a thread writes to the FIFO "f", in pieces, with interrupts within them."""

    def __init__(self, seed: int, signals: Signals) -> None:
        with open("f", "w") as f:
            f.writelines(f"line {i}\n" for i in range(LINES))
        self.random = random.Random(seed)
        self.signals = signals

    def want(self, text: str) -> list[str]:
        return [show(x) for x in mr.from_text(text)]

    def start(self) -> None:
        os.unlink("f")
        os.mkfifo("f")
        self.pipe = os.open("f", os.O_RDWR)
        self.writer = threading.Thread(target=self._write, daemon=True)
        self.writer.start()

    def _write(self) -> None:
        for i in range(LINES):
            line = f"line {i}\n".encode()
            half = self.random.randrange(len(line))
            os.write(self.pipe, line[:half])
            time.sleep(0.005)
            if i % 3:
                self.signals.send()
            os.write(self.pipe, line[half:])
        os.close(self.pipe)


class Interrupts(unittest.TestCase):
    def test_no_element_of_a_pipe_is_lost(self) -> None:
        for number, graph in enumerate(GRAPHS):
            text = graph.replace("F", 'text_line("f")')
            for threads in (None, 0):
                signals = Signals()
                with self.subTest(graph=graph, threads=threads), folder(), handler_of_interrupts(signals.handle):
                    pipe = Pipe(number, signals)
                    want = pipe.want(text)
                    it = mr.from_text(text).iterator(threads=threads)
                    pipe.start()
                    got = signals.take(it)
                    pipe.writer.join(120)
                    self.assertEqual(signals.sent, LINES - LINES // 3)
                    self.assertEqual([show(x) for x in got], want)

    def test_no_element_of_files_is_lost(self) -> None:
        """Those read again, with the state of shuffles and what is read ahead."""
        text = "range(3000).shuffle(50, seed=1).map(x => x * 2, num_parallel_calls=2).batch(3).prefetch(2)"
        want = [x.tolist() for x in mr.from_text(text)]
        it = iter(mr.from_text(text))
        got: list[Any] = []
        signals = Signals()

        def interrupt() -> None:
            for _ in range(20):
                time.sleep(0.003)
                signals.send()

        with handler_of_interrupts(signals.handle):
            worker = threading.Thread(target=interrupt)
            worker.start()
            while len(got) < len(want) + 1 and (x := signals.take(it, 1)):
                got += x
                if len(got) % 100 == 0:
                    self.assertEqual(self.position_of(text, it.state_dict()), len(got))
                time.sleep(0.0001)
            worker.join(120)
        self.assertEqual(signals.sent, 20)
        self.assertEqual([x.tolist() for x in got], want)

    def position_of(self, text: str, state: dict[str, Any]) -> int:
        it = iter(mr.from_text(text))
        it.load_state_dict(state)
        return 1000 - len(list(it))

    def test_handlers_that_raise_nothing_go_on(self) -> None:
        for text in ('text_line("f")', 'text_line("f").map(x => x, num_parallel_calls=2).batch(2).prefetch(1)'):
            signals = Signals()
            with folder(), handler_of_interrupts(signals.handle):
                pipe = Pipe(1, signals)
                want = pipe.want(text)
                pipe.start()
                got = [show(x) for x in mr.from_text(text)]
                pipe.writer.join(120)
                self.assertEqual(got, want)
                self.assertEqual(signals.sent, LINES - LINES // 3)

    def test_a_wait_ends_at_once(self) -> None:
        with folder():
            os.mkfifo("f")
            keep = os.open("f", os.O_RDWR)
            for text in ('text_line("f")', 'text_line("f").batch(2).prefetch(2)', 'tfrecord("f")'):
                it = iter(mr.from_text(text))
                self.ends(lambda it=it: next(it))
            self.ends(lambda: list(mr.from_text('text_line("f")')))
            os.close(keep)

    def ends(self, call: Callable[[], Any]) -> None:
        """A busy machine can delay one try, but not all of them; the call can be made again."""
        took = [self.time_to_end(call)]
        while took[-1] >= BOUND and len(took) < TRIES:
            took.append(self.time_to_end(call))
        self.assertLess(took[-1], BOUND, took)

    def time_to_end(self, call: Callable[[], Any]) -> float:
        sent = [0.0]

        def interrupt() -> None:
            sent[0] = time.monotonic()
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.15, interrupt)
        try:
            timer.start()
            call()
            self.fail("no KeyboardInterrupt")
        except KeyboardInterrupt:
            took = time.monotonic() - sent[0]
        timer.join()
        return took

    def test_signals_that_other_threads_get_end_waits(self) -> None:
        """The handler runs in the thread that gets the signal, while another one waits."""
        caught = threading.Thread(target=time.sleep, args=(3600,), daemon=True)
        caught.start()
        with folder():
            os.mkfifo("f")
            keep = os.open("f", os.O_RDWR)
            it = iter(mr.text_line("f"))
            for i in range(200):
                timer = threading.Timer(0.001 * (i % 3), signal.pthread_kill, (caught.ident, signal.SIGINT))
                with self.assertRaises(KeyboardInterrupt):
                    timer.start()
                    next(it)
                timer.join()
            os.write(keep, b"one\n")
            self.assertEqual(next(it), b"one")
            os.close(keep)

    def test_closing_ends_a_wait_that_begins(self) -> None:
        with folder():
            os.mkfifo("f")
            keep = os.open("f", os.O_RDWR)
            for i in range(200):
                it = iter(mr.text_line("f"))
                ended: list[Any] = []
                waiter = threading.Thread(target=lambda it=it, ended=ended: ended.append(next(it, None)))
                waiter.start()
                time.sleep(0.0001 * (i % 10))
                it.close()
                waiter.join(60)
                self.assertEqual(ended, [None])
            os.close(keep)

    def test_for_loops_end(self) -> None:
        def endless() -> None:
            for _ in mr.from_text("range(10).repeat().map(x => [x, x]).batch(4)"):
                pass

        self.ends(endless)

    def test_busy_work_ends(self) -> None:
        """An element that takes long to make: the filter drops everything."""
        for threads in (0, 2):
            it = mr.from_text("range(1000).repeat().filter(x => x < 0)").iterator(threads=threads)
            self.ends(lambda it=it: next(it))

    def test_a_wait_for_a_lock_ends(self) -> None:
        with folder():
            os.mkfifo("f")
            keep = os.open("f", os.O_RDWR)
            it = iter(mr.text_line("f"))
            got: list[Any] = []
            waiter = threading.Thread(target=lambda: got.append(next(it)))
            waiter.start()
            while it._try_locked(lambda: None) is not False:
                time.sleep(0.001)
            self.ends(lambda: next(it))  # which the other thread is in
            self.ends(it.state_dict)
            os.write(keep, b"one\ntwo\n")
            waiter.join(20)
            self.assertEqual(got, [b"one"])
            self.assertEqual(next(it), b"two")
            os.close(keep)

    def test_stalled_services_end(self) -> None:
        """A dispatcher that accepts connections and never answers."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            try:
                ds = mr.from_text(f'range(10).distribute("127.0.0.1:{port}")')
            except mr.InvalidArgument as e:
                self.skipTest(f"the package has no data service: {e}")
            it = iter(ds)
            self.ends(lambda: next(it))
            self.ends(lambda: next(it))
            it.close()

    def test_positions_survive_interrupts(self) -> None:
        with folder():
            with open("a", "w") as f:
                f.write("1\n2\n3\n")
            os.mkfifo("f")
            keep = os.open("f", os.O_RDWR)
            it = iter(mr.from_text('text_line(["a", "f"])'))
            got = [next(it) for _ in range(3)]
            self.ends(lambda: next(it))
            state = it.state_dict()
            os.write(keep, b"4\n")
            got.append(next(it))
            self.assertEqual(got, [b"1", b"2", b"3", b"4"])
            it.load_state_dict(state)
            os.write(keep, b"5\n")
            self.assertEqual(next(it), b"5")
            os.close(keep)


class Handlers(unittest.TestCase):
    """What handlers of signals may do with an iterator that their thread is using."""

    def test_handlers_save_positions(self) -> None:
        states: list[tuple[int, dict[str, Any]]] = []
        got: list[int] = []
        it = iter(mr.range(2000))

        def save(*_: Any) -> None:
            states.append((len(got), it.state_dict()))
            signal.setitimer(signal.ITIMER_REAL, often)  # a busy machine still does something between two

        got.append(int(next(it)))  # while it opens, it has no position
        before = signal.signal(signal.SIGALRM, save)
        often = 0.001 if not kit.SANITIZED else 0.02  # state_dict takes less
        signal.setitimer(signal.ITIMER_REAL, often)
        try:
            for x in it:
                got.append(int(x))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertEqual(got, list(range(2000)))
        for count, state in states[:: max(1, len(states) // 10)]:
            other = iter(mr.range(2000))
            other.load_state_dict(state)
            self.assertIn(len(list(other)), (2000 - count, 2000 - count - 1))

    def test_a_handler_within_next_can_do_all(self) -> None:
        with folder():
            os.mkfifo("f")
            keep = os.open("f", os.O_RDWR)
            os.write(keep, b"a\nb\nc\n")
            it = iter(mr.text_line("f"))
            self.assertEqual(next(it), b"a")
            self.assertEqual([next(it), next(it)], [b"b", b"c"])
            seen: list[Any] = []

            def use(*_: Any) -> None:
                seen.append(it.state_dict()["version"])
                seen.append(len(it.stats()))
                os.write(keep, b"d\ne\n")
                seen.append(next(it))

            with handler_of_interrupts(use):
                timer = interrupt_soon()
                self.assertEqual(next(it), b"e")
                timer.join()
            self.assertEqual(seen, [1, 1, b"d"])
            with handler_of_interrupts(lambda *_: it.close()):
                timer = interrupt_soon()
                self.assertEqual(next(it, "end"), "end")
                timer.join()
            os.close(keep)

    def test_an_element_being_converted_is_not_lost(self) -> None:
        calls = 0

        def convert(array: Any, number: int) -> Any:
            nonlocal calls
            calls += 1
            if calls == 3:
                self.assertEqual(len(list(self.rest_of(it.state_dict()))), 8)
                with self.assertRaisesRegex(RuntimeError, "before that call has returned"):
                    next(it)
                with self.assertRaisesRegex(RuntimeError, "before that call has returned"):
                    it.load_state_dict({"version": 1, "graph": "", "position": "0:"})
                raise KeyboardInterrupt
            if calls == 5:
                raise ValueError("an error of the element")
            return array

        it = iter(mr.range(10))
        it._convert = convert
        self.assertEqual([int(next(it)), int(next(it))], [0, 1])
        with self.assertRaises(KeyboardInterrupt):
            next(it)
        self.assertEqual(len(list(self.rest_of(it.state_dict()))), 8)
        self.assertEqual(int(next(it)), 2)
        with self.assertRaises(ValueError):
            next(it)
        self.assertEqual([int(x) for x in it], [4, 5, 6, 7, 8, 9])

    def test_what_a_handler_raises_where_a_function_begins_is_raised(self) -> None:
        """The signal comes while C computes, and its handler runs when C calls Python."""

        class Alarm(BaseException):
            pass

        def raises(*_: Any) -> None:
            raise Alarm

        size = 1200 if not kit.SANITIZED else 300
        slow = f'range(3).map(x => (x, sum(matmul(ones([{size}, {size}]) * cast(x, "float32"), ones([{size}, {size}])))))'
        before = signal.signal(signal.SIGALRM, raises)
        got: list[Any] = []
        it = mr.from_text(slow).map_py(lambda x, _: x, output=mr.int64, parallel="inline").iterator(threads=0)
        try:
            while True:
                count = len(got)
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.02 if count < 2 else 0)
                    got.extend(itertools.islice(it, 1))
                    if len(got) == count:
                        break
                except Alarm:
                    got.append("alarm")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self.assertIn("alarm", got)
        self.assertEqual([x for x in got if x != "alarm"], [0, 1, 2])

    def test_a_signal_as_an_iterator_begins_goes_on_or_leaves_nothing(self) -> None:
        """Each call that opens, rewinds or restores is met by one, before and after it has done so."""

        class Library:
            def __init__(self, library: Any) -> None:
                self.library = library

            def __getattr__(self, name: str) -> Any:
                found = getattr(self.library, name)
                if not name.endswith(("iterator_open", "iterator_rewind", "iterator_restore")):
                    return found

                def call(*args: Any) -> Any:
                    if met.get(name, 0) < 2:
                        met[name] = met.get(name, 0) + 1
                        if met[name] == 1:
                            signal.raise_signal(signal.SIGINT)
                        code = found(*args)
                        if met[name] == 2:
                            signal.raise_signal(signal.SIGINT)
                        return code
                    return found(*args)

                return call

        met: dict[str, int] = {}

        def tried(call: Any) -> Any:
            while True:
                try:
                    return call()
                except KeyboardInterrupt:
                    pass

        def passes(ds: Any) -> list[list[int]]:
            """Three epochs, and what follows the first element of the last one."""
            parts, state = [], {}
            for _ in range(3):
                it = iter(ds)
                part = [tried(lambda it=it: next(it))]
                state = it.state_dict()
                parts.append([*part, *it])
            tried(lambda: it.load_state_dict(state))
            parts.append(list(it))
            return [[int(x[0][0] if isinstance(x, tuple) else x[0]) for x in part] for part in parts]

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        modules: Any = (mr._iterator, mr._distribute)  # type: ignore[attr-defined]
        threads = kit.threads()
        for handler in (lambda *_: None, interrupt):
            for distributed in (False, True):
                with self.subTest(raises=handler is interrupt, distributed=distributed), handler_of_interrupts(handler):
                    ds: Any = mr.from_text("range(4).map(x => x + 1, num_parallel_calls=2).batch(1)")
                    ds = mr.distribute_dataset(ds, 1, {}) if distributed else ds
                    libraries = [m.lib for m in modules]
                    met.clear()
                    try:
                        for m in modules:
                            m.lib = Library(m.lib)
                        got = passes(ds)
                    finally:
                        for m, library in zip(modules, libraries):
                            m.lib = library
                    self.assertEqual(sum(met.values()), 6, met)
                    self.assertEqual(got, [[1, 2, 3, 4]] * 3 + [[2, 3, 4]])
                    del ds
                    gc.collect()
        self.assertLessEqual(kit.wait_for_threads(threads), threads)

    def rest_of(self, state: dict[str, Any]) -> mr.Iterator:
        it = iter(mr.range(10))
        it.load_state_dict(state)
        return it


class Programs(unittest.TestCase):
    """Ctrl-C for a whole program: exit by SIGINT, without a crash."""

    def test_programs_end(self) -> None:
        for body in (
            "next(iter(mr.text_line('f')))",
            "list(mr.text_line('f').batch(2).prefetch(2))",
            "[x for x in mr.from_text('range(10).repeat().map(x => x + 1, num_parallel_calls=2)')]",
            "it = iter(mr.text_line('f')); threading.Thread(target=lambda: list(it), daemon=True).start(); time.sleep(100)",
            "mr.range(10).repeat().bench()",
        ):
            with self.subTest(body=body), folder():
                os.mkfifo("f")
                keep = os.open("f", os.O_RDWR)
                script = textwrap.dedent(
                    """\
                    import sys, threading, time
                    import millrace as mr
                    print("ready", flush=True)
                    """
                )
                child = subprocess.Popen(
                    [sys.executable, "-c", script + body],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=kit.python_environment(),
                )
                assert child.stdout is not None
                child.stdout.readline()
                time.sleep(0.3)
                child.send_signal(signal.SIGINT)
                try:
                    _, err = child.communicate(timeout=100)
                finally:
                    child.kill()
                self.assertEqual(child.returncode, -signal.SIGINT, err)
                self.assertIn("KeyboardInterrupt", err)
                os.close(keep)


class Dropped(unittest.TestCase):
    def test_what_is_cached_lasts(self) -> None:
        """An interrupted iterator hands its engine back, however it ends."""

        def loop(ds: Any) -> None:
            for x in ds:
                seen.append(show(x))
                timers.append(interrupt_soon())

        def block(ds: Any) -> None:
            with ds.iterator() as it:
                loop(it)

        text = 'text_line("a").cache().concatenate(text_line("f")).batch(1)'
        for name, ds in (("plain", mr.from_text(text)), ("distributed", mr.distribute_dataset(mr.from_text(text), 1, {}))):
            for end in (loop, block):
                with self.subTest(name, end=end.__name__), folder():
                    os.mkfifo("f")
                    keep = os.open("f", os.O_RDWR)
                    for line in (b"first", b"second"):
                        with open("a", "wb") as f:
                            f.write(line + b"\n")
                        seen, timers = list[str](), list[threading.Timer]()
                        with self.assertRaises(KeyboardInterrupt):
                            end(ds)
                        for timer in timers:
                            timer.join()
                        self.assertEqual(len(seen), 1)
                        self.assertIn("first", seen[0])
                    os.close(keep)
                    ds._shared = None

    def test_what_handlers_raise_at_exit_leaves_nothing(self) -> None:
        """Such as sys.exit() of a handler of SIGTERM, in each close."""
        program = textwrap.dedent(
            """\
            import atexit, os, signal, sys, time
            def last():  # registered first: runs last
                left = 0
                for _ in range(3000):
                    left = len(os.listdir("/proc/self/task")) - 1
                    if not left:
                        break
                    time.sleep(0.02)
                print(left, len(mr._iterator._engines), server._owned)
            atexit.register(last)
            import millrace as mr
            from millrace.service import Dispatcher, _Server
            class Alarm(Exception):
                pass
            def handler(*_):
                raise KIND
            signal.signal(signal.SIGTERM, handler)
            server = Dispatcher()
            kept = [iter(mr.range(10**9).map(lambda x: x + 1, num_parallel_calls=2)) for _ in range(3)]
            for it in kept:
                next(it)
            def interrupted(close, calls):
                def run(self):
                    calls.append(1)
                    if len(calls) % 2:
                        signal.raise_signal(signal.SIGTERM)
                    close(self)
                    if len(calls) % 2 == 0 and len(calls) < 9:
                        signal.raise_signal(signal.SIGTERM)
                return run
            mr.Iterator.close = interrupted(mr.Iterator.close, [])
            _Server._close_quietly = interrupted(_Server._close_quietly, [])
            """
        )
        for kind in ("Alarm", "SystemExit(3)"):
            with self.subTest(kind=kind):
                child = subprocess.run(
                    [sys.executable, "-c", program.replace("KIND", kind)], capture_output=True, text=True, timeout=120
                )
                self.assertEqual((child.returncode, child.stdout), (0, "0 0 None\n"), child.stderr)
                self.assertEqual(child.stderr, "")

    def test_another_interrupt_at_exit_ends_all_the_same(self) -> None:
        """The first one leaves a function that does not return."""
        program = textwrap.dedent(
            """\
            import atexit, faulthandler, os, signal, threading, time
            faulthandler.dump_traceback_later(100, exit=True)
            done = []
            atexit.register(lambda: print(done, d._owned))  # the last one
            import millrace as mr
            from millrace.service import Dispatcher
            d = Dispatcher()
            mr._log.stop = lambda stop=mr._log.stop: done.append(stop())
            def press():
                began.wait()
                os.kill(os.getpid(), signal.SIGINT)
                while not mr._iterator._ended:
                    time.sleep(0.01)
                time.sleep(0.5)
                os.kill(os.getpid(), signal.SIGINT)
            began = threading.Event()
            threading.Thread(target=press, daemon=True).start()
            it = iter(mr.range(9).map_py(lambda x: (began.set(), time.sleep(600), x)[2], output=mr.int64, num_workers=1))
            try:
                next(it)
            except KeyboardInterrupt:
                pass
            if KEEP:
                kept = it
            del it
            """
        )
        for keep in (False, True):
            with self.subTest(keep=keep):
                child = subprocess.run(
                    [sys.executable, "-c", program.replace("KEEP", str(keep))],
                    capture_output=True,
                    text=True,
                    env=kit.python_environment(),
                    timeout=120,
                    check=False,
                )
                self.assertEqual((child.returncode, child.stdout), (0, "[None] None\n"), child.stderr)

    def test_an_interrupt_while_an_iterator_is_dropped_is_not_lost(self) -> None:
        """Python prints and forgets what a `__del__` raises."""

        def rest(engine: Any) -> None:
            signal.raise_signal(signal.SIGINT)
            rested(engine)

        engine = mr._iterator.Engine  # type: ignore[attr-defined]
        rested = engine.rest
        with folder():
            os.mkfifo("f")
            w = os.open("f", os.O_RDWR)
            waits = mr.text_line("f").iterator()
            it = iter(mr.range(1000).shuffle(10).prefetch(1))
            next(it)
            engine.rest = rest
            try:
                del it
            finally:
                engine.rest = rested
            late = interrupt_soon(60)
            began = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                next(waits)
            late.cancel()
            self.assertLess(time.monotonic() - began, 50)
            os.write(w, b"x\n")
            self.assertEqual(next(waits), b"x")
            waits.close()
            os.close(w)


if __name__ == "__main__":
    kit.main()
