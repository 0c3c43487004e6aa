#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=long
"""Elastic jobs: the same steps for any number of workers and replicas, from any position.

    elastic.py [BUILD_DIR] [--seed S] [--only NUMBER]

Random graphs, each run by one process for every (workers, replicas), by a process for each worker, and in
chains of positions with other workers; the rows of steps of simple graphs against a model of the schedule.
MR_TEST_SEED and MR_TEST_TIER=long set the defaults. TAP goes to $TAP_FILE.
"""
import argparse
import glob
import io
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile

import kit
from kit import Failure, equal

parser = argparse.ArgumentParser()
parser.add_argument("build", nargs="?", default=os.environ.get("MR_BUILD", "build"))
parser.add_argument("--seed", type=int, default=int(os.environ.get("MR_TEST_SEED", "1")))
parser.add_argument("--only", type=int)
options = parser.parse_args()
LONG = os.environ.get("MR_TEST_TIER") == "long"
program = os.path.join(os.path.abspath(options.build), "millrace")
SIZES = [(1, 1), (1, 4), (2, 1), (2, 3), (3, 2), (5, 1), (7, 1)]


def run(folder, *arguments):
    p = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
    if p.returncode < 0:
        raise Failure(f"signal {-p.returncode}: millrace {' '.join(arguments)}")
    return p


def steps_of(output):
    return [json.loads(line)["replicas"] for line in output.splitlines()]


def rows_of(value):
    """The rows of a batch: each as the tuple of its components."""
    if isinstance(value, dict):
        return [tuple(row) for row in zip(*(v if isinstance(v, list) else itertools.repeat(v) for v in value.values()))]
    return [(row if not isinstance(row, list) else json.dumps(row),) for row in value]


def joined(replicas):
    return [row for r in replicas for row in rows_of(r)]


def show(folder, graph, streams, workers, replicas, *more, worker=None):
    one = ["--worker", str(worker)] if worker is not None else []
    return run(folder, "show", "--replicas", str(replicas), "--workers", str(workers), *one, "--elastic",
               str(streams), *more, graph)


def rows(p, graph):
    if p.returncode:
        raise Failure(f"exit status {p.returncode} of {graph}: {p.stderr}")
    return [joined(step) for step in steps_of(p.stdout)]


# ---- graphs ----

def make_files(folder):
    for n in (1, 2, 3, 9):
        for i in range(n):
            with open(os.path.join(folder, f"t{n}-{i}.txt"), "w", encoding="utf-8") as f:
                f.writelines(f"{100 * i + k}\n" for k in range(0 if i == 1 and n > 2 else 3 + 5 * i))
    run(folder, "write", "--out", "r", "--shards", "5", "--expr", "range(37).map(x => format('{}', x))")
    run(folder, "write", "--out", "x", "--shards", "2", "--expr", "range(37).map(x => format('{}', x))")
    run(folder, "index", "x-*")
    row = "range(37).map(x => {'n': x})"
    for kind in ("parquet", "arrow", "jsonl"):
        run(folder, "write", "--out", kind, "--shards", "2", "--format", kind, "--expr", row)
    run(folder, "write", "--out", "npy", "--shards", "3", "--format", "npy", "--expr", "range(37)")
    with open(os.path.join(folder, "table.csv"), "w", encoding="utf-8") as f:
        f.writelines(["n\n", *(f"{i}\n" for i in range(37))])
    for i in range(4):
        with open(os.path.join(folder, f"fixed-{i}"), "w", encoding="utf-8") as f:
            f.writelines(f"{100 * i + k:04}" for k in range(5 * i))
        with tarfile.open(os.path.join(folder, f"tar-{i}.tar"), "w") as tar:
            for k in range(4 * i + 1):
                info, text = tarfile.TarInfo(f"{i}{k:02}.txt"), str(100 * i + k).encode()
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text))
        os.makedirs(os.path.join(folder, "images", str(i)))
        for k in range(7 * i + 1):
            with open(os.path.join(folder, "images", str(i), f"{k:02}.jpg"), "w", encoding="utf-8") as f:
                f.write(str(100 * i + k))
    run(folder, "show", "range(31).map(x => x * 3).save('saved')")


