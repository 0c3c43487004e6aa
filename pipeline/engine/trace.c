/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/trace.h"

#include <pthread.h>
#include <unistd.h>

typedef struct span {
    const mr__op_counters *of;
    int64_t began, ticks;
    int thread;
    bool waiting;
} span;

struct mr__trace {
    pthread_mutex_t lock; /* guards the rest */
    size_t n, capacity;
    int64_t least; /* shorter spans are dropped */
    span spans[];
};

mr_code mr__trace_new(size_t capacity, mr__trace **out, mr_status *st)
{
    mr__trace *t = capacity <= (SIZE_MAX - sizeof *t) / sizeof(span)
                       ? mr_malloc(sizeof *t + capacity * sizeof(span))
                       : NULL;
    if (!t)
        return mr_fail_memory(st, capacity, "the spans of a trace");
    t->n = 0;
    t->capacity = capacity;
    t->least = 0;
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    return MR_OK;
}

void mr__trace_free(mr__trace *t)
{
    if (t)
        pthread_mutex_destroy(&t->lock);
    mr_free(t);
}

/* At least a quarter of the buffer is free afterwards, so each span is moved only a few times. */
static void leave_out_shortest(mr__trace *t)
{
    while (t->n > t->capacity - t->capacity / 4 - 1) {
        size_t kept = 0;
        t->least = t->least ? 2 * t->least : 64;
        for (size_t i = 0; i < t->n; i++)
            if (t->spans[i].ticks >= t->least)
                t->spans[kept++] = t->spans[i];
        t->n = kept;
    }
}

void mr__trace_add(mr__trace *t, const mr__op_counters *c, bool waiting, int64_t began,
                   int64_t ended)
{
    static _Thread_local int thread;
    if (!thread)
        thread = gettid();
    pthread_mutex_lock(&t->lock);
    if (ended - began >= t->least) {
        t->spans[t->n++] = (span){c, began, ended - began, thread, waiting};
        if (t->n == t->capacity)
            leave_out_shortest(t);
    }
    pthread_mutex_unlock(&t->lock);
}

size_t mr__trace_read(mr__trace *t, int64_t start_ticks, double per, mr_op_span *out,
                      size_t capacity, double *left_out)
{
    pthread_mutex_lock(&t->lock);
    size_t n = t->n;
    for (size_t i = 0; i < n && i < capacity; i++) {
        const span *s = &t->spans[i];
        out[i] = (mr_op_span){.op = s->of->op->name,
                              .path = s->of->path,
                              .thread = s->thread,
                              .waiting = s->waiting,
                              .begin_seconds = (double)(s->began - start_ticks) * per,
                              .seconds = (double)s->ticks * per};
    }
    *left_out = (double)t->least * per;
    pthread_mutex_unlock(&t->lock);
    return n;
}
