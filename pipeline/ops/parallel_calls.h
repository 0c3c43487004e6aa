/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_PARALLEL_CALLS_H
#define MR_PIPELINE_OPS_PARALLEL_CALLS_H
/* Running a function over the blocks of an op's input, in the calling thread or as tasks: what map
 * and filter have in common. Input 0 is always pulled by the thread that calls next.
 *
 *     input --pull--> [call: in -> out, errors] [call] [call] --in order, or as they finish--> next
 *
 * Position: the input's state before the oldest undelivered call was pulled, and how many rows and
 * errors of it were delivered. Where the input cannot be produced again, or the order is not fixed,
 * the calls' rows are saved instead.
 *
 * thread   as an op's next */
#include "pipeline/engine/executor.h"

typedef struct mr__call mr__call;

/* out gets what the function makes of `in` (whose rows it may take), errors counted as for
 * mr_iter_emit. Runs in several threads at once. Rows in out plus errors may be none. */
typedef mr_code (*mr__call_fn)(const mr_program *program, mr_block *in, mr_block *out,
                               mr_row_errors *errors, mr_status *st);

typedef struct mr__calls {
    mr_iter *it;
    mr__call_fn fn;
    const mr_program *program;
    mr_executor *executor; /* NULL: everything in the calling thread */
    size_t most;           /* calls under way at once */
    bool ordered, ended, blocking;
    mr__call *head, *tail, *spare; /* undelivered, oldest first; unused */
    size_t n;                      /* undelivered */
    size_t rows;                   /* to ask for at the next pull: grows until a call takes long */
    size_t row_bytes;              /* as seen last */
    size_t skip; /* rows and errors at the front of what is pulled next that were delivered before
                    the position that was restored */
} mr__calls;

/* num_parallel_calls: 0 none, MR_AUTO, or their number. Takes `program` over, also on failure. */
mr_code mr__calls_open(mr__calls *c, mr_iter *it, const mr_program *program, mr__call_fn fn,
                       int64_t num_parallel_calls, mr_tri deterministic,
                       mr_status *st) MR_NODISCARD;
void mr__calls_close(mr__calls *c);
mr_code mr__calls_next(mr__calls *c, size_t want, mr_block *out, mr_status *st) MR_NODISCARD;
mr_code mr__calls_save(mr__calls *c, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__calls_restore(mr__calls *c, mr_state_r *r, mr_status *st) MR_NODISCARD;
/* MR_INVALID_ARGUMENT unless n is 0 (unset), MR_AUTO or positive. */
mr_code mr__calls_check(int64_t n, mr_status *st) MR_NODISCARD;
#endif
