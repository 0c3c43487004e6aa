/* SPDX-License-Identifier: Apache-2.0 */
/* y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, with the moments of each vector along
 * the last axis. Kept for the backward pass: mean and variance of each. */
#include "pipeline/memory/alloc.h"
#include "trainer/model/layer.h"
#include "trainer/model/onnx.h"

struct params {
    double epsilon;
    bool center, scale;
    mr_initializer beta_initializer, gamma_initializer;
    mr_regularizer beta_regularizer, gamma_regularizer;
};

static size_t width_of(const mr_layer *l)
{
    return (size_t)l->in.shape[l->in.rank - 1];
}

static size_t groups_of(const mr_layer_pass *p)
{
    return p->rows * (mr_dims_values(&p->layer->in) / width_of(p->layer));
}

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t groups = groups_of(p), width = width_of(p->layer);
    const mr_math_moments m = {true, groups, width, p->x, p->kept, p->kept + groups};
    const mr_math_normalize n = {.by_row = true,
                                 .rows = groups,
                                 .width = width,
                                 .epsilon = (float)o->epsilon,
                                 .x = p->x,
                                 .mean = m.mean,
                                 .variance = m.variance,
                                 .gamma = o->scale ? p->w[0] : NULL,
                                 .beta = o->center ? p->w[o->scale] : NULL,
                                 .y = p->y};
    MR_TRY(p->math->moments(p->stream, &m, st));
    return p->math->normalize(p->stream, &n, st);
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t groups = groups_of(p);
    return p->math->normalize_backward(
        p->stream,
        &(mr_math_normalize_backward){.by_row = true,
                                      .rows = groups,
                                      .width = width_of(p->layer),
                                      .epsilon = (float)o->epsilon,
                                      .x = p->x,
                                      .mean = p->kept,
                                      .variance = p->kept + groups,
                                      .gamma = o->scale ? p->w[0] : NULL,
                                      .dy = p->dy,
                                      .dx = p->dx,
                                      .dgamma = o->scale ? p->dw[0] : NULL,
                                      .dbeta = o->center ? p->dw[o->scale] : NULL},
        st);
}

static mr_code build(mr_layer *l, mr_status *st)
{
    const struct params *o = l->params;
    if (l->in.rank < 1 || mr_dims_values(&l->in) == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "layer_norm needs examples with at least one axis, which must not be empty");
    int64_t width = (int64_t)width_of(l);
    l->out = l->in;
    l->keep_per_row = 2 * (mr_dims_values(&l->in) / (size_t)width);
    if (o->scale)
        l->wanted[l->n_wanted++] = (mr_variable_spec){.name = "gamma",
                                                      .rank = 1,
                                                      .shape = {width},
                                                      .initializer = o->gamma_initializer,
                                                      .regularizer = o->gamma_regularizer,
                                                      .fan_in = (size_t)width,
                                                      .fan_out = (size_t)width};
    if (o->center)
        l->wanted[l->n_wanted++] = (mr_variable_spec){.name = "beta",
                                                      .rank = 1,
                                                      .shape = {width},
                                                      .initializer = o->beta_initializer,
                                                      .regularizer = o->beta_regularizer,
                                                      .fan_in = (size_t)width,
                                                      .fan_out = (size_t)width};
    return MR_OK;
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    const struct params *o = l->params;
    const mr_onnx_attribute how[] = {{"axis", MR_ONNX_INT, .i = -1},
                                     {"epsilon", MR_ONNX_FLOAT, .f = (float)o->epsilon}};
    size_t n = width_of(l);
    const int64_t shape = (int64_t)n;
    float *ones = mr_malloc(n * sizeof *ones);
    if (!ones)
        return mr_fail_memory(st, n * sizeof *ones, "a scale");
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    const char *const inputs[] = {o->scale ? mr_onnx_variable(g, 0)
                                           : mr_onnx_floats(g, 1, &shape, ones),
                                  o->center ? mr_onnx_variable(g, o->scale) : ""};
    mr_free(ones);
    return mr_onnx_node(g, "LayerNormalization", inputs, o->center ? 2 : 1, how, 2, st);
}

static const mr_param table[] = {
    MR_PARAM(struct params, epsilon, .def.f = 1e-3, .max.f = 1,
             .doc = "Added to the variance to avoid division by 0."),
    MR_PARAM(struct params, center, .def.b = true, .doc = "Adds the learned beta."),
    MR_PARAM(struct params, scale, .def.b = true, .doc = "Multiplies by the learned gamma."),
    MR_PARAM_OWN(struct params, beta_initializer, mr_param_initializer, .def.s = "zeros",
                 .doc = "Initial values of beta."),
    MR_PARAM_OWN(struct params, gamma_initializer, mr_param_initializer, .def.s = "ones",
                 .doc = "Initial values of gamma."),
    MR_PARAM_OWN(struct params, beta_regularizer, mr_param_regularizer,
                 .doc = "Penalty on beta, added to the loss."),
    MR_PARAM_OWN(struct params, gamma_regularizer, mr_param_regularizer,
                 .doc = "Penalty on gamma, added to the loss."),
    {0}};

const mr_layer_desc mr__layer_layer_norm = {
    .is =
        {.abi = MR_ABI_VERSION,
         .name = "layer_norm",
         .doc =
             "Normalizes each vector along the last axis to mean 0 and variance 1, then scales it.",
         .example = "input(16).dense(32).layer_norm().activation(\"relu\").dense(4)",
         .params = table,
         .params_size = sizeof(struct params)},
    .build = build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
