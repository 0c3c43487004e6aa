#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The service's processes: how long a stream stops when its worker is killed, what it costs when nothing
happens, and the CPU seconds a GB of both sides together, compared with tf.data's service and a blocking loop over TCP.
   bench/service.py [--build DIR] [--kills N] [--seconds S] [--elements N] [--rounds N]

The CPU seconds are measured in turns, --rounds times: other work on the machine takes the caches from whichever runs
then, so that a figure is a median, and a ratio is the median of those within a round.

The peer needs Python and tensorflow-cpu, which is installed from PyPI into a virtual environment (build/peers, or
$MILLRACE_PEERS); where that cannot be had, it is left out, and said so."""
import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

options = argparse.ArgumentParser()
options.add_argument("--kills", type=int, default=21)
options.add_argument("--seconds", type=int, default=10)
options.add_argument("--elements", type=int, default=3000, help="of 1 MiB")
options.add_argument("--rounds", type=int, default=5, help="of the CPU seconds, all in turns")
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
options.add_argument("--build", metavar="DIR", default=os.environ.get("MR_BUILD") or os.path.join(root, "build"),
                     help="where millrace is built, default $MR_BUILD or build")
o = options.parse_args()
millrace = os.path.join(o.build, "millrace")
if o.rounds < 1:
    options.error("--rounds is 1 at least")
if not os.access(millrace, os.X_OK):
    options.error(f"there is no program {millrace}")
directory = tempfile.TemporaryDirectory(prefix="millrace-bench-")
daemons = []


class Daemon:
    def __init__(self, *words):
        self.process = subprocess.Popen([millrace, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        self.at = self.process.stdout.readline().split()[-1]
        daemons.append(self)

    def cpu(self):
        return cpu(self.process.pid)

    def end(self, how=signal.SIGTERM):
        daemons.remove(self)
        self.process.send_signal(how)
        self.process.wait()


def cpu(pid):
    """Seconds, of all threads."""
    tasks = f"/proc/{pid}/task"
    return sum(int(open(f"{tasks}/{t}/schedstat").read().split()[0]) for t in os.listdir(tasks)) * 1e-9


def start(workers):
    d = Daemon("dispatcher", "--listen", "127.0.0.1:0", "--any-user", "--state", tempfile.mkdtemp(dir=directory.name))
    return d, [Daemon("worker", "--dispatcher", d.at, "--any-user") for _ in range(workers)]


def failover():
    """The client's own word: from the reset to the first block from the new host."""
    d, workers = start(3)
    log = open(os.path.join(directory.name, "client"), "w+")
    reader = subprocess.Popen([millrace, "bench", f'counter().batch(100).distribute("{d.at}", streams=1)'],
                              stdout=subprocess.DEVNULL, stderr=log)
    times = []
    for _ in range(o.kills):
        before = len(times)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            streams = json.loads(subprocess.run(
                [millrace, "service", "workers", "--dispatcher", d.at, "--json"], capture_output=True, text=True,
                check=True).stdout)
            host = [w["worker"] for w in streams if w["streams"]]
            if host:
                break
        time.sleep(0.3)
        victim = next(w for w in workers if w.at == host[0])
        victim.end(signal.SIGKILL)
        workers.remove(victim)
        workers.append(Daemon("worker", "--dispatcher", d.at, "--any-user"))
        while len(times) == before and time.monotonic() < end:
            time.sleep(0.05)
            log.seek(0)
            times = [float(x) for x in re.findall(r"resumes at worker \S+, ([0-9.]+) s", log.read())]
    reader.kill()
    reader.wait()
    for x in [*workers, d]:
        x.end()
    print(f"worker killed until the next block: {statistics.median(times):.3f} s at the median of {len(times)}, "
          f"{max(times):.3f} s at most   target 0.3 s")


