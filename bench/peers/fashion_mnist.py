#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the convolutional model of "Distributed training with Keras" on Fashion-MNIST, here and with
Keras on TensorFlow, with as many seeds, and compares the accuracies on the test images: the means must
agree within two standard errors of their difference.

    fashion_mnist.py MILLRACE [--seeds N] [--epochs N] [--data DIR] [--log FILE]

DIR has {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz (default: Debian's dataset-fashion-mnist). One
line is printed for each run, and appended to FILE; runs that FILE has already are not made again.
Without Keras and TensorFlow the exit status is 77."""

import argparse
import gzip
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

MODEL = 'conv2d(32, 3, activation="relu").max_pool(2).flatten().dense(64, activation="relu").dense(10)'
LOSS = "sparse_categorical_crossentropy(from_logits=true)"
BATCH = 128


def names(folder, part):
    return [os.path.join(folder, f"{part}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1")]


def ours(millrace, folder, work, seed, epochs):
    def data(part, more):
        return (
            f'tfrecord("{part}-*").map(r => parse_example(r, image=bytes, label=int64))'
            '.map(e => (reshape(cast(decode_raw(e["image"], "uint8"), "float32") / 255.0, [28, 28, 1]), e["label"]))'
            f".cache(){more}.batch({BATCH})"
        )

    for part in ("train", "t10k"):
        if not any(name.startswith(f"{part}-") for name in os.listdir(work)):
            subprocess.run(
                [millrace, "write", "--out", part, "--shards", "1", "--idx", *names(folder, part)],
                cwd=work, check=True, stdout=subprocess.DEVNULL,
            )
    out = subprocess.run(
        [millrace, "train", "--data", data("train", ".shuffle(60000)"), "--validation", data("t10k", ""),
         "--model", MODEL, "--loss", LOSS, "--optimizer", "adam", "--metrics", "accuracy", "--replicas", "1",
         "--epochs", str(epochs), "--seed", str(seed), "--log", "json"],
        cwd=work, check=True, stdout=subprocess.PIPE,
    ).stdout
    last = [json.loads(line) for line in out.splitlines() if b'"val_accuracy"' in line][-1]
    return last["val_accuracy"], last["val_loss"]


def read(folder, part):
    import numpy as np

    images, labels = (gzip.open(name).read() for name in names(folder, part))
    x = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28, 1).astype("float32") / 255.0
    return x, np.frombuffer(labels, np.uint8, offset=8).astype("int64")


def keras_s(folder, seed, epochs):
    import keras

    keras.utils.set_random_seed(seed)
    model = keras.Sequential([
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(10),
    ])
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(),
        metrics=["accuracy"],
    )
    x, y = read(folder, "train")
    model.fit(x, y, batch_size=BATCH, epochs=epochs, shuffle=True, verbose=0)
    loss, accuracy = model.evaluate(*read(folder, "t10k"), batch_size=BATCH, verbose=0)
    return accuracy, loss


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("millrace")
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    p.add_argument("--log")
    a = p.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    try:
        import keras  # noqa: F401
        import tensorflow  # noqa: F401
    except ImportError as e:
        print(f"skipped: {e}")
        return 77
    if not os.path.exists(names(a.data, "train")[0]):
        print(f"skipped: {a.data} does not have Fashion-MNIST")
        return 77
    millrace = os.path.abspath(a.millrace)
    results = {"millrace": {}, "keras": {}}
    if a.log and os.path.exists(a.log):
        for line in open(a.log):
            who, seed, epochs, accuracy, loss = line.split()
            if int(epochs) == a.epochs:
                results[who][int(seed)] = (float(accuracy), float(loss))
    with tempfile.TemporaryDirectory() as work:
        for seed in range(1, a.seeds + 1):
            for who in results:
                if seed in results[who]:
                    continue
                if who == "millrace":
                    result = ours(millrace, a.data, work, seed, a.epochs)
                else:
                    result = keras_s(a.data, seed, a.epochs)
                results[who][seed] = result
                line = f"{who} {seed} {a.epochs} {result[0]:.4f} {result[1]:.4f}"
                print(line, flush=True)
                if a.log:
                    with open(a.log, "a") as f:
                        print(line, file=f)
    means, errors = {}, {}
    for who, runs in results.items():
        accuracies = [runs[s][0] for s in range(1, a.seeds + 1)]
        means[who] = statistics.mean(accuracies)
        errors[who] = statistics.stdev(accuracies) / math.sqrt(a.seeds)
        loss = statistics.mean(runs[s][1] for s in range(1, a.seeds + 1))
        print(f"{who}: accuracy {means[who]:.4f} +- {errors[who]:.4f}, loss {loss:.4f}")
    difference = means["millrace"] - means["keras"]
    error = math.hypot(*errors.values())
    agree = abs(difference) <= 2 * error
    print(f"difference {difference:+.4f}, two standard errors {2 * error:.4f}: {'agree' if agree else 'DIFFER'}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
