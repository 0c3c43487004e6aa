/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/objectives/metric_desc.h"

static mr_code update(const mr_metric_pass *p, mr_status *st)
{
    size_t n = mr_array_row_values(p->predictions);
    if (mr_array_row_values(p->labels) != n)
        return mr_fail(st, MR_INVALID_ARGUMENT, "mse: %zu labels for %zu predictions",
                       mr_array_row_values(p->labels), n);
    return p->math->metric(p->stream,
                           &(mr_math_metric){.kind = MR_METRIC_SQUARED,
                                             .n = n,
                                             .width = 1,
                                             .x = p->predictions->data,
                                             .label_dtype = p->labels->dtype,
                                             .labels = p->labels->data,
                                             .total = p->total},
                           st);
}

const mr_metric_desc mr__metric_mse = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "mse",
           .alias = "mean_squared_error",
           .doc = "Mean squared difference of labels and predictions.",
           .example = "mse"},
    .needs_labels = true,
    .update = update,
};
