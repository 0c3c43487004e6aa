/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_OP_ITERATOR_H
#define MR_PIPELINE_ENGINE_OP_ITERATOR_H
/* What an op's open, next, close, save and restore call: inputs, delivering rows, options, state.
 * Most ops need nothing else. For the rest:
 *
 *   op_source.h           sources: identities of rows, names of files
 *   op_inner_datasets.h   ops that run datasets made by a function (flat_map, interleave, window)
 *   op_buffering.h        ops that hold rows or work in other threads (shuffle, prefetch)
 *
 * The contract of next(it, want, out):
 *   - It returns MR_OK with 1..want rows in out (prepared by the op; empty when called), MR_END, or
 *     the error at this position. The engine makes MR_END sticky and clears out on anything but
 *     MR_OK.
 *   - If an error follows some good rows, it returns the rows and passes the error to
 *     mr_iter_defer. Or it passes everything to mr_iter_emit, which cuts it into rows, error, rows.
 *   - If it has more rows than `want`, it passes them to mr_iter_emit, which keeps the rest.
 *   - It pulls no more from its inputs than the requested rows need, except into buffers that the
 *     user requested by name (shuffle, prefetch, parallel calls, cycle).
 *   - An error of no element (status.h) ends the pipeline. The op takes nothing from its state for
 *     it, as if the call had not been made: a position saved then continues with another try. The
 *     engine returns it from every later call of next, so that no op above takes what follows for
 *     the end; only after a lack of memory (ENOMEM) it calls the op again.
 *   - If rows do not change, the input may write them straight to out->destination (block.h).
 *
 * These are the slots of first(count), the op in the head of graph/op.h. Its state is the number of
 * elements left. Positions are untrusted: restore checks every number in them.
 *
 *     struct state {
 *         uint64_t left;
 *     };
 *     static mr_code open(mr_iter *it, mr_status *st)
 *     {
 *         (void)st;
 *         const struct params *p = it->params;
 *         struct state *s = it->state;
 *         s->left = (uint64_t)p->count;
 *         return MR_OK;
 *     }
 *     static mr_code next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
 *     {
 *         struct state *s = it->state;
 *         if (s->left == 0)
 *             return MR_END;
 *         MR_TRY(mr_iter_pull(it, 0, want < s->left ? want : (size_t)s->left, out, st));
 *         s->left -= out->rows;
 *         return MR_OK;
 *     }
 *     static mr_code save(mr_iter *it, mr_state_w *w, mr_status *st)
 *     {
 *         const struct state *s = it->state;
 *         MR_TRY(mr_state_put_u64(w, s->left, st));
 *         return mr_iter_save_input(it, 0, w, st);
 *     }
 *     static mr_code restore(mr_iter *it, mr_state_r *r, mr_status *st)
 *     {
 *         const struct params *p = it->params;
 *         struct state *s = it->state;
 *         MR_TRY(mr_state_get_u64(r, &s->left, st));
 *         if (s->left > (uint64_t)p->count)
 *             return mr_state_damaged(st, "more elements are left than the op emits");
 *         MR_TRY(mr_iter_restore_input(it, 0, r, st));
 *         return it->inputs[0] ? MR_OK : mr_state_damaged(st, "an input is not open");
 *     }
 *
 * thread   one at a time per iterator, not always the same one
 * since    0.1 */
#include "../functions/compiler/program.h"
#include "../graph/op.h"
#include "iterator.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_iter mr_iter;
typedef struct mr_run mr_run; /* what all iterators of one mr_iterator share */

struct mr_iter {
    const mr_op *op;
    const void *params;
    const mr_spec *spec; /* of its elements */
    mr_dataset *node;    /* the instance; holds a reference */
    mr_run *run;
    void *state; /* op->iter_size bytes, zeroed */
    size_t n_inputs;
    mr_iter **inputs; /* NULL where not open */
    uint64_t source;  /* for identities: the source's number, or a hash inside a function */
    struct mr_iter_private *priv;
};

/* ---- inputs ---- */

