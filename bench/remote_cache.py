#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Later epochs of TFRecords of 1 MiB with the cache, against the same files on the local disk, in turn.

remote_cache.py [--build DIR] [--shards N] [--runs N]. The server, on loopback, sends no contents in that epoch. Both read
from the page cache and check every record; the figure is the processor time, and the wall time, of whole processes."""
import argparse
import http.server
import os
import resource
import statistics
import subprocess
import tempfile
import threading
import time

arguments = argparse.ArgumentParser()
arguments.add_argument("--build", default="build")
arguments.add_argument("--shards", type=int, default=8)
arguments.add_argument("--runs", type=int, default=7)
options = arguments.parse_args()
EPOCHS = 4
millrace = os.path.join(os.path.abspath(options.build), "millrace")


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files with ranges and strong ETags."""

    protocol_version = "HTTP/1.1"
    sent = 0

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.translate_path(self.path)
        size = os.path.getsize(path)
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        first, last = int(first), min(int(last), size - 1)
        self.send_response(206)
        self.send_header("ETag", f'"{size}"')
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        with open(path, "rb") as f:
            f.seek(first)
            self.wfile.write(f.read(last - first + 1))
        Handler.sent += last - first + 1


def run(expression, cache):
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([millrace, "reduce", expression, "--init", "0", "--fn", "(n, x) => n + 1", "--cache-dir", cache], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - began


with tempfile.TemporaryDirectory(prefix="mr-bench-") as root:
    out = os.path.join(root, "d")
    element = 'range(256).map(i => {"a": random_uniform([262144])})'
    for shard in range(options.shards):
        subprocess.run([millrace, "write", "--out", f"{out}{shard}", "--expr", element, "--seed", str(shard)], check=True,
                       stdout=subprocess.DEVNULL)
    names = sorted(n for n in os.listdir(root) if n.endswith(".tfrecord"))
    os.chdir(root)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    graphs = ["tfrecord([" + ", ".join(f'"{at}/{n}"' for n in names) + "])" for at in
              (root, f"http://127.0.0.1:{server.server_port}")]
    for graph in graphs:
        run(graph, os.path.join(root, "cache"))
    Handler.sent = 0
    # One epoch, and as many as make the start of the process count little: the difference is that of later epochs.
    times = [[[run(f"{graph}.repeat({n})", os.path.join(root, "cache")) for n in (1, 1 + EPOCHS)] for graph in graphs]
             for _ in range(options.runs)]
    gib = sum(os.path.getsize(n) for n in names) / 2**30
    assert Handler.sent == options.runs * (2 + EPOCHS) * len(names), "a later epoch fetched contents"
    for k, what in enumerate(("processor", "wall")):
        local, cached = (statistics.median(t[i][1][k] - t[i][0][k] for t in times) / EPOCHS / gib for i in range(2))
        first = statistics.median(t[1][0][k] for t in times) / gib
        print(f"{what:9} local {local:.3f} s/GiB, cached {cached:.3f} s/GiB, ratio {local / cached:.2f}; "
              f"a process's first epoch {first:.3f} s/GiB")
