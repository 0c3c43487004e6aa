/* SPDX-License-Identifier: Apache-2.0 */
/* m and v are running means of g and g^2;
 *   w -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)
 * (Kingma and Ba 2015, the form before their section 2.1, whose epsilon is Keras's). */
#include <math.h>
#include "trainer/objectives/optimizer_desc.h"

struct params {
    double learning_rate, beta_1, beta_2, epsilon;
};

static size_t slots(const void *params)
{
    (void)params;
    return 2;
}

static mr_code update(const mr_optimizer_step *u, mr_status *st)
{
    const struct params *o = u->params;
    double t = (double)u->iteration;
    double rate = u->learning_rate * sqrt(1 - pow(o->beta_2, t)) / (1 - pow(o->beta_1, t));
    return u->math->adam(u->stream,
                         &(mr_math_adam){.n = u->n,
                                         .rate = (float)rate,
                                         .keep_1 = (float)(1 - o->beta_1),
                                         .keep_2 = (float)(1 - o->beta_2),
                                         .epsilon = (float)o->epsilon,
                                         .g = u->gradient,
                                         .w = u->w,
                                         .m = u->slots[0],
                                         .v = u->slots[1],
                                         .skip = u->skip},
                         st);
}

static const mr_param table[] = {
    MR_PARAM(struct params, learning_rate, .def.f = 0.001, .max.f = 1e30, .doc = "Step size."),
    MR_PARAM(struct params, beta_1, .def.f = 0.9, .max.f = 0.9999999,
             .doc = "Fraction of the mean of gradients kept."),
    MR_PARAM(struct params, beta_2, .def.f = 0.999, .max.f = 0.9999999,
             .doc = "Fraction of the mean of squares kept."),
    MR_PARAM(struct params, epsilon, .def.f = 1e-7, .max.f = 1,
             .doc = "Keeps the divisor away from 0."),
    {0}};

const mr_optimizer_desc mr__optimizer_adamw = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "adamw",
           .doc = "Adam with decoupled weight decay.",
           .example = "adamw(learning_rate=0.001, weight_decay=0.004)",
           .params = table,
           .params_size = sizeof(struct params)},
    .slots = slots,
    .update = update,
    .weight_decay = 0.004,
};

const mr_optimizer_desc mr__optimizer_adam = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "adam",
           .doc = "Adam: steps scaled by running means of the gradients and of their squares.",
           .example = "adam(learning_rate=0.001)",
           .params = table,
           .params_size = sizeof(struct params)},
    .slots = slots,
    .update = update,
};
