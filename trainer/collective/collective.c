/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all engines: ranks meet here, and their streams are ordered by events. The rank that
 * arrives last at an operation submits it for all, so that no engine ever waits for a missing
 * rank. */
#include "trainer/collective/collective.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"
#include "trainer/collective/collective_host.h"
#include "trainer/collective/collective_impl.h"
#include "trainer/collective/collective_processes.h"
#include "trainer/collective/collective_ring.h"
#include "trainer/collective/collective_times.h"
#include "trainer/collective/ring/ring_sums.h"
#include "trainer/device/device_modules_impl.h"
#include "trainer/device/spin.h"
#include "trainer/device/timeline_impl.h"

enum {
    IN_FLIGHT = 64, /* how many operations a rank may be ahead */
    MAX_ENGINES = 16,
    MAX_USUAL = 1 << 20
};

/* Operation number k uses slot k % IN_FLIGHT. Its arguments stay valid until all ranks have started
 * the slot's next operation, which waits for this one. */
typedef struct operation {
    mr_collective_call *calls; /* one per rank */
    size_t arrived;            /* ranks that have started the next operation */
    mr_collective_call next;   /* that operation */
    size_t n;                  /* number of values; 1 for a barrier */
    bool host;                 /* through pinned memory, in the first rank's stream */
    bool single;               /* run by one stream: that of rank number % n_ranks */
    mr_event **ready, **done;  /* one per rank: recorded in its stream; in that of the engine */
    mr__span **spans;          /* one per rank: of the engine's stream, during submission */
} operation;

/* The operation of all processes at one place of the last step, as announced. */
typedef struct usual {
    mr_collective_call call;
    bool ends; /* the step */
} usual;

struct mr_collective {
    const mr_collective_backend *b;
    void *self;
    mr_device *first;        /* rank 0's */
    mr__ring *ring;          /* NULL: a single process */
    mr__engine_guard *guard; /* of an engine that spans processes; NULL: the ring does */
    size_t total;            /* number of ranks in all processes */
    usual *usual;            /* by place within a step; only with a guard */
    size_t n_usual, usual_capacity, place;
    bool apart;          /* the first device cannot access the memory of all others */
    mr__host_sums *host; /* created on first use */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    size_t n_ranks;
    bool aborted;
    unsigned waiters; /* of moved */
    bool moves;       /* wake them when the lock is free */
    _Atomic uint64_t moves_so_far;
    mr__spinner *spinners; /* one per rank */
    uint64_t launched;     /* operations that all ranks have started */
    uint64_t *posted;      /* number of operations started, by rank */
    uint64_t step_began;   /* operations of every rank when the step began */
    bool *left;            /* ranks that start no more operations in this step */
    mr_stream **streams;   /* of the engine, one per rank */
    mr__sum_times *times;  /* NULL: not measuring */
    operation ops[IN_FLIGHT];
};

/* The engines of the library come first. */
static mr__lock engines_lock = MR__LOCK_FREE;
static const mr_collective_backend *engines[MAX_ENGINES] = {&mr__collective_one_device,
                                                            &mr__collective_local};
static size_t n_engines = 2, n_from_modules;

/* Call with the lock held. */
static mr_code add_engine(const mr_collective_backend *b, mr_status *st)
{
    if (b->abi != MR_COLLECTIVE_ABI)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "collective engine '%s' was built for interface %" PRIu32
                       ", this library has %d; use the module of the same release",
                       b->name, b->abi, MR_COLLECTIVE_ABI);
    for (size_t i = 0; i < n_engines; i++)
        if (strcmp(engines[i]->name, b->name) == 0)
            return mr_fail(st, MR_ALREADY_EXISTS, "collective engine '%s' is registered already",
                           b->name);
    if (n_engines == MAX_ENGINES)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "at most %d collective engines", MAX_ENGINES);
    engines[n_engines++] = b;
    return MR_OK;
}

/* Lists all engines, in the order of registration; returns their number. Modules do not register
 * their engines: those of modules loaded since the last call are registered here. */
static size_t list_engines(const mr_collective_backend *out[MAX_ENGINES])
{
    const mr_collective_backend *b;
    mr_status refused;
    mr_code rc = MR_OK;
    mr__lock_take(&engines_lock);
    for (; rc == MR_OK && (b = mr__module_engine(n_from_modules)); n_from_modules++)
        rc = add_engine(b, &refused);
    size_t n = n_engines;
    memcpy(out, engines, sizeof engines);
    mr__lock_release(&engines_lock);
    if (rc != MR_OK)
        mr_log(MR_LOG_WARNING, "%s", refused.message);
    return n;
}

