/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STRATEGY_H
#define MR_TRAINER_STRATEGY_H
/* Strategies: the same model on every replica, each working on its slice of the global batch,
 * gradients summed over all. Names and meanings are tf.distribute's.
 *
 *     default                 one replica; used where no strategy is entered
 *     one_device              one replica, on the device named
 *     mirrored                replicas of this process, a copy of the variables on each
 *     multi_worker_mirrored   the same over every process of a job
 *     central_storage         replicas of this process, one copy of the variables for all
 *     parameter_server        workers of a job make steps by themselves, on variables that servers
 *                             keep (parameter_server.h)
 *
 *     mr_strategy *s; mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st);
 *     mr_strategy_run(s, step, ctx, &st);            // step(replica, ctx, st) on every replica
 *     mr_strategy_reduce(s, MR_REDUCE_SUM, &losses, NULL, &loss, &st);
 *     mr_strategy_free(s);
 *
 * A *tensor* here is an mr_array of one row, whose shape is the tensor's: what a column of one
 * dataset element is. A *distributed value* is one tensor a replica.
 *
 * A step runs on a host thread of its replica. It submits work to the replica's stream and returns;
 * operations take device memory, and nothing in it waits for the device:
 *
 *     static mr_code step(mr_replica *r, void *ctx, mr_status *st)
 *     {
 *         mr_array x;
 *         MR_TRY(mr_replica_to_device(r, &rows[mr_replica_id(r)], &x, st));
 *         return mr_replica_math(r)->activate(mr_replica_stream(r), &(mr_math_activate){...}, st);
 *     }
 *
 * Code is in one of three places: inside a step (replica context), between steps in a thread that
 * called mr_strategy_enter (cross-replica context), or outside any strategy.
 *
 * thread   one at a time per strategy
 * since    0.1 */
#include "../../pipeline/memory/array.h"
#include "../../pipeline/wait/cancel.h"
#include "../../shard/cluster/cluster.h"
#include "../collective/collective.h"
#include "../device/device.h"
#include "../device/math.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_strategy mr_strategy;
typedef struct mr_replica mr_replica;

/* Something on which all processes of a job must agree: {"model", "dense(10)"}. */
typedef struct mr_job_fact {
    const char *name, *value;
} mr_job_fact;

/* How processes become one job. Everything is borrowed during the call. */
typedef struct mr_workers_opts {
    const mr_cluster *cluster; /* this process is one of its workers */
    const mr_job_fact *facts;  /* compared when they meet, beside the protocol's version and the
                                  numbers of processes and replicas; at most 30 */
    size_t n_facts;
    double connect_timeout_s; /* to find each other; 0: 60 */
    double peer_timeout_s;    /* without a sign of life of a peer; 0: 20 */
    mr_cancel *cancel;        /* ends the wait for the others; NULL: none */
    /* How values travel: "ring", "nccl" (every replica has a GPU of its own) or "mpi" (the
     * processes were started by mpirun, and the module for MPI is there). NULL, "auto": nccl where
     * all processes can, else mpi, else ring. */
    const char *communication;
    bool keep_servers; /* parameter_server: the servers are not ended with the strategy */
    /* parameter_server: how variables are cut along their first axis, before they are dealt to the
     * servers in turn: "fixed_shards(n)", "min_size(bytes, max_shards)": as many pieces as have at
     * least so many bytes, "max_size(bytes)". NULL: they are not cut. */
    const char *variable_partitioner;
} mr_workers_opts;

typedef struct mr_strategy_opts {
    size_t num_replicas; /* 0: one for each device */
    /* Names, one a replica; a kind alone ("cuda") is every device of it. NULL: num_replicas dealt
     * in turn over all accelerators; without accelerators over cpu:0, cpu:1, ... */
    const char *const *devices;
    size_t n_devices; /* with num_replicas, the two must agree */
    /* What sums over the replicas: "nccl" (GPUs, one for each replica), "hierarchical_copy" (each
     * replica's device sums its part of the values and gives it to the others) or
     * "reduction_to_one_device" (the first one sums, and gives the result to the others). NULL,
     * "auto": the first of these that the devices allow. */
    const char *cross_device_ops;
} mr_strategy_opts;

