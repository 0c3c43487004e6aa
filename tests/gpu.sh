#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What there is to run on a machine with NVIDIA GPUs.
#   tests/gpu.sh [PART...]       builds into build-gpu and tests there
#   tests/gpu.sh --bundle DIR [BUILD]
#       puts BUILD (else build-bundle, made without Criterion) into DIR, under 64 MiB, with the libraries that
#       its programs need: DIR/gpu.sh then runs on a machine of the same kind without anything to
#       install but the driver and CUDA's libraries, cuDNN's and NCCL's (of pip, or in the loader's path)
# PARTs, all of them if none is named: suites (the trainer's tests of devices, of operations and of all
# that trains), commands (the commands' tests that train), training (on GPUs against training on the
# processor, graphs against single launches, NCCL over all GPUs), processes (of several), memory
# (compute-sanitizer, where it is installed), rates (bench/gpu.sh). 77: no GPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C.UTF-8

for part; do
    [ "$1" != --bundle ] || break
    case $part in
    suites | commands | training | processes | memory | rates) ;;
    *)
        echo "gpu.sh: unknown part '$part'; the parts are suites, commands, training, processes, memory, rates" >&2
        exit 2
        ;;
    esac
done

bundle() { # DIR BUILD
    local dir=$1 build=$2 p late
    mkdir -p "$dir"/bin/{tests,bench,examples} "$dir"/tests/{cuda_double,trainer} "$dir/examples" || return 1
    . "$here/cuda_double/suites.sh"
    # shellcheck disable=SC2086
    for p in millrace millrace-train millrace-cuda.so \
        $(printf 'tests/test_trainer_%s\n' $suites $on_named | sed 's|/[^/]*$||' | sort -u) \
        tests/worker bench/gpu_staging bench/gpu_math bench/gpu_sums examples/custom_kernel_cuda; do
        [ -e "$build/$p" ] || { echo "gpu.sh: $build/$p is not built" >&2; return 1; }
        cp -L "$build/$p" "$dir/bin/$p" || return 1
    done
    (cd "$here" && cp --parents expect.sh job.sh ports.py cuda_double/suites.sh trainer/*/*.sh "$dir/tests/") || return 1
    cp "$here/../examples/free_ports.py" "$dir/examples/" || return 1
    # Of those that are opened when something first needs them, what these tests need.
    late=$(for p in libz.so.1 liburing.so.2 libprotobuf-c.so.1; do
        ldconfig -p | awk -v so="$p" '$1 == so { print $NF; exit }'
    done)
    strip "$dir"/bin/{millrace*,*/*}
    # All but the C library's own, which must be the loader's.
    # shellcheck disable=SC2086
    { printf '%s\n' $late; ldd "$dir"/bin/{millrace*,*/*} $late | awk '$3 ~ /^\// { print $3 }'; } | sort -u |
        grep -vE '/(libc|libm|libpthread|libdl|librt|libresolv)\.so' |
        tar -I 'gzip -1' -cf "$dir/lib.tar.gz" -hP --transform 's|.*/||' -T - || return 1
    tar -I 'gzip -1' -C "$dir" -cf "$dir/bin.tar.gz" bin && rm -r "$dir/bin" || return 1
    cp "$here/gpu.sh" "$dir/" && cp "$here/../bench/gpu.sh" "$dir/bench.sh" || return 1
    echo "$dir: $(du -sm "$dir" | cut -f 1) MiB"
    [ "$(du -sm "$dir" | cut -f 1)" -lt 64 ] || { echo "gpu.sh: that is more than 64 MiB" >&2; return 1; }
}

if [ "${1:-}" = --bundle ]; then
    [ -n "${2:-}" ] || { echo "gpu.sh: --bundle DIR [BUILD]: DIR is missing" >&2; exit 2; }
    dir=$(realpath -m "$2") build=${3:-}
    if [ -z "$build" ]; then
        build=$here/../build-bundle
        cmake -S "$here/.." -B "$build" -DCMAKE_BUILD_TYPE=Release -DMR_WITH_CUDA=ON -DMR_WITH_TRAINER=ON \
            -DMR_WITH_CRITERION=OFF >/dev/null && cmake --build "$build" --parallel "$(nproc)" || exit 1
    fi
    bundle "$dir" "$build"
    exit
fi

tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
if [ -e "$here/bin.tar.gz" ]; then
    tar -xzf "$here/bin.tar.gz" -C "$tmp" || exit 2
    bin=$tmp/bin bench=$here/bench.sh MR_SOURCE=$here
    mkdir "$tmp/lib" && tar -xzf "$here/lib.tar.gz" -C "$tmp/lib" || exit 2
    export LD_LIBRARY_PATH=$tmp/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
    cd "$here/.." || exit 2
    if [ ! -e /proc/driver/nvidia ] && [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
        echo "SKIPPED: there is no GPU here (no NVIDIA driver is loaded)"
        exit 77
    fi
    cmake -S . -B build-gpu -DMR_WITH_CUDA=ON -DMR_WITH_TRAINER=ON >/dev/null && cmake --build build-gpu --parallel "$(nproc)" || exit 1
    bin=$PWD/build-gpu bench=$PWD/bench/gpu.sh MR_SOURCE=$PWD
fi
export MR_SOURCE MR_BUILD=$bin
# Libraries that pip installed are next to its packages.
pip=$(python3 -c 'import glob, sys
print(":".join(sorted(d for p in sys.path for d in glob.glob(p + "/nvidia/*/lib"))))' 2>/dev/null)
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}${pip:+:$pip} PATH=$bin:$PATH
export MILLRACE_CUDA_MODULE=$bin/millrace-cuda.so # it is not next to the tests
cd "$tmp" || exit 2

"$bin/millrace" devices || exit 1
gpus=$("$bin/millrace" devices | grep -c '^cuda:[0-9]')
if [ "$gpus" = 0 ]; then
    echo "SKIPPED: there is no GPU here ($("$bin/millrace" devices | grep '^cuda:'))"
    exit 77
fi

passed=0 failed=0 skipped=0
result() { # NAME STATUS [WHY]
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "ok - $1"
    elif [ "$2" = 77 ]; then
        skipped=$((skipped + 1))
        echo "ok - $1 # SKIP ${3:-}"
    else
        failed=$((failed + 1))
        printf 'not ok - %s\n%s\n' "$1" "${3:-}"
    fi
}

# The tests of the trainer, a suite each, side by side; a suite's name ends in one way where Criterion is, in
# another where the tests' own runner is.
. "$MR_SOURCE/tests/cuda_double/suites.sh"
suite() { # NAME
    local name=${1/\//_}
    MR_TEST_DEVICES=$all MR_TEST_TIMEOUT=600 timeout 900 "$bin/tests/test_trainer_${1%/*}" --filter="trainer_$name$end" \
        >"suite.$name" 2>&1
    echo $? >"status.$name"
}
run_suites() {
    local all end='/*' s
    all=$(seq -f 'cuda:%g' -s , 0 $((gpus - 1)))
    "$bin/tests/test_trainer_device" --list | grep -q :: && end=::
    # shellcheck disable=SC2086
    for s in $suites $on_named; do
        while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
        suite "$s" &
    done
    wait
    # shellcheck disable=SC2086
    for s in $suites $on_named; do
        s=${s/\//_}
        result "suite $s: $(grep -E 'Tested:|^[0-9]+ passed' "suite.$s" | tail -n 1)" "$(cat "status.$s")" "$(grep -vE '^ok ' "suite.$s" | tail -n 60)"
    done
}

# The commands' tests that train, on all GPUs.
run_commands() {
    local s
    # shellcheck disable=SC2086
    for s in $scripts; do
        {
            "$MR_SOURCE/tests/trainer/$s.sh" "$bin/millrace" "$tmp/tap.${s/\//_}" >"script.${s/\//_}" 2>&1
            echo $? >"status.${s/\//_}"
        } &
    done
    wait
    # shellcheck disable=SC2086
    for s in $scripts; do
        s=${s/\//_}
        result "commands $s: $(grep -c '^ok' "tap.$s") passed" "$(cat "status.$s")" "$(tail -n 60 "script.$s")"
    done
}

# Training: the losses of GPUs are those of the processor.
data='range(3000).map(i => (cast([i % 7, i % 11, i % 13, i * i % 17], "float32") / 10.0, i % 3)).batch(128)'
mlp='dense(64, activation="relu").dropout(0.2).dense(32, activation="tanh").dense(3)'
images='range(1500).map(i => (reshape(sin(cumsum(ones([432])) * cast(i % 13 + 1, "float32") / 10.0), [12, 12, 3]), i * i % 17 % 3)).batch(64)'
cnn='conv2d(16, 3, activation="relu").max_pool(2).conv2d(32, 3, padding="same").batch_norm().activation("relu").conv2d(24, 1, strides=2).conv2d(16, 1).average_pool(2).flatten().dense(3)'
loss='sparse_categorical_crossentropy(from_logits=true)'
train() { # FILE DEVICES MODEL OPTIMIZER DATA [FLAG...]
    "$bin/millrace" train --data "$5" --model "$3" --loss "$loss" --optimizer "$4" --metrics accuracy --epochs 4 --seed 5 \
        --devices "$2" --log json "${@:6}" >"$1" 2>"$1.err"
}
tolerance=1e-4
alike() { # NAME: cpu.log and gpu.log
    python3 - $tolerance <<'PY' >compare.log 2>&1
import json, sys
a, b = ([json.loads(l)["loss"] for l in open(f)] for f in ("cpu.log", "gpu.log"))
assert len(a) == len(b) > 20, (len(a), len(b))
worst = max(abs(x - y) / (1 + abs(x)) for x, y in zip(a, b))
print("%d losses, largest difference %.2g; %.4f to %.4f" % (len(a), worst, a[0], a[-1]))
assert worst < float(sys.argv[1])
PY
    rc=$?
    result "$1: $(tail -n 1 compare.log)" "$rc" "$(cat compare.log)"
}
compare() { # NAME MODEL OPTIMIZER DEVICES DATA [FLAG...]
    train cpu.log cpu:0 "$2" "$3" "$5" "${@:6}" && train gpu.log "$4" "$2" "$3" "$5" "${@:6}" || {
        result "$1" 1 "$(cat cpu.log.err gpu.log.err)"
        return
    }
    alike "$1"
}
# The same command prints the same again, and without CUDA graphs, of which none failed.
repeats() { # NAME MODEL DEVICES DATA [FLAG...]
    train once.log "$3" "$2" 'adam(0.003)' "$4" -v "${@:5}" && train twice.log "$3" "$2" 'adam(0.003)' "$4" "${@:5}" &&
        train single.log "$3" "$2" 'adam(0.003)' "$4" --no-cuda-graph "${@:5}" &&
        cmp once.log twice.log >cmp.log 2>&1 && cmp once.log single.log >cmp.log 2>&1 && ! grep 'without a CUDA graph' once.log.err >cmp.log
    result "$1: the same twice, and without CUDA graphs" $? "$(cat cmp.log once.log.err single.log.err | tail -n 20)"
}
run_training() {
    local flags rc
    compare 'an MLP with Adam' "$mlp" 'adam(0.003)' cuda:0 "$data"
    compare 'an MLP with momentum' "$mlp" 'sgd(0.02, momentum=0.9)' cuda:0 "$data"
    compare 'two replicas on one GPU' "$mlp" 'adam(0.003)' cuda:0,cuda:0 "$data"
    [ "$gpus" -lt 2 ] || compare "a replica on each of $gpus GPUs" "$mlp" 'adam(0.003)' cuda "$data"
    compare 'a CNN with Adam' "$cnn" 'adam(0.0005)' cuda:0 "$images"
    compare 'a CNN with momentum, two replicas on one GPU' "${cnn/batch_norm()/batch_norm(synchronized=true)}" 'sgd(0.02, momentum=0.9)' cuda:0,cuda:0 "$images"
    for flags in '--strategy central_storage' '--cross-device-ops reduction_to_one_device'; do
        # shellcheck disable=SC2086
        compare "two replicas on one GPU, $flags" "$mlp" 'adam(0.003)' cuda:0,cuda:0 "$data" $flags
        # shellcheck disable=SC2086
        [ "$gpus" -lt 2 ] || compare "a replica on each of $gpus GPUs, $flags" "$mlp" 'adam(0.003)' cuda "$data" $flags
    done
    # What is rounded may fall to the other side of the middle between two numbers of bfloat16.
    tolerance=1e-2
    compare 'an MLP in mixed precision' "$mlp" 'adam(0.003)' cuda:0 "$data" --mixed-precision
    compare 'a CNN in mixed precision' "$cnn" 'adam(0.0005)' cuda:0 "$images" --mixed-precision
    tolerance=1e-4

    repeats 'an MLP' "$mlp" cuda:0 "$data"
    repeats 'a CNN' "$cnn" cuda:0 "$images"
    repeats 'an MLP in mixed precision' "$mlp" cuda:0 "$data" --mixed-precision
    repeats 'a CNN in mixed precision' "$cnn" cuda:0 "$images" --mixed-precision
    repeats 'two replicas on one GPU' "$mlp" cuda:0,cuda:0 "$data" --check-replicas
    repeats 'validation and a rate that decays' "$mlp" cuda:0 "$data" --validation "$data.take(2)" \
        --callback 'learning_rate_schedule([[0, 0.003], [2, 0.001]])'

    "$bin/examples/custom_kernel_cuda" cuda:0 cuda:0 cuda:0 >out 2>&1
    [ $? = 0 ] && [ "$(grep -c ': 6.4807$' out)" = 3 ]
    result "a kernel of the program's own" $? "$(cat out)"

    train gpu.log cuda:0 'dense(3)' 'sgd(0.1)' 'range(64).map(i => ([1.0, 2.0], i // 8)).batch(8)'
    rc=$?
    grep -q 'label 3 ' gpu.log.err && [ $rc = 1 ]
    result 'a label out of range is reported' $? "status $rc: $(cat gpu.log.err)"

    train gpu.log cuda:0 "$mlp" 'adam(0.003)' "$data" --trace trace.json &&
        python3 - <<'PY' >compare.log 2>&1
import json
rows = {e["args"]["name"] for e in json.load(open("trace.json"))["traceEvents"] if e["name"] == "thread_name"}
assert any("stream" in r for r in rows), rows
PY
    result 'a trace has the GPU'"'"'s stream' $? "$(cat gpu.log.err compare.log)"

    train whole.log cuda:0 "$mlp" 'adam(0.003)' "$data"
    for stop in 12 25 40; do # lines each, of the steps that are left
        : >killed.log # before the program has opened it
        "$bin/millrace" train --data "$data" --model "$mlp" --loss "$loss" --optimizer 'adam(0.003)' --metrics accuracy --epochs 4 \
            --seed 5 --devices cuda:0 --log json --callback 'backup_and_restore("backup", save_freq=5)' >killed.log 2>killed.err &
        while kill -0 $! 2>/dev/null && [ "$(wc -l <killed.log)" -lt $stop ]; do sleep 0.02; done
        kill -9 $! 2>/dev/null
        wait $! 2>/dev/null
    done
    train rest.log cuda:0 "$mlp" 'adam(0.003)' "$data" --callback 'backup_and_restore("backup", save_freq=5)' &&
        grep '"step"' rest.log | cmp - <(grep '"step"' whole.log | tail -n "$(grep -c '"step"' rest.log)") >cmp.log 2>&1
    result "training that was killed goes on, bit for bit, with $(grep -c '"step"' rest.log) steps" $? "$(cat cmp.log rest.log.err)"

    # Every GPU named, and saved by one kind of device for the other.
    train gpu.log cuda "$cnn" 'adam(0.0005)' "$images" --save saved
    "$bin/millrace" evaluate --saved saved --data "$images" --devices cpu:0 >cpu.out 2>err &&
        "$bin/millrace" evaluate --saved saved --data "$images" --devices cuda:0,cuda:0 >gpu.out 2>>err &&
        python3 - <<'PY' >compare.log 2>&1
import json
a, b = (json.load(open(f)) for f in ("cpu.out", "gpu.out"))
assert a.keys() == b.keys() and all(abs(a[k] - b[k]) < 1e-4 for k in a), (a, b)
PY
    result 'what a GPU has saved is evaluated on processors too' $? "$(cat err compare.log)"
}

# Several processes, which share the GPUs here: by the ring; by NCCL, if each has its own.
job() { # N FILE DEVICES FLAG...: the output of rank 0 in FILE
    local port n=$1 file=$2 devices=$3 i pids=() rc=0
    port=$("$MR_SOURCE/tests/ports.py")
    for ((i = 0; i < n; i++)); do
        RANK=$i WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$port train "$file$i" "${devices//%/$i}" "$mlp" 'adam(0.003)' "$data" \
            --check-replicas --peer-timeout 60 "${@:4}" &
        pids+=($!)
    done
    for i in "${pids[@]}"; do wait "$i" || rc=$?; done
    mv "${file}0" "$file"
    return $rc
}
run_processes() {
    train cpu.log cpu:0,cpu:1 "$mlp" 'adam(0.003)' "$data"
    job 2 gpu.log cuda:0
    result "two processes on one GPU sum by the ring" $? "$(cat gpu.log?.err)"
    grep -q 'share a GPU' gpu.log0.err
    result 'and say why' $? "$(cat gpu.log0.err)"
    alike 'two processes on one GPU'
    job 2 nccl.log cuda:0 --communication nccl
    rc=$?
    [ $rc = 2 ] && grep -q 'share a GPU' nccl.log0.err
    result 'NCCL is refused where processes share a GPU' $? "status $rc: $(cat nccl.log?.err)"
    if [ "$gpus" -ge 2 ]; then
        job 2 gpu.log cuda:% --communication nccl
        result 'two processes with a GPU each sum by NCCL' $? "$(cat gpu.log?.err)"
        alike 'two processes with a GPU each'
    fi
}

# Memory and races of our own kernels.
run_memory() {
    local sanitizer tool suite
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    if [ -z "$sanitizer" ]; then
        result compute-sanitizer 77 'compute-sanitizer is not installed'
        return
    fi
    # Our own kernels alone: what libraries write would not be seen by initcheck in a whole step, nor
    # what from_planes, crop and cast read of a convolution.
    check() { # TOOL LOG COMMAND...
        local tool=$1 log=$2
        shift 2
        [ "$tool" != initcheck ] ||
            set -- --kernel-name-exclude kernel_substring=from_planes --kernel-name-exclude kernel_substring=crop \
                --kernel-name-exclude kernel_substring=mr_cast "$@"
        timeout 900 "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 --kernel-name kernel_substring=mr_ \
            "$@" >"$log" 2>&1
        echo $? >"$log.status"
    }
    local end='/*' name
    "$bin/tests/test_trainer_device" --list | grep -q :: && end=::
    local some=(train --data "$data" --loss "$loss" --optimizer 'adam(0.003)' --metrics accuracy --steps 8 --devices cuda:0)
    check memcheck sanitizer.mlp "$bin/millrace" "${some[@]}" --model "$mlp" &
    check memcheck sanitizer.bf16 "$bin/millrace" "${some[@]}" --model "$mlp" --mixed-precision &
    # shellcheck disable=SC2086
    for suite in $on_named; do
        for tool in memcheck initcheck racecheck; do
            case $suite in device/math_*) ;; *) continue ;; esac
            while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
            name=${suite/\//_}
            MR_TEST_DEVICES=cuda:0 MR_TEST_TIMEOUT=900 check $tool "sanitizer.$name.$tool" \
                "$bin/tests/test_trainer_${suite%/*}" --filter="trainer_$name$end" &
        done
    done
    wait
    for suite in sanitizer.*.status; do
        suite=${suite%.status}
        result "under compute-sanitizer: ${suite#*.}" "$(cat "$suite.status")" "$(tail -n 40 "$suite")"
    done
}

run_rates() { "$bench" "$bin/bench"; }

[ $# -gt 0 ] || set -- suites commands training processes memory rates
for part; do "run_$part"; done
echo "$passed passed, $failed failed, $skipped skipped on $gpus GPU(s)"
[ $failed = 0 ]
