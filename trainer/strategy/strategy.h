/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STRATEGY_STRATEGY_H
#define MR_TRAINER_STRATEGY_STRATEGY_H
/* Strategies: every replica holds the same model and processes its slice of the global batch, and
 * gradients are summed over all replicas. Names and meanings are those of tf.distribute.
 *
 *     default                 one replica; used outside mr_strategy_enter
 *     one_device              one replica, on the given device
 *     mirrored                replicas of this process, a copy of the variables on each
 *     multi_worker_mirrored   the same over every process of a job
 *     central_storage         replicas of this process, one copy of the variables for all
 *     parameter_server        workers of a job take steps independently, on variables that servers
 *                             keep (parameter_server.h)
 *
 *     mr_strategy *s; mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st);
 *     mr_strategy_run(s, step, ctx, &st);            // step(replica, ctx, st) on every replica
 *     mr_strategy_reduce(s, MR_REDUCE_SUM, &losses, NULL, &loss, &st);
 *     mr_strategy_free(s);
 *
 * A *tensor* here is an mr_array of one row whose shape is that of the tensor, like a column of one
 * dataset element. A *distributed value* has one tensor per replica.
 *
 * A step runs on a host thread of its replica. It submits work to the replica's stream and returns;
 * operations take device memory, and the step never waits for the device:
 *
 *     static mr_code step(mr_replica *r, void *ctx, mr_status *st)
 *     {
 *         mr_array x;
 *         MR_TRY(mr_replica_to_device(r, &rows[mr_replica_id(r)], &x, st));
 *         return mr_replica_math(r)->activate(mr_replica_stream(r), &(mr_math_activate){...}, st);
 *     }
 *
 * Code runs in one of three contexts: inside a step (replica context), between steps in a thread
 * that called mr_strategy_enter (cross-replica context), or outside any strategy.
 *
 * thread   one at a time per strategy
 * since    0.1 */
#include "../../pipeline/memory/array.h"
#include "../../pipeline/wait/cancel.h"
#include "../../shard/cluster/cluster.h"
#include "../../transport/wire/tls.h"
#include "../collective/collective.h"
#include "../device/device.h"
#include "../device/math.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_strategy mr_strategy;
typedef struct mr_replica mr_replica;

/* A value on which all processes of a job must agree: {"model", "dense(10)"}. */
typedef struct mr_job_fact {
    const char *name, *value;
} mr_job_fact;

/* How processes join a job. Everything is borrowed during the call. */
typedef struct mr_workers_opts {
    const mr_cluster *cluster; /* this process is one of its workers */
    const mr_job_fact *facts;  /* compared when they connect, together with the protocol version and
                                  the numbers of processes and replicas; at most 30 */
    size_t n_facts;
    double connect_timeout_s; /* for finding each other; 0: 60 */
    double peer_timeout_s;    /* maximum silence of a peer; 0: 20 */
    mr_cancel *cancel;        /* ends the wait for the others; NULL: none */
    /* How values are transferred: "ring", "nccl" (every replica has a separate GPU) or "mpi" (the
     * processes were started by mpirun, and the MPI module is installed). NULL, "auto": nccl if all
     * processes support it, else mpi, else ring. */
    const char *communication;
    /* File with a token; all processes of the job must prove to each other that they know it. NULL:
     * that of MILLRACE_CLUSTER_TOKEN_FILE, or none. */
    const char *cluster_token_file;
    /* With a certificate, the processes connect to each other by TLS only, and each verifies all
     * others: by `ca`, or, those that connect to it, by client_ca. One certificate may serve all of
     * them, whatever its name; others must have the names or addresses connected to, or `name`.
     * NULL: the environment's, else none. (NCCL and MPI transfer values without TLS.) */
    const mr_tls_opts *tls;
    bool any_user;     /* multi_worker: also admits processes of other users on this host */
    bool keep_servers; /* parameter_server: the servers keep running when the strategy is freed */
    /* parameter_server: how variables are split along their first axis before they are assigned to
     * the servers in turn: "fixed_shards(n)", "min_size(bytes, max_shards)": as many pieces as
     * possible with at least `bytes` bytes each, "max_size(bytes)". NULL: they are not split. */
    const char *variable_partitioner;
} mr_workers_opts;

