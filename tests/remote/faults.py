#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Every call of libcurl and every response fails once: what is delivered is right as far as it goes."""
import ctypes
import itertools
import os
import subprocess
import time

import kit
from kit import directory, fault, result, show, status

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
double = os.path.join(kit.build, "tests", "curl_double", "libcurl.so.4")
if not os.path.exists(double):
    kit.skip_all("the double of libcurl is not built")
ctypes.CDLL("libcurl.so.4")
with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
    real = next(line.split()[-1] for line in maps if "libcurl.so" in line)
failed = os.path.join(directory.name, "failed")
doubled = {"LD_LIBRARY_PATH": os.path.dirname(double), "MR_CURL_REAL": real, "MR_CURL_FAILED": failed}

server = kit.Server()
LINES = [f"line {i} of a file that needs two answers" for i in range(25000)]
WANT = [f'"{line}"' for line in LINES]
url = server.put("/a.txt", ("\n".join(LINES) + "\n").encode())



def two_answers(s, h, path):
    s.send(h, path, cut=400000 if h.headers["Range"].startswith("bytes=0-") else None)


# ---- every call of libcurl
server.always["/a.txt"] = two_answers
result("the_double_reads", show(f'text_line("{url}")', **doubled).lines == WANT)


def far(most):
    """1, 2, 3, ... and from `most` on every third and then fewer: calls of the same kind."""
    n = 1
    while True:
        yield n
        n += 1 if n < most else n // 3 + 1


def calls_fail(function, expression, want, most=6, persistent=""):
    """Every call of the function fails: the elements arrive all the same, or an error after the first of them."""
    for n in far(most):
        if os.path.exists(failed):
            os.remove(failed)
        run = show(expression, MR_CURL_FAILS=f"{function}:{n}{persistent}", MILLRACE_REMOTE_RETRIES="3", **doubled)
        good = (run.status == 0 and run.lines == want) or (
            run.status == 1 and run.stderr.startswith("millrace: ") and run.lines == want[:len(run.lines)])
        if not good:
            return result(f"{function}_fails{'_persistently' if persistent else ''}", False, f"call {n}: {run}")
        if not os.path.exists(failed):
            break
        if n > 400:  # of a loop that calls it as often as it likes
            break
    return result(f"{function}_fails{'_persistently' if persistent else ''}", n > 1, "it was never called")


for name in ("global_init", "multi_init", "multi_setopt", "multi_add_handle", "multi_remove_handle", "multi_perform", "multi_poll",
             "multi_wakeup", "multi_info_read", "multi_cleanup", "easy_init", "easy_getinfo", "slist_append"):
    calls_fail("curl_" + name, f'text_line("{url}")', WANT)
calls_fail("curl_easy_setopt", f'text_line("{url}")', WANT, most=28)
for name in ("multi_perform", "multi_poll", "multi_wakeup", "easy_getinfo"):
    calls_fail("curl_" + name, f'text_line("{url}")', WANT, most=1, persistent="+")


# A consumer that does not read what is written for it: the transfer is paused, and then continued.
class Paused:
    def __init__(self, plan):
        piece, self.sent = b"x" * 127 + b"\n", 0

        def send(_, h, __):
            h.send_response(200)
            h.send_header("Content-Length", str(64 << 20))
            h.end_headers()
            for _ in range(64 << 4):
                h.wfile.write(piece * 512)
                self.sent += 1

        server.always["/long"] = send
        self.process = subprocess.Popen([kit.millrace, "show", f'text_line("{server.address}/long")'], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env={**os.environ, **doubled, "MR_CURL_FAILS": plan})
        before = -1
        while before != self.sent or self.sent == 0:
            before = self.sent
            time.sleep(1)
        self.stalled = self.sent < 64 << 4
        out, err = self.process.communicate(timeout=300)
        want = (b'"' + piece[:-1] + b'"\n') * (512 << 10)
        # Without memory it ends with an error after the first of the lines.
        self.good = out == want[:len(out)] and self.process.returncode == (len(out) < len(want)) and len(out) % 130 == 0
        self.why = f"status {self.process.returncode}, {len(out)} bytes, {self.sent} pieces: {err.decode()[:300]}"


for n in (1, 2):
    if os.path.exists(failed):
        os.remove(failed)
    run = Paused(f"curl_easy_pause:{n}")
    result(f"curl_easy_pause_fails_{n}", run.good and run.stalled and os.path.exists(failed), run.why)

# ---- every answer
records = os.path.join(directory.name, "r")
kit.Run(["write", "--out", records, "--shards", "2", "--expr", 'range(60000).map(i => {"a": i})'])
for name in sorted(os.listdir(directory.name)):
    if name.startswith("r-"):
        kit.Run(["index", os.path.join(directory.name, name)])
        for file in (name, name + ".idx"):
            with open(os.path.join(directory.name, file), "rb") as f:
                server.put("/" + file, f.read())
urls = ", ".join(f'"{server.address}/r-{i:05d}-of-00002.tfrecord"' for i in range(2))
paths = ", ".join(f'"{records}-{i:05d}-of-00002.tfrecord"' for i in range(2))
parse = ".map(x => parse_example(x, a=int64))"
GRAPHS = {"sequential": f"tfrecord([{{}}]){parse}", "random_access": f"tfrecord([{{}}]).global_shuffle(seed=3){parse}.take(200)"}
FAULTS = {"503": status(503), "reset": fault(cut=0, reset=True), "reset_in_the_middle": fault(cut=100, reset=True),
          "end_in_the_middle": fault(cut=7), "other_range": fault(shift=1), "nothing": lambda s, h, p: h.connection.shutdown(2)}
for (graph, text), (kind, step) in itertools.product(GRAPHS.items(), FAULTS.items()):
    want = show(text.format(paths))
    count = itertools.count()
    requests = plain = None
    for n in itertools.count(1):
        answered = itertools.count(1)

        def one_fails(s, h, path, answered=answered, n=n, step=step):
            (step if next(answered) == n else fault())(s, h, path)

        for name in server.files:
            server.always[name] = one_fails
        server.take()
        run = show(text.format(urls))
        requests = len(server.take())
        plain = plain or requests - 1  # the first run repeats its first request
        if run.status != 0 or run.stdout != want.stdout or requests > plain + 2:
            result(f"{graph}_answer_{kind}", False, f"answer {n} of {plain}: {run}, {requests} requests")
            break
        if requests < n:
            result(f"{graph}_answer_{kind}", n > 2)
            break
        # Of what many ranges answer, the first ones and a sample.
        if n > 6:
            result(f"{graph}_answer_{kind}", True)
            break
server.always.clear()

# ---- a name that is being resolved: the resolver never answers
process = subprocess.Popen([kit.millrace, "show", 'text_line("http://a-slow-name.example/a")'], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, env={**os.environ, "LD_PRELOAD": double, "MR_CURL_REAL": real,
                                                        "ASAN_OPTIONS": "verify_asan_link_order=0"})
kit.interrupt(process)
try:  # without the signal it would wait for the connection's time-out, and try again
    _, said = process.communicate(timeout=300)
except subprocess.TimeoutExpired:
    process.kill()
    _, said = process.communicate()
result("interrupting_a_lookup", process.returncode == 130, f"status {process.returncode}: {said}")
kit.end()
