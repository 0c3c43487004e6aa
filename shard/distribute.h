/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_DISTRIBUTE_H
#define MR_SHARD_DISTRIBUTE_H
/* One dataset for many replicas: W workers with R replicas each, N = W * R in sync.
 *
 *     global batch of G rows  ->  N equal slices  ->  step: a slice for each replica
 *     [0 1 2 3 4 5 6 7]           [0 1] [2 3] [4 5] [6 7]
 *
 *     mr_distribute_dataset(ds, &(mr_distribute_opts){.replicas = 2}, &dd, &st);
 *     mr_dist_iterator_open(&it, dd, NULL, &st);
 *     while ((rc = mr_dist_iterator_next(it, NULL, &step, &st)) == MR_OK)
 *         for (size_t r = 0; r < step.n_replicas; r++) use(&step.replicas[r]);
 *     mr_dist_iterator_close(it);
 *     mr_dist_dataset_free(dd);
 *
 * Every worker takes the same number of steps, the most that any needs; a replica without data gets
 * a zero-size batch.
 *
 * Errors fall in two classes, told apart by the code of the functions that make a distributed
 * dataset: MR_INVALID_ARGUMENT is wrong usage (a number out of range, a dataset that carries an
 * error; the program exits with 2), any other code a well-formed graph that cannot be distributed
 * (not batched, no file source, an indivisible batch; exit 1). Errors of mr_dist_iterator_* are
 * all of the second class.
 *
 * thread   a distributed dataset: any; an iterator: one at a time, mr_dist_iterator_cancel from any
 * since    0.1 */
#include "../pipeline/engine/iterator.h"
#include "auto_shard.h"
#include "cluster.h"
#include "input_context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_dist_dataset mr_dist_dataset;
typedef struct mr_dist_iterator mr_dist_iterator;

typedef struct mr_distribute_opts {
    int64_t num_workers;       /* W; 0: of the cluster, else 1 */
    int64_t worker;            /* the first of the workers that this process runs (with num_workers
                                  0: the cluster's rank of this process) */
    int64_t num_local_workers; /* how many it runs, side by side in one iterator; 0: 1 */
    int64_t replicas;          /* R, on each worker; 0: 1 */
    const mr_cluster *cluster; /* borrowed during the call; NULL: none */
    mr_shard_policy policy;    /* with has_policy: instead of the graph's option */
    bool has_policy;
    uint64_t seed; /* with has_seed: the job's; unset: from the cluster and W, R where W > 1, else
                      fresh */
    bool has_seed;
    bool owns_slots; /* the consumer gives slots (mr_into): a trailing prefetch becomes part of them
                      */
} mr_distribute_opts;

/* distribute_dataset: ds is batched with the global batch size. A reference to ds is kept.
 * errors   MR_INVALID_ARGUMENT: opts out of range; what ds carries
 *          MR_FAILED_PRECONDITION: a component is a scalar (batch first); this task is a ps
 *          MR_NOT_FOUND: policy FILE without a file source */
MR_API mr_code mr_distribute_dataset(mr_dataset *ds, const mr_distribute_opts *opts,
                                     mr_dist_dataset **out, mr_status *st) MR_NODISCARD;

/* An input function: *out = the dataset of one worker, owned, batched by the per-replica size. */
typedef mr_code (*mr_input_fn)(void *ctx, const mr_input_context *c, mr_dataset **out,
                               mr_status *st);

/* distribute_datasets_from_function: fn is called once for each worker of this process, now; for
 * peers (see mr_dist_iterator_opts) when they are needed. ctx must outlive the dataset. Nothing is
 * batched, sharded or prefetched. opts.policy counts for nothing.
 * errors   as above; those of fn; MR_FAILED_PRECONDITION: fn made no dataset */
MR_API mr_code mr_distribute_from_function(mr_input_fn fn, void *ctx,
                                           const mr_distribute_opts *opts, mr_dist_dataset **out,
                                           mr_status *st) MR_NODISCARD;
/* The same with an expression for a function; its names are those of mr_input_env.
 * errors   as above; those of mr_dataset_from_text; MR_FAILED_PRECONDITION: the replicas do not
 *          divide a global batch size */
MR_API mr_code mr_distribute_from_text(const char *text, size_t size,
                                       const mr_distribute_opts *opts, mr_dist_dataset **out,
                                       mr_status *st) MR_NODISCARD;

/* After all its iterators are closed. NULL: nothing. */
MR_API void mr_dist_dataset_free(mr_dist_dataset *dd);

/* Every decision in its order, made for the first local worker. Borrowed. */
MR_API const mr_explanation *mr_dist_dataset_explanation(const mr_dist_dataset *dd);
/* The graph that local worker `local` runs. Borrowed. */
MR_API mr_dataset *mr_dist_dataset_graph(const mr_dist_dataset *dd, size_t local);
/* What AUTO came to, else the policy; MR_SHARD_OFF for input functions. */
MR_API mr_shard_policy mr_dist_dataset_policy(const mr_dist_dataset *dd);
/* What each replica gets: the batch dimension is unknown, unless the data never end. Borrowed. */
MR_API const mr_spec *mr_dist_dataset_spec(const mr_dist_dataset *dd);
/* Steps, MR_INFINITE, or MR_UNKNOWN_COUNT. */
MR_API int64_t mr_dist_dataset_cardinality(const mr_dist_dataset *dd);
/* With owns_slots: elements that a trailing prefetch would have held; MR_AUTO: that was its depth.
 */
