/* SPDX-License-Identifier: Apache-2.0 */
/* The largest or mean value of each window of an image [height, width, channels], per channel.
 * Padding is ignored. */
#include "trainer/model/window2d.h"

struct params {
    mr_ints pool_size, strides;
    char *padding;
};

/* strides omitted: windows are adjacent. */
static mr__window2d_params windows_of(const struct params *o)
{
    static const int64_t twos[] = {2};
    static const mr_ints two = {.v = (int64_t *)(uintptr_t)twos, .n = 1};
    const mr_ints *size = o->pool_size.n > 0 ? &o->pool_size : &two;
    return (mr__window2d_params){
        .size = size, .strides = o->strides.n > 0 ? &o->strides : size, .padding = o->padding};
}

static mr_math_pool2d_shape shape_of(const mr_layer_pass *p, bool average)
{
    mr__window2d_params windows = windows_of(p->layer->params);
    mr__window2d w = mr__window2d_place(p->layer, &windows);
    return (mr_math_pool2d_shape){.average = average,
                                  .n = p->rows,
                                  .height = w.height,
                                  .width = w.width,
                                  .channels = w.channels,
                                  .pool_h = w.h.size,
                                  .pool_w = w.w.size,
                                  .stride_h = w.h.stride,
                                  .stride_w = w.w.stride,
                                  .pad_top = w.h.before,
                                  .pad_left = w.w.before,
                                  .out_h = w.h.out,
                                  .out_w = w.w.out};
}

static mr_code forward_of(const mr_layer_pass *p, mr_math_pool2d_shape s, mr_status *st)
{
    return p->math->pool2d(p->stream, &(mr_math_pool2d){.s = s, .x = p->x, .y = p->y}, st);
}

static mr_code backward_of(const mr_layer_pass *p, mr_math_pool2d_shape s, mr_status *st)
{
    if (!p->dx)
        return MR_OK;
    return p->math->pool2d_backward(
        p->stream,
        &(mr_math_pool2d_backward){.s = s, .x = p->x, .y = p->y, .dy = p->dy, .dx = p->dx}, st);
}

static mr_code forward_max(const mr_layer_pass *p, mr_status *st)
{
    return forward_of(p, shape_of(p, false), st);
}

static mr_code backward_max(const mr_layer_pass *p, mr_status *st)
{
    const mr_math_activate_backward a = {
        p->layer->derives, p->rows, mr_dims_values(&p->layer->out), p->y, p->dy, p->dy};
    if (a.f != MR_ACT_LINEAR && p->dx)
        MR_TRY(p->math->activate_backward(p->stream, &a, st));
    return backward_of(p, shape_of(p, false), st);
}

static mr_code forward_average(const mr_layer_pass *p, mr_status *st)
{
    return forward_of(p, shape_of(p, true), st);
}

static mr_code backward_average(const mr_layer_pass *p, mr_status *st)
{
    return backward_of(p, shape_of(p, true), st);
}

static mr_code build(mr_layer *l, mr_status *st)
{
    mr__window2d_params windows = windows_of(l->params);
    MR_TRY(mr__window2d_check(l, &windows, st));
    mr__window2d w = mr__window2d_place(l, &windows);
    l->out = (mr_dims){.rank = 3, .shape = {(int64_t)w.h.out, (int64_t)w.w.out, l->in.shape[2]}};
    return MR_OK;
}

/* Whether the windows are adjacent, and cover the axis. */
static bool fills(const mr__window_axis *a, size_t size)
{
    return a->before == 0 && a->stride == a->size && a->out * a->size == size;
}

static mr_code build_max(mr_layer *l, mr_status *st)
{
    MR_TRY(build(l, st));
    mr__window2d_params windows = windows_of(l->params);
    mr__window2d w = mr__window2d_place(l, &windows);
    l->in_place = fills(&w.h, w.height) && fills(&w.w, w.width);
    return MR_OK;
}

static mr_code onnx_of(const mr_layer *l, mr_onnx *g, const char *op, mr_status *st)
{
    mr__window2d_params windows = windows_of(l->params);
    mr__window2d w = mr__window2d_place(l, &windows);
    mr_onnx_attribute how[3];
    size_t n = mr__window2d_onnx(&w, how);
    MR_TRY(mr__channels_first_onnx(g, st));
    MR_TRY(mr_onnx_node(g, op, NULL, 0, how, n, st));
    return mr__channels_last_onnx(g, st);
}

