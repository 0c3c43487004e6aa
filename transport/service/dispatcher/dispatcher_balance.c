/* SPDX-License-Identifier: Apache-2.0 */
/* Moves streams from workers with much load to those with little. A move makes the lighter of two
 * workers at most as loaded as the other one is after it, so that no move is ever undone by the
 * next; and loads count a move from its beginning. */
#include "transport/service/dispatcher/dispatcher_state.h"

/* True if `from` still has at least the load of `to` after a stream has moved. */
static bool is_worth_it(const mr__d_worker *from, const mr__d_worker *to)
{
    uint64_t load = mr__d_load(from);
    return load && (load - 1) * to->weight >= (mr__d_load(to) + 1) * from->weight;
}

static bool can_move(const mr__d_stream *s, const mr__d_job *only, bool at_once)
{
    const mr__d_job *j = s->job;
    const mr__dispatcher *d = j->d;
    if ((only && j != only) || s->home || s->next_host || s->missed || s->end || !s->reader ||
        !s->reader->connection || !s->reader->let_in || j->rebuilding || mr__d_static(j) ||
        j->spec->mode == MR__WIRE__MODE__PARALLEL_EPOCHS)
        return false;
    bool is_slow = s->restore_ns > MR__SECOND && d->now - s->moved_at < MR__MOVE_S * MR__SECOND;
    return at_once || (!is_slow && d->now >= s->barred_until);
}

/* The stream of w that has stayed longest; NULL: none can move. */
static mr__d_stream *stream_to_move(const mr__d_worker *w, const mr__d_job *only, bool at_once)
{
    mr__d_stream *best = NULL;
    for (mr__d_stream *s = w->streams; s; s = s->next)
        if (can_move(s, only, at_once) && (!best || s->moved_at < best->moved_at))
            best = s;
    return best;
}

/* The worker with the most load from which a stream can move to `to`, and that stream; NULL: none.
 * Workers without one are marked as stuck. */
static mr__d_stream *next_move(mr__dispatcher *d, const mr__d_worker *to, const mr__d_job *only,
                               bool at_once)
{
    for (;;) {
        mr__d_worker *from = NULL;
        for (mr__d_worker *w = d->workers; w; w = w->next)
            if (!w->stuck && w != to && is_worth_it(w, to) &&
                (!from || mr__d_load(w) * from->weight > mr__d_load(from) * w->weight))
                from = w;
        mr__d_stream *s = from ? stream_to_move(from, only, at_once) : NULL;
        if (s || !from)
            return s;
        from->stuck = true;
    }
}

static void unstick(mr__dispatcher *d)
{
    for (mr__d_worker *w = d->workers; w; w = w->next)
        w->stuck = false;
}

size_t mr__d_balance(mr__dispatcher *d, const mr__d_job *only, bool at_once)
{
    size_t n = 0;
    mr__d_stream *s;
    unstick(d);
    while (d->n_heap && d->n_moves < MR__MOST_MOVES &&
           (s = next_move(d, d->heap[0], only, at_once))) {
        mr__d_move(d, s, d->heap[0]);
        n++;
    }
    return n;
}

void mr__d_tick_balance(mr__dispatcher *d, int64_t now)
{
    for (mr__d_stream *s = d->moves, *next; s; s = next) {
        next = s->move_next;
        if (now - s->move_since >= MR__MOVE_S * MR__SECOND || !mr__d_serves(s->next_host)) {
            s->barred_until = now + MR__MOVE_S * MR__SECOND;
            mr__d_cancel_move(s);
        }
    }
    if (d->opts.no_balance || now - d->balanced_at < MR__SECOND / 2)
        return;
    d->balanced_at = now;
    unstick(d);
    if (!d->n_heap || !next_move(d, d->heap[0], NULL, false))
        d->uneven_since = 0;
    else if (!d->uneven_since)
        d->uneven_since = now;
    else if (now - d->uneven_since >= MR__UNEVEN_S * MR__SECOND)
        mr__d_balance(d, NULL, false);
}
