/* SPDX-License-Identifier: Apache-2.0 */
/* -log of the probability of the labelled class. From logits x: log(sum exp x) - x[label].
 * Probabilities are first kept EPSILON away from 0 and 1 and then made to sum to 1 again, as Keras
 * does. */
#include <inttypes.h>
#include <math.h>
#include "trainer/loss_desc.h"
#include "trainer/tensor.h"

#define EPSILON 1e-7f

struct params {
    int8_t from_logits;
};

static float of_logits(const float *x, size_t width, size_t label, float scale, float *gradient)
{
    float most = -INFINITY, sum = 0;
    for (size_t j = 0; j < width; j++)
        most = x[j] > most ? x[j] : most;
    for (size_t j = 0; j < width; j++)
        sum += expf(x[j] - most);
    for (size_t j = 0; gradient && j < width; j++)
        gradient[j] = (expf(x[j] - most) / sum - (j == label)) * scale;
    return logf(sum) + most - x[label];
}

static float clip(float x)
{
    return x < EPSILON ? EPSILON : x > 1 - EPSILON ? 1 - EPSILON : x;
}

static float of_probabilities(const float *x, size_t width, size_t label, float scale,
                              float *gradient)
{
    float sum = 0;
    for (size_t j = 0; j < width; j++)
        sum += clip(x[j]);
    for (size_t j = 0; gradient && j < width; j++) {
        float p = clip(x[j]);
        gradient[j] = p == x[j] ? (1 / sum - (j == label) / p) * scale : 0;
    }
    return logf(sum) - logf(clip(x[label]));
}

static mr_code read_label(const mr__loss_pass *p, size_t i, size_t *label, mr_status *st)
{
    double v = mr__value_as_double(p->label_dtype, p->labels, i);
    if (!(v >= 0 && v < (double)p->width))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "label %.0f of row %" PRId64
                       " of the batch is not one of the %zu classes (0 to %zu) that the model "
                       "predicts",
                       v, p->first_row + (int64_t)(i / p->per_row), p->width, p->width - 1);
    *label = (size_t)v;
    return MR_OK;
}

static mr_code compute(const mr__loss_pass *p, mr_status *st)
{
    for (size_t i = 0; i < p->n; i++) {
        size_t label = 0;
        MR_TRY(read_label(p, i, &label, st));
        const float *x = p->predictions + i * p->width;
        float *g = p->gradient ? p->gradient + i * p->width : NULL;
        p->per_example[i] = p->from_logits ? of_logits(x, p->width, label, p->scale, g)
                                           : of_probabilities(x, p->width, label, p->scale, g);
    }
    return MR_OK;
}

static const mr__arg args[] = {MR__ARG(struct params, from_logits, MR__FLAG, .def = -1,
                                       .doc = "Predictions are logits, not probabilities."),
                               {0}};

const mr__loss_desc mr__loss_sparse_categorical_crossentropy = {
    .name = "sparse_categorical_crossentropy",
    .doc = "Cross-entropy of class numbers.",
    .example = "sparse_categorical_crossentropy(from_logits=true)",
    .args = args,
    .params_size = sizeof(struct params),
    .has_logits = true,
    .sparse = true,
    .probabilities = "softmax",
    .compute = compute,
};