/* Opens input i as a new iterator at its first element (one that is open is closed first). */
MR_API mr_code mr_iter_open_input(mr_iter *it, size_t i, mr_status *st) MR_NODISCARD;
MR_API void mr_iter_close_input(mr_iter *it, size_t i);
/* Spec of input i's elements. */
MR_API const mr_spec *mr_iter_input_spec(const mr_iter *it, size_t i);
/* Next rows of input i into *b (cleared first). */
MR_API mr_code mr_iter_pull(mr_iter *it, size_t i, size_t want, mr_block *b,
                            mr_status *st) MR_NODISCARD;
/* Skips up to n elements of input i without producing them, if its op can; *skipped: how many it
 * skipped. If fewer than n, pull the rest. */
MR_API mr_code mr_iter_skip_input(mr_iter *it, size_t i, uint64_t n, uint64_t *skipped,
                                  mr_status *st) MR_NODISCARD;
/* true: input i is indexed, and its elements can be skipped without producing them. since 0.2 */
MR_API bool mr_iter_skips_input(const mr_iter *it, size_t i);

/* ---- elements by number (op->at) ---- */

/* *n = the number of elements of input i, which is opened if it is not open. The input's dataset
 * must be indexed (mr_dataset_indexed). since 0.2 */
MR_API mr_code mr_iter_count_input(mr_iter *it, size_t i, uint64_t *n, mr_status *st) MR_NODISCARD;
/* Elements index[0], index[1], ... of input i into *b (cleared first), as op->at. since 0.2 */
MR_API mr_code mr_iter_at_input(mr_iter *it, size_t i, const uint64_t *index, size_t n, mr_block *b,
                                mr_status *st) MR_NODISCARD;
/* op->at of an op that passes its input through. since 0.2 */
MR_API mr_code mr_iter_at_same(mr_iter *it, const uint64_t *index, size_t n, mr_block *b,
                               mr_status *st) MR_NODISCARD;
/* Of an op whose element i is element first + i * step of its input. since 0.2 */
MR_API mr_code mr_iter_at_steps(mr_iter *it, uint64_t first, uint64_t step, const uint64_t *index,
                                size_t n, mr_block *b, mr_status *st) MR_NODISCARD;
/* op->at of a source that reads on from any place: in the order of the numbers, with one call of
 * `seek`, after which op->next returns element `to`, for each gap between them. since 0.2 */
typedef mr_code mr_iter_seek_fn(mr_iter *it, uint64_t to, mr_status *st);
MR_API mr_code mr_iter_at_by_seeking(mr_iter *it, mr_iter_seek_fn *seek, const uint64_t *index,
                                     size_t n, mr_block *b, mr_status *st) MR_NODISCARD;

/* ---- delivering ---- */

/* Makes the engine return `error` next, once, before anything else. At most one at a time. */
MR_API void mr_iter_defer(mr_iter *it, const mr_status *error);
/* Delivers `rows` (moved from; may hold more than want) and the errors among them:
 * errors->v[k].row counts good rows and errors together, as in mr_program_run. Fills *out with the
 * first rows up to an error or `want` and returns MR_OK, or returns the error if one comes first;
 * the engine delivers (and saves) the rest. errors may be NULL; it is emptied. MR_OK is returned
 * only with at least one row: with neither rows nor errors it returns MR_INTERNAL. */
MR_API mr_code mr_iter_emit(mr_iter *it, size_t want, mr_block *rows, mr_row_errors *errors,
                            mr_block *out, mr_status *st) MR_NODISCARD;
/* Counts an element that the op drops because it failed: in the statistics, and in
 * mr_iter_n_dropped, which is part of the position. */
MR_API void mr_iter_dropped(mr_iter *it);
MR_API uint64_t mr_iter_n_dropped(const mr_iter *it);
/* How many rows of row_bytes to put in a block, at most want: bounded by the user's block_rows and
 * by about 256 KiB; at least 1. */
MR_API size_t mr_iter_block_rows(const mr_iter *it, size_t want, size_t row_bytes);

/* ---- options of the run, functions, seeds ---- */

