/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas, their threads, and steps. */
#include "trainer/strategy/strategy.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/system/callback_code.h"
#include "pipeline/system/fork.h"
#include "trainer/collective/collective_ring.h"
#include "trainer/device/spin.h"
#include "trainer/strategy/strategy_impl.h"

enum { MAX_UNDOS = 1 << 20, MAX_SCRATCH = 1 << 16, MAX_SCOPES = 64 };

struct mr_replica {
    mr_strategy *s;
    size_t id;
    mr_device *device;
    mr_stream *compute;
    mr_math_fault *fault; /* in device memory */
    mr_math_fault *seen;  /* pinned copy of fault */
    double *squares;      /* in device memory, for optimizers */
    pthread_t thread;     /* the first replica's starts with the first step that the caller does not
                         run */
    bool has_thread;
    uint64_t done; /* steps that its thread has run, or that preceded it */
    mr__spinner spinner;
    void **scratch; /* of the current step */
    size_t n_scratch, scratch_capacity;
    mr_code rc; /* of the last step */
    mr_status st;
};

typedef struct undo {
    uint64_t step, amount;
    void (*fn)(void *ctx, uint64_t amount);
    void *ctx;
} undo;

struct mr_strategy {
    mr__strategy_kind kind;
    unsigned forks;  /* mr__forks() of the process that opened it */
    uint64_t serial; /* the default strategy's is 0 */
    size_t n;
    mr_replica *replicas;
    mr_collective *collective;
    mr__world *world; /* NULL, like ring: a single process */
    mr__ring *ring;
    mr__remote_job remote;
    pthread_mutex_t lock;  /* guards the fields below */
    pthread_cond_t moved;  /* a step begins, or stop */
    pthread_cond_t ended;  /* busy is 0 */
    bool awaited;          /* a thread waits for that */
    _Atomic uint64_t step; /* steps started so far */
    _Atomic uint64_t busy; /* replicas whose thread is in the step */
    mr__spinner spinner;   /* of the waiter for that */
    bool stop;
    bool first_called; /* the caller runs the first replica's part of the step, not its thread */
    bool ends;         /* the current step is to be joined, not only submitted */
    mr_step_fn fn;     /* of the current step; NULL: none */
    void *ctx;
    uint64_t failures; /* failed steps; changes only between steps */
    uint64_t failed;   /* the last of them */
    undo *undos;       /* of steps that have not ended, in order */
    size_t n_undos, undo_capacity;
};

/* The context of the calling thread. Steps run in the threads of replicas; a user's thread may nest
 * scopes. */
static _Thread_local mr_replica *here;
static _Thread_local size_t n_scopes;
static _Thread_local mr_strategy *scopes[MAX_SCOPES];

/* The default strategy. Its device is opened on first use. */
static mr_replica default_replica;
static mr_strategy the_default = {.kind = MR__DEFAULT,
                                  .n = 1,
                                  .replicas = &default_replica,
                                  .lock = PTHREAD_MUTEX_INITIALIZER,
                                  .moved = PTHREAD_COND_INITIALIZER,
                                  .ended = PTHREAD_COND_INITIALIZER};
static mr__lock default_lock = MR__LOCK_FREE;
static bool default_is_open;

uint64_t mr__next_serial(void)
{
    static _Atomic uint64_t serials;
    return ++serials;
}

uint64_t mr__strategy_serial(const mr_strategy *s)
{
    return s->serial;
}

mr_replica *mr_replica_current(void)
{
    return here;
}

void mr_strategy_enter(mr_strategy *s)
{
    if (n_scopes < MAX_SCOPES)
        scopes[n_scopes] = s;
    n_scopes++;
}

void mr_strategy_exit(mr_strategy *s)
{
    (void)s;
    if (n_scopes > 0)
        n_scopes--;
}

mr_strategy *mr_strategy_current(void)
{
    if (here)
        return here->s;
    size_t n = n_scopes < MAX_SCOPES ? n_scopes : MAX_SCOPES;
    return n > 0 ? scopes[n - 1] : &the_default;
}