SOURCES = [
    lambda d: f"range({d.choice([0, 1, 2, 5, 23, 64, 100])})",
    lambda d: f"from_tensor_slices([{', '.join(map(str, range(d.randint(1, 30))))}])",
    lambda d: f"text_line('t{d.choice([1, 2, 3, 9])}-*').map(x => to_number(x, \"int64\"))",
    lambda d: f"list_files('t{d.choice([2, 3, 9])}-*', shuffle={d.choice(['true', 'false'])}).flat_map(f => text_line(f)).map(x => to_number(x, \"int64\"))",
    lambda d: f"list_files('t9-*', shuffle=false).shuffle(5).interleave(f => text_line(f), cycle_length={d.randint(1, 4)}).map(x => to_number(x, \"int64\"))",
    lambda d: f"tfrecord('{d.choice('rx')}-*').map(x => to_number(x, \"int64\"))",
    lambda d: "tfrecord('x-*').global_shuffle().map(x => to_number(x, \"int64\"))",
    lambda d: f"mix({{'a': {d.choice(SOURCES[:7])(d)}, 'b': {d.choice(SOURCES[:7])(d)}.shuffle(5)}}, stop='{d.choice(['first', 'all', 'repeat'])}')",
    lambda d: f"sample_from_datasets([{', '.join(d.choice(SOURCES[:7])(d) for _ in range(3))}], weights=[3, 1, {d.choice([0, 0.5])}], stop_on_empty_dataset={d.choice(['true', 'false'])})",
    lambda d: "text_line('t9-*').map(x => to_number(x, 'int64')).zip(text_line('t9-*')).map((x, y) => x * 2)",
]
INDEXED = [
    lambda d: f"range({d.randint(0, 60)})",
    lambda d: "tfrecord('x-*').map(x => to_number(x, 'int64'))",
    lambda d: "parquet('parquet-*').map(x => x['n'])",
    lambda d: "arrow('arrow-*').map(x => x['n'])",
    lambda d: "npy('npy-*')",
    lambda d: "fixed_length_record('fixed-*', 4).map(x => to_number(x, 'int64'))",
    lambda d: "image_folder('images').map(x => to_number(x['image'], 'int64'))",
    lambda d: "from_tensor_slices([5, 3, 8, 1, 9, 2, 7])",
]


def indexed(d):
    """An indexed dataset."""
    graph = d.choice(INDEXED)(d)
    for _ in range(d.randint(0, 3)):
        graph += d.choice([
            lambda: f".concatenate({d.choice(INDEXED)(d)})",
            lambda: f".skip({d.randint(0, 5)})",
            lambda: f".take({d.randint(0, 50)})",
            lambda: f".shard({(n := d.randint(1, 3))}, {d.randrange(n)})",
            lambda: f".split([0.6, 0.4], index={d.randint(0, 1)}, seed={d.randint(0, 9)})",
            lambda: f".global_shuffle(window={d.randint(1, 9)})",
            lambda: f".global_shuffle(seed={d.randint(0, 9)})",
            lambda: ".enumerate().map((i, x) => 100 * i + x)",
            lambda: f".zip({d.choice(INDEXED)(d)}).map((x, y) => 1000 * x + y)",
        ])()
    return graph


