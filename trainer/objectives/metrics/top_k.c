/* SPDX-License-Identifier: Apache-2.0 */
/* How often the labelled class is among the k largest predictions. Labels are class numbers, or
 * have one value per class, the largest of which is used. */
#include "trainer/objectives/metric_desc.h"

struct params {
    int64_t k;
};

static mr_code update(const mr_metric_pass *p, mr_status *st)
{
    const struct params *o = p->params;
    const mr_array *x = p->predictions;
    size_t values = mr_array_row_values(x), have = mr_array_row_values(p->labels);
    size_t width = x->rank > 1 ? (size_t)x->shape[x->rank - 1] : 1, n = width ? values / width : 0;
    if (have != n && have != values)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "top_k: %zu labels do not match %zu predictions of width %zu", have, values,
                       width);
    mr_math_metric m =
        mr_metric_operation(p, have == n ? MR_METRIC_TOP_K : MR_METRIC_TOP_K_CATEGORICAL, n, width);
    m.k = (size_t)o->k;
    return p->math->metric(p->stream, &m, st);
}

static const mr_param table[] = {MR_PARAM(struct params, k, .def.i = 5, .min.i = 1,
                                          .max.i = 1 << 24,
                                          .doc = "Number of predictions that count."),
                                 {0}};

const mr_metric_desc mr__metric_top_k = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "top_k",
           .doc = "Fraction of examples whose label is among the k largest predictions.",
           .example = "top_k(k=3)",
           .params = table,
           .params_size = sizeof(struct params)},
    .needs_labels = true,
    .weighs = true,
    .update = update,
};
