#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# millrace-cuda.so on the double of NVIDIA's libraries, and the double itself.
#   double.sh PART MILLRACE      PART: itself, operations, trainer, commands, training, graphs, sums, faults
part=$1
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
build=$(dirname "$m")
unset CUDA_VISIBLE_DEVICES # run_one.sh hides GPUs
plain_path=${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH=$build/tests/cuda_double/lib${plain_path:+:$plain_path}
export MILLRACE_CUDA_MODULE=$build/millrace-cuda.so
ulimit -c 0 2>/dev/null
# A process that ends by _exit has not joined the double's threads; streams that are left the double itself counts.
export ASAN_OPTIONS=${ASAN_OPTIONS:-} LSAN_OPTIONS=${LSAN_OPTIONS:-} TSAN_OPTIONS=${TSAN_OPTIONS:+$TSAN_OPTIONS:}report_thread_leaks=0

# Which sanitizer the program has: address, thread or none.
sanitizer=$(sed -n 's/^MR_SANITIZE:[A-Z]*=\([a-z]*\).*/\1/p' "$build/CMakeCache.txt")

itself() {
    local name want word rc
    # What must come of it: a status, and a word of the message; another one with a sanitizer.
    local -A address=([host_reads]='99 SEGV' [host_reads_freed]='99 use-after-poison'
        [host_writes_past_the_end]='99 use-after-poison' [host_frees_too_early]='99 heap-use-after-free'
        [leak]='99 detected memory leaks')
    local -A thread=([host_reads]='99 SEGV' [host_reads_freed]='99 SEGV'
        [host_reads_too_early]='99 data race' [host_writes_too_early]='99 data race'
        [host_waits_for_another]='99 data race' [host_reads_what_a_kernel_writes]='99 data race'
        [host_frees_too_early]='99 heap-use-after-free')
    while read -r name want word; do
        case $sanitizer in
        address) read -r want word <<<"${address[$name]:-$want $word}" ;;
        thread) read -r want word <<<"${thread[$name]:-$want $word}" ;;
        esac
        # Expected reports do not fail the test.
        ASAN_OPTIONS=$ASAN_OPTIONS:log_path=stderr LSAN_OPTIONS=$LSAN_OPTIONS:log_path=stderr \
            TSAN_OPTIONS=$TSAN_OPTIONS:log_path=stderr timeout 1500 "$build/tests/cuda_double/misuse" "$name" >out 2>&1
        rc=$?
        [ $rc = "$want" ] && { [ -z "$word" ] || grep -qF "$word" out; }
        result "misuse: $name" $? "status $rc (want $want, '$word'): $(cat out)"
    done <<'END'