uint64_t mr__strategy_failures(const mr_strategy *s)
{
    return s->failures;
}

uint64_t mr__strategy_failed_step(const mr_strategy *s)
{
    return s->failed;
}

uint64_t mr__strategy_step(const mr_strategy *s)
{
    return s->step;
}

bool mr__in_cross_replica_context(void)
{
    return !here && n_scopes > 0;
}

static void release_scratch(mr_replica *r)
{
    while (r->n_scratch > 0)
        mr_stream_release(r->compute, r->scratch[--r->n_scratch]);
}

static void run_step(mr_replica *r)
{
    here = r;
    mr_status_init(&r->st);
    r->rc = mr__callback_code(r->s->fn(r, r->s->ctx, &r->st), "a step", &r->st);
    /* The others may be waiting for this one's sums. */
    if (r->rc != MR_OK)
        mr_collective_abort(r->s->collective);
    else
        mr__collective_leave(r->s->collective, r->id);
    if (r->rc == MR_OK) /* otherwise a sum that was not awaited may be using it */
        release_scratch(r);
    here = NULL;
    if (r->rc == MR_OK && r->s->ends)
        r->rc = mr_stream_copy(r->compute, r->seen, r->fault, sizeof *r->seen, &r->st);
    if (!r->s->ends)
        mr_stream_flush(r->compute);
    /* This thread may do the work itself. Joining the step returns the error again. */
    else if (mr_stream_synchronize(r->compute, NULL) != MR_OK)
        return;
}

static void *replica_main(void *replica)
{
    mr_replica *r = replica;
    mr_strategy *s = r->s;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while ((s->step == r->done || (r->id == 0 && s->first_called)) && !s->stop)
            pthread_cond_wait(&s->moved, &s->lock);
        if (s->stop)
            break;
        r->done = s->step;
        pthread_mutex_unlock(&s->lock);
        run_step(r);
        pthread_mutex_lock(&s->lock);
        if (--s->busy == 0 && s->awaited) {
            pthread_mutex_unlock(&s->lock); /* the woken thread finds it free */
            pthread_cond_broadcast(&s->ended);
            pthread_mutex_lock(&s->lock);
        }
        if (s->ends) { /* the next step may begin at once */
            pthread_mutex_unlock(&s->lock);
            mr__spin_while(&r->spinner, &s->step, r->done);
            pthread_mutex_lock(&s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

mr_code mr__replica_write(mr_replica *r, void *dst, const void *src, size_t bytes, mr_status *st)
{
    MR_TRY(mr_stream_copy(r->compute, dst, src, bytes, st));
    return mr_stream_synchronize(r->compute, st);
}

mr_code mr__replica_read(mr_replica *r, void *dst, const void *src, size_t bytes, mr_status *st)
{
    return mr__replica_write(r, dst, src, bytes, st);
}

static mr_code open_replica(mr_strategy *s, size_t i, const char *name, mr_status *st)
{
    mr_replica *r = &s->replicas[i];
    void *p;
    r->s = s;
    r->id = i;
    MR_TRY(mr_device_open(&r->device, name, st));
    MR_TRY(mr_stream_new(&r->compute, r->device, MR_STREAM_COMPUTE, st));
    MR_TRY(mr_device_alloc(r->device, MR_MEMORY_PINNED, sizeof *r->seen, &p, st));
    r->seen = p;
    MR_TRY(mr_device_alloc(r->device, MR_MEMORY_DEVICE, sizeof *r->fault, &p, st));
    r->fault = p;
    MR_TRY(mr_device_alloc(r->device, MR_MEMORY_DEVICE, sizeof *r->squares, &p, st));
    r->squares = p;
    *r->seen = MR_MATH_FAULT_NONE;
    return mr__replica_write(r, r->fault, r->seen, sizeof *r->seen, st);
}

static mr_code start_thread(mr_replica *r, mr_status *st)
{
    r->done = r->s->step;
    r->spinner = mr__spinner_of(r->s->n);
    if (pthread_create(&r->thread, NULL, replica_main, r) != 0)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "cannot start the thread of a replica: there is no memory for its stack, or "
                       "there are too many threads");
    r->has_thread = true;
    return MR_OK;
}

/* The engine for cross-device ops; NULL: the collective chooses. */
static mr_code engine_of(const char *ops, const char **engine, mr_status *st)
{
    static const char *const names[] = {"nccl", "hierarchical_copy", "reduction_to_one_device"};
    *engine = NULL;
    if (!ops || strcmp(ops, "auto") == 0)
        return MR_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(ops, names[i]) == 0) {
            *engine = names[i];
            return MR_OK;
        }
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "cross-device ops '%s' are not one of auto, nccl, hierarchical_copy and "
                   "reduction_to_one_device",
                   ops);
}

