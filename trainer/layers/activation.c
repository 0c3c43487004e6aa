/* SPDX-License-Identifier: Apache-2.0 */
/* An activation function by itself; softmax goes along the last axis. */
#include <string.h>
#include "trainer/layer.h"

struct params {
    const mr__activation *activation;
};

static size_t width_of(const mr__layer *l)
{
    return l->in.rank > 0 ? (size_t)l->in.shape[l->in.rank - 1] : 1;
}

static mr_code forward(const mr__pass *p, mr_status *st)
{
    (void)st;
    const struct params *o = p->layer->params;
    size_t n = p->rows * mr__dims_values(&p->layer->in), width = width_of(p->layer);
    memcpy(p->y, p->x, n * sizeof(float));
    if (o->activation->forward && n > 0)
        o->activation->forward(p->y, n / width, width);
    return MR_OK;
}

static mr_code backward(const mr__pass *p, mr_status *st)
{
    (void)st;
    const struct params *o = p->layer->params;
    size_t n = p->rows * mr__dims_values(&p->layer->in), width = width_of(p->layer);
    if (!p->dx)
        return MR_OK;
    memcpy(p->dx, p->dy, n * sizeof(float));
    if (o->activation->backward && n > 0)
        o->activation->backward(p->y, p->dx, n / width, width);
    return MR_OK;
}

static mr_code build(mr__layer *l, mr_status *st)
{
    (void)st;
    l->out = l->in;
    return MR_OK;
}

static const mr__arg args[] = {
    MR__ARG(struct params, activation, MR__ACTIVATION, .required = true, .doc = "The function."),
    {0}};

const mr__layer_desc mr__layer_activation = {
    .name = "activation",
    .doc = "Applies an activation function.",
    .example = "input(4).dense(8).activation(\"relu\").dense(1)",
    .args = args,
    .params_size = sizeof(struct params),
    .build = build,
    .forward = forward,
    .backward = backward,
};
