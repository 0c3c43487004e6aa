/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_MERGE_H
#define MR_TRAINER_MODEL_MERGE_H
/* Shared by layers that merge several inputs of one shape. */
#include "trainer/model/layer.h"

/* The `build` of such a layer. errors MR_INVALID_ARGUMENT: inputs of different shapes; names
 * them */
mr_code mr__merge_build(mr_layer *l, mr_status *st) MR_NODISCARD;
/* y = first * xs[0] + rest * (the sum of the others); and its gradients. */
mr_code mr__merge_linear(const mr_layer_pass *p, float first, float rest,
                         mr_status *st) MR_NODISCARD;
mr_code mr__merge_linear_backward(const mr_layer_pass *p, float first, float rest,
                                  mr_status *st) MR_NODISCARD;
#endif
