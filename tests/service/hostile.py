# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=full
"""Strangers on the dispatcher's port, by the hundred, while jobs are read: each connection ends with
a line of the log, and nothing else notices."""
import os
import random
import socket
import threading
import time

import kit
from hostile_frames import declared, field, frame, hello, is_closed, send
from kit import result

seed = int(os.environ.get("MR_TEST_SEED", "1"))
random.seed(seed)


class Asker(threading.Thread):
    """Asks for the status all the time, and keeps the longest that it took."""

    def __init__(self, d):
        super().__init__(daemon=True)
        self.d, self.longest, self.failed, self.n, self.done = d, 0, 0, 0, False

    def run(self):
        while not self.done:
            begin = time.monotonic()
            self.failed += kit.ask(self.d.at, "status") is None
            self.longest = max(self.longest, time.monotonic() - begin)
            self.n += 1
            time.sleep(0.2)


d = kit.Dispatcher("--state", "state", "--status", "127.0.0.1:0", "--any-user")
load = kit.load(d.at, jobs=4, streams=8, workers=4, every=5)
kit.until(lambda: (kit.ask(d.at, "status") or {}).get("streams") == 32)
asker = Asker(d)
asker.start()


def elements():
    return sum(j["elements"] for j in kit.ask(d.at, "jobs"))


before, memory = elements(), d.memory()

# ---- what no peer says
first = {
    "garbage": bytes(random.randrange(256) for _ in range(1000)),
    "zeros": bytes(5000),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
    "another_magic": frame(b"", magic=b"MRF2"),
    "an_unknown_kind": frame(b"", kind=7),
    "a_block": frame(field(1, 1), kind=2, payload=100) + bytes(100),
    "a_wrong_checksum": frame(field(1, 1), good=False),
    "no_message": frame(b"\xff\xff\xff\xff\xff"),
    "an_empty_message": frame(b""),
    "a_message_too_soon": frame(field(40, field(1, 1) + field(2, b"status"))),
    "another_version": hello(version=99),
    "a_role_that_is_none": hello(role=77),
    "a_short_nonce": hello(nonce=b"x"),
    "a_long_name": hello(host=b"h" * 60000),
    "a_head_over_64_KiB": declared(65537) + bytes(70000),
    "a_head_of_4_GiB": declared(0xFFFFFFFF) + bytes(70000),
    "a_payload_of_a_lifetime": declared(10, 1 << 62, kind=2) + bytes(70000),
    "nested_without_end": frame(field(1, b"\x0b" * 60000)),
}
for name, data in first.items():
    with d.connect() as s:
        send(s, data)
        result("closed_at_once " + name, is_closed(s), d.log()[-500:])
    result("one_line_of_the_log " + name, kit.until(lambda: d.log().count("was closed") >= 1), d.log()[-500:])
lines = d.log().count("the connection from")
result("the_first_have_a_line_each", kit.until(lambda: d.log().count("the connection from") >= min(10, len(first) - 2)) and
       lines <= len(first), f"{lines} lines for {len(first)}\n{d.log()[-3000:]}")

# Random changes of a good beginning: what is not refused at once waits for its deadline.
many = []
for i in range(300):
    data = bytearray(hello())
    for _ in range(random.randrange(1, 5)):
        data[random.randrange(len(data))] = random.randrange(256)
    s = d.connect()
    send(s, bytes(data[:random.randrange(1, len(data) + 1)]))
    many.append(s)
result("changed_hellos_harm_nobody", kit.ask(d.at, "status") is not None)
for s in many:
    s.close()


def shaken(role=4):
    """A stranger who has shaken hands."""
    s = d.connect()
    send(s, hello(role=role))
    s.settimeout(kit.PATIENCE)
    if not s.recv(65536):
        return None
    send(s, frame(field(3, b"")))
    return s if s.recv(65536) else None


