/* SPDX-License-Identifier: Apache-2.0 */
/* A thread runs an event loop with a socket for each peer. All state of peers is its own; what
 * other threads touch is under the lock. */
#include "trainer/collective/processes/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "pipeline/system/timed_wait.h"
#include "trainer/collective/processes/world_state.h"

enum { BEATS = 8 /* signs of life in the time that a peer may be silent */ };
#define LOST_NS                                                                                    \
    ((int64_t)2000000000) /* for what the other peers say of one whose connection broke */

typedef mr__peer peer;
typedef mr__round round;
typedef mr__values values;

/* ---- what anybody may ask ---- */

uint32_t mr__world_rank(const mr__world *w)
{
    return w->met.rank;
}

uint32_t mr__world_size(const mr__world *w)
{
    return w->met.world;
}

const char *mr__world_address(const mr__world *w, uint32_t rank)
{
    return w->met.members[rank].address;
}

void mr__world_set_step(mr__world *w, int64_t step)
{
    atomic_store_explicit(&w->step, step, memory_order_relaxed);
}

int64_t mr__world_step(const mr__world *w)
{
    return atomic_load_explicit(&w->step, memory_order_relaxed);
}

mr_code mr__world_status(mr__world *w, mr_status *st)
{
    if (!atomic_load_explicit(&w->failed, memory_order_acquire))
        return MR_OK;
    pthread_mutex_lock(&w->lock);
    mr_code rc = w->failure.code;
    if (st)
        *st = w->failure;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void mr__world_name(const mr__world *w, uint32_t rank, char *out, size_t size)
{
    snprintf(out, size, "rank %u (%s)", rank, w->met.members[rank].address);
}

/* Under the lock. */
static void wake_loop(mr__world *w)
{
    if (w->has_thread && !w->posted) {
        w->posted = true;
        mr__loop_post(w->loop, &w->wake);
    }
}

void mr__world_fail(mr__world *w, const mr_status *mine, const mr_status *theirs)
{
    if (w->failure.code != MR_OK)
        return;
    w->failure = *mine;
    w->for_the_rest = *theirs;
    atomic_store_explicit(&w->failed, true, memory_order_release);
    for (size_t i = 0; i < MR__PARTS; i++)
        if (w->on_end[i].fn)
            w->on_end[i].fn(w->on_end[i].ctx);
    pthread_cond_broadcast(&w->moved);
    wake_loop(w);
}

static void fail_both(mr__world *w, const mr_status *why)
{
    pthread_mutex_lock(&w->lock);
    mr__world_fail(w, why, why);
    pthread_mutex_unlock(&w->lock);
}

void mr__world_abort(mr__world *w, const mr_status *why, bool names_all)
{
    mr_status theirs = *why;
    char us[256];
    mr__world_name(w, w->met.rank, us, sizeof us);
    if (!names_all)
        mr_fail(&theirs, why->code, "%s failed at step %" PRId64 ": %.400s", us, mr__world_step(w),
                why->message);
    pthread_mutex_lock(&w->lock);
    mr__world_fail(w, why, &theirs);
    pthread_mutex_unlock(&w->lock);
}

void mr__world_ended(mr__world *w, uint32_t rank)
{
    char who[256], us[256];
    mr_status why;
    mr__world_name(w, rank, who, sizeof who);
    mr__world_name(w, w->met.rank, us, sizeof us);
    mr_fail(&why, MR_UNAVAILABLE, "%s has ended, while %s goes on at step %" PRId64, who, us,
            mr__world_step(w));
    mr__world_fail(w, &why, &why);
}

/* Under the lock: the first rank that said good-bye; how many there are: none did. */
static uint32_t first_gone(const mr__world *w)
{
    uint32_t i = 0;
    while (i < w->met.world && !w->peers[i].gone)
        i++;
    return i;
}

bool mr__world_is_short(const mr__world *w)
{
    return atomic_load_explicit(&w->is_short, memory_order_relaxed);
}

mr_code mr__world_wait_short(mr__world *w, double seconds, mr_status *st)
{
    if (seconds > w->timeout_s) {
        pthread_mutex_lock(&w->lock);
        mr__world_ended(w, first_gone(w));
        pthread_mutex_unlock(&w->lock);
    }
    return mr__world_status(w, st);
}

mr_code mr__world_lost(mr__world *w, uint32_t rank, const char *what, mr_status *st)
{
    int64_t until = mr__clock_ns(CLOCK_MONOTONIC) + LOST_NS;
    char who[256];
    mr_status why;
    pthread_mutex_lock(&w->lock);
    while (w->failure.code == MR_OK && !w->peers[rank].gone &&
           mr__cond_wait_until(&w->moved, &w->lock, until))
        ;
    uint32_t gone = w->peers[rank].gone ? rank : first_gone(w);
    if (gone < w->met.world) /* whatever broke follows from that */
        mr__world_ended(w, gone);
    mr__world_name(w, rank, who, sizeof who);
    mr_fail(&why, MR_UNAVAILABLE, "the connection for values with %s broke at step %" PRId64 ": %s",
            who, mr__world_step(w), what);
    mr__world_fail(w, &why, &why); /* where nobody knew better */
    if (st)
        *st = w->failure;
    mr_code rc = w->failure.code;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void mr__world_take_ways(mr__world *w, mr__way *next, mr__way *prev)
{
    *next = w->met.next;
    *prev = w->met.prev;
    w->met.next = w->met.prev = (mr__way){.fd = -1};
}

void mr__world_on_end(mr__world *w, mr__world_part part, void (*fn)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&w->lock);
    w->on_end[part].fn = fn;
    w->on_end[part].ctx = ctx;
    if (fn && w->failure.code != MR_OK)
        fn(ctx);
    pthread_mutex_unlock(&w->lock);
}

/* ---- a few numbers ---- */

static void values_sent(mr__send *s, bool sent)
{
    /* What is sent is the round's own vector. */
    round *r = (round *)((char *)(uintptr_t)s->v - offsetof(round, v));
    (void)sent;
    pthread_mutex_lock(&r->w->lock);
    if (--r->unsent == 0)
        pthread_cond_broadcast(&r->w->moved);
    pthread_mutex_unlock(&r->w->lock);
}

static void send_round(mr__posted *p)
{
    round *r = (round *)((char *)p - offsetof(round, post));
    mr__world *w = r->w;
    pthread_mutex_lock(&w->lock);
    r->posted = false;
    for (uint32_t i = 0; i < w->met.world; i++)
        r->unsent += w->peers[i].open && !w->ending;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < w->met.world && !w->ending; i++) {
        if (!w->peers[i].open)
            continue;
        r->sends[i] = (mr__send){.v = &r->v, .n = 1, .done = values_sent};
        mr__socket_send(&w->peers[i].socket, &r->sends[i]);
    }
}

