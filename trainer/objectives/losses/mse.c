/* SPDX-License-Identifier: Apache-2.0 */
/* Mean over the last axis of (prediction - label)^2. */
#include "trainer/objectives/loss_desc.h"

static mr_code compute(const mr_loss_pass *p, mr_status *st)
{
    return mr_loss_submit(p, MR_LOSS_MSE, st);
}

const mr_loss_desc mr__loss_mse = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "mse",
           .alias = "mean_squared_error",
           .doc = "Mean of the squared differences.",
           .example = "mse"},
    .compute = compute,
};
