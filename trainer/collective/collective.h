/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_COLLECTIVE_H
#define MR_TRAINER_COLLECTIVE_COLLECTIVE_H
/* Sums over replicas and other collective operations. All ranks start operations in the same order;
 * the k-th operation of one rank matches the k-th of the others. An operation begins when the last
 * rank has started it and the work in the ranks' streams before it has run; it runs concurrently
 * with them, on streams of the collective, so that gradients are summed during the backward pass:
 *
 *     rank's stream   ... backward --start--> backward ... --wait--> update
 *     sum's stream                    ready -> sum -> done
 *
 * No call waits for a device; wait may wait until the threads of the other ranks have started their
 * operations. Every rank gets the same bits, in every run.
 *
 * thread   any, one at a time per rank
 * since    0.1 */
#include <stddef.h>
#include "../../pipeline/memory/dtype.h"
#include "../device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_collective mr_collective;

/* out may equal in, except for all-gather. */
typedef enum mr_collective_op {
    MR_ALL_REDUCE, /* out on every rank = in of all ranks, reduced */
    MR_REDUCE,     /* out on the root = in of all ranks, reduced; undefined on the others */
    MR_BROADCAST,  /* out on every rank = in of the root */
    MR_ALL_GATHER, /* out on every rank, [ranks, count] = in of all ranks, in rank order */
    MR_BARRIER     /* no values: later work of each rank runs after the earlier work of all ranks */
} mr_collective_op;
/* Integer sums wrap, and integers have no mean. float16 and bfloat16 may be rounded after each
 * addition. A NaN in the input is the result of max and of min. */
typedef enum mr_reduction {
    MR_REDUCTION_SUM,
    MR_REDUCTION_MEAN,
    MR_REDUCTION_MAX,
    MR_REDUCTION_MIN
} mr_reduction;

/* One rank's part of an operation; everything except the pointers must be the same on every
 * rank. */
typedef struct mr_collective_call {
    mr_collective_op op;
    mr_reduction reduction; /* all-reduce and reduce */
    mr_dtype dtype;         /* float16, bfloat16, float32, float64, int32 or int64 */
    size_t count;           /* values per rank; engines get at least 1, except for a barrier */
    size_t root;            /* reduce and broadcast: a rank, counted over all processes */
    const void *in;         /* device memory of the rank's device */
    void *out;
    mr_stream *stream; /* a stream of the rank's device, in order with the engine's earlier calls */
} mr_collective_call;

/* The ranks of several processes, as passed to an engine that opens its part in one of them. */
typedef struct mr_collective_world {
    mr_device *const *devices; /* of this process's ranks; n */
    size_t n, first, total;    /* its first rank has the global number `first` */
    const void *id;            /* the id made by make_id in the first process */
    /* MR_OK, or the error that ended the job; poll it while waiting for other processes. Callable
     * from any thread until close. */
    mr_code (*well)(void *ctx, mr_status *st);
    void *ctx;
} mr_collective_world;

#define MR_COLLECTIVE_ABI 3

/* An engine performs the sums. The collective synchronises the ranks, orders the streams by events
 * and checks sizes; the engine submits the work. Called by one thread at a time.
 *
 * For NCCL, submit is ncclGroupStart, an ncclAllReduce on each call's stream, ncclGroupEnd. */
typedef struct mr_collective_backend {
    uint32_t abi;
    const char *name; /* "hierarchical_copy", "nccl" */
    /* Whether the engine supports these devices, one for each rank. If not, `why` receives the
     * reason, in words that follow "nccl: ". */
    bool (*suits)(mr_device *const *devices, size_t n, char *why, size_t size);
    mr_code (*open)(mr_device *const *devices, size_t n, void **self, mr_status *st);
    void (*close)(void *self);
    /* Whether the engine supports this operation. The collective performs the others itself, in
     * pinned memory. NULL: only all-reduce sums of float32. */
    bool (*does)(const mr_collective_call *call);
    /* Submits one operation for all ranks, calls[0..n), to their streams; never waits for a device.
     * `rotation` counts operations: those with fewer values than `split` are submitted to the
     * stream of calls[rotation % n] alone, others to all streams. split SIZE_MAX: always to that of
     * calls[0]. */
    mr_code (*submit)(void *self, const mr_collective_call *calls, size_t n, uint64_t rotation,
                      mr_status *st);
    size_t split;
    /* Work on one stream accesses the memory of other ranks: it must wait until all ranks are
     * ready, and each rank until all streams are done. */
    bool touches_peers;
    /* An error that occurred after submit (a lost peer), or MR_OK. NULL: no such errors. */
    mr_code (*poll)(void *self, mr_status *st);
    /* Ends operations that were submitted and cannot complete. NULL: they always complete. With
     * open_world it may be called from another thread, during a call that waits for processes. */
    void (*abort)(void *self);
    /* For ranks in several processes; NULL, 0: it supports only one process. The first process
     * makes an id of id_bytes, by which the others find it; then each opens its part, which returns
     * when all have done so or the job has ended. */
    size_t id_bytes;
    mr_code (*make_id)(void *id, mr_status *st);
    mr_code (*open_world)(const mr_collective_world *w, void **self, mr_status *st);
} mr_collective_backend;

