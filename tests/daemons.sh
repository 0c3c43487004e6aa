# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Starting and ending the service's processes; for scripts that source expect.sh.

# start OUT COMMAND...: in the background, until it is ready; its process is $pid, its address $at.
# Without it there is nothing more to test.
start() {
    local out=$1
    shift
    : >"$out"
    "$@" >"$out" 2>"$out.err" &
    pid=$!
    until_true is_ready_or_over "$out"
    at=$(sed -n 's/^ready //p' "$out")
    [ -z "$at" ] || return 0
    result "$out is ready" 1 "$(cat "$out.err")"
    exit 1
}
is_ready_or_over() { grep -q '^ready ' "$1" || ! kill -0 "$pid" 2>/dev/null; }
# stop NAME STATUS: SIGTERM to $pid, which must end so. ThreadSanitizer runs a handler only
# after the system call that it interrupted has returned, and liburing submits and waits again by
# itself: under it connections end the wait.
stop() {
    local rc
    kill -TERM "$pid"
    until_true has_ended || kill -9 "$pid"
    wait "$pid"
    rc=$?
    result "$1" "$([ $rc = "$2" ]; echo $?)" "status $rc: $(cat ./*.err)"
}
has_ended() {
    is_over "$pid" && return
    ! grep -qs '^MR_SANITIZE:.*thread' "${MR_BUILD:-}/CMakeCache.txt" || (: >"/dev/tcp/${at%:*}/${at##*:}") 2>/dev/null
    return 1
}
