/* SPDX-License-Identifier: Apache-2.0 */
/* Maps numbers to the indices of their bins, for category_encoding or embedding. */
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/model/layer.h"
#include "trainer/model/layer_state.h"
#include "trainer/model/onnx_impl.h"

struct params {
    mr__learned bin_boundaries;
};

enum { NUMBER = 32 };

static mr_code prepare(const mr_layer *l, const char *x, char **out, mr_status *st)
{
    const mr_floats *b = &((const struct params *)l->params)->bin_boundaries.a;
    size_t size = strlen(x) + b->n * NUMBER + 64;
    *out = mr_malloc(size);
    if (!*out)
        return mr_fail_memory(st, size, "a model's preprocessing");
    size_t n = (size_t)snprintf(*out, size, "discretization(%s, bin_boundaries=[", x);
    for (size_t i = 0; i < b->n; i++)
        n += (size_t)snprintf(*out + n, size - n, "%s%.17e", i ? ", " : "", b->v[i]);
    snprintf(*out + n, size - n, "])");
    return MR_OK;
}

/* Counts the boundaries that are not above each value. */
static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    static const mr_onnx_attribute gone = {"keepdims", MR_ONNX_INT, .i = 0},
                                   to = {"to", MR_ONNX_INT, .i = 7 /* int64 */};
    const mr_floats *b = &((const struct params *)l->params)->bin_boundaries.a;
    const int64_t n = (int64_t)b->n, last = -1;
    float *v = mr_calloc(b->n, sizeof *v);
    if (!v)
        return mr_fail_memory(st, b->n * sizeof *v, "boundaries");
    for (size_t i = 0; i < b->n; i++)
        v[i] = (float)b->v[i];
    const char *const bounds = mr_onnx_floats(g, 1, &n, v), *const axis = mr_onnx_ints(g, 1, &last);
    mr_free(v);
    MR_TRY(mr__onnx_take(g, MR_FLOAT32, st));
    MR_TRY(mr_onnx_node(g, "Unsqueeze", &axis, 1, NULL, 0, st));
    MR_TRY(mr_onnx_node(g, "GreaterOrEqual", &bounds, 1, NULL, 0, st));
    MR_TRY(mr_onnx_node(g, "Cast", NULL, 0, &to, 1, st));
    mr__onnx_gives(g, MR_INT64);
    return mr_onnx_node(g, "ReduceSum", &axis, 1, &gone, 1, st);
}

static const mr_param table[] = {
    {.name = "bin_boundaries",
     .doc = "Increasing numbers, a file of them, or the directory of boundaries.json.",
     .type = MR_PT_OWN,
     .kind = &mr__param_boundaries,
     .flags = MR_P_POSITIONAL,
     .at = offsetof(struct params, bin_boundaries)},
    {0}};

const mr_layer_desc mr__layer_discretization = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "discretization",
           .doc = "Maps each value to the number of its bin: 0 below the first boundary.",
           .example = "input(2).discretization([0.0, 1.0]).category_encoding(3).dense(1)",
           .params = table,
           .params_size = sizeof(struct params)},
    .view = true,
    .prepare = prepare,
    .onnx = onnx,
};
