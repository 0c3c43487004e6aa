#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Training in several processes on the double's GPUs, summed by its NCCL.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../expect.sh"
. "$here/../job.sh"
unset CUDA_VISIBLE_DEVICES # run_one.sh hides GPUs
ulimit -c 0 2>/dev/null
export TSAN_OPTIONS=${TSAN_OPTIONS:+$TSAN_OPTIONS:}report_thread_leaks=0 # as in double.sh
export LD_LIBRARY_PATH=$MR_BUILD/tests/cuda_double/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export MILLRACE_CUDA_MODULE=$MR_BUILD/millrace-cuda.so MR_DOUBLE_DELAY=20
model=(--model 'dense(16, activation="relu").dense(3)' --loss 'sparse_categorical_crossentropy(from_logits=true)'
    --optimizer 'adam(learning_rate=0.01)' --log json)
# Each process has $gpus GPUs, which are others than its neighbour's if apart is 1.
apart=1
start() { MR_DOUBLE_DEVICES=$gpus MR_DOUBLE_FIRST=$(($1 * gpus * apart)) worker "$@"; }
calm() { ! grep -q 'cuda double:' err.*; } # the double has seen no misuse, and nothing is left over

data='range(403).map(i => ([cast(i % 17, "float32") / 17.0, cast(i % 5, "float32"), 1.0], i % 3)).batch(32)'
all=(--data "$data" --metrics accuracy --check-replicas --eval "$data" --epochs 20 --steps 200)

# ---- one global batch, spread in three ways, with a short last batch in each epoch
for how in '1 4' '2 2' '4 1'; do
    # shellcheck disable=SC2086
    set -- $how
    gpus=$2
    start_all "$1" --devices cuda "${all[@]}"
    # shellcheck disable=SC2046
    ended $(yes 0 | head -n "$1") && chief_alone && calm && all_say 'sums by nccl$' 0
    result "nccl_workers_${1}_gpus_$2" $? "$(said)"
    cp out.0 "losses.$1"
done
gpus=2
start_all 2 --devices cuda "${all[@]}" --communication nccl
ended 0 0 && cmp -s out.0 losses.2
result the_same_command_gives_the_same_bits $? "$(said)"
start_all 2 --devices cuda "${all[@]}" --communication ring
ended 0 0 && chief_alone && calm && all_say 'sums by ring' 0
result the_ring_sums_over_gpus_too $? "$(said)"
cp out.0 losses.ring
python3 - <<'PYTHON'
import json
runs = [[json.loads(l) for l in open(f"losses.{n}")] for n in (1, 2, 4, "ring")]
assert len({len(r) for r in runs}) == 1 and len(runs[0]) > 200
for lines in zip(*runs):
    for x in lines[1:]:
        assert x.keys() == lines[0].keys(), lines
        for k, v in x.items():
            assert abs(v - lines[0][k]) <= 2e-5 * abs(lines[0][k]), lines
PYTHON
result the_spread_of_replicas_does_not_change_the_losses $? "$(tail -qn 1 losses.*)"
if grep -q '^MR_SANITIZE:[A-Z]*=.' "$MR_BUILD/CMakeCache.txt" && [ "${MR_TEST_TIER:-}" != long ]; then
    finish # the rest with sanitizers in the long run
fi

# ---- which engine
apart=0
start_all 2 --devices cuda:0 --data "$data" --communication nccl
shared='rank 0 \(127\.0\.0\.1:[0-9]+\) and rank 1 \(127\.0\.0\.1:[0-9]+\) share a GPU'
ended 2 2 && calm && all_say "nccl: $shared" 0 1
result two_processes_on_one_gpu_cannot_use_nccl $? "$(said)"
start_all 2 --devices cuda:0 --data "$data"
ended 0 0 && chief_alone && all_say 'sums by ring' 0 && all_say "sum with ring .* instead of nccl: $shared" 0
result auto_takes_the_ring_and_says_why $? "$(said)"
start_all 2 --devices cpu:0 --data "$data" --communication nccl
ended 2 2 && all_say 'nccl: rank 0 .*cpu:0' 0 1
result nccl_is_for_gpus $? "$(said)"
apart=1
start_all 2 --devices cuda:0,cuda:0 --data "$data" --communication nccl
ended 2 2 && all_say 'nccl: rank 0 .*: two replicas share cuda:0' 0 1
result nccl_is_for_gpus_of_their_own $? "$(said)"
for how in ring nccl auto; do
    start_all 2 --devices cpu:0,cuda:0 --data "$data" --communication $how
    ended 2 2 && calm && all_say 'cannot sum over these devices: cpu:0 and cuda:0 are of different kinds' 0 1
    result "replicas_of_two_kinds_cannot_sum_by_$how" $? "$(said)"
