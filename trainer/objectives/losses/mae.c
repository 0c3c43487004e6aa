/* SPDX-License-Identifier: Apache-2.0 */
/* Mean over the last axis of |prediction - label|. */
#include "trainer/objectives/loss_desc.h"

static mr_code compute(const mr_loss_pass *p, mr_status *st)
{
    return mr_loss_submit(p, MR_LOSS_MAE, st);
}

const mr_loss_desc mr__loss_mae = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "mae",
           .alias = "mean_absolute_error",
           .doc = "Mean of the absolute differences.",
           .example = "mae"},
    .compute = compute,
};
