/* SPDX-License-Identifier: Apache-2.0 */
/* -sum of z log p over the last axis; labels z have one value per class. p = softmax(x) for logits
 * x; probabilities are normalised to sum 1 and then clipped to 1e-7 from 0 and 1, like in Keras.
 * label_smoothing s: z (1 - s) + s / classes. */
#include "trainer/objectives/loss_desc.h"

struct params {
    mr_tri from_logits;
    double label_smoothing;
};

static mr_code compute(const mr_loss_pass *p, mr_status *st)
{
    const struct params *o = p->params;
    mr_math_loss l = mr_loss_operation(p, p->from_logits ? MR_LOSS_CATEGORICAL_LOGITS
                                                         : MR_LOSS_CATEGORICAL_PROBABILITIES);
    l.smoothing = (float)o->label_smoothing;
    return p->math->loss(p->stream, &l, st);
}

static const mr_param table[] = {
    MR_PARAM(struct params, from_logits, .def.b = true,
             .doc = "Predictions are logits, not probabilities."),
    MR_PARAM(struct params, label_smoothing, .max.f = 1,
             .doc = "Fraction of each label that is spread evenly over all classes."),
    {0}};

const mr_loss_desc mr__loss_categorical_crossentropy = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "categorical_crossentropy",
           .doc = "Cross-entropy of labels with one value per class.",
           .example = "categorical_crossentropy(from_logits=true, label_smoothing=0.1)",
           .params = table,
           .params_size = sizeof(struct params)},
    .has_logits = true,
    .probabilities = "softmax",
    .compute = compute,
};
