#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""How many workers a dispatcher asks for, with three loads of known cost (elements that sleep): within one of the
right number, whatever number serves. And the metrics of dispatcher and workers, also as a real Prometheus scrapes them."""
import os
import shutil
import subprocess
import urllib.request

import kit
import prometheus
from kit import result

HERE = os.path.dirname(os.path.abspath(__file__))

plugin = kit.path("sleeps.so")


def metrics(page):
    """{name: value, or the sum over its labels}"""
    found = {}
    with urllib.request.urlopen(f"http://{page}/metrics", timeout=kit.PATIENCE) as r:
        for line in r.read().decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.split("{")[0]
                found[name] = found.get(name, 0) + float(value)
    return found


class Load:
    """An element takes a worker worker_ms, and the client client_ms; `workers` serve."""

    def __init__(self, name, worker_ms, client_ms, workers, *options):
        self.name = name
        self.d = kit.Dispatcher("--status", "127.0.0.1:0", *options, name=name)
        self.workers = []
        for i in range(workers):
            before = ["env", f"MILLRACE_PLUGINS={plugin}", f"SLEEP_MS={worker_ms}"]
            self.workers.append(kit.Daemon("worker", "--dispatcher", self.d.at, "--status", "127.0.0.1:0",
                                           name=f"{name}-{i}", before=before))
        graph = "range(100000000).map(sleeps)" + \
            f'.distribute("{self.d.at}", job_name="{name}", streams=8, max_outstanding_bytes=16000)'
        graph += ".map(sleeps)" if client_ms else ""
        self.client = subprocess.Popen(
            [kit.millrace, "show", "--load", plugin, graph], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(kit.path(name + "-client.log"), "w"), env={**os.environ, "SLEEP_MS": str(client_ms)})
        kit._processes.append(self.client)

    def status(self):
        return kit.ask(self.d.at, "status") or {"target_workers": -1, "target_reasons": []}

    def settles(self, low, high):
        """Its target, measured and not guessed, stays within these for ten looks."""
        looks, seen = [0], []

        def stays():
            s = self.status()
            seen[:] = [s["target_workers"], *s["target_reasons"]]
            good = low <= s["target_workers"] <= high and "as before" not in str(s["target_reasons"])
            looks[0] = looks[0] + 1 if good else 0
            return looks[0] >= 10
        return bool(kit.until(stays)), f"{seen}, not {low} to {high}"

    def end(self):
        self.client.kill()
        self.client.wait()
        return [x.stop() for x in (*self.workers, self.d)]


def against_prometheus(load):
    if not prometheus.program:
        kit.skip("prometheus", "it is not installed")
        return
    p = prometheus.Prometheus({"millrace": {"static_configs": [
        {"targets": [load.d.page, *(w.page for w in load.workers)]}]}})
    n = len(load.workers)
    for name, text, good in [
            ("targets_are_up", "up", lambda v: v == [1] * (1 + n)),
            ("the_target", "millrace_target_workers", lambda v: len(v) == 1 and v[0] >= 1),
            ("elements", "rate(millrace_job_elements_total[10s])", lambda v: len(v) == 1 and v[0] > 0),
            ("client_waits", "rate(millrace_job_client_wait_seconds_total[10s])", lambda v: len(v) == 1 and v[0] > 0.1),
            ("busy_workers", "sum(millrace_worker_busy_ratio)", lambda v: len(v) == 1 and 0 < v[0] <= n),
            ("cpu", "rate(millrace_worker_cpu_seconds_total[10s])", lambda v: len(v) == n)]:
        seen = []

        def holds():
            seen[:] = [p.query(text)]
            return good(seen[0])
        result(f"prometheus_{name}", bool(kit.until(holds)), f"{text}: {seen}")
    p.end()


cc = shutil.which("cc")
if not cc:
    kit.skip("target", "there is no C compiler for the plugin")
    kit.end()
subprocess.run([cc, "-shared", "-fPIC", f"-I{kit.build}/include", f"-I{kit.build}/generated",
                os.path.join(HERE, "sleeps.c"), "-o", plugin], check=True)
few = Load("few", 24, 4, 2, "--max-workers", "50")  # 6 are right
many = Load("many", 4, 8, 4)  # 1
some = Load("some", 12, 4, 1)  # 3
idle = Load("idle", 8, 0, 2, "--max-workers", "4")  # as many as it has streams
result("more_are_asked_for", *few.settles(5, 7))
result("fewer_are_asked_for", *many.settles(1, 2))
result("one_asks_for_two_more", *some.settles(2, 4))
result("a_client_without_work", *idle.settles(4, 4))
s = idle.status()
result("reasons", "only read" in str(s["target_reasons"]) and "--max-workers 4" in str(s["target_reasons"]),
       str(s))
p = subprocess.run([kit.millrace, "service", "status", "--dispatcher", few.d.at], capture_output=True, text=True)
result("status_says_why", "workers needed: " in p.stdout and '  job "few" needs ' in p.stdout, p.stdout + p.stderr)

m = metrics(few.d.page)
for name in ("target_workers", "job_elements_total", "job_bytes_total", "job_client_wait_seconds_total"):
    result(name, m.get("millrace_" + name, 0) > 0, str(m))
result("worker_wait", metrics(many.d.page).get("millrace_job_worker_wait_seconds_total", 0) > 1,
       str(metrics(many.d.page)))
w = metrics(few.workers[0].page)
for name in ("cpu_seconds_total", "busy_ratio", "resident_bytes"):
    result(f"worker_{name}", w.get("millrace_worker_" + name, 0) > 0, str(w))
result("worker_queue_bytes", "millrace_worker_queue_bytes" in w, str(w))
busy = []


def waits_less():
    busy[:] = [metrics(x.workers[0].page)["millrace_worker_busy_ratio"] for x in (few, many)]
    return busy[0] > 0.8 > 0.6 > busy[1]


result("a_worker_that_waits_is_not_busy", kit.until(waits_less), str(busy))
killed = some.workers.pop().process
killed.kill()
killed.wait()
result("streams_without_a_worker",
       kit.until(lambda: metrics(some.d.page)["millrace_dispatcher_waiting_streams"] == 8), str(metrics(some.d.page)))
against_prometheus(few)
result("all_end", few.end() + many.end() + some.end() + idle.end() == [0] * (3 + 5 + 1 + 3))
nothing = kit.Dispatcher("--min-workers", "2", name="nothing")
s = kit.until(lambda: (kit.ask(nothing.at, "status") or {}).get("target_workers") == 2 and kit.ask(nothing.at, "status"))
result("nothing_to_do", s and s["target_reasons"] == ["no job is read", "not less than --min-workers 2"], str(s))
result("it_ends", nothing.stop() == 0)
kit.end()