nothing 0
missing_wait 134 missing wait
with_wait 0
wait_before_record 134 missing wait
wait_of_the_host 0
two_readers 0
write_after_read 134 missing wait
freed_too_early 134 cuda double:
use_after_free 134 that was freed
freed_twice 134 freed twice
not_allocated_yet 134 has not allocated yet
out_of_bounds 134 writes bytes 0 to 4004 of a block of 4000
nobody_wrote 134 which nobody wrote
host_reads 139
call_in_host_call 134 in a function that a stream runs
event_of_another_device 134 an event of cuda:1 in a stream of cuda:0
pinned_freed_too_early 134 cuda double:
host_reads_too_early 0
host_writes_too_early 0
host_waits_for_another 0
host_reads_what_a_kernel_writes 0
host_frees_too_early 0
host_reads_freed 139
host_writes_past_the_end 0
host_waits 0
threads_apart 0
threads_race 134 two threads of mr_cast touch
leak 99 leak: 1 event
sums_agree 0
sums_of_other_lengths 134 rank 1 sums 999
sums_of_other_kinds 134 rank 1 sums 1000
sum_asked_for 0
sum_not_asked_for 134 1 sums have not run
sum_not_finalized 134 ncclCommFinalize was not called
graph_runs 0
graph_without_wait 134 missing wait
graph_left 99 leak: 1 executable graph
node_without_its_graph 134 is no graph that exists
nodes_side_by_side 134 does not follow the one before it
waits_in_capture 134 is called while a stream is captured
allocates_in_capture 134 is called while a stream is captured
records_in_capture 134 is called while a stream is captured
never_ends_capture 134 is called while a stream is captured
END
    MR_DOUBLE_FAIL=cudaEventRecord:1 timeout 1500 "$build/tests/cuda_double/misuse" with_wait >out 2>&1
    rc=$?
    [ $rc != 0 ] && grep -q 'cudaEventRecord(e, a): cudaErrorUnknown' out
    result 'a call fails when it is told to' $? "status $rc: $(cat out)"

    MR_DOUBLE_DEVICES=3 "$m" devices >out 2>err
    rc=$?
    [ $rc = 0 ] && [ "$(grep -c '^cuda:[0-2]  double ' out)" = 3 ] && ! grep -q '^cuda:3' out
    result 'its devices are named double' $? "status $rc: $(cat out err)"
    MR_DOUBLE_DRIVER=525.60.13 "$m" devices >out 2>err
    rc=$?
    [ $rc = 0 ] && grep -qE '^cuda: driver 525 is older than CUDA [0-9]+\.[0-9]+ needs \([0-9]+\)$' out
    result 'a driver that is too old is named' $? "status $rc: $(cat out err)"
    CUDA_VISIBLE_DEVICES='' "$m" devices >out 2>err
    rc=$?
    [ $rc = 0 ] && grep -q '^cuda: no GPU is visible to the driver' out
    result 'that GPUs are hidden is said' $? "status $rc: $(cat out err)"
    MR_DOUBLE_DRIVER=525.60.13 expect 'an old driver is named where a GPU is asked for' 1 '' 'device cuda:0 is not available' 'driver 525 is older than CUDA' -- \
        "$m" train --data "$data" --model 'dense(3)' --loss "$loss" --optimizer sgd --devices cuda:0
    LD_LIBRARY_PATH=$plain_path "$m" devices >out 2>err
    rc=$?
    [ $rc = 0 ] && ! grep -q double out
    result 'without its folder there is none' $? "status $rc: $(cat out err)"
}

# The end of a suite's name: for globs where Criterion is, for parts of names where the tests' own runner is.
end='/*'
[ -z "$sanitizer" ] || end=::

. "$here/suites.sh"

