/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_WEIGHTED_DRAWS_H
#define MR_PIPELINE_STREAMS_WEIGHTED_DRAWS_H
/* Takes elements from an op's inputs in proportion to weights (sample_from_datasets, mix), bit for
 * bit as tf.data's sample_from_datasets: two words of a generator choose an input. Of one input
 * nothing is drawn.
 *
 *     up_to   | w0 | w0 + w1 | ... | all |      the first sum above uniform(words) * all
 *
 * thread   as an op's next */
#include "pipeline/engine/philox.h"
#include "pipeline/streams/selection.h"

typedef struct mr__weighted {
    uint64_t pair[2];
    mr__philox words;
    uint64_t drawn; /* words */
    size_t n;       /* inputs that have a weight */
    size_t *input;  /* the number of each */
    double *up_to;  /* the sum of the weights up to each */
} mr__weighted;

/* The beginning of the op's state. */
typedef struct mr__weighted_selection {
    mr__selection selection;
    mr__weighted draws;
} mr__weighted_selection;

/* weights: of n inputs, 0 for those that are never drawn; NULL: equal ones. */
mr_code mr__weighted_open(mr__weighted *w, const double *weights, size_t n,
                          mr_status *st) MR_NODISCARD;
/* Starts the generator of w->pair after `drawn` words. */
void mr__weighted_start(mr__weighted *w, uint64_t drawn);
/* The op's next. */
mr_code mr__weighted_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
void mr__weighted_reset(mr__weighted *w);
#endif
