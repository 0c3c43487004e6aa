/* SPDX-License-Identifier: Apache-2.0 */
/* y = (x - mean) / sqrt(variance + MR_NORMALIZATION_EPSILON), like the pipeline function. Mean and
 * variance are given: a number for each value along the last axis, or one for all. They are stored
 * as fixed variables, so that they are saved with the model. Kept, in the backward pass: zeros for
 * a mean. */
#include "pipeline/functions/library/learned_lists.h"
#include "trainer/model/layer.h"
#include "trainer/model/layer_state.h"
#include "trainer/model/onnx_impl.h"

struct params {
    mr_floats mean, variance;
    mr__learned adapted;
};

static const float epsilon = MR_NORMALIZATION_EPSILON;

static size_t width_of(const mr_layer *l)
{
    return l->in.rank > 0 ? (size_t)l->in.shape[l->in.rank - 1] : 1;
}

static size_t rows_of(const mr_layer_pass *p)
{
    size_t width = width_of(p->layer);
    return width > 0 ? p->rows * (mr_dims_values(&p->layer->in) / width) : 0;
}

static mr_code normalize(const mr_layer_pass *p, const float *x, const float *mean, float *y,
                         mr_status *st)
{
    const mr_math_normalize n = {.rows = rows_of(p),
                                 .width = width_of(p->layer),
                                 .epsilon = epsilon,
                                 .x = x,
                                 .mean = mean,
                                 .variance = p->w[1],
                                 .y = y};
    return p->math->normalize(p->stream, &n, st);
}

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    const mr_math_cast c = {p->rows * mr_dims_values(&p->layer->in), p->x_dtype, 1, 0, p->x, p->y};
    if (p->x_dtype == MR_FLOAT32)
        return normalize(p, p->x, p->w[0], p->y, st);
    MR_TRY(p->math->cast(p->stream, &c, st));
    return normalize(p, p->y, p->w[0], p->y, st);
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    if (!p->dx)
        return MR_OK;
    MR_TRY(p->math->fill(p->stream, &(mr_math_fill){width_of(p->layer), 0, p->kept}, st));
    return normalize(p, p->dy, p->kept, p->dx, st);
}

static mr_code build(mr_layer *l, mr_status *st)
{
    const struct params *o = l->params;
    size_t width = width_of(l);
    const mr_floats *lists[] = {o->adapted.e ? &o->adapted.a : &o->mean,
                                o->adapted.e ? &o->adapted.b : &o->variance};
    static const char *const names[] = {"mean", "variance"};
    l->out = l->in;
    l->keep = width;
    if (o->adapted.e ? o->mean.n || o->variance.n : !o->mean.n || !o->variance.n)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "normalization needs either mean and variance, or adapted");
    for (size_t i = 0; i < 2; i++) {
        if (lists[i]->n != 1 && lists[i]->n != width)
            return mr_fail(
                st, MR_INVALID_ARGUMENT,
                "normalization: %s has %zu values, expected 1 or %zu, the length of the last axis",
                names[i], lists[i]->n, width);
        l->wanted[l->n_wanted++] = (mr_variable_spec){.name = names[i],
                                                      .rank = 1,
                                                      .shape = {(int64_t)width},
                                                      .role = MR_FIXED,
                                                      .values = lists[i]->v,
                                                      .n_values = lists[i]->n};
    }
    return MR_OK;
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    (void)l;
    MR_TRY(mr__onnx_take(g, MR_FLOAT32, st));
    const char *const mean = mr_onnx_variable(g, 0), *const tiny =
                                                         mr_onnx_floats(g, 0, NULL, &epsilon);
    const char *const spread[] = {mr_onnx_variable(g, 1), tiny};
    MR_TRY(mr_onnx_node(g, "Sub", &mean, 1, NULL, 0, st));
    const char *const centered = mr__onnx_last(g);
    MR_TRY(mr__onnx_node_of(g, "Add", spread, 2, NULL, 0, st));
    MR_TRY(mr_onnx_node(g, "Sqrt", NULL, 0, NULL, 0, st));
    const char *const parts[] = {centered, mr__onnx_last(g)};
    return mr__onnx_node_of(g, "Div", parts, 2, NULL, 0, st);
}

static const mr_param table[] = {
    MR_PARAM(struct params, mean,
             .doc = "Means along the last axis, or a list with one mean for all."),
    MR_PARAM(struct params, variance, .max.f = 1e30, .doc = "The variances, likewise."),
    MR_PARAM_OWN(struct params, adapted, mr__param_moments,
                 .doc = "Instead of both: the directory that adapt wrote, or its "
                        "normalization.json."),
    {0}};

const mr_layer_desc mr__layer_normalization = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "normalization",
           .doc = "Subtracts known means and divides by known standard deviations.",
           .example = "input(3).normalization(mean=[0.5, 1.0, 2.0], variance=[1.0, 4.0, 0.25])"
                      ".dense(2)",
           .params = table,
           .params_size = sizeof(struct params)},
    .takes_numbers = true,
    .build = build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
