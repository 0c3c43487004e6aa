/* SPDX-License-Identifier: Apache-2.0 */
/* Concatenates inputs along an axis, the only one in which their shapes may differ. */
#include <inttypes.h>
#include "trainer/model/onnx_impl.h"
#include "trainer/device/tensor.h"

struct params {
    int64_t axis;
};

/* The axis within an example; -1 is the last. The batch axis is invalid. */
static int axis_of(const mr_layer *l)
{
    int64_t axis = ((const struct params *)l->params)->axis;
    return (int)(axis < 0 ? axis + l->in.rank : axis - 1);
}

static mr_code build(mr_layer *l, mr_status *st)
{
    int axis = axis_of(l);
    char first[128], other[128];
    if (axis < 0 || axis >= l->in.rank)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: an input of %d axes, besides that of the batch, has no axis %" PRId64
                       " to join along",
                       l->name, l->in.rank, ((const struct params *)l->params)->axis);
    l->out = l->in;
    for (size_t k = 1; k < l->n_inputs; k++) {
        const mr_dims *d = &l->ins[k];
        bool fits = d->rank == l->in.rank;
        for (int i = 0; fits && i < d->rank; i++)
            fits = i == axis || d->shape[i] == l->in.shape[i];
        mr__shape_text(l->in.rank, l->in.shape, first, sizeof first);
        mr__shape_text(d->rank, d->shape, other, sizeof other);
        if (!fits)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "%s: the shapes of its inputs may differ only in axis %d, but the first "
                           "has %s and number %zu has %s",
                           l->name, axis + 1, first, k + 1, other);
        l->out.shape[axis] += d->shape[axis];
    }
    return MR_OK;
}

/* Input k as rows that are pieces of the output's rows. */
static mr_math_place piece(const mr_layer_pass *p, size_t k, size_t *from)
{
    const mr_layer *l = p->layer;
    int axis = axis_of(l);
    size_t rows = p->rows, inner = 1;
    for (int i = 0; i < axis; i++)
        rows *= (size_t)l->out.shape[i];
    for (int i = axis + 1; i < l->out.rank; i++)
        inner *= (size_t)l->out.shape[i];
    *from = 0;
    for (size_t j = 0; j < k; j++)
        *from += inner * (size_t)l->ins[j].shape[axis];
    size_t width = inner * (size_t)l->ins[k].shape[axis];
    return (mr_math_place){rows,     width,       width, inner * (size_t)l->out.shape[axis],
                           p->xs[k], p->y + *from};
}

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    size_t from;
    for (size_t k = 0; k < p->layer->n_inputs; k++) {
        const mr_math_place o = piece(p, k, &from);
        MR_TRY(p->math->place(p->stream, &o, st));
    }
    return MR_OK;
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    size_t from;
    for (size_t k = 0; k < p->layer->n_inputs; k++) {
        const mr_math_place in = piece(p, k, &from);
        const mr_math_place out = {in.rows,  in.width,     in.y_stride,
                                   in.width, p->dy + from, p->dxs[k]};
        if (p->dxs[k])
            MR_TRY(p->math->place(p->stream, &out, st));
    }
    return MR_OK;
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    return mr__onnx_joined(l, g, axis_of(l) + 1, st);
}

static const mr_param table[] = {
    {.name = "axis",
     .doc = "Axis to join along; -1 is the last, and 0, the batch's, is not allowed.",
     .type = MR_PT_I64,
     .at = offsetof(struct params, axis),
     .def.i = -1,
     .min.i = -MR_MAX_RANK,
     .max.i = MR_MAX_RANK},
    {0}};

const mr_layer_desc mr__layer_concat = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "concat",
           .alias = "concatenate",
           .doc = "Joins two or more inputs along an axis.",
           .example = "a = input(4); b = input(3); concat(a, b).dense(1)",
           .params = table,
           .params_size = sizeof(struct params)},
    .merges = true,
    .build = build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
