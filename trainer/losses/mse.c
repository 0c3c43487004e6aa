/* SPDX-License-Identifier: Apache-2.0 */
/* Mean over the last axis of (prediction - label)^2. */
#include "trainer/loss_desc.h"

enum { CHUNK = 256 };

static mr_code compute(const mr__loss_pass *p, mr_status *st)
{
    (void)st;
    float labels[CHUNK];
    float mean = 1 / (float)p->width;
    for (size_t i = 0; i < p->n; i++) {
        const float *x = p->predictions + i * p->width;
        float sum = 0;
        for (size_t from = 0; from < p->width; from += CHUNK) {
            size_t n = p->width - from < CHUNK ? p->width - from : CHUNK;
            mr__labels_to_float(p->label_dtype, p->labels, i * p->width + from, n, labels);
            for (size_t j = 0; j < n; j++) {
                float d = x[from + j] - labels[j];
                sum += d * d;
                if (p->gradient)
                    p->gradient[i * p->width + from + j] = 2 * d * mean * p->scale;
            }
        }
        p->per_example[i] = sum * mean;
    }
    return MR_OK;
}

static const mr__arg args[] = {{0}};

const mr__loss_desc mr__loss_mse = {
    .name = "mse",
    .alias = "mean_squared_error",
    .doc = "Mean of the squared differences.",
    .example = "mse",
    .args = args,
    .compute = compute,
};