/* What the iterator was opened with (iterator.h); borrowed until close. */
MR_API const struct mr_iterator_opts *mr_iter_opts(const mr_iter *it);
MR_API bool mr_iter_keeps_positions(const mr_iter *it); /* the consumer may save positions */
MR_API bool mr_iter_deterministic(const mr_iter *it);   /* the graph's and the opener's default */
MR_API bool mr_iter_cancelled(const mr_iter *it);
/* For ops that wait: register with it to be woken up. Borrowed until close. */
MR_API mr_cancel *mr_iter_cancel(const mr_iter *it);
/* Fails with MR_CANCELLED and the engine's message. */
MR_API mr_code mr_iter_fail_cancelled(mr_status *st);

/* mr_program_get for an op that runs the program: its random functions also draw from the job's
 * seed, and the iterator's cancel ends its waits. mr_iter_bind_program does the same for a new
 * program that was made in another way. */
MR_API mr_code mr_iter_program(const mr_iter *it, mr_fn *fn, const mr_spec *in,
                               const mr_program **out, mr_status *st) MR_NODISCARD;
MR_API void mr_iter_bind_program(const mr_iter *it, const mr_program *p);

/* A random word for an unseeded random op: derived from the job's seed and the op's place in the
 * graph if there is a job seed, else fresh. */
MR_API uint64_t mr_iter_fresh_seed(mr_iter *it);
/* The seed that random functions draw from besides their own: the run's seed if the user set it,
 * else 0. */
MR_API uint64_t mr_iter_function_seed(const mr_iter *it);

MR_API double mr_iter_now(void); /* monotonic seconds */

/* ---- state that iterators share ---- */

/* State shared by all iterators of this dataset object. The first call allocates it zeroed and
 * passes it to init. */
MR_API mr_code mr_iter_shared(mr_iter *it, size_t size, void (*init)(void *),
                              void (*destroy)(void *), void **out, mr_status *st) MR_NODISCARD;
/* The same for a node (in save_shared and restore_shared). */
MR_API mr_code mr_node_shared(mr_dataset *node, size_t size, void (*init)(void *),
                              void (*destroy)(void *), void **out, mr_status *st) MR_NODISCARD;

/* ---- positions ---------------------------------------------------------------------------------
 * A state is a flat sequence of numbers and bytes, written and read in the same order. Reading
 * checks everything: a damaged state is an error, never a crash. The format of numbers is LEB128
 * (zigzag for signed). */
typedef struct mr_state_w mr_state_w;
typedef struct mr_state_r mr_state_r;
/* Fails a restore because the position is damaged; `what` describes the damage. */
MR_API mr_code mr_state_damaged(mr_status *st, const char *what);
MR_API mr_code mr_state_put_u64(mr_state_w *w, uint64_t v, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_put_i64(mr_state_w *w, int64_t v, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_put_bytes(mr_state_w *w, const void *p, size_t n,
                                  mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_get_u64(mr_state_r *r, uint64_t *v, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_get_i64(mr_state_r *r, int64_t *v, mr_status *st) MR_NODISCARD;
/* *p points into the state: valid during restore. */
MR_API mr_code mr_state_get_bytes(mr_state_r *r, const void **p, size_t *n,
                                  mr_status *st) MR_NODISCARD;
/* Whole rows, for those that cannot be produced again. Dataset values are saved as graphs. */
MR_API mr_code mr_state_put_block(mr_state_w *w, const mr_block *b, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_get_block(mr_state_r *r, const mr_spec *spec, mr_block *b,
                                  mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_put_status(mr_state_w *w, const mr_status *e, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_get_status(mr_state_r *r, mr_status *e, mr_status *st) MR_NODISCARD;

/* true in restore_shared: 0.1 wrote the position, where an op that has shared state only since 0.2
 * has none. */
MR_API bool mr_state_is_of_0_1(const mr_state_r *r);

/* Save input i's state, including whether it is open, and restore it: opens or closes it as saved.
 */
MR_API mr_code mr_iter_save_input(mr_iter *it, size_t i, mr_state_w *w, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_iter_restore_input(mr_iter *it, size_t i, mr_state_r *r,
                                     mr_status *st) MR_NODISCARD;
/* Call in open if `it` cannot emit the same elements again, as its parameters say
 * (deterministic=false): ops above then save the rows that they hold (mr_iter_replays). */
MR_API void mr_iter_set_no_replay(mr_iter *it);

#ifdef __cplusplus
}
#endif
#endif
