#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=full
"""How many ranges are asked for at once, of which size, and over how many connections."""
import os
import resource
import socket
import subprocess
import threading
import time

import kit
from kit import Run, directory, result, show

# With AddressSanitizer, what is freed counts as used up to this size.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=2"

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
server = kit.Server()


class Together:
    """Answers are held back until `at_once` requests are there, or all `n` have come. The first is answered at once.

    Requests for ranges of `size` bytes are numbered by their place, since those on different connections may arrive
    in any order: the reader asks for no more ranges while it waits for the one that it needs next."""

    def __init__(self, at_once, n, size=None):
        self.at_once, self.n, self.size, self.arrived, self.gave_up = at_once, n, size, 0, False
        self.changed, self.ports, self.numbers = threading.Condition(), set(), set()

    def __call__(self, s, h, path):
        with self.changed:
            self.ports.add(h.client_address)
            number = s.range_of(h, len(s.files[path]))[0] // self.size if self.size else self.arrived
            self.numbers.add(number)
            while self.arrived in self.numbers:
                self.arrived += 1
            self.changed.notify_all()
            last = min(self.n, (number - 1) // self.at_once * self.at_once + self.at_once + 1)
            if number and not self.changed.wait_for(lambda: self.arrived >= last, timeout=60):
                self.gave_up = True
        s.send(h, path)


def asks(name, expression, want, at_once, n, size=None, *arguments, connections=None, path="/a", **environment):
    hold = server.always[path] = Together(at_once, n, size)
    server.take()
    run = show(expression, *arguments, **environment)
    seen = [r for r in server.take() if r[0] == path]
    sizes = {b - a + 1 for a, b in ((int(x) for x in r[1][6:].split("-")) for r in seen)}
    good = run.status == 0 and run.stdout == want.stdout and not hold.gave_up and len(seen) == n
    good = good and (size is None or sizes == {size}) and (connections is None or len(hold.ports) <= connections)
    result(name, good, f"{run}\n{len(seen)} requests over {len(hold.ports)} connections, gave up: {hold.gave_up}, sizes {sizes}")


# ---- sequential
MiB = 1 << 20
file = os.path.join(directory.name, "a")
with open(file, "wb") as f:
    for i in range(16 * MiB // 64):
        f.write(b"%063d\n" % i)
with open(file, "rb") as f:
    url = server.put("/a", f.read())
lines = show(f'text_line("{file}").skip(262140)')
expression = f'text_line("{url}").skip(262140)'
asks("connections_and_read_ahead", expression, lines, 4, 16, MiB, "--connections", "4", "--read-ahead", "4M", connections=4)
asks("read_ahead_alone", expression, lines, 2, 32, MiB // 2, "--read-ahead", "2M")
asks("little_read_ahead", expression, lines, 1, 256, MiB // 16, "--connections", "32", "--read-ahead", "64K", connections=1)
asks("one_connection", expression, lines, 1, 2, 8 * MiB, "--connections", "1", connections=1)
asks("in_the_graph", expression + ".with_options(remote_connections=4, remote_read_ahead=4194304)", lines, 4, 16, MiB, connections=4)
asks("the_command_wins", expression + ".with_options(remote_connections=9, remote_read_ahead=90000)", lines, 4, 16, MiB,
     "--connections", "4", "--read-ahead", "4M", connections=4)
# Without ranges a transfer stops while its reader reads the other one, which needs a connection too.
longer = server.files["/a"] + server.files["/a"][:8 * MiB]
for path in ("/b", "/c"):
    server.put(path, longer)
    server.always[path] = kit.fault(ranges=False)
both = f'zip(text_line("{server.address}/b"), text_line("{server.address}/c")).skip({len(longer) // 64 - 1})'
run = Run(["show", both, "--connections", "1"], timeout=120)
result("a_reader_that_waits_keeps_no_other_from_reading", run.status == 0 and len(run.lines) == 1, str(run))

# Files without ranges, of which at most 3 MiB are in memory under a limit: what is sent lies in sockets otherwise.
sent = []


def count(s, h, path):
    h.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
    h.send_response(200)
    h.send_header("Content-Length", str(len(longer)))
    h.end_headers()
    try:
        for at in range(0, len(longer), 1 << 16):
            h.wfile.write(longer[at:at + (1 << 16)])
            sent.append(path)
    except OSError:
        h.close_connection = True


def is_still():
    before = -1
    while len(sent) != before or not sent:
        before = len(sent)
        time.sleep(1)
    return before << 16


server.always["/b"] = count
reader = subprocess.Popen([kit.millrace, "show", f'text_line("{server.address}/b")', "--memory-limit", "64M"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
held = is_still()  # its output is not read
reader.kill()
reader.communicate()
result("a_file_without_ranges_under_a_limit", held < 14 * MiB, f"{held} bytes were sent")

# While four such files wait, the connection of a fifth, with ranges, is kept; and no descriptors are left for others.
ports = set()


def on_port(s, h, path):
    ports.add(h.client_address)
    s.send(h, path)


paths = [server.put(f"/w{i}", longer) for i in range(40)]
server.always.update((f"/w{i}", kit.fault(ranges=False)) for i in range(40))
server.always["/a"] = on_port
first = ", ".join(f'text_line("{p}")' for p in paths[:4])
run = show(f'zip({first}, text_line("{url}").batch(16000)).take(16)', "--connections", "1", "--memory-limit", "64M")
result("a_connection_is_kept_beside_files_that_wait", run.status == 0 and len(run.lines) == 16 and len(ports) <= 3, f"{run} {len(ports)}")
every = ", ".join(f'"{p}"' for p in paths)
expression = f'from_tensor_slices([{every}]).interleave(f => text_line(f), cycle_length=40).take(1000)'
for name, limit, elements, words in (("forty_files_wait", 256, 1000, ""),
                                     ("no_descriptors_are_left", 30, None, "Too many open files; gave up after 2 tries")):
    run = subprocess.run([kit.millrace, "show", expression, "--memory-limit", "512M"], capture_output=True, check=False, timeout=300,
                         env={**os.environ, "MILLRACE_REMOTE_RETRIES": "2"},
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    shown, said = run.stdout.splitlines(), run.stderr.decode()
    result(name, (len(shown) == elements if elements else run.returncode == 1) and words in said, f"{run.returncode} {len(shown)} {said}")

for name, arguments, words in (
        ("too_many_connections", ["--connections", "257"], "1 to 256"),
        ("too_little_read_ahead", ["--read-ahead", "1K"], "remote_read_ahead must be 0 or at least 65536")):
    run = show("range(3)", *arguments)
    result(name, run.status in (1, 2) and words in run.stderr and not run.lines, str(run))
server.always.clear()

# ---- random access
records = os.path.join(directory.name, "r")
Run(["write", "--out", records, "--expr", 'range(2000).map(i => {"a": zeros([10000], "float32"), "b": i})'])
name = "r-00000-of-00001.tfrecord"
Run(["index", f"{directory.name}/{name}"])
for ending in ("", ".idx"):
    with open(f"{directory.name}/{name}{ending}", "rb") as f:
        server.put("/" + name + ending, f.read())
shuffled = 'tfrecord("{}/' + name + '").global_shuffle(seed=1).take(24).map(x => parse_example(x, b=int64))'
want = show(shuffled.format(directory.name))


class Data(Together):
    """Holds back records and columns only, not heads and the end of the file."""

    def __call__(self, s, h, path):
        size = len(s.files[path])
        first, last = s.range_of(h, size)
        if last - first > 1000 and last < size - 1:
            return super().__call__(s, h, path)
        return s.send(h, path)


hold = server.always["/" + name] = Data(8, 24)
hold.arrived = 1  # none is answered at once
run = show(shuffled.format(server.address))
result("eight_records_at_once", run.status == 0 and run.stdout == want.stdout and not hold.gave_up, f"{run}")
hold = server.always["/" + name] = Together(1, 1000)
run = show(shuffled.format(server.address), "--connections", "3")
result("three_connections", run.status == 0 and run.stdout == want.stdout and 1 < len(hold.ports) <= 3, f"{run} {hold.ports}")

# ---- columns: groups of seven, of which the first two and the last are read
table = ", ".join(f'"{c}": cast(i, "float64") * {k}.5' for k, c in enumerate("abcdefg"))
out = os.path.join(directory.name, "t")
Run(["write", "--out", out, "--format", "parquet", "--expr", f"range(60000).map(i => {{{table}}})", "--row-group", "1600K"])
with open(out + "-00000-of-00001.parquet", "rb") as f:
    server.put("/t.parquet", f.read())
columns = 'parquet("{}", columns=["a", "b", "g"])'
want = show(columns.format(out + "-00000-of-00001.parquet"))
hold = server.always["/t.parquet"] = Data(2, 5)
hold.arrived = 1
server.take()
run = show(columns.format(server.address + "/t.parquet"))
result("columns_at_once", run.status == 0 and run.stdout == want.stdout and not hold.gave_up, str(run))
# Of each group one range for a and b, which are neighbours, and one for g; of the last, which is small, one for all.
result("neighbours_are_one_range", hold.arrived == 1 + 5, f"{hold.arrived - 1} ranges: {[r[1] for r in server.take()]}")
server.always.clear()
for option, size in (("--memory-limit", "64M"), ("--read-ahead", "64K")):
    run = show(columns.format(server.address + "/t.parquet"), option, size)
    result(f"columns_with{option.replace('-', '_')}", run.status == 0 and run.stdout == want.stdout, str(run))
state = os.path.join(directory.name, "state")
begun = show(columns.format(server.address + "/t.parquet"), "--save-after", "41234", "--state", state)
rest = show(columns.format(server.address + "/t.parquet"), "--restore", state)
result("columns_resume", begun.lines + rest.lines == want.lines, f"{begun}\n{rest}")
kit.end()
