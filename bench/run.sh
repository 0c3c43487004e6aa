#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs every benchmark. Each prints its figure, the ceiling measured in turns with it, and
# the ratio of the two.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake -S . -B build >/dev/null
cmake --build build --parallel "$(nproc)" >/dev/null
for program in tfrecord parse_example map_batch shuffle; do
    printf '\n%s\n' "$program"
    build/bench/$program "$@"
done
printf '\nstart-up and memory\n'
bench/start.sh
bench/memory.sh