#define MR_MAX_REPLICAS 256

/* Opens the devices and starts the streams. opts NULL: a replica on every accelerator, or
 * one on cpu:0.
 * Returns owned.
 * errors   MR_INVALID_ARGUMENT: counts, cross-device ops that do not suit the devices, says why ·
 *          MR_NOT_FOUND: no such engine here · those of mr_device_open */
MR_API mr_code mr_strategy_mirrored(mr_strategy **out, const mr_strategy_opts *opts,
                                    mr_status *st) MR_NODISCARD;
/* One replica, on the device named; NULL: on the first accelerator, or on cpu:0.
 * Returns owned. errors: those of mr_device_open */
MR_API mr_code mr_strategy_one_device(mr_strategy **out, const char *device,
                                      mr_status *st) MR_NODISCARD;
/* Replicas as those of mirrored, but with one copy of the variables and of what optimizers remember
 * of them. Replica 0 applies the sums of the gradients to it; all replicas read it in every step.
 * The copy is on the device if all replicas share one (CPUs do), else in host memory, from where
 * replicas fetch it when it has changed.
 * Returns owned. errors: those of mirrored */
MR_API mr_code mr_strategy_central_storage(mr_strategy **out, const mr_strategy_opts *opts,
                                           mr_status *st) MR_NODISCARD;
/* This process coordinates the workers and parameter servers of workers->cluster, tasks that run
 * mr_server_run or `millrace server`: it connects to them, and ends them when the strategy is
 * freed, unless training failed or was stopped. It is the chief, or no task of the cluster. mr_fit
 * then has the workers make the steps, each with the variables as they are when it begins and with
 * a dataset of its own, which is opened from ds's text; gradients are applied as they come. A step
 * of a worker that is lost is given to another one, which may repeat it; a lost parameter server
 * ends training with MR_UNAVAILABLE. Everything else that mr_fit does (validation, callbacks,
 * checkpoints) is done here, on one replica on the device named, between steps.
 * MILLRACE_TOKEN_FILE names the servers' token.
 * errors   MR_INVALID_ARGUMENT: no ps or no worker in the cluster; this task cannot coordinate ·
 *          MR_DEADLINE_EXCEEDED: a server did not come in connect_timeout_s; names it · those of
 *          one_device and of the token's file */
MR_API mr_code mr_strategy_parameter_server(mr_strategy **out, const mr_strategy_opts *opts,
                                            const mr_workers_opts *workers,
                                            mr_status *st) MR_NODISCARD;
/* By name, one of the six above; NULL chooses: multi_worker_mirrored where workers describes a
 * cluster of more than one worker, else mirrored where there is more than one replica, else
 * one_device. "default" gives mr_strategy_current's. workers may be NULL: this process alone; it
 * counts for multi_worker_mirrored only.
 * Returns owned.
 * errors   MR_INVALID_ARGUMENT: no such strategy; options that it does not take ·
 *          MR_UNIMPLEMENTED: "tpu", says why · those of the strategy */
MR_API mr_code mr_strategy_by_name(mr_strategy **out, const char *name,
                                   const mr_strategy_opts *opts, const mr_workers_opts *workers,
                                   mr_status *st) MR_NODISCARD;
/* Inside a step: the strategy that runs it. Else the one entered last in this thread. Else the
 * default strategy, of which there is one in a process: one replica, on the first accelerator or on
 * cpu:0, opened when something first needs its device, which fails if that cannot be had. Never
 * NULL; borrowed; freeing the default strategy does nothing. */
