/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_COLLECT_H
#define MR_PIPELINE_STREAMS_COLLECT_H
/* What batch, padded_batch and ragged_batch share: the input's elements, and those of a batch. */
#include "pipeline/columns/batch_builder.h"
#include "pipeline/streams/cursor.h"

/* The state of such an op, or what it begins with. */
typedef struct mr__collected {
    mr__cursor input;
    mr__batch_builder stack; /* empty between calls */
} mr__collected;

/* Pulls rows of input 0: those of up to `want` batches of n, as many as a block should hold, less
 * those on the stack. They may go to destination (NULL: nowhere) if the stack is empty. */
mr_code mr__collect_pull(mr_iter *it, size_t want, size_t n, const mr_destination *destination,
                         mr_status *st) MR_NODISCARD;
/* Puts the next n elements of input 0 on the stack, whose shapes may differ, or the last ones
 * unless drop_remainder. An error of the input drops those collected before it. `want`: batches
 * that are asked for.
 * returns  MR_OK: the stack is to be finished; MR_END; an error */
mr_code mr__collect_batch(mr_iter *it, size_t want, size_t n, bool drop_remainder,
                          mr_status *st) MR_NODISCARD;

/* The op's slots. */
void mr__collected_close(mr_iter *it);
mr_code mr__collected_save(mr_iter *it, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__collected_restore(mr_iter *it, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* How many batches n elements make; n below 0 (not known, infinite) stays. */
int64_t mr__count_batches(int64_t n, int64_t batch_size, bool drop_remainder);
#endif
