# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=full
"""Strangers on a worker's local socket, and a worker that describes the memory it shares wrongly: each
connection ends with a line of the log, and the streams continue."""
import array
import fcntl
import os
import random
import re
import socket
import struct
import subprocess
import threading
import time

import kit
from hostile_frames import crc32c, field, frame, frames, hello, is_closed, parse, send, varint
from kit import result

random.seed(int(os.environ.get("MR_TEST_SEED", "1")))
GRAPH = "range(400000).map(x => x * 3).batch(500)"
OPTIONS = "streams=3, seed=1"
WANT = kit.local(GRAPH, OPTIONS)
CLIENT, WORKER = 3, 2
F_ADD_SEALS, SHRINK, GROW, SEAL = 1033, 2, 4, 1


def read_all(at, *words):
    p = subprocess.run([kit.millrace, "show", *words, f'{GRAPH}.distribute("{at}", {OPTIONS})'], capture_output=True,
                       timeout=kit.PATIENCE)
    return p.returncode, p.stdout, p.stderr.decode(errors="replace")


def shake(s, role=CLIENT):
    """The handshake of the one who connects; the name of the acceptor's local socket."""
    stream = frames(s)
    send(s, hello(role=role))
    challenge = parse(parse(next(stream)[1])[2])
    send(s, frame(field(3, b"")))
    next(stream)
    return challenge.get(5, b"").decode(), stream


# ---- strangers who say they are clients
d = kit.Dispatcher("--any-user")
w = kit.Daemon("worker", "--dispatcher", d.at, "--any-user", name="worker")
with kit.connect(w.at) as s:
    local, _ = shake(s)
result("a_worker_names_its_local_socket", re.fullmatch("@millrace-[0-9a-f]{32}", local) is not None, local)


def connect_locally():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(kit.PATIENCE)
    s.connect("\0" + local[1:])
    return s


def give_back(*places):
    return frame(field(37, field(1, b"".join(varint(p) for p in places))))


hostile = {
    "what_was_never_lent": give_back(0),
    "the_end_of_the_world": give_back((1 << 64) - 1),
    "many_places": give_back(*range(0, 4096 * 3000, 4096)),
    "garbage": bytes(random.randrange(256) for _ in range(1000)),
    "memory_of_its_own": frame(field(36, field(1, 1 << 20))),
    "no_memory": frame(field(36, b"")),
}
reader = threading.Thread(target=lambda: readings.append(read_all(d.at)))
readings = []
reader.start()
for name, data in hostile.items():
    with connect_locally() as s:
        _, stream = shake(s)
        send(s, data)
        result("closed " + name, is_closed(s))
# Unexpected descriptors are closed: as many as fit, with every byte.
before = w.connections()
null = os.open("/dev/null", os.O_RDONLY)
for _ in range(20):
    s = connect_locally()
    for byte in hello(role=CLIENT)[:50]:
        s.sendmsg([bytes([byte])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 3))])
    s.close()
result("descriptors_are_closed", kit.until(lambda: w.connections() <= before + 2), f"{before}, {w.connections()}")
reader.join()
result("a_client_notices_nothing", readings[0][:2] == (0, WANT), readings[0][2])
d.stop()
w.stop()


# ---- a worker of our own, which every stream is given to until the client has lost it
def memfd(size, seals=SHRINK | GROW | SEAL):
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


