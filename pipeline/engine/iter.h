/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_ITER_H
#define MR_PIPELINE_ENGINE_ITER_H
/* What an op's open, next, close, save and restore may use: the engine seen from inside an op.
 *
 * The contract of next(it, want, out):
 *   - returns MR_OK with 1..want rows in out (prepared by the op; empty when called), MR_END, or an
 *     error for the position reached. The engine makes END sticky, clears out on anything but
 * MR_OK.
 *   - an error after k > 0 good rows: return the rows and hand the error over by mr_iter_defer; or
 *     hand everything to mr_iter_emit, which cuts rows, error, rows.
 *   - more rows than `want`: also mr_iter_emit, which keeps the rest.
 *   - takes no more from upstream than the rows asked for need, except through buffers that the
 *     user asked for by name (shuffle, prefetch, parallel calls, cycle).
 *   - out->into may be honoured (block.h) and may be passed upstream when rows pass unchanged.
 *
 * thread   one at a time per iterator, not always the same one
 * since    0.1 */
#include "../functions/program.h"
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
    uint64_t source;  /* identity hash of this place in the graph */
    struct mr_iter_private *priv;
};

/* Opens input i as a new iterator at its first element (one that is open is closed first). */
MR_API mr_code mr_iter_open_input(mr_iter *it, size_t i, mr_status *st) MR_NODISCARD;
MR_API void mr_iter_close_input(mr_iter *it, size_t i);
/* Spec of input i's elements. */
MR_API const mr_spec *mr_iter_input_spec(const mr_iter *it, size_t i);
/* Next rows of input i into *b (cleared first). */
MR_API mr_code mr_iter_pull(mr_iter *it, size_t i, size_t want, mr_block *b,
                            mr_status *st) MR_NODISCARD;

/* Iterators of datasets that are values (flat_map, interleave, ...), as functions and windows make
 * them: each is one dataset object already. outer: the identities of the element it was made from
 * (row 0; NULL: none). */
