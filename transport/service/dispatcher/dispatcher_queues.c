/* SPDX-License-Identifier: Apache-2.0 */
/* The worker that takes the next stream (a heap by load), and the streams that need a worker (two
 * queues). Every change of a worker or a stream is entered at once, so that both are valid in the
 * middle of a message; dispatcher_streams.c assigns the streams. */
#include "transport/service/dispatcher/dispatcher_state.h"

/* ---- workers by load: a heap, the lightest first ---- */

/* By their loads with one more stream, divided by their weights. Equal loads: the worker whose last
 * assignment is the oldest. */
static bool is_lighter(const mr__d_worker *a, const mr__d_worker *b)
{
    uint64_t of_a = (mr__d_load(a) + 1) * b->weight, of_b = (mr__d_load(b) + 1) * a->weight;
    return of_a != of_b ? of_a < of_b : a->given < b->given;
}

static void set_place(mr__dispatcher *d, size_t i, mr__d_worker *w)
{
    d->heap[i] = w;
    w->place = i + 1;
}

static void sift_up(mr__dispatcher *d, size_t i)
{
    mr__d_worker *w = d->heap[i];
    for (; i && is_lighter(w, d->heap[(i - 1) / 2]); i = (i - 1) / 2)
        set_place(d, i, d->heap[(i - 1) / 2]);
    set_place(d, i, w);
}

static void sift_down(mr__dispatcher *d, size_t i)
{
    mr__d_worker *w = d->heap[i];
    for (size_t k; (k = 2 * i + 1) < d->n_heap; i = k) {
        if (k + 1 < d->n_heap && is_lighter(d->heap[k + 1], d->heap[k]))
            k++;
        if (!is_lighter(d->heap[k], w))
            break;
        set_place(d, i, d->heap[k]);
    }
    set_place(d, i, w);
}

void mr__d_rank(mr__dispatcher *d, mr__d_worker *w)
{
    size_t i = w->place;
    if (mr__d_serves(w)) {
        if (!i) {
            d->heap[d->n_heap] = w;
            i = ++d->n_heap;
        }
        sift_up(d, i - 1);
        sift_down(d, w->place - 1);
    } else if (i) {
        w->place = 0;
        mr__d_worker *last = d->heap[--d->n_heap];
        if (last == w)
            return;
        set_place(d, i - 1, last);
        sift_up(d, i - 1);
        sift_down(d, last->place - 1);
    }
}

mr__d_worker *mr__d_least_loaded(const mr__dispatcher *d, const mr__d_worker *not_to)
{
    if (!d->n_heap)
        return NULL;
    if (d->heap[0] != not_to)
        return d->heap[0];
    if (d->n_heap < 3)
        return d->n_heap == 2 ? d->heap[1] : NULL;
    return is_lighter(d->heap[2], d->heap[1]) ? d->heap[2] : d->heap[1];
}

mr__d_worker *mr__d_next_serving(mr__dispatcher *d, mr__d_worker *w)
{
    mr__d_worker *from = w ? w : d->workers;
    for (mr__d_worker *x = from; x;) {
        x = x->next ? x->next : d->workers;
        if (mr__d_serves(x))
            return x;
        if (x == from)
            break;
    }
    return NULL;
}

/* ---- streams that need a worker ---- */

static void unlink_from(mr__d_queue *q, mr__d_stream *s)
{
    if (s->q_prev)
        s->q_prev->q_next = s->q_next;
    else
        q->first = s->q_next;
    if (s->q_next)
        s->q_next->q_prev = s->q_prev;
    else
        q->last = s->q_prev;
    s->queue = NULL;
}

static void link_to(mr__d_queue *q, mr__d_stream *s)
{
    s->q_next = NULL;
    s->q_prev = q->last;
    if (q->last)
        q->last->q_next = s;
    else
        q->first = s;
    q->last = s;
    s->queue = q;
}

void mr__d_review(mr__d_stream *s)
{
    mr__dispatcher *d = s->job->d;
    mr__d_queue *to = NULL;
    if (!s->worker && !s->end && s->reader) {
        if (s->home)
            to = mr__d_serves(s->home) ? &d->to_assign : NULL;
        else
            to = s->awaited ? &d->awaiting : &d->to_assign;
    }
    if (s->queue == to)
        return;
    if (s->queue)
        unlink_from(s->queue, s);
    if (to)
        link_to(to, s);
}
