/* SPDX-License-Identifier: Apache-2.0 */
/* The mean of two or more inputs of one shape. */
#include "trainer/model/merge.h"
#include "trainer/model/onnx_impl.h"

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    return mr__merge_linear(p, 1 / (float)p->layer->n_inputs, 1 / (float)p->layer->n_inputs, st);
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    return mr__merge_linear_backward(p, 1 / (float)p->layer->n_inputs,
                                     1 / (float)p->layer->n_inputs, st);
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    return mr__onnx_merge(l, g, "Mean", st);
}

const mr_layer_desc mr__layer_average = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "average",
           .doc = "Mean of two or more inputs of the same shape.",
           .example = "a = input(4); b = a.dense(4); average(a, b).dense(1)"},
    .merges = true,
    .build = mr__merge_build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
