#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains in three processes on this machine, a chief and two workers described by TF_CONFIG, with two
# replicas each; then the same with mpirun, if it is installed. On several machines, start each task
# separately, with addresses that all of them can reach.
#   examples/multi_worker.sh [MILLRACE]      default: build/millrace, or the installed one
. "$(dirname "${BASH_SOURCE[0]}")/program.sh"
read -r a b c < <(python3 "$here/free_ports.py" 3)
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
# mpirun refuses to run as root, or with more processes than cores, unless these options allow it.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$mpirun" --oversubscribe -n 3 "${train[@]}"
