/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over GPUs with NCCL: each rank on a separate GPU, in this process or several. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "pipeline/memory/alloc.h"
#include "trainer/device/cuda/cuda_device.h"
#include "trainer/device/cuda/cuda_module.h"

enum { MAX_RANKS = 1024, WAITS = 200, EAGER = 1000 };

typedef struct nccl {
    size_t n;
    /* For several processes: calls return before they are done, so that one that waits for a lost
     * process can be abandoned. NULL: a single process, whose calls are done when they return. */
    mr_code (*well)(void *ctx, mr_status *st);
    void *ctx;
    pthread_mutex_t lock; /* guards against abort, which another thread may call */
    ncclComm_t ranks[];   /* NULL after an abort */
} nccl;

/* The GPU of "cuda:3"; -1: another kind. */
static int gpu_of(const mr_device *d)
{
    const char *name = mr_device_name(d);
    return strncmp(name, "cuda:", 5) == 0 ? (int)strtol(name + 5, NULL, 10) : -1;
}

static bool nccl_suits(mr_device *const *devices, size_t n, char *why, size_t size)
{
    mr_status st;
    for (size_t i = 0; i < n; i++) {
        int gpu = gpu_of(devices[i]);
        if (gpu < 0) {
            snprintf(why, size, "%s is not a GPU", mr_device_name(devices[i]));
            return false;
        }
        for (size_t k = 0; k < i; k++)
            if (gpu_of(devices[k]) == gpu) {
                snprintf(why, size, "two replicas share cuda:%d", gpu);
                return false;
            }
    }
    if (n > MAX_RANKS) {
        snprintf(why, size, "at most %d replicas", MAX_RANKS);
        return false;
    }
    if (mr__cuda_need(MR__CUDA_NCCL, &st) == MR_OK)
        return true;
    snprintf(why, size, "%s", st.message);
    return false;
}

static void pause_ms(long ms)
{
    struct timespec t = {0, ms * 1000000};
    nanosleep(&t, NULL);
}

/* The failure of a call. When processes are lost, libraries may notice before the job does, which
 * knows the lost process. */
static mr_code fail_of(const nccl *x, ncclResult_t e, const char *what, mr_status *st)
{
    for (int i = 0; x->well && i < WAITS; i++) {
        MR_TRY(x->well(x->ctx, st));
        pause_ms(10);
    }
    return mr__nccl_fail(st, e, what);
}

/* Call with the lock held: e is the result of a call to all ranks; returns when it is done on all
 * of them. */
static mr_code settle(const nccl *x, ncclResult_t e, const char *what, mr_status *st)
{
    for (size_t i = 0; x->well && i < x->n && (e == ncclSuccess || e == ncclInProgress); i++)
        for (int asks = 0;; asks += asks < EAGER) {
            ncclResult_t asked = mr__cu.ncclCommGetAsyncError(x->ranks[i], &e);
            e = asked == ncclSuccess ? e : asked;
            if (e != ncclInProgress)
                break;
            MR_TRY(x->well(x->ctx, st));
            if (asks < EAGER) /* a sum is submitted within microseconds */
                sched_yield();
            else
                pause_ms(1);
        }
    return e == ncclSuccess ? MR_OK : fail_of(x, e, what, st);
}

/* Call with the lock held. */
static void abort_all(nccl *x)
{
    for (size_t i = 0; i < x->n; i++) {
        if (x->ranks[i])
            mr__cu.ncclCommAbort(x->ranks[i]);
        x->ranks[i] = NULL;
    }
}

/* Between processes, pending work ends first: the others may still be receiving. */
static mr_code finalize(const nccl *x)
{
    ncclResult_t e = mr__cu.ncclGroupStart(), end;
    for (size_t i = 0; i < x->n && (e == ncclSuccess || e == ncclInProgress); i++)
        e = mr__cu.ncclCommFinalize(x->ranks[i]);
    end = mr__cu.ncclGroupEnd();
    return settle(x, e == ncclSuccess || e == ncclInProgress ? end : e, "disconnect the GPUs",
                  NULL);
}

static void nccl_close(void *self)
{
    nccl *x = self;
    pthread_mutex_lock(&x->lock);
    if (x->well && x->ranks[0] && (x->well(x->ctx, NULL) != MR_OK || finalize(x) != MR_OK))
        abort_all(x);
    for (size_t i = 0; i < x->n; i++)
        if (x->ranks[i])
            mr__cu.ncclCommDestroy(x->ranks[i]);
    pthread_mutex_unlock(&x->lock);
    pthread_mutex_destroy(&x->lock);
    mr_free(x);
}

/* Ranks first .. first + n of total. */
static mr_code open_ranks(nccl *x, mr_device *const *devices, size_t first, size_t total,
                          const ncclUniqueId *id, mr_status *st)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t e = mr__cu.ncclGroupStart(), end;
    for (size_t i = 0; i < x->n && (e == ncclSuccess || e == ncclInProgress); i++) {
        mr__cu.cudaSetDevice(gpu_of(devices[i]));
        e = mr__cu.ncclCommInitRankConfig(&x->ranks[i], (int)total, *id, (int)(first + i),
                                          x->well ? &config : NULL);
    }
    end = mr__cu.ncclGroupEnd();
    e = e == ncclSuccess || e == ncclInProgress ? end : e;
    pthread_mutex_lock(&x->lock);
    mr_code rc = settle(x, e, "connect the GPUs", st);
    if (rc != MR_OK && x->well)
        abort_all(x);
    pthread_mutex_unlock(&x->lock);
    return rc;
}