static mr_code open_all(mr_strategy *s, const mr__device_names *l, const char *engine,
                        const mr_workers_opts *workers, mr_status *st)
{
    mr_device *devices[MR_MAX_REPLICAS];
    char why[256];
    for (size_t i = 0; i < s->n; i++) {
        MR_TRY(open_replica(s, i, l->names[i], st));
        devices[i] = s->replicas[i].device;
    }
    if (workers && !mr__devices_of_one_kind(devices, s->n, why, sizeof why))
        return mr_fail(st, MR_INVALID_ARGUMENT, "cannot sum over these devices: %s", why);
    if (workers) {
        MR_TRY(mr__workers_open(&s->ring, &s->world, workers, s->n, st));
        MR_TRY(mr__collective_over_processes(&s->collective, s->ring, workers->communication,
                                             devices, s->n, st));
    } else
        MR_TRY(mr_collective_new(&s->collective, engine, devices, s->n, st));
    s->spinner = mr__spinner_of(s->n);
    for (size_t i = 1; i < s->n; i++)
        MR_TRY(start_thread(&s->replicas[i], st));
    return MR_OK;
}

static mr_code new_strategy(mr_strategy **out, mr__strategy_kind kind, const mr_strategy_opts *opts,
                            const mr_workers_opts *workers, mr_status *st)
{
    const mr_strategy_opts none = {0}, *o = opts ? opts : &none;
    const char *engine;
    mr__device_names l = {.n = 0};
    MR_TRY(engine_of(o->cross_device_ops, &engine, st));
    if (engine && workers)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "cross-device ops are for the replicas of one process; several processes "
                       "sum in a ring");
    mr__devices_of(&l, o);
    if (l.n < 1 || l.n > MR_MAX_REPLICAS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "between 1 and %d replicas, found %zu",
                       MR_MAX_REPLICAS, l.n);
    if (o->num_replicas > 0 && o->num_replicas != l.n)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%zu replicas need %zu devices, found %zu; omit one of the two",
                       o->num_replicas, o->num_replicas, l.n);
    mr_strategy *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a strategy");
    mr__spinning_lock_init(&s->lock);
    pthread_cond_init(&s->moved, NULL);
    pthread_cond_init(&s->ended, NULL);
    s->kind = kind;
    s->forks = mr__forks();
    s->serial = mr__next_serial();
    s->n = l.n;
    s->replicas = mr_calloc(s->n, sizeof *s->replicas);
    mr_code rc = s->replicas ? open_all(s, &l, engine, workers, st)
                             : mr_fail_memory(st, s->n * sizeof *s->replicas, "replicas");
    if (rc != MR_OK) {
        mr_strategy_free(s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

mr_code mr_strategy_mirrored(mr_strategy **out, const mr_strategy_opts *opts, mr_status *st)
{
    return new_strategy(out, MR__MIRRORED, opts, NULL, st);
}

mr_code mr_strategy_central_storage(mr_strategy **out, const mr_strategy_opts *opts, mr_status *st)
{
    return new_strategy(out, MR__CENTRAL_STORAGE, opts, NULL, st);
}

mr_code mr_strategy_one_device(mr_strategy **out, const char *device, mr_status *st)
{
    const mr_strategy_opts o = {
        .num_replicas = 1, .devices = device ? &device : NULL, .n_devices = device ? 1 : 0};
    return new_strategy(out, MR__ONE_DEVICE, &o, NULL, st);
}

mr_code mr_strategy_multi_worker_mirrored(mr_strategy **out, const mr_strategy_opts *opts,
                                          const mr_workers_opts *workers, mr_status *st)
{
    bool alone = mr_cluster_num_workers(workers->cluster) < 2;
    return new_strategy(out, MR__MIRRORED, opts, alone ? NULL : workers, st);
}

mr_code mr__strategy_choose(mr_strategy **out, const mr_strategy_opts *opts, mr_status *st)
{
    MR_TRY(mr_strategy_mirrored(out, opts, st));
    if ((*out)->n == 1)
        (*out)->kind = MR__ONE_DEVICE;
    return MR_OK;
}

mr_strategy *mr__strategy_default(void)
{
    return &the_default;
}

static void free_replica(mr_replica *r)
{
    mr_stream_free(r->compute);
    if (r->device) {
        mr_device_free(r->device, MR_MEMORY_PINNED, r->seen);
        mr_device_free(r->device, MR_MEMORY_DEVICE, r->fault);
        mr_device_free(r->device, MR_MEMORY_DEVICE, r->squares);
    }
    mr_device_close(r->device);
    mr_free(r->scratch);
    memset(r, 0, sizeof *r);
}

/* Ends the threads and closes their resources. */
static void close_all(mr_strategy *s)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->moved);
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; s->replicas && i < s->n; i++)
        if (s->replicas[i].has_thread)
            pthread_join(s->replicas[i].thread, NULL);
    mr_collective_free(s->collective);
    mr__ring_close(s->ring);
    mr__world_close(s->world);
    for (size_t i = 0; s->replicas && i < s->n; i++)
        free_replica(&s->replicas[i]);
    s->collective = NULL;
    s->stop = false;
}