after = {
    "garbage": bytes(random.randrange(256) for _ in range(1000)),
    "a_head_over_16_MiB": declared((16 << 20) + 1),
    "a_message_of_no_kind": frame(field(63, b"x")),
    "streams_out_of_range": frame(field(17, field(1, 1) + field(2, 1 << 31))),
    "a_join_without_a_job": frame(field(10, field(1, 1) + field(10, 5))),
    "a_hello_again": hello(),
    "half_an_ask": frame(field(40, b"\x08")),
}
for name, data in after.items():
    s = shaken()
    result("handshake_before " + name, s is not None)
    send(s, data)
    result("closed_after_the_handshake " + name, is_closed(s), d.log()[-500:])
    s.close()
# 16 MiB may be said once the handshake is done: begun by many, and never ended, it is not held for them.
held = [s for s in (shaken() for _ in range(40)) if s]
for s in held:
    send(s, declared(16 << 20) + bytes(1000))
result("large_heads_that_never_come", kit.ask(d.at, "status") is not None and len(held) == 40)
result("room_for_what_came_only", d.memory() - memory < 256 << 20, f"{(d.memory() - memory) >> 20} MiB")
for s in held:
    s.close()

# ---- half-open, slow, and too many
half = [d.connect() for _ in range(400)]
result("asked_beside_400_half_open", kit.ask(d.at, "status") is not None)
slow = half[:100]


def drip():
    """Sends a byte each tenth of a second until the connection is closed."""
    data, at = hello(host=b"h" * 50000), 0
    while slow and at < len(data):
        for s in list(slow):
            if not send(s, data[at:at + 1]):
                slow.remove(s)
        at += 1
        time.sleep(0.1)


dripper = threading.Thread(target=drip, daemon=True)
dripper.start()
storm_end = time.monotonic() + 5
opened = 0


def storm():
    global opened
    while time.monotonic() < storm_end or (opened <= 200 and time.monotonic() < storm_end + kit.PATIENCE):
        try:
            s = d.connect()
            if random.random() < 0.5:
                send(s, hello()[:random.randrange(200)])
            s.close()
            opened += 1
        except OSError:
            pass


threads = [threading.Thread(target=storm, daemon=True) for _ in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
result("a_storm_of_connections", opened > 100, str(opened))
crowd = []
for _ in range(1500):
    try:
        crowd.append(d.connect())
    except OSError:
        break
result("asked_in_a_crowd", kit.ask(d.at, "status") is not None, f"{len(crowd)} connections\n{d.log()[-1000:]}")
result("connections_are_bounded", d.connections() < 2200, str(d.connections()))
result("half_open_and_slow_ones_are_closed", kit.until(lambda: not slow) and all(is_closed(s) for s in half[100:110]),
       f"{len(slow)} drip on")
for s in half + crowd:
    s.close()
result("room_is_given_back", kit.until(lambda: d.connections() < 100), str(d.connections()))

# ---- peers that shook hands and do not read what they ask for
deaf = [s for s in (shaken() for _ in range(20)) if s]
question = frame(field(40, field(1, 1) + field(2, b"page")))
for s in deaf:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(0.2)
    for _ in range(3000):
        if not send(s, question):
            break
result("asked_beside_deaf_peers", kit.ask(d.at, "status") is not None)
result("deaf_peers_are_bounded", d.memory() - memory < 128 << 20,
       f"{(d.memory() - memory) >> 20} MiB")
for s in deaf:
    s.close()

# ---- other clients noticed nothing
asker.done = True
asker.join()
now = elements()
result("the_status_was_always_there", asker.failed == 0 and asker.n > 0,
       f"{asker.failed} of {asker.n} failed, {asker.longest:.1f} s at most\n{d.log()[-2000:]}")
result("jobs_went_on", load.poll() is None and kit.until(lambda: elements() > now), f"{before} {now}")
result("workers_stayed", kit.until(lambda: [w["state"] for w in kit.ask(d.at, "workers")] == ["serving"] * 4),
       d.log()[-2000:])
result("memory_is_bounded", kit.until(lambda: d.memory() - memory < 200 << 20), f"{(d.memory() - memory) >> 20} MiB")
print(f"status: {asker.n} times, {asker.longest:.2f} s at most; {opened} connections in the storm; "
      f"{memory >> 20} MiB before, {d.memory() >> 20} MiB after")
result("it_ends_well", d.stop() == 0, d.log()[-2000:])
kit.end()
