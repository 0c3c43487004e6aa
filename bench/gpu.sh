#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rates on the first GPU, each next to a ceiling: staging next to a plain pinned copy, operations next
# to PyTorch's for the same shapes if it is installed (float32, no TF32); all-reduce over all GPUs next
# to nccl-tests' all_reduce_perf, from the directory NCCL_TESTS or PATH; then training steps.
#   bench/gpu.sh [FOLDER]            with gpu_staging, gpu_math and gpu_sums; default build/bench
#   bench/gpu.sh --sums MIB [FOLDER] only all-reduce, for example of "1 8 64" MiB
# tests/gpu.sh runs it if its libraries are found.
set -euo pipefail
sums='1 8 64' only=
if [ "${1:-}" = --sums ]; then
    sums=$2 only=1
    shift 2
fi
programs=$(cd "${1:-$(dirname "$0")/../build/bench}" && pwd)
millrace=$(command -v millrace || echo "$programs/../millrace")
export MILLRACE_CUDA_MODULE=${MILLRACE_CUDA_MODULE:-$programs/../millrace-cuda.so}

# Bus bandwidth as nccl-tests defines it, in place, on the same GPUs one after the other.
all_reduce() { # MIB...
    local gpus perf mib out
    gpus=$("$millrace" devices | grep -c '^cuda:[0-9]' || true)
    if [ "$gpus" -lt 2 ]; then
        echo "all-reduce: not measured: there are fewer than two GPUs ($gpus)"
        return
    fi
    perf=$(command -v "${NCCL_TESTS:+$NCCL_TESTS/}all_reduce_perf" || true)
    [ "$perf" ] || echo "all-reduce: nccl-tests' all_reduce_perf is not in ${NCCL_TESTS:-PATH}, so nothing stands beside it;" \
        "build https://github.com/NVIDIA/nccl-tests and set NCCL_TESTS to its folder build"
    for mib; do
        "$programs/gpu_sums" "$mib" || return
        [ "$perf" ] || continue
        out=$("$perf" -b "${mib}M" -e "${mib}M" -g "$gpus" 2>&1) || {
            echo "all-reduce: $perf failed: $(tail -n 1 <<<"$out")" >&2
            continue
        }
        awk -v name="nccl-tests:all_reduce_${mib}MiB" '$1 ~ /^[0-9]+$/ && NF >= 12 { print name, $12 }' <<<"$out"
    done | awk '/^nccl-tests:/ { sub("nccl-tests:", "", $1); theirs[$1] = $2; next }
        { name[++n] = $1; value[n] = $2; unit[n] = $3 }
        END {
            for (i = 1; i <= n; i++)
                printf "%-24s %10.2f %-10s%s\n", name[i], value[i], unit[i],
                    name[i] in theirs ? sprintf("nccl-tests %7.2f, %3.0f %% of it", theirs[name[i]], 100 * value[i] / theirs[name[i]]) : ""
        }'
}
if [ "$only" ]; then
    # shellcheck disable=SC2086
    all_reduce $sums
    exit
fi
"$programs/gpu_staging"
"$programs/gpu_math" | {
    cat
    python3 - <<'PY' 2>/dev/null || true
import time
import torch
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.deterministic = True
def rate(name, f, work, unit):
    f(); torch.cuda.synchronize(); t = time.perf_counter()
    for _ in range(20): f()
    torch.cuda.synchronize()
    print("torch:%s %.2f %s" % (name, work * 20 / (time.perf_counter() - t) / 1e9, unit))
g = dict(device="cuda")
x, w, b = torch.ones(8192, 4096, **g), torch.ones(4096, 4096, **g), torch.ones(4096, **g)
work = 2e-3 * 8192 * 4096 * 4096
rate("dense", lambda: torch.relu_(torch.addmm(b, x, w)), work, "TFLOP/s")
rate("dense_backward_data", lambda: x @ w.t(), work, "TFLOP/s")
rate("dense_backward_weights", lambda: (x.t() @ x, x.sum(0)), work, "TFLOP/s")
del x, w
c = dict(memory_format=torch.channels_last)
x, k = torch.ones(64, 64, 56, 56, **g).to(**c), torch.ones(64, 64, 3, 3, **g).to(**c)
b = torch.ones(64, **g)
work = 2e-3 * 64 * 56 * 56 * 64 * 64 * 9
rate("conv2d", lambda: torch.relu_(torch.conv2d(x, k, b, padding=1)), work, "TFLOP/s")
def back(dx, dw):
    return lambda: torch.ops.aten.convolution_backward(x, x, k, [64], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [dx, dw, dw])
rate("conv2d_backward_data", back(True, False), work, "TFLOP/s")
rate("conv2d_backward_weights", back(False, True), work, "TFLOP/s")
x = torch.ones(4096, 32000, **g); y = torch.ones_like(x); gb = 4.0 * x.numel()
rate("combine", lambda: torch.add(x, y, alpha=0.5, out=y), 3 * gb, "GB/s")
rate("softmax", lambda: torch.softmax(x, 1), 2 * gb, "GB/s")
rate("sum", lambda: x.sum(), gb, "GB/s")
PY
} | awk '/^torch:/ { sub("torch:", "", $1); torch[$1] = $2; next }
    { name[++n] = $1; value[n] = $2; unit[n] = $3 }
    END {
        for (i = 1; i <= n; i++)
            printf "%-24s %10.2f %-10s%s\n", name[i], value[i], unit[i],
                name[i] in torch ? sprintf("PyTorch %10.2f, %3.0f %% of it", torch[name[i]], 100 * value[i] / torch[name[i]]) : ""
    }'

