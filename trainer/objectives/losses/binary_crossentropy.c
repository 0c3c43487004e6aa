/* SPDX-License-Identifier: Apache-2.0 */
/* Mean over the last axis of -(z log p + (1 - z) log(1 - p)), with p = sigmoid(x) from logits x,
 * written so that no large x overflows: max(x, 0) - x z + log(1 + exp(-|x|)). Probabilities are
 * clipped to 1e-7 from 0 and 1, like in Keras. */
#include "trainer/objectives/loss_desc.h"

struct params {
    mr_tri from_logits;
    double label_smoothing;
};

static mr_code compute(const mr_loss_pass *p, mr_status *st)
{
    const struct params *o = p->params;
    mr_math_loss l =
        mr_loss_operation(p, p->from_logits ? MR_LOSS_BINARY_LOGITS : MR_LOSS_BINARY_PROBABILITIES);
    l.smoothing = (float)o->label_smoothing;
    return p->math->loss(p->stream, &l, st);
}

static const mr_param table[] = {MR_PARAM(struct params, from_logits, .def.b = true,
                                          .doc = "Predictions are logits, not probabilities."),
                                 MR_PARAM(struct params, label_smoothing, .max.f = 1,
                                          .doc = "Moves labels towards 0.5: z (1 - s) + s / 2."),
                                 {0}};

const mr_loss_desc mr__loss_binary_crossentropy = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "binary_crossentropy",
           .alias = "bce",
           .doc = "Cross-entropy of labels 0 and 1.",
           .example = "binary_crossentropy(from_logits=true)",
           .params = table,
           .params_size = sizeof(struct params)},
    .has_logits = true,
    .probabilities = "sigmoid",
    .compute = compute,
};
