/* SPDX-License-Identifier: Apache-2.0 */
/* y = activation(x kernel + bias), over the last axis of x: an input [a, b] gives [a, units].
 *
 *   x      [m, k]   m = rows * leading dimensions, k = last dimension
 *   kernel [k, n]   n = units
 *   y, dy  [m, n] */
#include <string.h>
#include "trainer/cpu/matmul.h"
#include "trainer/layer.h"

struct params {
    int64_t units;
    const mr__activation *activation;
    bool use_bias;
    mr_initializer kernel_initializer, bias_initializer;
    mr_regularizer kernel_regularizer, bias_regularizer;
};

typedef struct sizes {
    size_t m, k, n;
} sizes;

static sizes sizes_of(const mr__pass *p)
{
    const mr__layer *l = p->layer;
    size_t k = (size_t)l->in.shape[l->in.rank - 1];
    return (sizes){p->rows * (mr__dims_values(&l->in) / k), k,
                   (size_t)l->out.shape[l->out.rank - 1]};
}

static mr_code forward(const mr__pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    sizes s = sizes_of(p);
    if (o->use_bias)
        for (size_t i = 0; i < s.m; i++)
            memcpy(p->y + i * s.n, p->w[1], s.n * sizeof(float));
    MR_TRY(mr__matmul(false, false, s.m, s.n, s.k, p->x, p->w[0], o->use_bias, p->y, st));
    if (o->activation->forward)
        o->activation->forward(p->y, s.m, s.n);
    return MR_OK;
}

static mr_code backward(const mr__pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    sizes s = sizes_of(p);
    if (o->activation->backward)
        o->activation->backward(p->y, p->dy, s.m, s.n);
    MR_TRY(mr__matmul(true, false, s.k, s.n, s.m, p->x, p->dy, false, p->dw[0], st));
    if (o->use_bias) {
        memset(p->dw[1], 0, s.n * sizeof(float));
        for (size_t i = 0; i < s.m; i++)
            for (size_t j = 0; j < s.n; j++)
                p->dw[1][j] += p->dy[i * s.n + j];
    }
    if (p->dx)
        return mr__matmul(false, true, s.m, s.k, s.n, p->dy, p->w[0], false, p->dx, st);
    return MR_OK;
}

static mr_code build(mr__layer *l, mr_status *st)
{
    const struct params *o = l->params;
    if (l->in.rank < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "dense needs examples with at least one axis, found scalars");
    int64_t k = l->in.shape[l->in.rank - 1];
    if (k < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT, "dense needs a last axis that is not empty");
    l->out = l->in;
    l->out.shape[l->out.rank - 1] = o->units;
    l->n_wanted = o->use_bias ? 2 : 1;
    l->wanted[0] = (mr__variable_spec){.name = "kernel",
                                       .rank = 2,
                                       .shape = {k, o->units},
                                       .initializer = o->kernel_initializer,
                                       .regularizer = o->kernel_regularizer,
                                       .fan_in = (size_t)k,
                                       .fan_out = (size_t)o->units};
    l->wanted[1] = (mr__variable_spec){.name = "bias",
                                       .rank = 1,
                                       .shape = {o->units},
                                       .initializer = o->bias_initializer,
                                       .regularizer = o->bias_regularizer,
                                       .fan_in = (size_t)o->units,
                                       .fan_out = (size_t)o->units};
    return MR_OK;
}

static const mr__arg args[] = {
    MR__ARG(struct params, units, MR__I64, .required = true, .min = 1, .max = 1 << 24,
            .doc = "Values it gives for each example."),
    MR__ARG(struct params, activation, MR__ACTIVATION, .doc = "Applied to the result."),
    MR__ARG(struct params, use_bias, MR__BOOL, .def = 1,
            .doc = "Adds a learned value to each unit."),
    MR__ARG(struct params, kernel_initializer, MR__INITIALIZER, .def_name = "glorot_uniform",
            .doc = "First values of the kernel."),
    MR__ARG(struct params, bias_initializer, MR__INITIALIZER, .def_name = "zeros",
            .doc = "First values of the bias."),
    MR__ARG(struct params, kernel_regularizer, MR__REGULARIZER,
            .doc = "Penalty on the kernel, added to the loss."),
    MR__ARG(struct params, bias_regularizer, MR__REGULARIZER,
            .doc = "Penalty on the bias, added to the loss."),
    {0}};

const mr__layer_desc mr__layer_dense = {
    .name = "dense",
    .doc = "Multiplies by a learned matrix, adds a learned bias, applies an activation.",
    .example = "input(784).dense(128, activation=\"relu\").dense(10)",
    .args = args,
    .params_size = sizeof(struct params),
    .build = build,
    .forward = forward,
    .backward = backward,
};
