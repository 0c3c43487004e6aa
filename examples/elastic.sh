#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains with 4 processes, then with 2, then with 3: each job continues where the previous one
# stopped, in the middle of an epoch, and the ledger shows that each epoch trained on every record once.
#   examples/elastic.sh [MILLRACE]      default: build/millrace, or the installed one
. "$(dirname "${BASH_SOURCE[0]}")/program.sh"
folder=$(mktemp -d)
trap 'jobs -p | xargs -r kill 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

# train PROCESSES STEP: ends the job when the step is printed; 0: runs to the end
train() {
    "$millrace" train --processes "$1" --elastic 12 --epochs 2 --seed 7 --ledger ledger --log json \
        --callback 'backup_and_restore("backup", save_freq=1)' \
        --data 'range(1200).shuffle(300).map(i => ([cast(i % 10, "float32") / 10.0], [cast(i % 10, "float32") / 5.0])).batch(24)' \
        --model 'input(1).dense(1)' --loss mse --optimizer 'sgd(learning_rate=0.1)' >lines 2>err &
    until [ "$2" -gt 0 ] && grep -qs "\"step\": $2," lines; do
        kill -0 $! 2>/dev/null || break # it has ended
        sleep 0.05
    done
    [ "$2" = 0 ] || kill -TERM $! 2>/dev/null || true
    wait $! || true
    echo "$1 processes: $(grep -c '"step"' lines) steps, the last one $(grep -o '"step": [0-9]*' lines | tail -1 | tr -dc 0-9)" >&2
}
train 4 30
train 2 60
train 3 0
"$millrace" why ledger 2>/dev/null | grep -o '"ordinal": [0-9]*' | sort | uniq -c |
    awk '{ times[$1]++ } END { for (n in times) print times[n] " records were trained on " n " times in 2 epochs" }'
