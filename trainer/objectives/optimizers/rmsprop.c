/* SPDX-License-Identifier: Apache-2.0 */
/* v is a running mean of g^2, a of g where centered:
 *   step = learning_rate * g / sqrt(v - a^2 + epsilon);  m = momentum * m + step;  w -= m */
#include "trainer/objectives/optimizer_desc.h"

struct params {
    double learning_rate, rho, momentum, epsilon;
    bool centered;
};

static size_t slots(const void *params)
{
    const struct params *o = params;
    return 1 + (size_t)o->centered + (o->momentum > 0);
}

static mr_code update(const mr_optimizer_step *u, mr_status *st)
{
    const struct params *o = u->params;
    return u->math->rmsprop(
        u->stream,
        &(mr_math_rmsprop){.n = u->n,
                           .rate = (float)u->learning_rate,
                           .keep = (float)(1 - o->rho),
                           .momentum = (float)o->momentum,
                           .epsilon = (float)o->epsilon,
                           .g = u->gradient,
                           .w = u->w,
                           .v = u->slots[0],
                           .a = o->centered ? u->slots[1] : NULL,
                           .m = o->momentum > 0 ? u->slots[1 + o->centered] : NULL,
                           .skip = u->skip},
        st);
}

static const mr_param table[] = {
    MR_PARAM(struct params, learning_rate, .def.f = 0.001, .max.f = 1e30, .doc = "Step size."),
    MR_PARAM(struct params, rho, .def.f = 0.9, .max.f = 0.9999999,
             .doc = "Fraction of the mean of squares kept."),
    MR_PARAM(struct params, momentum, .max.f = 1, .doc = "Fraction of the last step kept."),
    MR_PARAM(struct params, epsilon, .def.f = 1e-7, .max.f = 1,
             .doc = "Keeps the divisor away from 0."),
    MR_PARAM(struct params, centered,
             .doc = "Divides by the variance of the gradients instead of their mean square."),
    {0}};

const mr_optimizer_desc mr__optimizer_rmsprop = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "rmsprop",
           .doc = "Steps scaled by a running mean of the gradients' squares.",
           .example = "rmsprop(learning_rate=0.001, rho=0.9)",
           .params = table,
           .params_size = sizeof(struct params)},
    .slots = slots,
    .update = update,
};
