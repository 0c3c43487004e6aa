/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/objectives/metric_desc.h"

static mr_code update(const mr_metric_pass *p, mr_status *st)
{
    return p->math->metric(p->stream,
                           &(mr_math_metric){.kind = MR_METRIC_MEAN,
                                             .n = mr_array_row_values(p->predictions),
                                             .width = 1,
                                             .x = p->predictions->data,
                                             .label_dtype = MR_FLOAT32,
                                             .total = p->total},
                           st);
}

const mr_metric_desc mr__metric_mean = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "mean",
           .doc = "Mean of all values added.",
           .example = "mean"},
    .update = update,
};
