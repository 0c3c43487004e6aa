# SPDX-License-Identifier: Apache-2.0
"""What the tests of a running dispatcher share: real processes on loopback, free ports, TAP.

Every wait is limited: long ones by PATIENCE, a whole test by MOST_SECONDS. A test is also given up if one of its daemons
ends by itself, since clients would wait for it. The test then prints what it waited for, the state of the processes,
and what they have logged."""
import atexit
import faulthandler
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
HURRY = 60  # the same after a failure, since what follows from it may never come
MOST_SECONDS = 30000 if os.environ.get("MR_TEST_TIER") == "long" else 1500  # less than tests/run.sh gives it
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
_processes, _daemons = [], []


def result(name, good, why=""):
    global _failed, PATIENCE
    print(f"{'ok' if good else 'not ok'} - {_suite}::{name}", file=_tap, flush=True)
    if not good:
        _failed += 1
        PATIENCE = HURRY
        print(f"FAILED {name}\n{why}", flush=True)


def skip(name, why):
    print(f"ok - {_suite}::{name} # SKIP {why}", file=_tap, flush=True)
    print(f"skipped {name}: {why}")


def end():
    sys.exit(_failed != 0)


def how_all_are():
    """The processes that were started and not ended, and the last that daemons logged: for who does not get on."""
    text = ""
    for p in _processes:
        if p.poll() is None:
            with open(f"/proc/{p.pid}/stat") as f:
                state = f.read().rsplit(")", 1)[1].split()[0]
            text += f"process {p.pid} ({state}): {' '.join(map(str, p.args))[:300]}\n"
    for d in _daemons:
        status = d.process.poll()
        if status is None or status not in (0, -signal.SIGKILL):
            text += f"---- {d.log_path}: {'runs' if status is None else f'ended with status {status}'}\n{d.log()[-8000:]}\n"
    return text


_giving_up = threading.Lock()


def give_up(why):
    """Ends the test, from any thread."""
    _giving_up.acquire()  # for good: once is enough
    print(f"FAILED {why}\n{how_all_are()}\nWhat is awaited:", flush=True)
    faulthandler.dump_traceback(sys.stdout)
    print(f"not ok - {_suite}::{why}", file=_tap, flush=True)
    for p in _processes:
        if p.poll() is None:
            p.kill()
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


_guard = threading.Timer(MOST_SECONDS, give_up, [f"it does not end within {MOST_SECONDS} s"])
_guard.daemon = True
_guard.start()


@atexit.register
def _clean():
    for p in _processes:
        if p.poll() is None:
            p.kill()
            p.wait()
    shutil.rmtree(directory, ignore_errors=True)


def path(name):
    return os.path.join(directory, name)


def line_of(process):
    """The next line that it prints; if none comes within PATIENCE, the process is killed, and the line is empty."""
    silent = threading.Timer(PATIENCE, process.kill)
    silent.start()
    line = process.stdout.readline()
    silent.cancel()
    return line


def attend(process, name):
    """Drops its later output, so that the pipe never fills; at exit it is ended by SIGTERM, or by SIGKILL."""
    def read():
        process.stdout.read()
        status = process.wait()
        if status not in (0, -signal.SIGKILL):
            give_up(f"{os.path.basename(name)} ended with status {status}")
    threading.Thread(target=read, daemon=True).start()


class Daemon:
    """A daemon that serves. Its log is in .log(), its addresses in .at and .page. before: words that run it elsewhere."""

    def __init__(self, *words, name, before=()):
        self.log_path = path(name + ".log")
        self.process = subprocess.Popen(
            [*before, millrace, *words], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=open(self.log_path, "w"), text=True)
        _processes.append(self.process)
        _daemons.append(self)
        self.at = self._line("ready ")
        self.page = self._line("status ") if "--status" in words else None
        attend(self.process, self.log_path)

    def _line(self, word):
        line = line_of(self.process)
        if not line.startswith(word):
            raise OSError(f"no '{word}' but '{line}' of {self.process.args}: {self.log()}")
        return line[len(word):].strip()

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


def ask(at, *words, timeout=None):
    """What `millrace service WORDS --json` says; None where it fails."""
    timeout = timeout or PATIENCE
    p = subprocess.run([millrace, "service", *words, "--dispatcher", at, "--json", "--timeout", str(timeout)],
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * timeout)
    return json.loads(p.stdout) if p.returncode == 0 else None


def local(graph, options):
    """What service="local" gives."""
    return subprocess.run([millrace, "show", f'{graph}.distribute("local", {options})'], cwd=directory,
                          stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=PATIENCE).stdout


def load(at, **options):
    """Workers and clients that give the dispatcher work, in the background."""
    words = [load_program, at]
    for name, value in options.items():
        words += ["--" + name, str(value)]
    p = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    _processes.append(p)
    return p


def start(words, env=None):
    """A process whose errors are in .stderr, and whose output is dropped."""
    p = subprocess.Popen(words, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                         text=True, env=env)
    _processes.append(p)
    return p


def until(condition, seconds=None):
    """Waits until it holds; its value. Where it does not in that time, says which one it was."""
    seconds = seconds or PATIENCE
    end_at = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end_at:
            code = condition.__code__
            print(f"{code.co_filename}:{code.co_firstlineno}: not within {seconds} s\n{how_all_are()}", flush=True)
            return value
        time.sleep(0.05)