mr_code mr__round_init(mr__world *w, round *r, mr_status *st)
{
    r->w = w;
    r->post.run = send_round;
    r->sends = mr_calloc(w->met.world, sizeof *r->sends);
    return r->sends ? MR_OK
                    : mr_fail_memory(st, w->met.world * sizeof *r->sends, "the peers of a job");
}

void mr__round_reset(round *r)
{
    mr__saying_reset(&r->out);
    mr_free(r->sends);
}

/* Under the lock: waits until all have given theirs. */
static mr_code wait_for_all(mr__world *w, uint32_t channel, uint64_t number)
{
    for (uint32_t i = 0; i < w->met.world; i++) {
        const peer *p = &w->peers[i];
        while (i != w->met.rank && !p->came[channel][number % MR__ROUNDS].there) {
            if (w->failure.code != MR_OK)
                return w->failure.code;
            if (p->gone)
                mr__world_ended(w, i);
            else
                pthread_cond_wait(&w->moved, &w->lock);
        }
    }
    return MR_OK;
}

/* Under the lock. */
static mr_code collect(mr__world *w, uint32_t channel, uint64_t number, const double *mine,
                       uint32_t n, double *all, mr_status *st)
{
    for (uint32_t i = 0; i < w->met.world; i++) {
        values *v = &w->peers[i].came[channel][number % MR__ROUNDS];
        if (i != w->met.rank && v->n != n)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "rank %u (%s) gives %u numbers where rank %u gives %u, at step %" PRId64,
                           i, w->met.members[i].address, v->n, w->met.rank, n, mr__world_step(w));
        for (uint32_t k = 0; k < n; k++)
            all[(size_t)i * n + k] = i == w->met.rank ? mine[k] : v->v[k];
        v->there = false;
    }
    return MR_OK;
}