mr_code mr_collective_backend_register(const mr_collective_backend *b, mr_status *st)
{
    if (!b)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the backend is NULL");
    const mr_collective_backend *before[MAX_ENGINES];
    list_engines(before); /* those of modules come before it */
    mr__lock_take(&engines_lock);
    mr_code rc = add_engine(b, st);
    mr__lock_release(&engines_lock);
    return rc;
}

void mr__say_engine(const mr_device *first, const char *who, const char *engine, const char *why)
{
    bool is_cpu = strcmp(mr_device_kind(first), "cpu") == 0;
    mr_log(is_cpu ? MR_LOG_INFO : MR_LOG_WARNING, "%s sum with %s instead of nccl: %s", who, engine,
           why);
}

static mr_code choose_engine(const char *name, mr_device *const *devices, size_t n,
                             const mr_collective_backend **out, mr_status *st)
{
    const mr_collective_backend *copy[MAX_ENGINES];
    char why[256] = "", refused[sizeof why] = "";
    size_t i = list_engines(copy);
    if (n == 1 && !name) /* nothing to sum: the engines of this library need no set-up */
        i = 2;
    while (i-- > 0) {
        if (name && strcmp(copy[i]->name, name) != 0)
            continue;
        *out = copy[i];
        if (copy[i]->suits(devices, n, why, sizeof why)) {
            if (*refused)
                mr__say_engine(devices[0], "replicas", copy[i]->name, refused);
            return MR_OK;
        }
        if (strcmp(copy[i]->name, "nccl") == 0)
            memcpy(refused, why, sizeof why);
        if (name)
            return mr_fail(st, MR_INVALID_ARGUMENT, "%s: %s", name, why);
    }
    if (name)
        return mr_fail(st, MR_NOT_FOUND, "collective engine '%s' is not available%s", name,
                       strcmp(name, "nccl") == 0
                           ? "; it comes with the module for GPUs (see millrace devices)"
                           : "");
    return mr_fail(st, MR_INVALID_ARGUMENT, "cannot sum over these devices: %s", why);
}

const char *mr_collective_engine(const mr_collective *c)
{
    return c->b->name;
}

/* Threads that are woken find the lock free. */
static void unlock(mr_collective *c)
{
    bool tell = c->moves && c->waiters > 0;
    if (c->moves)
        atomic_fetch_add_explicit(&c->moves_so_far, 1, memory_order_release);
    c->moves = false;
    pthread_mutex_unlock(&c->lock);
    if (tell)
        pthread_cond_broadcast(&c->moved);
}

static bool moves_data(const mr_collective *c, size_t n)
{
    return n > 0 && c->total > 1;
}

/* Whether the engine submits operation `number` to the stream of `rank`. */
static bool is_used(const mr_collective *c, const operation *o, uint64_t number, size_t rank)
{
    bool first = o->host || c->b->split == SIZE_MAX;
    return !(o->host || o->single) || rank == (first ? 0 : number % c->n_ranks);
}

/* Whether a stream of the operation accesses several ranks' memory. */
static bool touches_peers(const mr_collective *c, const operation *o)
{
    return o->host || c->b->touches_peers;
}

/* The operation's name in a timeline. */
static const char *name_of(const mr_collective_call *call)
{
    static const char *const names[] = {[MR_ALL_REDUCE] = "all-reduce",
                                        [MR_REDUCE] = "reduce",
                                        [MR_BROADCAST] = "broadcast",
                                        [MR_ALL_GATHER] = "all-gather",
                                        [MR_BARRIER] = "barrier"};
    return names[call->op];
}

/* Marks the beginning of the operation in the stream of `rank`. */
static mr_code mark_begin(mr_collective *c, operation *o, size_t rank, mr_status *st)
{
    const mr_collective_call *call = &o->calls[rank];
    if (c->times)
        MR_TRY(mr__sum_times_mark(c->times, MR__SUM_BEGINS, rank, c->streams[rank], st));
    MR_TRY(
        mr__span_submit(&o->spans[rank], c->streams[rank], MR_ROW_SUMS, rank, name_of(call), st));
    if (o->spans[rank])
        o->spans[rank]->bytes = call->count * mr_dtype_size(call->dtype);
    return MR_OK;
}

