/* SPDX-License-Identifier: Apache-2.0 */
/* w -= learning_rate * g; with momentum: m = momentum * m - learning_rate * g, w += m, and with
 * Nesterov's look ahead: w += momentum * m - learning_rate * g. */
#include "trainer/optimizer_desc.h"

struct params {
    double learning_rate, momentum;
    bool nesterov;
};

static size_t slots(const void *params)
{
    return ((const struct params *)params)->momentum != 0;
}

static void update(const mr__update *u)
{
    const struct params *o = u->params;
    float rate = (float)u->learning_rate, momentum = (float)o->momentum;
    if (momentum == 0) {
        for (size_t i = 0; i < u->n; i++)
            u->w[i] -= rate * u->gradient[i];
        return;
    }
    float *restrict m = u->slots[0], *restrict w = u->w;
    const float *restrict g = u->gradient;
    for (size_t i = 0; i < u->n; i++)
        m[i] = momentum * m[i] - rate * g[i];
    if (o->nesterov)
        for (size_t i = 0; i < u->n; i++)
            w[i] += momentum * m[i] - rate * g[i];
    else
        for (size_t i = 0; i < u->n; i++)
            w[i] += m[i];
}

static const mr__arg args[] = {
    MR__ARG(struct params, learning_rate, MR__F64, .def = 0.01, .max = 1e30, .doc = "Step size."),
    MR__ARG(struct params, momentum, MR__F64, .max = 1, .doc = "Share of the last step kept."),
    MR__ARG(struct params, nesterov, MR__BOOL, .doc = "Looks ahead along the momentum."),
    {0}};

const mr__optimizer_desc mr__optimizer_sgd = {
    .name = "sgd",
    .doc = "Gradient descent, with momentum if asked.",
    .example = "sgd(learning_rate=0.01, momentum=0.9)",
    .args = args,
    .params_size = sizeof(struct params),
    .slots = slots,
    .update = update,
};
