#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""millrace train --processes P --restarts N whose processes are killed: the ledger has each record of each epoch
once, and the losses are those of a run that was left alone. killed.py MILLRACE

    killed.py [MILLRACE [SEED [RUNS]]]     10 runs by default, 60 with MR_TEST_TIER=long

TAP goes to $TAP_FILE."""
import collections
import faulthandler
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

MILLRACE = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.environ["MR_BUILD"], "millrace"))
SEED = int((sys.argv[2] if len(sys.argv) > 2 else os.environ.get("MR_TEST_SEED")) or "1")
RUNS = int(sys.argv[3]) if len(sys.argv) > 3 else 60 if os.environ.get("MR_TEST_TIER") == "long" else 10
ROWS, BATCH, EPOCHS = 960, 12, 2
PAIR = '([cast(i % 31, "float32") / 31.0], [cast(i % 7, "float32")])'
NUMBERS = f"range({ROWS}).shuffle(200).map(i => {PAIR}).batch({BATCH})"
FILES = ('text_line("part-*").shuffle(100).map(s => ([cast(decode_raw(s, "uint8"), "float32") / 64.0], [1.0]))'
         f".batch({BATCH})")
TRAIN = ["train", "--model", "dense(3).dense(1)", "--loss", "mse", "--optimizer", "adam(0.01)", "--epochs", str(EPOCHS),
         "--log", "json", "--seed", "3", "--ledger", "ledger"]
JOBS = [("data", NUMBERS), ("file", FILES)]


def command(policy, data, processes, *more):
    return [MILLRACE, *TRAIN, "--data", data, "--auto-shard", policy, "--processes", str(processes), *more]


def backed_up(restarts, freq=7):
    return ["--restarts", str(restarts), "--callback", f'backup_and_restore("backup", save_freq={freq})']


def ranks_of(p):
    """The pids of the children, by rank."""
    found = {}
    listed = subprocess.run(["pgrep", "-P", str(p.pid)], stdout=subprocess.PIPE, text=True).stdout
    for pid in map(int, listed.split()):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                for word in f.read().split(b"\0"):
                    if word.startswith(b"RANK="):
                        found[int(word[5:])] = pid
        except OSError:
            pass
    return found


def narrow(args, **options):
    """The process, whose standard output has room for a few lines: it cannot end long before they are read."""
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    with ours, theirs:
        p = subprocess.Popen(args, stdout=theirs, **options)
        p.stdout = ours.makefile()
    return p


def run(args, hits=()):
    """hits: (step, what to do with the process when that is printed). Exit status, lines, standard error."""
    with open("err", "w") as err:
        p = narrow(args, stderr=err)
    lines, hits = [], list(hits)
    for text in p.stdout:
        lines.append(json.loads(text))
        if hits and lines[-1].get("step") == hits[0][0]:
            hits.pop(0)[1](p)
    code = p.wait(timeout=600)
    p.stdout.close()
    with open("err") as f:
        return code, lines, f.read()


def send(sig, *ranks):
    def act(p):
        of = ranks_of(p)
        for r in ranks:
            if r in of:
                try:
                    os.kill(of[r], sig)
                except ProcessLookupError:
                    pass
    return act


def to_parent(sig):
    return lambda p: p.send_signal(sig)


def check_ledger(steps_of_epoch):
    out = subprocess.run([MILLRACE, "why", "ledger"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    steps = [[(r["file"], r["ordinal"]) for r in json.loads(x)["records"]] for x in out.splitlines()]
    assert len(steps) == EPOCHS * steps_of_epoch, (len(steps), steps_of_epoch)
    for k in range(EPOCHS):
        n = collections.Counter(r for s in steps[k * steps_of_epoch:(k + 1) * steps_of_epoch] for r in s)
        assert len(n) == ROWS and set(n.values()) == {1}, (k, len(n), collections.Counter(n.values()))
    return steps


def key(line):
    return ("step", line["step"]) if "step" in line else ("epoch", line["epoch"])


def alone(policy, data, processes):
    shutil.rmtree("backup", ignore_errors=True)
    code, lines, err = run(command(policy, data, processes))
    assert code == 0, err
    return {key(x): x for x in lines}


def test_killed_at_any_moment():
    rng = random.Random(SEED)
    for i in range(RUNS):
        policy, data = JOBS[i % 2]
        processes = rng.choice([2, 2, 3])
        whole = alone(policy, data, processes)
        last = max(k[1] for k in whole if k[0] == "step")
        steps, hits = sorted(rng.sample(range(2, last - 2), rng.choice([1, 2, 3]))), []
        for step in steps:
            hits.append((step, rng.choice([send(signal.SIGKILL, rng.randrange(processes)), send(signal.SIGKILL, *range(processes)),
                                           send(signal.SIGTERM, rng.randrange(processes))])))
        code, lines, err = run(command(policy, data, processes, *backed_up(len(hits), rng.choice([1, 7, '"epoch"']))), hits)
        told = f"seed {SEED}, run {i}: {policy}, {processes} processes, steps {steps}"
        assert code == 0, (told, err)
        for line in lines:
            assert line == whole[key(line)], (told, line, whole[key(line)])
        check_ledger(last // EPOCHS)
        assert not os.path.exists("backup"), told


def test_a_terminated_job_is_started_again_by_hand():
    whole = alone("data", NUMBERS, 2)
    last = max(k[1] for k in whole if k[0] == "step")
    args = command("data", NUMBERS, 2, *backed_up(5))
    code, lines, err = run(args, [(last // 3, to_parent(signal.SIGTERM))])
    assert code == 143 and "started again" not in err, (code, err)
    code, lines, err = run(args, [(last // 2, to_parent(signal.SIGKILL))])
    assert code == -9
    time.sleep(0.5)  # its processes end
    for _ in range(100):
        code, lines, err = run(args)
        if "another run" not in err:
            break
        time.sleep(0.2)
    assert code == 0, err
    for line in lines:
        assert line == whole[key(line)]
    check_ledger(last // EPOCHS)


def test_fewer_processes_after_one_died():
    code, lines, err = run(command("data", NUMBERS, 3, *backed_up(2), "--min-processes", "2"),
                           [(30, send(signal.SIGKILL, 1)), (60, send(signal.SIGKILL, 0))])
    assert code == 0, err
    assert "again with 2 processes (restart 1 of 2)" in err and "again with 2 processes (restart 2 of 2)" in err, err
    check_ledger(ROWS // BATCH)


def test_the_end_of_restarts_is_status_75():
    shutil.rmtree("backup", ignore_errors=True)
    code, lines, err = run(command("data", NUMBERS, 2, *backed_up(0)), [(30, send(signal.SIGKILL, 1))])
    assert code == 75 and "rank 1 was killed by signal 9" in err and "rank 1 (127.0.0.1:" in err, (code, err)
    shutil.rmtree("backup", ignore_errors=True)


def test_an_error_is_not_tried_again():
    data = f"range(64).map(i => ([1.0], 10 // (40 - i))).map((x, y) => (x, [cast(y, \"float32\")])).batch({BATCH})"
    code, lines, err = run(command("data", data, 2, *backed_up(3)))
    assert code == 1 and "division by zero" in err and "started again" not in err, (code, err)
    assert any(line.startswith("[rank 1] millrace: ") for line in err.splitlines()), err
    shutil.rmtree("backup", ignore_errors=True)


def test_usage():
    for more, word in ((["--restarts", "1"], "backup_and_restore"), (["--min-processes", "2"], "--restarts"),
                       (["--restarts", "1", "--min-processes", "3"], "more than --processes")):
        code, lines, err = run(command("data", NUMBERS, 2, *more))
        assert code == 2 and word in err and not lines, err
    code, lines, err = run([MILLRACE, *TRAIN, "--data", NUMBERS, "--restarts", "1"])
    assert code == 2 and "--processes" in err, err


def main():
    faulthandler.dump_traceback_later(30000 if RUNS > 20 else 1500, exit=True)
    tests = [(k[5:], v) for k, v in sorted(globals().items()) if k.startswith("test_")]
    failed = 0
    with tempfile.TemporaryDirectory() as d, open(os.environ.get("TAP_FILE", os.devnull), "w") as tap:
        os.chdir(d)
        for i in range(6):
            with open(f"part-{i}", "w") as f:
                f.write("".join(chr(65 + k % 26) + chr(65 + k % 17) + "\n" for k in range(ROWS // 6)))
        for i, (name, fn) in enumerate(tests, 1):
            try:
                fn()
                tap.write(f"ok {i} - {name}\n")
            except Exception:
                failed += 1
                tap.write(f"not ok {i} - {name}\n")
                print(f"FAILED {name}")
                traceback.print_exc(file=sys.stdout)
        tap.write(f"1..{len(tests)}\n")
        os.chdir("/")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
