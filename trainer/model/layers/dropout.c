/* SPDX-License-Identifier: Apache-2.0 */
/* In training, sets each value to 0 with probability `rate` and divides the others by 1 - rate.
 *
 * Whether value j of global row i is dropped is a function of (step, i, j): the mask is the same on
 * any number of replicas, and the backward pass draws it again instead of storing it. */
#include "trainer/model/layer.h"
#include "trainer/model/onnx.h"

struct params {
    double rate;
};

static mr_code drop(const mr_layer_pass *p, const float *from, float *to, mr_status *st)
{
    const struct params *o = p->layer->params;
    size_t width = mr_dims_values(&p->layer->in);
    if (!p->training)
        return mr_stream_copy(p->stream, to, from, p->rows * width * sizeof(float), st);
    return p->math->dropout(p->stream,
                            &(mr_math_dropout){.rows = p->rows,
                                               .width = width,
                                               .key = p->key,
                                               .first_row = p->first_row,
                                               .rate = (float)o->rate,
                                               .x = from,
                                               .y = to},
                            st);
}

static mr_code forward(const mr_layer_pass *p, mr_status *st)
{
    return drop(p, p->x, p->y, st);
}

static mr_code backward(const mr_layer_pass *p, mr_status *st)
{
    return p->dx ? drop(p, p->dy, p->dx, st) : MR_OK;
}

/* Outside of training it is the identity. */
static mr_code onnx(const mr_layer *l, mr_onnx *g, mr_status *st)
{
    (void)l;
    (void)g;
    (void)st;
    return MR_OK;
}

static const mr_param table[] = {MR_ARG(struct params, rate, .max.f = 1,
                                        .doc = "Probability that a value is dropped, from 0 to 1."),
                                 {0}};

const mr_layer_desc mr__layer_dropout = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "dropout",
           .doc = "Drops values at random in training, and scales the rest up.",
           .example = "input(784).dense(128, activation=\"relu\").dropout(0.2).dense(10)",
           .params = table,
           .params_size = sizeof(struct params)},
    .forward = forward,
    .backward = backward,
    .onnx = onnx,
};
