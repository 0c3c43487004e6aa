/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_DISTRIBUTE_DISTRIBUTE_H
#define MR_SHARD_DISTRIBUTE_DISTRIBUTE_H
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
 * Every worker takes the same number of steps, as many as the longest needs; a replica without data
 * gets a zero-size batch.
 *
 * The functions that make a distributed dataset fail in two ways. MR_INVALID_ARGUMENT means wrong
 * usage: a number out of range, a dataset that carries an error; the program exits with 2. Any
 * other code means that a correct graph cannot be distributed: it is not batched, has no file
 * source, or a batch is not divisible; the program exits with 1. All errors of mr_dist_iterator_*
 * are of the second kind.
 *
 * After fork, a distributed iterator works only in the process that opened it (see iterator.h).
 *
 * thread   a distributed dataset: any; an iterator: one at a time, mr_dist_iterator_cancel from any
 * since    0.1 */
#include "../../pipeline/engine/iterator.h"
#include "../passes/auto_shard.h"
#include "../cluster/cluster.h"
#include "input_context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_dist_dataset mr_dist_dataset;
typedef struct mr_dist_iterator mr_dist_iterator;

typedef struct mr_distribute_opts {
    int64_t num_workers;       /* W; 0: the cluster's, or 1 without a cluster */
    int64_t worker;            /* the first of the workers that this process runs (with num_workers
                                  0: the cluster's rank of this process) */
    int64_t num_local_workers; /* how many it runs, all in one iterator; 0: 1 */
    int64_t replicas;          /* R, on each worker; 0: 1 */
    const mr_cluster *cluster; /* borrowed during the call; NULL: none */
    mr_shard_policy policy;    /* with has_policy: instead of the graph's option */
    bool has_policy;
    uint64_t seed; /* with has_seed: the job's. Else it is made from the cluster, W and R if W > 1,
                      and at random if W is 1 */
    bool has_seed;
    int64_t elastic_streams; /* S: the job is elastic, and any number of replicas up to S may run it
                                (see below); instead of the graph's option. 0: that of the graph, or
                                none. since 0.2 */
    bool owns_slots;         /* the consumer passes slots (mr_destination): they absorb a trailing
                        prefetch */
} mr_distribute_opts;

/* distribute_dataset: ds is batched with the global batch size. A reference to ds is kept.
 * errors   MR_INVALID_ARGUMENT: opts out of range; the error that ds carries
 *          MR_FAILED_PRECONDITION: a component is a scalar (batch first); this task is a ps
 *          MR_NOT_FOUND: policy FILE without a file source */
MR_API mr_code mr_distribute_dataset(mr_dataset *ds, const mr_distribute_opts *opts,
                                     mr_dist_dataset **out, mr_status *st) MR_NODISCARD;

/* An elastic job is cut below its global batch into S streams, and replica r of N has the streams s
 * with floor(s N / S) = r. The rows of each step are the same for any W and R with N <= S, and so
 * is the position of the job, which can continue with others (mr_dist_position_join). A step may
 * have rows of different numbers for different replicas; it is short only where a stream ends, and
 * at the end of an epoch. Above the batch there may be take, skip, repeat and enumerate, which
 * count steps of the whole job, prefetch, and maps that treat rows separately. The policy has no
 * effect. errors of mr_distribute_dataset then
 *          MR_INVALID_ARGUMENT: S is out of range, or less than N
 *          MR_FAILED_PRECONDITION: there is no batch; another op above it; an op that may not yield
 *          the same elements again */

/* An input function: *out = the dataset of one worker, owned, batched by the per-replica size. */
typedef mr_code (*mr_input_fn)(void *ctx, const mr_input_context *c, mr_dataset **out,
                               mr_status *st);

/* distribute_datasets_from_function: calls fn once for each worker of this process, and later for
 * peers (see mr_dist_iterator_opts) when they are needed. ctx must outlive the dataset. Adds no
 * batch, shard or prefetch. opts.policy is ignored.
 * errors   as above; those of fn; MR_FAILED_PRECONDITION: fn returned no dataset */
MR_API mr_code mr_distribute_from_function(mr_input_fn fn, void *ctx,
                                           const mr_distribute_opts *opts, mr_dist_dataset **out,
                                           mr_status *st) MR_NODISCARD;
