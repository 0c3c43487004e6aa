/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/objectives/metric_desc.h"

static mr_code update(const mr_metric_pass *p, mr_status *st)
{
    const mr_array *x = p->predictions;
    size_t width = x->rank > 1 ? (size_t)x->shape[x->rank - 1] : 1;
    const mr_math_metric m =
        mr_metric_operation(p, MR_METRIC_MEAN, width ? mr_array_row_values(x) / width : 0, width);
    return p->math->metric(p->stream, &m, st);
}

const mr_metric_desc mr__metric_mean = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "mean",
           .doc = "Mean of all values added.",
           .example = "mean"},
    .weighs = true,
    .update = update,
};
