/* SPDX-License-Identifier: Apache-2.0 */
/* How often predictions name the right class, in the three ways labels come; `accuracy` picks one
 * by shape, as Keras does: predictions of width 1 are binary, labels without an axis for the
 * classes are class numbers, others are one value a class. */
#include <inttypes.h>
#include "trainer/metric_desc.h"
#include "trainer/tensor.h"

static size_t width_of(const mr_array *a)
{
    return a->rank > 1 ? (size_t)a->shape[a->rank - 1] : 1;
}

static mr_code need_values(const mr__metric_pass *p, size_t n, mr_status *st)
{
    size_t have = mr_array_row_values(p->labels);
    if (have == n)
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "accuracy: %zu labels do not go with %zu predictions of width %zu", have,
                   mr_array_row_values(p->predictions), width_of(p->predictions));
}

static size_t largest(mr_dtype t, const void *data, size_t from, size_t width)
{
    size_t best = 0;
    double most = mr__value_as_double(t, data, from);
    for (size_t j = 1; j < width; j++) {
        double v = mr__value_as_double(t, data, from + j);
        if (v > most) {
            most = v;
            best = j;
        }
    }
    return best;
}

static mr_code sparse(mr__metric_pass *p, mr_status *st)
{
    size_t width = width_of(p->predictions);
    size_t n = width ? mr_array_row_values(p->predictions) / width : 0;
    MR_TRY(need_values(p, n, st));
    for (size_t i = 0; i < n; i++) {
        size_t best = largest(MR_FLOAT32, p->predictions->data, i * width, width);
        p->total += (double)best == mr__value_as_double(p->labels->dtype, p->labels->data, i);
    }
    p->count += (double)n;
    return MR_OK;
}

static mr_code categorical(mr__metric_pass *p, mr_status *st)
{
    size_t width = width_of(p->predictions);
    size_t n = width ? mr_array_row_values(p->predictions) / width : 0;
    MR_TRY(need_values(p, n * width, st));
    for (size_t i = 0; i < n; i++)
        p->total += largest(MR_FLOAT32, p->predictions->data, i * width, width) ==
                    largest(p->labels->dtype, p->labels->data, i * width, width);
    p->count += (double)n;
    return MR_OK;
}

static mr_code binary(mr__metric_pass *p, mr_status *st)
{
    const float *x = p->predictions->data;
    size_t n = mr_array_row_values(p->predictions);
    MR_TRY(need_values(p, n, st));
    for (size_t i = 0; i < n; i++) {
        double label = mr__value_as_double(p->labels->dtype, p->labels->data, i);
        p->total += (double)(x[i] > p->threshold) == label;
    }
    p->count += (double)n;
    return MR_OK;
}

static mr_code pick(mr__metric_pass *p, mr_status *st)
{
    const mr_array *x = p->predictions, *y = p->labels;
    if (width_of(x) == 1)
        return binary(p, st);
    if (y->rank < x->rank || y->shape[y->rank - 1] == 1)
        return sparse(p, st);
    return categorical(p, st);
}

const mr__metric_desc mr__metric_accuracy = {
    .name = "accuracy",
    .doc = "Share of examples predicted right, in the way that fits the labels' shape.",
    .needs_labels = true,
    .update = pick,
};

const mr__metric_desc mr__metric_sparse_categorical_accuracy = {
    .name = "sparse_categorical_accuracy",
    .doc = "Share of examples whose largest prediction is at the label.",
    .needs_labels = true,
    .update = sparse,
};

const mr__metric_desc mr__metric_categorical_accuracy = {
    .name = "categorical_accuracy",
    .doc = "Share of examples whose largest prediction is where the largest label is.",
    .needs_labels = true,
    .update = categorical,
};

const mr__metric_desc mr__metric_binary_accuracy = {
    .name = "binary_accuracy",
    .doc = "Share of predictions on the label's side of the threshold.",
    .needs_labels = true,
    .update = binary,
};
