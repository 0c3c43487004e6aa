/* SPDX-License-Identifier: Apache-2.0 */
/* How often predictions name the right class, for three kinds of labels; `accuracy` selects one by
 * shape, like Keras: predictions of width 1 are binary, labels without a class axis are class
 * numbers, others have one value per class. */
#include "trainer/objectives/metric_desc.h"

static size_t width_of(const mr_array *a)
{
    return a->rank > 1 ? (size_t)a->shape[a->rank - 1] : 1;
}

static mr_code need_values(const mr_metric_pass *p, size_t n, mr_status *st)
{
    size_t have = mr_array_row_values(p->labels);
    if (have == n)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "%s: %zu labels do not match %zu predictions of width %zu", p->name, have,
                   mr_array_row_values(p->predictions), width_of(p->predictions));
}

static mr_code count(const mr_metric_pass *p, mr_math_metric_kind kind, size_t n, size_t width,
                     mr_status *st)
{
    const mr_math_metric m = mr_metric_operation(p, kind, n, width);
    return p->math->metric(p->stream, &m, st);
}

static mr_code sparse(const mr_metric_pass *p, mr_status *st)
{
    size_t width = width_of(p->predictions);
    size_t n = width ? mr_array_row_values(p->predictions) / width : 0;
    MR_TRY(need_values(p, n, st));
    return count(p, MR_METRIC_SPARSE, n, width, st);
}

static mr_code categorical(const mr_metric_pass *p, mr_status *st)
{
    size_t width = width_of(p->predictions);
    size_t n = width ? mr_array_row_values(p->predictions) / width : 0;
    MR_TRY(need_values(p, n * width, st));
    return count(p, MR_METRIC_CATEGORICAL, n, width, st);
}

static mr_code binary(const mr_metric_pass *p, mr_status *st)
{
    size_t n = mr_array_row_values(p->predictions), width = width_of(p->predictions);
    MR_TRY(need_values(p, n, st));
    return count(p, MR_METRIC_BINARY, width ? n / width : 0, width, st);
}

static mr_code pick(const mr_metric_pass *p, mr_status *st)
{
    const mr_array *x = p->predictions, *y = p->labels;
    if (width_of(x) == 1)
        return binary(p, st);
    if (y->rank < x->rank || y->shape[y->rank - 1] == 1)
        return sparse(p, st);
    return categorical(p, st);
}

const mr_metric_desc mr__metric_accuracy = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "accuracy",
           .doc =
               "Fraction of examples predicted correctly, in the way that fits the labels' shape.",
           .example = "accuracy"},
    .needs_labels = true,
    .weighs = true,
    .update = pick,
};

const mr_metric_desc mr__metric_sparse_categorical_accuracy = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "sparse_categorical_accuracy",
           .doc = "Fraction of examples whose largest prediction is at the label.",
           .example = "sparse_categorical_accuracy"},
    .needs_labels = true,
    .weighs = true,
    .update = sparse,
};

const mr_metric_desc mr__metric_categorical_accuracy = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "categorical_accuracy",
           .doc = "Fraction of examples whose largest prediction is where the largest label is.",
           .example = "categorical_accuracy"},
    .needs_labels = true,
    .weighs = true,
    .update = categorical,
};

const mr_metric_desc mr__metric_binary_accuracy = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "binary_accuracy",
           .doc = "Fraction of predictions on the label's side of the threshold.",
           .example = "binary_accuracy"},
    .needs_labels = true,
    .weighs = true,
    .update = binary,
};