typedef struct mr_strategy_opts {
    size_t num_replicas; /* 0: one for each device */
    /* Names, one per replica; a kind alone ("cuda") means all of its devices. NULL: num_replicas
     * spread in turn over all accelerators; without accelerators over cpu:0, cpu:1, ... */
    const char *const *devices;
    size_t n_devices; /* with num_replicas, the two must agree */
    /* How sums over the replicas are computed: "nccl" (GPUs, one for each replica),
     * "hierarchical_copy" (each replica's device sums its part of the values and sends it to the
     * others) or "reduction_to_one_device" (the first device sums, and sends the result to the
     * others). NULL, "auto": the first of these that the devices support. */
    const char *cross_device_ops;
} mr_strategy_opts;

#define MR_MAX_REPLICAS 256

/* Opens the devices and starts the streams. opts NULL: a replica on every accelerator, or one on
 * cpu:0. Returns owned.
 * errors   MR_INVALID_ARGUMENT: counts, cross-device ops that do not suit the devices, says why ·
 *          MR_NOT_FOUND: no such engine here · those of mr_device_open */
MR_API mr_code mr_strategy_mirrored(mr_strategy **out, const mr_strategy_opts *opts,
                                    mr_status *st) MR_NODISCARD;
/* One replica, on the given device; NULL: on the first accelerator, or on cpu:0. Returns owned.
 * errors: those of mr_device_open */
MR_API mr_code mr_strategy_one_device(mr_strategy **out, const char *device,
                                      mr_status *st) MR_NODISCARD;
/* Replicas like those of mirrored, but with one copy of the variables and of the optimizers' slots.
 * Replica 0 applies the summed gradients to it; all replicas read it in every step. The copy is on
 * the device if all replicas share one (CPUs do), else in host memory, from where replicas fetch it
 * when it has changed. Returns owned. errors: those of mirrored */
MR_API mr_code mr_strategy_central_storage(mr_strategy **out, const mr_strategy_opts *opts,
                                           mr_status *st) MR_NODISCARD;
/* This process coordinates the workers and parameter servers of workers->cluster, tasks that run
 * mr_server_run or `millrace server`: it connects to them, and ends them when the strategy is
 * freed, unless training failed or was stopped. It is the chief, or not a task of the cluster.
 * mr_fit then has the workers compute the steps, each with the current variables and with a
 * separate dataset opened from ds's text; gradients are applied as they arrive. A step of a lost
 * worker is assigned to another worker, which may repeat it; a lost parameter server ends training
 * with MR_UNAVAILABLE. Everything else that mr_fit does (validation, callbacks, checkpoints)
 * happens in this process, on one replica on the given device, between steps. The servers' token is
 * workers->cluster_token_file, or else that of MILLRACE_TOKEN_FILE.
 * errors   MR_INVALID_ARGUMENT: no ps or no worker in the cluster; this task cannot coordinate ·
 *          MR_DEADLINE_EXCEEDED: a server did not connect in connect_timeout_s; names it · those of
 *          one_device and of the token's file */
MR_API mr_code mr_strategy_parameter_server(mr_strategy **out, const mr_strategy_opts *opts,
                                            const mr_workers_opts *workers,
                                            mr_status *st) MR_NODISCARD;
/* Opens one of the six strategies above by name. NULL chooses: multi_worker_mirrored if workers
 * describes a cluster of more than one worker, else mirrored if there is more than one replica,
 * else one_device. "default" returns that of mr_strategy_current. workers may be NULL: this process
 * alone; only multi_worker_mirrored uses it. Returns owned.
 * errors   MR_INVALID_ARGUMENT: no such strategy; options that it does not take ·
 *          MR_UNIMPLEMENTED: "tpu", says why · those of the strategy */
MR_API mr_code mr_strategy_by_name(mr_strategy **out, const char *name,
                                   const mr_strategy_opts *opts, const mr_workers_opts *workers,
                                   mr_status *st) MR_NODISCARD;
/* Inside a step: the strategy that runs it. Otherwise the one that this thread entered last.
 * Otherwise the default strategy, which is unique in the process: one replica, on the first
 * accelerator or on cpu:0, opened when its device is first needed; that call fails if the device is
 * unavailable. Never NULL; borrowed; freeing the default strategy has no effect. */