static mr_code onnx_max(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    return onnx_of(l, g, "MaxPool", st);
}

static mr_code onnx_average(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    return onnx_of(l, g, "AveragePool", st);
}

static const mr_param table[] = {
    MR_PARAM(struct params, pool_size, .min.i = 1, .max.i = 1 << 16,
             .doc = "Height and width of a window, or one number for both; left out: 2."),
    MR_PARAM(struct params, strides, .min.i = 1, .max.i = 1 << 16,
             .doc = "Stride of the windows; left out: their size."),
    MR_PARAM(struct params, padding, .def.s = "valid", .names = mr__paddings,
             .doc = "\"valid\", or \"same\": windows may extend past the edge."),
    {0}};

const mr_layer_desc mr__layer_max_pool = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "max_pool",
           .doc = "Largest value of each window of an image.",
           .example = "input(28, 28, 1).conv2d(8, 3).max_pool(2).flatten().dense(10)",
           .params = table,
           .params_size = sizeof(struct params)},
    .picks = true,
    .build = build_max,
    .forward = forward_max,
    .backward = backward_max,
    .onnx = onnx_max,
};

const mr_layer_desc mr__layer_average_pool = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "average_pool",
           .doc = "Mean value of each window of an image.",
           .example = "input(28, 28, 1).conv2d(8, 3).average_pool(2).flatten().dense(10)",
           .params = table,
           .params_size = sizeof(struct params)},
    .build = build,
    .forward = forward_average,
    .backward = backward_average,
    .onnx = onnx_average,
};

/* ---- a single window that covers the image ---- */

struct global_params {
    bool keepdims;
};

static mr_math_pool2d_shape whole_image(const mr_layer_pass *p)
{
    const mr_dims *in = &p->layer->in;
    size_t height = (size_t)in->shape[0], width = (size_t)in->shape[1];
    return (mr_math_pool2d_shape){.average = true,
                                  .n = p->rows,
                                  .height = height,
                                  .width = width,
                                  .channels = (size_t)in->shape[2],
                                  .pool_h = height,
                                  .pool_w = width,
                                  .stride_h = 1,
                                  .stride_w = 1,
                                  .out_h = 1,
                                  .out_w = 1};
}

static mr_code forward_global(const mr_layer_pass *p, mr_status *st)
{
    return forward_of(p, whole_image(p), st);
}

static mr_code backward_global(const mr_layer_pass *p, mr_status *st)
{
    return backward_of(p, whole_image(p), st);
}

static mr_code build_global(mr_layer *l, mr_status *st)
{
    const struct global_params *o = l->params;
    if (l->in.rank != 3 || mr_dims_values(&l->in) == 0)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "global_average_pool needs images [height, width, channels] that are not empty");
    int64_t channels = l->in.shape[2];
    l->out = (mr_dims){.rank = 1, .shape = {channels}};
    if (o->keepdims)
        l->out = (mr_dims){.rank = 3, .shape = {1, 1, channels}};
    return MR_OK;
}

static mr_code onnx_global(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    const struct global_params *o = l->params;
    const mr_onnx_attribute how[] = {{"axes", MR_ONNX_INTS, .n = 2, .ints = {1, 2}},
                                     {"keepdims", MR_ONNX_INT, .i = o->keepdims}};
    return mr_onnx_node(g, "ReduceMean", NULL, 0, how, 2, st);
}

static const mr_param global_table[] = {
    MR_PARAM(struct global_params, keepdims, .doc = "Keeps height and width as axes of length 1."),
    {0}};

const mr_layer_desc mr__layer_global_average_pool = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "global_average_pool",
           .doc = "Mean of each channel over an image.",
           .example = "input(28, 28, 1).conv2d(8, 3).global_average_pool().dense(10)",
           .params = global_table,
           .params_size = sizeof(struct global_params)},
    .build = build_global,
    .forward = forward_global,
    .backward = backward_global,
    .onnx = onnx_global,
};
