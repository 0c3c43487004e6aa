#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What there is to run on a machine with NVIDIA GPUs.
#   tests/gpu.sh                 builds into build-gpu and tests there
#   tests/gpu.sh --bundle DIR [BUILD]
#       puts BUILD (else build-bundle, made without Criterion) into DIR, under 64 MiB, with the libraries that
#       its programs need: DIR/gpu.sh then runs on a machine of the same kind without anything to
#       install but the driver and CUDA's libraries, cuDNN's and NCCL's (of pip, or in the loader's path)
# Tests of devices and operations, training on GPUs against training on the CPU, NCCL over all GPUs,
# and compute-sanitizer where it is installed; ends with the rates of bench/gpu.sh. 77: no GPU.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export LC_ALL=C.UTF-8

bundle() { # DIR BUILD
    local dir=$1 build=$2 p late
    mkdir -p "$dir/bin" || return 1
    for p in millrace millrace-train millrace-cuda.so tests/test_trainer bench/gpu_staging bench/gpu_math bench/gpu_sums; do
        [ -e "$build/$p" ] || { echo "gpu.sh: $build/$p is not built" >&2; return 1; }
        cp -L "$build/$p" "$dir/bin/" || return 1
    done
    # Of those that are opened when something first needs them, what these tests need.
    late=$(for p in libz.so.1 liburing.so.2 libprotobuf-c.so.1; do
        ldconfig -p | awk -v so="$p" '$1 == so { print $NF; exit }'
    done)
    strip "$dir"/bin/*
    # All but the C library's own, which must be the loader's.
    # shellcheck disable=SC2086
    { printf '%s\n' $late; ldd "$dir"/bin/* $late | awk '$3 ~ /^\// { print $3 }'; } | sort -u |
        grep -vE '/(libc|libm|libpthread|libdl|librt|libresolv)\.so' |
        tar -I 'gzip -1' -cf "$dir/lib.tar.gz" -hP --transform 's|.*/||' -T - || return 1
    cp "$here/gpu.sh" "$dir/" && cp "$here/../bench/gpu.sh" "$dir/bench.sh" || return 1
    echo "$dir: $(du -sm "$dir" | cut -f 1) MiB"
    [ "$(du -sm "$dir" | cut -f 1)" -lt 64 ] || { echo "gpu.sh: that is more than 64 MiB" >&2; return 1; }
}

