/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SEEDS_H
#define MR_PIPELINE_STREAMS_SEEDS_H
/* The seeds of a random op, as tf.data has them: the dataset has a pair of words, from the user's
 * seed or drawn once. An iterator uses that pair, or one of its own:
 *
 *     dataset   Philox(pair)   w0 w1 | w2 w3 | w4 w5 ...
 *                              first   second  third iterator
 *
 * What is drawn is shared by all iterators of the dataset (mr_iter_shared), so an op that uses
 * these shares nothing else.
 *
 * thread   any */
#include "pipeline/engine/op_iterator.h"

/* The pair for this iterator. seed NULL: the dataset's is drawn, from the job's seed if there is
 * one. again: each iterator has a pair of its own. */
mr_code mr__seeds_draw(mr_iter *it, const int64_t *seed, bool again, uint64_t pair[2],
                       mr_status *st) MR_NODISCARD;
/* Slots of the op: the dataset's pair and how many words were drawn. */
mr_code mr__seeds_save_shared(mr_dataset *node, mr_state_w *w, mr_status *st);
mr_code mr__seeds_restore_shared(mr_dataset *node, mr_state_r *r, mr_status *st);
#endif
