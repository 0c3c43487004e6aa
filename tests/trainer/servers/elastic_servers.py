#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=long
"""Elastic training by parameter servers, in processes: workers are killed and started again, and whole jobs are
started again with other numbers of workers; the ledger shows every record of every epoch once, and the number of
updates that every gradient was applied once. elastic_servers.py [MILLRACE] [--seed S]

TAP goes to $TAP_FILE."""
import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")))
from ports import ports  # noqa: E402

arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
MILLRACE = os.path.abspath(arguments[0] if arguments else os.path.join(os.environ["MR_BUILD"], "millrace"))
SEED = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else int(os.environ.get("MR_TEST_SEED", "1"))
LONG = os.environ.get("MR_TEST_TIER") == "long"
PATIENCE = 600
ROW = '.map(i => ([cast(i % 10, "float32") / 10.0], [cast(i % 10, "float32") / 5.0]))'


class Job:
    """Servers and workers on this host."""

    def __init__(self, servers, workers):
        at = [f"127.0.0.1:{p}" for p in ports(servers + workers)]
        self.cluster = {"ps": at[:servers], "worker": at[servers:]}
        self.running, self.workers = {}, workers
        for i in range(servers):
            self.start("ps", i)
        for i in range(workers):
            self.start("worker", i)

    def start(self, kind, i):
        env = dict(os.environ, TF_CONFIG=json.dumps({"cluster": self.cluster, "task": {"type": kind, "index": i}}))
        self.running[kind, i] = subprocess.Popen([MILLRACE, "server", "--gone", "3600"], env=env, stdin=subprocess.DEVNULL,
                                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, i):
        p = self.running.pop(("worker", i))
        p.kill()
        p.wait()

    def train(self, *more):
        env = dict(os.environ, TF_CONFIG=json.dumps({"cluster": self.cluster}))
        err = open("err", "w", encoding="utf-8")
        command = [MILLRACE, "train", "--strategy", "parameter_server", "--model", "input(1).dense(1)", "--loss", "mse", "--optimizer",
                   "adam(0.001)", "--log", "json", "--ledger", "ledger", *more]
        return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.running.values():
            p.kill()
            p.wait()


def end(p, status=0):
    p.stdout.read()
    p.wait(timeout=PATIENCE)
    with open("err", encoding="utf-8") as f:
        err = f.read()
    assert p.returncode == status, (p.returncode, err)
    return err


def steps_until(p, n):
    """Reads lines up to step n; false: training ended before."""
    for line in p.stdout:
        if json.loads(line).get("step") == n:
            return True
    return False


