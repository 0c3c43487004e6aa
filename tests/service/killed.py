#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Dispatcher, workers and clients as processes that are killed and stopped at random times: what a client reads
is what service="local" gives, byte for byte; in the modes without an order, every element as often as they promise.

    killed.py [SEED [RUNS]]     a run that fails prints its seed and what was done to whom

6 runs by default, 40 under tests/run.sh (each way of reading five times), 200 with --long; half of them on io_uring, half
on epoll.
"""
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import kit  # noqa: E402
from ports import ports  # noqa: E402

SECONDS = 2.5  # that a client takes to read it all, undisturbed
MOST_SECONDS = 600  # without a byte; then it counts as hung
GRAPHS = [
    "range(60000).map(x => x * x).batch(2)",
    "range(60000).shuffle(500, seed=3).map(x => (x, 5 // (x % 97 - 5))).ignore_errors().batch(2)",
    'text_line("lines-*.txt").shuffle(300).batch(2).prefetch(2)',
    'list_files("lines-*.txt", shuffle=true).flat_map(f => text_line(f)).padded_batch(2)',
    "range(20000).shuffle(100).batch(2).repeat(3)",
    # long enough to be lent, and to be named where they landed: by 6 streams too, whole files of them
    'text_line("long-*.txt").batch(3).repeat(2)',
]


class Process:
    """One of a run's processes, started again at will."""

    def __init__(self, run, name, words):
        self.run, self.name, self.words, self.lives = run, name, words, 0
        self.p = None

    def start(self):
        self.lives += 1
        log = os.path.join(self.run.dir, f"{self.name}.{self.lives}")
        with open(log, "w") as f:
            self.p = subprocess.Popen([kit.millrace, *self.words], cwd=kit.directory, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=f)
        kit._processes.append(self.p)
        line = kit.line_of(self.p).decode()
        if not line.startswith("ready "):
            with open(log) as f:
                raise RuntimeError(f"{self.name} is not ready: {f.read()}")
        kit.attend(self.p, log)

    def kill(self):
        if self.p:
            self.p.kill()
            self.p.wait()
            self.p = None


