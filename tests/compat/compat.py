#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the program reads what earlier versions left on disk.

  compat.py MILLRACE DIR... [--only PART_OF_NAME]

DIR is a folder that make.py wrote. Its cases run in a copy of it, and each must print what the version
that wrote the files printed. TAP goes to $TAP_FILE, one line per case."""
import argparse
import concurrent.futures
import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from ports import ports  # noqa: E402

CLOSE = 1e-4  # relative; the order of float32 sums depends on the processor
LONG = os.environ.get("MR_TEST_LONG") == "1"
PATIENCE = 300  # seconds for one command
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
ENVIRONMENT = {k: v for k, v in os.environ.items()
               if k not in ("TF_CONFIG", "NOTIFY_SOCKET") and not k.startswith("MILLRACE_")}
ENVIRONMENT["CUDA_VISIBLE_DEVICES"] = ""


def cases_of(folder):
    """The arguments of the daemons, and the cases."""
    with open(os.path.join(folder, "cases.jsonl")) as f:
        daemons, *cases = [json.loads(line) for line in f]
    return daemons, cases


def copy(folder, to):
    """Makes a working copy. Git keeps no times, and an index must not be older than its file."""
    shutil.copytree(folder, to, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for directory, _, files in os.walk(to):
        for name in files:
            age = 10 if name.endswith(".idx") else 20
            os.utime(os.path.join(directory, name), (time.time() - age,) * 2)


def start(millrace, words, directory, **more):
    return subprocess.Popen([millrace, *words], cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            text=True, **{"stderr": subprocess.PIPE, "env": ENVIRONMENT, **more})


def tasks(workers):
    """The environment of each process of a job."""
    if workers == 1:
        return [ENVIRONMENT]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports(workers)]}
    return [{**ENVIRONMENT, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}})}
            for i in range(workers)]


def run(millrace, case, directory):
    """Exit status, lines of standard output, standard error. If processes of a job differ: of the first
    that differs from worker 0."""
    processes = [start(millrace, case["args"], directory, env=env) for env in tasks(case.get("workers", 1))]
    results = []
    for p in processes:
        try:
            out, err = p.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            err += f"\nit did not end within {PATIENCE} s"
        results.append((p.returncode, out.splitlines(), err))
    return next((r for r in results if r[:2] != results[0][:2]), results[0])


def run_all(millrace, cases, directory):
    """Yields each case and its result, concurrent ones last: a dispatcher that starts waits some seconds
    for workers and clients that it knew."""
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        later = []
        for case in cases:
            if case.get("concurrent"):
                later.append((case, pool.submit(run, millrace, case, directory)))
            else:
                yield case, run(millrace, case, directory)
        for case, result in later:
            yield case, result.result()


def is_close(a, b):
    return abs(a - b) <= CLOSE * max(abs(a), abs(b)) + 1e-6


def same_lines(case, got):
    want = case["out"]
    if not any('"loss"' in line and "learning_rate" in line for line in want):  # 0.1 did not print it
        got = [re.sub(r'("loss".*), "learning_rate": [^,}]*', r"\1", line) for line in got]
    if case.get("sorted"):
        got, want = sorted(got), sorted(want)
    if not case.get("close"):
        return got == want
    numbers = zip(NUMBER.findall("\n".join(got)), NUMBER.findall("\n".join(want)))
    return ([NUMBER.sub("#", line) for line in got] == [NUMBER.sub("#", line) for line in want] and
            all(is_close(float(a), float(b)) for a, b in numbers))


def fault(case, status, out, err):
    """Why a case fails, or None."""
    if status != case["exit"]:
        return f"status {status} instead of {case['exit']}: {err[-600:]}"
    if not same_lines(case, out):
        return f"printed {out}\n instead of {case['out']}\n {err[-600:]}"
    if case.get("says", "") not in err:
        return f"'{case['says']}' is not in: {err[-600:]}"
    return None


@contextlib.contextmanager
def service(millrace, daemons, directory):
    """Runs a dispatcher and its workers. The files store their addresses, so two runs of this test on
    one machine take turns."""
    processes = []
    with open(os.path.join(tempfile.gettempdir(), f"millrace-compat.{os.getuid()}"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            for words in (daemons["dispatcher"], *daemons["workers"]):
                with open(os.path.join(directory, words[0] + ".log"), "w+") as log:
                    p = start(millrace, words, directory, stderr=log)
                    processes.append(p)
                    if not p.stdout.readline().startswith("ready"):
                        p.wait()
                        log.seek(0)
                        raise RuntimeError(f"{' '.join(words)}: {log.read()}")
            yield processes
        finally:
            for p in reversed(processes):
                p.terminate()
                p.communicate(timeout=PATIENCE)


def lacks(millrace):
    """Parts of the build that are missing."""
    return {what for what, command in (("trainer", "train"), ("service", "dispatcher"))
            if subprocess.run([millrace, command, "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=ENVIRONMENT).returncode != 0}


def unread(folder, cases):
    """Positions that no case restores."""
    named = {word for case in cases for word in case["args"]}
    return [name for name in os.listdir(os.path.join(folder, "positions")) if f"positions/{name}" not in named]


class Report:
    def __init__(self):
        self.tap = open(os.environ.get("TAP_FILE", os.devnull), "w")
        self.n = self.failed = 0

    def line(self, name, why=None, skip=None):
        self.n += 1
        print(f"{'not ok' if why else 'ok'} {self.n} - {name}{f' # SKIP {skip}' if skip else ''}", file=self.tap,
              flush=True)
        if why:
            self.failed += 1
            print(f"FAILED {name}\n {why}", flush=True)

    def end(self):
        print(f"1..{self.n}", file=self.tap, flush=True)
        print(f"{self.n - self.failed} passed, {self.failed} failed")
        return self.failed > 0 or self.n == 0


def read(millrace, folder, only, without, report):
    version = os.path.basename(os.path.normpath(folder))
    daemons, cases = cases_of(folder)
    left = unread(folder, cases)
    report.line(f"{version}/every_position_has_a_case", f"no case for {left}" if left else None)
    cases = [c for c in cases if only in c["name"]]
    with tempfile.TemporaryDirectory(prefix="millrace-compat-") as directory, contextlib.ExitStack() as stack:
        copy(folder, directory)
        broken = None
        if "service" not in without and any(c.get("dispatcher") for c in cases):
            try:
                stack.enter_context(service(millrace, daemons, directory))
            except RuntimeError as e:
                broken = str(e)
        possible = []
        for case in cases:
            name = f"{version}/{case['name']}"
            if case.get("needs") in without:
                report.line(name, skip=f"built without the {case['needs']}")
            elif case.get("long") and not LONG:
                report.line(name, skip="takes 30 s; MR_TEST_LONG=1 runs it")
            elif broken and case.get("dispatcher"):
                report.line(name, broken)
            else:
                possible.append(case)
        for case, result in run_all(millrace, possible, directory):
            report.line(f"{version}/{case['name']}", fault(case, *result))


def main():
    words = argparse.ArgumentParser()
    words.add_argument("millrace")
    words.add_argument("folders", nargs="+")
    words.add_argument("--only", default="")
    words = words.parse_args()
    millrace = os.path.abspath(words.millrace)
    report, without = Report(), lacks(millrace)
    for folder in words.folders:
        read(millrace, folder, words.only, without, report)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
