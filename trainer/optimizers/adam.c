/* SPDX-License-Identifier: Apache-2.0 */
/* m and v are running means of g and g^2;
 *   w -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)
 * (Kingma and Ba 2015, the form before their section 2.1, whose epsilon is Keras's). */
#include <math.h>
#include "trainer/optimizer_desc.h"

struct params {
    double learning_rate, beta_1, beta_2, epsilon;
};

static size_t slots(const void *params)
{
    (void)params;
    return 2;
}

static void update(const mr__update *u)
{
    const struct params *o = u->params;
    double t = (double)u->iteration;
    float rate = (float)(u->learning_rate * sqrt(1 - pow(o->beta_2, t)) / (1 - pow(o->beta_1, t)));
    float keep_1 = (float)(1 - o->beta_1), keep_2 = (float)(1 - o->beta_2);
    float epsilon = (float)o->epsilon;
    float *restrict m = u->slots[0], *restrict v = u->slots[1], *restrict w = u->w;
    const float *restrict g = u->gradient;
    for (size_t i = 0; i < u->n; i++) {
        m[i] += (g[i] - m[i]) * keep_1;
        v[i] += (g[i] * g[i] - v[i]) * keep_2;
        w[i] -= m[i] * rate / (sqrtf(v[i]) + epsilon);
    }
}

static const mr__arg args[] = {
    MR__ARG(struct params, learning_rate, MR__F64, .def = 0.001, .max = 1e30, .doc = "Step size."),
    MR__ARG(struct params, beta_1, MR__F64, .def = 0.9, .max = 0.9999999,
            .doc = "Share of the mean of gradients kept."),
    MR__ARG(struct params, beta_2, MR__F64, .def = 0.999, .max = 0.9999999,
            .doc = "Share of the mean of squares kept."),
    MR__ARG(struct params, epsilon, MR__F64, .def = 1e-7, .max = 1,
            .doc = "Keeps the divisor away from 0."),
    {0}};

const mr__optimizer_desc mr__optimizer_adam = {
    .name = "adam",
    .doc = "Adam: steps scaled by running means of the gradients and of their squares.",
    .example = "adam(learning_rate=0.001)",
    .args = args,
    .params_size = sizeof(struct params),
    .slots = slots,
    .update = update,
};
