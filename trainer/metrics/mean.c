/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/metric_desc.h"

static mr_code update(mr__metric_pass *p, mr_status *st)
{
    (void)st;
    const float *x = p->predictions->data;
    size_t n = mr_array_row_values(p->predictions);
    for (size_t i = 0; i < n; i++)
        p->total += x[i];
    p->count += (double)n;
    return MR_OK;
}

const mr__metric_desc mr__metric_mean = {
    .name = "mean",
    .doc = "Mean of all values added.",
    .update = update,
};