/* Registers an engine. `auto` selects the suitable engine registered last. b must stay valid.
 * errors   MR_FAILED_PRECONDITION: another ABI version · MR_ALREADY_EXISTS */
MR_API mr_code mr_collective_backend_register(const mr_collective_backend *b,
                                              mr_status *st) MR_NODISCARD;

/* A collective of n >= 1 ranks; rank i's data are on devices[i], which must outlive it. engine: a
 * name, or NULL ("auto"): the suitable engine registered last. Returns owned.
 * errors   MR_NOT_FOUND: no such engine · MR_INVALID_ARGUMENT: it does not suit; says why */
MR_API mr_code mr_collective_new(mr_collective **out, const char *engine, mr_device *const *devices,
                                 size_t n, mr_status *st) MR_NODISCARD;
/* Waits for operations in progress; NULL: nothing. */
MR_API void mr_collective_free(mr_collective *c);
MR_API const char *mr_collective_engine(const mr_collective *c); /* static text */

/* Starts summing data[0..n), float32 in the rank's device memory, over all ranks, in place, after
 * the work in the stream; *ticket = the operation's number. Nothing submitted between this call and
 * mr_collective_wait may access the values. Waits if the rank would get too far ahead of the
 * others.
 * errors   MR_INVALID_ARGUMENT: n differs from the other ranks' · those of wait */
MR_API mr_code mr_collective_start(mr_collective *c, size_t rank, mr_stream *stream, float *data,
                                   size_t n, uint64_t *ticket, mr_status *st) MR_NODISCARD;
/* The same for any operation: call->in and out are in the rank's device memory, and must not be
 * accessed (in: not written) until mr_collective_wait; call->stream is ignored. Ranks are numbered
 * across all processes. Operations other than sums of float32 use pinned memory and the CPU, except
 * all-reduce by nccl.
 * errors   MR_INVALID_ARGUMENT: a dtype, the mean of integers, a root that does not exist; an
 *          operation that differs from the other ranks', names both · those of wait */
MR_API mr_code mr_collective_begin(mr_collective *c, size_t rank, mr_stream *stream,
                                   const mr_collective_call *call, uint64_t *ticket,
                                   mr_status *st) MR_NODISCARD;
/* Makes work submitted to the stream from now on wait for the operation. An operation that all
 * ranks have started completes even if they fail afterwards.
 * errors   MR_ABORTED · MR_FAILED_PRECONDITION: inside a strategy's step, a replica whose step
 *          ended without this operation; names it */
MR_API mr_code mr_collective_wait(mr_collective *c, size_t rank, mr_stream *stream, uint64_t ticket,
                                  mr_status *st) MR_NODISCARD;

/* Time taken by sums and other operations. An operation runs from when its stream reaches it, which
 * includes waiting for other processes. */
typedef struct mr_collective_times {
    double seconds;         /* during which at least one of them ran */
    double exposed_seconds; /* ranks' streams waited for this part; mean of the ranks */
} mr_collective_times;

/* From now on, has the streams record timestamps by host calls: 2 for an operation on its stream,
 * and 2 for each wait on the rank's stream. No rank may be inside a call; the ranks' streams must
 * have run before the collective is freed. Has no effect if measuring is on already.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_collective_measure(mr_collective *c, mr_status *st) MR_NODISCARD;
/* Times of the operations since mr_collective_measure; 0 without it. 1 - exposed_seconds / seconds
 * is the share that overlapped with other work. */
MR_API void mr_collective_measured(mr_collective *c, mr_collective_times *out);

/* Ends every wait with MR_ABORTED, from now until mr_collective_reset: for a rank that cannot
 * continue and would leave the others waiting. */
MR_API void mr_collective_abort(mr_collective *c);
/* Discards all operations, finished or not. No rank may be inside a call. */
MR_API void mr_collective_reset(mr_collective *c);

#ifdef __cplusplus
}
#endif
#endif
