#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The rate at which `millrace show` prints floats, including startup and reading; the ceiling is
# Python's json printing the same float64 values (it cannot print the shortest digits of float32).
#   bench/print_floats.sh [COUNT]      values (default 2000000)
set -euo pipefail
cd "$(dirname "$0")/.."
python3 - "${1:-2000000}" <<'PYTHON'
import array, json, os, random, subprocess, sys, tempfile, time

count = int(sys.argv[1]) // 1000 * 1000
draw = random.Random(1)
values = array.array("d", (draw.random() * 1000 for _ in range(count)))


def best(work):
    def timed():
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    return min(timed() for _ in range(5))


with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
    def show(dtype, code):
        path = os.path.join(folder, dtype)
        with open(path, "wb") as out:
            array.array(code, values).tofile(out)
        text = (f'fixed_length_record("{path}", {array.array(code).itemsize * 1000})'
                f'.map(x => decode_raw(x, "{dtype}"))')
        return best(lambda: subprocess.run(["build/millrace", "show", text], stdout=nowhere, check=True))

    rows = [values[i:i + 1000].tolist() for i in range(0, count, 1000)]
    ceiling = best(lambda: [nowhere.write(json.dumps(row) + "\n") for row in rows])
    for dtype, code in (("float64", "d"), ("float32", "f")):
        seconds = show(dtype, code)
        print(f"{'show ' + dtype:<28} {count / seconds / 1e6:9.3f} M/s   ceiling (Python's json, float64) "
              f"{count / ceiling / 1e6:9.3f} M/s   ratio {ceiling / seconds:.2f}")
PYTHON
