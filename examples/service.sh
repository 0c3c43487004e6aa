#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The data service on this machine: a dispatcher and two workers feed quickstart.sh's trainer. One
# worker is killed during training, and every loss still equals that of the run without a service.
#   examples/service.sh [--data DIR] [--out DIR] [--epochs N] [--seed N] [--program FILE]
# --data: directory of {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz (default: Debian's Fashion-MNIST).
# --out: directory for the shards, the account and the logs (default: build/service). --program: use this
# millrace; installs and builds nothing.
case ${1:-} in -h | --help)
    sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit
    ;;
esac
set -euo pipefail
cd "$(dirname "$0")/.."
data=/usr/share/datasets/fashion-mnist out=build/service epochs=2 seed=1 program=
while [ $# -gt 0 ]; do
    case $1 in
    --data | --out | --epochs | --seed | --program)
        [ $# -gt 1 ] || { echo "service.sh: $1 needs a value" >&2; exit 2; }
        declare "${1#--}=$2"; shift 2 ;;
    --help) sed -n '3,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "service.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
    esac
done
if [ -z "$program" ]; then
    program=build/millrace
    tests/run.sh --deps
    cmake -S . -B build -DMR_BUILD_TESTS=OFF >/dev/null
    cmake --build build --parallel "$(nproc)" --target millrace millrace-service millrace-train
fi
mkdir -p "$out"
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait' EXIT
run() { printf '\n$ %s\n' "${*@Q}"; "$@"; }
begin() { # NAME COMMAND...: in the background; waits until it is ready, its address is $address
    local name=$1
    shift
    printf '\n$ %s &\n' "${*@Q}"
    : >"$out/$name"
    "$@" >"$out/$name" 2>"$out/$name.log" &
    pids+=($!)
    until grep -qs '^ready ' "$out/$name"; do
        kill -0 $! 2>/dev/null || { cat "$out/$name.log" >&2; exit 1; }
        sleep 0.05
    done
    address=$(sed -n 's/^ready //p' "$out/$name")
}
train() { # SERVICE: its losses, as JSON
    local example='parse_example(r, image=bytes, label=int64)'
    local scale='e => (cast(decode_raw(e["image"], "uint8"), "float32") / 255.0, e["label"])'
    "$program" train --log json --seed "$seed" --epochs "$epochs" --metrics accuracy \
        --data "tfrecord(\"$out/train-*.tfrecord\").shuffle(10000, seed=$seed).map(r => $example).map($scale).batch(128)
            .distribute(\"$1\", job_name=\"fit\", seed=$seed).prefetch(2)" \
        --model 'flatten().dense(128, activation="relu").dense(10)' \
        --loss 'sparse_categorical_crossentropy(from_logits=true)' --optimizer 'adam(learning_rate=0.001)'
}
losses() { grep -o '"step": [0-9]*,.*"loss": [-+.e0-9]*' "$1"; }

run "$program" write --out "$out/train" --shards 8 --idx "$data/train-images-idx3-ubyte.gz" "$data/train-labels-idx1-ubyte.gz"
begin dispatcher "$program" dispatcher --listen 127.0.0.1:0
service=$address
begin worker-1 "$program" worker --dispatcher "$service"
worker=$!
begin worker-2 "$program" worker --dispatcher "$service"

printf '\ntraining without a service, and then from it\n'
train local >"$out/local.json"
: >"$out/service.json"
train "$service" >"$out/service.json" 2>"$out/client.log" &
trainer=$!
until [ "$(losses "$out/service.json" | wc -l)" -ge 2 ]; do kill -0 $trainer || break; sleep 0.02; done
printf '\n$ kill -9 %s    # worker-1, at step %s\n' "$worker" "$(losses "$out/service.json" | wc -l)"
{ kill -9 "$worker"; wait "$worker"; } 2>/dev/null || true
wait $trainer
cat "$out/client.log"
losses "$out/local.json" >"$out/local"
losses "$out/service.json" >"$out/service"
steps=$(wc -l <"$out/local")
[ "$steps" -gt 0 ] && cmp "$out/local" "$out/service"
printf '\nthe losses of all %s steps are equal; the last one: %s\n' "$steps" "$(tail -n 1 "$out/service")"
