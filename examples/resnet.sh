#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Trains a small ResNet on uint8 images [8, 8, 1], whose bright row is the label. The devices receive
# bytes, which the model's first layer converts to floats. Batch normalization is synchronized over all
# replicas; the learning rate follows a cosine schedule.
#   examples/resnet.sh [MILLRACE]      default: build/millrace, or the installed one
. "$(dirname "${BASH_SOURCE[0]}")/program.sh"
rows=$(for i in 0 1 2 3 4 5 6 7; do for _ in 1 2 3 4 5 6 7 8; do printf '%s, ' $i; done; done)
images() { # FIRST LAST
    echo "range($1, $2).map(i => (cast(reshape([${rows%, }] == i * 5 % 8, [8, 8, 1]), \"uint8\") * 180
        + cast(reshape(([${rows%, }] * 7 + i * 11) % 60, [8, 8, 1]), \"uint8\"), i * 5 % 8)).batch(40)"
}
conv() { echo "batch_norm(synchronized=true).activation(\"relu\").conv2d($1, 3, ${2}padding=\"same\", use_bias=false)"; }
"$millrace" train --replicas 2 --seed 1 --epochs 6 --metrics accuracy --metrics top_k \
    --data "$(images 0 400)" --eval "$(images 400 480)" \
    --model "rescaling(0.00392156862745098).conv2d(8, 3, padding=\"same\", use_bias=false)
        .residual($(conv 8 "").$(conv 8 ""))
        .residual($(conv 16 "strides=2, ").$(conv 16 ""), projection=true)
        .batch_norm(synchronized=true).activation(\"relu\").flatten().dense(8)" \
    --loss 'sparse_categorical_crossentropy(from_logits=true)' \
    --optimizer 'adamw(learning_rate=cosine_decay(0.01, 60), clipnorm=1.0)'
