#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=long
"""Elements by number: random indexed graphs against lists in Python.

    random_access.py [BUILD_DIR] [--seed S] [--only NUMBER]

Of every graph the elements in order, some by number, parts of a random cut, and orders with and without a window;
each in chains of positions too. MR_TEST_SEED and MR_TEST_TIER=long set the defaults. TAP goes to $TAP_FILE.
"""
import argparse
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


def run(folder, *arguments):
    p = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)
    if p.returncode < 0:
        raise Failure(f"signal {-p.returncode}: millrace {' '.join(arguments)}")
    return p


def show(folder, graph, *arguments):
    p = run(folder, "show", *arguments, graph)
    if p.returncode:
        raise Failure(f"exit status {p.returncode} of {graph}, {' '.join(arguments)}: {p.stderr}")
    elements = [json.loads(line) for line in p.stdout.splitlines()]
    return [tuple(x.values()) if isinstance(x, dict) else x for x in elements]


# ---- graphs, and their elements ----

N = 37
IMAGES = [100 * i + k for i in range(4) for k in range(7 * i + 1)]
FIXED = [100 * i + k for i in range(4) for k in range(5 * i)]
SHARDED = {  # two files: how they are read
    "tfrecord": ("tfrecord('tfrecord-*')", "format('{}', x)", ".map(x => to_number(x, 'int64'))"),
    "parquet": ("parquet('parquet-*')", "{'n': x}", ".map(x => x['n'])"),
    "arrow": ("arrow('arrow-*')", "{'n': x}", ".map(x => x['n'])"),
    "npy": ("npy('npy-*')", "x", ""),
}