class Worker(threading.Thread):
    """Registers, and does to the client what `attack` says: attack(worker, socket, job, stream, generation)."""

    def __init__(self, at, memory, attack):
        super().__init__(daemon=True)
        self.memory, self.attack, self.attacks, self.opened, self.closed = memory, attack, 1, 0, 0
        self.name = "@hostile-%d-%d" % (os.getpid(), random.randrange(1 << 40))
        self.doors = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
        self.doors[1].bind("\0" + self.name[1:])
        self.doors[1].listen()
        self.at = "127.0.0.1:%d" % self.doors[0].getsockname()[1]
        for i in range(2):
            threading.Thread(target=self.serve, args=(i,), daemon=True).start()
        self.link = kit.connect(at)
        _, self.stream = shake(self.link, WORKER)
        send(self.link, frame(field(20, field(1, self.at.encode()))))

    def run(self):
        """Whatever is hosted here is hosted; nothing is looked up."""
        for _ in self.stream:
            time.sleep(0.2)  # each pulse gets another
            send(self.link, frame(field(24, b"")))

    def serve(self, door):
        while True:
            s, _ = self.doors[door].accept()
            threading.Thread(target=self.talk, args=(s, door), daemon=True).start()

    def talk(self, s, local):
        try:
            if self.closed < self.attacks:
                self.attack_client(s, local)
            else:
                s.close()
        except (OSError, StopIteration):
            pass  # the client has ended the connection

    def attack_client(self, s, local):
        stream = frames(s)
        next(stream)
        send(s, frame(field(2, field(1, 2) + field(2, WORKER) + field(3, b"w" * 32) + field(5, self.name.encode()))))
        next(stream)
        send(s, frame(field(4, b"")))
        if not local:
            return
        fd, size = self.memory()
        memory = frame(field(36, field(1, size)))
        s.sendmsg([memory], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fd))] if fd else [])
        for _, head in stream:
            message = parse(head)
            if 30 in message:
                o = parse(message[30])
                self.opened += 1
                send(s, self.attack(o.get(1, 0), o.get(2, 0), o.get(3, 0)))
        self.closed += 1


def block(job, stream, generation, memory, at, columns=None, rows=4, payload=b"", raw=0, elsewhere=0):
    if columns is None:  # the values of rows of 500
        columns = field(1, 1) + field(2, 4) + field(3, varint(500)) + field(5, memory)
    head = (field(1, job) + field(2, stream) + field(3, generation) + field(6, rows) + field(7, columns) +
            (field(8, raw) if raw else b"") + field(9, crc32c(payload)) + field(10, memory) + field(11, at) +
            (field(12, elsewhere) if elsewhere else b""))
    return frame(head, kind=2, payload=len(payload)) + payload


def places(*strings):
    """Memory that begins with where strings lie in it, and how long they are."""
    fd = memfd(1 << 20)
    os.pwrite(fd, struct.pack(f"<{2 * len(strings)}I", *(x for s in strings for x in s)), 0)
    return [fd], 1 << 20


