#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The template for custom and distributed training: docs/guides.md, rows 1.
#   examples/guides/template.sh [BUILD]
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
block 1.1 "two models, two optimizers, train, validate, test" "/^epoch 1  loss .* accuracy .* val_loss .* val_accuracy .*epoch 3 .*test  loss 0\.[0-9]+  accuracy 0\.9/" \
    "$guides/template" mirrored 2
trained=$("$guides/template" mirrored 2)
block 1.16 "the same on one device" "$trained" "$guides/template" one_device 1
block 1.16 "the same on four replicas" "$trained" "$guides/template" mirrored 4
block 1.16 "the same under central_storage" "$trained" "$guides/template" central_storage 3
finish
