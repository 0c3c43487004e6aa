#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains with two parameter servers and three workers, all on this machine: the servers keep the
# variables, the workers run steps without waiting for each other, and `millrace train` schedules the
# steps. On several machines, start each task separately, with addresses that all of them can reach and
# a token (MILLRACE_TOKEN_FILE).
#   examples/parameter_servers.sh [MILLRACE]      default: build/millrace, or the installed one
. "$(dirname "${BASH_SOURCE[0]}")/program.sh"
read -r -a port < <(python3 "$here/free_ports.py" 5)
at() { printf '"127.0.0.1:%s"' "${port[$1]}"; }
cluster="{\"ps\": [$(at 0), $(at 1)], \"worker\": [$(at 2), $(at 3), $(at 4)]}"
output=$(mktemp)
trap 'jobs -p | xargs -r kill 2>/dev/null || true; rm -f "$output"' EXIT # failed training leaves them running
for task in 'ps 0' 'ps 1' 'worker 0' 'worker 1' 'worker 2'; do
    : >"$output" # without the previous task's line
    TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"${task% *}\", \"index\": ${task#* }}}" "$millrace" server >"$output" &
    until grep -q ready "$output"; do # until it serves, or has failed
        kill -0 $!
        sleep 0.1
    done
done
TF_CONFIG="{\"cluster\": $cluster}" "$millrace" train --strategy parameter_server --epochs 3 --steps-per-epoch 100 \
    --data 'range(1200).map(i => ([cast(i % 10, "float32") / 10.0, 1.0], [cast(i % 10, "float32") / 5.0 - 1.0])).shuffle(1200).batch(60)' \
    --model 'input(2).dense(1)' --loss mse --optimizer 'sgd(learning_rate=0.1)'
wait # they end with training
