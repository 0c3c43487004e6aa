/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes class numbers. multi_hot: 1 for each class among the numbers along the last axis; count:
 * its frequency; one_hot: for each number separately. An invalid class number fails the step. */
#include <string.h>
#include "trainer/model/layer.h"
#include "trainer/model/onnx_impl.h"
#include "trainer/strategy/strategy_impl.h"

struct params {
    int64_t num_tokens;
    char *output_mode;
};

static bool is_one_hot(const mr_layer *l)
{
    return strcmp(((const struct params *)l->params)->output_mode, "one_hot") == 0;
}

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    const mr_layer *l = p->layer;
    const struct params *o = l->params;
    size_t values = mr_dims_values(&l->in), per = 1;
    if (!is_one_hot(l) && l->in.rank > 0)
        per = (size_t)l->in.shape[l->in.rank - 1];
    return p->math->encode(p->stream,
                           &(mr_math_encode){.once = strcmp(o->output_mode, "count") != 0,
                                             .rows = p->rows * (values / per),
                                             .ids_per_row = per,
                                             .classes = (size_t)o->num_tokens,
                                             .per_row = values / per,
                                             .first_row = p->first_row,
                                             .id_dtype = p->x_dtype,
                                             .ids = p->x,
                                             .y = p->y,
                                             .fault = mr__replica_fault(p->replica)},
                           st);
}

/* The output is not differentiable by a class number. */
static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    if (!p->dx)
        return MR_OK;
    return p->math->fill(p->stream,
                         &(mr_math_fill){p->rows * mr_dims_values(&p->layer->in), 0, p->dx}, st);
}

static mr_code build(mr_layer *l, mr_status *st)
{
    const struct params *o = l->params;
    l->out = l->in;
    if (mr_dims_values(&l->in) == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "category_encoding needs at least one number");
    /* An axis of length 1 (a new axis for scalars) becomes that of the classes. */
    bool replaces = l->in.rank > 0 && (!is_one_hot(l) || l->in.shape[l->in.rank - 1] == 1);
    if (!replaces && l->out.rank == MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT, "category_encoding: examples have too many axes");
    l->out.rank += !replaces;
    l->out.shape[l->out.rank - 1] = o->num_tokens;
    return MR_OK;
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    static const float off_on[] = {0, 1};
    static const mr_onnx_attribute before_last = {"axes", MR_ONNX_INTS, .n = 1, .ints = {-2}},
                                   gone = {"keepdims", MR_ONNX_INT, .i = 0};
    const struct params *o = l->params;
    const int64_t two = 2, axis = -2;
    int64_t shape[MR_MAX_RANK + 1] = {0}; /* 0: unchanged, the batch */
    MR_TRY(mr__onnx_take(g, MR_INT64, st));
    const char *const how[] = {mr_onnx_ints(g, 1, &o->num_tokens),
                               mr_onnx_floats(g, 1, &two, off_on)};
    MR_TRY(mr_onnx_node(g, "OneHot", how, 2, NULL, 0, st));
    mr__onnx_gives(g, MR_FLOAT32);
    if (!is_one_hot(l) && l->in.rank > 0) {
        if (strcmp(o->output_mode, "count") == 0) {
            const char *const along = mr_onnx_ints(g, 1, &axis);
            return mr_onnx_node(g, "ReduceSum", &along, 1, &gone, 1, st);
        }
        return mr_onnx_node(g, "ReduceMax", NULL, 0, (const mr_onnx_attribute[]){before_last, gone},
                            2, st);
    }
    memcpy(shape + 1, l->out.shape, (size_t)l->out.rank * sizeof *shape);
    const char *const to = mr_onnx_ints(g, (size_t)l->out.rank + 1, shape);
    return mr_onnx_node(g, "Reshape", &to, 1, NULL, 0, st);
}

static const char *const modes[] = {"multi_hot", "one_hot", "count", NULL};
static const mr_param table[] = {
    MR_ARG(struct params, num_tokens, .min.i = 1, .max.i = 1 << 24, .doc = "Number of classes."),
    MR_PARAM(struct params, output_mode, .def.s = "multi_hot", .names = modes,
             .doc = "\"multi_hot\", \"one_hot\" or \"count\"."),
    {0}};

const mr_layer_desc mr__layer_category_encoding = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "category_encoding",
           .doc = "Encodes class numbers as one-hot, multi-hot or count vectors.",
           .example = "input(3).category_encoding(10, output_mode=\"multi_hot\").dense(2)",
           .params = table,
           .params_size = sizeof(struct params)},
    .takes_numbers = true,
    .build = build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
