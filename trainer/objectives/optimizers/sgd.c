/* SPDX-License-Identifier: Apache-2.0 */
/* w -= learning_rate * g; with momentum: m = momentum * m - learning_rate * g, w += m, and with
 * Nesterov momentum: w += momentum * m - learning_rate * g. */
#include "trainer/objectives/optimizer_desc.h"

struct params {
    double learning_rate, momentum;
    bool nesterov;
};

static size_t slots(const void *params)
{
    return ((const struct params *)params)->momentum != 0;
}

static mr_code update(const mr_optimizer_step *u, mr_status *st)
{
    const struct params *o = u->params;
    return u->math->sgd(u->stream,
                        &(mr_math_sgd){.n = u->n,
                                       .rate = (float)u->learning_rate,
                                       .momentum = (float)o->momentum,
                                       .nesterov = o->nesterov,
                                       .g = u->gradient,
                                       .w = u->w,
                                       .m = u->slots[0],
                                       .skip = u->skip},
                        st);
}

static const mr_param table[] = {
    MR_PARAM(struct params, learning_rate, .def.f = 0.01, .max.f = 1e30, .doc = "Step size."),
    MR_PARAM(struct params, momentum, .max.f = 1, .doc = "Fraction of the last step kept."),
    MR_PARAM(struct params, nesterov, .doc = "Uses Nesterov momentum."),
    {0}};

const mr_optimizer_desc mr__optimizer_sgd = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "sgd",
           .doc = "Gradient descent, optionally with momentum.",
           .example = "sgd(learning_rate=0.01, momentum=0.9)",
           .params = table,
           .params_size = sizeof(struct params)},
    .slots = slots,
    .update = update,
};
