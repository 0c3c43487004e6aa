/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_INTERLEAVER_H
#define MR_PIPELINE_STREAMS_INTERLEAVER_H
/* Interleaves the datasets that a function makes of an op's input elements: flat_map, interleave.
 *
 *     input --f--> [dataset dataset ...]          slots   0: | block ..> inner iterator
 *                    opened in order, when               1: | block ..> inner iterator
 *                    the cycle comes to a free slot      2: free
 *                                                         `-- slot c, element b of its turn
 *
 * To produce an element: if slot c is open, take from it, and move to the next slot after
 * block_length elements; if its dataset ends, free the slot and move to the next. If slot c is
 * free, open the next dataset in it and take from it. If all slots are free and the input has
 * ended, return MR_END. An error only consumes its element or dataset.
 *
 * With one slot nothing is read ahead. With more, a block of each slot is; with parallel calls a
 * task fetches it, and the next datasets are opened ahead too. Each slot has its own read-ahead
 * queue.
 *
 * thread   as an op's next */
#include "pipeline/engine/auto_parallelism.h"
#include "pipeline/streams/cursor.h"

/* A dataset being read, or the error in its place. */
typedef struct mr__stream mr__stream;

/* The input's elements as datasets; `in` holds those not consumed yet. */
typedef struct mr__outer {
    mr__cursor in;
    mr_block made; /* one dataset for each element of the block without an error */
    mr_row_errors errors;
    size_t opened;            /* next element to open (ahead); 0: no datasets made yet */
    size_t made_at, error_at; /* of `opened` */
    bool ready;               /* `made` belongs to the current block */
} mr__outer;

typedef struct mr__interleaver {
    mr_iter *it;
    const mr_program *program;
    mr_executor *executor;      /* NULL: everything in the calling thread */
    size_t most;                /* maximum number of concurrent fetches */
    mr__auto_parallelism depth; /* tunes `most` if it is auto */
    int64_t length, block_length;
    bool ordered, positions, input_ended;
    mr__outer outer;
    mr__stream **slots; /* the first n_slots have been used; NULL: free */
    size_t n_slots, slots_capacity, n_open;
    size_t c;                           /* current slot */
    int64_t b;                          /* elements taken in its turn */
    mr__stream *futures, *futures_tail; /* opened ahead, in order */
    size_t n_futures;
    mr__stream *spare;
    uint64_t calls;    /* of next */
    int64_t most_rows; /* maximum of the datasets that have ended; -1: none has */
} mr__interleaver;

/* num_parallel_calls: 0 (sequential), MR_AUTO, or a number. Takes `program` over, also on failure.
 */
mr_code mr__interleaver_open(mr__interleaver *c, mr_iter *it, const mr_program *program,
                             int64_t length, int64_t block_length, int64_t num_parallel_calls,
                             mr_tri deterministic, mr_status *st) MR_NODISCARD;
/* Slots of an op whose state is an mr__interleaver. */
void mr__interleaver_close(mr_iter *it);
mr_code mr__interleaver_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
mr_code mr__interleaver_save(mr_iter *it, mr_state_w *w, mr_status *st);
mr_code mr__interleaver_restore(mr_iter *it, mr_state_r *r, mr_status *st);
/* infer of an op whose params begin with an mr_fn * that returns a dataset for each element: the
 * spec of the datasets' elements.
 * errors   MR_INVALID_ARGUMENT: it does not return a dataset */
/* Elements of all datasets that fn makes of `in` elements, if all have equally many. */
int64_t mr__interleaver_cardinality(const mr_dataset *self, mr_fn *fn, int64_t in);
mr_code mr__interleaver_infer(const mr_dataset *self, const void *params, mr_spec **out,
                              mr_status *st);

#endif
