/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SELECTION_H
#define MR_PIPELINE_STREAMS_SELECTION_H
/* Elements of an op's first n inputs, taken as numbers say: choose_from_datasets and
 * sample_from_datasets.
 *
 *     numbers   0 0 1 0 2 ...          inputs   0: | block ..>
 *                   ^at                         1: | block ..>
 *                                               2: gone
 *
 * A number of an input that has ended is passed over, or ends it all. Of each input as many rows
 * are pulled as the numbers at hand ask for.
 *
 * thread   as an op's next */
#include "pipeline/streams/cursor.h"

typedef struct mr__selected mr__selected; /* one input */

typedef struct mr__selection {
    mr_iter *it;
    mr__selected *inputs;
    size_t n, left;   /* left: of them not ended */
    bool stop;        /* at the end of the first input that ends */
    bool ended;       /* all of it */
    size_t row_bytes; /* as seen last; 0: not known */
    int64_t *numbers; /* those at hand: [at, n_numbers) */
    size_t at, n_numbers, capacity;
} mr__selection;

/* used: of each input whether numbers may name it (NULL: all); it is opened already. */
mr_code mr__selection_open(mr__selection *s, mr_iter *it, size_t n, const bool *used, bool stop,
                           mr_status *st) MR_NODISCARD;
/* Makes room for n more numbers and returns where they go; the caller then adds to n_numbers. */
mr_code mr__selection_room(mr__selection *s, size_t n, int64_t **to, mr_status *st) MR_NODISCARD;
/* The next rows. refill adds 1 to `want` numbers, or returns MR_END or an error, which stands in
 * place of a number. */
mr_code mr__selection_next(mr__selection *s, size_t want,
                           mr_code (*refill)(mr_iter *it, size_t want, mr_status *st),
                           mr_block *out, mr_status *st) MR_NODISCARD;
void mr__selection_reset(mr__selection *s);
mr_code mr__selection_save(mr__selection *s, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__selection_restore(mr__selection *s, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* What holds for the elements of all n first inputs.
 * errors   MR_INVALID_ARGUMENT: they are of different types */
mr_code mr__selection_infer(const mr_dataset *self, size_t n, mr_spec **out,
                            mr_status *st) MR_NODISCARD;
#endif
