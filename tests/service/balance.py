#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Workers join, are killed, leave and are restarted one after the other while a client reads: its streams are spread
evenly each time, and what it reads is what service="local" gives, byte for byte."""
import os
import re
import select
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import kit  # noqa: E402
from kit import result  # noqa: E402

BOUND = 100  # seconds, from when the last worker serves; the specification says 10
GRAPH = "range(2000000).shuffle(500, seed=3).batch(2)"


class Client:
    """Reads a little each time that its service is looked at."""

    def __init__(self, at, graph, options, name):
        self.log_path, self.got = kit.path(name + ".log"), bytearray()
        self.process = subprocess.Popen(
            [kit.millrace, "show", f'{graph}.distribute("{at}", {options}, max_outstanding_bytes=20000)'],
            cwd=kit.directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=open(self.log_path, "w"))
        kit._processes.append(self.process)

    def read(self, most=15000):
        out = self.process.stdout
        if select.select([out], [], [], 0)[0]:
            self.got += os.read(out.fileno(), most)

    def rest(self):
        self.got += self.process.stdout.read()
        return self.process.wait(kit.PATIENCE) == 0

    def log(self):
        with open(self.log_path) as f:
            return f.read()


class Service:
    def __init__(self, name, *options):
        self.d, self.n, self.name = kit.Dispatcher(*options, name=name), 0, name
        self.workers, self.client = [], None

    def add(self, *options):
        self.n += 1
        self.workers.append(kit.Daemon("worker", "--dispatcher", self.d.at, *options, name=f"{self.name}-{self.n}"))
        return self.workers[-1]

    def remove(self, worker, how):
        self.workers.remove(worker)
        return worker.stop(how)

    def loads(self):
        """Streams of each serving worker, in the order of self.workers."""
        self.client.read()
        rows = {w["worker"]: w["streams"] for w in kit.ask(self.d.at, "workers") or [] if w["state"] == "serving"}
        return [rows.get(w.at, -1) for w in self.workers]

    def becomes(self, *loads):
        seen = []

        def are_so():
            seen[:] = self.loads()
            return sorted(seen) == sorted(loads)
        return bool(kit.until(are_so, BOUND)), f"{seen}, not {loads}\n{self.d.log()}\n{self.client.log()}"

    def end(self):
        return [x.stop() for x in (*self.workers, self.d)]


def exactly_once():
    s = Service("once", "--status", "127.0.0.1:0")
    one = s.add()
    s.client = Client(s.d.at, GRAPH, "streams=8, seed=1", "once-client")
    result("one_worker_has_all", *s.becomes(8))
    for _ in range(3):
        s.add()
    result("three_join", *s.becomes(2, 2, 2, 2))
    # the old worker served until the new one was ready
    result("nothing_stalls", "after it was lost" not in s.client.log(), s.client.log())
    s.remove(one, signal.SIGKILL)
    result("one_is_killed", *s.becomes(3, 3, 2))
    s.add()
    result("another_comes", *s.becomes(2, 2, 2, 2))
    for worker in list(s.workers):  # a rolling update
        s.remove(worker, signal.SIGTERM)
        s.add("--listen", worker.at)
    result("all_are_replaced", *s.becomes(2, 2, 2, 2))
    result("one_leaves", s.remove(s.workers[0], signal.SIGTERM) == 0)
    result("the_others_have_its_streams", *s.becomes(3, 3, 2))
    good = s.client.rest()
    result("the_sequence_is_the_same", good and bytes(s.client.got) == kit.local(GRAPH, "streams=8, seed=1"),
           s.client.log())
    moved = re.findall(r"stream \d+ of anonymous job \w+ moved from", s.d.log())
    result("few_moves", 6 <= len(moved) <= 40, s.d.log())
    result("all_end_well", s.end() == [0] * 4, s.d.log())


def by_weight():
    s = Service("weight", "--no-balance")
    s.add("--weight", "1")
    s.client = Client(s.d.at, GRAPH, 'job_name="j", streams=8, seed=1', "weight-client")
    result("the_light_one_has_all", *s.becomes(8))
    s.add("--weight", "3")
    kit.until(lambda: s.loads()[1] == 0)
    moves = kit.ask(s.d.at, "rebalance", "j")
    result("rebalance", moves == {"moves": 6}, str(moves))
    result("by_weight", *s.becomes(2, 6))
    result("in_order", s.loads() == [2, 6], str(s.loads()))
    result("no_such_job", kit.ask(s.d.at, "rebalance", "k") is None)
    result("nothing_more_to_move", kit.ask(s.d.at, "rebalance") == {"moves": 0})
    result("weights_end_well", s.client.rest() and s.end() == [0] * 3, s.client.log())


def dynamic():
    graph = "range(300000).batch(1)"
    s = Service("dynamic")
    s.add()
    s.client = Client(s.d.at, graph, 'processing_mode="dynamic", streams=8', "dynamic-client")
    for i in range(1, 6):  # each brings a stream with it
        result(f"stream_{i}", *s.becomes(*[1] * i))
        s.add()
    result("stream_6", *s.becomes(*[1] * 6))
    for worker in s.workers[1:]:
        s.remove(worker, signal.SIGKILL)
    result("one_worker_is_left", *s.becomes(6))
    s.add()
    s.add()
    kit.until(lambda: sum(s.loads()) >= 6)
    result("two_join", kit.until(lambda: max(s.loads()) - min(s.loads()) <= 1, BOUND), s.d.log())
    good = s.client.rest()
    got = sorted(int(x) for x in re.findall(rb"\d+", bytes(s.client.got)))
    result("each_element_once", good and got == list(range(300000)), f"{len(got)} elements\n{s.client.log()}")
    result("dynamic_ends_well", s.end() == [0] * 4, s.d.log())


exactly_once()
by_weight()
dynamic()
kit.end()