class Run:
    def __init__(self, seed):
        self.seed, self.random, self.history = seed, random.Random(seed), []
        self.clients, self.lock = 0, threading.Lock()
        self.dir = kit.path(f"run-{seed}")
        os.mkdir(self.dir)
        self.began = time.time()
        self.uring = [] if self.random.random() < 0.5 else ["--no-uring"]
        self.state = ["--state", os.path.join(self.dir, "state")] if self.random.random() < 0.5 else []
        self.dispatcher = Process(self, "dispatcher", [])
        self.at = f"127.0.0.1:{ports(1)[0]}"
        self.dispatcher.words = ["dispatcher", "--listen", self.at, *self.state, *self.uring]
        self.dispatcher.start()
        self.workers = [Process(self, f"worker-{i}", ["worker", "--dispatcher", self.at, "--any-user", *self.uring])
                        for i in range(3)]
        for w in self.workers:
            w.start()

    def say(self, text):
        self.history.append(f"{time.time() - self.began:7.3f} {text}")

    def close(self):
        for p in (self.dispatcher, *self.workers):
            p.kill()

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.dir)):
            path = os.path.join(self.dir, name)
            if os.path.isfile(path) and not name.endswith(".out"):
                with open(path, errors="replace") as f:
                    text += f"---- {name}\n" + f.read()[-1500:]
        return text

    def strike(self, client):
        """Kills or stops one of the processes."""
        what = self.random.choice(["kill worker", "kill worker", "stop worker", "kill dispatcher",
                                   "stop dispatcher", "stop client"])
        whom = {"worker": self.random.choice(self.workers), "dispatcher": self.dispatcher}.get(what.split()[1])
        pause = self.random.choice([0.05, 0.2, 0.6, 1.2])
        if self.random.random() < 0.05:
            pause = 6.5  # longer than anybody waits for a sign of life
        self.say(f"{what} {whom.name if whom else ''} for {pause}")
        if what.startswith("kill"):
            whom.kill()
            time.sleep(pause)
            whom.start()
            return
        pid = whom.p.pid if whom else client.pid
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(pause)
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # the client has ended

    def show(self, expression, *words, slowly=True, limit=None, first=False):
        """What the client reads while processes are killed and stopped; limit: it is killed after that many bytes;
        first: strikes begin once it has read something."""
        out, done, moved = bytearray(), threading.Event(), [time.time()]
        with self.lock:
            self.clients += 1
            log = open(os.path.join(self.dir, f"client.{self.clients}"), "w")
        client = subprocess.Popen(["stdbuf", "-oL", kit.millrace, "show", *self.uring, *words, expression],
                                  cwd=kit.directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)

        def read():
            while True:
                data = client.stdout.read1(1 << 14)
                if not data:
                    break
                out.extend(data)
                moved[0] = time.time()
                if limit and len(out) >= limit and client.poll() is None:
                    client.kill()
                    self.say(f"the client is killed after {len(out)} bytes")
                if slowly:
                    time.sleep(SECONDS * len(data) / self.expected)
            done.set()

        reader = threading.Thread(target=read)
        reader.start()
        strikes = 0
        while not done.wait(self.random.uniform(0.02, 0.5)):
            if time.time() - moved[0] > MOST_SECONDS:
                client.kill()
                self.say("the client was given up")
            elif slowly and strikes < 6 and (out or not first):
                strikes += 1
                with self.lock:
                    self.strike(client)
        reader.join()
        client.stdout.close()
        log.close()
        return bytes(out), client.wait(kit.PATIENCE)

    def keep_state(self):
        if self.state:
            return
        self.state = ["--state", os.path.join(self.dir, "state")]
        self.dispatcher.kill()
        self.dispatcher.words += self.state
        self.dispatcher.start()

    def options(self, mode=None):
        transfer = self.random.choice(["auto", '"tcp"', '"shared_memory"'])
        common = (f"seed={self.random.randint(1, 9)}, transfer={transfer}, "
                  f"max_outstanding_bytes={self.random.choice([1, 4000, 200000])}")
        if mode:
            return f'processing_mode="{mode}", {common}'
        self.streams = self.random.randint(1, 6)
        return f"streams={self.streams}, block_length={self.random.randint(1, 3)}, {common}"


_wanted, _lock = {}, threading.Lock()


def wanted(graph, options):
    """What service="local" gives."""
    with _lock:
        key = (graph, options)
        if key not in _wanted:
            _wanted[key] = kit.local(graph, options)
        return _wanted[key]


def difference(got, want):
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    return (f"{len(got)} bytes instead of {len(want)}, first difference at {at}: "
            f"{got[at - 40:at + 40]!r} instead of {want[at - 40:at + 40]!r}")


def read_through(run):
    """A client reads everything."""
    graph, options = run.random.choice(GRAPHS), run.options()
    want = wanted(graph, options)
    run.expected = len(want)
    expression = f'{graph}.distribute("{run.at}", {options})'
    run.say(expression)
    got, status = run.show(expression)
    if status != 0 or got != want:
        return f"status {status}, {difference(got, want)}"
    return None


def read_in_parts(run):
    """A client saves its position and ends, another one continues; the dispatcher may lose everything between."""
    graph, options = run.random.choice(GRAPHS), run.options()
    want = wanted(graph, options)
    run.expected = len(want)
    expression = f'{graph}.distribute("{run.at}", {options})'
    run.say(expression)
    state = os.path.join(run.dir, "position.out")
    n = run.random.randint(1, want.count(b"\n") - 1)
    first, status = run.show(expression, "--save-after", str(n), "--state", state)
    if status != 0 or first.count(b"\n") != n:
        return f"status {status}, {first.count(bytes([10]))} lines instead of {n}"
    run.say("the first client has ended")
    if run.random.random() < 0.5:
        run.dispatcher.kill()
        run.dispatcher.words = [w for w in run.dispatcher.words if w not in run.state]
        run.dispatcher.start()
        run.say("the dispatcher has lost its state")
    second, status = run.show(expression, "--restore", state)
    if status != 0 or first + second != want:
        return f"status {status}, {difference(first + second, want)}"
    return None