mr_code mr__strategy_ready(mr_strategy *s, mr_status *st)
{
    mr_code rc = MR_OK;
    if (!s)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the strategy is NULL");
    if (s != &the_default)
        return mr__check_process(s->forks, "the strategy", st);
    mr__lock_take(&default_lock);
    if (s->forks != mr__forks()) { /* what the parent opened remains its own */
        default_replica = (mr_replica){0};
        s->collective = NULL;
        s->fn = NULL;
        s->busy = 0;
        mr__spinning_lock_init(&s->lock);
        pthread_cond_init(&s->moved, NULL);
        pthread_cond_init(&s->ended, NULL);
        s->forks = mr__forks();
        default_is_open = false;
    }
    if (!default_is_open) {
        mr__device_names l = {.n = 0};
        mr__devices_of(&l, &(mr_strategy_opts){.num_replicas = 1});
        rc = open_all(s, &l, NULL, NULL, st);
        if (rc != MR_OK)
            close_all(s);
        default_is_open = rc == MR_OK;
    }
    mr__lock_release(&default_lock);
    return rc;
}

void mr_strategy_free(mr_strategy *s)
{
    if (!s || s == &the_default || s->forks != mr__forks()) /* the parent's threads */
        return;
    if (s->remote.self)
        s->remote.close(s->remote.self);
    close_all(s);
    pthread_cond_destroy(&s->moved);
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->lock);
    mr_free(s->replicas);
    mr_free(s->undos);
    mr_free(s);
}

size_t mr_strategy_num_local_replicas(const mr_strategy *s)
{
    return s->n;
}

size_t mr_strategy_num_workers(const mr_strategy *s)
{
    return s->world ? mr__world_size(s->world) : 1;
}

size_t mr_strategy_worker(const mr_strategy *s)
{
    return s->world ? mr__world_rank(s->world) : 0;
}

