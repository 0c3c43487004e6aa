/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/model/convolve.h"
#include "pipeline/memory/alloc.h"

static mr_math_conv2d_shape shape_of(const mr_layer_pass *p, const mr__convolution *c)
{
    mr__window2d w = mr__window2d_place(p->layer, &c->windows);
    return (mr_math_conv2d_shape){.n = p->rows,
                                  .height = w.height,
                                  .width = w.width,
                                  .channels = w.channels,
                                  .filters = c->filters,
                                  .groups = c->groups,
                                  .kernel_h = w.h.size,
                                  .kernel_w = w.w.size,
                                  .stride_h = w.h.stride,
                                  .stride_w = w.w.stride,
                                  .dilation_h = w.h.dilation,
                                  .dilation_w = w.w.dilation,
                                  .pad_top = w.h.before,
                                  .pad_left = w.w.before,
                                  .out_h = w.h.out,
                                  .out_w = w.w.out};
}

mr_code mr__convolve(const mr_layer_pass *p, const mr__convolution *c, mr_status *st)
{
    return p->math->conv2d(p->stream,
                           &(mr_math_conv2d){.s = shape_of(p, c),
                                             .f = c->f,
                                             .x = p->x,
                                             .kernel = p->w[0],
                                             .bias = c->use_bias ? p->w[1] : NULL,
                                             .y = p->y,
                                             .bfloat = p->bfloat},
                           st);
}

mr_code mr__convolve_backward(const mr_layer_pass *p, const mr__convolution *c, mr_status *st)
{
    mr_math_conv2d_shape s = shape_of(p, c);
    const mr_math_activate_backward a = {c->f, s.n * s.out_h * s.out_w, s.filters, p->y, p->dy,
                                         p->dy};
    const mr_math_conv2d_backward_weights w = {
        s, p->x, p->dy, p->dw[0], c->use_bias ? p->dw[1] : NULL, p->bfloat};
    const mr_math_conv2d_backward_data d = {s, p->dy, p->w[0], p->dx, p->bfloat};
    if (a.f != MR_ACT_LINEAR && !p->layer->derived) {
        MR_TRY(p->math->activate_backward(p->stream, &a, st));
        MR_TRY(mr_layer_round_gradient(p, st));
    }
    MR_TRY(p->math->conv2d_backward_weights(p->stream, &w, st));
    return p->dx ? p->math->conv2d_backward_data(p->stream, &d, st) : MR_OK;
}

mr_code mr__convolve_build(mr_layer *l, const mr__convolution *c, mr_status *st)
{
    MR_TRY(mr__window2d_check(l, &c->windows, st));
    mr__window2d w = mr__window2d_place(l, &c->windows);
    int64_t filters = (int64_t)c->filters;
    l->out = (mr_dims){.rank = 3, .shape = {(int64_t)w.h.out, (int64_t)w.w.out, filters}};
    l->n_wanted = c->use_bias ? 2 : 1;
    l->wanted[0].shape[0] = (int64_t)w.h.size;
    l->wanted[0].shape[1] = (int64_t)w.w.size;
    l->wanted[1] = (mr_variable_spec){
        .name = "bias", .rank = 1, .shape = {filters}, .fan_in = c->filters, .fan_out = c->filters};
    return MR_OK;
}

/* Converts [height, width, in, out] to ONNX's [out, in, height, width]. */
static void turn_kernel(const float *from, float *to, size_t h, size_t w, size_t in, size_t out)
{
    for (size_t p = 0; p < h * w; p++)
        for (size_t i = 0; i < in; i++)
            for (size_t o = 0; o < out; o++)
                to[(o * in + i) * h * w + p] = from[(p * in + i) * out + o];
}

mr_code mr__convolve_onnx(const mr_layer *l, const mr__convolution *c, mr_onnx *g, mr_status *st)
{
    mr__window2d w = mr__window2d_place(l, &c->windows);
    size_t in = w.channels / c->groups, n = w.h.size * w.w.size * in * c->filters, used = 1;
    const int64_t shape[] = {(int64_t)c->filters, (int64_t)in, (int64_t)w.h.size,
                             (int64_t)w.w.size};
    const char *inputs[2] = {NULL};
    float *kernel = mr_malloc(n * sizeof *kernel);
    if (!kernel)
        return mr_fail_memory(st, n * sizeof *kernel, "a kernel");
    turn_kernel(mr_onnx_values(g, 0), kernel, w.h.size, w.w.size, in, c->filters);
    inputs[0] = mr_onnx_floats(g, 4, shape, kernel);
    mr_free(kernel);
    if (c->use_bias)
        inputs[used++] = mr_onnx_variable(g, 1);
    mr_onnx_attribute how[5];
    size_t n_how = mr__window2d_onnx(&w, how);
    how[n_how++] = (mr_onnx_attribute){"dilations", MR_ONNX_INTS, .n = 2,
                                       .ints = {(int64_t)w.h.dilation, (int64_t)w.w.dilation}};
    how[n_how++] = (mr_onnx_attribute){"group", MR_ONNX_INT, .i = (int64_t)c->groups};
    MR_TRY(mr__channels_first_onnx(g, st));
    MR_TRY(mr_onnx_node(g, "Conv", inputs, used, how, n_how, st));
    MR_TRY(mr__channels_last_onnx(g, st));
    return mr_onnx_activation(g, c->f, st);
}