static mr_code mark_end(mr_collective *c, operation *o, size_t rank, mr_status *st)
{
    if (c->times)
        MR_TRY(mr__sum_times_mark(c->times, MR__SUM_ENDS, rank, c->streams[rank], st));
    return mr__span_submit_end(o->spans[rank], c->streams[rank], st);
}

/* Call with the lock held, which also serialises submissions to a stream in order. */
static mr_code launch(mr_collective *c, operation *o, uint64_t number, mr_status *st)
{
    for (size_t r = 0; moves_data(c, o->n) && r < c->n_ranks; r++)
        for (size_t peer = 0; is_used(c, o, number, r) && peer < c->n_ranks; peer++)
            if (touches_peers(c, o) || peer == r)
                MR_TRY(mr_stream_wait(c->streams[r], o->ready[peer], st));
    for (size_t r = 0; moves_data(c, o->n) && r < c->n_ranks; r++)
        if (is_used(c, o, number, r))
            MR_TRY(mark_begin(c, o, r, st));
    if (o->host && moves_data(c, o->n))
        MR_TRY(mr__host_sums_submit(c->host, o->calls, number, st));
    else if (moves_data(c, o->n))
        MR_TRY(c->b->submit(c->self, o->calls, c->n_ranks, number, st));
    for (size_t r = 0; moves_data(c, o->n) && r < c->n_ranks; r++)
        if (is_used(c, o, number, r)) {
            MR_TRY(mark_end(c, o, r, st));
            MR_TRY(mr_stream_record(c->streams[r], o->done[r], st));
        }
    return MR_OK;
}

/* The first rank that will never start operation `number`; n_ranks: none. */
static size_t absent_rank(const mr_collective *c, uint64_t number)
{
    size_t r = 0;
    while (r < c->n_ranks && !(c->left[r] && c->posted[r] <= number))
        r++;
    return r;
}

/* Call with the lock held: waits until all ranks have started operation `number`, which this rank
 * has. Once they have, it succeeds regardless of later failures, so that all ranks agree on it. */
static mr_code meet(mr_collective *c, size_t rank, uint64_t number, mr_status *st)
{
    for (bool spun = false; number >= c->launched; spun = true) {
        size_t absent = absent_rank(c, number);
        if (c->aborted)
            return mr_fail(st, MR_ABORTED,
                           "another replica failed, so this sum cannot be completed");
        if (absent < c->n_ranks)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "replica %zu ended its step after %" PRIu64
                           " sums, but replica %zu waits for one more; all replicas must take part "
                           "in the same sums, even those without rows",
                           absent, c->posted[absent] - c->step_began, rank);
        if (!spun) {
            uint64_t seen = c->moves_so_far;
            unlock(c);
            mr__spin_while(&c->spinners[rank], &c->moves_so_far, seen);
            pthread_mutex_lock(&c->lock);
            continue;
        }
        c->waiters++;
        pthread_cond_wait(&c->moved, &c->lock);
        c->waiters--;
    }
    return MR_OK;
}

/* Call with the lock held, after meet: makes the rank's stream wait for the result. */
static mr_code wait_for(mr_collective *c, size_t rank, mr_stream *stream, uint64_t number,
                        mr_status *st)
{
    const operation *o = &c->ops[number % IN_FLIGHT];
    if (c->posted[rank] > number + IN_FLIGHT)
        return MR_OK; /* it waited when it started the operation that is in the slot now */
    if (!moves_data(c, o->n))
        return MR_OK;
    mr__span *span;
    if (c->times)
        MR_TRY(mr__sum_times_mark(c->times, MR__WAIT_BEGINS, rank, stream, st));
    MR_TRY(mr__span_submit(&span, stream, MR_ROW_STREAM, rank, "sum", st));
    if (span)
        span->kind = MR_SPAN_WAIT;
    for (size_t i = 0; i < c->n_ranks; i++) {
        /* Its own first: waiting for a stream may run the stream's work, so that all ranks share
         * it. A rank that is ahead may have put its next operation into the slot. If an event does
         * not exist yet, the requested operation had no data. */
        size_t r = (rank + i) % c->n_ranks;
        if (is_used(c, o, number, r) && (touches_peers(c, o) || r == rank) && o->done[r])
            MR_TRY(mr_stream_wait(stream, o->done[r], st));
    }
    MR_TRY(mr__span_submit_end(span, stream, st));
    return c->times ? mr__sum_times_mark(c->times, MR__WAIT_ENDS, rank, stream, st) : MR_OK;
}

