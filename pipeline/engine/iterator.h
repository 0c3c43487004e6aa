/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_ENGINE_ITERATOR_H
#define MR_PIPELINE_ENGINE_ITERATOR_H
/* Running a dataset: one pass (or several, mr_iterator_rewind) over its elements, in blocks.
 *
 *     mr_iterator *it = NULL;
 *     mr_block b = MR_BLOCK_EMPTY;
 *     mr_code rc = mr_iterator_open(&it, ds, NULL, &st);
 *     while (rc == MR_OK && (rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK)
 *         use(mr_block_column(&b, "label"));
 *     mr_block_reset(&b);
 *     mr_iterator_close(it);            rc is MR_END, or an error that st describes
 *
 * An error stands for one position in the order: the rows before it are delivered first, then the
 * error once, and the next call goes on behind it where the op can go on. MR_END is sticky.
 *
 * thread   one at a time per iterator; mr_iterator_cancel from any
 * since    0.1 */
#include "../graph/dataset.h"
#include "../memory/block.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_iterator mr_iterator;
typedef struct mr_executor mr_executor;

/* A pool of threads for the tasks of iterators. n_threads 0: everything runs in the calling thread,
 * in one fixed order. errors MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_executor_new(int n_threads, mr_executor **out, mr_status *st) MR_NODISCARD;
MR_API void mr_executor_free(mr_executor *ex); /* after all iterators that use it are closed */

typedef struct mr_iterator_opts {
    mr_executor *executor; /* borrowed until the iterator is closed; NULL: one of its own, made when
                              an op first needs it */
    int64_t threads;       /* for its own executor; with has_threads, 0: none. Unset: the CPUs this
                              process may use */
    bool has_threads;
    int64_t block_rows;   /* most rows a block holds; 0: by size */
    bool positions;       /* mr_iterator_save will be called; blocks carry positions */
    bool identities;      /* blocks carry where each row came from */
    bool no_uring;        /* read files by pread only */
    mr_tri deterministic; /* overrides the graph's with_options */
    uint64_t seed; /* with has_seed: what unseeded random ops draw from, instead of a fresh one */
    bool has_seed;
} mr_iterator_opts;

/* Makes an iterator at the first element of ds (a reference is kept). opts NULL: all defaults.
 * errors   what ds carries; what the ops meet when opened. *out is untouched then */
MR_API mr_code mr_iterator_open(mr_iterator **out, mr_dataset *ds, const mr_iterator_opts *opts,
                                mr_status *st) MR_NODISCARD;

/* Up to `want` (at least 1) next elements into *b, whose earlier content is let go.
 * returns  MR_OK with 1..want rows, MR_END, or an error, which is told once */
MR_API mr_code mr_iterator_next(mr_iterator *it, size_t want, mr_block *b,
                                mr_status *st) MR_NODISCARD;

/* Starts the next pass: what the dataset keeps between epochs (shuffle's generator, a memory cache)
 * goes on. */
MR_API mr_code mr_iterator_rewind(mr_iterator *it, mr_status *st) MR_NODISCARD;

/* The state behind the last element delivered, for mr_iterator_restore on an iterator of an equal
 * graph, in any process. Needs opts.positions. bytes owned: mr_free.
 * errors   MR_FAILED_PRECONDITION: opened without positions, or an op that cannot save */
MR_API mr_code mr_iterator_save(mr_iterator *it, void **bytes, size_t *size,
                                mr_status *st) MR_NODISCARD;
/* The same behind row `rows` (1..b->rows) of the block delivered last. */
MR_API mr_code mr_iterator_save_at(mr_iterator *it, const mr_block *b, size_t rows, void **bytes,
                                   size_t *size, mr_status *st) MR_NODISCARD;
/* Continues where the saved one stood; `it` may have been used already.
 * errors   MR_INVALID_ARGUMENT: not a position, damaged, or of another graph (names the first
 *          difference); `it` is then at an unspecified place and must be closed */
MR_API mr_code mr_iterator_restore(mr_iterator *it, const void *bytes, size_t size,
                                   mr_status *st) MR_NODISCARD;

/* Ends every wait of the iterator with MR_CANCELLED, now and later. thread any */
MR_API void mr_iterator_cancel(mr_iterator *it);
/* Cancels, joins what was started, frees. NULL: nothing. */
MR_API void mr_iterator_close(mr_iterator *it);

/* Spec of its elements; borrowed until close. */
MR_API const mr_spec *mr_iterator_spec(const mr_iterator *it);

/* What each op did so far, sink first. */
typedef struct mr_op_stats {
    const char *op, *path; /* valid until close */
    int64_t elements, bytes;
    double busy_seconds; /* in the op's own code, on any thread */
    double wait_seconds; /* waiting for tasks, files or producers */
} mr_op_stats;
/* Up to `capacity` of them; returns how many there are. Iterators inside functions are added up
 * under the op that opened them. thread any */
MR_API size_t mr_iterator_stats(mr_iterator *it, mr_op_stats *out, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
