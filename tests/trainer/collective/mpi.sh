#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Workers that mpirun starts and that sum by MPI.
. "$(dirname "${BASH_SOURCE[0]}")/../../expect.sh"
mpirun=${MPIRUN:-mpirun}
MILLRACE_MPI_MODULE=$MR_BUILD/millrace-mpi.so
export MILLRACE_MPI_MODULE OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ -x "$MR_BUILD/tests/worker" ] || exit 77 # built without the trainer
one='range(64).map(i => ([cast(i, "float32") / 64.0], [1.0])).batch(8)'
model=(--model 'dense(16, activation="relu").dense(3)' --loss 'sparse_categorical_crossentropy(from_logits=true)'
    --optimizer 'adam(learning_rate=0.01)' --log json)

# ---- without mpirun, or without the module
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 expect mpi_needs_mpirun 1 '' 'not started by mpirun' -- \
    "$m" train --data "$one" --model 'dense(1)' --loss mse --optimizer sgd --communication mpi
if [ ! -e "$MILLRACE_MPI_MODULE" ] || ! command -v "$mpirun" >/dev/null; then
    skip mpi "no Open MPI here, or under a sanitizer, which reports Open MPI's own leaks"
    finish
    exit
fi
# by_mpi N COMMAND...: output of all in out, errors in err. mpirun would mix parts of lines, and lose those of a process
# that it ends.
by_mpi() {
    local status
    rm -f out.* err.*
    # shellcheck disable=SC2016
    timeout -k 5 $patience "$mpirun" --oversubscribe -n "$1" \
        bash -c 'exec "$@" >"out.$OMPI_COMM_WORLD_RANK" 2>"err.$OMPI_COMM_WORLD_RANK"' - "${@:2}" 2>mpirun.err </dev/null
    status=$?
    cat out.* >out
    cat err.* mpirun.err >err
    return $status
}
said() { tail -n 4 err out | head -c 1500; }
PMIX_RANK=0 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 MILLRACE_MPI_MODULE=/nowhere.so \
    expect a_module_that_is_not_there_is_named 1 '' '/nowhere.so' -- \
    "$m" train --data "$one" --model 'dense(1)' --loss mse --optimizer sgd --communication mpi

# ---- operations
for n in 2 3 4; do
    by_mpi $n "$MR_BUILD/tests/rank" --mpi check
    result "all_operations_on_$n" "$([ $? = 0 ] && [ "$(grep -v '^connected' out | sort -u | wc -l)" = 1 ]; echo $?)" "$(said)"
done
for how in '2 2' '3 1'; do
    # shellcheck disable=SC2086
    set -- $how
    COMMUNICATION=mpi by_mpi "$1" "$MR_BUILD/tests/worker" "$2" collective
    result "collectives_of_${1}_workers_with_$2" $? "$(said)"
done
COMMUNICATION=mpi by_mpi 4 "$MR_BUILD/tests/worker" 1 values
result values_on_4_workers "$([ $? = 0 ] && [ "$(grep -c '^gather \[6, 1\] 0 10 11 20 21 22$' out)" = 8 ]; echo $?)" "$(said)"

# ---- training: one global batch, spread in three ways
data='range(403).map(i => ([cast(i % 17, "float32") / 17.0, cast(i % 5, "float32"), 1.0], i % 3)).batch(32)'
all=(--data "$data" --metrics accuracy --check-replicas --eval "$data" --epochs 20 --steps 200)
for how in '1 4' '2 2' '4 1'; do
    # shellcheck disable=SC2086
    set -- $how
    by_mpi "$1" "$m" train "${model[@]}" --replicas "$2" "${all[@]}" --communication auto
    status=$?
    sort out | uniq -c | awk '$1 != 1 { exit 1 }' && [ "$(cat out.* | wc -l)" = "$(wc -l <out.0)" ] # the chief prints alone
    result "workers_${1}_replicas_$2" "$([ $? = 0 ] && [ $status = 0 ] && { [ "$1" = 1 ] || grep -q 'workers by MPI, 4 replicas in sync, sums by mpi' err; }; echo $?)" "$(said)"
    sort -u out >"losses.$1"
done
python3 - <<'PYTHON'
import json
runs = []
for n in (1, 2, 4):
    lines = map(json.loads, open(f"losses.{n}"))
    runs.append({(x.get("step"), x.get("epoch")): x for x in lines})
assert runs[0].keys() == runs[1].keys() == runs[2].keys() and len(runs[0]) > 200
for k in runs[0]:
    for r in runs[1:]:
        for name, v in r[k].items():
            assert abs(v - runs[0][k][name]) <= 2e-5 * abs(runs[0][k][name]), (runs[0][k], r[k])
PYTHON
result the_spread_of_replicas_does_not_change_the_losses $? "$(tail -qn 1 losses.*)"
by_mpi 2 "$m" train "${model[@]}" --replicas 2 "${all[@]}" --communication mpi
sort -u out >again
result the_same_command_gives_the_same_bits "$(cmp again losses.2; echo $?)" "$(said)"
by_mpi 2 "$m" train "${model[@]}" --data "$data" --communication ring
result the_ring_works_under_mpirun_too "$([ $? = 0 ] && grep -q 'sums by ring' err; echo $?)" "$(said)"

