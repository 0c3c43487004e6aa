#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A model with two outputs that share their first layers: the quadrant of a point, and its distance from
# the origin. Each output has a separate loss, weight and metric.
#   examples/two_outputs.sh [MILLRACE]      default: build/millrace, or the installed one
. "$(dirname "${BASH_SOURCE[0]}")/program.sh"
saved=$(mktemp -d)
trap 'rm -rf "$saved"' EXIT
model='point = input(2);
h = point.dense(32, activation="relu").dense(16, activation="relu");
quarter = h.dense(4);
distance = h.dense(1)'
data='range(512).map(i => random_uniform([2], -1.0, 1.0, seed=1)).map(p => (cast(p, "float32"),
        {"quarter": (1 if p[0] > 0 else 0) + (2 if p[1] > 0 else 0),
         "distance": [cast((p[0] * p[0] + p[1] * p[1]) ** 0.5, "float32")]})).batch(32)'
"$millrace" summary "$model"
"$millrace" train --data "$data" --model "$model" --optimizer 'adam(0.01)' --epochs 30 --replicas 2 --seed 1 \
    --loss '{"quarter": sparse_categorical_crossentropy, "distance": mse}' \
    --loss-weights '{"quarter": 1.0, "distance": 2.0}' \
    --metrics quarter.accuracy,distance.mae --log json --save "$saved/model" | tail -n 1
"$millrace" predict --saved "$saved/model" --data 'from_tensor_slices([[0.5, 0.5], [-0.3, 0.4]]).map(p => cast(p, "float32")).batch(2)'
