#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Training data, checkpoints and the model in a bucket: workers of the data service read the bucket with
# their credentials, and the trainer gets its data from them.
#   BUCKET=NAME examples/s3.sh [MILLRACE]      default: build/millrace, or the installed one
#
# Writes below s3://NAME/millrace-example-TIME/, and leaves that there. Endpoint and credentials are those of the
# environment: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ... Without BUCKET, in the source tree, it starts a store on this machine:
# Ceph's object gateway (Debian: radosgw, ceph-mon, ceph-osd, ceph-common), as root; exit status 77 without it.
. "$(dirname "${BASH_SOURCE[0]}")/program.sh"
folder=$(mktemp -d)
pids=()
trap 'exec 3>&-; kill "${pids[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
cd "$folder"
begin() { # NAME COMMAND...: in the background; waits until it is ready
    local name=$1
    shift
    "$@" >"$name" 2>"$name.log" 3>&- &
    pids+=($!)
    until grep -qs '^ready ' "$name"; do
        kill -0 $! 2>/dev/null || { cat "$name.log" >&2; exit 1; }
        sleep 0.05
    done
}

if [ -z "${BUCKET:-}" ]; then
    gateway=$here/../tests/remote/gateway.py
    [ -f "$gateway" ] || { echo "s3.sh: set BUCKET to the name of a bucket to write to" >&2; exit 2; }
    # The store, which ends with its standard input, and the variables that name it: AWS_ENDPOINT_URL and keys.
    BUCKET=training
    mkfifo input
    python3 "$gateway" "$BUCKET" <input >environment 2>store.log &
    store=$!
    exec 3>input
    until grep -qs '^# ready' environment; do
        kill -0 $store 2>/dev/null || { status=0; wait $store || status=$?; echo "s3.sh: skipped: $(tail -n 1 store.log)" >&2; exit "$status"; }
        sleep 0.05
    done
    # shellcheck disable=SC1091
    . ./environment
fi
root=s3://$BUCKET/millrace-example-$(date +%Y%m%d-%H%M%S)

"$millrace" write --out "$root/data/train" --shards 4 \
    --expr 'range(400).map(i => {"a": [cast(i % 10, "float32") / 10.0], "b": [cast(i % 10, "float32") / 5.0]})'

# Workers read below their roots only.
begin dispatcher "$millrace" dispatcher --listen 127.0.0.1:0
service=$(sed -n 's/^ready //p' dispatcher)
begin worker-1 "$millrace" worker --dispatcher "$service" --root "$root/data/"
begin worker-2 "$millrace" worker --dispatcher "$service" --root "$root/data/"

# A client needs no credentials for what workers read.
data="tfrecord(\"$root/data/train-*\")"'.map(r => parse_example(r, a=float32[1], b=float32[1])).map(e => (e["a"], e["b"]))'
env -u AWS_ENDPOINT_URL -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY -u AWS_PROFILE HOME="$folder" \
    "$millrace" show "$data.distribute(\"$service\")" | wc -l | sed 's/$/ examples without credentials/'

# The trainer needs them for its checkpoints and its model.
"$millrace" train --data "$data.batch(20).distribute(\"$service\", job_name=\"fit\", seed=1)" --seed 1 --epochs 3 --log json \
    --model 'dense(1)' --loss mse --optimizer 'adam(learning_rate=0.1)' --save "$root/model" \
    --callback "checkpoint(\"$root/run/epoch_{epoch}\", keep=2)" >losses
"$millrace" checkpoints "$root/run" | awk '{ print $1 }'
"$millrace" evaluate --saved "$root/model" --data "$data.batch(20)" | grep -o 'eval_loss": [0-9.e-]*'
"$millrace" uploads "$root/" | wc -l | sed 's/$/ unfinished uploads/'