def idle():
    """A dispatcher, a worker that hosts a stream, and a client whose consumer does not come for more."""
    d, (w,) = start(1)
    client = subprocess.Popen([millrace, "show", f'counter().batch(1000).distribute("{d.at}", streams=1)'],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    client.stdout.read(1000)
    time.sleep(3)
    parties = {"dispatcher": d.process.pid, "worker": w.process.pid, "client": client.pid}
    before = {name: cpu(pid) for name, pid in parties.items()}
    time.sleep(o.seconds)
    said = ", ".join(f"{name} {(cpu(pid) - before[name]) / o.seconds * 100:.3f} %" for name, pid in parties.items())
    client.kill()
    client.wait()
    for x in (w, d):
        x.end()
    print(f"idle: {said} of a core   target 0.1 % each")


class NotThere(Exception):
    """Why something cannot be measured here."""


def ours(transfer):
    """CPU seconds a GB."""
    d, (w,) = start(1)
    graph = f'range(1).map(x => zeros([1048576], "uint8")).cache().repeat({o.elements})'
    before = d.cpu() + w.cpu()
    client = subprocess.Popen([millrace, "bench", "--json",
                               f'{graph}.distribute("{d.at}", streams=1, transfer="{transfer}")'],
                              stdout=subprocess.PIPE, text=True)
    said = client.stdout.read()
    _, status, used = os.wait4(client.pid, 0)
    client.returncode = status
    spent = d.cpu() + w.cpu() - before + used.ru_utime + used.ru_stime
    for x in (w, d):
        x.end()
    try:
        return spent / (json.loads(said)["bytes"] * 1e-9)
    except ValueError:
        raise NotThere(f"transfer={transfer}: not there") from None


def blocking_loop():
    """CPU seconds a GB of a process that sends 1 MiB at a time over loopback and one that receives it: what the kernel
    takes of any service over TCP."""
    size, source = 1 << 20, 16
    with socket.create_server(("127.0.0.1", 0)) as door:
        sender = os.fork()
        if sender == 0:
            try:
                data = memoryview(b"\1" * (size * source))
                with socket.create_connection(door.getsockname()) as s:
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
                    for i in range(o.elements):
                        s.sendall(data[i % source * size:][:size])
            finally:
                os._exit(0)
        s, _ = door.accept()
    before = os.times()
    with s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        target = [bytearray(size) for _ in range(32)]
        for i in range(o.elements):
            if s.recv_into(target[i % len(target)], size, socket.MSG_WAITALL) != size:
                raise OSError("the TCP loop broke")
    after = os.times()
    _, _, used = os.wait4(sender, 0)
    spent = after.user - before.user + after.system - before.system + used.ru_utime + used.ru_stime
    return spent / (o.elements * size * 1e-9)


def environment():
    """The Python that has TensorFlow; None: it cannot be had."""
    place = os.environ.get("MILLRACE_PEERS", os.path.join(root, "build", "peers"))
    python = os.path.join(place, "bin", "python")
    try:
        if not os.path.exists(python):
            subprocess.run([sys.executable, "-m", "venv", place], check=True, capture_output=True, timeout=300)
        if subprocess.run([python, "-c", "import tensorflow"], capture_output=True).returncode != 0:
            subprocess.run([python, "-m", "pip", "install", "-q", "tensorflow-cpu"], check=True, capture_output=True,
                           timeout=1200)
        return python
    except (OSError, subprocess.SubprocessError) as e:
        print(f"tf.data's service is not measured: tensorflow-cpu cannot be installed here: {e}")
        return None


def peer(python):
    """CPU seconds a GB of tf.data's service, and TensorFlow's version."""
    p = subprocess.run([python, os.path.join(root, "bench", "peers", "data_service.py"), str(o.elements)],
                       capture_output=True, text=True)
    if p.returncode != 0:
        raise NotThere(f"tf.data's service is not measured: {p.stderr.strip().splitlines()[-1:]}")
    said = json.loads(p.stdout.splitlines()[-1])
    return said["cpu_seconds"] / (said["bytes"] * 1e-9), said["version"]


def processor_time():
    python = environment()
    version = None

    def theirs():
        nonlocal version
        spent, version = peer(python)
        return spent

    parts = {"theirs": theirs} if python else {}
    parts |= {"loop": blocking_loop, "tcp": lambda: ours("tcp"), "shared_memory": lambda: ours("shared_memory")}
    spent = {name: [] for name in parts}
    for _ in range(o.rounds):
        for name in list(spent):
            try:
                spent[name].append(parts[name]())
            except NotThere as e:
                print(e)
                del spent[name]

    def median(name):
        s = spent[name]
        return f"{statistics.median(s):.3f} at the median of {len(s)}, {min(s):.3f} to {max(s):.3f}"

    def beside(name, target=""):
        if "theirs" not in spent:
            return ""
        r = [p / s for p, s in zip(spent["theirs"], spent[name])]
        return f"; 1/{statistics.median(r):.1f} of tf.data's, 1/{min(r):.1f} to 1/{max(r):.1f}{target}"

    if "theirs" in spent:
        print(f"tf.data's service of TensorFlow {version}, CPU seconds a GB: {median('theirs')}")
    print(f"CPU seconds a GB, both sides, a blocking loop of 1 MiB over TCP: {median('loop')}{beside('loop')}")
    for transfer, target in (("tcp", 5), ("shared_memory", 20)):
        if transfer in spent:
            print(f"CPU seconds a GB, both sides, elements of 1 MiB, transfer={transfer}: {median(transfer)}"
                  f"{beside(transfer, f'   target 1/{target}')}")


try:
    failover()
    idle()
    processor_time()
finally:
    for x in list(daemons):
        x.end(signal.SIGKILL)