def read_twice(run):
    """A client is killed; another one continues under the job's name, after what was acknowledged."""
    options = run.options()
    graph = "range(60000)"
    want = wanted(graph, options)
    run.expected = len(want)
    expression = f'{graph}.distribute("{run.at}", {options}, job_name="j", resume=true, client_timeout=2.0)'
    run.say(expression)
    first, _ = run.show(expression, limit=run.random.randint(1, len(want) - 1))
    end = time.monotonic() + kit.PATIENCE
    while time.monotonic() < end:  # its name is free once it was missed
        second, status = run.show(expression)
        with open(os.path.join(run.dir, f"client.{run.clients}"), errors="replace") as f:
            if status == 0 or second or "failed precondition" not in f.read():
                break
        time.sleep(0.2)
    if status != 0:
        return f"status {status}"
    lines = [[int(x) for x in part.rsplit(b"\n", 1)[0].split(b"\n") if x] for part in (first, second)]
    for s in range(run.streams):  # range is dealt like cards
        whole = list(range(s, 60000, run.streams))
        a, b = ([x for x in part if x % run.streams == s] for part in lines)
        if a != whole[:len(a)]:
            return f"stream {s}: the first client's elements are out of order"
        if b != whole[len(whole) - len(b):]:
            return f"stream {s}: the second client's elements are not the last ones"
        if len(a) + len(b) < len(whole):
            return f"stream {s}: {len(whole) - len(a) - len(b)} elements are lost after {len(a)}"
    return None


UNORDERED = [
    ("range(60000).shuffle(500).batch(2)", range(60000)),
    ('text_line("numbers-*.txt").shuffle(300).batch(2).prefetch(2)', range(45000)),
    ('list_files("numbers-*.txt", shuffle=true).interleave(f => text_line(f), cycle_length=3)', range(45000)),
    ("range(15000).map(x => x).repeat(3).batch(2)", [x for x in range(15000) for _ in range(3)]),
    ("range(40000).concatenate(range(40000, 50000)).batch(5)", range(50000)),
]


def numbers(out):
    return sorted(int(x) for x in out.translate(None, b'[]" ').replace(b",", b"\n").split())


def counts(got, want):
    """How often each element came that did not come as often as it should."""
    wrong = Counter(got)
    wrong.subtract(Counter(want))
    wrong = {x: n for x, n in wrong.items() if n}
    return f"{len(wrong)} elements come too often (+) or too seldom (-): {list(wrong.items())[:20]}" if wrong else None


def read_dynamic(run):
    """A client reads every element once, in no order. The account is kept: it alone knows the splits."""
    graph, want = run.random.choice(UNORDERED)
    run.expected = 6 * len(want)
    run.keep_state()
    expression = f'{graph}.distribute("{run.at}", {run.options("dynamic")})'
    run.say(expression)
    got, status = run.show(expression)
    if status != 0:
        return f"status {status}"
    return counts(numbers(got), want)


def read_dynamic_in_parts(run):
    """A client saves its position and ends, another one continues; the dispatcher may lose everything between."""
    graph, want = run.random.choice(UNORDERED)
    run.expected = 6 * len(want)
    run.keep_state()
    expression = f'{graph}.distribute("{run.at}", {run.options("dynamic")})'
    run.say(expression)
    state = os.path.join(run.dir, "position.out")
    first, status = run.show(expression, "--save-after", str(run.random.randint(1, 9000)), "--state", state)
    if status != 0:
        return f"status {status}"
    run.say("the first client has ended")
    if run.random.random() < 0.5:
        run.dispatcher.kill()
        run.dispatcher.words[run.dispatcher.words.index("--state") + 1] = os.path.join(run.dir, "another")
        run.dispatcher.start()
        run.say("the dispatcher has lost its state")
    second, status = run.show(expression, "--restore", state)
    if status != 0:
        return f"status {status}"
    return counts(numbers(first + second), want)


