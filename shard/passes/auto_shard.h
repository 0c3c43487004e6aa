/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_PASSES_AUTO_SHARD_H
#define MR_SHARD_PASSES_AUTO_SHARD_H
/* The rewrites that mr_distribute_dataset makes (docs/sharding.md). Each takes a graph, returns
 * another, and explains its decisions:
 *
 *     slices    ds                        ->  ds.replica_slices(N).prefetch(N)
 *     FILE      tfrecord(files)           ->  files.shard(W, I).flat_map(tfrecord)
 *     DATA      ds.replica_slices(N)      ->  ds.replica_slices(N).shard(W, I)
 *     RANGE     tfrecord(files)           ->  tfrecord(files, record_range=[I, W])
 *     HINT      shard(-1, i)              ->  shard(W, I)
 *     seeds     shuffle(100)              ->  shuffle(100, seed=...)
 *
 * On failure the graph is unchanged. Rewrites do not change anything inside functions.
 *
 * thread   any
 * since    0.1 */
#include "../../pipeline/graph/rewrite.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mr_shard_policy {
    MR_SHARD_AUTO,  /* FILE; if no source can be sharded by file, DATA */
    MR_SHARD_FILE,  /* each worker reads its part of the files */
    MR_SHARD_DATA,  /* each worker reads everything and keeps its slices of every batch */
    MR_SHARD_OFF,   /* each worker reads and keeps everything */
    MR_SHARD_HINT,  /* the user's shard(-1, i) becomes the worker's; nothing else changes */
    MR_SHARD_RANGE, /* each worker reads its part of the records of all files, by their indexes */
    MR_N_SHARD_POLICIES
} mr_shard_policy;

/* "AUTO", ... ; "unknown" for other numbers. */
MR_API const char *mr_shard_policy_name(mr_shard_policy policy);
/* The policy called name, in upper or lower case. errors MR_INVALID_ARGUMENT */
MR_API mr_code mr_shard_policy_parse(const char *name, mr_shard_policy *out,
                                     mr_status *st) MR_NODISCARD;
/* The policy set by the graph's with_options: the outermost wins, in a zip the later input; AUTO
 * if it is not set. */
MR_API mr_code mr_shard_policy_of(mr_dataset *ds, mr_shard_policy *out, mr_status *st) MR_NODISCARD;

typedef struct mr_auto_shard_opts {
    int64_t num_workers;  /* at least 1 */
    int64_t index;        /* of this worker, from 0 */
    int64_t num_replicas; /* of all workers together; 0: unknown */
    mr_shard_policy policy;
} mr_auto_shard_opts;

/* *out = ds for one worker. *chosen (may be NULL) = the policy that was used: opts->policy, or the
 * one AUTO chose. e receives the decisions; those with what == "warning", and AUTO's choice of
 * DATA, are also logged as warnings. e NULL: nothing is reported or logged.
 * errors   MR_INVALID_ARGUMENT: an option out of range; the error that ds carries
 *          MR_NOT_FOUND: FILE or RANGE, and a branch has no source that can be divided that way;
 *          st->op is where the search stopped */
MR_API mr_code mr_auto_shard(mr_dataset *ds, const mr_auto_shard_opts *opts, mr_dataset **out,
                             mr_shard_policy *chosen, mr_explanation *e,
                             mr_status *st) MR_NODISCARD;

/* *out = ds with each element cut into num_replicas equal slices along axis 0, prefetched. One
 * replica: ds itself.
 * errors   MR_INVALID_ARGUMENT: num_replicas < 1; the error that ds carries
 *          MR_FAILED_PRECONDITION: a component is a scalar: the dataset is not batched */
MR_API mr_code mr_slice_for_replicas(mr_dataset *ds, int64_t num_replicas, mr_dataset **out,
                                     mr_explanation *e, mr_status *st) MR_NODISCARD;

/* *out = ds in which each random op without a seed draws from `seed` and its place in ds, whatever
 * later rewrites do: the same that an iterator of ds with the option `seed` draws. */
MR_API mr_code mr_seed_random_ops(mr_dataset *ds, uint64_t seed, mr_dataset **out,
                                  mr_explanation *e, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
