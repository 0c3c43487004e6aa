/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_OP_ITERATOR_H
#define MR_PIPELINE_ENGINE_OP_ITERATOR_H
/* What an op's open, next, close, save and restore may use: the engine seen from inside an op.
 *
 * The contract of next(it, want, out):
 *   - It returns MR_OK with 1..want rows in out (prepared by the op; empty when called), MR_END, or
 *     the error that stands there. The engine makes END sticky, and clears out on anything but
 *     MR_OK.
 *   - For an error after some good rows it returns the rows, and the error goes to mr_iter_defer;
 *     or everything goes to mr_iter_emit, which cuts it into rows, error, rows.
 *   - More rows than `want` also go to mr_iter_emit, which keeps the rest.
 *   - It takes no more from its inputs than the rows asked for need, except into buffers that the
 *     user asked for by name (shuffle, prefetch, parallel calls, cycle).
 *   - Where rows do not change, the input may write them straight to out->destination (block.h).
 *
 * These are the slots of first(count), the op in the head of graph/op.h. Its state is how many
 * elements are left; whoever wrote a position, restore believes no number in it.
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
    uint64_t source;  /* what identities say: a source's number, or in a function a hash */
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

/* Moves input i on by up to n elements without making them, as its op can: *skipped of them. Fewer
 * than n: pull the next ones. */
MR_API mr_code mr_iter_skip_input(mr_iter *it, size_t i, uint64_t n, uint64_t *skipped,
                                  mr_status *st) MR_NODISCARD;

/* Iterators of datasets that are values (flat_map, interleave, ...), as functions and windows make
 * them: each is one dataset object already. outer: the identities of the element it was made from
 * (row 0; NULL: none). */
MR_API mr_code mr_iter_open_dataset(mr_iter *parent, mr_dataset *ds, const mr_identities *outer,
                                    mr_iter **out, mr_status *st) MR_NODISCARD;
/* For a source that reads through a dataset it made: `it` then emits what *out emits, and
 * identities are those of `it`. */
MR_API mr_code mr_iter_open_replacement(mr_iter *it, mr_dataset *ds, mr_iter **out,
                                        mr_status *st) MR_NODISCARD;
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

MR_API bool mr_iter_keeps_positions(const mr_iter *it); /* positions will be asked for */
MR_API bool mr_iter_identities(const mr_iter *it);      /* identities are asked for */
MR_API bool mr_iter_cancelled(const mr_iter *it);
/* What an op that waits registers with; borrowed until close. */
MR_API mr_cancel *mr_iter_cancel(const mr_iter *it);
/* Fails with MR_CANCELLED, in the engine's words. */
MR_API mr_code mr_iter_fail_cancelled(mr_status *st);
MR_API bool mr_iter_deterministic(const mr_iter *it); /* the graph's and the opener's default */
/* Says that the op takes elements of up to n datasets in turn that are values (interleave); before
 * it opens them. Files below them then keep less of themselves in memory, so that all stay in the
 * processor's cache. */
MR_API void mr_iter_set_takes(mr_iter *it, size_t n);
/* Datasets that are taken in turn with the one that `it` is in, that one included; at least 1. */
MR_API size_t mr_iter_in_turn(const mr_iter *it);
MR_API bool mr_iter_no_uring(const mr_iter *it);
/* What the iterator was opened with (iterator.h); borrowed until close. */
MR_API const struct mr_iterator_opts *mr_iter_opts(const mr_iter *it);
/* *out = path as it is to be opened (mr_iterator_opts.directory); owned, mr_free. */
MR_API mr_code mr_iter_file_path(const mr_iter *it, const char *path, char **out,
                                 mr_status *st) MR_NODISCARD;
/* For buffers of the op's own: takes up to `most` bytes of what the memory limit leaves beside what
 * is needed; returns how many, all where there is no limit. They are given back by the second. */
MR_API int64_t mr_iter_take_memory(mr_iter *it, int64_t most);
MR_API void mr_iter_give_memory(mr_iter *it, int64_t bytes);
MR_API mr_executor *mr_iter_executor(mr_iter *it); /* never NULL; may have 0 threads */
/* mr_program_get for an op that runs the program: what it draws depends on the job's seed too, and
 * the iterator's cancel ends its waits. _bind_program does that to a program just made that came in
 * another way. */