/* Creates the rank's events of a slot on first use. */
static mr_code make_events(const mr_collective *c, operation *o, size_t rank, mr_status *st)
{
    if (!o->ready[rank])
        MR_TRY(mr_event_new(&o->ready[rank], c->streams[rank]->device, st));
    return o->done[rank] ? MR_OK : mr_event_new(&o->done[rank], c->streams[rank]->device, st);
}

static bool is_same(const mr_collective_call *a, const mr_collective_call *b)
{
    return a->op == b->op && a->reduction == b->reduction && a->dtype == b->dtype &&
           a->count == b->count && a->root == b->root;
}

/* "sums 3 values of float32" */
static void describe(const mr_collective_call *c, char *out, size_t size)
{
    static const char *const reductions[] = {"sums", "averages", "takes the maximum of",
                                             "takes the minimum of"};
    const char *type = mr_dtype_name(c->dtype);
    if (c->op == MR_BARRIER)
        snprintf(out, size, "waits at a barrier");
    else if (c->op == MR_ALL_GATHER)
        snprintf(out, size, "gathers %zu values of %s", c->count, type);
    else if (c->op == MR_BROADCAST)
        snprintf(out, size, "takes %zu values of %s from rank %zu", c->count, type, c->root);
    else if (c->op == MR_REDUCE)
        snprintf(out, size, "%s %zu values of %s on rank %zu", reductions[c->reduction & 3],
                 c->count, type, c->root);
    else
        snprintf(out, size, "%s %zu values of %s", reductions[c->reduction & 3], c->count, type);
}

static mr_code check_call(const mr_collective *c, const mr_collective_call *call, mr_status *st)
{
    bool reduces = call->op == MR_ALL_REDUCE || call->op == MR_REDUCE;
    if (call->op > MR_BARRIER || call->reduction > MR_REDUCTION_MIN)
        return mr_fail(st, MR_INVALID_ARGUMENT, "unknown collective operation %d or reduction %d",
                       (int)call->op, (int)call->reduction);
    if (call->op != MR_BARRIER && !mr__ring_fold(MR__RING_SUM, call->dtype))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "cannot exchange values of %s; expected float16, bfloat16, float32, "
                       "float64, int32 or int64",
                       mr_dtype_name(call->dtype));
    if (reduces && call->reduction == MR_REDUCTION_MEAN && mr_dtype_is_integer(call->dtype))
        return mr_fail(st, MR_INVALID_ARGUMENT, "integers have no mean; sum them as float64");
    if ((call->op == MR_REDUCE || call->op == MR_BROADCAST) && call->root >= c->total)
        return mr_fail(st, MR_INVALID_ARGUMENT, "rank %zu is out of range: there are %zu ranks",
                       call->root, c->total);
    return MR_OK;
}

static bool is_plain_sum(const mr_collective_call *call)
{
    return call->op == MR_ALL_REDUCE && call->reduction == MR_REDUCTION_SUM &&
           call->dtype == MR_FLOAT32 && call->in == call->out;
}

/* Whether the operation uses pinned memory. A barrier of one process consists only of events, but
 * takes the same path. */
static bool needs_host(const mr_collective *c, const mr_collective_call *call)
{
    bool beyond = c->apart && c->b->touches_peers;
    return beyond || call->op == MR_BARRIER ||
           !(c->b->does ? c->b->does(call) : is_plain_sum(call));
}

/* Engines that span processes would hang, or worse, if the processes ran different operations. call
 * NULL: the step ends. */
static mr_code agree(mr_collective *c, const mr_collective_call *call, mr_status *st)
{
    char what[MR__MAX_ANNOUNCEMENT];
    usual now = {.ends = !call};
    size_t place = c->place++;
    if (call) {
        now.call = *call;
        describe(call, what, sizeof what);
    } else
        snprintf(what, sizeof what, "ends its step");
    if (place < c->n_usual && c->usual[place].ends == now.ends &&
        (now.ends || is_same(&c->usual[place].call, call)))
        return mr__world_announce(mr__ring_world(c->ring), what, true, st);
    MR_TRY(mr__world_announce(mr__ring_world(c->ring), what, false, st));
    MR_TRY(MR_GROW(c->usual, c->usual_capacity, place + 1, MAX_USUAL, "the sums of a step", st));
    c->usual[place] = now;
    if (place == c->n_usual || now.ends) /* later places are no longer usual */
        c->n_usual = place + 1;
    return MR_OK;
}