MR_API int64_t mr_dist_dataset_absorbed_prefetch(const mr_dist_dataset *dd);
/* W, R and N; the first local worker and how many there are. */
MR_API int64_t mr_dist_dataset_num_workers(const mr_dist_dataset *dd);
MR_API int64_t mr_dist_dataset_replicas(const mr_dist_dataset *dd);
MR_API int64_t mr_dist_dataset_num_replicas_in_sync(const mr_dist_dataset *dd);
MR_API int64_t mr_dist_dataset_worker(const mr_dist_dataset *dd);
MR_API int64_t mr_dist_dataset_num_local_workers(const mr_dist_dataset *dd);

/* ---- iterators ---- */

/* Adds n_local, the local replicas with data in this step, over all processes of the job into
 * *n_global. Called once a step, in step. An error ends the step with it. */
typedef mr_code (*mr_agree_fn)(void *ctx, int64_t n_local, int64_t *n_global, mr_status *st);

typedef struct mr_dist_iterator_opts {
    mr_iterator_opts run; /* for each worker's pipeline; they share one executor */
    /* How workers of other processes agree on the last step. NULL: from the pipelines alone. Under
     * DATA and OFF all workers take as many steps as this one. Otherwise the peers' pipelines are
     * opened after the local ones ended, and run side by side one step at a time; an error in one
     * ends its part, and a warning in the log says so. */
    mr_agree_fn agree;
    void *agree_ctx;
} mr_dist_iterator_opts;

/* One step. The arrays are the iterator's, valid until its next call; the blocks in them may be
 * moved from. */
typedef struct mr_step {
    int64_t step;         /* from 0 */
    size_t n_replicas;    /* of the local workers, in order */
    mr_block *replicas;   /* one row each: a batch */
    const bool *has_data; /* false: a zero-size batch */
} mr_step;

typedef struct mr_optional_step {
    bool has_value;
    mr_step value; /* use mr_optional_step_value */
} mr_optional_step;

/* dd is borrowed until close. opts NULL: defaults. *out is untouched on failure. */
MR_API mr_code mr_dist_iterator_open(mr_dist_iterator **out, const mr_dist_dataset *dd,
                                     const mr_dist_iterator_opts *opts, mr_status *st) MR_NODISCARD;

/* The next step. into (NULL: anywhere): segment i of a column is local replica i's slot; a column
 * that comes back as MR_PLACED lies at the start of its slot.
 * returns  MR_OK; MR_END when no replica of any worker has data, sticky; or an error, told once:
 *          what was made for other replicas of the step is kept, and the next call (with the same
 *          slots) goes on behind it */
MR_API mr_code mr_dist_iterator_next(mr_dist_iterator *it, const mr_into *into, mr_step *out,
                                     mr_status *st) MR_NODISCARD;
/* The same with an empty optional, not MR_END, at the end. */
MR_API mr_code mr_dist_iterator_get_next_as_optional(mr_dist_iterator *it, const mr_into *into,
                                                     mr_optional_step *out,
                                                     mr_status *st) MR_NODISCARD;
/* errors   MR_INVALID_ARGUMENT: it is empty */
MR_API mr_code mr_optional_step_value(mr_optional_step *o, mr_step **out,
                                      mr_status *st) MR_NODISCARD;

/* Starts the next pass, from step 0 (see mr_iterator_rewind). */
MR_API mr_code mr_dist_iterator_rewind(mr_dist_iterator *it, mr_status *st) MR_NODISCARD;

/* The state behind the last step, and going on there; bytes owned: mr_free. As mr_iterator_save
 * and mr_iterator_restore: needs run.positions, restores into an equal distributed dataset.
 * errors   MR_FAILED_PRECONDITION: an error of this step was told and the step not taken since */
MR_API mr_code mr_dist_iterator_save(mr_dist_iterator *it, void **bytes, size_t *size,
                                     mr_status *st) MR_NODISCARD;
MR_API mr_code mr_dist_iterator_restore(mr_dist_iterator *it, const void *bytes, size_t size,
                                        mr_status *st) MR_NODISCARD;

MR_API const mr_spec *mr_dist_iterator_spec(const mr_dist_iterator *it); /* borrowed until close */
/* Steps taken in this pass. */
MR_API int64_t mr_dist_iterator_step(const mr_dist_iterator *it);
/* Local worker `local`'s pipeline, for its statistics. Borrowed. */
MR_API mr_iterator *mr_dist_iterator_worker(mr_dist_iterator *it, size_t local);
/* Ends every wait with MR_CANCELLED, now and later. thread any */
MR_API void mr_dist_iterator_cancel(mr_dist_iterator *it);
MR_API void mr_dist_iterator_close(mr_dist_iterator *it); /* NULL: nothing */

#ifdef __cplusplus
}
#endif
#endif