MR_API mr_strategy *mr_strategy_current(void);
/* A copy of the variables on each replica of every process; equals mirrored for a single worker.
 * Finds the other processes, compares the facts, and connects: sums go around a ring, over TCP or
 * shared memory between neighbours on one machine, or by MPI. Every process runs the same program,
 * and all processes take part in a step. A process that fails, or is lost, ends the current step
 * and all later ones on every process, with an error that names it.
 * errors   those of mirrored · MR_DEADLINE_EXCEEDED: names the processes that did not connect ·
 *          MR_FAILED_PRECONDITION: another process has another value of a fact; names both and it ·
 *          MR_ALREADY_EXISTS: two processes are the same task, or the address is in use ·
 *          MR_UNAVAILABLE: a process ended · MR_INVALID_ARGUMENT, MR_NOT_FOUND: this kind of
 *          communication does not exist, or is unavailable here; says why */
MR_API mr_code mr_strategy_multi_worker_mirrored(mr_strategy **out, const mr_strategy_opts *opts,
                                                 const mr_workers_opts *workers,
                                                 mr_status *st) MR_NODISCARD;
/* All objects that use it (models, variables, optimizers) must have been freed; NULL: nothing. */
MR_API void mr_strategy_free(mr_strategy *s);

/* Number of replicas of all processes. */
MR_API size_t mr_strategy_num_replicas_in_sync(const mr_strategy *s);
/* Replicas of this process; the first has the global number first_replica_id. */
MR_API size_t mr_strategy_num_local_replicas(const mr_strategy *s);
MR_API mr_replica *mr_strategy_replica(mr_strategy *s, size_t i); /* borrowed until free */
MR_API size_t mr_strategy_first_replica_id(const mr_strategy *s);
/* Number of processes, and the number of this one. */
MR_API size_t mr_strategy_num_workers(const mr_strategy *s);
MR_API size_t mr_strategy_worker(const mr_strategy *s);
/* "mirrored"; and how its values are transferred: "none" (a single replica), "nccl",
 * "hierarchical_copy", "reduction_to_one_device", "ring (TCP)", "mpi". "nccl" may span several
 * processes. */
MR_API const char *mr_strategy_name(const mr_strategy *s);
MR_API const char *mr_strategy_communication(const mr_strategy *s);
/* For a process that cannot continue: ends the job in all of its processes, with the error `why`.
 * Has no effect in a job of one process. */
MR_API void mr_strategy_abandon(mr_strategy *s, const mr_status *why);
/* Whether the job has ended because another of its processes (or a parameter server) died, hangs or
 * cannot be reached, and not by an error of one of them: started again, it may succeed. since
 * 0.2 */
MR_API bool mr_strategy_lost_peer(const mr_strategy *s);

/* A replica's number in this process, device and strategy, and the stream and operations of its
 * steps. */
MR_API size_t mr_replica_id(const mr_replica *r);
MR_API mr_device *mr_replica_device(const mr_replica *r);
MR_API mr_strategy *mr_replica_strategy(const mr_replica *r);
MR_API mr_stream *mr_replica_stream(const mr_replica *r);
MR_API const mr_math_table *mr_replica_math(const mr_replica *r);
/* Inside a step: device memory that is valid until the step ends. errors MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_replica_scratch(mr_replica *r, size_t bytes, void **out,
                                  mr_status *st) MR_NODISCARD;
/* Inside a step: *device (overwritten) = a copy of the dense tensor in scratch memory; host must
 * stay valid until the step ends. For the other direction use mr_stream_copy: the values are in
 * host memory when the step has ended. */
MR_API mr_code mr_replica_to_device(mr_replica *r, const mr_array *host, mr_array *device,
                                    mr_status *st) MR_NODISCARD;
/* The replica whose step the calling thread runs; NULL in cross-replica context and outside a
 * strategy. */
MR_API mr_replica *mr_replica_current(void);

/* Makes s the strategy of the calling thread (cross-replica context) until mr_strategy_exit; calls
 * nest, at most 64 deep. */
MR_API void mr_strategy_enter(mr_strategy *s);
MR_API void mr_strategy_exit(mr_strategy *s);

