/* SPDX-License-Identifier: Apache-2.0 */
/* y = layers(x) + x, or with a projection layers(x) + projection(x), where the projection is a 1x1
 * convolution with matching strides, or for other inputs than images a dense layer.
 *
 * The model expands it into several layers (model_impl.h), and adds up their gradients. */
#include <string.h>
#include "trainer/model/model_impl.h"
#include "trainer/model/onnx_impl.h"

/* ---- the beginning: the output is the input */

static mr_code onnx_begin(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    (void)l;
    return mr__onnx_take(g, MR_FLOAT32, st);
}

const mr_layer_desc mr__residual_begin = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "residual_begin",
           .doc = "Marks the beginning of a residual.",
           .example = "residual(dense(4))"},
    .view = true,
    .onnx = onnx_begin,
};

/* ---- the projection: l->out is set before build */

void mr__residual_set_target(mr_layer *projection, const mr_dims *target)
{
    projection->out = *target;
}

static size_t stride_of(const mr_layer *l, int axis)
{
    return (size_t)((l->in.shape[axis] + l->out.shape[axis] - 1) / l->out.shape[axis]);
}

static mr_math_conv2d_shape shape_of(const mr_layer_pass *p)
{
    const mr_dims *in = &p->layer->in, *out = &p->layer->out;
    return (mr_math_conv2d_shape){.n = p->rows,
                                  .height = (size_t)in->shape[0],
                                  .width = (size_t)in->shape[1],
                                  .channels = (size_t)in->shape[2],
                                  .filters = (size_t)out->shape[2],
                                  .groups = 1,
                                  .kernel_h = 1,
                                  .kernel_w = 1,
                                  .stride_h = stride_of(p->layer, 0),
                                  .stride_w = stride_of(p->layer, 1),
                                  .dilation_h = 1,
                                  .dilation_w = 1,
                                  .out_h = (size_t)out->shape[0],
                                  .out_w = (size_t)out->shape[1]};
}

static bool is_image(const mr_layer *l)
{
    return l->in.rank == 3 && l->out.rank == 3;
}

static mr_math_dense dense_of(const mr_layer_pass *p)
{
    const mr_dims *in = &p->layer->in, *out = &p->layer->out;
    size_t from = (size_t)in->shape[in->rank - 1], to = (size_t)out->shape[out->rank - 1];
    return (mr_math_dense){.rows = p->rows * (mr_dims_values(in) / from),
                           .in = from,
                           .out = to,
                           .x = p->x,
                           .w = p->w[0],
                           .bias = p->w[1],
                           .y = p->y,
                           .bfloat = p->bfloat};
}

static mr_code project(const mr_layer_pass *p, mr_status *st)
{
    const mr_math_dense d = is_image(p->layer) ? (mr_math_dense){0} : dense_of(p);
    if (!is_image(p->layer))
        return p->math->dense(p->stream, &d, st);
    return p->math->conv2d(p->stream,
                           &(mr_math_conv2d){.s = shape_of(p),
                                             .x = p->x,
                                             .kernel = p->w[0],
                                             .bias = p->w[1],
                                             .y = p->y,
                                             .bfloat = p->bfloat},
                           st);
}

static mr_code project_backward(const mr_layer_pass *p, mr_status *st)
{
    if (is_image(p->layer)) {
        mr_math_conv2d_shape s = shape_of(p);
        const mr_math_conv2d_backward_weights w = {s, p->x, p->dy, p->dw[0], p->dw[1], p->bfloat};
        const mr_math_conv2d_backward_data d = {s, p->dy, p->w[0], p->dx, p->bfloat};
        MR_TRY(p->math->conv2d_backward_weights(p->stream, &w, st));
        return p->dx ? p->math->conv2d_backward_data(p->stream, &d, st) : MR_OK;
    }
    const mr_math_dense f = dense_of(p);
    const mr_math_dense_backward_weights w = {f.rows, f.in,     f.out,    p->x,
                                              p->dy,  p->dw[0], p->dw[1], p->bfloat};
    const mr_math_dense_backward_data d = {f.rows, f.in, f.out, p->dy, p->w[0], p->dx, p->bfloat};
    MR_TRY(p->math->dense_backward_weights(p->stream, &w, st));
    return p->dx ? p->math->dense_backward_data(p->stream, &d, st) : MR_OK;
}

static bool can_project(const mr_layer *l)
{
    const mr_dims *in = &l->in, *out = &l->out;
    if (in->rank != out->rank || in->rank < 1 || mr_dims_values(in) == 0 ||
        mr_dims_values(out) == 0)
        return false;
    for (int i = 0; i + 1 < in->rank; i++) {
        int64_t stride = (int64_t)stride_of(l, i);
        if (is_image(l) ? (in->shape[i] + stride - 1) / stride != out->shape[i]
                        : in->shape[i] != out->shape[i])
            return false;
    }
    return true;
}