/* All ranks have started the operation: submits it. */
static mr_code launch_next(mr_collective *c, operation *o, uint64_t number, mr_status *st)
{
    o->arrived = 0;
    o->n = o->next.op == MR_BARRIER ? 1 : o->next.count;
    o->host = false;
    for (size_t r = 0; r < c->n_ranks; r++)
        o->host = o->host || needs_host(c, &o->calls[r]);
    o->single = c->b->split > 0 && o->n < c->b->split;
    if (c->guard && moves_data(c, o->n))
        MR_TRY(agree(c, &o->next, st));
    if (o->host && moves_data(c, o->n) && !c->host)
        MR_TRY(mr__host_sums_new(&c->host, c->first, c->n_ranks, c->ring, st));
    return launch(c, o, number, st);
}

/* Call with the lock held. Without data the ranks only meet. */
static mr_code start(mr_collective *c, size_t rank, mr_stream *stream,
                     const mr_collective_call *call, uint64_t *ticket, mr_status *st)
{
    uint64_t number = c->posted[rank];
    operation *o = &c->ops[number % IN_FLIGHT];
    size_t n = call->op == MR_BARRIER ? 1 : call->count;
    if (number >= IN_FLIGHT) {
        MR_TRY(meet(c, rank, number - IN_FLIGHT, st));
        MR_TRY(wait_for(c, rank, stream, number - IN_FLIGHT, st));
    }
    if (c->aborted)
        return mr_fail(st, MR_ABORTED, "another replica failed, so this sum cannot be completed");
    if (o->arrived > 0 && !is_same(&o->next, call)) {
        char mine[96], other[96];
        describe(call, mine, sizeof mine);
        describe(&o->next, other, sizeof other);
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "replica %zu %s where another %s; all replicas must run the same steps",
                       rank, mine, other);
    }
    if (moves_data(c, n))
        MR_TRY(make_events(c, o, rank, st));
    else if (n > 0 && call->in != call->out && call->op != MR_BARRIER) /* a single rank */
        MR_TRY(mr_stream_copy(stream, call->out, call->in, n * mr_dtype_size(call->dtype), st));
    o->next = o->calls[rank] = *call;
    o->calls[rank].stream = c->streams[rank];
    if (moves_data(c, n))
        MR_TRY(mr_stream_record(stream, o->ready[rank], st));
    c->posted[rank]++;
    *ticket = number;
    if (++o->arrived < c->n_ranks)
        return MR_OK;
    mr_code rc = launch_next(c, o, number, st);
    c->aborted = c->aborted || rc != MR_OK;
    c->launched += rc == MR_OK;
    c->moves = true;
    return rc;
}

mr_code mr_collective_begin(mr_collective *c, size_t rank, mr_stream *stream,
                            const mr_collective_call *call, uint64_t *ticket, mr_status *st)
{
    MR_TRY(check_call(c, call, st));
    pthread_mutex_lock(&c->lock);
    mr_code rc = start(c, rank, stream, call, ticket, st);
    unlock(c);
    return rc;
}

static mr_collective_call sum_of(float *data, size_t n)
{
    return (mr_collective_call){.op = MR_ALL_REDUCE,
                                .reduction = MR_REDUCTION_SUM,
                                .dtype = MR_FLOAT32,
                                .count = n,
                                .in = data,
                                .out = data};
}

mr_code mr_collective_start(mr_collective *c, size_t rank, mr_stream *stream, float *data, size_t n,
                            uint64_t *ticket, mr_status *st)
{
    const mr_collective_call call = sum_of(data, n);
    pthread_mutex_lock(&c->lock);
    mr_code rc = start(c, rank, stream, &call, ticket, st);
    unlock(c);
    return rc;
}

