/* SPDX-License-Identifier: Apache-2.0 */
/* A separate convolution of each channel, with depth_multiplier output channels each.
 *
 *   x      [rows, height, width, channels]
 *   kernel [kernel height, kernel width, channels, depth_multiplier]
 *   y, dy  [rows, out height, out width, channels * depth_multiplier]
 *
 * In memory that kernel equals that of a convolution with one group per channel. */
#include "trainer/model/convolve.h"

struct params {
    mr_ints kernel_size, strides;
    char *padding;
    int64_t depth_multiplier;
    mr_ints dilation_rate;
    const mr_activation *activation;
    bool use_bias;
    mr_initializer depthwise_initializer, bias_initializer;
    mr_regularizer depthwise_regularizer, bias_regularizer;
};

static mr__convolution form_of(const mr_layer *l)
{
    const struct params *o = l->params;
    size_t channels = l->in.rank == 3 ? (size_t)l->in.shape[2] : 0;
    return (mr__convolution){
        .windows = {&o->kernel_size, &o->strides, &o->dilation_rate, o->padding},
        .filters = channels * (size_t)o->depth_multiplier,
        .groups = channels,
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
    const mr_variable_spec *k = &l->wanted[0];
    int64_t h = k->shape[0], w = k->shape[1], in = l->in.shape[2];
    l->wanted[0] = (mr_variable_spec){.name = "kernel",
                                      .rank = 4,
                                      .shape = {h, w, in, o->depth_multiplier},
                                      .initializer = o->depthwise_initializer,
                                      .regularizer = o->depthwise_regularizer,
                                      .fan_in = (size_t)(h * w * in),
                                      .fan_out = (size_t)(h * w * o->depth_multiplier)};
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
    MR_ARG(struct params, kernel_size, .min.i = 1, .max.i = 1 << 16,
           .doc = "Height and width of the kernel, or one number for both."),
    MR_PARAM(struct params, strides, .min.i = 1, .max.i = 1 << 16,
             .doc = "Stride of the windows; left out: 1."),
    MR_PARAM(struct params, padding, .def.s = "valid", .names = mr__paddings,
             .doc = "\"valid\", or \"same\": pads the image with zeros."),
    MR_PARAM(struct params, depth_multiplier, .def.i = 1, .min.i = 1, .max.i = 1 << 16,
             .doc = "Number of output channels for each input channel."),
    MR_PARAM(struct params, dilation_rate, .min.i = 1, .max.i = 1 << 16,
             .doc = "Distance between the values of a window; left out: 1."),
    MR_PARAM_OWN(struct params, activation, mr_param_activation, .def.s = "linear",
                 .doc = "Activation applied to the output."),
    MR_PARAM(struct params, use_bias, .def.b = true,
             .doc = "Adds a learned value to each output channel."),
    MR_PARAM_OWN(struct params, depthwise_initializer, mr_param_initializer,
                 .def.s = "glorot_uniform", .doc = "Initial values of the kernel."),
    MR_PARAM_OWN(struct params, bias_initializer, mr_param_initializer, .def.s = "zeros",
                 .doc = "Initial values of the bias."),
    MR_PARAM_OWN(struct params, depthwise_regularizer, mr_param_regularizer,
                 .doc = "Penalty on the kernel, added to the loss."),
    MR_PARAM_OWN(struct params, bias_regularizer, mr_param_regularizer,
                 .doc = "Penalty on the bias, added to the loss."),
    {0}};

const mr_layer_desc mr__layer_depthwise_conv2d = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "depthwise_conv2d",
           .doc = "Convolves each channel of images with its own learned kernels.",
           .example = "input(8, 8, 4).depthwise_conv2d(3, padding=\"same\").conv2d(8, 1).flatten()",
           .params = table,
           .params_size = sizeof(struct params)},
    .multiplies = true,
    .may_be_derived = true,
    .build = build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