mr_code mr__world_exchange(mr__world *w, uint32_t channel, const double *mine, uint32_t n,
                           double *all, mr_status *st)
{
    uint64_t number = w->numbers[channel]++;
    round *r = &w->rounds[channel][number % MR__ROUNDS];
    mr_status why;
    pthread_mutex_lock(&w->lock);
    while ((r->unsent || r->posted) && w->failure.code == MR_OK)
        pthread_cond_wait(&w->moved, &w->lock);
    mr_code rc = w->failure.code;
    if (rc == MR_OK) {
        r->out.size = 0;
        rc = mr__say_values(&r->out, channel, number, mine, n, &why);
        r->v = (struct iovec){r->out.data, r->out.size};
        r->posted = rc == MR_OK;
        if (rc == MR_OK)
            mr__loop_post(w->loop, &r->post);
        if (rc == MR_OK)
            rc = wait_for_all(w, channel, number);
        if (rc == MR_OK)
            rc = collect(w, channel, number, mine, n, all, &why);
    }
    if (w->failure.code != MR_OK)
        why = w->failure;
    pthread_mutex_unlock(&w->lock);
    if (rc != MR_OK && st)
        *st = why;
    return rc;
}

/* ---- the thread: what peers say ---- */

static void peer_failed(peer *p, mr_code code, const char *what)
{
    char who[256];
    mr_status why;
    mr__world_name(p->w, p->rank, who, sizeof who);
    mr_fail(&why, code, "%s %.300s", who, what);
    fail_both(p->w, &why);
}

/* Whoever waits for its numbers looks again. */
static void leave(peer *p)
{
    pthread_mutex_lock(&p->w->lock);
    p->gone = true;
    atomic_store_explicit(&p->w->is_short, true, memory_order_relaxed);
    pthread_cond_broadcast(&p->w->moved);
    pthread_mutex_unlock(&p->w->lock);
}

static void take_values(peer *p)
{
    uint32_t channel = 0, n = 0;
    uint64_t number = 0;
    double v[MR__MAX_VALUES];
    mr_status bad;
    values *to = NULL;
    if (mr__read_values(p->payload, p->bytes, &channel, &number, v, &n, &bad) == MR_OK &&
        channel < MR__CHANNELS && number == p->numbers[channel])
        to = &p->came[channel][number % MR__ROUNDS];
    pthread_mutex_lock(&p->w->lock);
    bool good = to && !to->there;
    if (good) {
        to->n = n;
        memcpy(to->v, v, n * sizeof *v);
        to->there = true;
        p->numbers[channel]++;
        pthread_cond_broadcast(&p->w->moved);
    }
    pthread_mutex_unlock(&p->w->lock);
    if (!good)
        peer_failed(p, MR_DATA_LOSS, "sent numbers that nobody asked for");
}

static void take(peer *p)
{
    mr_status why, bad;
    switch (p->word) {
    case MR__SAY_ALIVE:
        return;
    case MR__SAY_VALUES:
        take_values(p);
        return;
    case MR__SAY_CLAIM:
        if (!mr__claim_take(p))
            peer_failed(p, MR_DATA_LOSS, "sums what is far from what is summed here");
        return;
    case MR__SAY_BYE:
        p->left = true;
        leave(p);
        return;
    case MR__SAY_ABORT:
        mr_status_init(&why);
        if (mr__read_abort(p->payload, p->bytes, &why, &bad) != MR_OK)
            why = bad;
        fail_both(p->w, &why);
        p->left = true;
        return;
    default:
        peer_failed(p, MR_DATA_LOSS, "sent a message that has no place in training");
    }
}

static void opened(mr__socket *s)
{
    (void)s;
}

static peer *peer_of(mr__socket *s)
{
    return (peer *)((char *)s - offsetof(peer, socket));
}

static void *room(mr__socket *s, size_t *n)
{
    peer *p = peer_of(s);
    *n = (p->has_head ? p->bytes : MR__HEAD_BYTES) - p->got;
    return (p->has_head ? p->payload : p->head) + p->got;
}

static void received(mr__socket *s, size_t n)
{
    peer *p = peer_of(s);
    uint32_t version;
    mr_status why;
    p->heard_ns = mr__loop_now(p->w->loop);
    p->got += n;
    if (!p->has_head && p->got == MR__HEAD_BYTES) {
        if (mr__read_head(p->head, &version, &p->word, &p->bytes, &why) != MR_OK ||
            p->bytes > MR__MAX_WORDS) {
            peer_failed(p, MR_DATA_LOSS, "sent what is no message");
            mr__socket_close(s);
            return;
        }
        p->has_head = true;
        p->got = 0;
    }
    if (p->has_head && p->got == p->bytes) {
        p->has_head = false;
        p->got = 0;
        take(p);
    }
}