MR_API mr_strategy *mr_strategy_current(void);
/* A copy on each replica of every process; with a worker alone it is mirrored. Finds the other
 * processes, compares the facts, and connects: sums go around a ring, over TCP or the memory that
 * neighbours on one machine share, or by MPI. Every process runs the same program; a step is one of
 * all processes. A process that fails, or is lost, ends the step under way and all later ones with
 * an error everywhere, which names it.
 * errors   those of mirrored · MR_DEADLINE_EXCEEDED: names who did not come ·
 *          MR_FAILED_PRECONDITION: another process has another value of a fact; names both and it ·
 *          MR_ALREADY_EXISTS: two processes are the same task, or the address is in use ·
 *          MR_UNAVAILABLE: a process ended · MR_INVALID_ARGUMENT, MR_NOT_FOUND: this kind of
 *          communication does not exist, or cannot be had here; says why */
MR_API mr_code mr_strategy_multi_worker_mirrored(mr_strategy **out, const mr_strategy_opts *opts,
                                                 const mr_workers_opts *workers,
                                                 mr_status *st) MR_NODISCARD;
/* What was made on it (models, variables, optimizers) must have been freed; NULL: nothing. */
MR_API void mr_strategy_free(mr_strategy *s);

/* Replicas of all processes. */
MR_API size_t mr_strategy_num_replicas_in_sync(const mr_strategy *s);
/* Those of this process, by number; the first of them is number first_replica_id of all. */
MR_API size_t mr_strategy_num_local_replicas(const mr_strategy *s);
MR_API mr_replica *mr_strategy_replica(mr_strategy *s, size_t i); /* borrowed until free */
MR_API size_t mr_strategy_first_replica_id(const mr_strategy *s);
/* Processes, and this one's number among them. */
MR_API size_t mr_strategy_num_workers(const mr_strategy *s);
MR_API size_t mr_strategy_worker(const mr_strategy *s);
/* "mirrored"; and how its values travel: "none" (one replica alone), "nccl", "hierarchical_copy",
 * "reduction_to_one_device", "ring (TCP)", "mpi". "nccl" may be of several processes. */
MR_API const char *mr_strategy_name(const mr_strategy *s);
MR_API const char *mr_strategy_communication(const mr_strategy *s);
/* For a process that cannot go on: ends the job in all of its processes, with the error `why`. In a
 * job of one process nothing happens. */
MR_API void mr_strategy_abandon(mr_strategy *s, const mr_status *why);

/* A replica's number in this process, device, strategy, and the stream and operations of its
 * steps. */
MR_API size_t mr_replica_id(const mr_replica *r);
MR_API mr_device *mr_replica_device(const mr_replica *r);
MR_API mr_strategy *mr_replica_strategy(const mr_replica *r);
MR_API mr_stream *mr_replica_stream(const mr_replica *r);
MR_API const mr_math_table *mr_replica_math(const mr_replica *r);
/* Inside a step: device memory until the step has ended. errors MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_replica_scratch(mr_replica *r, size_t bytes, void **out,
                                  mr_status *st) MR_NODISCARD;
/* Inside a step: *device (overwritten) = a copy of the dense tensor in scratch memory; host must
 * stay until the step has ended. For the other direction use mr_stream_copy: the values are in host
 * memory when the step has ended. */
MR_API mr_code mr_replica_to_device(mr_replica *r, const mr_array *host, mr_array *device,
                                    mr_status *st) MR_NODISCARD;
/* The replica whose step the calling thread runs; NULL in cross-replica context and outside. */
MR_API mr_replica *mr_replica_current(void);

/* Makes s the strategy of the calling thread (cross-replica context) until mr_strategy_exit; they
 * nest, at most 64 deep. */
MR_API void mr_strategy_enter(mr_strategy *s);
MR_API void mr_strategy_exit(mr_strategy *s);

typedef mr_code (*mr_step_fn)(mr_replica *r, void *ctx, mr_status *st);