/* The same with an expression as the function; it can use the names of mr_input_env.
 * errors   as above; those of mr_dataset_from_text; MR_FAILED_PRECONDITION: the replicas do not
 *          divide a global batch size */
MR_API mr_code mr_distribute_from_text(const char *text, size_t size,
                                       const mr_distribute_opts *opts, mr_dist_dataset **out,
                                       mr_status *st) MR_NODISCARD;

/* After all its iterators are closed. NULL: nothing. */
MR_API void mr_dist_dataset_free(mr_dist_dataset *dd);

/* The decisions made for the first local worker, in order. Borrowed. */
MR_API const mr_explanation *mr_dist_dataset_explanation(const mr_dist_dataset *dd);
/* The graph that local worker `local` runs. Borrowed. */
MR_API mr_dataset *mr_dist_dataset_graph(const mr_dist_dataset *dd, size_t local);
/* The policy that was used: the requested one, or the one AUTO chose; MR_SHARD_OFF for input
 * functions. */
MR_API mr_shard_policy mr_dist_dataset_policy(const mr_dist_dataset *dd);
/* The spec of each replica's batches: the batch dimension is unknown, unless the data never end.
 * Borrowed. */
MR_API const mr_spec *mr_dist_dataset_spec(const mr_dist_dataset *dd);
/* Steps, MR_INFINITE, or MR_UNKNOWN_COUNT. */
MR_API int64_t mr_dist_dataset_cardinality(const mr_dist_dataset *dd);
/* S of an elastic job, else 0. since 0.2 */
MR_API int64_t mr_dist_dataset_elastic_streams(const mr_dist_dataset *dd);
/* With owns_slots: how many elements the trailing prefetch would have held, or MR_AUTO. */
MR_API int64_t mr_dist_dataset_absorbed_prefetch(const mr_dist_dataset *dd);
/* W and N; the first local worker, and the number of local ones. */
MR_API int64_t mr_dist_dataset_num_workers(const mr_dist_dataset *dd);
MR_API int64_t mr_dist_dataset_num_replicas_in_sync(const mr_dist_dataset *dd);
MR_API int64_t mr_dist_dataset_worker(const mr_dist_dataset *dd);
MR_API int64_t mr_dist_dataset_num_local_workers(const mr_dist_dataset *dd);
/* The number of parts that a batch of the graph is divided into among the workers: W, or 1 for
 * input functions, because each worker makes its own batches. */
MR_API int64_t mr_dist_dataset_parts(const mr_dist_dataset *dd);

/* Numbers the rows of a step's global batch, of which each replica has consecutive ones.
 * rows[w * R + r] is the number of rows of replica r of worker w, for all N replicas;
 * first[w * R + r] = the number of its first row. Returns the number of rows in the batch.
 *
 * Under DATA the slices of a batch are distributed to the workers in turn, and a row has the number
 * that it has in the batch, in however many processes the replicas are. Under other policies each
 * worker makes separate batches: a worker's rows follow those of the workers before it.
 *
 *     batch of 8 rows, W = R = 2    worker 0    worker 1
 *     DATA: first rows              0, 4        2, 6
 *     other policies                0, 2        4, 6 */
MR_API int64_t mr_dist_dataset_number_rows(const mr_dist_dataset *dd, const int64_t *rows,
                                           int64_t *first);

/* ---- iterators ---- */

/* *n_global = the sum, over all processes of the job, of n_local, the number of local replicas with
 * data in this step. Each process calls it once a step. The step fails with its error. */
typedef mr_code (*mr_agree_fn)(void *ctx, int64_t n_local, int64_t *n_global, mr_status *st);