static mr_code nccl_make_id(void *id, mr_status *st)
{
    ncclUniqueId made;
    ncclResult_t e = mr__cu.ncclGetUniqueId(&made);
    if (e != ncclSuccess)
        return mr__nccl_fail(st, e, "connect the GPUs");
    memcpy(id, &made, sizeof made);
    return MR_OK;
}

static mr_code nccl_open_world(const mr_collective_world *w, void **self, mr_status *st)
{
    ncclUniqueId id;
    nccl *x = mr_calloc(1, sizeof *x + w->n * sizeof(ncclComm_t));
    if (!x)
        return mr_fail_memory(st, sizeof *x + w->n * sizeof(ncclComm_t), "a collective");
    pthread_mutex_init(&x->lock, NULL);
    x->n = w->n;
    x->well = w->well;
    x->ctx = w->ctx;
    memcpy(&id, w->id, sizeof id);
    mr_code rc = open_ranks(x, w->devices, w->first, w->total, &id, st);
    if (rc == MR_OK)
        *self = x;
    else
        nccl_close(x);
    return rc;
}

static mr_code nccl_open(mr_device *const *devices, size_t n, void **self, mr_status *st)
{
    ncclUniqueId id;
    MR_TRY(nccl_make_id(&id, st));
    const mr_collective_world all = {.devices = devices, .n = n, .total = n, .id = &id};
    return nccl_open_world(&all, self, st);
}

static ncclDataType_t type_of(mr_dtype t)
{
    switch (t) {
    case MR_FLOAT16:
        return ncclFloat16;
    case MR_BFLOAT16:
        return ncclBfloat16;
    case MR_FLOAT64:
        return ncclFloat64;
    case MR_INT32:
        return ncclInt32;
    case MR_INT64:
        return ncclInt64;
    default:
        return ncclFloat32;
    }
}

static bool nccl_does(const mr_collective_call *call)
{
    return call->op == MR_ALL_REDUCE;
}

static mr_code nccl_submit(void *self, const mr_collective_call *calls, size_t n, uint64_t rotation,
                           mr_status *st)
{
    static const ncclRedOp_t reductions[] = {[MR_REDUCTION_SUM] = ncclSum,
                                             [MR_REDUCTION_MEAN] = ncclAvg,
                                             [MR_REDUCTION_MAX] = ncclMax,
                                             [MR_REDUCTION_MIN] = ncclMin};
    nccl *x = self;
    (void)rotation;
    pthread_mutex_lock(&x->lock);
    mr_code rc = MR_OK;
    if (!x->ranks[0]) {
        rc = x->well ? x->well(x->ctx, st) : MR_OK;
        rc = rc ? rc : mr_fail(st, MR_ABORTED, "the sums over the GPUs were aborted");
    } else {
        ncclResult_t e = mr__cu.ncclGroupStart(), end;
        for (size_t i = 0; i < n && (e == ncclSuccess || e == ncclInProgress); i++) {
            mr__cuda_stream *s = calls[i].stream->self;
            e = mr__cu.ncclAllReduce(calls[i].in, calls[i].out, calls[i].count,
                                     type_of(calls[i].dtype), reductions[calls[i].reduction],
                                     x->ranks[i], s->stream);
        }
        end = mr__cu.ncclGroupEnd();
        e = e == ncclSuccess || e == ncclInProgress ? end : e;
        rc = settle(x, e, "sum over the GPUs", st);
    }
    pthread_mutex_unlock(&x->lock);
    return rc;
}

static mr_code nccl_poll(void *self, mr_status *st)
{
    nccl *x = self;
    pthread_mutex_lock(&x->lock);
    mr_code rc = x->well ? x->well(x->ctx, st) : MR_OK;
    for (size_t i = 0; i < x->n && x->ranks[i] && rc == MR_OK; i++) {
        ncclResult_t e = ncclSuccess, asked = mr__cu.ncclCommGetAsyncError(x->ranks[i], &e);
        if (asked != ncclSuccess || e != ncclSuccess)
            rc = fail_of(x, asked != ncclSuccess ? asked : e, "sum over the GPUs", st);
    }
    pthread_mutex_unlock(&x->lock);
    return rc;
}

static void nccl_abort(void *self)
{
    nccl *x = self;
    pthread_mutex_lock(&x->lock);
    abort_all(x);
    pthread_mutex_unlock(&x->lock);
}

const mr_collective_backend mr__collective_nccl = {
    .abi = MR_COLLECTIVE_ABI,
    .name = "nccl",
    .suits = nccl_suits,
    .open = nccl_open,
    .close = nccl_close,
    .does = nccl_does,
    .submit = nccl_submit,
    .poll = nccl_poll,
    .abort = nccl_abort,
    .id_bytes = sizeof(ncclUniqueId),
    .make_id = nccl_make_id,
    .open_world = nccl_open_world,
};
