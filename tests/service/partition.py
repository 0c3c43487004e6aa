#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Dispatcher, two workers and a client as four hosts (network namespaces) at one switch, whose cables are pulled for
a while, and where the kernel can do that, lose, delay and reorder packets: what the client reads is what
service="local" gives, byte for byte. Skipped where namespaces cannot be made. Two of the troubles by default, all
under tests/run.sh."""
import atexit
import os
import shutil
import subprocess
import time

import kit

SILENT = 7  # seconds: longer than anybody waits for a sign of life
GRAPH = "range(120000).shuffle(500, seed=3).map(x => x * x).batch(2)"
OPTIONS = "streams=4, seed=1, max_outstanding_bytes=20000"
PREFIX = f"mr{os.getpid()}"
SWITCH = PREFIX + "s"
HOSTS = {name: f"10.77.0.{i + 1}" for i, name in enumerate(["dispatcher", "one", "two", "client"])}


def ip(*words, host=None, check=True):
    words = ["ip", *(["-n", PREFIX + host] if host else []), *words]
    p = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if check and p.returncode != 0:
        raise OSError(f"{' '.join(words)}: {p.stderr.strip()}")
    return p


def inside(host):
    return ["ip", "netns", "exec", PREFIX + host]


def remove():
    for name in [*HOSTS, "s"]:
        ip("netns", "delete", PREFIX + name, check=False)


def make():
    ip("netns", "add", SWITCH)
    ip("link", "add", "name", "hub", "type", "bridge", host="s")
    ip("link", "set", "hub", "up", host="s")
    for name, address in HOSTS.items():
        ip("netns", "add", PREFIX + name)
        ip("link", "add", "net", "type", "veth", "peer", "name", name, "netns", SWITCH, host=name)
        ip("address", "add", address + "/24", "dev", "net", host=name)
        ip("link", "set", "lo", "up", host=name)
        ip("link", "set", "net", "up", host=name)
        ip("link", "set", name, "master", "hub", host="s")
        ip("link", "set", name, "up", host="s")
    return subprocess.run([*inside("client"), "true"], capture_output=True).returncode == 0


def pull(host, seconds):
    ip("link", "set", host, "down", host="s")
    time.sleep(seconds)
    ip("link", "set", host, "up", host="s")


def part(a, b, seconds):
    """a and b do not reach each other; others reach both."""
    ip("route", "add", "blackhole", HOSTS[b], host=a)
    ip("route", "add", "blackhole", HOSTS[a], host=b)
    time.sleep(seconds)
    ip("route", "del", "blackhole", HOSTS[b], host=a)
    ip("route", "del", "blackhole", HOSTS[a], host=b)


def netem(*words):
    return shutil.which("tc") is not None and all(
        subprocess.run(["tc", "-n", SWITCH, "qdisc", words[0], "dev", name, "root", "netem", *words[1:]],
                       capture_output=True).returncode == 0 for name in HOSTS)


def read(name, want, trouble, uring):
    """The client reads; once it has begun, there is trouble."""
    at = HOSTS["dispatcher"] + ":5050"
    daemons = [kit.Daemon("dispatcher", "--listen", at, "--state", kit.path(name + ".state"), "--any-user", "--insecure", *uring, name=name,
                          before=inside("dispatcher"))]
    try:
        for w in ("one", "two"):
            daemons.append(kit.Daemon("worker", "--dispatcher", at, "--listen", HOSTS[w] + ":0", "--any-user", "--insecure", "--root", kit.directory,
                                      *uring, name=f"{name}.{w}", before=inside(w)))
        log = kit.path(name + ".client")
        client = subprocess.Popen([*inside("client"), kit.millrace, "show", *uring,
                                   f'{GRAPH}.distribute("{at}", {OPTIONS})'], cwd=kit.directory,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=open(log, "w"))
        kit._processes.append(client)
        got = client.stdout.read(50000)  # what comes after it waits for the end of the trouble
        trouble()
        got += client.stdout.read()
        status = client.wait(kit.PATIENCE)
        with open(log) as f:
            logs = f.read() + "".join(f"---- {d.log_path}\n{d.log()[-2000:]}" for d in daemons)
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), -1)
        kit.result(name, status == 0 and got == want,
                   f"status {status}, {len(got)} bytes instead of {len(want)}, first difference at {at}\n{logs}")
    finally:
        for d in daemons:
            d.process.kill()
            d.process.wait()


TROUBLES = {
    "a_worker_is_cut_off": lambda: pull("one", SILENT),
    "the_dispatcher_is_cut_off": lambda: pull("dispatcher", SILENT),
    "the_client_is_cut_off": lambda: pull("client", SILENT),
    "a_worker_and_the_client_do_not_meet": lambda: part("one", "client", SILENT),
    "a_worker_and_the_dispatcher_do_not_meet": lambda: part("one", "dispatcher", SILENT),
    "the_dispatcher_and_the_client_do_not_meet": lambda: part("dispatcher", "client", SILENT),
    "cables_are_loose": lambda: [pull(h, 0.4) for h in ("one", "two", "dispatcher", "client", "one")],
}


def main():
    atexit.register(remove)
    try:
        made = make()
    except OSError as e:
        made = e
    if made is not True:
        kit.skip("hosts_that_are_cut_off", f"no network namespaces can be made here: {made}")
        kit.end()
    want = kit.local(GRAPH, OPTIONS)
    some = len(TROUBLES) if "MR_TEST_SEED" in os.environ else 2
    for i, (name, trouble) in enumerate(list(TROUBLES.items())[:some]):
        read(name, want, trouble, ["--no-uring"] if i % 2 else [])
    if netem("add", "delay", "5ms", "3ms", "loss", "2%", "reorder", "20%"):
        read("packets_are_lost_late_and_out_of_order", want, lambda: None, [])
    else:
        kit.skip("packets_are_lost_late_and_out_of_order", "this kernel has no netem")
    kit.end()


main()
