#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""A proxy between dispatcher, workers and clients spoils their connections: what a client reads is what
service="local" gives, byte for byte, or in dynamic mode every element once.

    proxy.py [SEED [RUNS]]     a run that fails prints its seed and what was done to which connection

4 runs by default, 12 under tests/run.sh, 60 with --long; half of them on io_uring, half on epoll.
"""
import os
import random
import socket
import struct
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

FAULTY = 14  # connections that are spoilt at most; those after them are left alone, so that a run ends
# Each wait costs the ten seconds of a handshake: more of them, for one pair that does not meet meanwhile, would
# outlast the 30 s of client_timeout.
MOST_WAITS = 2
MOST_SECONDS = 450  # for one run; nothing of it takes long, but the machine may be busy
REGISTER = 20  # the number of a worker's registration in a message; its field 1 is where clients find it
TABLE = []
for i in range(256):
    for _ in range(8):
        i = (i >> 1) ^ (0x82F63B78 & -(i & 1))
    TABLE.append(i)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def varint(n):
    out = b""
    while n > 0x7F:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def read_varint(data, at):
    n = shift = 0
    while True:
        n |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return n, at


def replace(message, number, change):
    """The message with the bytes of one of its fields changed."""
    out, at = b"", 0
    while at < len(message):
        begin = at
        key, at = read_varint(message, at)
        if key & 7 == 2:
            n, at = read_varint(message, at)
            value, at = message[at:at + n], at + n
            if key >> 3 == number:
                value = change(value)
                out += varint(key) + varint(len(value)) + value
                continue
        elif key & 7 == 0:
            _, at = read_varint(message, at)
        else:
            at += 8 if key & 7 == 1 else 4
        out += message[begin:at]
    return out


class Frames:
    """Of a worker's frames to the dispatcher, the registration names the worker's proxy."""

    def __init__(self, name_of):
        self.held, self.name_of = b"", name_of

    def __call__(self, data):
        self.held += data
        out = b""
        while len(self.held) >= 24:
            n, payload = struct.unpack_from("<IQ", self.held, 8)
            whole = 24 + n + payload
            if len(self.held) < whole:
                break
            frame, self.held = self.held[:whole], self.held[whole:]
            if frame[4] == 1:
                head = replace(frame[24:24 + n], REGISTER, lambda r: replace(r, 1, lambda _: self.name_of))
                fixed = frame[:8] + struct.pack("<IQ", len(head), payload)
                frame = fixed + struct.pack("<I", crc32c(fixed + head)) + head + frame[24 + n:]
            out += frame
        return out


class Proxy:
    """Accepts at .at; each connection goes on to `to`, and is spoilt as the run draws."""

    def __init__(self, run, name, to, frames=None):
        self.run, self.name, self.to, self.frames = run, name, to, frames
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.at = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.sockets = []
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        for s in [self.listener, *self.sockets]:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            what = self.run.draw(self.name)
            self.sockets.append(near)
            if what[0] == "nobody":  # accepted, and then silence
                continue
            try:
                far = socket.create_connection(kit.address(self.to), timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self.sockets.append(far)
            for s in (near, far):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            frames = Frames(self.frames) if self.frames else None
            threading.Thread(target=self.pump, args=(near, far, what, 0, frames), daemon=True).start()
            threading.Thread(target=self.pump, args=(far, near, what, 1, None), daemon=True).start()

    def pump(self, a, b, what, way, frames):
        kind, limit, sides = what
        passed = 0
        r = random.Random(limit + way)
        try:
            while True:
                data = a.recv(1 << 16)
                if not data:
                    break
                if frames:
                    data = frames(data)
                if kind == "cut" and sides[way] and passed + len(data) > limit:  # in the middle of a frame
                    b.sendall(data[:limit - passed])
                    for s in (a, b):
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
                if kind == "silence" and sides[way] and passed + len(data) > limit:
                    b.sendall(data[:limit - passed])
                    while a.recv(1 << 16):
                        pass
                    break
                if kind == "delay":
                    time.sleep(r.random() * 0.03)
                passed += len(data)
                while kind == "trickle" and data and passed < 1000 + limit:
                    b.sendall(data[:3])
                    data = data[3:]
                    time.sleep(0.0005)
                b.sendall(data)
        except OSError:
            pass
        except Exception as e:  # of the proxy's own
            self.run.history.append(f"the proxy fails: {e!r}")
            self.run.failed = True
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()


class Run:
    def __init__(self, seed):
        self.random, self.history, self.lock = random.Random(seed), [], threading.Lock()
        self.left, self.seen, self.failed, self.began = FAULTY, 0, False, time.time()
        self.waits = Counter()

    def draw(self, name):
        """What happens to the next connection: the kind, after how many bytes, and to which ways."""
        with self.lock:
            kinds = ["cut", "cut", "delay", "trickle"]
            if self.seen:  # something is spoilt in each run
                kinds.append("none")
            if self.waits[name] < MOST_WAITS:
                kinds += ["silence", "nobody"]
            kind = self.random.choice(kinds)
            limit = int(2 ** self.random.uniform(0, 17))
            sides = self.random.choice([(True, True), (True, False), (False, True)])
            if self.left <= 0:
                kind = "none"
            self.left -= 1
            self.waits[name] += kind in ("silence", "nobody")
            self.seen += kind != "none"
            self.history.append(f"{time.time() - self.began:7.3f} {name}: {kind} after {limit}, {sides}")
            return kind, limit, sides


GRAPHS = [
    ("range(60000).map(x => x * x).batch(20)", None),
    ("range(60000).shuffle(500, seed=3).map(x => (x, 5 // (x % 97 - 5))).ignore_errors().batch(20)", None),
    ("range(20000).shuffle(100).batch(5).repeat(3)", None),
    ("range(60000).shuffle(500).batch(20)", range(60000)),
]


def read(run, name, uring):
    graph, numbers = run.random.choice(GRAPHS)
    # By "auto" the blocks of a worker of this host go past the proxy.
    # The client never gives up: how long it does without is not what is looked at here.
    options = f"seed=4, connect_timeout={MOST_SECONDS}, max_outstanding_bytes={run.random.choice([4000, 200000])}"
    options += f', transfer="{run.random.choice(["tcp", "tcp", "auto"])}"'
    options += ', processing_mode="dynamic"' if numbers else f", streams={run.random.randint(1, 5)}"
    d = kit.Dispatcher("--state", kit.path(name + ".state"), "--any-user", *uring, name=name + ".d")
    proxies, workers = [], []
    try:
        service = Proxy(run, "client to dispatcher", d.at)
        proxies.append(service)
        for i in range(2):
            at = f"127.0.0.1:{ports(1)[0]}"
            front = Proxy(run, f"client to worker {i}", at)
            back = Proxy(run, f"worker {i} to dispatcher", d.at, front.at.encode())
            proxies += [front, back]
            workers.append(kit.Daemon("worker", "--dispatcher", back.at, "--listen", at, "--any-user", *uring, name=f"{name}.w{i}"))
        run.history.append(f"{graph} {options}")
        show = [kit.millrace, "show", *uring]
        got = subprocess.run([*show, f'{graph}.distribute("{service.at}", {options})'], cwd=kit.directory,
                             stdin=subprocess.DEVNULL, capture_output=True, timeout=MOST_SECONDS)
        logs = got.stderr.decode() + "".join(f"---- {x.log_path}\n{x.log()[-2000:]}" for x in [d, *workers])
        if got.returncode != 0:
            return f"status {got.returncode}\n{logs}"
        if numbers:
            wrong = Counter(int(x) for x in got.stdout.translate(None, b'[]" ').replace(b",", b"\n").split())
            wrong.subtract(Counter(numbers))
            wrong = [(x, n) for x, n in wrong.items() if n]
            return f"wrong: {wrong[:20]}\n{logs}" if wrong else None
        want = kit.local(graph, options)
        if got.stdout != want:
            at = next((i for i, (a, b) in enumerate(zip(got.stdout, want)) if a != b), -1)
            return f"{len(got.stdout)} bytes instead of {len(want)}, first difference at {at}\n{logs}"
        return None if run.seen and not run.failed else "nothing was spoilt, or the proxy failed"
    except subprocess.TimeoutExpired as e:
        return f"it stands still: {(e.stderr or b'').decode()}" + "".join(
            f"---- {x.log_path}\n{x.log()[-2000:]}" for x in [d, *workers])
    finally:
        for p in proxies:
            p.close()
        for x in [d, *workers]:
            x.process.kill()
            x.process.wait()


def one(seed):
    run = Run(seed)
    name = f"seed_{seed}"
    why = read(run, name, ["--no-uring"] if seed % 2 else [])
    return name, why and f"{why}\n  again: proxy.py {seed} 1\n  " + "\n  ".join(run.history)


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else int(os.environ.get("MR_TEST_SEED", "1")) * 1000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else (
        60 if os.environ.get("MR_TEST_TIER") == "long" else 12 if "MR_TEST_SEED" in os.environ else 4)
    print(f"seed {seed}, {runs} runs")
    with ThreadPoolExecutor(4) as pool:
        for name, why in pool.map(one, range(seed, seed + runs)):
            kit.result(name, not why, why)
    kit.end()


main()
