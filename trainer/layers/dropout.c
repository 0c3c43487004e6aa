/* SPDX-License-Identifier: Apache-2.0 */
/* In training, sets each value to 0 with probability `rate` and divides the others by 1 - rate.
 *
 * Whether value j of global row i is dropped is a function of (step, i, j): the mask is the same on
 * any number of replicas, and the backward pass draws it again instead of keeping it. */
#include <string.h>
#include "trainer/layer.h"
#include "trainer/random_bits.h"

struct params {
    double rate;
};

static void mask(const mr__pass *p, const float *in, float *out)
{
    const struct params *o = p->layer->params;
    size_t width = mr__dims_values(&p->layer->in);
    float rate = (float)o->rate, scale = rate < 1 ? 1 / (1 - rate) : 0;
    for (size_t r = 0; r < p->rows; r++) {
        uint64_t row = mr__mix_in(p->key, p->first_row + r);
        for (size_t j = 0; j < width; j++, in++, out++)
            *out = mr__unit_float(mr__mix(row + j)) < rate ? 0 : *in * scale;
    }
}

static mr_code forward(const mr__pass *p, mr_status *st)
{
    (void)st;
    if (p->training)
        mask(p, p->x, p->y);
    else
        memcpy(p->y, p->x, p->rows * mr__dims_values(&p->layer->in) * sizeof(float));
    return MR_OK;
}

static mr_code backward(const mr__pass *p, mr_status *st)
{
    (void)st;
    if (p->dx && p->training)
        mask(p, p->dy, p->dx);
    else if (p->dx)
        memcpy(p->dx, p->dy, p->rows * mr__dims_values(&p->layer->in) * sizeof(float));
    return MR_OK;
}

static mr_code build(mr__layer *l, mr_status *st)
{
    (void)st;
    l->out = l->in;
    return MR_OK;
}

static const mr__arg args[] = {MR__ARG(struct params, rate, MR__F64, .required = true, .min = 0,
                                       .max = 1,
                                       .doc = "Probability that a value is dropped, from 0 to 1."),
                               {0}};

const mr__layer_desc mr__layer_dropout = {
    .name = "dropout",
    .doc = "Drops values at random in training, and scales the rest up.",
    .example = "input(784).dense(128, activation=\"relu\").dropout(0.2).dense(10)",
    .args = args,
    .params_size = sizeof(struct params),
    .build = build,
    .forward = forward,
    .backward = backward,
};