/* Runs fn on every replica, the first in the calling thread and each other in its own, and waits
 * until the devices have run what was submitted. Every replica must take part in the same sums (of
 * gradients), also one whose batch is empty.
 * errors   that of the first replica that failed by itself · MR_INVALID_ARGUMENT: a label out of
 *          range, whose row it names; no variable was changed · MR_FAILED_PRECONDITION: called
 *          inside a step; a replica took part in fewer sums than another, which the message names ·
 *          a failed device's */
MR_API mr_code mr_strategy_run(mr_strategy *s, mr_step_fn fn, void *ctx,
                               mr_status *st) MR_NODISCARD;
/* The two halves of it, all replicas in threads of their own: start returns at once, and nothing
 * else may be started before join, which waits. ctx is borrowed until then. */
MR_API mr_code mr_strategy_start(mr_strategy *s, mr_step_fn fn, void *ctx,
                                 mr_status *st) MR_NODISCARD;
MR_API mr_code mr_strategy_join(mr_strategy *s, mr_status *st) MR_NODISCARD;

/* A tensor for each replica, or a plain value, the same for all. */
typedef struct mr_distributed {
    bool plain;
    size_t n;         /* replicas of this process; 1 if plain */
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
/* Calls fn once for each replica of this process, in order; fn fills *out with a tensor, owned. *d
 * is overwritten; after a failure it is empty. */
MR_API mr_code mr_strategy_distribute_values_from_function(
    mr_strategy *s, mr_code (*fn)(const mr_value_context *v, void *ctx, mr_array *out, mr_status *),
    void *ctx, mr_distributed *d, mr_status *st) MR_NODISCARD;

/* The values of this process, borrowed: one for each replica, or the plain value. */
MR_API void mr_strategy_local_results(const mr_strategy *s, const mr_distributed *d,
                                      const mr_array **values, size_t *n);

typedef enum mr_reduce_op { MR_REDUCE_SUM, MR_REDUCE_MEAN } mr_reduce_op;
typedef struct mr_axes {
    size_t n;
    int64_t axes[MR_MAX_RANK]; /* negative ones count from the end */
} mr_axes;

/* *out (overwritten) = the values summed or averaged; they are numbers, not bools or strings.
 * axes NULL  elementwise over the replicas: shapes must agree, MEAN divides by their number. For a
 *            plain value MEAN is the value itself, and SUM an error but on one replica
 * axes       each replica sums over these axes first, then the replicas are summed; MEAN divides by
 *            the number of values summed on all replicas together, so a short or empty batch counts
 *            by its rows. A plain value counts once for each replica
 * MEAN of integers is float64; MEAN of nothing is NaN.
 * errors     MR_INVALID_ARGUMENT: shapes, axes, dtype · MR_FAILED_PRECONDITION: inside a step */
MR_API mr_code mr_strategy_reduce(mr_strategy *s, mr_reduce_op op, const mr_distributed *d,
                                  const mr_axes *axes, mr_array *out, mr_status *st) MR_NODISCARD;

/* *out (overwritten) = the values of all replicas, also of other processes, concatenated along
 * `axis`, in replica order; every process gets it and must call it. Shapes must agree except along
 * the axis; bools and strings are gathered too. Scalars are an error (with one
 * replica: the value itself).
 * errors   as reduce · MR_FAILED_PRECONDITION: another process failed in it */
MR_API mr_code mr_strategy_gather(mr_strategy *s, const mr_distributed *d, int64_t axis,
                                  mr_array *out, mr_status *st) MR_NODISCARD;

/* Sum of all of per_example (a tensor of rank 1 or more), each multiplied by its weight, over
 * global_batch_size: summed over the replicas it is the mean over the global batch.
 * sample_weight       NULL, a tensor of the same shape, [n] or [n, 1] for losses [n, ...], or a
 *                     scalar
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
