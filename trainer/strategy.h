/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STRATEGY_H
#define MR_TRAINER_STRATEGY_H
/* The mirrored strategy: the same model on every replica, each working on its slice of the global
 * batch, gradients summed over all. Names and meanings are tf.distribute's.
 *
 *     mr_strategy *s; mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st);
 *     mr_strategy_run(s, step, ctx, &st);            // step(replica, ctx, st) on every replica
 *     mr_strategy_reduce(s, MR_REDUCE_SUM, &losses, NULL, &loss, &st);
 *     mr_strategy_free(s);
 *
 * A *tensor* here is an mr_array of one row, whose shape is the tensor's: what a column of one
 * dataset element is. A *distributed value* is one tensor a replica.
 *
 * Code is in one of three places: inside a step (replica context), between steps in a thread that
 * called mr_strategy_enter (cross-replica context), or outside any strategy.
 *
 * thread   one at a time per strategy
 * since    0.1 */
#include "../pipeline/memory/array.h"
#include "collective.h"
#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_strategy mr_strategy;
typedef struct mr_replica mr_replica;

typedef struct mr_strategy_opts {
    size_t num_replicas;        /* 0: one for each device, or 1 */
    const char *const *devices; /* names, one a replica; NULL: cpu:0, cpu:1, ... */
    size_t n_devices;           /* must equal num_replicas where both are given */
} mr_strategy_opts;

#define MR_MAX_REPLICAS 256

/* Opens the devices and starts the streams. opts NULL: one replica on cpu:0. Returns owned.
 * errors   MR_INVALID_ARGUMENT: counts · mr_device_open's */
MR_API mr_code mr_strategy_mirrored(mr_strategy **out, const mr_strategy_opts *opts,
                                    mr_status *st) MR_NODISCARD;
/* What was made on it (models, variables, optimizers) must be gone; NULL: nothing. */
MR_API void mr_strategy_free(mr_strategy *s);

/* Its replicas, one after the other. */
MR_API size_t mr_strategy_num_replicas_in_sync(const mr_strategy *s);
MR_API mr_replica *mr_strategy_replica(mr_strategy *s, size_t i); /* borrowed until free */

/* A replica's number, device, strategy, and the stream its steps run on. */
MR_API size_t mr_replica_id(const mr_replica *r);
MR_API mr_device *mr_replica_device(const mr_replica *r);
MR_API mr_strategy *mr_replica_strategy(const mr_replica *r);
MR_API mr_stream *mr_replica_stream(const mr_replica *r);
/* The replica whose step the calling thread runs; NULL in cross-replica context and outside. */
MR_API mr_replica *mr_replica_current(void);

/* Makes s the strategy of the calling thread (cross-replica context) until mr_strategy_exit; they
 * nest. */
MR_API void mr_strategy_enter(mr_strategy *s);
MR_API void mr_strategy_exit(mr_strategy *s);

typedef mr_code (*mr_step_fn)(mr_replica *r, void *ctx, mr_status *st);

/* Runs fn on every replica, each in its own thread, and waits for all. Sums that fn takes part in
 * (gradients) must be the same on every replica, also on one whose batch is empty.
 * errors   the first replica's that failed by itself · MR_FAILED_PRECONDITION: called inside a step
 */
MR_API mr_code mr_strategy_run(mr_strategy *s, mr_step_fn fn, void *ctx,
                               mr_status *st) MR_NODISCARD;
/* The two halves of it: start returns at once, and nothing else may be started before join, which
 * waits. ctx is borrowed until then. */
MR_API mr_code mr_strategy_start(mr_strategy *s, mr_step_fn fn, void *ctx,
                                 mr_status *st) MR_NODISCARD;
MR_API mr_code mr_strategy_join(mr_strategy *s, mr_status *st) MR_NODISCARD;

/* One tensor a replica, or a plain value, the same for all. */
typedef struct mr_distributed {
    bool plain;
    size_t n;         /* local replicas; 1 if plain */
    mr_array *values; /* n tensors, owned */
} mr_distributed;

/* n empty values to fill in. d is overwritten. */
MR_API mr_code mr_distributed_init(mr_distributed *d, const mr_strategy *s,
                                   mr_status *st) MR_NODISCARD;