OTHER_SOURCES = [
    indexed,
    indexed,
    lambda d: "csv('table.csv', {'n': int64}).map(x => x['n'])",
    lambda d: "jsonl('jsonl-*', {'n': int64}).map(x => x['n'])",
    lambda d: "tar('tar-*.tar', members='txt').map(x => to_number(x['txt'], 'int64'))",
    lambda d: "files('t9-*').map(f => length(f['contents']))",
    lambda d: "load('saved')",
    lambda d: f"tfrecord('{d.choice('rx')}-*', num_parallel_reads={d.randint(1, 3)}).map(x => to_number(x, 'int64'))",
    lambda d: f"tfrecord('x-*', record_range=[{d.randint(0, 2)}, 3]).map(x => to_number(x, 'int64'))",
    lambda d: f"counter({d.randint(0, 9)}).take({d.randint(0, 50)})",
    lambda d: f"random(seed=3).map(x => x % 50).take({d.randint(0, 50)})",
    lambda d: f"choose_from_datasets([{indexed(d)}, {d.choice(SOURCES)(d)}], range(40).map(x => x * x % 3 % 2))",
    lambda d: f"from_tensors(4).repeat({d.randint(0, 30)})",
    lambda d: f"mix({{'a': {indexed(d)}, 'b': {indexed(d)}.shuffle(5)}}, weights={{'a': 3, 'b': 1}}, seed=2, stop='{d.choice(['first', 'all', 'repeat'])}')",
]
OTHER_BELOW = [
    lambda d: f".group_by_window(x => x % 3, (k, w) => w.batch({d.randint(1, 4)}), {d.randint(1, 6)}).unbatch()",
    lambda d: f".group_by_window(x => x % 2, (k, w) => w, {d.randint(1, 6)})",
    lambda d: ".map(x => zeros([x % 4], 'int64') + x).ragged_batch(3).unbatch().map(x => sum(x))",
    lambda d: ".map(x => zeros([x % 4], 'int64') + x).padded_batch(3).unbatch().map(x => length(x))",
    lambda d: ".map(x => zeros([x % 4], 'int64') + x).bucket_by_sequence_length(x => length(x), [2, 3], [2, 3, 2]).unbatch().map(x => sum(x))",
    lambda d: ".map(x => zeros([x % 4], 'int64') + x).unbatch()",
    lambda d: f".window({d.randint(1, 4)}, shift={d.randint(1, 4)}).flat_map(w => w)",
    lambda d: ".scan(0, (s, x) => (s + x % 5, s))",
    lambda d: ".map(x => x % 17).unique()",
    lambda d: f".take_while(x => x % 41 < {d.randint(30, 41)})",
    lambda d: f".shard(2, {d.randint(0, 1)})",
    lambda d: f".cache('cache-{d.randint(0, 10**9)}')",
    lambda d: f".map(x => 10 // (x % 7 - 3)).ignore_errors(max={d.choice([100, 1000])})",
    lambda d: ".map(x => 10 // (x % 7 - 3)).ignore_errors().shuffle(4)",
    lambda d: ".interleave(x => range(x % 3), cycle_length=3, num_parallel_calls=2)",
    lambda d: f".batch(3).rebatch([{d.randint(1, 4)}, {d.randint(1, 4)}]).unbatch()",
    lambda d: ".rejection_resample(x => x % 2, [0.9, 0.1], initial_dist=[0.5, 0.5]).map((c, x) => x)",
    lambda d: ".flat_map(x => range(x % 5).shuffle(3))",
    lambda d: f".concatenate({indexed(d)})",
    lambda d: f".zip({indexed(d)}).map((x, y) => 7 * x + y)",
    lambda d: ".filter(x => x % 3 != 0, num_parallel_calls=2)",
    lambda d: f".repeat().take({d.randint(0, 90)})",
]
BELOW = [
    lambda d: f".map(x => x * {d.randint(1, 9)} + {d.randint(0, 9)})",
    lambda d: f".filter(x => x % {d.randint(2, 4)} != 0)",
    lambda d: f".shuffle({d.choice([1, 3, 10, 1000])})",
    lambda d: f".shuffle(7, seed={d.randint(0, 99)})",
    lambda d: f".take({d.randint(0, 40)})",
    lambda d: f".skip({d.randint(0, 10)})",
    lambda d: f".repeat({d.randint(1, 3)})",
    lambda d: f".concatenate(range({d.randint(0, 9)}))",
    lambda d: ".flat_map(x => range(x % 4))",
    lambda d: f".batch({d.randint(1, 4)}).unbatch()",
    lambda d: ".cache()",
    lambda d: f".prefetch({d.randint(1, 4)})",
    lambda d: ".map(x => x + 1, num_parallel_calls=2)",
    lambda d: ".enumerate().map((i, x) => 1000 * i + x)",
]
ABOVE = [
    lambda d: f".take({d.randint(0, 6)})",
    lambda d: f".skip({d.randint(0, 2)})",
    lambda d: ".repeat(2)",
    lambda d: f".prefetch({d.randint(1, 3)})",
    lambda d: f".map(x => x * 2 - {d.randint(0, 3)})",
    lambda d: ".map(x => cast(x, 'float32') / 4)",
    lambda d: ".with_options(auto_shard_policy='DATA')",
]


