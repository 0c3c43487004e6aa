/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_COLLECTIVE_TIMES_H
#define MR_TRAINER_COLLECTIVE_COLLECTIVE_TIMES_H
/* Measures how long operations ran, and how long ranks waited for them: streams record timestamps
 * through host calls or kernels, and nothing waits for a stream.
 *
 * thread   any */
#include "trainer/collective/collective.h"

typedef struct mr__sum_times mr__sum_times;

typedef enum mr__sum_mark {
    MR__SUM_BEGINS, /* on the engine's stream of the rank */
    MR__SUM_ENDS,
    MR__WAIT_BEGINS, /* on the rank's own stream */
    MR__WAIT_ENDS
} mr__sum_mark;

mr__sum_times *mr__sum_times_new(size_t n_ranks); /* owned; NULL: no memory */
/* All submitted marks have run, or never will. NULL: nothing. */
void mr__sum_times_free(mr__sum_times *t);
/* Records a timestamp at this point of the stream. */
mr_code mr__sum_times_mark(mr__sum_times *t, mr__sum_mark mark, size_t rank, mr_stream *stream,
                           mr_status *st) MR_NODISCARD;
/* Ends all operations and waits that are marked as running. */
void mr__sum_times_stop(mr__sum_times *t);
void mr__sum_times_read(mr__sum_times *t, mr_collective_times *out);
#endif
