#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""millrace train --elastic S that is killed and started again with other numbers of processes and replicas: the
ledger has the steps of a run that was left alone, and so have the losses to float32 rounding.

    resized_elastic.py [MILLRACE [SEED [RUNS]]]     20 runs by default, 200 with MR_TEST_TIER=long

TAP goes to $TAP_FILE."""
import collections
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from killed import MILLRACE, PAIR, ROWS, SEED, run, send, to_parent  # noqa: E402

RUNS = int(sys.argv[3]) if len(sys.argv) > 3 else 200 if os.environ.get("MR_TEST_TIER") == "long" else 20
STREAMS, EPOCHS = 12, 2
TO_NUMBERS = '.map(s => ([cast(decode_raw(s, "uint8"), "float32") / 64.0], [1.0]))'
DATA = [
    f"range({ROWS}).shuffle(200).map(i => {PAIR}).batch(16)",
    f"range({ROWS}).shuffle(50).take({ROWS}).filter(i => i % 7 != 3).map(i => {PAIR}).batch(25)",
    f'text_line("part-*").shuffle(100){TO_NUMBERS}.batch(20)',
    f'text_line("part-0").concatenate(text_line("part-1")){TO_NUMBERS}.shuffle(9).batch(7).prefetch(2)',
]


def command(data, processes, replicas, *more):
    return [MILLRACE, "train", "--model", "dense(3).dropout(0.2).dense(1)", "--loss", "mse", "--optimizer", "sgd(0.01)",
            "--epochs", str(EPOCHS), "--log", "json", "--seed", "3", "--ledger", "ledger", "--elastic", str(STREAMS),
            "--data", data, "--processes", str(processes), "--replicas", str(replicas), *more]


def why():
    """The records of each step."""
    out = subprocess.run([MILLRACE, "why", "ledger"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    return [json.loads(x)["records"] for x in out.splitlines()]


def ledger():
    return [[(r["file"], r["ordinal"]) for r in step] for step in why()]


def losses(lines):
    return {x["step"]: x["loss"] for x in lines if "step" in x}


def alone(data):
    code, lines, err = run(command(data, 1, 1))
    assert code == 0, err
    return losses(lines), ledger()


def remove_backups():
    shutil.rmtree("backup", ignore_errors=True)


def test_any_number_of_processes_continues():
    rng = random.Random(SEED)
    whole = {data: alone(data) for data in DATA}
    for i in range(RUNS):
        data = rng.choice(DATA)
        want, records = whole[data]
        last, step, shape = max(want), 0, []
        remove_backups()
        while True:
            processes = rng.randint(1, 5)
            replicas = rng.randint(1, min(2, STREAMS // processes))
            backup = f'backup_and_restore("backup", save_freq={rng.choice([1, 3, 7])})'
            at = rng.randint(step + 1, last + last // 3)
            kill = rng.choice([send(signal.SIGKILL, rng.randrange(processes)), send(signal.SIGKILL, *range(processes)),
                               to_parent(signal.SIGTERM)])
            shape.append((processes, replicas, at))
            told = f"seed {SEED}, run {i}: {data}: {shape}"
            code, lines, err = run(command(data, processes, replicas, "--callback", backup), [(at, kill)] if at < last else [])
            for n, loss in losses(lines).items():
                assert math.isclose(loss, want[n], rel_tol=1e-4, abs_tol=1e-6), (told, n, loss, want[n])
            if code == 0:
                break
            assert at < last, (told, code, err)
            step = max([step, *losses(lines)])
            assert len(shape) < 100, told
        got = ledger()
        assert got == records, (told, len(got), len(records), next((k for k, (a, b) in enumerate(zip(got, records)) if a != b), None))
        assert not os.path.exists("backup"), told


def saved_bytes():
    """The contents of the saved model's files."""
    found = {}
    for folder, _, names in os.walk("model"):
        for name in names:
            with open(os.path.join(folder, name), "rb") as f:
                found[os.path.join(folder, name)] = f.read()
    shutil.rmtree("model")
    return found


def test_the_same_numbers_give_the_same_bits():
    for processes, replicas in ((1, 2), (3, 1)):
        def job(*more):
            return command(DATA[1], processes, replicas, "--save", "model", *more)

        code, lines, err = run(job())
        assert code == 0, err
        want, model = losses(lines), saved_bytes()
        remove_backups()
        keep = ["--callback", 'backup_and_restore("backup", save_freq=1)']
        code, first, err = run(job(*keep), [(7, send(signal.SIGKILL, *range(processes)) if processes > 1 else to_parent(signal.SIGTERM))])
        assert code != 0 and losses(first).keys() < want.keys(), (processes, replicas, code, err)
        code, rest, err = run(job(*keep))
        assert code == 0 and losses(rest).keys() < want.keys(), (processes, replicas, code, err)
        assert {**losses(first), **losses(rest)} == want, (processes, replicas, want, losses(first), losses(rest))
        assert saved_bytes() == model, (processes, replicas)


