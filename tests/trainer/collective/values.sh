#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# What workers of a job do together besides training: collectives of all kinds, reduce, gather,
# predictions, the state of a loop. tests/ranks/worker.c is one of them.
. "$(dirname "${BASH_SOURCE[0]}")/../../expect.sh"
worker=$MR_BUILD/tests/worker
[ -x "$worker" ] || exit 77 # built without the trainer
# start_all N ARGUMENT...: N workers; status.I has how each ended
start_all() {
    local i port
    port=$("$MR_SOURCE/tests/ports.py")
    rm -f out.* err.* status.*
    for ((i = 0; i < $1; i++)); do
        {
            RANK=$i WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
                timeout -k 1 $patience "$worker" "${@:2}${own:+$i}" >"out.$i" 2>"err.$i" </dev/null
            echo $? >"status.$i"
        } &
    done
    wait
}
said() { tail -qn 2 err.* out.* status.* | head -c 1500; }
all_are() { [ "$(cat status.* | sort -u)" = "$1" ]; } # STATUS
same_output() { [ "$(md5sum <out.0)" = "$(md5sum <"out.$(($1 - 1))")" ]; }

for how in '1 3' '2 1' '2 2' '3 2'; do
    # shellcheck disable=SC2086
    set -- $how
    start_all "$1" "$2" collective
    all_are 0
    result "collectives_of_${1}_workers_with_$2" $? "$(said)"
done

# The same values on 4 replicas however they are spread.
for how in '1 4' '2 2' '4 1'; do
    # shellcheck disable=SC2086
    set -- $how
    start_all "$1" "$2" values
    all_are 0 && same_output "$1" && cp out.0 "values.$1"
    result "reduce_and_gather_on_${1}_workers" $? "$(said)"
    start_all "$1" "$2" predict 21 8
    all_are 0 && cp out.0 "predicted.$1"
    result "predict_on_${1}_workers" $? "$(said)"
done
result the_spread_does_not_change_them "$(cmp values.1 values.2 && cmp values.1 values.4; echo $?)" "$(cat values.*)"
same what_is_gathered "$(sed -n '1p;$p' values.1)" 'gather [6, 1] 0 10 11 20 21 22
gather [6, 1] a  ccc ccc d eeeee'
same what_is_averaged "$(sed -n '2,3p' values.1)" 'sum [1] 84
mean [] 14'
result predictions_come_in_input_order "$(cmp predicted.1 predicted.2 && cmp predicted.1 predicted.4; echo $?)" "$(cat predicted.*)"
same all_of_them "$(sed 's/.*\]//' predicted.1 | tr '\n' ' ' | xargs)" "$(seq -s ' ' 0 2 40)"
start_all 3 1 predict 2 8
same a_batch_smaller_than_the_job "$(cat out.0)" 'batch [2, 1] 0 2'
result "others_get_none" "$([ ! -s out.1 ] && all_are 0; echo $?)" "$(said)"

start_all 2 2 predict_fails
all_are 1 && grep -q 'fn has had enough' err.0 && grep -q 'rank 0 .*failed at step [0-9]*: fn has had enough' err.1
result a_failing_receiver_ends_all $? "$(said)"
start_all 2 2 mismatch
all_are 1 && [ "$(cat err.*  | grep -c 'float32 of rank 2 on worker 0 and int64 of rank 2 on worker 1')" = 2 ]
result another_dtype_is_named_by_both $? "$(said)"
start_all 2 2 broken
all_are 1 && grep -q 'needs tensors that have it' err.1 && grep -q 'worker 1 could not gather its values' err.0
result a_worker_that_cannot_gather_is_named $? "$(said)"

# The state of a loop: shared, or a directory for each worker, whose name ends with its rank.
for i in 0 1 2; do
    start_all 3 1 loop shared
    all_are 0 && same_output 3 && grep -q "$([ $i = 0 ] && echo new || echo found) $i " out.0
    result "workers_go_on_with_their_loop_$i" $? "$(said)"
done
own=yes
start_all 3 1 loop loop. # the first alone writes
all_are 0 && grep -q '^new 0 ' out.2
result no_worker_finds_a_loop $? "$(said)"
cp -r loop.0 some.1
cp -r loop.0 same.0; cp -r loop.0 same.1; cp -r loop.0 same.2
cp -r loop.0 other.0; cp -r loop.0 other.1; cp -r shared other.2
cp -r loop.0 bad.0; cp -r loop.0 bad.1; cp -r loop.0 bad.2
printf x >>bad.1/state.json
start_all 3 1 loop same.
all_are 0 && same_output 3 && grep -q '^found 1 ' out.1
result copies_of_a_loop $? "$(said)"
for what in 'some. worker 1 finds a saved state, but worker [02] does not' 'other. worker [012] finds another saved state than worker [012]'; do
    start_all 3 1 loop "${what%% *}"
    all_are 1 && [ "$(grep -lE "${what#* }" err.* | wc -l)" = 3 ] && [ ! -s out.0 ] && [ ! -s out.1 ] && [ ! -s out.2 ]
    result "${what%% *}_is_refused_by_all" $? "$(said)"
done
start_all 3 1 loop bad.
all_are 1 && grep -q 'state.json is not JSON' err.1 && grep -q 'worker 1 could not read its saved state' err.0 err.2
result a_damaged_loop_of_one_worker_ends_all $? "$(said)"
own=
finish
