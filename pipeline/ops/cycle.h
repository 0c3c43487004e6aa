/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_CYCLE_H
#define MR_PIPELINE_OPS_CYCLE_H
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
 * is fetched by a task, and the datasets to come are opened ahead too.
 *
 * thread   as an op's next */
#include "pipeline/engine/executor.h"

/* A dataset under way, or the error that stands in its place. */
typedef struct mr__stream mr__stream;

/* The input's elements, as datasets: positions at.. of `in` are to come. */
typedef struct mr__outer {
    mr_block in, made; /* made: one dataset for each position without an error */
    mr_row_errors errors;
    size_t at, opened;        /* next position to hand out; to open ahead (>= at) */
    size_t made_at, error_at; /* of `opened` */
    mr_buffer *tag;           /* the input's state `base` rows before `in`; NULL: none */
    size_t base, skip; /* skip: rows of what is pulled next that were handed out before the position
                          restored */
} mr__outer;

typedef struct mr__cycle {
    mr_iter *it;
    const mr_program *program;
    mr_executor *executor; /* NULL: everything in the calling thread */
    size_t most;           /* fetches under way at once */
    int64_t length, block_length;
    bool ordered, tags, input_ended;
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
} mr__cycle;

/* num_parallel_calls: 0 none, MR_AUTO, or their number. Takes `program` over, also on failure. */
mr_code mr__cycle_open(mr__cycle *c, mr_iter *it, const mr_program *program, int64_t length,
                       int64_t block_length, int64_t num_parallel_calls, mr_tri deterministic,
                       mr_status *st) MR_NODISCARD;
void mr__cycle_close(mr__cycle *c);
mr_code mr__cycle_next(mr__cycle *c, size_t want, mr_block *out, mr_status *st) MR_NODISCARD;
mr_code mr__cycle_save(mr__cycle *c, mr_state_w *w, mr_status *st) MR_NODISCARD;
mr_code mr__cycle_restore(mr__cycle *c, mr_state_r *r, mr_status *st) MR_NODISCARD;
/* What fn makes of elements of `in`, which must be a dataset: the spec of its elements, owned.
 * errors   MR_INVALID_ARGUMENT: it makes something else; names op */
mr_code mr__cycle_infer(mr_fn *fn, const mr_spec *in, const char *op, mr_spec **out,
                        mr_status *st) MR_NODISCARD;

/* Within cycle*.c. */
struct mr__stream {
    mr_task task;
    mr__stream *next;
    mr__cycle *owner;
    mr_iter *inner;
    mr_block element; /* the row it was made from, where positions are asked for */
    mr_code rc;       /* not MR_OK: the error in its place */
    mr_status status;
    mr_block block; /* fetched; rows from `at` on are to come */
    size_t at;
    mr_buffer *tag; /* inner's state `base` rows before block; NULL: none */
    size_t base, skip;
    uint64_t held;         /* the call of next whose output holds what the block's views point at */
    uint64_t fits;         /* the call of next whose output block fits; 0: not known */
    int64_t rows;          /* of the dataset, so far */
    size_t bytes;          /* of a row of block */
    size_t row_bytes, ask; /* for the next fetch; belong to the task while it is under way */
    bool fetched;          /* what follows is there, or will be when the task is done */
    bool submitted;
    mr_block ahead;
    mr_code ahead_rc;
    mr_status ahead_status;
    mr_buffer *ahead_tag;
};
mr_code mr__cycle_stream(mr__cycle *c, mr__stream **out, mr_status *st) MR_NODISCARD;
void mr__cycle_drop_stream(mr__cycle *c, mr__stream *s);
void mr__cycle_drop_all(mr__cycle *c);
void mr__cycle_wait(mr__cycle *c, mr__stream *s);
/* Makes slot i there (free), for any i below length. */
mr_code mr__cycle_slot(mr__cycle *c, size_t i, mr_status *st) MR_NODISCARD;
#endif
