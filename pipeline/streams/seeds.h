/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SEEDS_H
#define MR_PIPELINE_STREAMS_SEEDS_H
/* The seeds of a random op, as in tf.data. The dataset has a pair of words, from the user's seed or
 * drawn once. An iterator uses that pair, or draws a separate one:
 *
 *     dataset   Philox(pair)   w0 w1 | w2 w3 | w4 w5 ...
 *                              first   second  third iterator
 *
 * The pair and the number of words drawn are the dataset's shared state (mr_iter_shared), so an op
 * that uses these functions cannot share other state.
 *
 * thread   any */
#include "pipeline/engine/op_iterator.h"

/* The pair for this iterator. seed NULL: the dataset's pair is drawn, from the job's seed if there
 * is one. again: each iterator draws a separate pair. */
mr_code mr__seeds_draw(mr_iter *it, const int64_t *seed, bool again, uint64_t pair[2],
                       mr_status *st) MR_NODISCARD;
/* Slots of the op: the dataset's pair and the number of words drawn. */
mr_code mr__seeds_save_shared(mr_dataset *node, mr_state_w *w, mr_status *st);
mr_code mr__seeds_restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st);
#endif