MR_API mr_code mr_iter_open_dataset(mr_iter *parent, mr_dataset *ds, const mr_identities *outer,
                                    mr_iter **out, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_iter_next(mr_iter *it, size_t want, mr_block *b, mr_status *st) MR_NODISCARD;
MR_API void mr_iter_close(mr_iter *it); /* NULL: nothing */

/* Returned next, once, before anything else. At most one at a time. */
MR_API void mr_iter_defer(mr_iter *it, const mr_status *error);
/* Delivers `rows` (moved from; may hold more than want) with errors standing before them:
 * errors->v[k].row counts good rows and errors together, as in mr_program_run. Fills *out with the
 * first rows up to an error or `want` and returns MR_OK, or returns the error if one stands first;
 * the engine delivers (and saves) the rest. errors may be NULL; it is emptied. MR_OK is returned
 * only with at least one row: with neither rows nor errors it returns MR_INTERNAL. */
MR_API mr_code mr_iter_emit(mr_iter *it, size_t want, mr_block *rows, mr_row_errors *errors,
                            mr_block *out, mr_status *st) MR_NODISCARD;

/* How many rows of row_bytes to put in a block, at most want: bounded by the user's block_rows and
 * by about 256 KiB; at least 1. */
MR_API size_t mr_iter_block_rows(const mr_iter *it, size_t want, size_t row_bytes);

MR_API bool mr_iter_positions(const mr_iter *it);  /* positions will be asked for */
MR_API bool mr_iter_identities(const mr_iter *it); /* identities are asked for */
MR_API bool mr_iter_cancelled(const mr_iter *it);
MR_API bool mr_iter_deterministic(const mr_iter *it); /* the graph's and the opener's default */
MR_API bool mr_iter_no_uring(const mr_iter *it);
MR_API mr_executor *mr_iter_executor(mr_iter *it); /* never NULL; may have 0 threads */
/* A word for an unseeded random op: from the job's seed and the op's place in the graph if a job
 * seed was given, else fresh. */
MR_API uint64_t mr_iter_fresh_seed(mr_iter *it);
/* How often this node's iterator was opened before in this run (identity's epoch). */
MR_API uint64_t mr_iter_epoch(const mr_iter *it);
/* State that all iterators of this dataset object share: see mr__dataset_shared. */
MR_API mr_code mr_iter_shared(mr_iter *it, size_t size, void (*init)(void *),
                              void (*destroy)(void *), void **out, mr_status *st) MR_NODISCARD;
/* The same for a node (in save_shared and restore_shared). */
MR_API mr_code mr_node_shared(mr_dataset *node, size_t size, void (*init)(void *),
                              void (*destroy)(void *), void **out, mr_status *st) MR_NODISCARD;
/* Ids for rows [first, first+n) of this source: file, ordinals from first. Only if asked for. */
MR_API mr_code mr_iter_set_identities(mr_iter *it, mr_block *b, uint64_t file, uint64_t first,
                                      mr_status *st) MR_NODISCARD;
/* Adds to this op's waiting time (seconds) for the statistics. */
MR_API void mr_iter_add_wait(mr_iter *it, double seconds);
/* Adds busy time spent on another thread. */
MR_API void mr_iter_add_busy(mr_iter *it, double seconds);
MR_API double mr_iter_now(void); /* monotonic seconds */

/* ---- positions ---------------------------------------------------------------------------------
 * A state is a flat sequence of numbers and bytes, written and read in the same order. Reading
 * checks everything: a damaged state is an error, never a crash. The format of numbers is LEB128
 * (zigzag for signed). */
typedef struct mr_state_w mr_state_w;
typedef struct mr_state_r mr_state_r;
MR_API mr_code mr_state_put_u64(mr_state_w *w, uint64_t v, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_put_i64(mr_state_w *w, int64_t v, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_put_bytes(mr_state_w *w, const void *p, size_t n,
                                  mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_get_u64(mr_state_r *r, uint64_t *v, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_get_i64(mr_state_r *r, int64_t *v, mr_status *st) MR_NODISCARD;
/* *p points into the state: valid during restore. */
MR_API mr_code mr_state_get_bytes(mr_state_r *r, const void **p, size_t *n,
                                  mr_status *st) MR_NODISCARD;
/* Whole rows (also dataset values: as graphs), for what cannot be produced again. */
MR_API mr_code mr_state_put_block(mr_state_w *w, const mr_block *b, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_get_block(mr_state_r *r, const mr_spec *spec, mr_block *b,
                                  mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_put_status(mr_state_w *w, const mr_status *e, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_state_get_status(mr_state_r *r, mr_status *e, mr_status *st) MR_NODISCARD;

/* Input i's state (also that it is not open), and restoring it: opens or closes it as saved. */
MR_API mr_code mr_iter_save_input(mr_iter *it, size_t i, mr_state_w *w, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_iter_restore_input(mr_iter *it, size_t i, mr_state_r *r,
                                     mr_status *st) MR_NODISCARD;
/* The same for any iterator, which must be open when restored. */
MR_API mr_code mr_iter_save(mr_iter *it, mr_state_w *w, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_iter_restore(mr_iter *it, mr_state_r *r, mr_status *st) MR_NODISCARD;

/* Tags: an iterator's state as bytes, taken before a block is read ahead; restoring is
 * mr_iter_restore_tag on a freshly opened or used iterator. Written into a state by
 * mr_state_put_bytes. NULL tag and MR_OK where positions are off. */
MR_API mr_code mr_iter_tag(mr_iter *it, mr_buffer **tag, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_iter_restore_tag(mr_iter *it, const void *bytes, size_t n,
                                   mr_status *st) MR_NODISCARD;
/* false: this iterator or one below it, ever opened, cannot produce the same again
 * (MR_OP_NO_REPLAY): save rows. thread any */
MR_API bool mr_iter_replays(const mr_iter *it);
/* Says so of `it` and all iterators it is part of, where it depends on parameters
 * (deterministic=false). */
MR_API void mr_iter_set_no_replay(mr_iter *it);

#ifdef __cplusplus
}
#endif
#endif
