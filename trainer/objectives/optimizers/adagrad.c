/* SPDX-License-Identifier: Apache-2.0 */
/* v is the sum of all g^2, starting at initial_accumulator_value:
 *   w -= learning_rate * g / sqrt(v + epsilon) */
#include "trainer/objectives/optimizer_desc.h"

struct params {
    double learning_rate, initial_accumulator_value, epsilon;
};

static size_t slots(const void *params)
{
    (void)params;
    return 1;
}

static float slot_value(const void *params, size_t slot)
{
    (void)slot;
    return (float)((const struct params *)params)->initial_accumulator_value;
}

static mr_code update(const mr_optimizer_step *u, mr_status *st)
{
    const struct params *o = u->params;
    return u->math->adagrad(u->stream,
                            &(mr_math_adagrad){.n = u->n,
                                               .rate = (float)u->learning_rate,
                                               .epsilon = (float)o->epsilon,
                                               .g = u->gradient,
                                               .w = u->w,
                                               .v = u->slots[0],
                                               .skip = u->skip},
                            st);
}

static const mr_param table[] = {
    MR_PARAM(struct params, learning_rate, .def.f = 0.001, .max.f = 1e30, .doc = "Step size."),
    MR_PARAM(struct params, initial_accumulator_value, .def.f = 0.1, .max.f = 1e30,
             .doc = "Initial value of the sums of squares."),
    MR_PARAM(struct params, epsilon, .def.f = 1e-7, .max.f = 1,
             .doc = "Keeps the divisor away from 0."),
    {0}};

const mr_optimizer_desc mr__optimizer_adagrad = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "adagrad",
           .doc = "Steps that shrink with the sum of the gradients' squares.",
           .example = "adagrad(learning_rate=0.001)",
           .params = table,
           .params_size = sizeof(struct params)},
    .slots = slots,
    .update = update,
    .slot_value = slot_value,
};