mr_code mr_collective_wait(mr_collective *c, size_t rank, mr_stream *stream, uint64_t ticket,
                           mr_status *st)
{
    pthread_mutex_lock(&c->lock);
    mr_code rc = meet(c, rank, ticket, st);
    if (rc == MR_OK)
        rc = wait_for(c, rank, stream, ticket, st);
    unlock(c);
    return rc;
}

mr_code mr__collective_commit(mr_collective *c, size_t rank, mr_stream *stream, mr_status *st)
{
    uint64_t ticket;
    const mr_collective_call nothing = sum_of(NULL, 0);
    pthread_mutex_lock(&c->lock);
    mr_code rc = start(c, rank, stream, &nothing, &ticket, st);
    if (rc == MR_OK)
        rc = meet(c, rank, ticket, st);
    unlock(c);
    return rc;
}

void mr__collective_leave(mr_collective *c, size_t rank)
{
    pthread_mutex_lock(&c->lock);
    c->left[rank] = true;
    c->moves = true;
    unlock(c);
}

mr_code mr__collective_end_step(mr_collective *c, mr_status *st)
{
    mr_code rc = MR_OK;
    pthread_mutex_lock(&c->lock);
    for (size_t r = 1; r < c->n_ranks && rc == MR_OK; r++)
        if (c->posted[r] != c->posted[0])
            rc = mr_fail(st, MR_FAILED_PRECONDITION,
                         "replica 0 took part in %" PRIu64
                         " sums of the step and replica %zu in %" PRIu64
                         "; all replicas must take part in the same sums, even those without rows",
                         c->posted[0] - c->step_began, r, c->posted[r] - c->step_began);
    if (rc == MR_OK && c->b->poll)
        rc = c->b->poll(c->self, st);
    if (rc == MR_OK && c->host)
        rc = mr__host_sums_poll(c->host, st);
    if (rc == MR_OK && c->place > 0)
        rc = agree(c, NULL, st);
    c->place = 0;
    c->step_began = c->posted[0];
    memset(c->left, 0, c->n_ranks * sizeof *c->left);
    unlock(c);
    return rc;
}

mr_code mr_collective_measure(mr_collective *c, mr_status *st)
{
    pthread_mutex_lock(&c->lock);
    if (!c->times)
        c->times = mr__sum_times_new(c->n_ranks);
    mr_code rc = c->times ? MR_OK : mr_fail_memory(st, c->n_ranks, "the times of sums");
    unlock(c);
    return rc;
}

void mr_collective_measured(mr_collective *c, mr_collective_times *out)
{
    pthread_mutex_lock(&c->lock);
    *out = (mr_collective_times){0};
    if (c->times)
        mr__sum_times_read(c->times, out);
    unlock(c);
}

void mr_collective_abort(mr_collective *c)
{
    pthread_mutex_lock(&c->lock);
    c->aborted = true;
    c->moves = true;
    unlock(c);
}

void mr_collective_reset(mr_collective *c)
{
    pthread_mutex_lock(&c->lock);
    for (size_t r = 0; r < c->n_ranks; r++)
        if (mr_stream_synchronize(c->streams[r], NULL) != MR_OK && c->b->abort)
            c->b->abort(c->self); /* the next step returns its error again */
    if (c->times)
        mr__sum_times_stop(c->times);
    c->aborted = false;
    memset(c->posted, 0, c->n_ranks * sizeof *c->posted);
    memset(c->left, 0, c->n_ranks * sizeof *c->left);
    c->step_began = c->launched = 0;
    for (size_t i = 0; i < IN_FLIGHT; i++)
        c->ops[i].arrived = 0;
    unlock(c);
}

static mr_code make_operation(const mr_collective *c, operation *o, mr_status *st)
{
    o->calls = mr_calloc(c->n_ranks, sizeof *o->calls);
    o->ready = mr_calloc(c->n_ranks, sizeof(mr_event *));
    o->done = mr_calloc(c->n_ranks, sizeof(mr_event *));
    o->spans = mr_calloc(c->n_ranks, sizeof(mr__span *));
    if (!o->calls || !o->ready || !o->done || !o->spans)
        return mr_fail_memory(st, c->n_ranks * sizeof *o->calls, "a collective");
    return MR_OK;
}

