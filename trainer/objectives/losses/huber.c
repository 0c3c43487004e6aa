/* SPDX-License-Identifier: Apache-2.0 */
/* Mean over the last axis of e = prediction - label: e^2 / 2 up to delta, linear beyond it. */
#include "trainer/objectives/loss_desc.h"

struct params {
    double delta;
};

static mr_code compute(const mr_loss_pass *p, mr_status *st)
{
    const struct params *o = p->params;
    mr_math_loss l = mr_loss_operation(p, MR_LOSS_HUBER);
    l.delta = (float)o->delta;
    return p->math->loss(p->stream, &l, st);
}

static const mr_param table[] = {
    MR_PARAM(struct params, delta, .def.f = 1, .max.f = 1e30,
             .doc = "Difference at which the square ends and the line begins."),
    {0}};

const mr_loss_desc mr__loss_huber = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "huber",
           .doc = "Squares of small differences, absolute values of large ones.",
           .example = "huber(delta=1.0)",
           .params = table,
           .params_size = sizeof(struct params)},
    .compute = compute,
};