# drawn N NAME...: N of them, from the one on that the seed says; all in the long run
drawn() {
    local most=$1 from
    shift
    from=$((${MR_TEST_SEED:-1} % $#))
    [ "${MR_TEST_TIER:-}" != long ] || most=$#
    printf '%s\n' "${@:from+1}" "${@:1:from}" | head -n "$most"
}

commands() {
    local script
    diff <(tr -s ' \n' '\n' <<<"$scripts $other_scripts" | sort) \
        <(cd "$tests/trainer" && printf '%s\n' */*.sh | sed 's|\.sh$||' | sort) >out
    result "each script runs here or is said not to" $? "$(cat out)"
    # shellcheck disable=SC2086
    for script in $(drawn 1 $scripts); do
        MR_DOUBLE_DELAY=20 MR_DOUBLE_DEVICES=1 MR_DOUBLE_COUNT=$dir/count timeout 1500 \
            "$tests/trainer/$script.sh" "$m" "$dir/tap" >out 2>&1
        rc=$?
        grep -q 'cuda double:' out && rc=1
        [ -s "$dir/count" ] && grep -q '^ok' tap || rc=1
        result "commands: $script" $rc "$(tail -n 40 out)"
        rm -f "$dir/count"
    done
}

trainer() {
    local suite
    diff <(tr -s ' \n' '\n' <<<"$suites $on_named $without" | sort) \
        <(cd "$tests/trainer" && grep -lE '^(MR_TEST|ON_DEVICES)' *.c */*.c | sed 's|\.c$||' | sort) >out
    result "each suite runs here or is said not to" $? "$(cat out)"
    # shellcheck disable=SC2086
    for suite in $(drawn "$([ "$sanitizer" ] && echo 5 || echo 99)" $suites); do
        MR_DOUBLE_DELAY=20 MR_DOUBLE_DEVICES=2 MR_DOUBLE_COUNT=$dir/count MR_TEST_TIMEOUT=900 timeout 1500 \
            "$build/tests/test_trainer_${suite%/*}" --filter="trainer_${suite/\//_}$end" >out 2>&1
        rc=$?
        grep -q 'cuda double:' out && rc=1
        [ -s "$dir/count" ] || rc=1 # the double was not asked for anything
        result "trainer: $suite" $rc "$(tail -n 40 out)"
        rm -f "$dir/count"
    done
}

# The tests of devices that tests/gpu.sh runs on GPUs.
operations() {
    local suite rc seed
    # shellcheck disable=SC2086
    for suite in $(drawn "$([ "$sanitizer" ] && echo 2 || echo 99)" $on_named); do
        MR_TEST_DEVICES=cuda:0,cuda:1 MR_DOUBLE_DELAY=20 MR_TEST_TIMEOUT=900 timeout 1500 \
            "$build/tests/test_trainer_${suite%/*}" --filter="trainer_${suite/\//_}$end" >out 2>&1
        rc=$?
        grep -q 'cuda double:' out && rc=1
        result "operations: $suite" $rc "$(tail -n 40 out)"
    done
    for seed in 2 3 4; do
        its_turn || continue
        MR_TEST_SEED=$seed MR_DOUBLE_DELAY=2000 MR_TEST_DEVICES=cuda:3 timeout 1500 \
            "$build/tests/test_trainer_device" --filter="trainer_device_device_streams$end" >out 2>&1
        result "streams with seed $seed" $? "$(tail -n 40 out)"
    done
}

# Below the long tier every third of a part's trainings runs, with a sanitizer every tenth.
its_turn() { takes $([ -n "$sanitizer" ] && echo 10 || echo 3); }

loss='sparse_categorical_crossentropy(from_logits=true)'
data='range(1500).map(i => (cast([i % 7, i % 11, i % 13, i * i % 17], "float32") / 10.0, i % 3)).batch(128)'
mlp='dense(64, activation="relu").dropout(0.2).dense(32, activation="tanh").dense(3)'
images='range(200).map(i => (reshape(sin(cumsum(ones([432])) * cast(i % 13 + 1, "float32") / 10.0), [12, 12, 3]), i * i % 17 % 3)).batch(32)'
cnn='conv2d(8, 3, activation="relu").max_pool(2).conv2d(32, 3, padding="same").batch_norm().activation("relu").conv2d(24, 1, strides=2).conv2d(16, 1).average_pool(2).flatten().dense(3)'

train() { # FILE DEVICES MODEL OPTIMIZER DATA [FLAG...]
    local file=$1 devices=$2 model=$3 optimizer=$4 data=$5
    shift 5
    timeout 1500 "$m" train --data "$data" --model "$model" --loss "$loss" --optimizer "$optimizer" \
        --metrics accuracy --seed 5 --devices "$devices" --log json "$@" >"$file" 2>"$file.err"
}
# The losses of the double are those of as many replicas on processors, and nothing is left at the end.
tolerance=1e-5
compare() { # NAME DEVICES MODEL OPTIMIZER DATA [FLAG...]
    local name=$1 devices=$2 rc
    its_turn || return
    shift 2
    train cpu.log "${devices//cuda/cpu}" "$@" && train gpu.log "$devices" "$@" || {
        result "$name" 1 "$(cat cpu.log.err gpu.log.err)"
        return
    }
    python3 - $tolerance <<'PY' >compare.log 2>&1
import json, sys
a, b = ([json.loads(l) for l in open(f)] for f in ("cpu.log", "gpu.log"))
assert [sorted(x) for x in a] == [sorted(x) for x in b] and len(a) > 5, (len(a), len(b))
assert [(x.get("step"), x.get("epoch")) for x in a] == [(x.get("step"), x.get("epoch")) for x in b]
worst = max(abs(x["loss"] - y["loss"]) / (1 + abs(x["loss"])) for x, y in zip(a, b))
assert worst < float(sys.argv[1]), worst
PY
    rc=$?
    grep -q 'cuda double:' gpu.log.err && rc=1
    result "$name" $rc "$(cat compare.log gpu.log.err)"
}

training() {
    compare 'an MLP with Adam' cuda:0 "$mlp" 'adam(0.003)' "$data" --epochs 2
    compare 'an MLP with momentum' cuda:1 "$mlp" 'sgd(0.02, momentum=0.9)' "$data" --epochs 2
    compare 'two replicas on one GPU' cuda:0,cuda:0 "$mlp" 'adam(0.003)' "$data" --epochs 2
    compare 'four GPUs' cuda:0,cuda:1,cuda:2,cuda:3 "$mlp" 'adam(0.003)' "$data" --check-replicas && {
        grep -q 'sums by nccl' gpu.log.err
        result 'four GPUs sum by NCCL' $? "$(cat gpu.log.err)"
    }
    compare 'two GPUs with a trace' cuda:0,cuda:1 "$mlp" 'adam(0.003)' "$data" --trace trace.json && {
        for row in 'replica 0: sums' 'replica 1: sums' all-reduce; do grep -qF "\"$row\"" trace.json || break; done
        result 'a trace has the sums of two GPUs' $? "$(head -c 500 trace.json)"
    }
    # What is rounded may fall to the other side of the middle between two numbers of bfloat16.
    tolerance=2e-3
    compare 'an MLP in mixed precision' cuda:0,cuda:1 "$mlp" 'adam(0.003)' "$data" --mixed-precision
    compare 'a CNN in mixed precision' cuda:0 "$cnn" 'adam(0.0005)' "$images" --mixed-precision
    for call in Forward BackwardData BackwardFilter; do
        MR_DOUBLE_FAIL=cudnnGetConvolution${call}Algorithm_v7:1 compare "a CNN, in mixed precision without units for $call" \
            cuda:0 "$cnn" 'adam(0.0005)' "$images" --mixed-precision
    done
    tolerance=1e-5
    compare 'a CNN with Adam' cuda:0 "$cnn" 'adam(0.0005)' "$images"
    compare 'a CNN on three GPUs' cuda:0,cuda:1,cuda:2 "${cnn/batch_norm()/batch_norm(synchronized=true)}" \
        'sgd(0.02, momentum=0.9)' "$images"
    for flags in '--strategy central_storage' '--cross-device-ops reduction_to_one_device' \
        '--cross-device-ops hierarchical_copy'; do
        # shellcheck disable=SC2086
        compare "two GPUs, $flags" cuda:0,cuda:1 "$mlp" 'adam(0.003)' "$data" $flags
    done
    for ops in auto reduction_to_one_device; do
        MR_DOUBLE_PEERS=0 compare "GPUs that cannot reach each other, $ops" cuda:0,cuda:1,cuda:2 "$mlp" 'adam(0.003)' \
            "$data" --cross-device-ops "$ops"
    done
    for seed in 2 3 4; do
        MR_TEST_SEED=$seed MR_DOUBLE_DELAY=3000 compare "two GPUs, held up by seed $seed" cuda:0,cuda:1 "$mlp" \
            'adam(0.003)' "$data"
    done
    train gpu.log cuda:0,cuda:1 "$mlp" 'adam(0.003)' "$data" --save saved --callback 'checkpoint("kept/ckpt_{epoch}")' --epochs 2
    local pairs='range(100).map(i => (cast([i % 7, i % 11, i % 13, i], "float32") / 10.0, i % 3)).batch(16)'
    for devices in cpu:0 cuda:0 cuda:1,cuda:2; do
        "$m" evaluate --saved saved --data "$pairs" --devices $devices >"evaluated.$devices" 2>>gpu.log.err
        "$m" predict --saved kept --data "$pairs" --devices $devices >"predicted.$devices" 2>>gpu.log.err
    done
    python3 - <<'PY' >compare.log 2>&1
import json
def numbers(x):
    return [x] if isinstance(x, (int, float)) else [n for v in (x.values() if isinstance(x, dict) else x) for n in numbers(v)]
for what, least in (("evaluated", 2), ("predicted", 300)):
    a, *others = ([n for l in open(what + "." + d) for n in numbers(json.loads(l))] for d in ("cpu:0", "cuda:0", "cuda:1,cuda:2"))
    assert len(a) >= least, (what, len(a))
    for b in others:
        assert len(a) == len(b) and max(abs(x - y) / (1 + abs(x)) for x, y in zip(a, b)) < 1e-5, (what, a[:5], b[:5])
PY
    rc=$?
    grep -q 'cuda double:' gpu.log.err && rc=1
    result 'what was saved is evaluated and predicted with' $rc "$(cat compare.log gpu.log.err)"
    train gpu.log cuda:0,cpu:0 "$mlp" 'sgd(0.1)' "$data"
    rc=$?
    [ $rc = 2 ] && grep -q 'cuda:0 and cpu:0 are of different kinds' gpu.log.err && ! grep -q 'cuda double:' gpu.log.err
    result 'replicas of two kinds are refused' $? "status $rc: $(cat gpu.log.err)"
    train gpu.log cuda:0 'dense(3)' 'sgd(0.1)' 'range(64).map(i => ([1.0, 2.0], i // 8)).batch(8)'
    rc=$?
    [ $rc = 1 ] && grep -q 'label 3 ' gpu.log.err && ! grep -q 'cuda double:' gpu.log.err
    result 'a label out of range is reported' $? "status $rc: $(cat gpu.log.err)"
}

# Graphs give the bits that single launches give, over many steps, and are what most of those run as.
with_graphs() { # NAME DEVICES MODEL OPTIMIZER DATA [FLAG...]
    local name=$1 devices=$2 rc of none
    its_turn || return
    shift 2
    of=$(MR_DOUBLE_DELAY=20 MR_DOUBLE_COUNT=$dir/count train graphs.log "$devices" "$@" && cat count) &&
        none=$(MR_DOUBLE_DELAY=20 MR_DOUBLE_COUNT=$dir/count train single.log "$devices" "$@" --no-cuda-graph && cat count) &&
        [ -s graphs.log ] && cmp graphs.log single.log >cmp.log 2>&1 &&
        [ "${of% *}" != "${none% *}" ] && [ "$((10 * ${of%% *}))" -lt "$((8 * ${none%% *}))" ]
    rc=$?
    grep -q 'cuda double:' graphs.log.err single.log.err && rc=1
    result "graphs: $name" $rc "calls and kernels: $of with graphs, $none without; $(cat cmp.log graphs.log.err single.log.err)"
}

graphs() {
    local call at of rc
    with_graphs 'an MLP with dropout and Adam' cuda:0 "$mlp" 'adam(0.003)' "$data" --epochs 8
    with_graphs 'momentum, in mixed precision' cuda:1 "$mlp" 'sgd(0.02, momentum=0.9)' "$data" --epochs 6 --mixed-precision
    with_graphs 'a CNN' cuda:0 "$cnn" 'adamw(0.0005)' "$images" --epochs 6
    with_graphs 'a CNN in mixed precision' cuda:0 "$cnn" 'adamw(0.0005)' "$images" --epochs 6 --mixed-precision
    with_graphs 'batches in the same memory' cuda:0 'dense(8, activation="relu").dense(3)' 'sgd(0.1)' "$data" --epochs 8
    with_graphs 'a rate that decays with each step' cuda:0 "$mlp" \
        'rmsprop(learning_rate=exponential_decay(0.01, decay_steps=10, decay_rate=0.9))' "$data" --epochs 6
    with_graphs 'a rate that callbacks set, and validation' cuda:0 "$mlp" 'sgd(0.1)' "$data" --epochs 6 \
        --callback 'learning_rate_schedule([[0, 0.1], [2, 0.01], [4, 0.001]])' --validation "$data.take(2)"
    with_graphs 'gradients that are clipped' cuda:0 "$mlp" 'adagrad(0.01, clipnorm=0.5)' "$data" --epochs 6
    with_graphs 'gradients that are clipped together' cuda:0 "$mlp" 'adam(0.01, global_clipnorm=0.5)' "$data" --epochs 6
    with_graphs 'two replicas on one GPU' cuda:0,cuda:0 "$mlp" 'adam(0.003)' "$data" --epochs 6 --check-replicas
    with_graphs 'three GPUs' cuda:0,cuda:1,cuda:2 "$mlp" 'adam(0.003)' "$data" --epochs 6
    with_graphs 'central storage' cuda:0,cuda:1 "$mlp" 'adam(0.003)' "$data" --epochs 6 --strategy central_storage
    compare 'graphs: the losses of processors' cuda:0 "$mlp" 'adam(0.003)' "$data" --epochs 6

    # Calls for graphs alone may fail: training continues without graphs, and says so if that is requested.
    train good.log cuda:0 "$mlp" 'adam(0.003)' "$data" --epochs 4
    for call in cudaStreamBeginCapture cudaStreamEndCapture cudaGraphCreate cudaGraphAddKernelNode \
        cudaGraphAddChildGraphNode cudaGraphInstantiate cudaGraphExecKernelNodeSetParams cudaGraphLaunch \
        cudaGraphDestroy cudaGraphExecDestroy; do
        for at in 1 2 7; do
            its_turn || continue
            MR_DOUBLE_DELAY=20 MR_DOUBLE_COUNT=$dir/count MR_DOUBLE_FAIL=$call:$at \
                train gpu.log cuda:0 "$mlp" 'adam(0.003)' "$data" --epochs 4 -v
            rc=$?
            of=$(cat count)
            case $call:$at in *Destroy:*) ;; *ExecKernelNodeSetParams:*) ;; *:7) ;; *)
                grep -q 'without a CUDA graph: CUDA could not' gpu.log.err || rc=2
                ;;
            esac
            # a graph is destroyed for each piece that was captured; there may be fewer than n of the others
            [ $rc = 0 ] && cmp good.log gpu.log && ! grep -q 'cuda double:' gpu.log.err &&
                { [ "${of##* }" = "$call" ] || [ $at = 7 ]; }
            result "graphs: $call fails, number $at" $? "status $rc, $of: $(cat gpu.log.err)"
        done
    done
}

