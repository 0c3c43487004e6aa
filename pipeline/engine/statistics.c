/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/statistics.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/engine/op_buffering.h"
#include "pipeline/engine/run.h"
#include "pipeline/engine/trace.h"
#include "pipeline/engine/work_clock.h"
#include "pipeline/memory_bound.h"
#include "pipeline/system/system.h"
#include "pipeline/wait/wait.h"

/* Totals of the frames that ended within this thread's current one. */
static _Thread_local struct {
    int64_t worked, waited;
    const mr_iter *traced; /* the op of this thread's current frame, if a trace is kept; or NULL */
    const mr_iter *now;    /* whose frame it is; NULL: none */
} within;

double mr_iter_now(void)
{
    return (double)mr__clock_ns(CLOCK_MONOTONIC) * 1e-9;
}

void mr__stats_init(mr__stats *s, bool by_cpu)
{
    memset(s, 0, sizeof *s);
    s->by_cpu = by_cpu;
    pthread_mutex_init(&s->lock, NULL);
    s->start_seconds = mr_iter_now();
    s->start_ticks = mr__ticks();
}

static void trace_wait(int64_t began, int64_t ended)
{
    const mr_iter *it = within.traced;
    if (it && it->priv->counters)
        mr__trace_add(it->run->stats.trace, it->priv->counters, true, began, ended);
}

mr_code mr__stats_trace(mr__stats *s, size_t spans, mr_status *st)
{
    MR_TRY(mr__trace_new(spans, &s->trace, st));
    mr__waited_tell(trace_wait);
    return MR_OK;
}

static void free_counters(mr__op_counters *c)
{
    while (c) {
        mr__op_counters *next = c->next;
        for (size_t i = 0; i <= c->n_inputs; i++)
            free_counters(c->below[i]);
        mr_free(c->below);
        mr_free(c);
        c = next;
    }
}

void mr__stats_reset(mr__stats *s)
{
    free_counters(s->root);
    mr__trace_free(s->trace);
    pthread_mutex_destroy(&s->lock);
}

static mr__op_counters *new_counters(const mr__op_counters *above, const mr_iter *it, size_t place)
{
    enum { MOST_PATH = 1000 }; /* a longer path is truncated at its front */
    char between[32] = "";
    if (place == MR__STATS_INNER)
        strcpy(between, "/(f)/");
    else if (above && above->n_inputs > 1)
        snprintf(between, sizeof between, "[%zu]/", place);
    else if (above)
        strcpy(between, "/");
    const char *path = above ? above->path : "";
    if (strlen(path) > MOST_PATH)
        path += strlen(path) - MOST_PATH;
    size_t size = strlen(path) + strlen(between) + strlen(it->op->name) + 1;
    mr__op_counters *c = mr_calloc(1, sizeof *c + size);
    if (!c)
        return NULL;
    c->below = mr_calloc(it->n_inputs + 1, sizeof(mr__op_counters *));
    if (!c->below) {
        mr_free(c);
        return NULL;
    }
    c->op = it->op;
    c->n_inputs = it->n_inputs;
    snprintf(c->path, size, "%s%s%s", path, between, it->op->name);
    return c;
}

mr__op_counters *mr__stats_of(mr__stats *s, bool has_parent, mr__op_counters *above,
                              const mr_iter *it, size_t place, bool *owns)
{
    *owns = false;
    if (has_parent && !above)
        return NULL;
    pthread_mutex_lock(&s->lock);
    mr__op_counters **at =
        above ? &above->below[place == MR__STATS_INNER ? 0 : place + 1] : &s->root;
    while (*at && ((*at)->op != it->op || (*at)->n_inputs != it->n_inputs))
        at = &(*at)->next;
    if (!*at)
        *at = new_counters(above, it, place);
    mr__op_counters *found = *at;
    /* Acquire: the totals that the last owner wrote. */
    *owns = found && !atomic_exchange_explicit(&found->owned, true, memory_order_acquire);
    pthread_mutex_unlock(&s->lock);
    return found;
}

void mr__stats_disown(mr__op_counters *c)
{
    atomic_store_explicit(&c->owned, false, memory_order_release);
}

static double seconds_per_tick(const mr__stats *s)
{
    int64_t ticks = mr__ticks() - s->start_ticks;
    return ticks > 0 ? (mr_iter_now() - s->start_seconds) / (double)ticks : 0;
}

int64_t mr__stats_to_ticks(const mr__stats *s, double seconds)
{
    double per = seconds_per_tick(s);
    return per > 0 ? (int64_t)(seconds / per) : 0;
}

