#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A functional model: two inputs pass through the same layers, and the results are compared. It learns
# whether two points are on the same side of a line.
#   examples/siamese.sh [MILLRACE]      default: build/millrace, or the installed one
. "$(dirname "${BASH_SOURCE[0]}")/program.sh"
model='left = input(2); right = input(2);
tower = dense(8, activation="tanh").dense(4, activation="tanh");
l = tower(left); r = tower(right);
multiply(l, r).concat(subtract(l, r)).dense(1)'
data='range(512).map(i => (random_uniform([2], -1.0, 1.0, seed=1),
        random_uniform([2], -1.0, 1.0, seed=2)))
    .map((a, b) => ({"left": cast(a, "float32"), "right": cast(b, "float32")},
        [1.0 if (a[0] > a[1]) == (b[0] > b[1]) else 0.0])).batch(32)'
"$millrace" summary "$model"
"$millrace" train --data "$data" --model "$model" --loss binary_crossentropy --metrics binary_accuracy \
    --optimizer 'adam(0.02)' --epochs 30 --replicas 2 --seed 1 --log json | tail -n 1
