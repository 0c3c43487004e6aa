#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick
"""Reads the symbols of the built objects and fails on circles of calls.

    rooms.py BUILD_DIR

A room is a folder of pipeline/, shard/, transport/, trainer/ or cli/. An arrow goes from the file that uses a symbol
to the file that defines it. Two things fail: a circle between rooms, and a circle of more than MOST files
inside one room. tests/check_tree.sh checks the same arrows between rooms in the includes; this finds calls
that a header declared elsewhere hides. TABLES and CORES are the exceptions, with their reasons.
TAP goes to $TAP_FILE, a test a room and one for the rooms together.
"""
import collections
import os
import re
import subprocess
import sys

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MOST = 6
# Files that list descriptors. Each file that they name is found through them, so that their arrows say
# nothing about the order of rooms.
TABLES = {
    "pipeline/graph/op.c": "the table of ops, from ops.def",
    "pipeline/functions/compiler/function_table.c": "the table of functions, from functions.def",
    "trainer/builtins.c": "the tables of layers, losses, metrics, optimizers and callbacks",
    "trainer/device/cpu/math_cpu.c": "the table of the CPU's operations",
}
# Files that call each other because what they work on is recursive, or because they are one table. A circle
# of more than MOST files must lie within one of these.
CORES = {
    "pipeline/functions/compiler": "expressions contain datasets, whose functions are expressions",
}


def read_objects(build):
    """{object: source} of everything that the libraries and programs are made of."""
    objects = {}
    for folder, _, names in os.walk(build):
        at = re.match(r"(.*?)/?CMakeFiles/[^/]*\.dir(?:/(.*))?$", os.path.relpath(folder, build))
        if not at or at[1].startswith(("tests", "examples", "bench")):
            continue
        for name in names:
            if name.endswith(".c.o") and not name.endswith(".pb-c.c.o"):
                source = os.path.normpath(os.path.join(at[1], at[2] or "", name[:-2]))
                # An object may be left over from a source that is gone.
                if (source.startswith(("pipeline/", "shard/", "transport/", "trainer/", "cli/")) and
                        os.path.exists(os.path.join(SOURCE, source))):
                    objects[os.path.join(folder, name)] = source
    return objects


def read_arrows(objects):
    """{(from, to): symbols} between sources."""
    listing = subprocess.run(["nm", "-A", "-P", *objects], check=True, capture_output=True, text=True).stdout
    defined, used = {}, collections.defaultdict(set)
    for line in listing.splitlines():
        name, rest = line.split(": ", 1)
        symbol, kind = rest.split()[:2]
        if kind == "U":
            used[objects[name]].add(symbol)
        elif kind in "TDBRVWC":
            defined.setdefault(symbol, objects[name])
    arrows = collections.defaultdict(set)
    for source, symbols in used.items():
        for symbol in symbols:
            target = defined.get(symbol, source)
            if target != source and source not in TABLES:
                arrows[source, target].add(symbol)
    return arrows


def circles(edges):
    """Strongly connected components of more than one node (Tarjan 1972)."""
    after = collections.defaultdict(set)
    for a, b in edges:
        after[a].add(b)
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in after[v]:
            if w not in index:
                visit(w)
            if w in stack:
                low[v] = min(low[v], low[w])
        if low[v] == index[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(100000)
    for v in list(after):
        if v not in index:
            visit(v)
    return found


def main():
    objects = read_objects(sys.argv[1])
    if len(set(objects.values())) < 100:
        sys.exit(f"rooms.py: {sys.argv[1]} has {len(objects)} objects; build it first")
    arrows = read_arrows(objects)
    room = os.path.dirname
    results, between = [], collections.defaultdict(list)
    for (a, b), symbols in sorted(arrows.items()):
        if room(a) != room(b):
            between[room(a), room(b)].append(f"{os.path.basename(a)} -> {os.path.basename(b)}: "
                                             f"{', '.join(sorted(symbols)[:3])}")
    bad = circles(between)
    for circle in bad:
        print("a circle between rooms:", " ".join(circle))
        for (a, b), names in sorted(between.items()):
            if a in circle and b in circle:
                print(f"  {a} -> {b}, {len(names)} pairs of files; {'; '.join(names[:4])}")
    results.append((not bad, "no circle between rooms"))
    inside = collections.defaultdict(list)
    for a, b in arrows:
        if room(a) == room(b):
            inside[room(a)].append((a, b))
    for folder in sorted({room(s) for s in objects.values()}):
        large = [c for c in circles(inside[folder]) if len(c) > MOST]
        if not large and folder in CORES:
            print(f"{folder} has no circle of more than {MOST} files: take it out of CORES")
        for circle in large if folder not in CORES else []:
            print(f"a circle of {len(circle)} files in {folder}:", " ".join(map(os.path.basename, circle)))
        results.append((bool(large) == (folder in CORES), f"circles within {folder}"))
    with open(os.environ.get("TAP_FILE", os.devnull), "w", encoding="utf-8") as tap:
        for good, name in results:
            print(f"{'' if good else 'not '}ok - rooms::{name}", file=tap)
    print(f"{len(set(objects.values()))} files, {len(arrows)} arrows, {sum(not good for good, _ in results)} failed")
    return not all(good for good, _ in results)


if __name__ == "__main__":
    sys.exit(main())
