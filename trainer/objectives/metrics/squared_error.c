/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/objectives/metric_desc.h"

static mr_code update(const mr_metric_pass *p, mr_status *st)
{
    const mr_array *x = p->predictions;
    size_t n = mr_array_row_values(x), width = x->rank > 1 ? (size_t)x->shape[x->rank - 1] : 1;
    if (mr_array_row_values(p->labels) != n)
        return mr_fail(st, MR_INVALID_ARGUMENT, "mse: %zu labels for %zu predictions",
                       mr_array_row_values(p->labels), n);
    const mr_math_metric m =
        mr_metric_operation(p, MR_METRIC_SQUARED, width ? n / width : 0, width);
    return p->math->metric(p->stream, &m, st);
}

const mr_metric_desc mr__metric_mse = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "mse",
           .alias = "mean_squared_error",
           .doc = "Mean squared difference of labels and predictions.",
           .example = "mse"},
    .needs_labels = true,
    .weighs = true,
    .update = update,
};