def draw_graph(d):
    sources, below = (SOURCES, BELOW) if d.random() < 0.3 else (OTHER_SOURCES + SOURCES, OTHER_BELOW + BELOW)
    graph = d.choice(sources)(d) + "".join(d.choice(below)(d) for _ in range(d.randint(0, 4)))
    graph += f".batch({d.choice([1, 2, 5, 8, 16, 33])}" + (", drop_remainder=true)" if d.random() < 0.15 else ")")
    return graph + "".join(d.choice(ABOVE)(d) for _ in range(d.choice([0, 0, 1, 2])))


# ---- one graph ----

def restored(folder, d, graph, streams, sizes, want, flags):
    """A chain of positions, each restored with other workers, gives the steps of one run."""
    done = 0
    for link in range(d.randint(1, 10)):
        w, r = d.choice(sizes)
        more = d.randint(0, max(len(want) - done, 1))
        before = ["--restore", "whole"] if link else []
        save = ["--save-after", str(more), "--state", "part"]
        if d.random() < 0.5:
            got = rows(show(folder, graph, streams, w, r, *flags, *before, *save), graph)
            os.replace(f"{folder}/part", f"{folder}/whole.new")
        else:
            lines = []
            for i in range(w):
                p = show(folder, graph, streams, w, r, *flags, *before, "--save-after", str(more), "--state", f"part-{i}", worker=i)
                lines.append(rows(p, graph))
            got = [sum(step, []) for step in zip(*lines)]
            p = run(folder, "position", "join", *(f"part-{i}" for i in d.sample(range(w), w)), "--out", "whole.new")
            equal(p.returncode, 0, f"exit status of join: {p.stderr}")
        os.replace(f"{folder}/whole.new", f"{folder}/whole")
        equal(got, want[done:done + more], f"steps {done} and on, {w} x {r}, of {graph}, {streams} streams")
        done += len(got)
    w, r = d.choice(sizes)
    got = rows(show(folder, graph, streams, w, r, *flags, "--restore", "whole"), graph)
    equal(got, want[done:], f"the rest from step {done}, {w} x {r}, of {graph}, {streams} streams")


def try_graph(folder, number):
    d = random.Random(f"{options.seed} {number}")
    graph, streams = draw_graph(d), d.choice([1, 4, 7, 64])
    flags = ["--seed", str(d.randint(0, 99))] + d.choice([[], ["--threads", "0"], ["--threads", "3"]])
    flags += d.choice([[], ["--block-rows", "1"], ["--block-rows", "3"]])
    sizes = [(w, r) for w, r in SIZES if w * r <= streams]
    try:
        reference = show(folder, graph, streams, 1, 1, *flags)
        want = rows(reference, graph)
        for w, r in SIZES:
            p = show(folder, graph, streams, w, r, *flags)
            if w * r > streams:
                equal(p.returncode, 2, f"exit status of {w} x {r} with {streams} streams")
                continue
            equal(rows(p, graph), want, f"steps of {w} x {r}")
        w, r = d.choice(sizes)
        one_each = [rows(show(folder, graph, streams, w, r, *flags, worker=i), graph) for i in range(w)]
        equal([sum(step, []) for step in zip(*one_each)], want, f"steps of {w} processes x {r}")
        restored(folder, d, graph, streams, sizes, want, flags)
    except Failure as why:
        raise Failure(f"{why}\n{graph} with {streams} streams, {' '.join(flags)} (--seed {options.seed} --only {number})") from None


def graphs(first, n):
    def test(folder):
        make_files(folder)
        for number in range(first, first + n):
            try_graph(folder, number)
    test.__name__ = f"graphs_{first}"
    return test


# ---- the schedule ----