size_t mr_strategy_num_replicas_in_sync(const mr_strategy *s)
{
    return s->n * mr_strategy_num_workers(s);
}

size_t mr_strategy_first_replica_id(const mr_strategy *s)
{
    return s->n * mr_strategy_worker(s);
}

const mr__remote_job *mr__strategy_remote(const mr_strategy *s)
{
    return &s->remote;
}

void mr__strategy_set_remote(mr_strategy *s, const mr__remote_job *job)
{
    s->remote = *job;
}

void mr__strategy_pause(mr_strategy *s)
{
    if (s->remote.self && s->forks == mr__forks())
        s->remote.failed(s->remote.self);
}

mr__world *mr__strategy_world(const mr_strategy *s)
{
    return s->world;
}

mr__ring *mr__strategy_ring(const mr_strategy *s)
{
    return s->ring;
}

const char *mr_strategy_name(const mr_strategy *s)
{
    static const char *const names[] = {[MR__DEFAULT] = "default",
                                        [MR__ONE_DEVICE] = "one_device",
                                        [MR__MIRRORED] = "mirrored",
                                        [MR__CENTRAL_STORAGE] = "central_storage"};
    return s->remote.self ? "parameter_server"
           : s->world     ? "multi_worker_mirrored"
                          : names[s->kind];
}

const char *mr_strategy_communication(const mr_strategy *s)
{
    const char *engine = mr_collective_engine(s->collective);
    if (s->ring)
        return strcmp(engine, "ring") == 0 ? mr__ring_description(s->ring) : engine;
    return s->n > 1 ? engine : "none";
}

void mr_strategy_abandon(mr_strategy *s, const mr_status *why)
{
    mr__strategy_pause(s);
    if (s->world && s->forks == mr__forks())
        mr__world_abort(s->world, why, false);
}

bool mr_strategy_lost_peer(const mr_strategy *s)
{
    if (!s || s->forks != mr__forks())
        return false;
    return s->remote.self ? s->remote.has_lost(s->remote.self)
                          : s->world && mr__world_has_lost(s->world);
}

bool mr__strategy_is_central(const mr_strategy *s)
{
    return s->kind == MR__CENTRAL_STORAGE;
}

mr_replica *mr_strategy_replica(mr_strategy *s, size_t i)
{
    mr_code rc = mr__strategy_ready(s, NULL);
    (void)rc; /* the first use of the replica reports the error */
    return &s->replicas[i];
}

mr_collective *mr_strategy_collective(mr_strategy *s)
{
    return s->collective;
}

size_t mr_replica_id(const mr_replica *r)
{
    return r->id;
}

mr_device *mr_replica_device(const mr_replica *r)
{
    return r->device;
}

mr_strategy *mr_replica_strategy(const mr_replica *r)
{
    return r->s;
}

mr_stream *mr_replica_stream(const mr_replica *r)
{
    return r->compute;
}

const mr_math_table *mr_replica_math(const mr_replica *r)
{
    return mr_device_math(r->device);
}

mr_math_fault *mr__replica_fault(const mr_replica *r)
{
    return r->fault;
}

double *mr__replica_squares(const mr_replica *r)
{
    return r->squares;
}

mr_code mr_replica_scratch(mr_replica *r, size_t bytes, void **out, mr_status *st)
{
    MR_TRY(MR_GROW(r->scratch, r->scratch_capacity, r->n_scratch + 1, MAX_SCRATCH,
                   "a step's scratch memory", st));
    MR_TRY(mr_stream_alloc(r->compute, bytes, out, st));
    r->scratch[r->n_scratch++] = *out;
    return MR_OK;
}

mr_code mr_replica_to_device(mr_replica *r, const mr_array *host, mr_array *device, mr_status *st)
{
    mr_array a = *host;
    if (host->storage != MR_DENSE || host->rows != 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "only a dense tensor of numbers can be copied to a device, found %s",
                       mr_dtype_name(host->dtype));
    MR_TRY(mr_replica_scratch(r, mr_array_row_bytes(host), &a.data, st));
    MR_TRY(mr_stream_copy(r->compute, a.data, host->data, mr_array_row_bytes(host), st));
    a.owner = NULL;
    *device = a;
    return MR_OK;
}