static void closed(mr__socket *s, const mr_status *why)
{
    peer *p = peer_of(s);
    mr__world *w = p->w;
    char text[300];
    p->open = false;
    w->n_open--;
    if (p->left || why->code == MR_OK)
        return;
    if (why->code == MR_END)
        snprintf(text, sizeof text,
                 "closed its connection at step %" PRId64
                 " without a word; it was killed or crashed",
                 mr__world_step(w));
    else
        snprintf(text, sizeof text,
                 "is lost at step %" PRId64 ": %.150s; it was killed or crashed, or the network "
                 "failed",
                 mr__world_step(w), why->message);
    peer_failed(p, MR_UNAVAILABLE, text);
}

static const mr__socket_class class_ = {opened, room, received, closed};

/* ---- the thread: what this process says ---- */

static void alive_sent(mr__send *s, bool sent)
{
    peer *p = (peer *)((char *)s - offsetof(peer, alive));
    (void)sent;
    p->alive_queued = false;
}

static void last_sent(mr__send *s, bool sent)
{
    (void)s;
    (void)sent;
}

static void give_sign(peer *p)
{
    if (!p->open || p->alive_queued)
        return;
    p->alive_queued = true;
    p->alive_v = (struct iovec){p->w->alive.data, p->w->alive.size};
    p->alive = (mr__send){.v = &p->alive_v, .n = 1, .done = alive_sent};
    mr__socket_send(&p->socket, &p->alive);
}

static void say_last(mr__world *w)
{
    if (w->ending)
        return;
    w->ending = true;
    pthread_mutex_lock(&w->lock);
    mr_status why = w->for_the_rest;
    pthread_mutex_unlock(&w->lock);
    mr_code rc = why.code == MR_OK ? mr__say(&w->last, MR__SAY_BYE, NULL)
                                   : mr__say_abort(&w->last, &why, NULL);
    for (uint32_t i = 0; i < w->met.world; i++) {
        peer *p = &w->peers[i];
        if (!p->open)
            continue;
        if (rc == MR_OK) {
            p->last_v = (struct iovec){w->last.data, w->last.size};
            p->last = (mr__send){.v = &p->last_v, .n = 1, .done = last_sent};
            mr__socket_send(&p->socket, &p->last);
        }
        mr__socket_finish(&p->socket);
    }
}

static void woken(mr__posted *posted)
{
    mr__world *w = (mr__world *)((char *)posted - offsetof(mr__world, wake));
    pthread_mutex_lock(&w->lock);
    w->posted = false;
    bool over = w->closing || w->failure.code != MR_OK;
    pthread_mutex_unlock(&w->lock);
    if (over)
        say_last(w);
}

/* A sign of life to each, and a look at who gave none. Where this process itself was stopped, the
 * others' signs wait in the sockets: they get time to be read. */
static void beat(mr__timer *t)
{
    mr__world *w = (mr__world *)((char *)t - offsetof(mr__world, timer));
    int64_t now = mr__loop_now(w->loop), limit = w->beat_ns * (BEATS - 1);
    bool was_stopped = now - w->last_beat_ns > 2 * w->beat_ns;
    char text[200];
    for (uint32_t i = 0; i < w->met.world; i++) {
        peer *p = &w->peers[i];
        if (!p->open || p->left)
            continue;
        give_sign(p);
        if (was_stopped && now - p->heard_ns > w->beat_ns)
            p->heard_ns = now - w->beat_ns;
        if (now - p->heard_ns <= limit)
            continue;
        snprintf(text, sizeof text,
                 "gave no sign of life for %g s, at step %" PRId64
                 "; it hangs, or the network between us failed",
                 w->timeout_s, mr__world_step(w));
        peer_failed(p, MR_UNAVAILABLE, text);
        mr__socket_close(&p->socket); /* no use waiting for it to take our last words */
    }
    w->last_beat_ns = now;
    if (mr_cancel_is_cancelled(w->cancel)) {
        mr_status why;
        mr_fail(&why, MR_CANCELLED, "interrupted");
        mr__world_abort(w, &why, false);
    }
    if (!w->ending)
        (void)!mr__timer_set(w->loop, t, now + w->beat_ns, NULL);
}

