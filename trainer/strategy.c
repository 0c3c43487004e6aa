/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/strategy.h"
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/tensor.h"

struct mr_replica {
    mr_strategy *s;
    size_t id;
    mr_device *device;
    mr_stream *compute;
    mr_event *done; /* recorded behind each step */
    mr_code rc;     /* of the last step */
    mr_status st;
};

struct mr_strategy {
    size_t n;
    mr_replica *replicas;
    mr_collective *collective;
    mr_step_fn fn; /* of the step under way; NULL: none */
    void *ctx;
};

/* Where the calling thread is. A step runs in a stream's thread, a user's thread may nest scopes.
 */
static _Thread_local mr_replica *here;
enum { MAX_NESTED = 32 };
static _Thread_local mr_strategy *scopes[MAX_NESTED];
static _Thread_local size_t n_scopes;

mr_replica *mr_replica_current(void)
{
    return here;
}

void mr_strategy_enter(mr_strategy *s)
{
    if (n_scopes < MAX_NESTED)
        scopes[n_scopes] = s;
    n_scopes++;
}

void mr_strategy_exit(mr_strategy *s)
{
    (void)s;
    if (n_scopes > 0)
        n_scopes--;
}

bool mr__in_cross_replica_context(void)
{
    return !here && n_scopes > 0;
}

static mr_code open_replica(mr_strategy *s, size_t i, const char *name, mr_status *st)
{
    mr_replica *r = &s->replicas[i];
    r->s = s;
    r->id = i;
    MR_TRY(mr_device_open(&r->device, name, st));
    MR_TRY(mr_stream_new(&r->compute, r->device, st));
    return mr_event_new(&r->done, r->device, st);
}

static mr_code open_all(mr_strategy *s, const mr_strategy_opts *o, mr_status *st)
{
    mr_device *devices[MR_MAX_REPLICAS];
    for (size_t i = 0; i < s->n; i++) {
        char name[32];
        snprintf(name, sizeof name, "cpu:%zu", i);
        MR_TRY(open_replica(s, i, o->devices ? o->devices[i] : name, st));
        devices[i] = s->replicas[i].device;
    }
    return mr_collective_local_new(&s->collective, devices, s->n, st);
}

mr_code mr_strategy_mirrored(mr_strategy **out, const mr_strategy_opts *opts, mr_status *st)
{
    mr_strategy_opts none = {0};
    const mr_strategy_opts *o = opts ? opts : &none;
    size_t n = o->num_replicas ? o->num_replicas : o->devices ? o->n_devices : 1;
    if (n < 1 || n > MR_MAX_REPLICAS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "between 1 and %d replicas, found %zu",
                       MR_MAX_REPLICAS, n);
    if (o->devices && o->n_devices != n)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%zu replicas need %zu devices, found %zu; leave one of the two out", n, n,
                       o->n_devices);
    mr_strategy *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a strategy");
    s->n = n;
    s->replicas = mr_calloc(n, sizeof *s->replicas);
    mr_code rc =
        s->replicas ? open_all(s, o, st) : mr_fail_memory(st, n * sizeof *s->replicas, "replicas");
    if (rc != MR_OK) {
        mr_strategy_free(s);
        return rc;
    }
    *out = s;
    return MR_OK;
}

void mr_strategy_free(mr_strategy *s)
{
    if (!s)
        return;
    mr_collective_free(s->collective);
    for (size_t i = 0; s->replicas && i < s->n; i++) {
        mr_replica *r = &s->replicas[i];
        mr_stream_free(r->compute);
        mr_event_free(r->done);
        mr_device_close(r->device);
    }
    mr_free(s->replicas);
    mr_free(s);
}

size_t mr_strategy_num_replicas_in_sync(const mr_strategy *s)
{
    return s->n;
}

mr_replica *mr_strategy_replica(mr_strategy *s, size_t i)
{
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

static void run_step(void *replica)
{
    mr_replica *r = replica;
    here = r;
    mr_status_init(&r->st);
    r->rc = r->s->fn(r, r->s->ctx, &r->st);
    if (r->rc != MR_OK)
        mr_collective_abort(r->s->collective); /* the others may be waiting for this one's sums */
    here = NULL;
}

mr_code mr_strategy_start(mr_strategy *s, mr_step_fn fn, void *ctx, mr_status *st)
{
    if (here)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "run was called inside a step; call it between steps");
    if (s->fn)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a step is under way; join it before starting the next");
    s->fn = fn;
    s->ctx = ctx;
    for (size_t i = 0; i < s->n; i++) {
        mr_stream_call(s->replicas[i].compute, run_step, &s->replicas[i]);
        mr_stream_record(s->replicas[i].compute, s->replicas[i].done);
    }
    return MR_OK;
}

mr_code mr_strategy_join(mr_strategy *s, mr_status *st)
{
    if (!s->fn)
        return mr_fail(st, MR_FAILED_PRECONDITION, "no step is under way");
    const mr_replica *bad = NULL;
    for (size_t i = 0; i < s->n; i++) {
        const mr_replica *r = &s->replicas[i];
        mr_event_synchronize(r->done);
        /* A replica that only heard of another's failure is not the cause. */
        if (r->rc != MR_OK && (!bad || (bad->rc == MR_ABORTED && r->rc != MR_ABORTED)))
            bad = r;
    }
    s->fn = NULL;
    if (!bad)
        return MR_OK;
    mr_collective_reset(s->collective);
    if (st)
        *st = bad->st;
    return bad->rc;
}

mr_code mr_strategy_run(mr_strategy *s, mr_step_fn fn, void *ctx, mr_status *st)
{
    MR_TRY(mr_strategy_start(s, fn, ctx, st));
    return mr_strategy_join(s, st);
}
