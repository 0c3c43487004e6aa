/* SPDX-License-Identifier: Apache-2.0 */
/* The elementwise product of two or more inputs of one shape. */
#include "trainer/model/merge.h"
#include "trainer/model/onnx_impl.h"

/* Multiplies *at, the product so far, by x into y; *at becomes y. */
static mr_code times(const mr_layer_pass *p, const float **at, const float *x, float *y,
                     mr_status *st)
{
    const mr_math_product o = {p->rows * mr_dims_values(&p->layer->out), *at, x, y};
    *at = y;
    return p->math->product(p->stream, &o, st);
}

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    const float *at = p->xs[0];
    for (size_t k = 1; k < p->layer->n_inputs; k++)
        MR_TRY(times(p, &at, p->xs[k], p->y, st));
    return MR_OK;
}

/* The gradient of each input: dy times all others. */
static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    for (size_t k = 0; k < p->layer->n_inputs; k++) {
        const float *at = p->dy;
        for (size_t j = 0; j < p->layer->n_inputs && p->dxs[k]; j++)
            if (j != k)
                MR_TRY(times(p, &at, p->xs[j], p->dxs[k], st));
    }
    return MR_OK;
}

static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    for (size_t k = 1; k < l->n_inputs; k++) {
        const char *const other = mr__onnx_result(g, l->sources[k] - 1);
        MR_TRY(mr_onnx_node(g, "Mul", &other, 1, NULL, 0, st));
    }
    return MR_OK;
}

const mr_layer_desc mr__layer_multiply = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "multiply",
           .doc = "Elementwise product of two or more inputs of the same shape.",
           .example = "a = input(4); b = a.dense(4); multiply(a, b).dense(1)"},
    .merges = true,
    .build = mr__merge_build,
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
