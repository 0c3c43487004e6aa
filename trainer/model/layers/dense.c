/* SPDX-License-Identifier: Apache-2.0 */
/* y = activation(x kernel + bias), over the last axis of x: the shape [a, b] becomes [a, units].
 *
 *   x      [rows, in]   rows of the batch times leading dimensions; in: the last dimension
 *   kernel [in, out]    out: units
 *   y, dy  [rows, out] */
#include "trainer/model/layer.h"
#include "trainer/model/onnx.h"

struct params {
    int64_t units;
    const mr_activation *activation;
    bool use_bias;
    mr_initializer kernel_initializer, bias_initializer;
    mr_regularizer kernel_regularizer, bias_regularizer;
};

/* rows: rows of x as a matrix. */
static void sizes_of(const mr_layer_pass *p, size_t *rows, size_t *in, size_t *out)
{
    const mr_layer *l = p->layer;
    *in = (size_t)l->in.shape[l->in.rank - 1];
    *out = (size_t)l->out.shape[l->out.rank - 1];
    *rows = p->rows * (mr_dims_values(&l->in) / *in);
}

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    mr_math_dense d = {.f = o->activation->function,
                       .x = p->x,
                       .w = p->w[0],
                       .bias = o->use_bias ? p->w[1] : NULL,
                       .y = p->y,
                       .bfloat = p->bfloat};
    sizes_of(p, &d.rows, &d.in, &d.out);
    return p->math->dense(p->stream, &d, st);
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t rows, in, out;
    sizes_of(p, &rows, &in, &out);
    const mr_math_activate_backward a = {o->activation->function, rows, out, p->y, p->dy, p->dy};
    const mr_math_dense_backward_weights w = {
        rows, in, out, p->x, p->dy, p->dw[0], o->use_bias ? p->dw[1] : NULL, p->bfloat};
    const mr_math_dense_backward_data d = {rows, in, out, p->dy, p->w[0], p->dx, p->bfloat};
    if (a.f != MR_ACT_LINEAR) {
        MR_TRY(p->math->activate_backward(p->stream, &a, st));
        MR_TRY(mr_layer_round_gradient(p, st));
    }
    MR_TRY(p->math->dense_backward_weights(p->stream, &w, st));
    return p->dx ? p->math->dense_backward_data(p->stream, &d, st) : MR_OK;
}

static mr_code build(mr_layer *l, mr_status *st)
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
    l->wanted[0] = (mr_variable_spec){.name = "kernel",
                                      .rank = 2,
                                      .shape = {k, o->units},
                                      .initializer = o->kernel_initializer,
                                      .regularizer = o->kernel_regularizer,
                                      .fan_in = (size_t)k,
                                      .fan_out = (size_t)o->units};
    l->wanted[1] = (mr_variable_spec){.name = "bias",
                                      .rank = 1,
                                      .shape = {o->units},
                                      .initializer = o->bias_initializer,
                                      .regularizer = o->bias_regularizer,
                                      .fan_in = (size_t)o->units,
                                      .fan_out = (size_t)o->units};
    return MR_OK;
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    const struct params *o = l->params;
    const char *const kernel = mr_onnx_variable(g, 0);
    MR_TRY(mr_onnx_node(g, "MatMul", &kernel, 1, NULL, 0, st));
    if (o->use_bias) {
        const char *const bias = mr_onnx_variable(g, 1);
        MR_TRY(mr_onnx_node(g, "Add", &bias, 1, NULL, 0, st));
    }
    return mr_onnx_activation(g, o->activation->function, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, units, .min.i = 1, .max.i = 1 << 24, .doc = "Number of output values."),
    MR_PARAM_OWN(struct params, activation, mr_param_activation, .def.s = "linear",
                 .doc = "Activation applied to the output."),
    MR_PARAM(struct params, use_bias, .def.b = true, .doc = "Adds a learned value to each unit."),
    MR_PARAM_OWN(struct params, kernel_initializer, mr_param_initializer, .def.s = "glorot_uniform",
                 .doc = "Initial values of the kernel."),
    MR_PARAM_OWN(struct params, bias_initializer, mr_param_initializer, .def.s = "zeros",
                 .doc = "Initial values of the bias."),
    MR_PARAM_OWN(struct params, kernel_regularizer, mr_param_regularizer,
                 .doc = "Penalty on the kernel, added to the loss."),
    MR_PARAM_OWN(struct params, bias_regularizer, mr_param_regularizer,
                 .doc = "Penalty on the bias, added to the loss."),
    {0}};

const mr_layer_desc mr__layer_dense = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "dense",
           .doc = "Multiplies by a learned matrix, adds a learned bias, applies an activation.",
           .example = "input(784).dense(128, activation=\"relu\").dense(10)",
           .params = table,
           .params_size = sizeof(struct params)},
    .multiplies = true,
    .build = build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