MILLRACE_MPI_MODULE=/nowhere.so by_mpi 2 "$m" train "${model[@]}" --data "$data" -v
result why_it_is_not_mpi_is_said "$([ $? = 0 ] && grep -q 'sums by ring' err && [ "$(grep -c 'processes sum without MPI: .*/nowhere.so' err)" = 1 ]; echo $?)" "$(said)"

# ---- failures: no process is left
# differs RANKS COUNT ACTION WHAT-IT-DOES WHAT-OTHERS-DO: sums in pairs, at the border, around
differs() {
    by_mpi "$1" "$MR_BUILD/tests/rank" --mpi --count "$2" --rank 1 --at 4 --do "$3" steps 1000
    result "what_differs_is_found_on_both_sides, $*" "$([ $? != 0 ] && ! grep -q '^done' out && ! grep -q 'step 5' out &&
        grep -qE "rank [0-9] \(.*\) ($4|$5) where rank [0-9] \(.*\) ($4|$5), in operation .* at step 4; all processes must run" err &&
        grep -q "rank 1 ([^)]*) $4" err && grep -q "rank [02] ([^)]*) $5" err; echo $?)" "$(said)"
}
for n in 2 3 5; do
    for count in 1 1000 1977 100000; do
        differs $n $count shorter "sums $((count - 1)) values of float32" "sums $count values of float32"
    done
done
differs 2 1000 other 'takes the maximum of 1000 values of float32' 'sums 1000 values of float32'
differs 3 100000 other 'takes the maximum of 100000 values of float32' 'sums 100000 values of float32'
by_mpi 2 "$MR_BUILD/tests/rank" --mpi --rank 1 --at 4 --do abort steps 1000
result a_failure_is_everybodys "$([ $? != 0 ] && grep -q 'no such file' err; echo $?)" "$(said)"
for _ in 1 2 3; do
    by_mpi 2 "$MR_BUILD/tests/rank" --mpi --rank 1 --at 4 --do abort --again steps 4
    status=$?
    # If the other had not begun its sum, nothing of it is left, and the second run is as the first.
    [ $status != 0 ] && grep -q '^error: .*no such file' err && ! grep -q '^error: mpi' err || break
done
result what_a_failed_sum_began_does_not_come_into_another_run "$([ $status != 0 ] && grep -q 'first error: .*no such file' err &&
    grep -q 'error: mpi: an operation of this process failed, .* restart the processes' err; echo $?)" "$(said)"
for do in "--rank 1 --at 4 --do leave" "--rank 0 --at 4 --count 100000 --do leave"; do
    # shellcheck disable=SC2086
    by_mpi 2 "$MR_BUILD/tests/rank" --mpi --peer-timeout 6 $do steps 1000
    result "one_that_leaves_early_is_named, $do" "$([ $? != 0 ] && grep -q 'rank [01] .* has ended, while rank [01] .* continues at step 4' err; echo $?)" "$(said)"
done
# other OPTION OF-0 OF-1 ARGUMENT...: training whose two workers differ in an option
other() {
    # shellcheck disable=SC2016
    by_mpi 2 bash -c 'of=("$2" "$3"); exec "${@:4}" "$1" "${of[OMPI_COMM_WORLD_RANK]}"' - "${@:1:3}" \
        "$m" train --loss mse --optimizer sgd --communication mpi "${@:4}"
}
other --data "$one" "${one/batch(8)/batch(4)}" --model 'dense(1)'
result another_graph_is_named "$([ $? = 1 ] && grep -qE "the data is '.*batch\([48]\)' here and '.*batch\([48]\)' on rank [01] \(127" err; echo $?)" "$(said)"
other --model 'dense(1)' 'dense(2)' --data "$one"
result another_model_is_named "$([ $? = 1 ] && grep -qE "the model is 'dense\([12]\)' here and 'dense\([12]\)' on rank [01] \(127" err; echo $?)" "$(said)"
long=(--data "${data/.batch/.repeat().batch}" --steps 1000000)
find_workers() { # timeout's child is mpirun, whose children they are
    mapfile -t workers < <(pgrep -P "$(pgrep -P "$started" | head -n 1)")
    [ ${#workers[@]} = 3 ]
}
for how in KILL STOP; do
    rm -f out
    timeout -k 5 $patience "$mpirun" --oversubscribe -n 3 "$m" train "${model[@]}" --peer-timeout 10 "${long[@]}" >out 2>err </dev/null &
    started=$!
    workers=()
    while_runs "$started" grep -q '"step": 20,' out && while_runs "$started" find_workers
    kill -$how "${workers[1]:-$started}"
    wait "$started"
    status=$?
    sleep 0.2
    left=0
    for p in "${workers[@]}"; do
        kill -CONT "$p" 2>/dev/null
        until_true is_over "$p" || left=1
    done
    result "a_worker_that_gets_SIG${how}_ends_all" "$([ $status != 0 ] && [ $status != 124 ] && [ $left = 0 ]; echo $?)" "$(said)"
done
finish
