#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tier: asan=full
# run.sh PROGRAM CORPUS: replays the corpus with mutations (more of them with MR_TEST_TIER=long).
mutations=100
case $1 in
*/fuzz_rank_messages) mutations=20 ;; # each input is a job of two processes
esac
[ "${MR_TEST_TIER:-}" = long ] && mutations=5000
last=$MR_BUILD/tap/$(basename "$1").last-input
timeout 3500 "$1" --mutations=$mutations --seed="${MR_TEST_SEED:-1}" --last="$last" "$2" || {
    rc=$?
    echo "exit status $rc; the input is $last (seed ${MR_TEST_SEED:-1})"
    exit 1
}
