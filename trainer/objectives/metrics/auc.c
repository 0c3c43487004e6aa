/* SPDX-License-Identifier: Apache-2.0 */
/* The area under the curve of true against false positives (ROC), or of precision against recall
 * (PR), interpolated between num_thresholds points like in Keras.
 *
 * totals: for each threshold the number of predictions above it with a positive label; then the
 * number with a negative one. */
#include <math.h>
#include <string.h>
#include "trainer/objectives/metric_desc.h"

struct params {
    int64_t num_thresholds;
    char *curve;
    mr_tri from_logits;
};

static size_t totals(const void *params)
{
    return 2 * (size_t)((const struct params *)params)->num_thresholds;
}

static mr_code update(const mr_metric_pass *p, mr_status *st)
{
    const struct params *o = p->params;
    const mr_array *x = p->predictions;
    size_t n = mr_array_row_values(x), have = mr_array_row_values(p->labels);
    size_t width = x->rank > 1 ? (size_t)x->shape[x->rank - 1] : 1;
    if (have != n)
        return mr_fail(st, MR_INVALID_ARGUMENT, "auc: %zu labels for %zu predictions", have, n);
    return p->math->curve(p->stream,
                          &(mr_math_curve){.n = n,
                                           .thresholds = (size_t)o->num_thresholds,
                                           .logits = o->from_logits == MR_DEFAULT
                                                         ? p->logits
                                                         : o->from_logits == MR_YES,
                                           .x = p->predictions->data,
                                           .label_dtype = p->labels->dtype,
                                           .labels = p->labels->data,
                                           .counts = p->total,
                                           .weights = p->weights,
                                           .values_per_weight = p->losses_per_weight * width},
                          st);
}

static double share(double a, double b)
{
    return b != 0 ? a / b : 0;
}

/* Trapezoids between neighbouring points. */
static double roc(const double *tp, const double *fp, size_t n)
{
    double area = 0;
    for (size_t i = 0; i + 1 < n; i++)
        area += (share(fp[i], fp[0]) - share(fp[i + 1], fp[0])) *
                (share(tp[i], tp[0]) + share(tp[i + 1], tp[0])) / 2;
    return area;
}

/* Between neighbours the number of true positives grows linearly with the number of predicted ones
 * (Davis and Goadrich 2006). */
static double precision_recall(const double *tp, const double *fp, size_t n)
{
    double area = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        double d = tp[i] - tp[i + 1], p = tp[i] + fp[i], q = tp[i + 1] + fp[i + 1];
        double slope = share(d, p > q ? p - q : 0), rest = tp[i + 1] - slope * q;
        double ratio = p > 0 && q > 0 ? p / q : 1;
        area += share(slope * (d + rest * log(ratio)), tp[0]);
    }
    return area;
}

static double result(const void *params, const double *counts)
{
    const struct params *o = params;
    size_t n = (size_t)o->num_thresholds;
    return strcmp(o->curve, "ROC") == 0 ? roc(counts, counts + n, n)
                                        : precision_recall(counts, counts + n, n);
}

static const char *const curves[] = {"ROC", "PR", NULL};

static const mr_param table[] = {
    MR_PARAM(struct params, num_thresholds, .def.i = 200, .min.i = 2, .max.i = 10000,
             .doc = "Points of the curve."),
    MR_PARAM(struct params, curve, .def.s = "ROC", .names = curves, .doc = "\"ROC\" or \"PR\"."),
    MR_PARAM(struct params, from_logits,
             .doc = "Predictions are logits; left out: as the loss takes them."),
    {0}};

const mr_metric_desc mr__metric_auc = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "auc",
           .doc = "Area under the curve of true against false positives.",
           .example = "auc(curve=\"PR\")",
           .params = table,
           .params_size = sizeof(struct params)},
    .needs_labels = true,
    .weighs = true,
    .update = update,
    .totals = totals,
    .result = result,
};
