#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reading URLs from nginx on loopback, with and without a proxy that adds 50 ms to each round trip, next to curl, which
fetches the same ranges over as many connections; a second epoch with the cache, next to the local file; the first of 10,000
listed objects; and CPU seconds a GB of records, next to boto3, s3fs and s3torchconnector.
   bench/remote.py [--build DIR] [--mib N] [--records N] [--rounds N] [--no-peers]

Every line has the figure, its ceiling and their ratio: the median of the ratios of --rounds rounds, in which both are measured
one after the other. nginx has one processor and the readers another, where there are two.

The peers are installed from PyPI into a virtual environment (build/peers-remote, or $MILLRACE_PEERS); where they cannot be had,
they are left out, and said so."""
import argparse
import heapq
import http.server
import json
import os
import re
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv

options = argparse.ArgumentParser()
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
options.add_argument("--build", metavar="DIR", default=os.environ.get("MR_BUILD") or os.path.join(root, "build"),
                     help="where millrace is built, default $MR_BUILD or build")
options.add_argument("--mib", type=int, default=512, help="of records of 1 MiB")
options.add_argument("--records", type=int, default=8192, help="of 16 KiB")
options.add_argument("--rounds", type=int, default=5)
options.add_argument("--no-peers", action="store_true")
o = options.parse_args()
millrace = os.path.join(os.path.abspath(o.build), "millrace")
if not os.access(millrace, os.X_OK):
    options.error(f"there is no program {millrace}")
nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
for name, program in (("nginx", nginx), ("curl", shutil.which("curl"))):
    if not program:
        sys.exit(f"{name} is not installed")
directory = tempfile.TemporaryDirectory(prefix="millrace-bench-")
here = directory.name
os.chmod(here, 0o755)
cpus = sorted(os.sched_getaffinity(0))
READER = ["taskset", "-c", str(cpus[0])] if len(cpus) > 1 else []
SERVER = ["taskset", "-c", str(cpus[1])] if len(cpus) > 1 else []
keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Delay(threading.Thread):
    """A proxy of TCP in a separate process: each byte leaves half of `seconds` after it came, in both directions."""

    def __init__(self, to, seconds):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.serve(to, seconds / 2)
            finally:
                os._exit(0)

    def serve(self, to, delay):
        selector, due, waiting, number = selectors.DefaultSelector(), [], {}, 0
        selector.register(self.listener, selectors.EVENT_READ)
        MOST = 8 << 20  # under way in one direction
        while True:
            pause = max(0, due[0][0] - time.monotonic()) if due else None
            for key, _ in selector.select(pause):
                if key.fileobj is self.listener:
                    a, _ = self.listener.accept()
                    b = socket.create_connection(("127.0.0.1", to))
                    for x, y in ((a, b), (b, a)):
                        x.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        selector.register(x, selectors.EVENT_READ, y)
                        waiting[x] = 0
                    continue
                try:
                    data = key.fileobj.recv(1 << 18)
                except OSError:
                    data = b""
                number += 1
                heapq.heappush(due, (time.monotonic() + delay, number, key.fileobj, key.data, data))
                waiting[key.fileobj] += len(data)
                if not data or waiting[key.fileobj] > MOST:
                    selector.unregister(key.fileobj)
            while due and due[0][0] <= time.monotonic():
                _, _, source, target, data = heapq.heappop(due)
                try:
                    if data:
                        target.sendall(data)
                    else:
                        target.shutdown(socket.SHUT_WR)
                except OSError:
                    continue
                if waiting[source] > MOST >= waiting[source] - len(data):
                    selector.register(source, selectors.EVENT_READ, target)
                waiting[source] -= len(data)


def bench(expression, *arguments, **environment):
    """Seconds from the start of the program to its end, and what it says."""
    began = time.monotonic()
    done = subprocess.run([*READER, millrace, "bench", "--json", expression, *arguments], capture_output=True, check=False,
                          env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{expression}: {done.stderr.decode()}")
    return time.monotonic() - began, json.loads(done.stdout)


def curl(url, ranges, connections):
    with open(os.path.join(here, "curl.conf"), "w", encoding="ascii") as f:
        f.write("\nnext\n".join(f'url = "{url}"\nrange = {a}-{b}\noutput = /dev/null\nsilent\nshow-error' for a, b in ranges))
    began = time.monotonic()
    subprocess.run([*READER, "curl", "--parallel", "--parallel-immediate", "--parallel-max", str(connections), "--no-progress-meter",
                    "--config", f.name], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def ranges_asked_for(path):
    """By the last run, from nginx's log, without small ones that open a file."""
    with open(log, "rb+") as f:
        lines = f.read().decode().splitlines()
        f.truncate(0)
    found = [re.match(r'(\S+) bytes=(\d+)-(\d+)', line) for line in lines]
    return [(int(m[2]), int(m[3])) for m in found if m and m[1] == path and int(m[3]) - int(m[2]) > 1000]