# The measurement of all-reduce, with an all_reduce_perf that prints what nccl-tests' does, and without.
sums() {
    local bench=$here/../../bench/gpu.sh programs=$build/bench rc
    "$bench" --sums '1 2' "$programs" >out 2>&1
    rc=$? # which the double makes another where something is left
    result 'bench/gpu.sh sums by NCCL, and says that nccl-tests are missing' $(
        [ $rc = 0 ] && [ "$(grep -cE '^all_reduce_[12]MiB +[0-9.]+ GB/s *$' out)" = 2 ] && grep -q "all_reduce_perf is not in PATH" out
        echo $?) "$(cat out)"
    mkdir -p nccl-tests
    cat >nccl-tests/all_reduce_perf <<'END'
#!/usr/bin/env bash
[ "$*" = '-b 1M -e 1M -g 4' ] || { echo "what is $*?"; exit 1; }
cat <<'OUT'
# nThread 1 nGpus 4 minBytes 1048576 maxBytes 1048576 step: 1048576(bytes) warmup iters: 5 iters: 20 agg iters: 1
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    31.21   33.60   50.39      0    30.88   33.96  1000.0      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 50.3900
OUT
END
    chmod +x nccl-tests/all_reduce_perf
    NCCL_TESTS=$PWD/nccl-tests "$bench" --sums 1 "$programs" >out 2>&1
    result "bench/gpu.sh puts nccl-tests' rate beside it" $(
        [ "$(wc -l <out)" = 1 ] && grep -qE '^all_reduce_1MiB +[0-9.]+ GB/s +nccl-tests 1000.00, +0 % of it$' out
        echo $?) "$(cat out)"
    NCCL_TESTS=$PWD/nccl-tests "$bench" --sums 2 "$programs" >out 2>&1
    result 'bench/gpu.sh says that nccl-tests failed' $(
        grep -q 'all_reduce_perf failed: what is -b 2M' out && grep -qE '^all_reduce_2MiB +[0-9.]+ GB/s *$' out
        echo $?) "$(cat out)"
    MR_DOUBLE_DEVICES=1 "$bench" --sums 1 "$programs" >out 2>&1
    result 'bench/gpu.sh sums nothing on one GPU' $(grep -q 'fewer than two GPUs (1)' out; echo $?) "$(cat out)"
}

faults() {
    "$here/faults.py" "$m" 45 >out 2>&1
    result 'one call or kernel that fails ends training with an error' $? "$(cat out)"
}

if [ -n "$sanitizer" ] && [ "${MR_TEST_TIER:-}" != long ] && [[ $part =~ ^(commands|faults)$ ]]; then
    echo "a hundred programs with a sanitizer: in the long run"
    rm -f "$tap"
    exit 77
fi
"$part"
finish