# shellcheck disable=SC2086
all_reduce $sums

# Steps of the guide's CNN on resident batches of 256 and of 4096 images, in float32 and in mixed
# precision, with CUDA graphs and without. The time of a step is the difference of two runs; the time
# that the GPU waited for input is that of the second run. Then the part of the all-reduce time, over
# all GPUs or over two replicas on one, that overlaps with other work.
cnn='conv2d(32, 3, activation="relu").max_pool(2).flatten().dense(64, activation="relu").dense(10)'
log=$(mktemp)
trap 'rm -f "$log"' EXIT
steps() { # STEPS BATCH DEVICES FLAG...
    "$millrace" train --data "range($2).map(i => (ones([28, 28, 1]) * cast(i % 10, \"float32\"), i % 10)).batch($2).cache().repeat()" \
        --model "$cnn" --loss 'sparse_categorical_crossentropy(from_logits=true)' --optimizer 'adam(0.001)' \
        --steps "$1" --seed 1 --devices "${@:3}"
}
seconds() { # STEPS BATCH FLAG...
    local began
    began=$(date +%s.%N)
    steps "$1" "$2" cuda:0 "${@:3}" >"$log"
    date +%s.%N | awk -v b="$began" '{ print $1 - b }'
}
torch_step() { # BATCH MIXED: microseconds
    python3 - "$1" "$2" 2>/dev/null <<'PY' || true
import sys, time
import torch
from torch import nn
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.deterministic = True
n, mixed = int(sys.argv[1]), sys.argv[2] == "1"
m = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(5408, 64), nn.ReLU(), nn.Linear(64, 10)).cuda()
o, loss = torch.optim.Adam(m.parameters(), fused=True), nn.CrossEntropyLoss()
x, y = torch.ones(n, 1, 28, 28, device="cuda"), torch.arange(n, device="cuda") % 10
def step():
    o.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=mixed): l = loss(m(x), y)
    l.backward(); o.step()
for _ in range(50): step()
torch.cuda.synchronize(); t = time.perf_counter()
for _ in range(1000): step()
torch.cuda.synchronize()
print((time.perf_counter() - t) * 1e3)
PY
}
step() { # NAME BATCH PYTORCH FLAG...
    local few many steps=$((1000 + 768000 / $2))
    few=$(seconds 50 "$2" "${@:4}") many=$(seconds $((50 + steps)) "$2" "${@:4}")
    awk -v a="$few" -v b="$many" -v k=$steps -v n="$1" -v t="$3" 'BEGIN { s = (b - a) * 1e6 / k; printf "%-40s %10.1f us%s\n", n, s, t ? sprintf("  PyTorch %10.1f, %3.0f %% of its rate", t, 100 * t / s) : "" }'
    sed -n 's/.*the devices waited for data \(.*\) % of the time/    of the time the GPU waited for input: \1 %/p' "$log"
}
replicas=cuda:0,cuda:0
[ "$("$millrace" devices | grep -c '^cuda:[0-9]')" = 1 ] || replicas=cuda
for batch in 256 4096; do
    torch=$(torch_step $batch 0)
    step "CNN step of $batch" $batch "$torch"
    step "CNN step of $batch, no graphs" $batch "$torch" --no-cuda-graph
    step "CNN step of $batch, mixed precision" $batch "$(torch_step $batch 1)" --mixed-precision
    steps 300 $batch "$replicas" -v 2>&1 >/dev/null | sed -n "s/.*\(sums ran for .*\)/    on $replicas \1/p"
done