done
workers=2 port=$(free_port) pids=()
start 0 --devices cuda --data "$data"; start 1 --devices cuda --data "$data" --communication ring
ended 1 1 && all_say "communication is '(auto|ring)' here and '(auto|ring)' on rank" 0 1
result another_communication_is_refused_by_both $? "$(said)"
other=${data/batch(32)/batch(16)}
workers=2 port=$(free_port) pids=()
start 0 --devices cuda --communication nccl --data "$data"; start 1 --devices cuda --communication nccl --data "$other"
ended 1 1 && calm && all_say "the data is '.*batch\((16|32)\)' here and '.*batch\((16|32)\)' on rank [01] \(127" 0 1
result another_graph_is_refused_by_both $? "$(said)"
workers=2 port=$(free_port) pids=()
start 0 --devices cuda --communication nccl --data "$data"
mine=${model[1]} model[1]='dense(8, activation="relu").dense(3)'
start 1 --devices cuda --communication nccl --data "$data"
model[1]=$mine
ended 1 1 && calm && all_say "the model is '.*dense\((8|16).*' here and '.*dense\((8|16).*' on rank [01] \(127" 0 1
result another_model_is_refused_by_both $? "$(said)"

# ---- steps of one's own: what another process sums is compared before the GPUs sum it
sums() { # WHAT: worker 1 does in step 5
    workers=3 port=$(free_port) pids=()
    rm -f out.* err.*
    local i
    for i in 0 1 2; do
        RANK=$i WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port COMMUNICATION=nccl MR_DOUBLE_DEVICES=2 \
            MR_DOUBLE_FIRST=$((2 * i)) timeout -k 1 $patience "$MR_BUILD/tests/worker" 2 sums "$1" >"out.$i" 2>"err.$i" &
        pids[i]=$!
    done
}
sums nothing
ended 0 0 0 && cmp -s out.0 out.1 && cmp -s out.0 out.2 && calm && grep -q '^8 steps' out.0
result steps_of_ones_own_sum_what_they_like $? "$(said)"
a='rank [0-2] \(127\.0\.0\.1:[0-9]+\)'
while read -r what mine other; do
    sums "$what"
    ended 1 1 1 && calm && all_say "$a (${mine//_/ }|${other//_/ }) where $a (${mine//_/ }|${other//_/ }), in operation [0-9]+ at step 5; all" 0 1 2
    result "worker_1_${what}_is_named" $? "$(said)"
done <<'END'
shorter sums_1000_values_of_float32 sums_999_values_of_float32
maximum sums_1000_values_of_float32 takes_the_maximum_of_1000_values_of_float32
doubles sums_1000_values_of_float32 sums_1000_values_of_float64
fewer sums_1000_values_of_float32 ends_its_step
more ends_its_step sums_1000_values_of_float32
END
sums leaves
ended 1 0 1 && calm && all_say "$a (sums 1000 values of float32|has ended) where $a .* at step 5" 0 2
result worker_1_leaves_is_named $? "$(said)"

