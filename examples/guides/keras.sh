#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# "Distributed training with Keras": docs/guides.md, rows 2. Uses only the first 3000 images of
# Fashion-MNIST (Debian: dataset-fashion-mnist), so that it takes seconds.
#   examples/guides/keras.sh [BUILD]
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
images=/usr/share/datasets/fashion-mnist
if [ ! -e $images/train-images-idx3-ubyte.gz ]; then
    echo "keras: skipped, $images is not there"
    exit 0
fi
"$m" write --out all --shards 1 --idx $images/train-images-idx3-ubyte.gz $images/train-labels-idx1-ubyte.gz >/dev/null
block 2.2 "the data set as records" "/10000 records in 1 file/" "$m" write --out test --shards 1 --idx $images/t10k-images-idx3-ubyte.gz $images/t10k-labels-idx1-ubyte.gz
"$m" write --out train --shards 1 --expr 'tfrecord("all-*").take(3000)' >/dev/null
block 2.4 "the number of examples" '/"records": 3000/' "$m" inspect --json train-*
block 2.5 "scaled to [0, 1]" "[1.0, 784.0]" "$m" show --limit 1 'tfrecord("train-*").map(r => parse_example(r, image=bytes))
    .map(e => cast(decode_raw(e["image"], "uint8"), "float32") / 255.0).map(x => [max(x), cast(size(x), "float32")])'
block 2.13 "fit with callbacks, then evaluate" "/^Number of devices: 2 epoch 1: .*Learning rate for epoch 1 is 0.001 .*epoch 4: .*Learning rate for epoch 4 is 0.0001 .*Eval loss: 0\.[0-9]+, Eval accuracy: 0\.[78]/" \
    "$guides/keras" train-*.tfrecord test-*.tfrecord 5
scaled='.map(r => parse_example(r, image=bytes, label=int64)).map(e => (reshape(cast(decode_raw(e["image"], "uint8"), "float32") / 255.0, [28, 28, 1]), e["label"])).cache()'
model='conv2d(32, 3, activation="relu").max_pool(2).flatten().dense(64, activation="relu").dense(10)'
block 2.7 "the convolutional model" "/conv2d.*max_pool.*flatten.*dense.*dense_1.*parameters: 347146/" "$m" summary "$model" --input 28,28,1
block 2.8 "compile and fit, with validation after each epoch" '/"epoch": 2, "loss": 0[^}]*"accuracy": 0[^}]*"val_loss": 0[^}]*"val_accuracy": 0/' \
    "$m" train --data "tfrecord(\"train-*\")$scaled.shuffle(10000).batch(128)" --validation "tfrecord(\"test-*\").take(1000)$scaled.batch(128)" \
    --model "$model" --loss 'sparse_categorical_crossentropy(from_logits=true)' --optimizer adam --metrics accuracy \
    --replicas 2 --epochs 2 --seed 1 --log json --save saved
block 2.13 "callbacks: TensorBoard, checkpoints, a learning rate by epoch, which is printed" "/epoch 1.*Learning rate for epoch 1 is 0.001.*Learning rate for epoch 3 is 0.0001/" \
    "$m" train --data "tfrecord(\"train-*\")$scaled.batch(128)" --model "$model" --metrics accuracy --seed 1 --epochs 3 \
    --loss 'sparse_categorical_crossentropy(from_logits=true)' --optimizer adam --callback 'tensorboard("logs")' \
    --callback 'checkpoint("training_checkpoints/ckpt_{epoch}")' --callback 'learning_rate_schedule([[0, 0.001], [2, 0.0001]])' 'print_learning_rate()'
block 2.14 "the checkpoints" "/ckpt_1 .*ckpt_2 .*ckpt_3 .*latest/" "$m" checkpoints training_checkpoints
block 2.15 "the latest, evaluated" "/eval_loss\": 0.*eval_accuracy\": 0\.[78]/" "$m" evaluate --saved training_checkpoints \
    --data "tfrecord(\"test-*\").take(1000)$scaled.batch(128)"
block 2.17 "TensorBoard's files" "/events/" ls logs/train
# The loss and the accuracy of the saved model, to four decimals, on any number of replicas.
evaluate() {
    "$m" evaluate --saved saved --data "tfrecord(\"test-*\").take(1000)$scaled.batch(128)" "$@" | grep -oE '(loss|accuracy)": [0-9.]+' | cut -d ' ' -f 2 | xargs printf '%.4f '
}
evaluated=$(evaluate)
block 2.16 "evaluate: loss and accuracy" "/^0\.[0-9]{4} 0\.[78][0-9]{3}/" echo "$evaluated"
block 2.18 "the saved model" "/weights.safetensors/" ls saved
block 2.19 "loaded without a strategy" "$evaluated" evaluate
block 2.20 "loaded on replicas" "$evaluated" evaluate --replicas 3
finish
