#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From image files to a trained model: builds Millrace, writes Fashion-MNIST as TFRecord shards, trains
# an MLP on mirrored replicas and evaluates it; saves checkpoints, TensorBoard logs and the model.
#   examples/quickstart.sh [--data DIR] [--out DIR] [--epochs N] [--replicas N] [--seed N] [--program FILE]
# --data: directory of {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz (default: Debian's Fashion-MNIST).
# --out: output directory (default: build/quickstart). --program: use this millrace, and build nothing.
case ${1:-} in -h | --help)
    sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit
    ;;
esac
set -euo pipefail
cd "$(dirname "$0")/.."
data=/usr/share/datasets/fashion-mnist out=build/quickstart epochs=5 replicas=2 seed=1 program=
while [ $# -gt 0 ]; do
    case $1 in
    --data | --out | --epochs | --replicas | --seed | --program)
        [ $# -gt 1 ] || { echo "quickstart.sh: $1 needs a value" >&2; exit 2; }
        declare "${1#--}=$2"; shift 2 ;;
    --help) sed -n '3,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "quickstart.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
    esac
done

if [ -z "$program" ]; then
    program=build/millrace
    tests/run.sh --deps
    cmake -S . -B build -DMR_BUILD_TESTS=OFF >/dev/null
    cmake --build build --parallel "$(nproc)" --target millrace millrace-service millrace-train
fi

run() { printf '\n$ %s\n' "${*@Q}"; "$@"; }
idx() { # the file DIR/NAME, gzipped or not
    for f in "$data/$1.gz" "$data/$1"; do [ ! -e "$f" ] || { echo "$f"; return; }; done
    echo "quickstart.sh: $data/$1.gz is missing" >&2; exit 1
}
mkdir -p "$out"
for part in train t10k; do
    images=$(idx $part-images-idx3-ubyte) labels=$(idx $part-labels-idx1-ubyte)
    run "$program" write --out "$out/$part" --shards 4 --idx "$images" "$labels"
done

example='parse_example(r, image=bytes, label=int64)'
scale='e => (cast(decode_raw(e["image"], "uint8"), "float32") / 255.0, e["label"])'
read_shards() { # PART: its records as (pixels, label)
    echo "list_files(\"$out/$1-*.tfrecord\").interleave(tfrecord, cycle_length=4, block_length=16)"
}
run "$program" train \
    --data "$(read_shards train).shuffle(60000, seed=$seed).map(r => $example).map($scale).batch(128).prefetch(2)" \
    --eval "$(read_shards t10k).map(r => $example).map($scale).batch(128)" \
    --model 'flatten().dense(128, activation="relu").dense(10)' \
    --loss 'sparse_categorical_crossentropy(from_logits=true)' --optimizer 'adam(learning_rate=0.001)' \
    --metrics accuracy --replicas "$replicas" --epochs "$epochs" --seed "$seed" \
    --validation "$(read_shards t10k).take(2000).map(r => $example).map($scale).batch(128)" \
    --callback "checkpoint(\"$out/checkpoints/ckpt_{epoch}\", keep=2)" "tensorboard(\"$out/logs\")" \
    --save "$out/model"
run "$program" checkpoints "$out/checkpoints"
run "$program" summary --saved "$out/model"
printf '\nTensorBoard (pip install tensorboard) shows how it went: tensorboard --logdir %s\n' "$out/logs"
