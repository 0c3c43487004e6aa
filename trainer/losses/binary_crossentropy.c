/* SPDX-License-Identifier: Apache-2.0 */
/* Mean over the last axis of -(z log p + (1 - z) log(1 - p)), with p = sigmoid(x) from logits x,
 * written so that no large x overflows: max(x, 0) - x z + log(1 + exp(-|x|)). Probabilities are
 * kept EPSILON away from 0 and 1, as Keras does. */
#include <math.h>
#include "trainer/loss_desc.h"

enum { CHUNK = 256 };
#define EPSILON 1e-7f

struct params {
    int8_t from_logits;
};

static float of_logit(float x, float z, float *slope)
{
    float e = expf(-fabsf(x)), p = x >= 0 ? 1 / (1 + e) : e / (1 + e);
    *slope = p - z;
    return (x > 0 ? x : 0) - x * z + log1pf(e);
}

static float of_probability(float x, float z, float *slope)
{
    float p = x < EPSILON ? EPSILON : x > 1 - EPSILON ? 1 - EPSILON : x;
    /* Where p was moved, it no longer depends on x. */
    *slope = p == x ? (p - z) / (p * (1 - p)) : 0;
    return -(z * logf(p) + (1 - z) * log1pf(-p));
}

static mr_code compute(const mr__loss_pass *p, mr_status *st)
{
    (void)st;
    float labels[CHUNK];
    float mean = 1 / (float)p->width;
    for (size_t i = 0; i < p->n; i++) {
        const float *x = p->predictions + i * p->width;
        float sum = 0;
        for (size_t from = 0; from < p->width; from += CHUNK) {
            size_t n = p->width - from < CHUNK ? p->width - from : CHUNK;
            mr__labels_to_float(p->label_dtype, p->labels, i * p->width + from, n, labels);
            for (size_t j = 0; j < n; j++) {
                float slope;
                sum += p->from_logits ? of_logit(x[from + j], labels[j], &slope)
                                      : of_probability(x[from + j], labels[j], &slope);
                if (p->gradient)
                    p->gradient[i * p->width + from + j] = slope * mean * p->scale;
            }
        }
        p->per_example[i] = sum * mean;
    }
    return MR_OK;
}

static const mr__arg args[] = {MR__ARG(struct params, from_logits, MR__FLAG, .def = -1,
                                       .doc = "Predictions are logits, not probabilities."),
                               {0}};

const mr__loss_desc mr__loss_binary_crossentropy = {
    .name = "binary_crossentropy",
    .alias = "bce",
    .doc = "Cross-entropy of labels 0 and 1.",
    .example = "binary_crossentropy(from_logits=true)",
    .args = args,
    .params_size = sizeof(struct params),
    .has_logits = true,
    .probabilities = "sigmoid",
    .compute = compute,
};