mr_code mr__fault_status(const mr_math_fault *f, mr_status *st)
{
    if (f->count == 0)
        return MR_OK;
    if (f->is_feature)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "number %.0f in row %" PRIu64 " of the features is not one of the %" PRIu64
                       " (0 to %" PRIu64 ") that the model's first layer was made for",
                       f->label, f->row, f->classes, f->classes - 1);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "label %.0f of row %" PRIu64 " of the batch is not one of the %" PRIu64
                   " classes (0 to %" PRIu64 ") that the model predicts",
                   f->label, f->row, f->classes, f->classes - 1);
}

mr_code mr__strategy_reserve_undo(mr_strategy *s, mr_status *st)
{
    pthread_mutex_lock(&s->lock);
    mr_code rc =
        MR_GROW(s->undos, s->undo_capacity, s->n_undos + 2, MAX_UNDOS, "the updates of a step", st);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void mr__strategy_on_undo(mr_strategy *s, void (*fn)(void *ctx, uint64_t amount), void *ctx,
                          uint64_t amount)
{
    pthread_mutex_lock(&s->lock);
    s->undos[s->n_undos++] = (undo){s->step, amount, fn, ctx};
    pthread_mutex_unlock(&s->lock);
}

void mr__strategy_settle(mr_strategy *s, uint64_t step)
{
    size_t kept = 0;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_undos; i++)
        if (s->undos[i].step > step)
            s->undos[kept++] = s->undos[i];
    s->n_undos = kept;
    pthread_mutex_unlock(&s->lock);
}

static mr_code clear_faults(mr_strategy *s, mr_status *st)
{
    for (size_t i = 0; i < s->n; i++) {
        mr_replica *r = &s->replicas[i];
        *r->seen = MR_MATH_FAULT_NONE;
        MR_TRY(mr__replica_write(r, r->fault, r->seen, sizeof *r->seen, st));
    }
    return MR_OK;
}

mr_code mr__strategy_undo(mr_strategy *s, uint64_t step, mr_status *st)
{
    for (size_t i = s->n_undos; i-- > 0;)
        if (s->undos[i].step >= step)
            s->undos[i].fn(s->undos[i].ctx, s->undos[i].amount);
    s->n_undos = 0;
    return clear_faults(s, st);
}

static mr_code start(mr_strategy *s, mr_step_fn fn, void *ctx, bool first_called, bool ends,
                     mr_status *st)
{
    if (!fn)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the function of a step is NULL");
    if (here)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "run was called inside a step; call it between steps");
    MR_TRY(mr__strategy_ready(s, st));
    if (s->fn)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a step is under way; join it before starting the next");
    if (!first_called && !s->replicas[0].has_thread)
        MR_TRY(start_thread(&s->replicas[0], st));
    pthread_mutex_lock(&s->lock);
    s->fn = fn;
    s->ctx = ctx;
    s->busy = s->n - first_called;
    s->first_called = first_called;
    s->ends = ends;
    s->step++;
    if (s->world)
        mr__world_set_step(s->world, (int64_t)s->step);
    bool others = s->busy > 0;
    pthread_mutex_unlock(&s->lock);
    if (others)
        pthread_cond_broadcast(&s->moved);
    return MR_OK;
}

mr_code mr_strategy_start(mr_strategy *s, mr_step_fn fn, void *ctx, mr_status *st)
{
    return start(s, fn, ctx, false, true, st);
}

mr_code mr__strategy_begin(mr_strategy *s, mr_step_fn fn, void *ctx, mr_status *st)
{
    MR_TRY(start(s, fn, ctx, true, false, st));
    run_step(&s->replicas[0]);
    return MR_OK;
}

