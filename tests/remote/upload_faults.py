#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Writing to a bucket while calls of libcurl fail, and while the process is killed at a request: what is visible is
whole, and shard 0 appears last. The store is in the test's process."""
import ctypes
import hashlib
import os
import re
import signal
import subprocess
import threading
import time
import urllib.parse

import kit
from kit import Run, directory, result

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
double = os.path.join(kit.build, "tests", "curl_double", "libcurl.so.4")
if not os.path.exists(double):
    kit.skip_all("the double of libcurl is not built")
ctypes.CDLL("libcurl.so.4")
with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
    real = next(line.split()[-1] for line in maps if "libcurl.so" in line)
failed = os.path.join(directory.name, "failed")
LONG = os.environ.get("MR_TEST_TIER") == "long"


class Store:
    """A bucket. at_request(n, done): before and after the n-th request has had its effect."""

    def __init__(self):
        store = self
        self.lock = threading.Lock()
        self.active = 0  # requests
        self.at_request = lambda n, done: None
        self.takes_parts_of_bodies = False
        self.clear()

        class Handler(kit.QuietHandler):
            def handle_any(self):
                with store.lock:
                    store.active += 1
                try:
                    self.answer()
                finally:
                    with store.lock:
                        store.active -= 1

            def answer(self):
                wanted = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(wanted)
                if len(body) < wanted and not store.takes_parts_of_bodies:
                    self.close_connection = True
                    return
                with store.lock:
                    store.n += 1
                    n = store.n
                store.at_request(n, False)
                with store.lock:
                    status, text, headers = store.serve(self, body)
                store.at_request(n, True)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

        self.http = kit.serve(Handler)
        os.environ.update({"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.http.server_port}", "AWS_ACCESS_KEY_ID": "k",
                           "AWS_SECRET_ACCESS_KEY": "s"})

    def settle(self):
        """Waits for the requests of a process that has ended."""
        for _ in range(3000):
            if not self.active:
                return
            time.sleep(0.01)

    def clear(self):
        with self.lock:
            self.n, self.objects, self.uploads = 0, {}, {}

    def serve(self, h, body):
        path, _, query = h.path.partition("?")
        key = urllib.parse.unquote(path).removeprefix("/bucket").lstrip("/")
        words = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        mark = h.headers.get("x-amz-meta-millrace-write", "")
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        if h.command == "POST" and "uploads" in words:
            number = f"u{self.n}"
            self.uploads[number] = (key, mark, {})
            return 200, f"<R><UploadId>{number}</UploadId></R>".encode(), {}
        if "uploadId" in words and words["uploadId"] not in self.uploads:
            return 404, b"<Error><Code>NoSuchUpload</Code></Error>", {}
        if h.command == "PUT" and "partNumber" in words:
            self.uploads[words["uploadId"]][2][int(words["partNumber"])] = body
            return 200, b"", {"ETag": tag}
        if h.command == "DELETE":
            if "uploadId" in words:
                del self.uploads[words["uploadId"]]
            else:
                self.objects.pop(key, None)
            return 204, b"", {}
        if h.command in ("POST", "PUT"):
            if h.headers.get("If-None-Match") == "*" and key in self.objects:
                return 412, b"<Error><Code>PreconditionFailed</Code></Error>", {}
            if h.command == "POST":
                key, mark, parts = self.uploads.pop(words["uploadId"])
                assert sorted(parts) == [int(x) for x in re.findall(rb"<PartNumber>(\d+)<", body)]
                body = b"".join(parts[i] for i in sorted(parts))
            self.objects[key] = (body, mark)
            return 200, b"<R></R>", {"ETag": tag}
        if "list-type" in words:
            rows = "".join(f"<Contents><Key>{k}</Key><Size>{len(v[0])}</Size><ETag>\"1\"</ETag></Contents>"
                           for k, v in sorted(self.objects.items()) if k.startswith(words.get("prefix", "")))
            return 200, f"<ListBucketResult>{rows}</ListBucketResult>".encode(), {}
        if key not in self.objects:
            return 404, b"", {}
        return 200, self.objects[key][0], {"x-amz-meta-millrace-write": self.objects[key][1], "ETag": '"1"'}


store = Store()
WRITES = {"puts": ["--shards", "3", "--expr", 'range(30)'],
          "parts": ["--expr", 'range(18).map(i => zeros([1048576], "uint8"))']}  # 16 MiB and the rest