MR_API void mr_iter_bind_program(const mr_iter *it, const mr_program *p);
MR_API mr_code mr_iter_program(const mr_iter *it, mr_fn *fn, const mr_spec *in,
                               const mr_program **out, mr_status *st) MR_NODISCARD;
/* A word for an unseeded random op: from the job's seed and the op's place in the graph if a job
 * seed was given, else fresh. */
MR_API uint64_t mr_iter_fresh_seed(mr_iter *it);
/* What random functions draw from beside their own seeds: the seed that a user gave the run, else
 * 0. */
MR_API uint64_t mr_iter_function_seed(const mr_iter *it);
/* How often this source was opened before in this iterator, or in this call of the function it
 * stands in. 0 where identities are not asked for. */
MR_API uint64_t mr_iter_epoch(const mr_iter *it);
/* State that all iterators of this dataset object share: see mr__dataset_shared. */
MR_API mr_code mr_iter_shared(mr_iter *it, size_t size, void (*init)(void *),
                              void (*destroy)(void *), void **out, mr_status *st) MR_NODISCARD;
/* The same for a node (in save_shared and restore_shared). */
MR_API mr_code mr_node_shared(mr_dataset *node, size_t size, void (*init)(void *),
                              void (*destroy)(void *), void **out, mr_status *st) MR_NODISCARD;
/* Identities of rows [first, first + n) of this source: file, ordinals from first. Only if asked
 * for. */
MR_API mr_code mr_iter_set_identities(mr_iter *it, mr_block *b, uint64_t file, uint64_t first,
                                      mr_status *st) MR_NODISCARD;
/* The same where this source has one file. In a function that is nothing but this reader, as in
 * list_files(p).flat_map(f => tfrecord(f)), called for elements of a source without files that
 * stands in no function, the records are those of that source, which is a list of files then: what
 * they would be if one reader had all names. So dividing a list over workers changes nothing. */
MR_API mr_code mr_iter_set_identities_of_file(mr_iter *it, mr_block *b, uint64_t first,
                                              mr_status *st) MR_NODISCARD;
/* Records of id's source and file (NULL: there is none) are of the file `path`. Kept where a ledger
 * is written. */
MR_API mr_code mr_iter_name_file(mr_iter *it, const mr_identity *id, const char *path,
                                 mr_status *st) MR_NODISCARD;
/* Counts seconds of the running next, or of the work between begin and end, as waiting. Waits for
 * files, pipes and tasks count by themselves. */
MR_API void mr_iter_add_wait(mr_iter *it, double seconds);
/* Work of an op outside its next, in a task: its time is counted from begin to end, which are
 * called in one thread. */
typedef struct mr_iter_work {
    int64_t began, waited, inner, inner_waited, entered; /* the engine's */
    const mr_iter *above;
    size_t bound; /* of allocations, before */
} mr_iter_work;
MR_API void mr_iter_work_begin(const mr_iter *it, mr_iter_work *w);
MR_API void mr_iter_work_end(mr_iter *it, mr_iter_work *w);
MR_API double mr_iter_now(void); /* monotonic seconds */

/* ---- positions ---------------------------------------------------------------------------------
 * A state is a flat sequence of numbers and bytes, written and read in the same order. Reading
 * checks everything: a damaged state is an error, never a crash. The format of numbers is LEB128
 * (zigzag for signed). */
typedef struct mr_state_w mr_state_w;
typedef struct mr_state_r mr_state_r;
/* Fails a restore: the position holds what no save writes, namely `what`. */
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

/* Positions as bytes: an iterator's state as bytes, taken before a block is read ahead; restoring
 * is mr_iter_restore_position on a freshly opened or used iterator. Written into a state by
 * mr_state_put_bytes. NULL and MR_OK where positions are off. */
MR_API mr_code mr_iter_position(mr_iter *it, mr_buffer **position, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_iter_restore_position(mr_iter *it, const void *bytes, size_t n,
                                        mr_status *st) MR_NODISCARD;
/* What is pulled of it now counts in iterators to come: it draws, is counted or recorded, and an op
 * above opens it again. Made again after a restore, what was pulled would count only if somebody
 * asked for it: save rows. thread whose it is */
MR_API bool mr_iter_pulls_count(const mr_iter *it);
/* An op with MR_OP_REMEMBERS says whether it records what is pulled. */
MR_API void mr_iter_set_records(mr_iter *it, bool does);
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