mr_code mr__strategy_synchronize(mr_strategy *s, mr_status *st)
{
    mr_code rc = MR_OK;
    for (size_t i = 0; i < s->n; i++) /* all at the same time */
        mr_stream_flush(s->replicas[i].compute);
    for (size_t i = 0; i < s->n; i++) {
        mr_code one = mr_stream_synchronize(s->replicas[i].compute, rc == MR_OK ? st : NULL);
        rc = rc == MR_OK ? one : rc;
    }
    return rc;
}

static void count_failure(mr_strategy *s)
{
    s->failures++;
    s->failed = s->step;
}

/* A step was not submitted in whole: nothing undoes it later, when its model may be freed. */
static void drop_undos(mr_strategy *s, uint64_t step)
{
    size_t kept = 0;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n_undos; i++)
        if (s->undos[i].step != step)
            s->undos[kept++] = s->undos[i];
    s->n_undos = kept;
    pthread_mutex_unlock(&s->lock);
}

mr_code mr__strategy_submitted(mr_strategy *s, mr_status *st)
{
    const mr_replica *bad = NULL;
    MR_TRY(mr__strategy_ready(s, st));
    if (!s->fn)
        return mr_fail(st, MR_FAILED_PRECONDITION, "no step is under way");
    uint64_t busy;
    for (size_t i = 1; i < s->n && s->ends && (busy = s->busy) > 0; i++)
        mr__spin_while(&s->spinner, &s->busy, busy);
    pthread_mutex_lock(&s->lock);
    s->awaited = true;
    while (s->busy > 0)
        pthread_cond_wait(&s->ended, &s->lock);
    s->awaited = false;
    s->fn = NULL;
    pthread_mutex_unlock(&s->lock);
    for (size_t i = 0; i < s->n; i++) {
        const mr_replica *r = &s->replicas[i];
        /* A replica that was only aborted is not the cause. */
        if (r->rc != MR_OK && (!bad || (bad->rc == MR_ABORTED && r->rc != MR_ABORTED)))
            bad = r;
    }
    mr_status why;
    if (bad)
        why = bad->st;
    mr_code rc = bad ? bad->rc : mr__collective_end_step(s->collective, &why);
    if (rc == MR_OK)
        return MR_OK;
    count_failure(s);
    drop_undos(s, s->step);
    mr_strategy_abandon(s, &why); /* the other processes may be waiting for this one's sums */
    /* A failed device fails the next step too. */
    mr_code rest = mr__strategy_synchronize(s, NULL);
    mr_collective_reset(s->collective);
    for (size_t i = 0; i < s->n; i++)
        release_scratch(&s->replicas[i]);
    if (rest == MR_OK)
        rest = clear_faults(s, NULL);
    if (st)
        *st = why;
    return rc;
}

/* After a step was submitted successfully: waits until it ends and checks for labels out of
 * range. */
static mr_code end_step(mr_strategy *s, mr_status *st)
{
    mr_code rc = MR_OK;
    MR_TRY(mr__strategy_synchronize(s, st));
    for (size_t i = 0; i < s->n && rc == MR_OK; i++)
        rc = mr__fault_status(s->replicas[i].seen, st);
    if (rc == MR_OK) {
        mr__strategy_settle(s, s->step);
        return MR_OK;
    }
    count_failure(s);
    mr_code cleared = mr__strategy_undo(s, s->step, NULL);
    return cleared == MR_OK ? rc : cleared;
}

mr_code mr_strategy_join(mr_strategy *s, mr_status *st)
{
    MR_TRY(mr__strategy_ready(s, st));
    mr_code rc = mr__strategy_submitted(s, st);
    if (rc == MR_OK)
        return end_step(s, st);
    mr__strategy_settle(s, s->step);
    return rc;
}

mr_code mr_strategy_run(mr_strategy *s, mr_step_fn fn, void *ctx, mr_status *st)
{
    MR_TRY(start(s, fn, ctx, true, true, st));
    run_step(&s->replicas[0]);
    return mr_strategy_join(s, st);
}
