#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One epoch with 4 workers, then 2, then 3: each run continues where the one before it stopped, in the
# middle of the epoch, and together they read every record exactly once.
#   examples/elastic.sh [MILLRACE]      default: build/millrace
case ${1:-} in -h | --help)
    sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit
    ;;
esac
set -euo pipefail
millrace=$(realpath "${1:-$(dirname "$0")/../build/millrace}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$millrace" write --out records --shards 24 --expr 'range(1000).map(i => format("{}", i))' 2>/dev/null
graph='tfrecord("records-*").shuffle(240).batch(32)'

# run WORKERS STEPS: each worker takes the steps of its streams, and saves its part of the position.
run() {
    local w=$1 steps=$2 i parts=()
    for ((i = 0; i < w; i++)); do
        "$millrace" show --seed 7 --replicas 1 --workers "$w" --worker $i --elastic 24 ${whole:+--restore whole} \
            --save-after "$steps" --state part-$i "$graph" 2>/dev/null >>trained &
    done
    wait
    for ((i = 0; i < w; i++)); do parts+=("part-$i"); done
    "$millrace" position join "${parts[@]}" --out whole
    whole=yes
    echo "$w workers: $(grep -o '"[0-9]*"' trained | wc -l) records so far"
}
run 4 10
run 2 10
run 3 100 # to the end
echo "records read: $(grep -o '"[0-9]*"' trained | sort -u | wc -l) different ones of 1000, $(grep -o '"[0-9]*"' trained | sort | uniq -d | wc -l) twice"
