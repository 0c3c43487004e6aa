/* SPDX-License-Identifier: Apache-2.0 */
/* precision: true positives / predicted positives. recall: true positives / positives. */
#include "trainer/objectives/metric_desc.h"

struct params {
    double thresholds;
    bool has_thresholds;
};

static mr_code count(const mr_metric_pass *p, mr_math_metric_kind kind, double *total,
                     mr_status *st)
{
    const struct params *o = p->params;
    const mr_array *x = p->predictions;
    size_t width = x->rank > 1 ? (size_t)x->shape[x->rank - 1] : 1;
    mr_math_metric m =
        mr_metric_operation(p, kind, width ? mr_array_row_values(x) / width : 0, width);
    m.sum_only = true;
    m.threshold = o->has_thresholds ? o->thresholds : p->threshold;
    m.total = total;
    return p->math->metric(p->stream, &m, st);
}

static mr_code update(const mr_metric_pass *p, const char *name, mr_math_metric_kind of,
                      mr_status *st)
{
    size_t n = mr_array_row_values(p->predictions), have = mr_array_row_values(p->labels);
    if (have != n)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %zu labels for %zu predictions", name, have,
                       n);
    MR_TRY(count(p, MR_METRIC_TRUE_POSITIVE, p->total, st));
    return count(p, of, p->total + 1, st);
}

static mr_code update_precision(const mr_metric_pass *p, mr_status *st)
{
    return update(p, "precision", MR_METRIC_PREDICTED_POSITIVE, st);
}

static mr_code update_recall(const mr_metric_pass *p, mr_status *st)
{
    return update(p, "recall", MR_METRIC_POSITIVE, st);
}

static const mr_param table[] = {
    MR_PARAM_WITH(struct params, thresholds, MR_P_OPTIONAL | MR_P_NONE,
                  .has_at = offsetof(struct params, has_thresholds),
                  .doc = "A prediction above it is positive; none: 0.5, or 0 for logits."),
    {0}};

const mr_metric_desc mr__metric_precision = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "precision",
           .doc = "Fraction of positive labels among those predicted positive.",
           .example = "precision(thresholds=0.5)",
           .params = table,
           .params_size = sizeof(struct params)},
    .needs_labels = true,
    .weighs = true,
    .update = update_precision,
};

const mr_metric_desc mr__metric_recall = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "recall",
           .doc = "Fraction of the positive labels that are predicted positive.",
           .example = "recall(thresholds=0.5)",
           .params = table,
           .params_size = sizeof(struct params)},
    .needs_labels = true,
    .weighs = true,
    .update = update_recall,
};