static mr_code build_projection(mr_layer *l, mr_status *st)
{
    if (!can_project(l))
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "residual: no projection turns its input into the shape of its layers' output: a 1x1 "
            "convolution changes channels and strides of images, a dense layer the last axis");
    int64_t from = l->in.shape[l->in.rank - 1], to = l->out.shape[l->out.rank - 1];
    const mr_initializer glorot = {.kind = MR_INIT_GLOROT_UNIFORM};
    l->n_wanted = 2;
    l->wanted[0] = (mr_variable_spec){.name = "kernel",
                                      .rank = is_image(l) ? 4 : 2,
                                      .shape = {from, to},
                                      .initializer = glorot,
                                      .fan_in = (size_t)from,
                                      .fan_out = (size_t)to};
    if (is_image(l))
        memcpy(l->wanted[0].shape, (int64_t[]){1, 1, from, to}, 4 * sizeof(int64_t));
    l->wanted[1] = (mr_variable_spec){
        .name = "bias", .rank = 1, .shape = {to}, .fan_in = (size_t)to, .fan_out = (size_t)to};
    return MR_OK;
}

/* Strided slice followed by a matrix product over the last axis. */
static mr_code onnx_projection(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    const char *const kernel = mr_onnx_variable(g, 0), *const bias = mr_onnx_variable(g, 1);
    if (is_image(l)) {
        const int64_t starts[] = {0, 0}, ends[] = {l->in.shape[0], l->in.shape[1]}, axes[] = {1, 2},
                      steps[] = {(int64_t)stride_of(l, 0), (int64_t)stride_of(l, 1)};
        const char *const how[] = {mr_onnx_ints(g, 2, starts), mr_onnx_ints(g, 2, ends),
                                   mr_onnx_ints(g, 2, axes), mr_onnx_ints(g, 2, steps)};
        MR_TRY(mr_onnx_node(g, "Slice", how, 4, NULL, 0, st));
    }
    MR_TRY(mr_onnx_node(g, "MatMul", &kernel, 1, NULL, 0, st));
    return mr_onnx_node(g, "Add", &bias, 1, NULL, 0, st);
}

const mr_layer_desc mr__residual_projection = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "residual_projection",
           .doc = "Projects the input of a residual to the shape of its layers' output.",
           .example = "residual(dense(4), projection=true)"},
    .multiplies = true,
    .build = build_projection,
    .forward = project,
    .backward = project_backward,
    .onnx = onnx_projection,
};

/* ---- the sum */

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    size_t n = p->rows * mr_dims_values(&p->layer->out);
    const mr_math_combine copy = {n, 1, 0, p->x, p->y}, add = {n, 1, 1, p->xs[1], p->y};
    MR_TRY(p->math->combine(p->stream, &copy, st));
    return p->math->combine(p->stream, &add, st);
}

/* The gradient of both inputs is dy. */
static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    for (size_t k = 0; k < p->layer->n_inputs; k++) {
        const mr_math_combine copy = {p->rows * mr_dims_values(&p->layer->out), 1, 0, p->dy,
                                      p->dxs[k]};
        if (p->dxs[k])
            MR_TRY(p->math->combine(p->stream, &copy, st));
    }
    return MR_OK;
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    const char *const other = mr__onnx_result(g, l->sources[1] - 1);
    return mr_onnx_node(g, "Add", &other, 1, NULL, 0, st);
}

static mr_code keep_expression(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    (void)p;
    if (e->kind != MR_EX_CALL && e->kind != MR_EX_METHOD)
        return mr_expr_fail_at(
            st, e, "a residual needs a chain of layers, such as dense(16, activation=\"relu\")");
    *(const mr_expr **)field = mr_expr_ref(e);
    return MR_OK;
}

static void drop_expression(void *field)
{
    mr_expr_unref(*(const mr_expr **)field);
}

static const mr_param_kind chain = {
    .size = sizeof(const mr_expr *), .parse = keep_expression, .clear = drop_expression};

static const mr_param table[] = {
    {.name = "layers",
     .doc = "A chain of layers.",
     .type = MR_PT_OWN,
     .kind = &chain,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(mr__residual_params, layers)},
    MR_PARAM(mr__residual_params, projection,
             .doc =
                 "Projects the input to the shape of the layers' output by a learned projection."),
    {0}};

const mr_layer_desc mr__layer_residual = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "residual",
           .doc = "Adds the input of a chain of layers to its output.",
           .example = "input(8, 8, 16).residual(conv2d(16, 3, padding=\"same\").batch_norm())"
                      ".flatten()",
           .params = table,
           .params_size = sizeof(mr__residual_params)},
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