/* Relaxed: counters, each correct by itself. */
static int64_t value_of(const atomic_int_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

#define TOTAL(c, total) (value_of(&(c)->own.total) + value_of(&(c)->shared.total))

/* Depth first, so that an op is followed by those below it. */
static size_t read_counters(const mr__op_counters *c, double per, mr_op_stats *out, size_t capacity,
                            size_t n)
{
    for (; c; c = c->next) {
        int64_t busy = TOTAL(c, busy_ticks);
        if (n < capacity)
            out[n] = (mr_op_stats){
                .op = c->op->name,
                .path = c->path,
                .elements = TOTAL(c, elements),
                .bytes = TOTAL(c, bytes),
                /* Below 0: what its neighbours lost in a tenth of a millisecond was taken from
                 * it. */
                .busy_seconds = busy > 0 ? (double)busy * per : 0,
                .wait_seconds = (double)TOTAL(c, wait_ticks) * per,
                .blocks = TOTAL(c, blocks),
                .queued_elements = TOTAL(c, queued_elements),
                .queued_blocks = TOTAL(c, queued_blocks),
                .queued_bytes = TOTAL(c, queued_bytes),
                .room_elements = value_of(&c->room_elements),
                .room_blocks = value_of(&c->room_blocks),
                .dropped = TOTAL(c, dropped),
            };
        n++;
        for (size_t i = 0; i <= c->n_inputs; i++)
            n = read_counters(c->below[i], per, out, capacity, n);
    }
    return n;
}

size_t mr__stats_read(mr__stats *s, mr_op_stats *out, size_t capacity)
{
    pthread_mutex_lock(&s->lock);
    size_t n = read_counters(s->root, seconds_per_tick(s), out, capacity, 0);
    pthread_mutex_unlock(&s->lock);
    return n;
}

static size_t read_tuning(const mr__op_counters *c, mr_op_tuning *out, size_t capacity, size_t n)
{
    for (; c; c = c->next) {
        const char *parameter = atomic_load_explicit(&c->parameter, memory_order_acquire);
        /* Relaxed: figures, each correct by itself. */
        if (parameter && n < capacity)
            out[n] = (mr_op_tuning){
                .op = c->op->name,
                .path = c->path,
                .parameter = parameter,
                .chosen = atomic_load_explicit(&c->chosen, memory_order_relaxed),
                .service_seconds =
                    1e-9 * (double)atomic_load_explicit(&c->service_ns, memory_order_relaxed),
                .interval_seconds =
                    1e-9 * (double)atomic_load_explicit(&c->interval_ns, memory_order_relaxed),
            };
        n += parameter != NULL;
        for (size_t i = 0; i <= c->n_inputs; i++)
            n = read_tuning(c->below[i], out, capacity, n);
    }
    return n;
}

size_t mr__stats_read_tuning(mr__stats *s, mr_op_tuning *out, size_t capacity)
{
    pthread_mutex_lock(&s->lock);
    size_t n = read_tuning(s->root, out, capacity, 0);
    pthread_mutex_unlock(&s->lock);
    return n;
}

void mr__stats_tuned(const mr_iter *it, const char *parameter, size_t chosen, double service,
                     double interval)
{
    mr__op_counters *c = it->priv->counters;
    if (!c)
        return;
    /* Relaxed: figures. Release: the name publishes the first of them. */
    atomic_store_explicit(&c->chosen, (int64_t)chosen, memory_order_relaxed);
    atomic_store_explicit(&c->service_ns, (int64_t)(service * 1e9), memory_order_relaxed);
    atomic_store_explicit(&c->interval_ns, (int64_t)(interval * 1e9), memory_order_relaxed);
    atomic_store_explicit(&c->parameter, parameter, memory_order_release);
}

void mr__stats_queued(const mr_iter *it, bool alone, int64_t blocks, int64_t elements,
                      int64_t bytes)
{
    mr__op_counters *c = it->priv->counters;
    if (!c)
        return;
    alone = alone && it->priv->owns_counters;
    MR__COUNT(c, queued_blocks, alone, blocks);
    MR__COUNT(c, queued_elements, alone, elements);
    if (bytes)
        MR__COUNT(c, queued_bytes, alone, bytes);
}

void mr__stats_room(const mr_iter *it, int64_t blocks, int64_t elements)
{
    mr__op_counters *c = it->priv->counters;
    if (!c)
        return;
    mr__count(&c->room_blocks, false, blocks);
    mr__count(&c->room_elements, false, elements);
}

size_t mr__stats_read_trace(mr__stats *s, mr_op_span *out, size_t capacity, double *left_out)
{
    *left_out = 0;
    return s->trace ? mr__trace_read(s->trace, s->start_ticks, seconds_per_tick(s), out, capacity,
                                     left_out)
                    : 0;
}

const mr_iter *mr__iter_working(void)
{
    return within.now;
}

void mr_iter_work_begin(const mr_iter *it, mr_iter_work *w)
{
    int64_t entered, waited;
    int64_t began = mr__work_clock_enter(it->run->stats.by_cpu, &entered, &waited);
    *w = (mr_iter_work){.inner = within.worked,
                        .inner_waited = within.waited,
                        .waited = waited,
                        .began = began,
                        .entered = entered,
                        .above = within.traced,
                        .outer = within.now};
    within.now = it;
    within.worked = within.waited = 0;
    within.traced = it->run->stats.trace ? it : NULL;
    if (it->run->memory.limit)
        w->bound = mr__memory_bound_set(mr__memory_most_of_one(&it->run->memory));
}

static void work_end(mr_iter *it, bool alone, mr_iter_work *w)
{
    int64_t now, waited_until;
    if (w->bound)
        mr__memory_bound_set(w->bound);
    int64_t worked = mr__work_clock_leave(it->run->stats.by_cpu, &now, &waited_until) - w->began;
    int64_t waited = waited_until - w->waited, own_wait = waited - within.waited;
    mr__op_counters *c = it->priv->counters;
    if (c) {
        MR__COUNT(c, busy_ticks, alone, worked - within.worked);
        if (own_wait)
            MR__COUNT(c, wait_ticks, alone, own_wait);
    }
    if (c && it->run->stats.trace)
        mr__trace_add(it->run->stats.trace, c, false, w->entered, now);
    within.now = w->outer;
    within.traced = w->above;
    within.worked = w->inner + worked;
    within.waited = w->inner_waited + waited;
}

void mr_iter_work_end(mr_iter *it, mr_iter_work *w)
{
    work_end(it, false, w);
}

void mr__iter_work_end(mr_iter *it, mr_iter_work *w)
{
    work_end(it, it->priv->owns_counters, w);
}
