#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs every benchmark. Each prints its figure, the ceiling measured alternately with it,
# and the ratio of the two.
case ${1:-} in -h | --help) sed -n '3,4s/^# //p' "$0"; exit ;; esac
set -euo pipefail
cd "$(dirname "$0")/.."
cmake -S . -B build >/dev/null
cmake --build build --parallel "$(nproc)" >/dev/null
for program in tfrecord parse_example map_batch ops shuffle random_access decode_jpeg; do
    printf '\n%s\n' "$program"
    build/bench/$program "$@"
done
if [ -x build/bench/allreduce ]; then
    printf '\nallreduce\n'
    build/bench/allreduce
fi
if [ -x build/bench/allreduce_mpi ] && command -v mpirun >/dev/null; then
    printf '\nallreduce by MPI\n'
    mpirun --oversubscribe -n 2 build/bench/allreduce_mpi
fi
if [ -x build/bench/train ]; then
    printf '\ntraining on the processor\n'
    build/bench/train
fi
printf '\nthe service\n'
build/bench/service
printf '\nstart-up and memory\n'
bench/start.sh
bench/memory.sh
printf '\nthe service'"'"'s dispatcher\n'
bench/dispatcher.py
printf '\nthe service'"'"'s processes\n'
bench/service.py --build build
printf '\nelastic streams and random access\n'
bench/elastic.py --build build
printf '\nfloats as text\n'
bench/print_floats.sh
printf '\nURLs\n'
bench/remote.py --build build
