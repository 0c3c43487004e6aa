/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/statistics.h"

#include <string.h>
#include <time.h>

#include "pipeline/engine/iter.h"

/* Ticks spent in callees of the timed call that this thread is in. */
static _Thread_local int64_t inner_ticks;

double mr_iter_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int64_t mr__ticks(void)
{
#if defined(__x86_64__)
    return (int64_t)__builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    int64_t v;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
    return v;
#else
    return (int64_t)(mr_iter_now() * 1e9);
#endif
}

void mr__stats_init(mr_stats *s)
{
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->start_seconds = mr_iter_now();
    s->start_ticks = mr__ticks();
}

void mr__stats_reset(mr_stats *s)
{
    for (mr_op_counters *c = s->first; c;) {
        mr_op_counters *next = c->next;
        mr_free(c);
        c = next;
    }
    pthread_mutex_destroy(&s->lock);
}

mr_op_counters *mr__stats_of(mr_stats *s, const char *op, const char *path)
{
    pthread_mutex_lock(&s->lock);
    mr_op_counters *c = s->first;
    while (c && strcmp(c->path, path) != 0)
        c = c->next;
    if (!c && (c = mr_calloc(1, sizeof *c + strlen(path) + 1))) {
        c->op = op;
        memcpy(c->path, path, strlen(path) + 1);
        if (s->last)
            s->last->next = c;
        else
            s->first = c;
        s->last = c;
    }
    pthread_mutex_unlock(&s->lock);
    return c;
}

static double seconds_per_tick(const mr_stats *s)
{
    int64_t ticks = mr__ticks() - s->start_ticks;
    return ticks > 0 ? (mr_iter_now() - s->start_seconds) / (double)ticks : 0;
}

int64_t mr__stats_to_ticks(const mr_stats *s, double seconds)
{
    double per = seconds_per_tick(s);
    return per > 0 ? (int64_t)(seconds / per) : 0;
}

size_t mr__stats_read(mr_stats *s, mr_op_stats *out, size_t capacity)
{
    double per = seconds_per_tick(s);
    size_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (mr_op_counters *c = s->first; c; c = c->next, n++) {
        if (n >= capacity)
            continue;
        /* Relaxed: counters, each right by itself. */
        out[n] = (mr_op_stats){
            .op = c->op,
            .path = c->path,
            .elements = atomic_load_explicit(&c->elements, memory_order_relaxed),
            .bytes = atomic_load_explicit(&c->bytes, memory_order_relaxed),
            .busy_seconds =
                (double)atomic_load_explicit(&c->busy_ticks, memory_order_relaxed) * per,
            .wait_seconds =
                (double)atomic_load_explicit(&c->wait_ticks, memory_order_relaxed) * per,
        };
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

int64_t mr__stats_enter(int64_t *outer)
{
    *outer = inner_ticks;
    inner_ticks = 0;
    return mr__ticks();
}

int64_t mr__stats_leave(int64_t began, int64_t outer)
{
    int64_t all = mr__ticks() - began;
    int64_t own = all - inner_ticks;
    inner_ticks = outer + all;
    return own;
}

void mr__stats_exclude(int64_t ticks)
{
    inner_ticks += ticks;
}