# ---- failures of one worker are all workers'
gpus=1
long=(--devices cuda --data "${data/.batch/.repeat().batch}" --steps 1000000)
start_all 3 "${long[@]}"
wait_for '"step": 20,' out.0
kill -9 "$(process 1)"
ended 75 137 75 && calm && all_say 'rank 1 \(127\.0\.0\.1:[0-9]+\) .*at step [0-9]+' 0 2
result a_killed_worker_ends_all $? "$(said)"
start_all 3 "${long[@]}"
wait_for '"step": 20,' out.0
kill -9 "$(process 0)" # which the others send their values to
ended 137 75 75 && calm && all_say 'rank 0 \(127\.0\.0\.1:[0-9]+\) .*at step [0-9]+' 1 2
result a_killed_first_worker_ends_all $? "$(said)"
start_all 3 --peer-timeout 10 "${long[@]}"
wait_for '"step": 20,' out.0
stopped=$(process 1)
kill -STOP "$stopped"
wait "${pids[0]}"; a=$?
wait "${pids[2]}"; b=$?
kill -CONT "$stopped"
wait "${pids[1]}"; c=$?
[ "$a $b $c" = '75 75 75' ] && calm && all_say 'rank 1 \(127\.0\.0\.1:[0-9]+\) gave no sign of life for 10 s, at step [0-9]+' 0 2
result a_stopped_worker_ends_all $? "$(said)"
start_all 2 "${long[@]}"
wait_for '"step": 20,' out.0
kill -INT "$(process 1)"
ended 1 130 && calm && all_say 'rank 1 \(.*\) failed at step [0-9]+: .*(interrupted|cancelled)' 0
result an_interrupted_worker_ends_all $? "$(said)"
start_all 2 --devices cuda --data 'range(64).map(i => ([1.0], cast(i / 63, "int64") * 7)).batch(8)'
ended 1 1 && calm && all_say 'label 7' 1 && all_say 'rank 1 .* failed at step .*label 7' 0
result a_label_out_of_range_on_one_worker_is_everybodys $? "$(said)"
for i in 0 1 2; do
    "$m" write --out "part-$i" --expr "range($((i == 1 ? 3 : 40 - i))).map(x => {\"a\": cast(x, \"float32\"), \"y\": x % 3})" >/dev/null
done
files='tfrecord("part-*").map(x => parse_example(x, a=float32, y=int64)).map(r => ([r["a"]], r["y"])).batch(6)'
start_all 3 --devices cuda --data "$files" --auto-shard file --epochs 2
ended 0 0 0 && chief_alone && calm && grep -q '"epoch": 2' out.0
result workers_of_uneven_data_stop_together $? "$(said)"

# ---- a call that fails in one process
fails_in() { # RANK CALL:N
    local i
    workers=2 port=$(free_port) pids=()
    rm -f out.* err.* count
    for i in 0 1; do
        fail='' count=''
        [ "$i" = "$1" ] && fail=$2 count=$dir/count
        MR_DOUBLE_FAIL=$fail MR_DOUBLE_COUNT=$count start "$i" --devices cuda --data "$data" --epochs 2
    done
}
for what in ncclGetUniqueId:1 ncclCommInitRankConfig:1 ncclGroupEnd:1 ncclCommGetAsyncError:2 ncclAllReduce:5 \
    ncclGroupEnd:9 ncclCommGetAsyncError:30 cudaLaunchKernel:30 kernel:100; do
    for i in 0 1; do
        [ "$what$i" = ncclGetUniqueId:11 ] && continue # the first process makes it
        fails_in "$i" "$what"
        ended 1 1 && calm && all_say "rank $i \(127\.0\.0\.1:[0-9]+\) failed at step " $((1 - i))
        result "${what%:*}_number_${what#*:}_fails_in_process_$i" $? "$(said)"
    done
done
# What a graph that does not start would have done is submitted by itself, between the same sums.
fails_in 0 ''
ended 0 0 && chief_alone && cp out.0 undisturbed
result two_processes_train_undisturbed $? "$(said)"
for i in 0 1; do
    fails_in $i cudaGraphLaunch:10
    ended 0 0 && chief_alone && calm && cmp -s out.0 undisturbed && grep -q ' cudaGraphLaunch$' count
    result "a_graph_that_does_not_start_in_process_${i}_changes_nothing" $? "$(said; cat count)"
done
finish
