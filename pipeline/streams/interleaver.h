/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_INTERLEAVER_H
#define MR_PIPELINE_STREAMS_INTERLEAVER_H
/* Datasets made of an op's input elements by a function, taken in turn: flat_map and interleave.
 *
 *     input --f--> [dataset dataset ...]          slots   0: | block ..> inner iterator
 *                    opened in order, when               1: | block ..> inner iterator
 *                    the cycle comes to a free slot      2: free
 *                                                         `-- slot c, element b of its turn
 *
 * To produce an element: slot c open: take from it, after block_length of them go to the next slot;
 * at its end free it and go on to the next. Slot c free: open the next dataset in it and go on
 * there. All slots free and the input ended: the end. An error changes nothing but what it took.
 *
 * With one slot nothing is read ahead. With more, a block of each slot is; with parallel calls it
 * is fetched by a task, and the datasets to come are opened ahead too. Each slot has a read-ahead
 * queue of its own.
 *
 * thread   as an op's next */
#include "pipeline/engine/auto_parallelism.h"
#include "pipeline/streams/cursor.h"

/* A dataset under way, or the error that stands in its place. */
typedef struct mr__stream mr__stream;

/* The input's elements, as datasets: those of `in` from its first one left on are to come. */
typedef struct mr__outer {
    mr__cursor in;
    mr_block made; /* one dataset for each element of the block without an error */
    mr_row_errors errors;
    size_t opened;            /* next element to open (ahead); 0: nothing was made yet */
    size_t made_at, error_at; /* of `opened` */
    bool ready;               /* made of the present block */
} mr__outer;

typedef struct mr__interleaver {
    mr_iter *it;
    const mr_program *program;
    mr_executor *executor;      /* NULL: everything in the calling thread */
    size_t most;                /* fetches under way at once */
    mr__auto_parallelism depth; /* of `most`, where it is auto */
    int64_t length, block_length;
    bool ordered, positions, input_ended;
    mr__outer outer;
    mr__stream **slots; /* n_slots of them were ever used; NULL: free */
    size_t n_slots, slots_capacity, n_open;
    size_t c;                           /* current slot */
    int64_t b;                          /* elements of its turn that were taken */
    mr__stream *futures, *futures_tail; /* opened ahead, in order */
    size_t n_futures;
    mr__stream *spare;
    uint64_t calls;    /* of next */
    int64_t most_rows; /* in any dataset that ended so far; -1: none did */
} mr__interleaver;

/* num_parallel_calls: 0 none, MR_AUTO, or their number. Takes `program` over, also on failure. */
mr_code mr__interleaver_open(mr__interleaver *c, mr_iter *it, const mr_program *program,
                             int64_t length, int64_t block_length, int64_t num_parallel_calls,
                             mr_tri deterministic, mr_status *st) MR_NODISCARD;
/* Slots of an op whose state is an mr__interleaver. */
void mr__interleaver_close(mr_iter *it);
mr_code mr__interleaver_next(mr_iter *it, size_t want, mr_block *out, mr_status *st);
mr_code mr__interleaver_save(mr_iter *it, mr_state_w *w, mr_status *st);
mr_code mr__interleaver_restore(mr_iter *it, mr_state_r *r, mr_status *st);
/* infer of an op whose params begin with an mr_fn *, which makes a dataset of each element: the
 * spec of the datasets' elements.
 * errors   MR_INVALID_ARGUMENT: it makes something else */
mr_code mr__interleaver_infer(const mr_dataset *self, const void *params, mr_spec **out,
                              mr_status *st);

#endif
