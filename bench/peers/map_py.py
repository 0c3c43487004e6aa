# SPDX-License-Identifier: Apache-2.0
"""Python functions in worker processes: Millrace's map_py and from_sequence, multiprocessing.Pool.imap,
and PyTorch's DataLoader where it is installed.

    python3 bench/peers/map_py.py [--seconds S] [--workers N]

Each line is the best of three runs that take turns; the last ones compare them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from typing import Any

import numpy as np

import millrace as mr

ROW = 100_000  # bytes


def work(x: Any) -> int:
    """1 ms of computing: of processor time, whatever else runs."""
    until = time.thread_time() + 1e-3
    while time.thread_time() < until:
        pass
    return int(x) + 1


class Rows:
    """A map-style dataset of 100 KB rows."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        return np.full(ROW, i % 256, np.uint8)


def timed(make: Any, n: int) -> float:
    """Items a second after the first quarter: starting processes is not what is compared."""
    it = iter(make())
    for _ in range(n // 4):
        next(it)
    began, count = time.perf_counter(), 0
    for _ in it:
        count += 1
    return count / (time.perf_counter() - began)


def imap(n: int, workers: int) -> Any:
    with multiprocessing.Pool(workers) as pool:
        yield from pool.imap(work, range(n))


class Worked(Rows):
    def __getitem__(self, i: int) -> Any:
        return work(i)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0, help="of the runs of map_py")
    parser.add_argument("--workers", type=int, default=2)
    a = parser.parse_args()
    n, rows = int(a.seconds * 1000 * a.workers), int(a.seconds * 1500)
    runs: dict[str, Any] = {
        "map_py, 1 ms": lambda: mr.range(n).map_py(work, output=mr.int64, parallel="process", num_workers=a.workers),
        "Pool.imap, 1 ms": lambda: imap(n, a.workers),
        "from_sequence, 100 KB": lambda: mr.from_sequence(Rows(rows), "process", a.workers),
    }
    try:
        from torch.utils.data import DataLoader  # type: ignore[import-not-found,unused-ignore]

        runs["DataLoader, 1 ms"] = lambda: DataLoader(Worked(n), batch_size=None, num_workers=a.workers)
        runs["DataLoader, 100 KB"] = lambda: DataLoader(Rows(rows), batch_size=None, num_workers=a.workers)
    except ImportError:
        print("skipped: DataLoader; torch is not installed")
    best = dict.fromkeys(runs, 0.0)
    for _ in range(3):
        for name, make in runs.items():
            best[name] = max(best[name], timed(make, rows if "KB" in name else n))
    for name, rate in best.items():
        print(f"{name:24} {rate:10.0f} items/s")
    print(f"map_py / Pool.imap       {best['map_py, 1 ms'] / best['Pool.imap, 1 ms']:10.2f}  (goal 0.95)")
    if "DataLoader, 1 ms" in best:
        print(f"map_py / DataLoader      {best['map_py, 1 ms'] / best['DataLoader, 1 ms']:10.2f}  (goal 1)")
        ratio = best["from_sequence, 100 KB"] / best["DataLoader, 100 KB"]
        print(f"from_sequence/DataLoader {ratio:10.2f}  (goal 1)")


if __name__ == "__main__":
    main()
