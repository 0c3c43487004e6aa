#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# "Distributed training with TensorFlow", all strategies: docs/guides.md, rows 3.
#   examples/guides/strategies.sh [BUILD]
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
data='from_tensors(([1.0], [1.0])).repeat(100).batch(10)'
model='input(1).dense(1, kernel_initializer=constant(-0.78005905))'
fit() { # FLAG...: the losses of two epochs, and of the evaluation, to four places
    "$m" train --data "$data" --eval "$data" --model "$model" --loss mse --optimizer sgd --epochs 2 --log json "$@" |
        sed -n 's/^{"epoch": [12], "loss": \([0-9.]*\).*/\1/p; s/.*eval_loss": \(.*\)}/\1/p' | xargs printf '%.4f '
}
fit_on() { fit --strategy "$@"; }
printed='2.2552 0.9968 0.6190 '

block 3.5 "mirrored takes all devices and says which" "$printed" fit_on mirrored --devices cpu:0,cpu:1
says 'mirrored, 2 replicas on cpu:0, cpu:1'
block 3.6 "a device that is not there is named" "/cpu:0 is not a GPU|nccl/" sh -c "'$m' train --replicas 2 --cross-device-ops nccl --data '$data' --model 'dense(1)' --loss mse --optimizer sgd 2>&1; true"
for ops in hierarchical_copy reduction_to_one_device; do
    block 3.7 "cross-device ops $ops" "$printed" fit --replicas 2 --cross-device-ops $ops
    says "sums by $ops"
done
block 3.8 "a TPU is refused" "/no TPU backend/" sh -c "'$m' train --strategy tpu --data '$data' --model 'dense(1)' --loss mse --optimizer sgd 2>&1; true"
TF_CONFIG='{"cluster": {"worker": ["localhost:2222"]}, "task": {"type": "worker", "index": 0}}'
export TF_CONFIG
block 3.9 "multi_worker_mirrored, a worker alone" "$printed" fit_on multi_worker_mirrored --communication auto
block 3.10 "communication by a ring" "$printed" fit_on multi_worker_mirrored --communication ring
unset TF_CONFIG
block 3.12 "central_storage" "$printed" fit_on central_storage --replicas 2
block 3.13 "the default strategy" "$printed" fit_on default
block 3.14 "reduce of 1.0, a mirrored variable, fit on a dataset and on arrays" "default: reduce gives 1.0
mirrored variable 'variable', float32 []
  0: cpu:0  1
  1: cpu:1  1
dataset epoch 1: loss 2.2552
dataset epoch 2: loss 0.9968
evaluate: loss 0.6190
arrays epoch 1: loss 0.4406
arrays epoch 2: loss 0.1947" "$guides/arrays" mirrored 2
block 3.16 "one_device" "$printed" fit_on one_device --devices cpu:0
block 3.18 "fit and evaluate, whatever the number of replicas" "$printed" fit --replicas 4
block 3.19 "AUTO says that it took DATA" '/AUTO chose DATA/' "$m" explain --replicas 2 "$data"
block 3.21 "10 rows on 2 replicas: 5 and 5" '{"step": 0, "replicas": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]}' \
    "$m" show --replicas 2 'range(10).batch(10)'
block 3.22 "the learning rate goes with the number of replicas" "/epoch/" \
    "$m" train --data "$data" --model "$model" --loss mse --optimizer 'sgd(learning_rate=0.1)' --replicas 2
# The custom loop: 20 losses of the loop, 10 of the iterator.
loop() {
    "$guides/custom_loop" mirrored "$1" 100 >printed || return
    wc -l <printed
    awk 'BEGIN { w = 0.5; b = 0 } {
        z = w + b; d = log(1 + exp(-z)) - $1; if (d < -1e-6 || d > 1e-6) bad++
        g = 1 / (1 + exp(-z)) - 1; w -= 0.01 * g; b -= 0.01 * g
    } END { print bad ? bad " differ" : "same" }' printed
}
for replicas in 1 2 4; do
    block 3.28 "the custom loop's 30 losses on $replicas replicas" "$(printf '30\nsame')" loop $replicas
done
finish