def read_parallel_epochs(run):
    """A client reads what every worker has: each comes back at its address, and continues."""
    graph, want = run.random.choice(UNORDERED)
    run.expected = 18 * len(want)
    for w in run.workers:
        w.kill()
        w.words += ["--listen", f"127.0.0.1:{ports(1)[0]}"]
        w.start()
    kit.until(lambda: sum(w["state"] == "serving" for w in kit.ask(run.at, "workers") or []) == len(run.workers))
    expression = f'{graph}.distribute("{run.at}", {run.options("parallel_epochs")})'
    run.say(expression)
    # A worker that is away as the job begins has no part of it, if it stays away until the others are done.
    got, status = run.show(expression, first=True)
    if status != 0:
        return f"status {status}"
    return counts(numbers(got), [x for x in want for _ in run.workers])


def share_dynamic(run):
    """Several clients share a job; one is killed: its elements come, or go to the others, and nothing else twice."""
    graph, want = run.random.choice(UNORDERED)
    run.expected = 2 * len(want)
    run.keep_state()
    options = run.options("dynamic") + ', job_name="shared", client_timeout=40.0'
    expression = f'{graph}.distribute("{run.at}", {options})'
    run.say(expression)
    limits = [None, None, run.random.randint(1, 2 * len(want))]
    with ThreadPoolExecutor(3) as pool:
        outs = list(pool.map(lambda limit: run.show(expression, limit=limit), limits))
    for (_, status), limit in zip(outs, limits):
        if limit is None and status != 0:
            return f"status {status}"
    survivors = numbers(outs[0][0] + outs[1][0])
    killed = numbers(outs[2][0].rsplit(b"\n", 1)[0])
    again = Counter(survivors)
    again.subtract(Counter(want))
    twice = [x for x, n in again.items() if n > 0]
    if twice:
        return f"survivors have elements twice: {twice[:20]}"
    lost = Counter(want)
    lost.subtract(Counter(survivors + killed))
    lost = [x for x, n in lost.items() if n > 0]
    return f"{len(lost)} elements are lost: {lost[:20]}" if lost else None


KINDS = [read_through, read_through, read_in_parts, read_twice, read_dynamic, read_dynamic_in_parts,
         read_parallel_epochs, share_dynamic]


def one(seed):
    run = Run(seed)
    kind = KINDS[seed % len(KINDS)]
    try:
        why = kind(run)
    except (OSError, RuntimeError, subprocess.SubprocessError) as e:
        why = repr(e)
    finally:
        run.close()
    if why:
        why = (f"{why}\n  again: killed.py {seed} 1\n  " + "\n  ".join(run.history) + "\n" + run.logs())
    return f"{kind.__name__}_seed_{seed}", why


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else int(os.environ.get("MR_TEST_SEED", "0")) or int(time.time())
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else (
        200 if os.environ.get("MR_TEST_TIER") == "long" else 5 * len(KINDS) if "MR_TEST_SEED" in os.environ else 6)
    for i in range(7):
        with open(kit.path(f"lines-{i}.txt"), "w") as f:
            f.writelines(f"{i} {n} {n * n}\n" for n in range(3000 + 1000 * i))
    for i in range(7):
        with open(kit.path(f"long-{i}.txt"), "w") as f:
            f.writelines(f"{i} {n} " + "abcdefghij" * (n % 97) + "\n" for n in range(600 + 10 * i))
    for i in range(9):
        with open(kit.path(f"numbers-{i}.txt"), "w") as f:
            f.writelines(f"{n}\n" for n in range(5000 * i, 5000 * i + 5000))
    print(f"seed {seed}, {runs} runs")
    with ThreadPoolExecutor(4) as pool:  # they wait for the most part
        for name, why in pool.map(one, range(seed, seed + runs)):
            kit.result(name, not why, why)
    kit.end()


main()
