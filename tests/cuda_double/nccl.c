/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's all-reduce over ranks. What the ranks submit must agree: the k-th call of one rank is the
 * k-th of all. Ranks of one process may submit in groups or, one thread a rank, without. Those of
 * several processes (nccl_processes.c) must not block, and submit in groups: the work of a group
 * starts at the second query whether it is done, so that a program that never asks is found. */
#include <math.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/cuda_double/nccl_processes.h"

enum { MAX_RANKS = CD_RANKS, MAX_GROUP = 256, PATIENCE_S = 60 };

/* One sum of all ranks, as those that have come see it. */
typedef struct meeting {
    struct meeting *next;
    uint64_t number;
    int came, left;
    cd_op *ops[MAX_RANKS];
} meeting;

typedef struct world {
    ncclUniqueId id;
    struct world *next;
    int n, joined, alive;
    bool aborted;
    meeting *meetings;
    cd_peers *peers;  /* NULL: all ranks are of this process */
    uint32_t local;   /* a bit for each rank of this process */
    cd_op *pending;   /* a group that is not done */
    int asked;        /* how often since then */
    size_t under_way; /* sums that have not run */
} world;

struct ncclComm {
    cd_head head;
    world *w;
    int rank, device;
    uint64_t calls;
    bool finalized;
};

typedef struct sum {
    world *w;
    int rank;
    uint64_t number;
    const void *in;
    void *out;
    size_t n;
    ncclDataType_t type;
    ncclRedOp_t op;
} sum;

static world *worlds; /* guarded by cd_lock */
static _Thread_local int depth, inits;
static _Thread_local cd_op *group;      /* what the open group will submit */
static _Thread_local bool group_failed; /* a call of the open group */
static _Thread_local world *opened;     /* by the open group, with other processes */

#define ENTER(call)                                                                                \
    do {                                                                                           \
        if (cd_fails(call))                                                                        \
            return ncclSystemError;                                                                \
    } while (0)

ncclResult_t ncclGetVersion(int *v)
{
    *v = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t e)
{
    return e == ncclSystemError ? "system error of the double" : "error of the double";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    ENTER("ncclGetUniqueId");
    cd_peers_make_id(id);
    return ncclSuccess;
}

/* Without their arguments in NCCL's header. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
    ENTER("ncclGroupStart");
    depth++;
    return ncclSuccess;
}

/* What follows a sum in one stream is after all that came before it in the others: where the calls
 * of all ranks are known here, streams learn that. */
