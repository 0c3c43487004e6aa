#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs one registered test and makes sure that it leaves a TAP file, whatever happens to it.
#   run_one.sh BUILD_DIR NAME COMMAND...     TAP_FILE at the end of an argument becomes the file's name
# A command that writes no TAP counts as one test: exit status 0 passes, 77 skips (the last line that
# it printed is the reason), anything else fails. Scripts find the trees in MR_BUILD and MR_SOURCE.
MR_BUILD=$1 name=$2
shift 2
MR_SOURCE=$(cd "$(dirname "$0")/.." && pwd)
TAP_FILE=$MR_BUILD/tap/$name.tap
export MR_BUILD MR_SOURCE TAP_FILE
mkdir -p "$MR_BUILD/tap"
rm -f "$TAP_FILE"

# A separate exit status, so that no sanitizer report passes for the error that a test expects.
# clang 14 misreads the size of a shared library's thread-local memory at certain addresses, and
# LeakSanitizer crashes then: intercept_tls_get_addr.
: "${ASAN_OPTIONS:=exitcode=99:detect_stack_use_after_return=1:allocator_may_return_null=1:intercept_tls_get_addr=0}"
: "${LSAN_OPTIONS:=exitcode=99}"
: "${UBSAN_OPTIONS:=exitcode=99:print_stacktrace=1}"
: "${TSAN_OPTIONS:=exitcode=99:halt_on_error=1:allocator_may_return_null=1:suppressions=$MR_SOURCE/tests/tsan.supp}"
# A report fails the test even if it comes from a process whose exit status is not checked, such as a worker.
reports=$MR_BUILD/tap/$name.report
rm -f "$reports".*
if [ "$name" != planted ]; then
    ASAN_OPTIONS=$ASAN_OPTIONS:log_path=$reports
    LSAN_OPTIONS=$LSAN_OPTIONS:log_path=$reports
    UBSAN_OPTIONS=$UBSAN_OPTIONS:log_path=$reports
    TSAN_OPTIONS=$TSAN_OPTIONS:log_path=$reports
fi
export ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS

# Scripts that run test programs run all of their tests.
case $1 in
*/test_*) ;;
*) unset MR_TEST_AFTER ;;
esac

# These tests use the processor's devices; tests/gpu.sh runs those for GPUs.
export CUDA_VISIBLE_DEVICES=

n=$#
while [ "$n" -gt 0 ]; do
    arg=$1
    shift
    case $arg in
    *=TAP_FILE) arg=${arg%TAP_FILE}$TAP_FILE ;;
    esac
    set -- "$@" "$arg"
    n=$((n - 1))
done
out=$MR_BUILD/tap/$name.log
began=$(date +%s%N)
"$@" >"$out" 2>&1 </dev/null
rc=$?
ended=$(date +%s%N)
# Elapsed seconds, and seconds of processor time of all processes that were waited for.
times >"$MR_BUILD/tap/$name.time"
awk -v ns=$((ended - began)) 'NR == 2 {
    split($1 "m" $2, t, /[ms]+/)
    printf "%.2f %.2f\n", ns / 1e9, t[1] * 60 + t[2] + t[3] * 60 + t[4]
}' "$MR_BUILD/tap/$name.time" >"$MR_BUILD/tap/$name.seconds"
rm "$MR_BUILD/tap/$name.time"
for report in "$reports".*; do
    [ -e "$report" ] || continue
    cat "$report" >>"$out"
    summary=$(grep -m 1 SUMMARY "$report") || continue # a warning about an allocation that a test makes fail
    echo "not ok - $name: a sanitizer's report: $summary" >>"$TAP_FILE"
    rc=1
done
cat "$out"
# Rewrites Criterion's notation for times, and drops its lines about tests that were not selected.
[ ! -s "$TAP_FILE" ] || sed -i -e 's/  *(\([0-9.]*s\))$/ # time=\1/' -e '/# SKIP test was skipped$/d' "$TAP_FILE"
if [ ! -s "$TAP_FILE" ]; then
    case $rc in
    0) echo "ok - $name" ;;
    77) echo "ok - $name # SKIP $(tail -n 1 "$out")" ;;
    *) echo "not ok - $name: exit status $rc" ;;
    esac >"$TAP_FILE"
elif [ "$rc" -ne 0 ] && [ "$rc" -ne 77 ] && ! grep -q '^not ok' "$TAP_FILE"; then
    echo "not ok - $name: exit status $rc" >>"$TAP_FILE"
fi
exit "$rc"