STRING, FORM_PLACES = 13, 4
named = field(1, FORM_PLACES) + field(2, STRING) + field(5, 64)  # the places take 64 bytes: 8 strings
good = lambda: ([memfd(1 << 20)], 1 << 20)  # noqa: E731
agreed, outside = "wrong size or seals", "is outside"
attacks = {
    "no_descriptor": (lambda: ([], 1 << 20), lambda *o: b"", "shared no memory"),
    "memory_that_could_shrink": (lambda: ([memfd(1 << 20, 0)], 1 << 20), lambda *o: b"", agreed),
    "another_size": (lambda: ([memfd(1 << 20)], 1 << 30), lambda *o: b"", agreed),
    "something_else": (lambda: ([os.open("/dev/null", os.O_RDONLY)], 1 << 20), lambda *o: b"", agreed),
    "beyond_the_end": (good, lambda *o: block(*o, 16000, 1 << 20), outside),
    "up_to_the_last_byte": (good, lambda *o: block(*o, 16000, (1 << 20) - 16000), outside),
    "around_the_end_of_numbers": (good, lambda *o: block(*o, 16000, (1 << 64) - 4096), outside),
    "in_the_middle_of_a_page": (good, lambda *o: block(*o, 16000, 8), outside),
    "a_gigabyte": (good, lambda *o: block(*o, 1 << 30, 0), outside),
    "in_two_places": (good, lambda *o: block(*o, 16000, 0, payload=bytes(16000)), "in two places"),
    "compressed": (good, lambda *o: block(*o, 16000, 0, raw=32000), "in two places"),
    "of_another_size": (good, lambda *o: block(*o, 16064, 0), "of another shape"),
    "no_column": (good, lambda *o: block(*o, 16000, 0, columns=b""), "do not fill it"),
    "places_of_numbers": (good, lambda *o: block(*o, 64, 0, elsewhere=1,
                                                 columns=field(1, FORM_PLACES) + field(2, 4) + field(5, 64)),
                          "another form"),
}
# The same where elements are strings, which may be named by their places.
STRINGS = 'from_tensor_slices(["a", "bc", "", "def"]).repeat(2000)'
WANT_STRINGS = kit.local(STRINGS, OPTIONS)
END, LAST = 1 << 20, (1 << 20) - 64  # a string ends before the last 64 bytes
some = lambda *o: block(*o, 64, 0, rows=8, columns=named, elsewhere=800)  # noqa: E731
of_strings = {
    "places_beyond_the_end": (lambda: places(*[(END, 100)] * 8), some, "outside shared memory"),
    "places_up_to_the_last_byte": (lambda: places(*[(LAST - 99, 100)] * 8), some, "outside shared memory"),
    "places_around_the_end_of_numbers": (lambda: places(*[((1 << 32) - 1, 100)] * 8), some, "outside shared memory"),
    "places_of_four_gigabytes": (lambda: places(*[(0, (1 << 32) - 1)] * 8), some, "outside shared memory"),
    "places_of_more_bytes": (lambda: places(*[(0, 101)] * 8), some, "outside shared memory"),
    "places_of_fewer_bytes": (lambda: places(*[(0, 99)] * 8), some, "another number of bytes"),
    "places_of_more_strings": (lambda: places(*[(0, 100)] * 8),
                               lambda *o: block(*o, 64, 0, rows=9, columns=named, elsewhere=800), "another shape"),
    "places_without_memory": (good, lambda *o: block(*o, 0, 0, rows=8, columns=named, payload=bytes(64)),
                              "another form"),
    "bytes_elsewhere_without_memory": (good, lambda *o: block(*o, 0, 0, rows=8, columns=named, payload=bytes(64),
                                                              elsewhere=800), "in two places"),
    "a_gigabyte_elsewhere": (good, lambda *o: block(*o, 64, 0, rows=8, columns=named, elsewhere=1 << 31),
                             "out of range"),
}
for name, (memory, attack, word) in {**attacks, **of_strings}.items():
    graph, want = (STRINGS, WANT_STRINGS) if name in of_strings else (GRAPH, WANT)
    d = kit.Dispatcher("--any-user", name="d-" + name)
    bad = Worker(d.at, memory, attack)
    bad.start()
    kit.until(lambda: len(kit.ask(d.at, "workers") or []) == 1)
    out = []
    # The lists of files are looked up by the client: the hostile worker does not know how.
    t = threading.Thread(target=lambda: out.append(
        subprocess.run([kit.millrace, "show", f'{graph}.distribute("{d.at}", {OPTIONS}, match="client")'],
                       capture_output=True, timeout=kit.PATIENCE)))
    t.start()
    kit.until(lambda: bad.closed > 0)
    w = kit.Daemon("worker", "--dispatcher", d.at, "--any-user", name="w-" + name)
    bad.link.close()
    t.join()
    p = out[0]
    lost = re.findall(f"worker {bad.at} is lost: .*", p.stderr.decode())
    result("the_connection_ends " + name, bad.closed > 0 and any(word in line for line in lost), p.stderr.decode()[-800:])
    result("and_the_streams_go_on " + name, p.returncode == 0 and p.stdout == want, p.stderr.decode()[-800:])
    d.stop()
    w.stop()

# ---- one that sends nothing else
for name in ("of_another_size", "in_two_places", "in_the_middle_of_a_page"):
    memory, attack, word = attacks[name]
    d = kit.Dispatcher("--any-user", name="for-ever-" + name)
    bad = Worker(d.at, memory, attack)
    bad.attacks = 100
    bad.start()
    kit.until(lambda: len(kit.ask(d.at, "workers") or []) == 1)
    p = subprocess.run([kit.millrace, "show", f'{GRAPH}.distribute("{d.at}", {OPTIONS}, match="client")'],
                       capture_output=True, timeout=kit.PATIENCE)
    said = p.stderr.decode()
    result("the_job_fails_after_three_attempts " + name, p.returncode == 1 and p.stdout == b"" and
           len(re.findall(f"worker {bad.at} is lost: .*{word}", said)) == 3 and "3 attempts failed" in said and
           f"the last one from worker {bad.at}: " in said, said[-800:])
    bad.link.close()
    d.stop()
kit.end()
