/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_WEIGHTED_DRAWS_H
#define MR_PIPELINE_STREAMS_WEIGHTED_DRAWS_H
/* Draws numbers 0..n-1 in proportion to weights, bit for bit as tf.data's sample_from_datasets: two
 * words of a generator choose one. Of one number nothing is drawn.
 *
 *     up_to   | w0 | w0 + w1 | ... | all |      the first sum above uniform(words) * all
 *
 * thread   one */
#include "pipeline/engine/philox.h"
#include "pipeline/status.h"

typedef struct mr__weighted {
    uint64_t pair[2];
    mr__philox words;
    uint64_t drawn; /* words */
    size_t n;
    double *up_to; /* of each number, the sum of the weights up to it */
} mr__weighted;

/* weights: n of them, positive; NULL: equal ones. */
mr_code mr__weighted_open(mr__weighted *w, const double *weights, size_t n,
                          mr_status *st) MR_NODISCARD;
/* Starts the generator of w->pair after `drawn` words. */
void mr__weighted_start(mr__weighted *w, uint64_t drawn);
size_t mr__weighted_draw(mr__weighted *w);
void mr__weighted_reset(mr__weighted *w);
#endif
