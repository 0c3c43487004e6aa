/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_PARALLEL_CALLS_H
#define MR_PIPELINE_STREAMS_PARALLEL_CALLS_H
/* Runs a function over the blocks of an op's input, in the calling thread or as tasks; shared by
 * map and filter.
 *
 *     input --pull--> [call: in -> rows, errors] [call] [call] --> next
 *                                                              in order, or as they finish
 *
 * The calls are the entries of a read-ahead queue. In the calling thread there is only one at a
 * time. An input that waits for an outside producer is pulled by a fill of the queue, so that
 * results do not wait for the rows after them. Blocks are bounded by the bytes of inputs, results
 * and intermediate values (block_size_tuner.h).
 *
 * thread   as an op's next */
#include <stdatomic.h>

#include "pipeline/engine/auto_parallelism.h"
#include "pipeline/streams/read_ahead_queue.h"

/* Puts the results for `in` (whose rows it may take) into out, with errors counted as for
 * mr_iter_emit. *bytes = the bytes of the largest intermediate value (mr__program_run_measured).
 * Runs in several threads at once. There may be neither rows nor errors. Fails as a whole only for
 * lack of memory; `in` is then unchanged. */
typedef mr_code (*mr__call_fn)(const mr_program *program, mr_block *in, mr_block *out,
                               mr_row_errors *errors, size_t *bytes, mr_status *st);

typedef struct mr__parallel_calls {
    mr__queue queue; /* first, so that an entry's queue converts to the calls */
    mr_iter *it;
    mr__call_fn fn;
    const mr_program *program;
    mr_executor *executor;      /* NULL: everything in the calling thread */
    size_t most;                /* maximum number of concurrent calls */
    mr__auto_parallelism depth; /* tunes `most` if it is auto */
    bool ordered, blocking, light;
    mr__block_size_tuner tuner; /* rows of a call */
    size_t pulled;              /* by the last call */
    bool filled;                /* the queue's fill pulls the input and starts the calls: */
    atomic_size_t asks;         /* of how many rows */
    atomic_bool fills_light;    /* with this `light` */
} mr__parallel_calls;

/* num_parallel_calls: 0 (sequential), MR_AUTO, or a number. Takes `program` over, also on failure.
 */
mr_code mr__parallel_calls_open(mr__parallel_calls *c, mr_iter *it, const mr_program *program,
                                mr__call_fn fn, int64_t num_parallel_calls, mr_tri deterministic,
                                mr_status *st) MR_NODISCARD;
/* Slots of an op whose state is an mr__parallel_calls. */
void mr__parallel_calls_close(mr_iter *it);
mr_code mr__parallel_calls_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
mr_code mr__parallel_calls_save(mr_iter *it, mr_state_w *w, mr_status *st);
mr_code mr__parallel_calls_restore(mr_iter *it, mr_state_r *r, mr_status *st);
/* errors   MR_INVALID_ARGUMENT: n is not 0 (unset), MR_AUTO or positive */
mr_code mr__parallel_calls_check(int64_t n, mr_status *st) MR_NODISCARD;
#endif
