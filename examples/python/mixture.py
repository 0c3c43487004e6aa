#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A mixture that changes in the middle of a run. Three stages each take some batches, save the position in
a file and end; the next one continues with other weights and other sources:

    1   web 0.7, code 0.3
    2   code 0.5, books 0.5               web is removed
    3   web, code and books, until all have ended: web continues where it was removed

At the end every record was used once.

    python3 mixture.py [--work DIR]"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from collections import Counter
from pathlib import Path

import millrace as mr

RECORDS = {"web": 60, "code": 40, "books": 20}
STAGES: list[tuple[dict[str, float], int | None]] = [
    ({"web": 0.7, "code": 0.3}, 6),
    ({"code": 0.5, "books": 0.5}, 3),
    ({"web": 1.0, "code": 1.0, "books": 1.0}, None),
]


def source(name: str) -> mr.Dataset:
    """The records of a source: (its number, the number of the record)."""
    number = list(RECORDS).index(name)
    return mr.range(RECORDS[name]).shuffle(16, seed=1).map(lambda i: (number, i))


def run(stage: int, work: Path) -> Counter[tuple[int, int]]:
    weights, batches = STAGES[stage]
    ds = mr.mix({name: source(name) for name in weights}, weights=weights, seed=1, stop="all").batch(5)
    position = work / "position.json"
    seen: Counter[tuple[int, int]] = Counter()
    with ds.iterator(on_mismatch="by_name") as it:
        if position.exists():
            it.load_state_dict(json.loads(position.read_text()))
        for step, (sources, numbers) in enumerate(it, 1):
            seen.update(zip(sources.tolist(), numbers.tolist()))  # the training step
            if step == batches:
                break
        position.write_text(json.dumps(it.state_dict()))
    counts = Counter(list(RECORDS)[s] for s, _ in seen.elements())
    print(f"stage {stage + 1}: " + ", ".join(f"{n} of {name}" for name, n in sorted(counts.items())))
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")  # each difference between two stages is a warning
    with tempfile.TemporaryDirectory() as folder:
        work = args.work or Path(folder)
        seen: Counter[tuple[int, int]] = Counter()
        for stage in range(len(STAGES)):
            seen += run(stage, work)
    assert len(seen) == sum(RECORDS.values()) and set(seen.values()) == {1}
    print(f"{len(seen)} records, each once")


if __name__ == "__main__":
    main()