def ledger():
    """The records of each step."""
    out = subprocess.run([MILLRACE, "why", "ledger"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    return [[(r["file"], r["ordinal"]) for r in json.loads(line)["records"]] for line in out.splitlines()]


def check_once(epochs, records):
    """Every record in each epoch once: the epochs follow each other in the ledger."""
    steps = ledger()
    all_records = [r for step in steps for r in step]
    assert len(all_records) == epochs * records, (len(all_records), epochs * records)
    for e in range(epochs):
        times = collections.Counter(all_records[e * records:(e + 1) * records])
        assert len(times) == records and max(times.values()) == 1, [r for r, n in times.items() if n > 1][:9]
    return steps


def updates(directory):
    with open(os.path.join(directory, "state.json"), encoding="utf-8") as f:
        state = json.load(f)
    return state["iterations"], state["step"]


def batches_of(steps):
    return sorted(sorted(step) for step in steps)


def make_files():
    for i in range(7):
        with open(f"part-{i}", "w", encoding="utf-8") as f:
            f.writelines(f"{100 * i + k}\n" for k in range(20 + 9 * i))


FILES = 'text_line("part-*").shuffle(30).map(s => to_number(s, "int64"))'
LINES = sum(20 + 9 * i for i in range(7))


def test_every_record_once_and_the_batches_do_not_depend_on_the_workers():
    make_files()
    for data, records in (("range(500).shuffle(50)", 500), (FILES, LINES), ("range(300).skip(20).take(200)", 200)):
        seen = []
        for workers in (1, 3):
            with Job(2, workers) as job:
                end(job.train("--elastic", "6", "--epochs", "2", "--seed", "3", "--data", data + ROW + ".batch(8)"))
                seen.append(batches_of(check_once(2, records)))
        assert seen[0] == seen[1], data


def test_without_elastic_there_is_no_ledger():
    with Job(1, 1) as job:
        err = end(job.train("--steps", "3", "--data", "range(64)" + ROW + ".batch(8)"), 1)
        assert "--elastic" in err, err


def test_more_workers_than_streams_are_refused():
    with Job(1, 3) as job:
        err = end(job.train("--elastic", "2", "--epochs", "1", "--data", "range(64)" + ROW + ".batch(8)"), 1)
        assert "3 workers" in err and "2 elastic streams" in err, err


def storm(d, records, epochs, data, more=()):
    """Workers are killed at random while they train, and some come back later."""
    killed = 0
    with Job(2, 3) as job:
        p = job.train("--keep-servers", "--elastic", "12", "--epochs", str(epochs), "--seed", "5", "--callback", 'checkpoint("end")',
                      "--data", data, *more)
        for line in p.stdout:
            if "step" not in json.loads(line) or d.random() > 0.08:
                continue
            away = [i for i in range(3) if ("worker", i) not in job.running]
            if away and d.random() < 0.6:
                job.start("worker", d.choice(away))
            elif len(away) < 2:
                job.kill(d.choice([i for i in range(3) if i not in away]))
                killed += 1
        err = end(p)
    steps = check_once(epochs, records)
    iterations, step = updates("end")
    assert iterations == step == len(steps), (iterations, step, len(steps))
    return killed, err


def test_killed_workers_lose_no_record_and_double_none():
    d = random.Random(SEED)
    make_files()
    killed = made_again = 0
    for n in range(20 if LONG else 3):
        data, records = d.choice([("range(900).shuffle(100)", 900), (FILES, LINES), ("range(700).cache()", 700)])
        k, err = storm(d, records, 3, data + ROW + ".batch(8)")
        killed += k
        made_again += sum(int(x) for x in re.findall(r"(\d+) steps? of lost workers", err))
        assert (k == 0) or "others take over" in err or "is lost" in err, err
    assert killed > 0
    print(f"{killed} workers killed, {made_again} steps made again")


def test_a_job_continues_with_other_workers():
    d = random.Random(SEED + 1)
    make_files()
    for n in range(20 if LONG else 2):
        data, records = d.choice([("range(900).shuffle(100)", 900), (FILES, LINES)])
        shutil.rmtree("backup", ignore_errors=True)
        more = ("--elastic", "12", "--epochs", "2", "--callback", 'backup_and_restore("backup", save_freq=5)', "--seed", "4",
                "--data", data + ROW + ".batch(8)")
        with Job(1, 2) as job:
            whole = batches_of_run(job, data)
        for workers in (d.randint(1, 4), d.randint(1, 4)):
            with Job(1, workers) as job:
                p = job.train(*more)
                steps_until(p, d.randint(8, 60))
                p.send_signal(d.choice([signal.SIGKILL, signal.SIGTERM]))
                p.stdout.read()
                p.wait(timeout=PATIENCE)
        with Job(1, d.randint(1, 4)) as job:
            end(job.train(*more))
        assert batches_of(check_once(2, records)) == whole


def batches_of_run(job, data):
    end(job.train("--elastic", "12", "--epochs", "2", "--seed", "4", "--data", data + ROW + ".batch(8)", "--ledger", "calm"))
    os.rename("calm", "ledger")
    steps = batches_of(ledger())
    os.remove("ledger")
    return steps


def test_another_number_of_streams_is_refused():
    more = ("--epochs", "2", "--callback", 'backup_and_restore("backup", save_freq=5)', "--seed", "4", "--data",
            "range(400)" + ROW + ".batch(8)")
    with Job(1, 2) as job:
        p = job.train("--elastic", "4", *more)
        steps_until(p, 12)
        p.kill()
        p.stdout.read()
        p.wait()
    with Job(1, 2) as job:
        err = end(job.train("--elastic", "5", *more), 1)
        assert "elastic 4" in err and "--restart-epoch" in err, err


def test_an_epoch_begins_with_another_number_of_streams():
    more = ("--epochs", "3", "--seed", "4", "--data", "range(400).shuffle(50)" + ROW + ".batch(8)")
    with Job(1, 2) as job:
        end(job.train("--elastic", "4", *more, "--callback", 'checkpoint("saved/{epoch}")'))
    shutil.copytree("saved/1", "backup/backup")
    keep = ("--callback", 'backup_and_restore("backup")')
    with Job(1, 2) as job:
        err = end(job.train("--elastic", "5", *more, *keep, "--data", "range(399)" + ROW + ".batch(8)"), 1)
        assert "other data" in err, err
    with Job(1, 3) as job:
        end(job.train("--elastic", "5", *more, *keep))
    steps = check_once(3, 400)[-100:]  # 10 of each stream in an epoch
    with Job(1, 1) as job:
        end(job.train("--elastic", "5", *more))
    whole = ledger()[-100:]
    for epoch in range(2):
        a, b = 50 * epoch, 50 * epoch + 50
        assert batches_of(steps[a:b]) == batches_of(whole[a:b]), f"epoch {epoch + 2}"


def test_a_position_that_is_too_large_says_what_to_do():
    held = 'map(x => (x, zeros([1000000], "float32"))).group_by_window((x, y) => 0, (k, w) => w, 100).map((x, y) => x)'
    with Job(1, 1) as job:
        err = end(job.train("--elastic", "1", "--epochs", "1", "--data", f"range(10).{held}{ROW}.batch(4)"), 1)
        assert "stream 0 has a position of" in err and "group_by_window" in err and "another strategy" in err, err


def main():
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    failed = 0
    with open(os.environ.get("TAP_FILE", os.devnull), "w", encoding="utf-8") as tap:
        for test in tests:
            if "--only" in sys.argv and sys.argv[sys.argv.index("--only") + 1] not in test.__name__:
                continue
            began, here = time.monotonic(), os.getcwd()
            with tempfile.TemporaryDirectory(prefix="millrace-servers-") as folder:
                os.chdir(folder)
                try:
                    test()
                    print(f"ok - elastic_servers::{test.__name__[5:]}", file=tap, flush=True)
                    print(f"ok {test.__name__} {time.monotonic() - began:.1f} s", flush=True)
                except Exception:
                    failed = 1
                    print(f"not ok - elastic_servers::{test.__name__[5:]}", file=tap, flush=True)
                    print(f"FAILED {test.__name__}", flush=True)
                    traceback.print_exc()
                os.chdir(here)
        print(f"1..{len(tests)}", file=tap)
    sys.exit(failed)


if __name__ == "__main__":
    main()
