#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The time to start, run a graph of one element and exit; the ceiling is /bin/true. Medians of 21.
set -euo pipefail
cd "$(dirname "$0")/.."
median() { # COMMAND...: milliseconds
    for _ in $(seq 21); do
        a=$EPOCHREALTIME
        "$@" >/dev/null
        b=$EPOCHREALTIME
        echo $((${b/./} - ${a/./}))
    done | sort -n | sed -n 11p | awk '{printf "%.2f", $1 / 1000}'
}
printf 'show "range(1)": %s ms   ceiling (/bin/true): %s ms\n' \
    "$(median build/millrace show 'range(1)')" "$(median /bin/true)"
