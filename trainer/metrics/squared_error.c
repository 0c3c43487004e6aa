/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/metric_desc.h"
#include "trainer/tensor.h"

static mr_code update(mr__metric_pass *p, mr_status *st)
{
    const float *x = p->predictions->data;
    size_t n = mr_array_row_values(p->predictions);
    if (mr_array_row_values(p->labels) != n)
        return mr_fail(st, MR_INVALID_ARGUMENT, "mse: %zu labels for %zu predictions",
                       mr_array_row_values(p->labels), n);
    for (size_t i = 0; i < n; i++) {
        double d = x[i] - mr__value_as_double(p->labels->dtype, p->labels->data, i);
        p->total += d * d;
    }
    p->count += (double)n;
    return MR_OK;
}

const mr__metric_desc mr__metric_mse = {
    .name = "mse",
    .alias = "mean_squared_error",
    .doc = "Mean squared difference of labels and predictions.",
    .needs_labels = true,
    .update = update,
};
