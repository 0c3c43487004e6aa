#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `import millrace` takes, and of that numpy: the median of new processes, with compiled files.

    PYTHONPATH=build/python python3 bench/python_import.py [RUNS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

MEASURED = """
import time
def now():
    return time.perf_counter(), time.process_time()
began = now()
import numpy
middle = now()
import millrace
ended = now()
print(*(1e3 * (b - a) for x, y in ((began, middle), (middle, ended)) for a, b in zip(x, y)))
"""


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 21
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        took: list[list[float]] = []
        for _ in range(runs + 1):
            command = [sys.executable, "-c", MEASURED]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            took.append([float(x) for x in done.stdout.split()])
    numpy, numpy_cpu, ours, ours_cpu = (statistics.median(x) for x in zip(*took[1:], strict=True))  # the first compiles
    print(f"medians of {runs} processes, elapsed (of the processor): numpy {numpy:.0f} ms ({numpy_cpu:.0f}), millrace")
    print(f"after it {ours:.0f} ms ({ours_cpu:.0f}); goal: at most 100 ms")


if __name__ == "__main__":
    main()
