/* SPDX-License-Identifier: Apache-2.0 */
/* y = activation(convolution of x with the kernel + bias), as math.h defines it.
 *
 *   x      [rows, height, width, channels]
 *   kernel [kernel height, kernel width, channels / groups, filters]
 *   y, dy  [rows, out height, out width, filters] */
#include "trainer/model/convolve.h"

struct params {
    int64_t filters;
    mr_ints kernel_size, strides;
    char *padding;
    mr_ints dilation_rate;
    int64_t groups;
    const mr_activation *activation;
    bool use_bias;
    mr_initializer kernel_initializer, bias_initializer;
    mr_regularizer kernel_regularizer, bias_regularizer;
};

static mr__convolution form_of(const mr_layer *l)
{
    const struct params *o = l->params;
    return (mr__convolution){
        .windows = {&o->kernel_size, &o->strides, &o->dilation_rate, o->padding},
        .filters = (size_t)o->filters,
        .groups = (size_t)o->groups,
        .f = o->activation->function,
        .use_bias = o->use_bias};
}

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    mr__convolution c = form_of(p->layer);
    return mr__convolve(p, &c, st);
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    mr__convolution c = form_of(p->layer);
    return mr__convolve_backward(p, &c, st);
}

static mr_code build(mr_layer *l, mr_status *st)
{
    const struct params *o = l->params;
    mr__convolution c = form_of(l);
    MR_TRY(mr__convolve_build(l, &c, st));
    if (l->in.shape[2] % o->groups != 0 || o->filters % o->groups != 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "conv2d: %zu groups do not divide %zu channels and %zu filters", c.groups,
                       (size_t)l->in.shape[2], c.filters);
    const mr_variable_spec *k = &l->wanted[0];
    int64_t h = k->shape[0], w = k->shape[1], in = l->in.shape[2] / o->groups;
    l->wanted[0] = (mr_variable_spec){.name = "kernel",
                                      .rank = 4,
                                      .shape = {h, w, in, o->filters},
                                      .initializer = o->kernel_initializer,
                                      .regularizer = o->kernel_regularizer,
                                      .fan_in = (size_t)(h * w * in),
                                      .fan_out = (size_t)(h * w * o->filters)};
    l->wanted[1].initializer = o->bias_initializer;
    l->wanted[1].regularizer = o->bias_regularizer;
    return MR_OK;
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    mr__convolution c = form_of(l);
    return mr__convolve_onnx(l, &c, g, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, filters, .min.i = 1, .max.i = 1 << 24,
           .doc = "Number of output channels."),
    MR_ARG(struct params, kernel_size, .min.i = 1, .max.i = 1 << 16,
           .doc = "Height and width of the kernel, or one number for both."),
    MR_PARAM(struct params, strides, .min.i = 1, .max.i = 1 << 16,
             .doc = "Stride of the windows; left out: 1."),
    MR_PARAM(struct params, padding, .def.s = "valid", .names = mr__paddings,
             .doc = "\"valid\", or \"same\": pads the image with zeros."),
    MR_PARAM(struct params, dilation_rate, .min.i = 1, .max.i = 1 << 16,
             .doc = "Distance between the values of a window; left out: 1."),
    MR_PARAM(struct params, groups, .def.i = 1, .min.i = 1, .max.i = 1 << 24,
             .doc =
                 "Number of groups that the channels are divided into, each with its own filters."),
    MR_PARAM_OWN(struct params, activation, mr_param_activation, .def.s = "linear",
                 .doc = "Activation applied to the output."),
    MR_PARAM(struct params, use_bias, .def.b = true, .doc = "Adds a learned value to each filter."),
    MR_PARAM_OWN(struct params, kernel_initializer, mr_param_initializer, .def.s = "glorot_uniform",
                 .doc = "Initial values of the kernel."),
    MR_PARAM_OWN(struct params, bias_initializer, mr_param_initializer, .def.s = "zeros",
                 .doc = "Initial values of the bias."),
    MR_PARAM_OWN(struct params, kernel_regularizer, mr_param_regularizer,
                 .doc = "Penalty on the kernel, added to the loss."),
    MR_PARAM_OWN(struct params, bias_regularizer, mr_param_regularizer,
                 .doc = "Penalty on the bias, added to the loss."),
    {0}};

const mr_layer_desc mr__layer_conv2d = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "conv2d",
           .doc = "Convolves images with learned kernels, adds a bias, applies an activation.",
           .example = "input(28, 28, 1).conv2d(32, 3, activation=\"relu\").flatten().dense(10)",
           .params = table,
           .params_size = sizeof(struct params)},
    .multiplies = true,
    .may_be_derived = true,
    .build = build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
