/* SPDX-License-Identifier: Apache-2.0 */
/* The difference of two inputs of one shape. */
#include "trainer/model/merge.h"
#include "trainer/model/onnx_impl.h"

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    return mr__merge_linear(p, 1, -1, st);
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    return mr__merge_linear_backward(p, 1, -1, st);
}

static mr_code build(mr_layer *l, mr_status *st)
{
    if (l->n_inputs != 2)
        return mr_fail(st, MR_INVALID_ARGUMENT, "%s: expected two inputs, found %zu", l->name,
                       l->n_inputs);
    return mr__merge_build(l, st);
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    return mr__onnx_merge(l, g, "Sub", st);
}

const mr_layer_desc mr__layer_subtract = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "subtract",
           .doc = "Difference of two inputs of the same shape.",
           .example = "a = input(4); b = a.dense(4); subtract(a, b).dense(1)"},
    .merges = true,
    .build = build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
