# SPDX-License-Identifier: Apache-2.0
"""What the tests of a running dispatcher share: real processes on loopback, free ports, TAP."""
import atexit
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

PATIENCE = 600  # seconds: what hangs is found, and what is only slow passes on the busiest machine
build = os.environ["MR_BUILD"]
millrace = os.path.join(build, "millrace")
load_program = os.path.join(build, "tests", "dispatcher_load")
directory = tempfile.mkdtemp(prefix="mr-service-")
for variable in ("MILLRACE_TOKEN_FILE", "NOTIFY_SOCKET"):
    os.environ.pop(variable, None)
# Where the programs are built with AddressSanitizer: stdbuf comes before it, and what is freed counts as
# memory only for a while.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0:quarantine_size_mb=16"

_tap = open(os.environ.get("TAP_FILE", os.devnull), "w")
_suite = os.path.splitext(os.path.basename(sys.argv[0]))[0]
_failed = 0
_processes = []


def result(name, good, why=""):
    global _failed
    print(f"{'ok' if good else 'not ok'} - {_suite}::{name}", file=_tap, flush=True)
    if not good:
        _failed += 1
        print(f"FAILED {name}\n{why}", flush=True)


def skip(name, why):
    print(f"ok - {_suite}::{name} # SKIP {why}", file=_tap, flush=True)
    print(f"skipped {name}: {why}")


def end():
    sys.exit(_failed != 0)


@atexit.register
def _clean():
    for p in _processes:
        if p.poll() is None:
            p.kill()
            p.wait()
    shutil.rmtree(directory, ignore_errors=True)


def path(name):
    return os.path.join(directory, name)


class Daemon:
    """A daemon that serves. Its log is in .log(), its addresses in .at and .page. before: words that run it elsewhere."""

    def __init__(self, *words, name, before=()):
        self.log_path = path(name + ".log")
        self.process = subprocess.Popen(
            [*before, millrace, *words], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=open(self.log_path, "w"), text=True)
        _processes.append(self.process)
        self.at = self._line("ready ")
        self.page = self._line("status ") if "--status" in words else None
        # What it may say later is dropped, and never fills the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def _line(self, word):
        line = self.process.stdout.readline()
        if not line.startswith(word):
            print(f"no '{word}' but '{line}': {self.log()}")
            sys.exit(1)
        return line[len(word):].strip()

    def gone(self):
        """What is said of a daemon that ended, though nobody stopped it; None while it runs."""
        status = self.process.poll()
        return None if status is None else f"{self.log_path} ended with {status}"

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)

    def memory(self):
        """Resident bytes."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s*(\d+) kB", f.read())[1]) << 10

    def connections(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def connect(self):
        return connect(self.at)


class Dispatcher(Daemon):
    def __init__(self, *options, name="dispatcher", listen="127.0.0.1:0"):
        super().__init__("dispatcher", "--listen", listen, *options, name=name)


def address(text):
    host, port = text.rsplit(":", 1)
    return host.strip("[]"), int(port)


def connect(at):
    return socket.create_connection(address(at), timeout=PATIENCE)


def ask(at, *words, timeout=PATIENCE):
    """What `millrace service WORDS --json` says; None where it fails."""
    p = subprocess.run([millrace, "service", *words, "--dispatcher", at, "--json", "--timeout", str(timeout)],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * timeout)
    return json.loads(p.stdout) if p.returncode == 0 else None


def load(at, **options):
    """Workers and clients that give the dispatcher work, in the background."""
    words = [load_program, at]
    for name, value in options.items():
        words += ["--" + name, str(value)]
    p = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    _processes.append(p)
    return p


def until(condition, seconds=PATIENCE):
    """Waits until it holds; its value."""
    end_at = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end_at:
            return value
        time.sleep(0.05)