typedef struct mr_dist_iterator_opts {
    mr_iterator_opts run; /* for each worker's pipeline; they share one executor */
    /* How processes agree on the last step. NULL: each process determines it alone. Under DATA and
     * OFF all workers take the same number of steps as this one. Under other policies this process
     * opens the pipelines of the workers in other processes after its own have ended, and runs
     * them in parallel, a step at a time; an error ends the pipeline that it occurred in, and is
     * logged as a warning. In an elastic job it runs the streams of all workers from the
     * beginning. */
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

/* The next step. destination (NULL: anywhere): segment i of a column is local replica i's slot; a
 * column returned as MR_PLACED is at the start of its slot.
 * returns  MR_OK; MR_END when no replica of any worker has data, sticky; or an error, returned
 *          once: batches already made for other replicas of the step are kept, and the next call
 *          (with the same slots) continues after the error */
MR_API mr_code mr_dist_iterator_next(mr_dist_iterator *it, const mr_destination *destination,
                                     mr_step *out, mr_status *st) MR_NODISCARD;
/* The same, but the end is an empty optional instead of MR_END. */
MR_API mr_code mr_dist_iterator_get_next_as_optional(mr_dist_iterator *it,
                                                     const mr_destination *destination,
                                                     mr_optional_step *out,
                                                     mr_status *st) MR_NODISCARD;
/* errors   MR_INVALID_ARGUMENT: it is empty */
MR_API mr_code mr_optional_step_value(mr_optional_step *o, mr_step **out,
                                      mr_status *st) MR_NODISCARD;

/* Starts the next pass, from step 0 (see mr_iterator_rewind). */
MR_API mr_code mr_dist_iterator_rewind(mr_dist_iterator *it, mr_status *st) MR_NODISCARD;

/* Ends the pass and all threads, as mr_iterator_rest does: what lasts across epochs is kept until
 * mr_dist_iterator_rewind or _restore starts a pass again. It also ends what
 * mr_dist_iterator_cancel did. since 0.2 */
MR_API mr_code mr_dist_iterator_rest(mr_dist_iterator *it, mr_status *st) MR_NODISCARD;
/* After mr_dist_iterator_cancel: the next call continues where the wait began. Batches that other
 * replicas of the step have already are kept. Needs run.positions. since 0.2
 * errors   as mr_iterator_save; the iterator is then still cancelled */
MR_API mr_code mr_dist_iterator_resume(mr_dist_iterator *it, mr_status *st) MR_NODISCARD;

/* Saves the state after the last step (bytes owned: mr_free); restores it into an iterator of an
 * equal distributed dataset, which continues from there. As mr_iterator_save and _restore: needs
 * run.positions.
 * errors   MR_FAILED_PRECONDITION: the last call returned an error in the middle of a step; take
 *          the step first */
MR_API mr_code mr_dist_iterator_save(mr_dist_iterator *it, void **bytes, size_t *size,
                                     mr_status *st) MR_NODISCARD;
MR_API mr_code mr_dist_iterator_restore(mr_dist_iterator *it, const void *bytes, size_t size,
                                        mr_status *st) MR_NODISCARD;

/* In an elastic job, mr_dist_iterator_save returns the part of the process's workers, and each
 * worker of any number restores the joined position. A single process needs no joining. Another
 * graph, S or global batch size is MR_FAILED_PRECONDITION, but a position at the beginning of an
 * epoch is restored with another S or batch size. */
typedef struct mr_position_part {
    const void *bytes; /* borrowed */
    size_t size;
} mr_position_part;
/* *bytes (owned: mr_free) = the whole position of the n parts that all processes saved after the
 * same step. since 0.2
 * errors   MR_INVALID_ARGUMENT: parts of different jobs or steps, which names the difference; a
 *          part is missing, or there twice; damaged ones */
MR_API mr_code mr_dist_position_join(const mr_position_part *parts, size_t n, void **bytes,
                                     size_t *size, mr_status *st) MR_NODISCARD;
/* The bytes are a position, or a part of one, of an elastic job. since 0.2 */
MR_API bool mr_is_job_position(const void *bytes, size_t size);

MR_API const mr_spec *mr_dist_iterator_spec(const mr_dist_iterator *it); /* borrowed until close */
/* Steps taken in this pass. */
MR_API int64_t mr_dist_iterator_step(const mr_dist_iterator *it);
/* The minimum number of batches in flight to the devices in training, for
 * mr_iterator_opts.memory_slots. It counts the parts of a batch (mr_dist_dataset_parts). */
enum { MR_STAGED_BATCHES = 3 };
/* The pipeline of local worker `local`, for its statistics. Borrowed. */
MR_API mr_iterator *mr_dist_iterator_worker(mr_dist_iterator *it, size_t local);
/* Ends every wait with MR_CANCELLED, now and until mr_dist_iterator_rest or _resume. thread any,
 * also a signal handler */
MR_API void mr_dist_iterator_cancel(mr_dist_iterator *it);
MR_API void mr_dist_iterator_close(mr_dist_iterator *it); /* NULL: nothing */

#ifdef __cplusplus
}
#endif
#endif
