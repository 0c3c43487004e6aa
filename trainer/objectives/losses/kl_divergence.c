/* SPDX-License-Identifier: Apache-2.0 */
/* Sum over the last axis of z log(z / x), both clipped to [1e-7, 1], like in Keras. */
#include "trainer/objectives/loss_desc.h"

static mr_code compute(const mr_loss_pass *p, mr_status *st)
{
    return mr_loss_submit(p, MR_LOSS_KL_DIVERGENCE, st);
}

const mr_loss_desc mr__loss_kl_divergence = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "kl_divergence",
           .alias = "kld",
           .doc =
               "Kullback-Leibler divergence of the predicted distribution from the labelled one.",
           .example = "kl_divergence"},
    .compute = compute,
};
