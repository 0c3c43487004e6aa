#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Peak memory of streams of growing length: it must not grow. The ceiling is the size of the buffers
# named in the graph, plus 64 MiB, plus 4 MiB for each open file.
#   bench/memory.sh [GIB]      the longest stream (default 2)
set -euo pipefail
cd "$(dirname "$0")/.."
longest=${1:-2}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# One file of 64 MiB, read again and again.
build/millrace write --out "$dir/a" --expr 'range(65536).map(x => zeros([1012], "uint8"))' >/dev/null
for gib in 1 "$longest"; do
    n=$((gib * 16))
    build/millrace bench --json "tfrecord(\"$dir/a-*\").repeat($n).shuffle(10000, seed=1).batch(256).prefetch(2)" |
        python3 -c "
import json, sys
r = json.loads(sys.stdin.readline())
named = (10000 * 1040 + 3 * 256 * 1040) / 2**20
print('%d GiB: peak %.1f MiB   ceiling %.1f MiB' % ($gib, r['peak_rss_bytes'] / 2**20, named + 64 + 4))"
done
