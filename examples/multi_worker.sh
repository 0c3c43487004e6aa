#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains in three processes of this machine, a chief and two workers that TF_CONFIG describes, with two
# replicas each; then the same by mpirun, where there is one. On several machines each task is started on
# its own, with addresses that all can reach.
#   examples/multi_worker.sh [MILLRACE]      default: build/millrace
set -euo pipefail
millrace=${1:-$(dirname "$0")/../build/millrace}
read -r a b c < <(python3 "$(dirname "$0")/free_ports.py" 3)
cluster="{\"chief\": [\"127.0.0.1:$a\"], \"worker\": [\"127.0.0.1:$b\", \"127.0.0.1:$c\"]}"
train=("$millrace" train --replicas 2 --epochs 3 --seed 1 --check-replicas --auto-shard data
    --data 'range(1200).map(i => ([cast(i % 10, "float32") / 10.0, 1.0], [cast(i % 10, "float32") / 5.0 - 1.0])).batch(60)'
    --model 'dense(1)' --loss mse --optimizer 'sgd(learning_rate=0.1)')
task() { # TYPE INDEX
    TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"$1\", \"index\": $2}}" "${train[@]}"
}
task worker 0 &
first=$!
task worker 1 &
second=$!
task chief 0 # prints for all
wait "$first"
wait "$second"

mpirun=${MPIRUN:-mpirun}
command -v "$mpirun" >/dev/null || exit 0
# Root may not use mpirun unless it says so; more processes than cores are not what it expects either.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$mpirun" --oversubscribe -n 3 "${train[@]}"
