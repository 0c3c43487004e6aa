/* SPDX-License-Identifier: Apache-2.0 */
/* -log of the probability of the labelled class. From logits x: log(sum exp x) - x[label].
 * Probabilities are first clipped to 1e-7 from 0 and 1 and then normalised to sum 1, like in
 * Keras. */
#include "trainer/objectives/loss_desc.h"

struct params {
    mr_tri from_logits;
};

static mr_code compute(const mr_loss_pass *p, mr_status *st)
{
    return mr_loss_submit(p, p->from_logits ? MR_LOSS_SPARSE_LOGITS : MR_LOSS_SPARSE_PROBABILITIES,
                          st);
}

static const mr_param table[] = {MR_PARAM(struct params, from_logits, .def.b = true,
                                          .doc = "Predictions are logits, not probabilities."),
                                 {0}};

const mr_loss_desc mr__loss_sparse_categorical_crossentropy = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "sparse_categorical_crossentropy",
           .doc = "Cross-entropy of class numbers.",
           .example = "sparse_categorical_crossentropy(from_logits=true)",
           .params = table,
           .params_size = sizeof(struct params)},
    .has_logits = true,
    .sparse = true,
    .probabilities = "softmax",
    .compute = compute,
};
