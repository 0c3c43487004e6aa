# SPDX-License-Identifier: Apache-2.0
"""What the tests of remote files share: a faulty web server, the program, TAP.

The server is in the test's process. Each path has contents and a plan: what to do with the next requests, one
entry each; a request without an entry is answered as a good server does."""
import email.utils
import http.server
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

build = os.environ["MR_BUILD"]
millrace = os.path.join(build, "millrace")
directory = tempfile.TemporaryDirectory(prefix="mr-remote-")
_tap = open(os.environ.get("TAP_FILE", os.devnull), "w", encoding="utf-8")
_suite = os.path.splitext(os.path.basename(sys.argv[0]))[0]
_failed = []
for _name in list(os.environ):
    if _name.startswith(("AWS_", "MILLRACE_", "GOOGLE_", "GCS_", "GCE_", "HF_", "HUGGING_FACE_", "STORAGE_", "CLOUDSDK_")) or _name.lower() in ("http_proxy", "https_proxy", "all_proxy",
                                                                              "no_proxy", "ssl_cert_file"):
        del os.environ[_name]
os.environ["HOME"] = directory.name  # no one's ~/.aws
os.environ["AWS_EC2_METADATA_DISABLED"] = os.environ["NO_GCE_CHECK"] = "true"  # nor the role of this machine


def result(name, good, why=""):
    print(f"{'ok' if good else 'not ok'} - {_suite}::{name}", file=_tap, flush=True)
    if not good:
        _failed.append(name)
        print(f"FAILED {name}\n{why}", flush=True)


def skip_all(why):
    """Leaves the test out, aloud."""
    print(f"ok - {_suite}::all # SKIP {why}", file=_tap, flush=True)
    print(f"skipped: {why}")
    sys.exit(77)


def catches_interrupts(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii", errors="replace") as f:
        caught = next((line.split()[1] for line in f if line.startswith("SigCgt:")), "0")
    return int(caught, 16) >> signal.SIGINT - 1 & 1


def interrupt(process):
    """Ctrl-C, once it has a handler: before, it would end without one. It probably waits by then."""
    end = time.monotonic() + 300
    while process.poll() is None and not catches_interrupts(process) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)


def has_libcurl():
    run = show('text_line("http://127.0.0.1:1/a")', MILLRACE_REMOTE_RETRIES="1")
    return "libcurl" not in run.stderr


def end():
    sys.exit(1 if _failed else 0)


class Run:
    def __init__(self, arguments, timeout=300, **environment):
        self.began = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            done = subprocess.run([millrace, *arguments], stdout=out, stderr=err, timeout=timeout, check=False,
                                  env={**os.environ, **environment}, cwd=directory.name)
            out.seek(0)
            err.seek(0)
            self.stdout, self.stderr = out.read(), err.read().decode(errors="replace")
        self.status, self.seconds = done.returncode, time.monotonic() - self.began

    @property
    def lines(self):
        return self.stdout.decode().splitlines()

    def __str__(self):
        return f"status {self.status} after {self.seconds:.1f} s, {len(self.stdout)} bytes: {self.stderr.strip()}"


def show(expression, *arguments, **environment):
    return Run(["show", expression, *arguments], **environment)


class QuietHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written one after the other

    def log_message(self, *_):
        pass


class _Threads(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass


def serve(handler):
    """A server in threads, on a free port of 127.0.0.1."""
    server = _Threads(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Server:
    """Files by path, and for each path a plan: functions of the handler that are called for its next requests."""

    def __init__(self):
        server = self
        self.files, self.plans, self.requests, self.etags, self.always = {}, {}, [], {}, {}
        self.lock = threading.Lock()

        class Handler(QuietHandler):
            def do_GET(self):
                server.answer(self)

        self.http = serve(Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"

    def put(self, path, data, etag='"1"'):
        with self.lock:
            self.files[path], self.etags[path] = data, etag
        return self.address + path

    def plan(self, path, *steps):
        with self.lock:
            self.plans[path] = list(steps)

    def take(self):
        """The requests since the last call: (path, range, headers, time)."""
        with self.lock:
            now, self.requests = self.requests, []
        return now

    def answer(self, h):
        path = h.path.split("?")[0]
        with self.lock:
            self.requests.append((h.path, h.headers.get("Range"), dict(h.headers), time.monotonic()))
            steps = self.plans.get(path)
            step = steps.pop(0) if steps else self.always.get(path)
        if step:
            step(self, h, path)
        else:
            self.send(h, path)

    def range_of(self, h, size):
        text = h.headers.get("Range")
        if not text:
            return None
        first, _, last = text.removeprefix("bytes=").partition("-")
        return int(first), min(int(last) if last else size - 1, size - 1)

    def send(self, h, path, cut=None, ranges=True, etag=None, modified="Sat, 01 Jan 2022 00:00:00 GMT", shift=0,
             length=True, reset=False, pause=0.0, conditions=True, most=None, more=0, total=None):
        """A good answer, or one with a fault: cut after n bytes of the body, of another range, ..."""
        with self.lock:
            data, tag = self.files.get(path), self.etags.get(path) if etag is None else etag
        if data is None:
            return self.refuse(h, 404)
        if conditions and h.headers.get("If-Match") and tag and h.headers["If-Match"] != tag:
            return self.refuse(h, 412)
        part = self.range_of(h, len(data)) if ranges else None
        body = data
        if part:
            if part[0] >= len(data):
                h.send_response(416)
                h.send_header("Content-Range", f"bytes */{len(data)}")
                h.send_header("Content-Length", "0")
                return h.end_headers()
            part = part[0] + shift, min(part[1], part[0] + (most or len(data)) - 1) + shift
            body = data[part[0]:part[1] + 1]
            h.send_response(206)
            h.send_header("Content-Range", f"bytes {part[0]}-{part[1]}/{total or len(data)}")
        else:
            h.send_response(200)
        if tag:
            h.send_header("ETag", tag)
        if modified:
            h.send_header("Last-Modified", modified)
        if length:
            h.send_header("Content-Length", str(len(body) + more))
        else:
            h.send_header("Connection", "close")
        h.end_headers()
        try:
            h.wfile.write((body + b"?" * more)[:cut])
            h.wfile.flush()
            time.sleep(pause)
        except OSError:
            pass
        if cut is not None or not length:
            if reset:
                h.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            h.close_connection = True
            try:
                h.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            h.connection.close()

    def refuse(self, h, status, body=b"", **headers):
        h.send_response(status)
        for name, value in headers.items():
            h.send_header(name.replace("_", "-"), value)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)


class Tunnel:
    """A proxy that makes connections (CONNECT); asked: for which it was asked."""

    def __init__(self):
        self.asked = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connect, args=(client,), daemon=True).start()

    def connect(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            part = client.recv(4096)
            if not part:
                return
            head += part
        name = head.split()[1].decode()
        self.asked.append(name)
        host, _, port = name.rpartition(":")
        server = socket.create_connection((host, int(port)))
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=self.copy, args=(client, server), daemon=True).start()
        self.copy(server, client)

    @staticmethod
    def copy(source, target):
        try:
            while part := source.recv(1 << 16):
                target.sendall(part)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def fault(**options):
    return lambda server, h, path: server.send(h, path, **options)


def status(code, body=b"", **headers):
    return lambda server, h, path: server.refuse(h, code, body, **headers)


def redirect(to):
    return lambda server, h, path: server.refuse(h, 302, Location=to)


def http_date(at):
    return email.utils.formatdate(at, usegmt=True)
