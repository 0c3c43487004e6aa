#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# For tests of several processes that sum; sourced after expect.sh. Tests that train set `model`, the
# arguments of all processes; others define their own `start`.
free_port() { "$MR_SOURCE/tests/ports.py"; }
pids=()
# worker I ARGUMENT...: worker I of $workers at $port
worker() {
    local i=$1
    shift
    RANK=$i WORLD_SIZE=$workers MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        timeout -k 1 $patience "$m" train "${model[@]}" --connect-timeout $patience \
        --peer-timeout $patience "$@" >"out.$i" 2>"err.$i" </dev/null &
    pids[i]=$!
}
start() { worker "$@"; } # a test may have its own
# start_all N ARGUMENT...
start_all() {
    workers=$1 port=$(free_port) pids=()
    rm -f out.* err.*
    local i
    for ((i = 0; i < workers; i++)); do start "$i" "${@:2}"; done
}
# ended STATUS...: waits for all; true if each ended with its own
ended() {
    local i=0 bad=0 status
    for want in "$@"; do
        wait "${pids[i]}" 2>/dev/null
        status=$?
        [ "$status" = "$want" ] || bad=1
        i=$((i + 1))
    done
    return $bad
}
said() { tail -qn 2 err.* out.* | head -c 1500; }
all_say() { # PATTERN [WORKER...]
    local pattern=$1 i
    shift
    for i in "$@"; do grep -qE -- "$pattern" "err.$i" || return 1; done
}
says() { grep -qE -- "$1" "$2" 2>/dev/null; }
wait_for() { # PATTERN FILE: of the worker whose number ends its name
    while_runs "${pids[${2##*.}]}" says "$1" "$2"
}
process() { pgrep -P "${pids[$1]}"; } # the program itself, under timeout
chief_alone() { [ -s out.0 ] && [ "$(cat out.* | wc -l)" = "$(wc -l <out.0)" ]; } # prints