static void *watch(void *world)
{
    mr__world *w = world;
    mr_status why;
    int64_t until = INT64_MAX;
    while (w->n_open || !w->ending) {
        if (w->ending && until == INT64_MAX) /* one that takes nothing shall not keep us */
            until = mr__loop_now(w->loop) + 1000000000;
        if (w->ending && mr__loop_now(w->loop) >= until)
            break;
        if (mr__loop_turn(w->loop, until, &why) != MR_OK) {
            fail_both(w, &why);
            w->loop_failed = true;
            break;
        }
    }
    return NULL;
}

/* ---- opening and closing ---- */

static mr_code make_rounds(mr__world *w, mr_status *st)
{
    for (size_t c = 0; c < MR__CHANNELS; c++)
        for (size_t i = 0; i < MR__ROUNDS; i++) {
            round *r = &w->rounds[c][i];
            MR_TRY(mr__round_init(w, r, st));
        }
    return MR_OK;
}

static mr_code start(mr__world *w, mr_status *st)
{
    MR_TRY(mr__say(&w->alive, MR__SAY_ALIVE, st));
    MR_TRY(make_rounds(w, st));
    w->peers = mr_calloc(w->met.world, sizeof *w->peers);
    if (!w->peers)
        return mr_fail_memory(st, w->met.world * sizeof *w->peers, "the peers of a job");
    MR_TRY(mr__loop_open(MR__LOOP_AUTO, &w->loop, st));
    int64_t now = mr__loop_now(w->loop);
    for (uint32_t i = 0; i < w->met.world; i++) {
        peer *p = &w->peers[i];
        p->w = w;
        p->rank = i;
        p->heard_ns = now;
        p->socket.class_ = &class_;
        if (i == w->met.rank)
            continue;
        int fd = w->met.members[i].fd;
        w->met.members[i].fd = -1; /* taken, also where it fails */
        MR_TRY(mr__socket_adopt(w->loop, &p->socket, fd, st));
        p->open = true;
        w->n_open++;
    }
    w->last_beat_ns = now;
    w->timer.fire = beat;
    MR_TRY(mr__timer_set(w->loop, &w->timer, now, st));
    int err = pthread_create(&w->thread, NULL, watch, w);
    if (err)
        return mr_fail_errno(st, err, "no thread to watch the peers");
    w->has_thread = true;
    return MR_OK;
}

mr_code mr__world_open(mr__world **out, const mr__world_opts *o, mr_status *st)
{
    mr__world *w = mr_calloc(1, sizeof *w);
    if (!w)
        return mr_fail_memory(st, sizeof *w, "the processes of a job");
    pthread_mutex_init(&w->lock, NULL);
    mr__timed_cond_init(&w->moved);
    w->met.next.fd = w->met.prev.fd = -1;
    w->wake.run = woken;
    w->timeout_s = o->peer_timeout_s;
    w->cancel = o->meeting.cancel ? mr_cancel_ref(o->meeting.cancel) : NULL;
    w->beat_ns = (int64_t)(o->peer_timeout_s * 1e9 / BEATS);
    mr_status_init(&w->failure);
    mr_status_init(&w->for_the_rest);
    mr_code rc = mr__meet(&o->meeting, &w->met, st);
    if (rc == MR_OK)
        rc = start(w, st);
    if (rc != MR_OK) {
        mr__world_close(w);
        return rc;
    }
    *out = w;
    return MR_OK;
}

/* After a failed start the loop has no thread: its sockets are closed here. */
static void close_sockets(mr__world *w)
{
    for (uint32_t i = 0; w->peers && i < w->met.world; i++)
        if (w->peers[i].open)
            mr__socket_close(&w->peers[i].socket);
    while (w->n_open && mr__loop_turn(w->loop, INT64_MAX, NULL) == MR_OK)
        ;
}

void mr__world_close(mr__world *w)
{
    if (!w)
        return;
    if (w->has_thread) {
        pthread_mutex_lock(&w->lock);
        w->closing = true;
        wake_loop(w);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    if (w->loop) {
        mr__timer_clear(w->loop, &w->timer);
        if (!w->loop_failed)
            close_sockets(w);
        mr__loop_close(w->loop);
    }
    mr__met_reset(&w->met);
    mr_cancel_unref(w->cancel);
    mr_free(w->peers);
    for (size_t c = 0; c < MR__CHANNELS; c++)
        for (size_t i = 0; i < MR__ROUNDS; i++) {
            mr__round_reset(&w->rounds[c][i]);
        }
    mr__claims_reset(w);
    mr__saying_reset(&w->alive);
    mr__saying_reset(&w->last);
    pthread_cond_destroy(&w->moved);
    pthread_mutex_destroy(&w->lock);
    mr_free(w);
}
