#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# "Custom training loops with tf.distribute.Strategy": docs/guides.md, rows 0.
#   examples/guides/custom_loops.sh [BUILD]
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The expected losses of the steps, from the first weight on: w and b of one unit, label 1, feature 1.
losses() { # STEPS L2
    awk -v n="$1" -v l2="$2" 'BEGIN {
        w = 0.5; b = 0
        for (i = 0; i < n; i++) {
            z = w + b
            printf "%.7f\n", log(1 + exp(-z)) + l2 * w * w
            g = 1 / (1 + exp(-z)) - 1
            w -= 0.01 * (g + 2 * l2 * w); b -= 0.01 * g
        }
    }'
}
# same STEPS L2 PROGRAM...: prints the number of losses, and "same" if they differ by less than 1e-6
same() {
    local steps=$1 l2=$2
    shift 2
    "$@" >printed || return
    losses "$steps" "$l2" >wanted
    wc -l <printed
    paste printed wanted | awk '{ d = $1 - $2; if (d < -1e-6 || d > 1e-6) bad++ }
        END { print bad ? bad " differ" : "same" }'
}

block 0.1 "a model and an optimizer under a strategy" "/mirrored, 2 replicas.*/" \
    sh -c "'$m' train --strategy mirrored --replicas 2 --model 'input(1).dense(1, kernel_regularizer=l2(0.0001))' --optimizer sgd \
        --loss 'binary_crossentropy(from_logits=true)' --data 'from_tensors(([1.0], [1.0])).repeat(1000).batch(10)' 2>&1"
block 0.2 "the dataset, distributed" '{"step": 0, "replicas": [{"0": [[1.0], [1.0]], "1": [[1.0], [1.0]]}, {"0": [[1.0], [1.0]], "1": [[1.0], [1.0]]}]}' \
    "$m" show --replicas 2 --limit 1 'from_tensors(([1.0], [1.0])).repeat(1000).batch(4)'
for replicas in 1 2 3 5; do
    block 0.8 "200 losses of the loop, then 10 of the iterator, on $replicas replicas" "$(printf '210\nsame')" \
        same 210 0.0001 "$guides/custom_loop" mirrored $replicas 1000 0.0001
done
block 0.11 "a generator and a discriminator" "/^mean [23]\\.[0-9]+, deviation 0\\.[0-9]+/" "$guides/gan" 2
block 0.15 "the same under central_storage" "$(printf '210\nsame')" same 210 0.0001 "$guides/custom_loop" central_storage 2 1000 0.0001
block 0.14 "the same in three processes" "/3 workers by TF_CONFIG, 6 replicas in sync.*epoch 3/" sh -c "bash '$root/examples/multi_worker.sh' '$m' 2>&1"
# two: the loop in two processes
two() {
    local a b first
    read -r a b < <(python3 "$root/examples/free_ports.py" 2)
    one() {
        TF_CONFIG="{\"cluster\": {\"worker\": [\"127.0.0.1:$a\", \"127.0.0.1:$b\"]}, \"task\": {\"type\": \"worker\", \"index\": $1}}" \
            "$guides/custom_loop" multi_worker_mirrored 1 100
    }
    one 1 >of_worker_1 &
    first=$!
    one 0 && wait $first && cmp -s of_worker_1 printed
}
block 0.16 "30 losses in two processes, which print the same" "$(printf '30\nsame')" same 30 0 two
export TF_CONFIG='{"cluster": {"worker": ["localhost:1", "localhost:2", "localhost:3"], "ps": ["localhost:4", "localhost:5"]}, "task": {"type": "worker", "index": 1}}'
block 0.17 "TF_CONFIG says which share of the data this task has" '{"step": 0, "replicas": [[2, 3]]}' \
    "$m" show --replicas 1 --limit 1 --auto-shard data 'range(12).batch(6)'
unset TF_CONFIG
finish