def report(what, unit, figure, ceiling, ratios, goal):
    ratio = statistics.median(ratios)
    print(f"{what:56} {figure:10.1f} {ceiling:10.1f} {unit:9} {ratio:5.2f}  (goal {goal})", flush=True)


def rounds(measure):
    pairs = [measure() for _ in range(o.rounds)]
    return [p[0] for p in pairs], [p[1] for p in pairs]


# ---- files and servers
subprocess.run([millrace, "write", "--out", f"{here}/big", "--expr", f'range({o.mib}).map(i => {{"a": zeros([1048500], "uint8"), "i": i}})'],
               check=True, stdout=subprocess.DEVNULL)
subprocess.run([millrace, "write", "--out", f"{here}/small", "--expr",
                f'range({o.records}).map(i => {{"a": random_uniform([4096], seed=1), "i": i}})'], check=True, stdout=subprocess.DEVNULL)
big, small = "big-00000-of-00001.tfrecord", "small-00000-of-00001.tfrecord"
subprocess.run([millrace, "index", f"{here}/{small}"], check=True, stdout=subprocess.DEVNULL)
port = free_port()
log = os.path.join(here, "ranges.log")
with open(os.path.join(here, "nginx.conf"), "w", encoding="ascii") as f:
    f.write(f"""
daemon off; pid {here}/nginx.pid; error_log {here}/error.log; worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    log_format ranges '$uri $http_range'; access_log {log} ranges; sendfile on; keepalive_requests 100000;
    client_body_temp_path {here}/t1; proxy_temp_path {here}/t2; fastcgi_temp_path {here}/t3;
    uwsgi_temp_path {here}/t4; scgi_temp_path {here}/t5;
    server {{ listen 127.0.0.1:{port} backlog=256; root {here}; location /bucket/ {{ alias {here}/; }} }}
}}
""")
daemon = subprocess.Popen([*SERVER, nginx, "-c", f.name, "-p", here, "-e", os.path.join(here, "error.log")], stderr=subprocess.DEVNULL)
slow = Delay(port, 0.05)
try:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.1)
    at, slowly = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{slow.port}"
    size = os.path.getsize(f"{here}/{big}")
    pieces = [(a, min(a + (8 << 20), size) - 1) for a in range(0, size, 8 << 20)]
    print(f"{'':56} {'figure':>10} {'ceiling':>10} {'':9} ratio")

    # ---- sequential
    bench(f'tfrecord("{at}/{big}")')  # the page cache
    mine, theirs = rounds(lambda: (bench(f'tfrecord("{at}/{big}")', "--connections", "4")[0], curl(f"{at}/{big}", pieces, 4)))
    report("records of 1 MiB, beside curl over 4 connections", "MB/s", size / statistics.median(mine) / 1e6,
           size / statistics.median(theirs) / 1e6, [t / m for m, t in zip(mine, theirs)], "0.9")

    # ---- the same through 50 ms
    far, near = rounds(lambda: (bench(f'tfrecord("{slowly}/{big}")')[0], bench(f'tfrecord("{at}/{big}")')[0]))
    curl_far, curl_near = rounds(lambda: (curl(f"{slowly}/{big}", pieces, 16), curl(f"{at}/{big}", pieces, 16)))
    kept = statistics.median(n / f for f, n in zip(curl_far, curl_near))
    report("the same through 50 ms, beside without", "MB/s", size / statistics.median(far) / 1e6, size / statistics.median(near) / 1e6,
           [n / f for f, n in zip(far, near)], f"0.9; curl over 16 connections keeps {kept:.2f}, 0.95 of which is {0.95 * kept:.2f}")

    # ---- the second epoch of a process, with the cache
    def second(where):
        return bench(f'tfrecord("{where}/{big}")', "--warmup", "1", "--cache-dir", f"{here}/cache")[1]["cpu_seconds"]

    second(at)
    ranges_asked_for("/" + big)
    mine, theirs = rounds(lambda: (second(at), second(here)))
    if ranges_asked_for("/" + big):
        sys.exit("what is in the cache was fetched again")
    report("the second epoch with the cache, beside the local file", "MB/CPU s", size / statistics.median(mine) / 1e6,
           size / statistics.median(theirs) / 1e6, [t / m for m, t in zip(mine, theirs)], "0.9")

    # ---- records in random order through 50 ms
    shuffled = f'tfrecord("{slowly}/{small}").global_shuffle(seed=1)'
    ranges_asked_for("/" + small)
    bench(shuffled, "--connections", "64")
    asked = ranges_asked_for("/" + small)
    bytes_asked = sum(b - a + 1 for a, b in asked)
    mine, theirs = rounds(lambda: (bench(shuffled, "--connections", "64")[0], curl(f"{slowly}/{small}", asked, 64)))
    report(f"global_shuffle of 16 KiB, 50 ms, 64 connections, {len(asked)} ranges", "MB/s", bytes_asked / statistics.median(mine) / 1e6,
           bytes_asked / statistics.median(theirs) / 1e6, [t / m for m, t in zip(mine, theirs)], "0.8")

    # ---- 10,000 objects
    class Listing(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_):
            pass

        def do_GET(self):
            if "list-type" in self.path:
                page = int((re.search(r"continuation-token=(\d+)", self.path) or [0, 0])[1])
                objects = "".join(f"<Contents><Key>x-{page * 1000 + i:05d}</Key><Size>4</Size><ETag>&quot;1&quot;</ETag></Contents>"
                                  for i in range(1000))
                more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{page + 1}</NextContinuationToken>" if page < 9 else ""
                body, status = f"<ListBucketResult>{more}{objects}</ListBucketResult>".encode(), 200
            else:
                body, status = b"one\n", 206
            self.send_response(status)
            if status == 206:
                self.send_header("Content-Range", "bytes 0-3/4")
                self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    store = {**keys, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}"}
    mine, theirs = rounds(lambda: (bench('text_line("s3://b/x-*").take(1)', **store)[0], bench('list_files("s3://b/x-*")', **store)[0]))
    report("the first of 10,000 objects, beside the listing alone", "ms", statistics.median(mine) * 1e3, statistics.median(theirs) * 1e3,
           [m / t for m, t in zip(mine, theirs)], "1.2 at most")

    # ---- CPU seconds a GB
    store = {**keys, "AWS_ENDPOINT_URL": at, "AWS_DEFAULT_REGION": "us-east-1"}
    peers = os.environ.get("MILLRACE_PEERS") or os.path.join(os.path.abspath(o.build), "peers-remote")
    # Each makes a file of the object; the records are read of it as their users do, with both checksums, as Millrace does.
    PEERS = {
        "boto3": (["boto3"], "import boto3\ndef opened(): return boto3.client('s3').get_object(Bucket='bucket', Key=key)['Body']"),
        "s3fs": (["s3fs"], "import s3fs\n"
                 "def opened(): return s3fs.S3FileSystem(endpoint_url=at).open('bucket/' + key, 'rb', block_size=8 << 20)"),
        "s3torchconnector": (["s3torchconnectorclient"], """import io
from s3torchconnectorclient._mountpoint_s3_client import MountpointS3Client
class Parts(io.RawIOBase):
    def __init__(self, parts): self.parts, self.rest = iter(parts), b""
    def readable(self): return True
    def readinto(self, to):
        self.rest = self.rest or memoryview(next(self.parts, b""))
        n = min(len(to), len(self.rest))
        to[:n] = self.rest[:n]
        self.rest = self.rest[n:]
        return n
def opened():
    client = MountpointS3Client("us-east-1", "bench", endpoint=at, force_path_style=True)
    return io.BufferedReader(Parts(client.get_object("bucket", key)), 1 << 20)"""),
    }
    RECORDS = """
import struct, time
from google_crc32c import value
def right(data, checksum):
    crc = value(data)
    return struct.unpack("<I", checksum)[0] == ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff
began = time.process_time()
file = opened()
while head := file.read(12):
    assert right(head[:8], head[8:])
    size, = struct.unpack("<Q", head[:8])
    data = file.read(size)
    assert right(data, file.read(4))
    n += 16 + size
"""

    def install(name, packages):
        """Each has a separate environment, since they want different versions of the same packages."""
        environment = os.path.join(peers, name)
        python = os.path.join(environment, "bin", "python3")
        try:
            if not os.path.exists(os.path.join(environment, "installed")):
                venv.create(environment, with_pip=True)
                subprocess.run([python, "-m", "pip", "install", "-q", *packages, "google-crc32c"], check=True, capture_output=True, timeout=300)
                open(os.path.join(environment, "installed"), "w", encoding="ascii").close()
        except (OSError, subprocess.SubprocessError) as error:
            print(f"left out: {name} cannot be installed ({error})", flush=True)
            return None
        return python

    def peer(python, code):
        text = f"at, key, n = {at!r}, {big!r}, 0\n{code}\n{RECORDS}\nassert n == {size}, n\nprint(time.process_time() - began)"
        done = subprocess.run([*READER, python, "-c", text], capture_output=True, check=False, env={**os.environ, **store})
        if done.returncode:
            sys.exit(done.stderr.decode())
        return float(done.stdout)

    def own():
        return bench(f'tfrecord("s3://bucket/{big}")', **store)[1]["cpu_seconds"]

    print(f"{'CPU seconds a GB':56} {statistics.median(own() for _ in range(o.rounds)) / size * 1e9:10.3f}", flush=True)
    for name, (packages, code) in PEERS.items() if not o.no_peers else ():
        python = install(name, packages)
        if not python:
            continue
        mine, theirs = rounds(lambda python=python, code=code: (own(), peer(python, code)))
        ratio = statistics.median(t / m for m, t in zip(mine, theirs))
        print(f"{'CPU seconds a GB, beside ' + name:56} {statistics.median(mine) / size * 1e9:10.3f} "
              f"{statistics.median(theirs) / size * 1e9:10.3f} {'s/GB':9} {ratio:5.2f}  (goal: 3 times fewer)", flush=True)
finally:
    daemon.terminate()
    daemon.wait()
    os.kill(slow.pid, 15)
    os.waitpid(slow.pid, 0)