/* A plain value; takes over *t. */
MR_API mr_code mr_distributed_init_plain(mr_distributed *d, mr_array *t,
                                         mr_status *st) MR_NODISCARD;
MR_API void mr_distributed_reset(mr_distributed *d);
/* A fresh tensor of the given shape, values undefined. *t is overwritten. */
MR_API mr_code mr_tensor_alloc(mr_array *t, mr_dtype dtype, int rank, const int64_t *shape,
                               mr_status *st) MR_NODISCARD;

typedef struct mr_value_context {
    size_t replica_id_in_sync_group;
    size_t num_replicas_in_sync;
} mr_value_context;
/* Calls fn once for each local replica, in order; fn fills *out with a tensor, owned. *d is
 * overwritten; on failure it is empty. */
MR_API mr_code mr_strategy_distribute_values_from_function(
    mr_strategy *s, mr_code (*fn)(const mr_value_context *v, void *ctx, mr_array *out, mr_status *),
    void *ctx, mr_distributed *d, mr_status *st) MR_NODISCARD;

/* The values of this process, borrowed: one a replica, or the one plain value. */
MR_API void mr_strategy_local_results(const mr_strategy *s, const mr_distributed *d,
                                      const mr_array **values, size_t *n);

typedef enum mr_reduce_op { MR_REDUCE_SUM, MR_REDUCE_MEAN } mr_reduce_op;
typedef struct mr_axes {
    size_t n;
    int64_t axes[MR_MAX_RANK]; /* negative ones count from the end */
} mr_axes;

/* *out (overwritten) = the values summed or averaged. Of bools nothing, of strings nothing.
 * axes NULL  elementwise over the replicas: shapes must agree, MEAN divides by their number. A
 * plain value: SUM is an error, MEAN is the value itself. axes       each replica sums over these
 * axes first, then the replicas are summed; MEAN divides by the number of values summed on all
 * replicas together, so a short or empty batch weighs what it holds. A plain value counts once a
 * replica. MEAN of integers is float64; MEAN of nothing is NaN. errors   MR_INVALID_ARGUMENT:
 * shapes, axes, dtype · MR_FAILED_PRECONDITION: inside a step */
MR_API mr_code mr_strategy_reduce(mr_strategy *s, mr_reduce_op op, const mr_distributed *d,
                                  const mr_axes *axes, mr_array *out, mr_status *st) MR_NODISCARD;

/* *out (overwritten) = the values one after the other along `axis`, in replica order. Shapes must
 * agree but along the axis. Scalars are an error (with one replica they pass through), strings too.
 * errors   as reduce */
MR_API mr_code mr_strategy_gather(mr_strategy *s, const mr_distributed *d, int64_t axis,
                                  mr_array *out, mr_status *st) MR_NODISCARD;

/* Sum of all of per_example (a tensor of rank 1 or more), each multiplied by its weight, over
 * global_batch_size: summed over the replicas it is the mean over the global batch.
 * sample_weight       NULL, a tensor of the same shape, or [n] or [n, 1] for losses [n, ...]
 * global_batch_size   -1: rows here times the number of replicas, right only if all hold equally
 *                     many; for partial batches give the true number. 0: the result is 0
 * Integer losses become floats. Outside any strategy the number of replicas is 1.
 * errors   MR_INVALID_ARGUMENT: a scalar loss, a bad size, weights that do not fit ·
 *          MR_FAILED_PRECONDITION: size -1 in cross-replica context */
MR_API mr_code mr_compute_average_loss(const mr_array *per_example, const mr_array *sample_weight,
                                       int64_t global_batch_size, double *loss,
                                       mr_status *st) MR_NODISCARD;
/* Sum of the tensor over the number of replicas: each adds its share, the sum restores one penalty.
 * errors   MR_FAILED_PRECONDITION: in cross-replica context */
MR_API mr_code mr_scale_regularization_loss(const mr_array *loss, double *scaled,
                                            mr_status *st) MR_NODISCARD;

/* The collective of the replicas, for sums inside steps; borrowed until free. */
MR_API mr_collective *mr_strategy_collective(mr_strategy *s);

#ifdef __cplusplus
}
#endif
#endif