def make_files(folder):
    for kind, (_, row, _) in SHARDED.items():
        run(folder, "write", "--out", kind, "--shards", "2", "--format", kind, "--expr", f"range({N}).map(x => {row})")
    run(folder, "index", "tfrecord-*")
    for i in range(4):
        with open(os.path.join(folder, f"fixed-{i}"), "w", encoding="utf-8") as f:
            f.writelines(f"{x:04}" for x in FIXED if x // 100 == i)
        os.makedirs(os.path.join(folder, "images", str(i)))
    for x in IMAGES:
        with open(os.path.join(folder, "images", str(x // 100), f"{x % 100:02}.jpg"), "w", encoding="utf-8") as f:
            f.write(str(x))


def source(d):
    kind = d.choice([*SHARDED, "range", "slices", "fixed", "images"])
    if kind in SHARDED:
        reader, _, number = SHARDED[kind]
        return reader + number, [*range(0, N, 2), *range(1, N, 2)]  # record i is in file i mod 2
    if kind == "range":
        a, b, step = d.randint(-5, 5), d.randint(-5, 60), d.choice([1, 2, -1, 3])
        return f"range({a}, {b}, {step})", list(range(a, b, step))
    if kind == "slices":
        values = [d.randint(0, 99) for _ in range(d.randint(1, 20))]
        return f"from_tensor_slices({values})", values
    if kind == "fixed":
        return "fixed_length_record('fixed-*', 4).map(x => to_number(x, 'int64'))", FIXED
    return "image_folder('images').map(x => to_number(x['image'], 'int64'))", IMAGES


def draw(d, depth=0):
    graph, v = source(d)
    for _ in range(d.randint(0, 4)):
        op, n, k = d.randrange(8), d.randint(0, 40), d.randint(1, 4)
        if op == 0:
            graph, v = f"{graph}.skip({n // 5})", v[n // 5:]
        elif op == 1:
            graph, v = f"{graph}.take({n})", v[:n]
        elif op == 2:
            graph, v = f"{graph}.shard({k}, {n % k})", v[n % k::k]
        elif op == 3:
            graph, v = f"{graph}.map(x => x * {k} - 1)", [x * k - 1 for x in v]
        elif op == 4:
            graph, v = f"{graph}.enumerate(start={k}).map((i, x) => 100 * i + x)", [100 * (i + k) + x for i, x in enumerate(v)]
        elif op == 5:
            graph = f"{graph}.prefetch(2)"
        elif depth < 2:
            other, w = draw(d, depth + 1)
            if op == 6:
                graph, v = f"{graph}.concatenate({other})", v + w
            else:
                graph, v = f"{graph}.zip({other}).map((x, y) => 1000 * x + y)", [1000 * x + y for x, y in zip(v, w)]
    return graph, v


# ---- one graph ----

def check(folder, d, graph, want, flags):
    """The elements in order, in a chain of positions, and some by number."""
    equal(show(folder, graph, *flags), want, f"elements of {graph}")
    got, restore = [], []
    for _ in range(d.randint(1, 3)):
        got += show(folder, graph, *flags, *restore, "--save-after", str(d.randint(0, len(want) // 2 + 1)), "--state", "at")
        restore = ["--restore", "at"]
    equal(got + show(folder, graph, *flags, *restore), want, f"elements of {graph} in a chain of positions")
    numbers = [d.randrange(len(want)) for _ in range(min(len(want), 5))]
    if numbers:
        equal(show(folder, graph, "--at", ",".join(map(str, numbers))), [want[i] for i in numbers], f"elements {numbers} of {graph}")
    p = run(folder, "show", "--at", str(len(want)), graph)
    equal((p.returncode, f"has {len(want)}" in p.stderr), (1, True), f"an element beyond the end of {graph}: {p.stderr}")


def check_split(folder, d, graph, v, flags):
    fractions, seed, parts = [d.choice([0.1, 0.2, 0.25, 0.5]) for _ in range(d.randint(1, 2))], d.randint(0, 99), []
    for i, fraction in enumerate(fractions):
        part = f"{graph}.split({fractions}, index={i}, seed={seed})"
        got = show(folder, part)
        numbers = [i for i, _ in got]
        equal(numbers, sorted(numbers), f"order of {part}")
        equal(got, [(i, v[i]) for i in numbers], f"elements of {part}")
        if abs(len(got) - fraction * len(v)) > 1:
            raise Failure(f"{part} has {len(got)} of {len(v)}")
        check(folder, d, part, got, flags)
        parts += numbers
    equal(len(set(parts)), len(parts), f"numbers in one part of {graph}, {fractions}")
    if sum(fractions) == 1:
        equal(sorted(parts), list(range(len(v))), f"numbers in all parts of {graph}, {fractions}")


def check_shuffle(folder, d, graph, v, flags):
    window = d.choice([None, 1, 2, 5, 16, 100])
    graph += f".global_shuffle(seed={d.randint(0, 99)}" + (f", window={window})" if window else ")")
    got, at = show(folder, graph), 0
    equal(sorted(got), list(enumerate(v)), f"elements of {graph}")
    while window and at < len(v):
        first = got[at][0] // window * window
        block = range(first, min(first + window, len(v)))
        equal(sorted(i for i, _ in got[at:at + len(block)]), list(block), f"the block at {at} of {graph}")
        at += len(block)
    check(folder, d, graph, got, flags)


def try_graph(folder, number):
    d = random.Random(f"{options.seed} {number}")
    graph, v = draw(d)
    flags = d.choice([[], ["--threads", "0"], ["--block-rows", "1"], ["--block-rows", "3"]])
    try:
        check(folder, d, graph, v, flags)
        n = d.randint(1, 7)
        check(folder, d, f"{graph}.batch({n})", [v[i:i + n] for i in range(0, len(v), n)], flags)
        check_split(folder, d, f"{graph}.enumerate()", v, flags)
        check_shuffle(folder, d, f"{graph}.enumerate()", v, flags)
    except Failure as why:
        raise Failure(f"{why}\n{graph} {' '.join(flags)} (--seed {options.seed} --only {number})") from None


def graphs(first, n):
    def test(folder):
        make_files(folder)
        for number in range(first, first + n):
            try_graph(folder, number)
    test.__name__ = f"graphs_{first}"
    return test


def all_numbers_of_the_second_input(folder):
    """More of them than a concatenation looks up in place."""
    make_files(folder)
    images = "image_folder('images').map(x => to_number(x['image'], 'int64'))"
    numbers = range(len(IMAGES), 2 * len(IMAGES))
    equal(show(folder, f"{images}.concatenate({images})", "--at", ",".join(map(str, numbers))), IMAGES, "elements")
    graph = f"{images}.concatenate({images}).skip({len(IMAGES)})"
    equal(sorted(show(folder, graph + ".global_shuffle(seed=1)")), IMAGES, "elements in a random order")


COUNT, EACH = (600, 100) if LONG else (24, 12)
TESTS = [all_numbers_of_the_second_input, *(graphs(first, EACH) for first in range(0, COUNT, EACH))]
kit.main("random_access", [graphs(options.only, 1)] if options.only is not None else TESTS)