typedef mr_code (*mr_step_fn)(mr_replica *r, void *ctx, mr_status *st);

/* Runs fn on every replica, the first in the calling thread and each other in a separate one, and
 * waits until the devices have run the submitted work. Every replica must take part in the same
 * sums (of gradients), even if its batch is empty.
 * errors   that of the first replica that failed by itself · MR_INVALID_ARGUMENT: a label out of
 *          range, whose row it names; no variable was changed · MR_FAILED_PRECONDITION: called
 *          inside a step; a replica took part in fewer sums than another, which the message names ·
 *          a failed device's */
MR_API mr_code mr_strategy_run(mr_strategy *s, mr_step_fn fn, void *ctx,
                               mr_status *st) MR_NODISCARD;
/* mr_strategy_run in two parts, all replicas in separate threads: start returns at once, and no
 * other step may be started before join, which waits. ctx is borrowed until then. */
MR_API mr_code mr_strategy_start(mr_strategy *s, mr_step_fn fn, void *ctx,
                                 mr_status *st) MR_NODISCARD;
MR_API mr_code mr_strategy_join(mr_strategy *s, mr_status *st) MR_NODISCARD;

/* A tensor for each replica, or a plain value that is the same for all. */
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
    int64_t axes[MR_MAX_RANK]; /* negative: counted from the end */
} mr_axes;

/* *out (overwritten) = the sum or mean of the values, which are numbers, not bools or strings.
 * axes NULL  elementwise over the replicas: shapes must agree, MEAN divides by their number. For a
 *            plain value MEAN is the value itself; SUM is an error unless there is one replica
 * axes       each replica sums over these axes first, then the replicas are summed; MEAN divides by
 *            the number of values summed on all replicas together, so a short or empty batch counts
 *            by its rows. A plain value counts once for each replica
 * MEAN of integers is float64; MEAN of no values is NaN.
 * errors     MR_INVALID_ARGUMENT: shapes, axes, dtype · MR_FAILED_PRECONDITION: inside a step */
MR_API mr_code mr_strategy_reduce(mr_strategy *s, mr_reduce_op op, const mr_distributed *d,
                                  const mr_axes *axes, mr_array *out, mr_status *st) MR_NODISCARD;

/* *out (overwritten) = the values of all replicas, also of other processes, concatenated along
 * `axis` in replica order; every process must call it, and gets the result. Shapes must agree
 * except along the axis; bools and strings are allowed. Scalars are an error (with one replica: the
 * value itself).
 * errors   as reduce · MR_FAILED_PRECONDITION: another process failed in it */
MR_API mr_code mr_strategy_gather(mr_strategy *s, const mr_distributed *d, int64_t axis,
                                  mr_array *out, mr_status *st) MR_NODISCARD;

/* Sum of all of per_example (a tensor of rank 1 or more), each multiplied by its weight, over
 * global_batch_size: summed over the replicas it is the mean over the global batch.
 * sample_weight       NULL, a tensor of the same shape, [n] or [n, 1] for losses [n, ...], or a
 *                     scalar
 * global_batch_size   -1: the rows here times the number of replicas, correct only if all replicas
 *                     have equally many; pass the true number for partial batches. 0: the result
 *                     is 0
 * Integer losses become floats. Outside any strategy the number of replicas is 1.
 * errors   MR_INVALID_ARGUMENT: a scalar loss, a bad size, weights that do not fit ·
 *          MR_FAILED_PRECONDITION: size -1 in cross-replica context */
MR_API mr_code mr_compute_average_loss(const mr_array *per_example, const mr_array *sample_weight,
                                       int64_t global_batch_size, double *loss,
                                       mr_status *st) MR_NODISCARD;
/* Sum of the tensor divided by the number of replicas: each adds its share, and their sum is the
 * whole penalty.
 * errors   MR_FAILED_PRECONDITION: in cross-replica context */
MR_API mr_code mr_scale_regularization_loss(const mr_array *loss, double *scaled,
                                            mr_status *st) MR_NODISCARD;

/* The collective of the replicas, for sums inside steps; borrowed until free. */
MR_API mr_collective *mr_strategy_collective(mr_strategy *s);

#ifdef __cplusplus
}
#endif
#endif
