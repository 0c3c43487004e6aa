#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains with two parameter servers and three workers, all on this machine: the servers keep the
# variables, the workers run steps without waiting for each other, and `millrace train` schedules the
# steps. On several machines, start each task separately, with addresses that all of them can reach and
# a token (MILLRACE_TOKEN_FILE).
#   examples/parameter_servers.sh [MILLRACE]      default: build/millrace
case ${1:-} in -h | --help)
    sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit
    ;;
esac
set -euo pipefail
millrace=${1:-$(dirname "$0")/../build/millrace}
read -r -a port < <(python3 "$(dirname "$0")/free_ports.py" 5)
at() { printf '"127.0.0.1:%s"' "${port[$1]}"; }
cluster="{\"ps\": [$(at 0), $(at 1)], \"worker\": [$(at 2), $(at 3), $(at 4)]}"
said=$(mktemp)
trap 'jobs -p | xargs -r kill 2>/dev/null || true; rm -f "$said"' EXIT # where training fails, it leaves them
for task in 'ps 0' 'ps 1' 'worker 0' 'worker 1' 'worker 2'; do
    : >"$said" # not what the one before it said
    TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"${task% *}\", \"index\": ${task#* }}}" "$millrace" server >"$said" &
    until grep -q ready "$said"; do # it serves, or it has failed
        kill -0 $!
        sleep 0.1
    done
done
TF_CONFIG="{\"cluster\": $cluster}" "$millrace" train --strategy parameter_server --epochs 3 --steps-per-epoch 100 \
    --data 'range(1200).map(i => ([cast(i % 10, "float32") / 10.0, 1.0], [cast(i % 10, "float32") / 5.0 - 1.0])).shuffle(1200).batch(60)' \
    --model 'input(2).dense(1)' --loss mse --optimizer 'sgd(learning_rate=0.1)'
wait # they end with training
