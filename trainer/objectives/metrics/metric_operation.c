/* SPDX-License-Identifier: Apache-2.0 */
/* What metrics share: their operation of the table of a device. */
#include "trainer/objectives/metric_desc.h"

/* A row of the last axis is one value of the metric. */
mr_math_metric mr_metric_operation(const mr_metric_pass *p, mr_math_metric_kind kind, size_t n,
                                   size_t width)
{
    bool by_row = kind >= MR_METRIC_SPARSE && kind <= MR_METRIC_TOP_K_CATEGORICAL;
    return (mr_math_metric){.kind = kind,
                            .n = n,
                            .width = width,
                            .threshold = p->threshold,
                            .x = p->predictions->data,
                            .label_dtype = p->labels ? p->labels->dtype : MR_FLOAT32,
                            .labels = p->labels ? p->labels->data : NULL,
                            .total = p->total,
                            .weights = p->weights,
                            .values_per_weight = p->losses_per_weight * (by_row ? 1 : width)};
}
