#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=long
"""Mixtures and pairs in elastic jobs.

    elastic_mix.py [BUILD_DIR] [--seed S] [--only NUMBER]

Random jobs whose mixture changes at some positions, restored by name by other workers: every record of a source
is delivered at most once, and exactly once if it is in the last mixture. Mixtures against a model of each stream;
zips of the same files and of others. MR_TEST_SEED and MR_TEST_TIER=long set the defaults. TAP goes to $TAP_FILE.
"""
import argparse
import collections
import json
import os
import random
import subprocess

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
        raise Failure(f"signal {-p.returncode}: millrace {' '.join(arguments)}: {p.stderr}")
    return p


def show(folder, graph, streams, workers, replicas, *more):
    return run(folder, "show", "--replicas", str(replicas), "--workers", str(workers), "--elastic", str(streams), *more, graph)


def rows(p, graph):
    if p.returncode:
        raise Failure(f"exit status {p.returncode} of {graph}: {p.stderr}")
    return [[x for r in json.loads(line)["replicas"] for x in r] for line in p.stdout.splitlines()]


def make_files(folder):
    """Files whose lines are numbers: of f3 0 to 29, of f9 0 to 44."""
    for n, lines in ((3, 30), (9, 45)):
        for i in range(n):
            with open(os.path.join(folder, f"f{n}-{i}.txt"), "w", encoding="utf-8") as f:
                f.writelines(f"{x}\n" for x in range(i * lines // n, (i + 1) * lines // n))


SOURCES = [  # the graph, and the numbers in it
    ("range(40)", range(40)),
    ("range(3)", range(3)),
    ("range(0)", range(0)),
    ("range(35).shuffle(6)", range(35)),
    ("range(60).shuffle(9).take(25).enumerate().map((i, x) => i)", range(25)),
    ("text_line('f3-*').map(x => to_number(x, 'int64'))", range(30)),
    ("text_line('f9-*').map(x => to_number(x, 'int64')).shuffle(4)", range(45)),
    ("range(20).zip(range(20)).map((x, y) => x)", range(20)),
]


def draw_sources(d):
    """Sources by their names: the graph, and its records, which no other source has."""
    drawn = {}
    for number, name in enumerate(["web", "code", "books", "wiki", "talks"]):
        graph, records = d.choice(SOURCES)
        base = 1000 * (number + 1)
        drawn[name] = (f"{graph}.map(x => x + {base})", {base + x for x in records})
    return drawn


def mixture(d, sources, names, stop):
    weights = ", ".join(f'"{n}": {d.choice([1, 0.5, 3])}' for n in names)
    return 'mix({%s}, weights={%s}, stop="%s")' % (", ".join(f'"{n}": {sources[n][0]}' for n in names), weights, stop)


TAILS = ["", ".shuffle(6)", ".map(x => x + 0)", ".prefetch(2)", ".batch(3).unbatch()", ".map(x => x + 0, num_parallel_calls=2)",
         ".shuffle(3, seed=2).filter(x => x >= 0)"]


def changed(folder, number):
    """A chain of mixtures, each restored by name from the position of the one before."""
    d = random.Random(f"{options.seed} {number}")
    sources, stop, tail = draw_sources(d), d.choice(["all", "all", "repeat", "first"]), d.choice(TAILS)
    streams, batch = d.choice([1, 4, 7, 64]), d.choice([1, 3, 8, 20])
    sizes = [(w, r) for w, r in SIZES if w * r <= streams]
    flags = ["--seed", str(d.randint(0, 99))] + d.choice([[], ["--threads", "0"], ["--block-rows", "1"]])
    seen, graph, links = collections.Counter(), "", d.randint(1, 4)
    before = []
    for link in range(links + 1):
        names = d.sample(sorted(sources), d.randint(1, len(sources)))
        was, graph = graph, mixture(d, sources, names, stop) + f"{tail}.batch({batch})"
        w, r = d.choice(sizes)
        save = ["--save-after", str(d.randint(0, 12)), "--state", "part"] if link < links else []
        parts = [["--worker", str(i)] for i in range(w)] if save and d.random() < 0.5 else [[]]
        saved, steps = [], []
        for i, part in enumerate(parts):
            to = [*save[:3], f"part-{i}"] if save else []
            steps += sum(rows(show(folder, graph, streams, w, r, *flags, *before, *part, *to), f"{graph} after {was}, {streams} streams"), [])
            saved += to[3:]
        seen.update(steps)
        if saved:
            equal(run(folder, "position", "join", *saved, "--out", "whole").returncode, 0, "exit status of join")
        before = ["--restore", "whole", "--restore-by-name"]
    twice = sorted(x for x, n in seen.items() if n > 1)
    lost = sorted(set().union(*(sources[n][1] for n in names)) - set(seen))
    where = f"{graph}, {streams} streams, {' '.join(flags)} (--seed {options.seed} --only {number})"
    if stop != "repeat":
        equal(twice, [], f"records delivered twice by {where}")
    if stop == "all":
        equal(lost, [], f"records lost by {where}")


def mixtures_change(first, n):
    def test(folder):
        make_files(folder)
        for number in range(first, first + n):
            changed(folder, number)
    test.__name__ = f"mixtures_change_{first}"
    return test


# ---- what a stream draws ----


def sources_without_records_are_left_out(folder):
    """Of range(2), two of four streams have a record: the others continue with the other source."""
    for graph in ('mix({"a": range(2), "b": range(100, 140)}, seed=3)', "sample_from_datasets([range(2), range(100, 140)], seed=3, stop_on_empty_dataset=true)"):
        for tail in ("", ".shuffle(5)"):
            text = graph + tail + ".batch(8)"
            got = sum(rows(show(folder, text, 4, 1, 1), text), [])
            equal({x for x in range(102, 140) if x % 4 > 1} - set(got), set(), f"missing rows of {text}")
            if len(got) == 42:
                raise Failure(f"a source that ended did not end its streams: {text}")
            part = show(folder, text, 4, 1, 1, "--save-after", "2", "--state", "at")
            rest = show(folder, text, 4, 2, 2, "--restore", "at")
            equal(sum(rows(part, text) + rows(rest, text), []), got, f"rows after a restore of {text}")
    text = 'mix({"a": range(0), "b": range(0)}, stop="repeat").batch(8)'
    equal(rows(show(folder, text, 4, 1, 1), text), [], "steps of empty sources")


def every_stream_draws_its_own(folder):
    """A seed does not make all streams draw the same source in each step."""
    for graph in ('mix({"a": range(640), "b": range(1000, 1640)}, seed=3)', "sample_from_datasets([range(640), range(1000, 1640)], seed=3)"):
        text = graph + ".batch(64).take(8)"
        for step in rows(show(folder, text, 64, 1, 1), text):
            n = sum(x < 1000 for x in step)
            if not 8 <= n <= 56:
                raise Failure(f"{n} of 64 rows of a step are of one source of two: {text}")
    text = "range(400).shuffle(400).batch(4)"  # one row of each stream in a step: of stream s the numbers s mod 4
    drawn = [[x // 4 for x in stream] for stream in zip(*rows(show(folder, text, 4, 1, 1), text))]
    equal([len(set(stream)) for stream in drawn], [100] * 4, f"rows of the streams of {text}")
    equal(len({tuple(stream) for stream in drawn}), 4, f"orders of the streams of {text}")


def workers_under_data_need_streams(folder):
    """Without elastic streams, workers of DATA that read ahead differently far cannot change the mixture."""
    a, b = 'mix({"a": range(30), "b": range(100, 120)}, stop="all").batch(4)', 'mix({"b": range(100, 120)}, stop="all").batch(4)'
    job = ["show", "--replicas", "2", "--auto-shard"]
    for policy, workers, code in (("data", "2", 1), ("off", "2", 0), ("data", "1", 0)):
        save = run(folder, *job, policy, "--workers", workers, "--save-after", "2", "--state", "at", a)
        equal(save.returncode, 0, f"exit status: {save.stderr}")
        p = run(folder, *job, policy, "--workers", workers, "--restore", "at", "--restore-by-name", b)
        equal(p.returncode, code, f"exit status with {policy}, {workers} workers: {p.stderr}")
        equal("give the job elastic streams (--elastic" in p.stderr, code == 1, f"way out in {p.stderr}")
        same = run(folder, *job, policy, "--workers", workers, "--restore", "at", "--restore-by-name", a)
        equal(same.returncode, 0, f"exit status with the same mixture: {same.stderr}")


def only_the_mixture_may_change(folder):
    """By name: a position in an epoch is refused, with the difference in words of the user's graph."""
    def graph(weight, rest):
        return f'mix({{"a": range(40), "b": range(50, 90)}}, weights={{"a": {weight}, "b": 1.0}}, stop="all"){rest}'

    for was, now, words in (
        (".batch(8)", ".batch(8, drop_remainder=true)", ["'8)'", "'8, drop_remainder=true)'"]),
        (".batch(8, drop_remainder=true)", ".batch(8)", ["'8, drop_remainder=true)'", "'8)'"]),
        (".batch(8)", ".padded_batch(8)", ["'padded_batch(8)'"]),
        (".batch(8)", ".batch(8).take(4)", ["'8)'", "'8).take(4)'"]),
        (".map(x => x + 1).batch(8)", ".map(x => x + 2).batch(8)", ["'1).batch(8)'", "'2).batch(8)'"]),
        (".take(60).batch(8)", ".take(60).batch(8)", ["another mixture below take"]),
    ):
        show(folder, graph("1.0", was), 4, 1, 1, "--save-after", "3", "--state", "frame")
        p = show(folder, graph("2.0", now), 4, 1, 1, "--restore-by-name", "--restore", "frame")
        equal(p.returncode, 1, f"{was} restored as {now}: {p.stdout}")
        for word in words:
            if word not in p.stderr or "elastic_" in p.stderr:
                raise Failure(f"{was} restored as {now}: no {word} in {p.stderr}")
    again = show(folder, graph("1.0", ".take(60).batch(8)"), 4, 1, 1, "--restore-by-name", "--restore", "frame")
    equal(again.returncode, 0, f"the same mixture: {again.stderr}")


def differences_are_logged_once(folder):
    a, b = 'mix({"a": range(30), "b": range(100, 120)}, stop="all").batch(4)', 'mix({"b": range(100, 120), "c": range(9)}, weights={"b": 2, "c": 1}, stop="all").batch(4)'
    rows(show(folder, a, 7, 1, 1, "--save-after", "2", "--state", "at"), a)
    p = show(folder, b, 7, 2, 2, "--restore", "at", "--restore-by-name")
    for words in ('source "a" is removed', 'source "b" has the weight 2, in the position 1', 'source "c" is new'):
        equal(p.stderr.count(words), 1, f"times of {words} in {p.stderr}")
    below = a.replace(".batch", ".take(40).batch"), b.replace(".batch", ".take(40).batch")
    rows(show(folder, below[0], 7, 1, 1, "--save-after", "2", "--state", "at"), below[0])
    p = show(folder, below[1], 7, 1, 1, "--restore", "at", "--restore-by-name")
    equal((p.returncode, "cannot cut" in p.stderr), (1, True), f"a mixture below take: {p.stderr}")


# ---- pairs ----


def explained(folder, graph, streams):
    p = run(folder, "explain", "--replicas", "1", "--elastic", str(streams), graph)
    equal(p.returncode, 0, f"exit status of explain: {p.stderr}")
    return p.stdout


def pairs_are_those_of_the_whole(folder):
    make_files(folder)
    lines = "text_line('f9-*').map(x => to_number(x, 'int64'))"
    failing = lines + ".map(x => x * (2 // (x % 20 - 7)) * 0 + x)"
    for a, b, cut in (
        (lines, lines + ".map(x => x + 1000).prefetch(2)", True),
        (failing, lines, True),
        (lines, lines + ".filter(x => x > 3)", False),
        (lines, lines + ".shuffle(4, seed=1)", False),
        (lines, "text_line('f3-*').map(x => to_number(x, 'int64'))", False),
        (lines, "range(45)", False),
        (lines, "range(45).map(x => x + 1)", False),
    ):
        graph = f"{a}.zip({b}).map((x, y) => 10000 * x + y).ignore_errors()"
        p = run(folder, "show", graph)
        equal(p.returncode, 0, f"exit status of {graph}: {p.stderr}")
        want = [json.loads(x) for x in p.stdout.splitlines()]
        text = graph + ".batch(8)"
        for streams in (4, 64):
            first = rows(show(folder, text, streams, 1, 1), text)
            equal(sorted(sum(first, [])), sorted(want), f"pairs of {text}, {streams} streams")
            equal(rows(show(folder, text, streams, 2, 2), text), first, f"steps of {text}, {streams} streams, by others")
        said = explained(folder, text, 4)
        equal("after zip" not in said, cut, f"zip is cut below: {said}")


COUNT, EACH = (1000, 100) if LONG else (60, 20)
if options.only is not None:
    TESTS = [mixtures_change(options.only, 1)]
else:
    TESTS = [sources_without_records_are_left_out, every_stream_draws_its_own, workers_under_data_need_streams,
             only_the_mixture_may_change, differences_are_logged_once, pairs_are_those_of_the_whole]
    TESTS += [mixtures_change(first, EACH) for first in range(0, COUNT, EACH)]
kit.main("elastic_mix", TESTS)