def model(streams, batch):
    """The steps, from the rows of each stream."""
    at, live, k = [0] * len(streams), list(range(len(streams))), 0
    most = 2 * -(-batch // len(streams))
    while live:
        q, t = divmod(batch, len(live))
        step = []
        for j, s in enumerate(live):
            share = min(q + ((j - k * t) % len(live) < t), most)
            step += streams[s][at[s]:at[s] + share]
            at[s] += share
        live = [s for s in live if at[s] < len(streams[s])]
        k += 1
        if step:
            yield [(x,) for x in step]


def steps_are_those_of_the_model(folder):
    d = random.Random(options.seed)
    for _ in range(60):
        n, streams, batch = d.randint(0, 120), d.choice([1, 2, 3, 4, 7, 64]), d.randint(1, 40)
        keep = d.randint(1, 5)
        graph = f"range({n}).filter(x => x % {keep} != 1).batch({batch})"
        parts = [[x for x in range(s, n, streams) if x % keep != 1] for s in range(streams)]
        equal(rows(show(folder, graph, streams, 1, 1), graph), list(model(parts, batch)), f"steps of {graph}, {streams} streams")


def errors_keep_their_place(folder):
    """All fail the same step with the same message, whichever process has the stream."""
    for graph in ("range(40).map(x => 10 // (x - 13)).batch(8)", "range(40).map(x => 10 // (x % 20 - 7)).batch(16)",
                  "range(40).map(x => 10 // (x - 13)).take(30).batch(8)"):
        want = show(folder, graph, 7, 1, 1)
        equal(want.returncode, 1, "exit status")
        if "stream" not in want.stderr:
            raise Failure(f"not the error of a row of a stream: {want.stderr}")
        for w, r in SIZES:
            got = show(folder, graph, 7, w, r)
            equal([joined(s) for s in steps_of(got.stdout)], [joined(s) for s in steps_of(want.stdout)], f"steps of {w} x {r}")
            equal(got.stderr, want.stderr, f"message of {w} x {r}")
    p = show(folder, "from_tensor_slices(['1', '12']).map(x => decode_raw(x, 'uint8')).batch(4).take(2)", 4, 1, 1)
    if "take/batch: " not in p.stderr or "step 0: different shapes" not in p.stderr:
        raise Failure(f"the error of a batch: {p.stdout} {p.stderr}")


def refusals_say_what_to_do(folder):
    make_files(folder)
    for graph, words in (
        ("range(9)", ["batch"]),
        ("range(9).batch(2).shuffle(2)", ["shuffle", "below the batch"]),
        ("range(9).batch(2).filter(x => true)", ["filter"]),
        ("range(9).batch(2).map(x => sum(x))", ["map", "below the batch"]),
        ("range(9).batch(2).map(x => x - mean(x))", ["map"]),
        ("range(9).map(x => x, deterministic=false).batch(2)", ["deterministic=false"]),
        ("text_line('none-*').batch(2)", ["none-*"]),
    ):
        p = show(folder, graph, 4, 1, 2)
        equal(p.returncode, 1, f"exit status of {graph}: {p.stdout}")
        for word in words:
            if word not in p.stderr:
                raise Failure(f"{graph}: no {word} in {p.stderr}")
    equal(run(folder, "show", "--elastic", "4", "range(4).batch(2)").returncode, 2, "exit status without --replicas")
    equal(show(folder, "range(4).batch(2)", 4, 1, 1, "--from-function").returncode, 2, "exit status of a function")


def positions_of_others_are_refused(folder):
    graph = "range(100).shuffle(10).batch(8)"
    save = ["--save-after", "3", "--state"]
    for i in range(2):
        show(folder, graph, 4, 2, 1, *save, f"p{i}", worker=i)
    show(folder, graph, 4, 2, 1, "--save-after", "4", "--state", "later", worker=1)
    show(folder, graph, 4, 2, 1, "--seed", "5", *save, "seeded", worker=1)
    show(folder, "range(90).shuffle(10).batch(8)", 4, 2, 1, *save, "graph", worker=1)
    show(folder, graph, 8, 2, 1, *save, "streams", worker=1)
    show(folder, "range(100).shuffle(10).batch(9)", 4, 2, 1, *save, "batch", worker=1)
    for other, word in (("later", "step"), ("seeded", "seed"), ("graph", "graph"), ("streams", "streams"),
                        ("batch", "graph"), ("p0", "earlier part")):
        p = run(folder, "position", "join", "p0", other, "--out", "no")
        equal((p.returncode, word in p.stderr), (1, True), f"join with {other}: {p.stderr}")
    p = run(folder, "position", "join", "p0", "--out", "no")
    equal((p.returncode, "stream 2" in p.stderr), (1, True), f"join without a part: {p.stderr}")
    equal(run(folder, "position", "join", "p1", "p0", "--out", "whole").returncode, 0, "exit status of join")
    for arguments, word in (((graph, 8, 1, 1), "streams"), (("range(100).shuffle(10).batch(9)", 4, 1, 1), "batch size"),
                            (("range(90).shuffle(10).batch(8)", 4, 1, 1), "graph"), ((graph, 4, 1, 1, "--seed", "5"), "seed")):
        p = show(folder, *arguments, "--restore", "whole")
        equal((p.returncode, word in p.stderr), (1, True), f"restored in {arguments}: {p.stderr}")
    p = run(folder, "show", "--replicas", "1", "--restore", "whole", graph)
    equal((p.returncode, "elastic" in p.stderr), (1, True), f"restored by a job that is not elastic: {p.stderr}")
    p = show(folder, graph, 4, 1, 1, "--restore", "p0")
    equal((p.returncode, "join" in p.stderr), (1, True), f"a part restored: {p.stderr}")


def an_epoch_may_begin_with_other_streams(folder):
    graph, epochs = "range(30).shuffle(10).batch(8)", ["--epochs", "3"]
    first = rows(show(folder, graph, 4, 1, 1), graph)
    show(folder, graph, 4, 2, 1, *epochs, "--save-after", str(len(first)), "--state", "end")
    got = rows(show(folder, graph, 4, 1, 3, *epochs, "--restore", "end"), graph)
    equal(got, rows(show(folder, graph, 4, 1, 1, *epochs), graph)[len(first):], "the epochs after the first")
    show(folder, graph, 4, 2, 1, "--save-after", "0", "--state", "start")
    for other, streams in ((graph, 7), ("range(30).shuffle(10).batch(5)", 4)):
        equal(rows(show(folder, other, streams, 1, 1, "--restore", "start"), other),
              rows(show(folder, other, streams, 1, 1), other), "an epoch with other streams")
    own = "range(30).batch(8).with_options(elastic_streams=4)"
    equal(run(folder, "show", "--replicas", "1", "--save-after", "0", "--state", "own", own).returncode, 0, "exit status")
    p = run(folder, "show", "--replicas", "1", "--restore", "own", own.replace("8", "5").replace("=4", "=3"))
    equal(rows(p, own), rows(show(folder, "range(30).batch(5)", 3, 1, 1), own), "an epoch with other streams in the graph")


def an_epoch_begins_with_the_same_data(folder):
    """With the same number of streams and rows or others: at its beginning too only those may change."""
    make_files(folder)
    graph = "text_line('t3-*').batch(8)"
    mixture = 'mix({"a": range(9), "b": range(20, 30)}, stop="all").batch(8)'
    for streams, rows_of_a_step in ((2, 8), (4, 8), (2, 5), (4, 5)):
        for was, other, word, flags in (
            (graph, "text_line('t2-*').batch(8)", "graph", []),
            (graph, "text_line('t3-*').take(4).batch(8)", "graph", []),
            (graph, "text_line('t3-*').batch(8).take(2)", "graph", []),
            (graph, "text_line('t3-*').batch(8, drop_remainder=true)", "drop_remainder", []),
            (graph, "text_line('t3-*').batch(8, drop_remainder=true)", "drop_remainder", ["--restore-by-name"]),
            (graph, graph, "seed", ["--seed", "5"]),
            (mixture, mixture.replace('"b"', '"c"'), "--restore-by-name", []),
            (mixture, mixture.replace("9", "8"), '"a"', ["--restore-by-name"]),
            (mixture, mixture.replace("8)", "8, drop_remainder=true)"), "drop_remainder", ["--restore-by-name"]),
        ):
            show(folder, was, 2, 1, 1, "--save-after", "0", "--state", "start")
            p = show(folder, other.replace("batch(8", f"batch({rows_of_a_step}"), streams, 1, 1, *flags, "--restore", "start")
            equal((p.returncode, word in p.stderr), (1, True), f"{other} restored with {streams} streams: {p.stdout} {p.stderr}")
        other = mixture.replace('"b"', '"c"').replace("batch(8", f"batch({rows_of_a_step}")
        p = show(folder, other, streams, 1, 1, "--restore-by-name", "--restore", "start")
        equal(rows(p, other), rows(show(folder, other, streams, 1, 1), other), "an epoch of another mixture")
        show(folder, graph, 2, 1, 1, "--save-after", "0", "--state", "start")
        os.rename(f"{folder}/t3-2.txt", f"{folder}/away")
        p = show(folder, graph.replace("8", str(rows_of_a_step)), streams, 1, 1, "--restore", "start")
        os.rename(f"{folder}/away", f"{folder}/t3-2.txt")
        equal((p.returncode, "t3-2.txt" in p.stderr), (1, True), f"restored without a file: {p.stdout} {p.stderr}")


def caches_have_what_the_first_epoch_drew(folder):
    """Also those of a part that is read whole and dealt, in epochs after a restore."""
    for below in ("", ".skip(3)", ".shuffle(5).skip(3)"):
        graph = f"range(24).shuffle(9).cache(){below}.repeat(3).batch(8)"
        want = rows(show(folder, graph, 4, 1, 1), graph)
        for step in range(1, len(want)):
            show(folder, graph, 4, 1, 2, "--save-after", str(step), "--state", "cached")
            got = rows(show(folder, graph, 4, 2, 1, "--restore", "cached"), graph)
            equal(got, want[step:], f"after {step} steps of {graph}")


def caches_in_files_are_on_the_disk_of_each_host(folder):
    """A host that does not have the file of a stream writes it in the first epoch, and is refused later. The parts of files
    from runs with different seeds, of which one record is in two and another in none, are not mixed."""
    hosts = [os.path.join(folder, name) for name in ("alone", "one", "two")]
    graph = "range(45).shuffle(50).take(30).cache('c').batch(8)"
    for host in hosts:
        os.makedirs(host)
    alone, one, two = hosts
    want = rows(show(alone, graph, 4, 1, 1, "--epochs", "3"), graph)
    each = len(want) // 3
    for done in (2, each, each + 2, 2 * each):
        for host in (one, two):
            for name in os.listdir(host):
                os.remove(os.path.join(host, name))
        show(one, graph, 4, 1, 2, "--epochs", "3", "--save-after", str(done), "--state", "../whole")
        p = show(two, graph, 4, 2, 1, "--epochs", "3", "--restore", "../whole")
        if done < each:
            equal(rows(p, graph), want[done:], "where the first epoch continues elsewhere")
            continue
        equal((p.returncode, ".cache is not here" in p.stderr), (1, True), f"after {done} steps: {p.stdout} {p.stderr}")
        for name in os.listdir(one):
            shutil.copy(os.path.join(one, name), two)
        p = show(two, graph, 4, 2, 1, "--epochs", "3", "--restore", "../whole")
        equal(rows(p, graph), want[done:], f"after {done} steps, with the files")
    same = "range(45).take(30).cache('d').batch(8)"
    show(one, same, 4, 1, 2, "--epochs", "2", "--save-after", str(each), "--state", "../whole")
    p = show(two, same, 4, 2, 1, "--epochs", "2", "--restore", "../whole")
    equal(rows(p, same), rows(show(alone, same, 4, 1, 1), same), "without the files of what draws nothing")
    for seed in ("5", "0"):
        for i in range(2):
            os.remove(f"{two}/c-stream-{i}-of-4.cache")
        p = show(two, graph, 4, 1, 1, "--seed", seed)
        if seed == "0":
            equal(rows(p, graph), want[:each], "with the same seed")
        else:
            equal((p.returncode, "another seed" in p.stderr), (1, True), f"with another seed: {p.stdout} {p.stderr}")


def caches_in_files_are_complete_when_all_was_delivered(folder):
    """Those of streams and those of what is dealt to them, also if nothing was read after the last row."""
    for graph, files in (("range(8).take(8).cache('c').batch(8)", 4), ("range(8).filter(x => true).cache('d').take(8).batch(8)", 1)):
        rows(show(folder, graph, 4, 1, 1, "--save-after", "1", "--state", "whole"), graph)
        equal(len(glob.glob(f"{folder}/*.cache")), files, f"files of {graph}")
        for name in glob.glob(f"{folder}/*.cache"):
            os.remove(name)


def far_positions_are_exact(folder):
    """What each process reads once is read from the last places that the position has, not from the beginning."""
    with open(os.path.join(folder, "long.txt"), "w", encoding="utf-8") as f:
        f.writelines(f"{i}\n" for i in range(9000))
    lines = "text_line('long.txt').map(x => to_number(x, 'int64'))"
    for graph in (f"{lines}.shuffle(40)", f"{lines}.filter(x => x % 3 != 0)", "range(9000).shuffle(30).take(8000)",
                  f"{lines}.map(x => 10 // (x % 700 - 13)).ignore_errors().shuffle(20)", f"{lines}.shuffle(8).take(3000).repeat(2)",
                  f"mix({{'a': {lines}, 'b': {lines}.shuffle(9).skip(5)}}, stop='all')"):
        graph += ".batch(100)"
        for streams in (1, 4):
            want = rows(show(folder, graph, streams, 1, 1), graph)
            for done in (37, len(want) - 3):
                show(folder, graph, streams, 1, 1, "--save-after", str(done), "--state", "far")
                again = show(folder, graph, streams, 1, streams, "--restore", "far", "--save-after", "1", "--state", "next")
                equal(rows(again, graph), want[done:done + 1], f"step {done} of {graph}, {streams} streams")
                got = rows(show(folder, graph, streams, streams, 1, "--restore", "next"), graph)
                equal(got, want[done + 1:], f"steps after {done} of {graph}, {streams} streams")


def explain_names_what_runs_in_full(folder):
    make_files(folder)
    for graph, ops in (("range(20).map(x => x).take(9).batch(4)", ["range", "map", "take"]),
                       ("range(9).zip(range(7)).map(x => x).batch(2)", ["range", "range", "zip"]),
                       ("text_line('t2-*').skip(1).batch(4)", ["text_line", "skip"]),
                       ("text_line('t2-*').shuffle(4).batch(4)", ["text_line"]),
                       ("text_line('t9-*').shuffle(4).map(x => x).batch(4)", []),
                       ("mix({'a': range(9), 'b': range(9).enumerate().map((i, x) => x)}).batch(4)", ["range", "enumerate"]),
                       ("range(50).filter(x => true).window(2).flat_map(x => x).batch(4)", ["range", "filter", "window"])):
        p = run(folder, "explain", "--workers", "3", "--elastic", "4", "--json", graph)
        found = [d for d in json.loads(p.stdout)["decisions"] if d["what"] == "runs in full"]
        equal([d["op"] for d in found], ops, f"what runs in full in {graph}")
        text = run(folder, "explain", "--workers", "3", "--elastic", "4", graph).stdout
        for d in found:
            if d["detail"] not in text or "needs 1 of 3" not in text:
                raise Failure(f"{graph}: no {d['detail']} in {text}")
    p = run(folder, "explain", "--workers", "3", "--elastic", "4", "range(20).take(9).batch(4)")
    if "take runs in full in each process, which makes 9 elements" not in p.stdout:
        raise Failure(f"no cost in {p.stdout}")


COUNT, EACH = (2000, 100) if LONG else (300, 50)
if options.only is not None:
    TESTS = [graphs(options.only, 1)]
else:
    TESTS = [explain_names_what_runs_in_full, steps_are_those_of_the_model, errors_keep_their_place, refusals_say_what_to_do,
             positions_of_others_are_refused, far_positions_are_exact, an_epoch_may_begin_with_other_streams,
             an_epoch_begins_with_the_same_data, caches_have_what_the_first_epoch_drew,
             caches_in_files_are_on_the_disk_of_each_host, caches_in_files_are_complete_when_all_was_delivered]
    TESTS += [graphs(first, EACH) for first in range(0, COUNT, EACH)]
kit.main("elastic", TESTS)
