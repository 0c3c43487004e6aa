/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_COLLECT_H
#define MR_PIPELINE_STREAMS_COLLECT_H
/* Shared by batch, padded_batch and ragged_batch: collects input elements for a batch. */
#include "pipeline/columns/batch_builder.h"
#include "pipeline/streams/cursor.h"

/* The state of such an op, or the beginning of its state. */
typedef struct mr__collected {
    mr__cursor input;
    mr__batch_builder stack; /* empty between calls, unless one was cancelled with a misfit */
} mr__collected;

/* Pulls rows of input 0 for up to `want` batches of n, limited to the rows that a block should
 * hold, minus those on the stack. If the stack is empty they may go to destination (may be
 * NULL). */
mr_code mr__collect_pull(mr_iter *it, size_t want, size_t n, const mr_destination *destination,
                         mr_status *st) MR_NODISCARD;
/* A pull failed with rc, which it returns (or a lack of memory): the elements on the stack are
 * dropped, but after a cancellation they are put back into the input, where the next pull and
 * positions find them. take = mr__batch_builder_take: as rows, or mr__batch_builder_finish: as one
 * element. */
mr_code mr__collect_failed(mr__batch_builder *stack, mr__cursor *input,
                           mr_code (*take)(mr__batch_builder *, mr_block *, mr_status *),
                           mr_code rc, mr_status *st) MR_NODISCARD;
/* Puts the next n elements of input 0 on the stack, or fewer at the end unless drop_remainder;
 * their shapes may differ. An error of the input drops the elements already collected. `want`:
 * number of batches requested.
 * returns  MR_OK: finish the stack; MR_END; an error */
mr_code mr__collect_batch(mr_iter *it, size_t want, size_t n, bool drop_remainder,
                          mr_status *st) MR_NODISCARD;

/* The op's slots. */
void mr__collected_close(mr_iter *it);
mr_code mr__collected_save(mr_iter *it, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__collected_restore(mr_iter *it, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* The number of batches of n elements; a negative n (unknown, infinite) is returned unchanged. */
int64_t mr__count_batches(int64_t n, int64_t batch_size, bool drop_remainder);
#endif
