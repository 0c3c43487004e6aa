#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a dispatcher can do alone: splits and acknowledgements made durable a second, the time to
serve again with much on record, and what it costs when nothing happens.
   bench/dispatcher.py [--jobs N] [--splits N] [--state DIR]     on record (default 1,000 of 1,000)"""
import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time

options = argparse.ArgumentParser()
options.add_argument("--jobs", type=int, default=1000)
options.add_argument("--splits", type=int, default=1000)
options.add_argument("--seconds", type=int, default=10)
options.add_argument("--state", help="make the accounts below this directory, to measure its disk")
o = options.parse_args()
os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
millrace, load = "build/millrace", "build/tests/dispatcher_load"
directory = tempfile.mkdtemp(dir=o.state, prefix="millrace-bench-")


class Dispatcher:
    def __init__(self, *words):
        self.begin = time.monotonic()
        self.process = subprocess.Popen([millrace, "dispatcher", "--listen", "127.0.0.1:0", *words],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.at = self.process.stdout.readline().split()[-1]

    def ask(self, *words):
        return subprocess.run([millrace, "service", *words, "--dispatcher", self.at, "--json", "--timeout", "60"],
                              capture_output=True, text=True, check=True).stdout

    def cpu(self):
        """Seconds, of all threads."""
        tasks = f"/proc/{self.process.pid}/task"
        return sum(int(open(f"{tasks}/{t}/schedstat").read().split()[0]) for t in os.listdir(tasks)) * 1e-9

    def memory(self):
        """Resident MiB."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(x.split()[1]) for x in f if x.startswith("VmRSS")) >> 10

    def stop(self):
        self.process.terminate()
        self.process.wait()


def run_load(d, **words):
    return subprocess.Popen([load, d.at] + [x for k, v in words.items() for x in ("--" + k, str(v))],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def durable():
    """Streams whose progress is durable a second; the ceiling is as many rows a second in
    transactions of one round, by SQLite alone in one process, with the same settings."""
    jobs, streams, seconds = 8, 64, 5
    d = Dispatcher("--state", directory + "/durable")
    p = run_load(d, jobs=jobs, streams=streams, workers=4, every=0, step=1, seconds=seconds)
    said = json.loads(p.communicate()[0])
    d.stop()
    # Each acknowledgement advances a stream by one element.
    rate = sum(map(sum, said.values())) / seconds
    db = sqlite3.connect(directory + "/plain.db", isolation_level=None)
    db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA locking_mode=EXCLUSIVE;"
                     "CREATE TABLE s(job INTEGER, stream INTEGER, elements INTEGER, PRIMARY KEY(job, stream)) WITHOUT ROWID")
    end, n = time.monotonic() + 2, 0
    while time.monotonic() < end:
        db.execute("BEGIN")
        db.executemany("REPLACE INTO s VALUES(?, ?, ?)", [(j, s, n) for j in range(jobs) for s in range(streams)])
        db.execute("COMMIT")
        n += jobs * streams
    print(f"acknowledgements made durable: {rate:,.0f}/s   ceiling (SQLite, one transaction a round): {n / 2:,.0f}/s")


def splits():
    """Each worker asks for the next split of each job's stream when it has got the one before."""
    jobs, workers, seconds = 32, 16, 5
    d = Dispatcher("--state", directory + "/splits")
    p = run_load(d, jobs=jobs, workers=workers, splits=10**7, seconds=seconds)
    n = int(p.communicate()[1].split()[0])
    cpu = d.cpu()
    d.stop()
    db = sqlite3.connect(directory + "/splits/account.db")
    (on_record,) = db.execute("SELECT count(*) FROM splits").fetchone()
    db.close()
    if on_record < n:
        raise SystemExit(f"{n} splits were handed out, {on_record} are on record")
    print(f"splits handed out durably: {n / seconds:,.0f}/s, {cpu / n * 1e6:.1f} us of CPU each   target 10,000/s")


def restart():
    """The account is made from one dynamic job that a dispatcher wrote itself."""
    state, workers = directory + "/restart", 8
    d = Dispatcher("--state", state)
    run_load(d, jobs=1, workers=workers, splits=o.splits, seconds=10).communicate()
    d.stop()
    db = sqlite3.connect(state + "/account.db")
    (old, job) = db.execute("SELECT id, job FROM jobs").fetchone()
    tables = {t: db.execute(f"SELECT * FROM {t}").fetchall() for t in ("streams", "splits")}
    if len(tables["streams"]) != workers or len(tables["splits"]) != o.splits:
        raise SystemExit(f"the job was not handed out in time: {[len(t) for t in tables.values()]}")
    for j in range(1, o.jobs):
        db.execute("INSERT INTO jobs(id, name, job) VALUES(?, ?, ?)", (j, f"more-{j}", job))
        for table, rows in tables.items():
            db.executemany(f"INSERT INTO {table} VALUES({', '.join('?' * len(rows[0]))})",
                           [(j,) + row[1:] for row in rows])
    db.commit()
    db.close()
    times, reads = [], []
    for _ in range(5):
        begin = time.monotonic()
        db = sqlite3.connect(state + "/account.db")
        db.execute("SELECT sum(split) + sum(stream) + sum(job & 1) FROM splits").fetchone()
        db.execute("SELECT max(length(position)) + max(elements) FROM streams").fetchone()
        db.close()
        reads.append(time.monotonic() - begin)
        d = Dispatcher("--state", state)
        status = json.loads(d.ask("status"))
        times.append(time.monotonic() - d.begin)
        memory = d.memory()
        d.stop()
        if status["jobs"] != o.jobs:
            raise SystemExit(f"{status} instead of {o.jobs} jobs")
    size = os.path.getsize(state + "/account.db") >> 20
    print(f"restart with {o.jobs:,} jobs and {o.jobs * o.splits:,} splits on record ({size} MiB): {sorted(times)[2]:.2f} s "
          f"until it has answered, {memory} MiB resident   target 2 s   ceiling (SQLite reads them): {sorted(reads)[2]:.2f} s")


def idle():
    for workers, clients in ((0, 0), (1, 1), (64, 16)):
        d = Dispatcher("--state", f"{directory}/idle{workers}")
        p = run_load(d, jobs=clients, streams=8, workers=workers, every=10**7) if workers else None
        time.sleep(2)
        before = d.cpu()
        time.sleep(o.seconds)
        print(f"idle, {workers} workers and {clients} clients that wait: {(d.cpu() - before) / o.seconds * 100:.3f} % of a core   "
              f"target 0.1 %")
        d.stop()
        if p:
            p.communicate()


try:
    splits()
    durable()
    restart()
    idle()
finally:
    shutil.rmtree(directory)