wanted, requests = {}, {}
for name, arguments in WRITES.items():
    store.clear()
    run = Run(["write", "--out", "s3://bucket/x", *arguments])
    wanted[name], requests[name] = {k: v[0] for k, v in store.objects.items()}, store.n
    result(f"{name}_are_written", run.status == 0 and len(wanted[name]) == (3 if name == "puts" else 1) and not store.uploads, str(run))


def is_whole(name):
    """Each object that is visible is what it should be, and with shard 0 all are there."""
    there = {k: v[0] for k, v in store.objects.items()}
    return all(wanted[name].get(k) == v for k, v in there.items()) and (min(wanted[name]) not in there or there == wanted[name])


# ---- calls of libcurl
doubled = {"LD_LIBRARY_PATH": os.path.dirname(double), "MR_CURL_REAL": real, "MR_CURL_FAILED": failed}
CALLS = ("multi_add_handle", "multi_remove_handle", "multi_perform", "multi_poll", "multi_wakeup", "multi_info_read", "easy_init",
         "easy_setopt", "easy_getinfo", "slist_append", "multi_init", "multi_setopt", "global_init")
# An answer that is lost may be the one that names an upload: `millrace uploads` finds it.
LOSE_ANSWERS = ("multi_perform", "multi_poll", "easy_getinfo")


def turns(most):
    n = 1
    while True:
        yield n
        n += 1 if n < most else n // 6 + 1 if LONG else 2 * n


for name, arguments in WRITES.items():
    for call in CALLS if LONG or name == "puts" else ("multi_poll", "easy_setopt", "easy_getinfo"):
        left = 0
        for n in turns(8 if LONG else 2):
            store.clear()
            if os.path.exists(failed):
                os.remove(failed)
            run = Run(["write", "--out", "s3://bucket/x", *arguments], MR_CURL_FAILS=f"curl_{call}:{n}", MILLRACE_REMOTE_RETRIES="3", **doubled)
            left = max(left, len(store.uploads) - (call in LOSE_ANSWERS))
            good = is_whole(name) and ((run.status == 0 and len(store.objects) == len(wanted[name])) or
                                       (run.status == 1 and run.stderr.startswith("millrace: ")))
            if not good or not os.path.exists(failed) or n > 2000:
                break
        result(f"{name}_while_{call}_fails", good and n > 1 and left <= 0, f"call {n}: {run} {sorted(store.objects)}, {left} uploads left")

# A store that takes what has arrived of a body: the mark is that of this writer, but the object is not whole.
store.takes_parts_of_bodies = True
wrong = []
for n in range(1, 60, 1 if LONG else 3):
    store.clear()
    if os.path.exists(failed):
        os.remove(failed)
    run = Run(["write", "--out", "s3://bucket/x", *WRITES["puts"]], MR_CURL_FAILS=f"curl_multi_poll:{n}", MILLRACE_REMOTE_RETRIES="3", **doubled)
    if run.status == 0 and not is_whole("puts"):
        wrong.append(n)
    if not os.path.exists(failed):
        break
store.takes_parts_of_bodies = False
result("a_part_of_a_body_is_not_the_object", not wrong and n > 5, str(wrong))

# ---- kills
for name, arguments in WRITES.items():
    wrong, whole, listed = [], 0, 0
    for n in range(1, requests[name] + 1):
        for after in (False, True):
            store.clear()
            started, process = threading.Event(), None

            def kill(number, done, n=n, after=after, started=started):
                if (number, done) == (n, after):
                    started.wait(300)
                    process.kill()
                    process.wait()
                    if not done:
                        raise ConnectionAbortedError  # without its effect

            store.at_request = kill
            process = subprocess.Popen([kit.millrace, "write", "--out", "s3://bucket/x", *arguments], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            started.set()
            process.communicate(timeout=300)
            store.settle()
            store.at_request = lambda number, done: None
            whole += min(wanted[name]) in store.objects
            listed += len(store.uploads) > 0
            if process.returncode != -signal.SIGKILL or not is_whole(name):
                wrong.append((n, after, process.returncode, sorted(store.objects)))
    result(f"{name}_that_are_killed", not wrong and whole > 0 and (listed > 0) == (name == "parts"), f"{wrong} {whole} {listed}")
kit.end()