static mr_code make_all(mr_collective *c, mr_device *const *devices, mr_status *st)
{
    c->posted = mr_calloc(c->n_ranks, sizeof *c->posted);
    c->left = mr_calloc(c->n_ranks, sizeof *c->left);
    c->streams = mr_calloc(c->n_ranks, sizeof(mr_stream *));
    c->spinners = mr_calloc(c->n_ranks, sizeof *c->spinners);
    if (!c->posted || !c->left || !c->streams || !c->spinners)
        return mr_fail_memory(st, c->n_ranks * sizeof *c->posted, "a collective");
    for (size_t r = 0; r < c->n_ranks; r++)
        c->spinners[r] = mr__spinner_of(c->n_ranks);
    for (size_t r = 0; r < c->n_ranks; r++)
        MR_TRY(mr_stream_new(&c->streams[r], devices[r], MR_STREAM_COMM, st));
    for (size_t i = 0; i < IN_FLIGHT; i++)
        MR_TRY(make_operation(c, &c->ops[i], st));
    return MR_OK;
}

static mr_code open_engine(mr_collective *c, mr_device *const *devices, mr_status *st)
{
    if (!c->ring)
        return c->b->open(devices, c->n_ranks, &c->self, st);
    if (c->b == &mr__collective_ring)
        return mr__collective_ring_engine(c->ring, devices, c->n_ranks, &c->self, st);
    return mr__engine_guard_new(&c->guard, c->b, c->ring, devices, c->n_ranks, &c->self, st);
}

/* ring NULL: a single process. */
static mr_code make(mr_collective **out, const mr_collective_backend *b, mr__ring *ring,
                    mr_device *const *devices, size_t n, mr_status *st)
{
    mr_collective *c = mr_calloc(1, sizeof *c);
    if (!c)
        return mr_fail_memory(st, sizeof *c, "a collective");
    mr__spinning_lock_init(&c->lock);
    pthread_cond_init(&c->moved, NULL);
    c->b = b;
    c->n_ranks = n;
    c->first = devices[0];
    for (size_t r = 1; r < n; r++)
        c->apart = c->apart || !mr_device_reaches(devices[0], devices[r]);
    c->ring = ring;
    c->total = n * (ring ? mr__world_size(mr__ring_world(ring)) : 1);
    mr_code rc = make_all(c, devices, st);
    if (rc == MR_OK)
        rc = open_engine(c, devices, st);
    if (rc != MR_OK) {
        mr_collective_free(c);
        return rc;
    }
    *out = c;
    return MR_OK;
}

mr_code mr_collective_new(mr_collective **out, const char *engine, mr_device *const *devices,
                          size_t n, mr_status *st)
{
    const mr_collective_backend *b;
    MR_TRY(choose_engine(engine, devices, n, &b, st));
    return make(out, b, NULL, devices, n, st);
}

const mr_collective_backend *mr__collective_find(const char *name)
{
    const mr_collective_backend *all[MAX_ENGINES];
    for (size_t i = list_engines(all); i-- > 0;)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

mr_code mr__collective_over_processes(mr_collective **out, mr__ring *ring, const char *name,
                                      mr_device *const *devices, size_t n, mr_status *st)
{
    const mr_collective_backend *b;
    MR_TRY(mr__engine_agree(ring, name, devices, n, &b, st));
    return make(out, b ? b : &mr__collective_ring, ring, devices, n, st);
}

void mr_collective_free(mr_collective *c)
{
    if (!c)
        return;
    for (size_t r = 0; c->streams && r < c->n_ranks; r++)
        mr_stream_free(c->streams[r]);
    mr__sum_times_free(c->times);
    mr__host_sums_free(c->host);
    if (c->guard)
        mr__world_announce_end(mr__ring_world(c->ring));
    mr__engine_guard_free(c->guard);
    if (c->self)
        c->b->close(c->self);
    for (size_t i = 0; i < IN_FLIGHT; i++) {
        operation *o = &c->ops[i];
        for (size_t r = 0; r < c->n_ranks; r++) {
            mr_event_free(o->ready ? o->ready[r] : NULL);
            mr_event_free(o->done ? o->done[r] : NULL);
        }
        mr_free(o->calls);
        mr_free(o->ready);
        mr_free(o->done);
        mr_free(o->spans);
    }
    mr_free(c->streams);
    mr_free(c->usual);
    mr_free(c->posted);
    mr_free(c->left);
    mr_free(c->spinners);
    pthread_cond_destroy(&c->moved);
    pthread_mutex_destroy(&c->lock);
    mr_free(c);
}