def test_other_streams_are_refused_within_an_epoch():
    remove_backups()
    data = DATA[0]
    code, lines, err = run(command(data, 2, 1, "--callback", 'backup_and_restore("backup", save_freq=1)'),
                           [(9, send(signal.SIGKILL, 0, 1))])
    assert code != 0
    for change, word in ((["--elastic", "6"], "12"), (["--data", data.replace("batch(16)", "batch(8)")], "batch")):
        code, lines, err = run(command(data, 2, 1, "--callback", 'backup_and_restore("backup", save_freq=1)', *change))
        assert code == 1 and word in err and "--restart-epoch" in err, (code, err)


def test_an_epoch_begins_with_other_streams():
    """Of the same data."""
    whole = command(DATA[0], 2, 1, "--callback", 'checkpoint("saved/{epoch}")')
    code, _, err = run(whole)
    assert code == 0, err
    shutil.copy("ledger", "whole")
    for change, word in ((["--elastic", "5"], None), (["--data", DATA[0].replace("batch(16)", "batch(10)")], None),
                         (["--data", DATA[0].replace(f"range({ROWS})", f"range({ROWS - 1})")], "graph"),
                         (["--elastic", "5", "--data", DATA[0].replace(f"range({ROWS})", f"range({ROWS - 1})")], "graph")):
        remove_backups()
        shutil.copytree("saved/1", "backup/backup")
        shutil.copy("whole", "ledger")
        code, lines, err = run(command(DATA[0], 3, 1, "--callback", 'backup_and_restore("backup")', *change))
        if word:
            assert code == 1 and word in err and "--restart-epoch" in err, (change, code, err)
            continue
        assert code == 0, (change, err)
        records = collections.Counter(r for step in ledger() for r in step)
        assert len(records) == ROWS and set(records.values()) == {EPOCHS}, (change, records)
    remove_backups()
    shutil.copytree("saved/1", "backup/backup")
    for processes in (2, 3):
        code, _, err = run(ordinary(processes))
        assert code == 1 and "--elastic" in err, (processes, code, err)
    shutil.rmtree("saved")


def ordinary(processes, callback='backup_and_restore("backup")'):
    """The job that is not elastic."""
    return [x for x in command(DATA[0], processes, 1, "--callback", callback) if x not in ("--elastic", str(STREAMS))]


def test_an_ordinary_job_does_not_become_elastic():
    """Also between epochs, and with a checkpoint without positions, as of data that have none."""
    code, _, err = run(ordinary(2, 'checkpoint("saved/{epoch}")'))
    assert code == 0, err
    for processes, positions in ((2, True), (3, True), (3, False)):
        remove_backups()
        shutil.copytree("saved/1", "backup/backup")
        for name in os.listdir("backup/backup"):
            if "position" in name and not positions:
                os.remove(os.path.join("backup/backup", name))
        code, lines, err = run(command(DATA[0], processes, 1, "--callback", 'backup_and_restore("backup")'))
        assert code == 1 and not losses(lines) and "not elastic" in err and "elastic streams" in err, (processes, positions, code, err)
    shutil.rmtree("saved")


def test_a_mixture_changes_by_name():
    remove_backups()
    def mixed(*sources):
        return f'mix({{{", ".join(sources)}}}, stop="all").map(i => {PAIR}).batch(24)'

    web, code, books = '"web": range(400)', '"code": range(1000, 1300).shuffle(7)', '"books": range(2000, 2100)'
    keep = ["--callback", 'backup_and_restore("backup", save_freq=1)', "--epochs", "1"]
    code_, _, err = run(command(mixed(code, web), 2, 1, *keep), [(9, send(signal.SIGKILL, 0, 1))])
    assert code_ != 0, err
    other = mixed(code, books)
    code_, _, err = run(command(other, 3, 1, *keep))
    assert code_ == 1 and "--restore-by-name" in err, (code_, err)
    code_, lines, err = run(command(other, 3, 1, *keep, "--restore-by-name"))
    assert code_ == 0 and '"web" is removed' in err and '"books" is new' in err, (code_, err)
    records = collections.Counter(r["ordinal"] for step in why() for r in step if r["source"] == 0)
    assert records == {i: 1 for i in range(300)}, records


def test_predictions_are_not_elastic():
    code, lines, err = run(command(DATA[0], 1, 1, "--save", "model"))
    assert code == 0, err
    features = DATA[0].replace(".batch", ".map((x, y) => x).batch") + ".with_options(elastic_streams=4)"
    code, lines, err = run([MILLRACE, "predict", "--saved", "model", "--data", features])
    assert code == 1 and "order" in err, (code, err)
    code, lines, err = run([MILLRACE, "evaluate", "--saved", "model", "--data", DATA[0], "--elastic", "4"])
    assert code == 0, err


def main():
    tests = [v for k, v in sorted(globals().items()) if k.startswith("test_")]
    failed = 0
    with open(os.environ.get("TAP_FILE", os.devnull), "w") as tap, tempfile.TemporaryDirectory() as d:
        os.chdir(d)
        for i in range(5):
            with open(f"part-{i}", "w") as f:
                f.writelines(f"{chr(48 + i)}\n" for _ in range(20 + 13 * i))
        print(f"1..{len(tests)}", file=tap)
        for t in tests:
            try:
                t()
                print(f"ok - resized_elastic::{t.__name__}", file=tap, flush=True)
            except Exception:
                failed += 1
                traceback.print_exc()
                print(f"not ok - resized_elastic::{t.__name__}", file=tap, flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