static void submit_group(void)
{
    cd_op *ops[MAX_GROUP], *rest = group;
    size_t n = 0;
    for (; rest; rest = rest->next) {
        if (n == MAX_GROUP)
            cd_misuse("a group of more than %d calls", MAX_GROUP);
        ops[n++] = rest;
    }
    for (size_t i = n; i-- > 0;) {
        ops[i]->next = NULL;
        cd_submit_locked(ops[i]);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            if (((const sum *)ops[i]->payload)->w == ((const sum *)ops[k]->payload)->w &&
                ((const sum *)ops[i]->payload)->number == ((const sum *)ops[k]->payload)->number)
                cd_stream_follows(ops[i]->stream, ops[k]);
    group = NULL;
}

static void drop_group(cd_op *first)
{
    for (cd_op *op; (op = first);) {
        first = op->next;
        op->drop(op);
        free(op);
    }
}

/* The group's world; NULL: all of its ranks are of this process. */
static world *world_of_group(void)
{
    world *w = group ? ((sum *)group->payload)->w : NULL;
    for (const cd_op *op = group; op; op = op->next)
        if (((const sum *)op->payload)->w != w &&
            (w->peers || ((const sum *)op->payload)->w->peers))
            cd_misuse("a group of sums over other processes has two communicators of a rank");
    return w && w->peers ? w : NULL;
}

ncclResult_t ncclGroupEnd(void)
{
    bool fails = cd_fails("ncclGroupEnd");
    if (depth == 0)
        return fails ? ncclSystemError : ncclInvalidUsage;
    if (--depth > 0)
        return fails ? ncclSystemError : ncclSuccess;
    inits = 0;
    fails = fails || group_failed; /* then nothing of the group starts */
    group_failed = false;
    world *w = opened, *sums = world_of_group();
    opened = NULL;
    if (fails) {
        drop_group(group);
        group = NULL;
        return ncclSystemError;
    }
    if (w)
        cd_peers_meet(w->peers, w->local);
    pthread_mutex_lock(&cd_lock);
    if (sums) {
        sums->pending = group;
        sums->asked = 0;
        group = NULL;
    } else
        submit_group();
    pthread_mutex_unlock(&cd_lock);
    return w || sums ? ncclInProgress : ncclSuccess;
}

static world *find_world(const ncclUniqueId *id, int n)
{
    world *w = worlds;
    while (w && memcmp(&w->id, id, sizeof *id) != 0)
        w = w->next;
    if (!w && (w = calloc(1, sizeof *w))) {
        w->id = *id;
        w->n = n;
        w->next = worlds;
        worlds = w;
    }
    if (!w)
        cd_misuse("no memory of the host");
    return w;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    static const char call[] = "ncclCommInitRankConfig";
    ENTER(call);
    bool waits = !config || config->blocking != 0;
    if (n < 1 || n > MAX_RANKS || rank < 0 || rank >= n || (waits && config) ||
        (!waits && depth == 0))
        cd_misuse("%s: rank %d of %d", call, rank, n);
    if (n > 1 && depth == 0 && ++inits > 1)
        cd_misuse("%s: two ranks by one thread outside a group wait for each other for ever", call);
    struct ncclComm *c = cd_new(CD_COMM, sizeof *c);
    c->rank = rank;
    c->device = cd_current_device();
    pthread_mutex_lock(&cd_lock);
    c->w = find_world(&id, n);
    if (c->w->n != n || ++c->w->joined > n)
        cd_misuse("%s: rank %d says that there are %d ranks, another %d", call, rank, n, c->w->n);
    c->w->alive++;
    if (c->w->local >> rank & 1)
        cd_misuse("%s: rank %d comes twice", call, rank);
    c->w->local |= 1u << rank;
    if (!waits && !c->w->peers)
        c->w->peers = cd_peers_new(&id, n);
    if (!waits && opened && opened != c->w)
        cd_misuse("%s: a group opens two worlds", call);
    if (!waits)
        opened = c->w;
    pthread_mutex_unlock(&cd_lock);
    *out = c;
    return waits ? ncclSuccess : ncclInProgress;
}

static void leave(ncclComm_t c, bool abort, const char *call)
{
    cd_check(CD_COMM, c, call);
    pthread_mutex_lock(&cd_lock);
    world *w = c->w;
    if (w->peers && !abort && (!c->finalized || w->under_way > 0))
        cd_misuse("%s: %zu sums have not run, or ncclCommFinalize was not called", call,
                  w->under_way);
    w->aborted = w->aborted || abort;
    pthread_cond_broadcast(&cd_moved);
    cd_op *pending = abort ? w->pending : NULL;
    w->pending = abort ? NULL : w->pending;
    bool last = --w->alive == 0;
    if (last)
        w->joined = 0; /* its meetings may still be left by streams; the id is not used again */
    pthread_mutex_unlock(&cd_lock);
    drop_group(pending);
    if (w->peers && abort)
        cd_peers_abort(w->peers);
    if (w->peers && last)
        cd_peers_close(w->peers);
    cd_drop(CD_COMM, c, call);
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    ENTER("ncclCommFinalize");
    cd_check(CD_COMM, c, "ncclCommFinalize");
    pthread_mutex_lock(&cd_lock);
    if (!c->w->peers || c->w->pending || c->finalized)
        cd_misuse("ncclCommFinalize: of ranks of one process, before a group is done, or twice");
    c->finalized = true;
    c->w->asked = 0;
    pthread_mutex_unlock(&cd_lock);
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    bool fails = cd_fails("ncclCommDestroy");
    leave(c, false, "ncclCommDestroy");
    return fails ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    bool fails = cd_fails("ncclCommAbort");
    leave(c, true, "ncclCommAbort");
    return fails ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *e)
{
    ENTER("ncclCommGetAsyncError");
    cd_check(CD_COMM, c, "ncclCommGetAsyncError");
    pthread_mutex_lock(&cd_lock);
    world *w = c->w;
    *e = cd_device_error(c->device) ? ncclUnhandledCudaError : ncclSuccess;
    if (*e == ncclSuccess && w->peers)
        *e = cd_peers_state(w->peers);
    if (*e == ncclSuccess && (w->pending || c->finalized) && w->asked++ == 0)
        *e = ncclInProgress;
    else if (*e == ncclSuccess && w->pending) {
        group = w->pending;
        w->pending = NULL;
        submit_group();
    } else if (*e == ncclSuccess && c->finalized && w->under_way > 0)
        *e = ncclInProgress;
    pthread_mutex_unlock(&cd_lock);
    return ncclSuccess;
}

/* ---- the sums themselves */

static size_t size_of(ncclDataType_t t)
{
    return t == ncclFloat64 || t == ncclInt64                      ? 8
           : t == ncclFloat32 || t == ncclInt32 || t == ncclUint32 ? 4
           : t == ncclFloat16 || t == ncclBfloat16                 ? 2
           : t == ncclInt8 || t == ncclUint8                       ? 1
                                                                   : 0;
}

static float half_as_float(uint16_t h)
{
    int exponent = h >> 10 & 31, m = h & 1023;
    float v = exponent == 31 ? (m ? NAN : INFINITY)
              : exponent     ? ldexpf((float)(m + 1024), exponent - 25)
                             : ldexpf((float)m, -24);
    return h & 0x8000 ? -v : v;
}

static uint16_t float_as_half(float v)
{
    unsigned sign = signbit(v) ? 0x8000 : 0;
    float a = fabsf(v);
    int e;
    if (v != v)
        return (uint16_t)(sign | 0x7e00);
    if (a >= 65520)
        return (uint16_t)(sign | 0x7c00);
    if (a < 6.103515625e-5f) /* 2^-14 */
        return (uint16_t)(sign | (unsigned)lrintf(ldexpf(a, 24)));
    float m = frexpf(a, &e); /* rounding up may carry into the exponent, as it should */
    return (uint16_t)(sign | (((unsigned)(e + 14) << 10) + (unsigned)lrintf((2 * m - 1) * 1024)));
}

static float bfloat_as_float(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t float_as_bfloat(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (v != v)
        return (uint16_t)(bits >> 16 | 64);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define REDUCE(type, get, put)                                                                     \
    for (size_t i = 0; i < s->n; i++) {                                                            \
        type v = get(((const stored *)in[0])[i]);                                                  \
        for (int r = 1; r < n; r++) {                                                              \
            type x = get(((const stored *)in[r])[i]);                                              \
            v = s->op == ncclMax ? (x > v ? x : v) : s->op == ncclMin ? (x < v ? x : v) : v + x;   \
        }                                                                                          \
        if (s->op == ncclAvg)                                                                      \
            v = v / (type)n;                                                                       \
        result[i] = put(v);                                                                        \
    }
#define SAME(v) (v)
#define CASE(stored_, type, get, put)                                                              \
    {                                                                                              \
        typedef stored_ stored;                                                                    \
        stored *result = out;                                                                      \
        REDUCE(type, get, put)                                                                     \
        break;                                                                                     \
    }

static void reduce(const sum *s, const void *const *in, int n, void *out)
{
    switch (s->type) {
    case ncclFloat32:
        CASE(float, float, SAME, SAME)
    case ncclFloat64:
        CASE(double, double, SAME, SAME)
    case ncclInt32:
        CASE(int32_t, int32_t, SAME, SAME)
    case ncclInt64:
        CASE(int64_t, int64_t, SAME, SAME)
    case ncclFloat16:
        CASE(uint16_t, float, half_as_float, float_as_half)
    case ncclBfloat16:
        CASE(uint16_t, float, bfloat_as_float, float_as_bfloat)
    default:
        cd_misuse("ncclAllReduce: data type %d is not known to the double", (int)s->type);
    }
}

static void check_same(const sum *a, const sum *b)
{
    if (a->n != b->n || a->type != b->type || a->op != b->op)
        cd_misuse(
            "ncclAllReduce %llu: rank %d sums %zu values of type %d by %d, rank %d sums %zu of "
            "type %d by %d",
            (unsigned long long)a->number, a->rank, a->n, (int)a->type, (int)a->op, b->rank, b->n,
            (int)b->type, (int)b->op);
}

static void reduce_for_all(const void *arg, const void *const *in, int n, void *out)
{
    reduce(arg, in, n, out);
}

/* Called by the last rank of this process to arrive: all its inputs are there, and no rank
 * continues before all outputs are. */
static void sum_all(meeting *m, world *w)
{
    const sum *s = NULL;
    const void *in[MAX_RANKS] = {NULL};
    size_t bytes = 0;
    for (int r = 0; r < w->n; r++) {
        if (!m->ops[r])
            continue;
        const sum *one = (const sum *)m->ops[r]->payload;
        s = s ? s : one;
        bytes = s->n * size_of(s->type);
        check_same(s, one);
        in[r] = cd_reads(m->ops[r], one->in, bytes);
    }
    void *result = malloc(bytes);
    if (!s || !result)
        cd_misuse("no memory of the host");
    const cd_peers_sum all = {s->number, s->n, (uint32_t)s->type, (uint32_t)s->op, bytes};
    bool is_there = true;
    if (w->peers)
        is_there = cd_peers_reduce(w->peers, &all, in, reduce_for_all, s, result);
    else
        reduce(s, in, w->n, result);
    for (int r = 0; r < w->n && is_there; r++)
        if (m->ops[r])
            memcpy(cd_writes(m->ops[r], ((const sum *)m->ops[r]->payload)->out, bytes), result,
                   bytes);
    free(result);
}

static meeting *find_meeting(world *w, uint64_t number)
{
    meeting *m = w->meetings;
    while (m && m->number != number)
        m = m->next;
    if (!m && (m = calloc(1, sizeof *m))) {
        m->number = number;
        m->next = w->meetings;
        w->meetings = m;
    }
    if (!m)
        cd_misuse("no memory of the host");
    return m;
}

static void drop_meeting(world *w, meeting *m)
{
    meeting **at = &w->meetings;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    free(m);
}

static bool any_failed(const world *w)
{
    return w->aborted || cd_any_device_error();
}

static void run_sum(cd_op *op)
{
    const sum *s = (const sum *)op->payload;
    world *w = s->w;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += w->peers ? 10 * PATIENCE_S : PATIENCE_S; /* a peer may be reading data */
    pthread_mutex_lock(&cd_lock);
    if (any_failed(w)) { /* who waited has left, and its part is gone */
        pthread_mutex_unlock(&cd_lock);
        return;
    }
    meeting *m = find_meeting(w, s->number);
    if (m->ops[s->rank])
        cd_misuse("ncclAllReduce: rank %d comes twice to call %llu", s->rank,
                  (unsigned long long)s->number);
    m->ops[s->rank] = op;
    cd_tell_done(m);
    int here = w->peers ? __builtin_popcount(w->local) : w->n;
    if (++m->came == here) {
        pthread_mutex_unlock(&cd_lock);
        cd_tell_after(m);
        sum_all(m, w);
        cd_tell_done(m);
        pthread_mutex_lock(&cd_lock);
        m->left = here;
        pthread_cond_broadcast(&cd_moved);
    }
    while (m->left == 0 && (m->came == here || !any_failed(w)))
        if (pthread_cond_timedwait(&cd_moved, &cd_lock, &until) != 0 && m->left == 0)
            cd_misuse("ncclAllReduce: call %llu has %d of %d ranks", (unsigned long long)s->number,
                      m->came, here);
    cd_tell_after(m);
    if (m->left > 0 && --m->left == 0)
        drop_meeting(w, m);
    pthread_mutex_unlock(&cd_lock);
}

static void drop_sum(cd_op *op)
{
    pthread_mutex_lock(&cd_lock);
    ((sum *)op->payload)->w->under_way--;
    pthread_mutex_unlock(&cd_lock);
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream)
{
    if (cd_fails("ncclAllReduce")) {
        group_failed = depth > 0;
        return ncclSystemError;
    }
    cd_check(CD_COMM, c, "ncclAllReduce");
    int device = cd_stream_device(stream, "ncclAllReduce");
    if (device != c->device)
        cd_misuse("ncclAllReduce: a communicator of cuda:%d and a stream of cuda:%d", c->device,
                  device);
    if (cd_device_error(device))
        return ncclUnhandledCudaError;
    if (size_of(type) == 0)
        cd_misuse("ncclAllReduce: data type %d is not known to the double", (int)type);
    cd_op *x = cd_op_new(stream, "ncclAllReduce", run_sum, sizeof(sum));
    *(sum *)x->payload = (sum){c->w, c->rank, c->calls++, in, out, n, type, op};
    x->drop = drop_sum;
    pthread_mutex_lock(&cd_lock);
    c->w->under_way++;
    if (c->w->peers &&
        (depth == 0 || c->w->pending || cd_peers_state(c->w->peers) == ncclInProgress))
        cd_misuse("ncclAllReduce: over processes, without a group or before the last call is done");
    pthread_mutex_unlock(&cd_lock);
    if (depth > 0) {
        x->next = group;
        group = x;
    } else {
        cd_submit(x);
    }
    return ncclSuccess;
}
