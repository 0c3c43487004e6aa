/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_SELECTION_H
#define MR_PIPELINE_STREAMS_SELECTION_H
/* Takes elements from an op's first n inputs in the order of a sequence of input numbers:
 * choose_from_datasets, sample_from_datasets and mix.
 *
 *     numbers   0 0 1 0 2 ...          inputs   0: | block ..>
 *                   ^at                         1: | block ..>
 *                                               2: ended
 *
 * A number of an input that has ended is skipped, or ends the selection. From each input only as
 * many rows are pulled as the present numbers require.
 *
 * thread   as an op's next */
#include "pipeline/streams/cursor.h"

typedef struct mr__selected mr__selected; /* one input */

typedef enum mr__stop {
    MR__STOP_ALL,   /* ends with the last input: numbers of those that have ended are skipped */
    MR__STOP_FIRST, /* ends with the first input that ends */
    MR__STOP_REPEAT /* an input that ends is opened again, at once, until each has ended once. One
                       whose epoch has no element is from then on skipped */
} mr__stop;

typedef struct mr__selection {
    mr_iter *it;
    mr__selected *inputs;
    size_t n, left; /* left: inputs that have not ended, not even once */
    mr__stop stop;
    bool ended;       /* the selection has ended */
    bool leaves_out;  /* with MR__STOP_FIRST: an input that ends without an element is skipped */
    size_t row_bytes; /* of the last rows; 0: not known */
    int64_t *numbers; /* [at, n_numbers) are not used yet */
    size_t at, n_numbers, capacity;
} mr__selection;

/* used: for each input, whether numbers may refer to it (NULL: all). These inputs must be open. */
mr_code mr__selection_open(mr__selection *s, mr_iter *it, size_t n, const bool *used, mr__stop stop,
                           mr_status *st) MR_NODISCARD;
/* Makes room for n more numbers; *to: where to write them. The caller then adds to n_numbers. */
mr_code mr__selection_room(mr__selection *s, size_t n, int64_t **to, mr_status *st) MR_NODISCARD;
/* The next rows. refill adds 1..want numbers, or returns MR_END or an error in place of a
 * number. */
mr_code mr__selection_next(mr__selection *s, size_t want,
                           mr_code (*refill)(mr_iter *it, size_t want, mr_status *st),
                           mr_block *out, mr_status *st) MR_NODISCARD;
void mr__selection_reset(mr__selection *s);
mr_code mr__selection_save(mr__selection *s, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__selection_restore(mr__selection *s, mr_state_r *r, mr_status *st) MR_NODISCARD;
/* The same for one input, and without the numbers. mr__selection_restored is to be called after the
 * last input is restored, or left at its beginning; ended NULL: the inputs are others than in the
 * position, and say whether it has. */
mr_code mr__selection_save_input(mr__selection *s, size_t i, mr_state_w *w,
                                 mr_status *st) MR_NODISCARD;
mr_code mr__selection_restore_input(mr__selection *s, size_t i, mr_state_r *r,
                                    mr_status *st) MR_NODISCARD;
void mr__selection_restored(mr__selection *s, const bool *ended);

/* The most specific spec that covers the elements of the first n inputs.
 * errors   MR_INVALID_ARGUMENT: their types differ */
mr_code mr__selection_infer(const mr_dataset *self, size_t n, mr_spec **out,
                            mr_status *st) MR_NODISCARD;
#endif