if [ "${1:-}" = --bundle ]; then
    dir=$(realpath -m "${2:?gpu.sh --bundle DIR [BUILD]}") build=${3:-}
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
if [ -d "$here/bin" ]; then
    bin=$here/bin bench=$here/bench.sh programs=$here/bin
    mkdir "$tmp/lib" && tar -xzf "$here/lib.tar.gz" -C "$tmp/lib" || exit 2
    export LD_LIBRARY_PATH=$tmp/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
    cd "$here/.." || exit 2
    if [ ! -e /proc/driver/nvidia ] && [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
        echo "SKIPPED: there is no GPU here (no NVIDIA driver is loaded)"
        exit 77
    fi
    cmake -S . -B build-gpu -DMR_WITH_CUDA=ON -DMR_WITH_TRAINER=ON >/dev/null && cmake --build build-gpu --parallel "$(nproc)" || exit 1
    bin=$PWD/build-gpu bench=$PWD/bench/gpu.sh programs=$PWD/build-gpu/bench
    export PATH=$bin/tests:$PATH
fi
# Libraries that pip installed lie beside its packages.
pip=$(python3 -c 'import glob, sys
print(":".join(sorted(d for p in sys.path for d in glob.glob(p + "/nvidia/*/lib"))))' 2>/dev/null)
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}${pip:+:$pip} PATH=$bin:$PATH
export MILLRACE_CUDA_MODULE=$bin/millrace-cuda.so # which does not lie beside the tests
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

# ---- devices and operations
all=$(seq -f 'cuda:%g' -s , 0 $((gpus - 1)))
MR_TEST_DEVICES=$all timeout 600 test_trainer --filter='trainer_@(device_streams|math_*|nccl)/*' \
    --jobs=4 >tests.log 2>&1
rc=$?
result "devices and operations: $(grep -o 'Tested:.*' tests.log | tail -n 1)" $rc "$(tail -n 60 tests.log)"

# ---- training: the losses of GPUs are those of the CPU
data='range(3000).map(i => (cast([i % 7, i % 11, i % 13, i * i % 17], "float32") / 10.0, i % 3)).batch(128)'
flags= # further ones
train() { # FILE DEVICES MODEL OPTIMIZER DATA
    # shellcheck disable=SC2086
    "$bin/millrace" train --data "$5" --model "$3" --loss 'sparse_categorical_crossentropy(from_logits=true)' \
        --optimizer "$4" --metrics accuracy --epochs 4 --seed 5 --devices "$2" $flags --log json >"$1" 2>"$1.err"
}
compare() { # NAME MODEL OPTIMIZER DEVICES DATA
    train cpu.log cpu:0 "$2" "$3" "$5" && train gpu.log "$4" "$2" "$3" "$5" || {
        result "$1" 1 "$(cat cpu.log.err gpu.log.err)"
        return
    }
    python3 - <<'PY' >compare.log 2>&1
import json
a, b = ([json.loads(l)["loss"] for l in open(f)] for f in ("cpu.log", "gpu.log"))
assert len(a) == len(b) > 20, (len(a), len(b))
worst = max(abs(x - y) / (1 + abs(x)) for x, y in zip(a, b))
print("%d losses, largest difference %.2g; %.4f to %.4f" % (len(a), worst, a[0], a[-1]))
assert worst < 1e-4
PY
    rc=$?
    result "$1: $(tail -n 1 compare.log)" $rc "$(cat compare.log)"
}
mlp='dense(64, activation="relu").dropout(0.2).dense(32, activation="tanh").dense(3)'
compare 'an MLP with Adam' "$mlp" 'adam(0.003)' cuda:0 "$data"
compare 'an MLP with momentum' "$mlp" 'sgd(0.02, momentum=0.9)' cuda:0 "$data"
compare 'two replicas on one GPU' "$mlp" 'adam(0.003)' cuda:0,cuda:0 "$data"
[ "$gpus" -lt 2 ] || compare "a replica on each of $gpus GPUs" "$mlp" 'adam(0.003)' cuda "$data"
images='range(1500).map(i => (reshape(sin(cumsum(ones([432])) * cast(i % 13 + 1, "float32") / 10.0), [12, 12, 3]), i * i % 17 % 3)).batch(64)'
cnn='conv2d(16, 3, activation="relu").max_pool(2).conv2d(32, 3, padding="same").batch_norm().activation("relu").conv2d(24, 1, strides=2).conv2d(16, 1).average_pool(2).flatten().dense(3)'
compare 'a CNN with Adam' "$cnn" 'adam(0.0005)' cuda:0 "$images"
compare 'a CNN with momentum, two replicas on one GPU' "${cnn/batch_norm()/batch_norm(synchronized=true)}" 'sgd(0.02, momentum=0.9)' cuda:0,cuda:0 "$images"
train once.log cuda:0 "$cnn" 'adam(0.003)' "$images" && train twice.log cuda:0 "$cnn" 'adam(0.003)' "$images"
cmp once.log twice.log >compare.log 2>&1
result 'the same command twice prints the same, of a CNN too' $? "$(cat compare.log)"
for flags in '--strategy central_storage' '--cross-device-ops reduction_to_one_device'; do
    compare "two replicas on one GPU, $flags" "$mlp" 'adam(0.003)' cuda:0,cuda:0 "$data"
    [ "$gpus" -lt 2 ] || compare "a replica on each of $gpus GPUs, $flags" "$mlp" 'adam(0.003)' cuda "$data"
done
flags=
kernel=$(ls "$bin/custom_kernel_cuda" "$bin/examples/custom_kernel_cuda" 2>/dev/null | head -n 1)
if [ "$kernel" ]; then
    "$kernel" cuda:0 cuda:0 cuda:0 >out 2>&1
    [ $? = 0 ] && [ "$(grep -c ': 6.4807$' out)" = 3 ]
    result "a kernel of the program's own" $? "$(cat out)"
fi
train once.log cuda:0 "$mlp" 'adam(0.003)' "$data" && train twice.log cuda:0 "$mlp" 'adam(0.003)' "$data"
cmp once.log twice.log >compare.log 2>&1
result 'the same command twice prints the same' $? "$(cat compare.log)"

"$bin/millrace" train --data 'range(64).map(i => ([1.0, 2.0], i // 8)).batch(8)' --model 'dense(3)' \
    --loss 'sparse_categorical_crossentropy(from_logits=true)' --optimizer 'sgd(0.1)' --devices cuda:0 >out 2>err
rc=$?
grep -q 'label 3 ' err && [ $rc = 1 ]
result 'a label out of range is reported' $? "status $rc: $(cat err)"

# ---- memory and races of our own kernels
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$sanitizer" ]; then
    # Our own kernels alone: what libraries write would not be seen by initcheck in a whole step, nor
    # what from_planes and crop read of a convolution.
    check() { # TOOL COMMAND...
        local tool=$1
        shift
        [ $tool != initcheck ] ||
            set -- --kernel-name-exclude kernel_substring=from_planes --kernel-name-exclude kernel_substring=crop "$@"
        timeout 600 "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 --kernel-name kernel_substring=mr_ \
            "$@" >sanitizer.log 2>&1
    }
    check memcheck "$bin/millrace" train --data "$data" --model "$mlp" --loss 'sparse_categorical_crossentropy(from_logits=true)' \
        --optimizer 'adam(0.003)' --metrics accuracy --steps 3 --devices cuda:0
    result 'training under compute-sanitizer memcheck' $? "$(tail -n 40 sanitizer.log)"
    for tool in memcheck initcheck racecheck; do
        MR_TEST_DEVICES=cuda:0 MR_TEST_TIMEOUT=600 check $tool "$(command -v test_trainer)" --filter='trainer_math_*/*' --jobs=4
        result "operations under compute-sanitizer $tool" $? "$(tail -n 40 sanitizer.log)"
    done
else
    result compute-sanitizer 77 'compute-sanitizer is not installed'
fi

"$bench" "$programs"
echo "$passed passed, $failed failed, $skipped skipped on $gpus GPU(s)"
[ $failed = 0 ]
