/* SPDX-License-Identifier: Apache-2.0 */
/* y = x * scale + offset, from numbers of any dtype: as the first layer of a model it converts
 * bytes to floats on the device. cast is the same with 1 and 0. */
#include "trainer/model/layer.h"
#include "trainer/model/onnx_impl.h"

struct params {
    double scale, offset;
};

static mr_code rescale(const mr_layer_pass *p, double scale, double offset, mr_status *st)
{
    return p->math->cast(p->stream,
                         &(mr_math_cast){.n = p->rows * mr_dims_values(&p->layer->in),
                                         .from = p->x_dtype,
                                         .scale = (float)scale,
                                         .offset = (float)offset,
                                         .src = p->x,
                                         .dst = p->y},
                         st);
}

static mr_code rescale_backward(const mr_layer_pass *p, double scale, mr_status *st)
{
    const mr_math_combine c = {p->rows * mr_dims_values(&p->layer->in), (float)scale, 0, p->dy,
                               p->dx};
    return p->dx ? p->math->combine(p->stream, &c, st) : MR_OK;
}

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    const struct params *o = p->layer->params;
    return rescale(p, o->scale, o->offset, st);
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    return rescale_backward(p, ((const struct params *)p->layer->params)->scale, st);
}

static mr_code forward_cast(const mr_layer_pass *p, mr_status *st)
{
    return rescale(p, 1, 0, st);
}

static mr_code backward_cast(const mr_layer_pass *p, mr_status *st)
{
    return rescale_backward(p, 1, st);
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    const struct params *o = l->params;
    const float scale = (float)o->scale, offset = (float)o->offset;
    MR_TRY(mr__onnx_take(g, MR_FLOAT32, st));
    const char *const by = mr_onnx_floats(g, 0, NULL, &scale), *const more = mr_onnx_floats(
                                                                   g, 0, NULL, &offset);
    MR_TRY(mr_onnx_node(g, "Mul", &by, 1, NULL, 0, st));
    return mr_onnx_node(g, "Add", &more, 1, NULL, 0, st);
}

static mr_code onnx_cast(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    (void)l;
    return mr__onnx_take(g, MR_FLOAT32, st);
}

static const mr_param table[] = {
    MR_ARG(struct params, scale, .doc = "Factor that values are multiplied by."),
    MR_PARAM(struct params, offset, .doc = "Number that is added afterwards."),
    {0}};

const mr_layer_desc mr__layer_rescaling = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "rescaling",
           .doc =
               "Multiplies by a number and adds another; takes numbers of any type, such as bytes.",
           .example = "input(28, 28).rescaling(0.00392156862745098).flatten().dense(10)",
           .params = table,
           .params_size = sizeof(struct params)},
    .takes_numbers = true,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};

const mr_layer_desc mr__layer_cast = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "cast",
           .doc = "Converts numbers of any type to float32.",
           .example = "input(4).cast().dense(3)"},
    .takes_numbers = true,
    .forward = forward_cast,
    .backward = backward_cast,
    .onnx = onnx_cast,
};
