/* SPDX-License-Identifier: Apache-2.0 */
/* A thread runs an event loop with a socket for each peer. Only this thread accesses the state of
 * peers, except the fields guarded by the lock. */
#include "trainer/collective/processes/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "pipeline/system/timed_wait.h"
#include "transport/net/loop.h"
#include "transport/wire/tls_stream.h"

enum { BEATS = 8 /* heartbeats per peer timeout */, MAX_PAYLOAD = 4096 };
/* Time for other peers' messages about one whose connection broke. */
#define LOST_NS ((int64_t)2000000000)

/* A peer that has all values of one exchange may begin the next, so two can be in progress. */
enum { ROUNDS = 2 };

/* Announcements that others may still ask about, and the number kept per peer: a peer waits when it
 * is not sure, so one or two are enough. */
enum { ANNOUNCEMENTS = 1024, ANNOUNCEMENTS_KEPT = 16 };

typedef struct values {
    bool there;
    uint32_t n;
    double v[MR__MAX_VALUES];
} values;

typedef struct announcement {
    uint64_t number; /* plus 1; 0: none */
    bool said;
    int64_t step;
    char what[MR__MAX_ANNOUNCEMENT];
} announcement;

/* This process's part of an exchange, or an announcement, until it is sent to all. */
typedef struct round {
    mr__posted post;
    struct round *next; /* of announcements */
    mr__world *w;
    mr__outbox out;
    struct iovec v;
    mr__send *sends; /* one per peer */
    uint32_t unsent;
    bool posted;
} round;

typedef struct peer {
    mr__world *w;
    uint32_t rank;
    mr__socket socket;
    mr__tls_stream tls; /* is_secure */
    bool is_secure;
    bool open, left; /* left: it said good-bye */
    int64_t heard_ns;
    unsigned char head[MR__RANK_HEAD_BYTES], payload[MAX_PAYLOAD];
    bool has_head;
    size_t got, bytes;
    mr__rank_message kind;
    mr__send alive, last; /* last: good-bye, or the error that ended this process */
    bool alive_queued;
    struct iovec alive_v, last_v;
    values came[MR__CHANNELS][ROUNDS];              /* guarded by the lock */
    bool gone;                                      /* guarded by the lock: it sends no more */
    announcement announcements[ANNOUNCEMENTS_KEPT]; /* guarded by the lock */
    uint64_t n_announced;                           /* guarded by the lock: number received */
    uint64_t numbers[MR__CHANNELS];                 /* number of exchanges received */
} peer;

struct mr__world {
    mr__rank_group group;
    peer *peers;       /* by rank; this process's is unused */
    mr_cancel *cancel; /* checked with each heartbeat; NULL: none */
    double timeout_s;
    int64_t beat_ns, last_beat_ns;
    mr__loop *loop;
    mr__timer timer;
    mr__outbox alive, last;
    uint32_t n_open;
    bool ending; /* the last messages were queued */
    bool loop_failed;
    pthread_t thread;
    bool has_thread;
    mr__posted wake;
    _Atomic int64_t step;
    _Atomic bool failed;
    _Atomic bool is_short; /* a peer is gone */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    round rounds[MR__CHANNELS][ROUNDS];
    uint64_t numbers[MR__CHANNELS]; /* number of exchanges begun by this process */
    bool posted, closing;           /* guarded by the lock, like everything below */
    uint64_t n_announced;
    announcement announcements[ANNOUNCEMENTS];
    round *said;            /* announcements being sent, and earlier ones */
    mr_status failure;      /* for this process */
    bool lost;              /* by a peer that died, hangs or cannot be reached */
    mr_status for_the_rest; /* the same, worded for the others */
    struct {
        void (*fn)(void *ctx); /* NULL: not registered */
        void *ctx;
    } on_end[MR__PARTS];
};

/* ---- queries ---- */

uint32_t mr__world_rank(const mr__world *w)
{
    return w->group.rank;
}

uint32_t mr__world_size(const mr__world *w)
{
    return w->group.world;
}

const char *mr__world_address(const mr__world *w, uint32_t rank)
{
    return w->group.members[rank].address;
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

/* "rank 2 (c:5000)" */
static void name_of(const mr__world *w, uint32_t rank, char *out, size_t size)
{
    snprintf(out, size, "rank %u (%s)", rank, w->group.members[rank].address);
}

/* Call with the lock held. */
static void wake_loop(mr__world *w)
{
    if (w->has_thread && !w->posted) {
        w->posted = true;
        mr__loop_post(w->loop, &w->wake);
    }
}

/* Call with the lock held: only the first failure counts, later ones are consequences. */
static void fail(mr__world *w, const mr_status *mine, const mr_status *theirs)
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

/* A peer died, hangs or cannot be reached: another try may succeed. Call with the lock held. */
static void fail_of_lost(mr__world *w, const mr_status *why)
{
    w->lost = w->lost || w->failure.code == MR_OK;
    fail(w, why, why);
}

static void fail_both(mr__world *w, const mr_status *why)
{
    pthread_mutex_lock(&w->lock);
    fail(w, why, why);
    pthread_mutex_unlock(&w->lock);
}

void mr__world_abort(mr__world *w, const mr_status *why, bool names_all)
{
    mr_status theirs = *why;
    char us[256];
    name_of(w, w->group.rank, us, sizeof us);
    /* Only a lost peer is unavailable to them, not what this process could not reach. */
    if (!names_all)
        mr_fail(&theirs, why->code == MR_UNAVAILABLE ? MR_ABORTED : why->code,
                "%s failed at step %" PRId64 ": %.400s", us, mr__world_step(w), why->message);
    pthread_mutex_lock(&w->lock);
    fail(w, why, &theirs);
    pthread_mutex_unlock(&w->lock);
}

/* Call with the lock held: a rank that said good-bye is still needed, at the current step. */
static void fail_of_ended(mr__world *w, uint32_t rank)
{
    char who[256], us[256];
    mr_status why;
    name_of(w, rank, who, sizeof who);
    name_of(w, w->group.rank, us, sizeof us);
    mr_fail(&why, MR_UNAVAILABLE, "%s has ended, while %s continues at step %" PRId64, who, us,
            mr__world_step(w));
    fail(w, &why, &why);
}

/* Call with the lock held: the first rank that said good-bye; the number of ranks: none. */
static uint32_t first_gone(const mr__world *w)
{
    uint32_t i = 0;
    while (i < w->group.world && !w->peers[i].gone)
        i++;
    return i;
}

bool mr__world_has_lost(mr__world *w)
{
    pthread_mutex_lock(&w->lock);
    bool lost = w->lost;
    pthread_mutex_unlock(&w->lock);
    return lost;
}

bool mr__world_is_short(const mr__world *w)
{
    return atomic_load_explicit(&w->is_short, memory_order_relaxed);
}

mr_code mr__world_wait_short(mr__world *w, double seconds, mr_status *st)
{
    if (seconds > w->timeout_s) {
        pthread_mutex_lock(&w->lock);
        fail_of_ended(w, first_gone(w));
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
    if (gone < w->group.world) /* the broken connection is a consequence */
        fail_of_ended(w, gone);
    name_of(w, rank, who, sizeof who);
    mr_fail(&why, MR_UNAVAILABLE, "the connection for values with %s broke at step %" PRId64 ": %s",
            who, mr__world_step(w), what);
    fail_of_lost(w, &why); /* if no better cause is known */
    if (st)
        *st = w->failure;
    mr_code rc = w->failure.code;
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void mr__world_take_links(mr__world *w, mr__ring_link *next, mr__ring_link *prev)
{
    *next = w->group.next;
    *prev = w->group.prev;
    w->group.next = w->group.prev = (mr__ring_link){.fd = -1};
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

/* ---- exchange of numbers ---- */

static void values_sent(mr__send *s, bool sent)
{
    /* The send's vector is a member of the round. */
    round *r = (round *)((char *)(uintptr_t)s->v - offsetof(round, v));
    (void)sent;
    pthread_mutex_lock(&r->w->lock);
    if (--r->unsent == 0)
        pthread_cond_broadcast(&r->w->moved);
    pthread_mutex_unlock(&r->w->lock);
}

static void send_to(peer *p, mr__send *send)
{
    if (p->is_secure)
        mr__tls_stream_send(&p->tls, send);
    else
        mr__socket_send(&p->socket, send);
}

static void send_round(mr__posted *p)
{
    round *r = (round *)((char *)p - offsetof(round, post));
    mr__world *w = r->w;
    pthread_mutex_lock(&w->lock);
    r->posted = false;
    for (uint32_t i = 0; i < w->group.world; i++)
        r->unsent += w->peers[i].open && !w->ending;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < w->group.world && !w->ending; i++) {
        if (!w->peers[i].open)
            continue;
        r->sends[i] = (mr__send){.v = &r->v, .n = 1, .done = values_sent};
        send_to(&w->peers[i], &r->sends[i]);
    }
}

static mr_code round_init(mr__world *w, round *r, mr_status *st)
{
    r->w = w;
    r->post.run = send_round;
    r->sends = mr_calloc(w->group.world, sizeof *r->sends);
    return r->sends ? MR_OK
                    : mr_fail_memory(st, w->group.world * sizeof *r->sends, "the peers of a job");
}

static void round_reset(round *r)
{
    mr__outbox_reset(&r->out);
    mr_free(r->sends);
}

/* Call with the lock held: waits until all have sent theirs. */
static mr_code wait_for_all(mr__world *w, uint32_t channel, uint64_t number)
{
    for (uint32_t i = 0; i < w->group.world; i++) {
        const peer *p = &w->peers[i];
        while (i != w->group.rank && !p->came[channel][number % ROUNDS].there) {
            if (w->failure.code != MR_OK)
                return w->failure.code;
            if (p->gone)
                fail_of_ended(w, i);
            else
                pthread_cond_wait(&w->moved, &w->lock);
        }
    }
    return MR_OK;
}

/* Call with the lock held. */
static mr_code collect(mr__world *w, uint32_t channel, uint64_t number, const double *mine,
                       uint32_t n, double *all, mr_status *st)
{
    for (uint32_t i = 0; i < w->group.world; i++) {
        values *v = &w->peers[i].came[channel][number % ROUNDS];
        if (i != w->group.rank && v->n != n)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "rank %u (%s) sends %u numbers where rank %u sends %u, at step %" PRId64,
                           i, w->group.members[i].address, v->n, w->group.rank, n,
                           mr__world_step(w));
        for (uint32_t k = 0; k < n; k++)
            all[(size_t)i * n + k] = i == w->group.rank ? mine[k] : v->v[k];
        v->there = false;
    }
    return MR_OK;
}

mr_code mr__world_exchange(mr__world *w, uint32_t channel, const double *mine, uint32_t n,
                           double *all, mr_status *st)
{
    uint64_t number = w->numbers[channel]++;
    round *r = &w->rounds[channel][number % ROUNDS];
    mr_status why;
    pthread_mutex_lock(&w->lock);
    while ((r->unsent || r->posted) && w->failure.code == MR_OK)
        pthread_cond_wait(&w->moved, &w->lock);
    mr_code rc = w->failure.code;
    if (rc == MR_OK) {
        r->out.size = 0;
        rc = mr__write_values(&r->out, channel, number, mine, n, &why);
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

/* ---- announcements ---- */

/* Agreement on the next operation: a rank that has not run this sequence before announces it to all
 * peers and waits for their announcements; the others answer when they reach this point, or at once
 * if they have passed it. So repetition costs no message, and a process that deviates is detected
 * before it begins. */

/* Call with the lock held: finds or creates a round that is not being sent. */
static mr_code spare_round(mr__world *w, round **out, mr_status *st)
{
    for (round *r = w->said; r; r = r->next)
        if (!r->posted && !r->unsent) {
            *out = r;
            return MR_OK;
        }
    round *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "the peers of a job");
    r->next = w->said;
    w->said = r; /* the list owns it */
    MR_TRY(round_init(w, r, st));
    *out = r;
    return MR_OK;
}

/* Call with the lock held. */
static mr_code send_announcement(mr__world *w, announcement *c, mr_status *st)
{
    round *r = NULL;
    if (c->said)
        return MR_OK;
    MR_TRY(spare_round(w, &r, st));
    r->out.size = 0;
    MR_TRY(mr__write_announcement(&r->out, c->number - 1, c->step, c->what, st));
    r->v = (struct iovec){r->out.data, r->out.size};
    r->posted = c->said = true;
    mr__loop_post(w->loop, &r->post);
    return MR_OK;
}

/* Call with the lock held: compares an announcement of `rank` with this process's of the same
 * number. */
static mr_code compare(mr__world *w, const announcement *mine, uint32_t rank,
                       const announcement *theirs, mr_status *st)
{
    bool first = w->group.rank < rank; /* so that both report the same */
    const announcement *a = first ? mine : theirs, *b = first ? theirs : mine;
    uint32_t ra = first ? w->group.rank : rank, rb = first ? rank : w->group.rank;
    char who_a[256], who_b[256];
    mr_status why;
    bool same = strcmp(a->what, b->what) == 0;
    if (same && a->step == b->step)
        return MR_OK;
    name_of(w, ra, who_a, sizeof who_a);
    name_of(w, rb, who_b, sizeof who_b);
    if (same)
        mr_fail(&why, MR_FAILED_PRECONDITION,
                "%s is at step %" PRId64 " where %s is at step %" PRId64
                "; all processes must take part in the same sums in every step",
                who_a, a->step, who_b, b->step);
    else
        mr_fail(&why, MR_INVALID_ARGUMENT,
                "%s %s where %s %s, in operation %" PRIu64 " at step %" PRId64
                "; all processes must run the same steps",
                who_a, a->what, who_b, b->what, mine->number - 1,
                a->step > b->step ? a->step : b->step);
    fail(w, &why, &why);
    if (st)
        *st = w->failure;
    return w->failure.code;
}

/* Call with the lock held; NULL: it has not arrived. */
static const announcement *announced_by(const peer *p, uint64_t number)
{
    for (size_t i = 0; i < ANNOUNCEMENTS_KEPT; i++)
        if (p->announcements[i].number == number)
            return &p->announcements[i];
    return NULL;
}

/* Call with the lock held: compares with announcements that have arrived; *asked: there was one. */
static mr_code compare_with_arrived(mr__world *w, const announcement *mine, bool *asked,
                                    mr_status *st)
{
    for (uint32_t i = 0; i < w->group.world; i++) {
        const peer *p = &w->peers[i];
        const announcement *c = announced_by(p, mine->number);
        if (i == w->group.rank || !c)
            continue;
        *asked = true;
        MR_TRY(compare(w, mine, i, c, st));
    }
    return MR_OK;
}

/* Call with the lock held: waits until all have sent the announcement of that number. */
static mr_code wait_for_announcements(mr__world *w, const announcement *mine, mr_status *st)
{
    bool asked;
    for (uint32_t i = 0; i < w->group.world; i++) {
        const peer *p = &w->peers[i];
        while (i != w->group.rank && !announced_by(p, mine->number)) {
            if (p->gone)
                fail_of_ended(w, i);
            if (w->failure.code != MR_OK) {
                if (st)
                    *st = w->failure;
                return w->failure.code;
            }
            pthread_cond_wait(&w->moved, &w->lock);
        }
    }
    return compare_with_arrived(w, mine, &asked, st);
}

/* Call with the lock held. */
static announcement *new_announcement(mr__world *w, const char *what)
{
    announcement *c = &w->announcements[++w->n_announced % ANNOUNCEMENTS];
    *c = (announcement){.number = w->n_announced, .step = mr__world_step(w)};
    snprintf(c->what, sizeof c->what, "%s", what);
    return c;
}

mr_code mr__world_announce(mr__world *w, const char *what, bool usual, mr_status *st)
{
    bool asked = false;
    pthread_mutex_lock(&w->lock);
    announcement *c = new_announcement(w, what);
    mr_code rc = w->failure.code;
    if (rc != MR_OK && st)
        *st = w->failure;
    if (rc == MR_OK)
        rc = compare_with_arrived(w, c, &asked, st);
    if (rc == MR_OK && (asked || !usual))
        rc = send_announcement(w, c, st);
    if (rc == MR_OK && !usual)
        rc = wait_for_announcements(w, c, st);
    pthread_mutex_unlock(&w->lock);
    return rc;
}

void mr__world_announce_end(mr__world *w)
{
    bool asked;
    pthread_mutex_lock(&w->lock);
    announcement *c = new_announcement(w, "has ended");
    c->step = 0; /* the step may belong to this process alone */
    mr_code rc = w->failure.code;
    if (rc == MR_OK)
        rc = compare_with_arrived(w, c, &asked, NULL);
    if (rc == MR_OK)
        rc = send_announcement(w, c, NULL);
    (void)rc; /* the others see that it is gone */
    pthread_mutex_unlock(&w->lock);
}

/* In the thread: answers an announcement that this process has already made, or keeps it until
 * then. false: it is invalid, or too old to be compared. */
static bool take_announcement(peer *p)
{
    mr__world *w = p->w;
    const char *what = "";
    mr_status why;
    announcement c = {0};
    mr_code rc = mr__read_announcement(p->payload, p->bytes, &c.number, &c.step, &what, &why);
    c.number++;
    snprintf(c.what, sizeof c.what, "%s", what);
    pthread_mutex_lock(&w->lock);
    announcement *mine = &w->announcements[c.number % ANNOUNCEMENTS];
    bool made = c.number <= w->n_announced;
    bool good = rc == MR_OK && (!made || mine->number == c.number);
    if (good) {
        p->announcements[p->n_announced++ % ANNOUNCEMENTS_KEPT] = c;
        if (made && compare(w, mine, p->rank, &c, NULL) == MR_OK &&
            send_announcement(w, mine, &why) != MR_OK)
            fail(w, &why, &why);
        pthread_cond_broadcast(&w->moved);
    }
    pthread_mutex_unlock(&w->lock);
    return good;
}

static void free_announcements(mr__world *w)
{
    for (round *r; (r = w->said);) {
        w->said = r->next;
        round_reset(r);
        mr_free(r);
    }
}

/* ---- the thread: messages of peers ---- */

static void peer_failed(peer *p, mr_code code, const char *what)
{
    char who[256];
    mr_status why;
    name_of(p->w, p->rank, who, sizeof who);
    mr_fail(&why, code, "%s %.300s", who, what);
    fail_both(p->w, &why);
}

static void peer_lost(peer *p, const char *what)
{
    char who[256];
    mr_status why;
    name_of(p->w, p->rank, who, sizeof who);
    mr_fail(&why, MR_UNAVAILABLE, "%s %.300s", who, what);
    pthread_mutex_lock(&p->w->lock);
    fail_of_lost(p->w, &why);
    pthread_mutex_unlock(&p->w->lock);
}

/* It had an error, or lost a peer. */
static void peer_aborts(peer *p, const mr_status *why)
{
    mr__world *w = p->w;
    pthread_mutex_lock(&w->lock);
    if (why->code == MR_UNAVAILABLE && first_gone(w) == w->group.world)
        fail_of_lost(w, why);
    else
        fail(w, why, why);
    pthread_mutex_unlock(&w->lock);
}

/* Wakes the waiters for its numbers. */
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
        to = &p->came[channel][number % ROUNDS];
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
        peer_failed(p, MR_DATA_LOSS, "sent numbers that were not requested");
}

static void take(peer *p)
{
    mr_status why, bad;
    switch (p->kind) {
    case MR__RANK_ALIVE:
        return;
    case MR__RANK_VALUES:
        take_values(p);
        return;
    case MR__RANK_ANNOUNCEMENT:
        if (!take_announcement(p))
            peer_failed(p, MR_DATA_LOSS,
                        "announced an operation too far from the one that runs here");
        return;
    case MR__RANK_BYE:
        p->left = true;
        leave(p);
        return;
    case MR__RANK_ABORT:
        mr_status_init(&why);
        if (mr__read_abort(p->payload, p->bytes, &why, &bad) != MR_OK)
            why = bad;
        peer_aborts(p, &why);
        p->left = true;
        return;
    default:
        peer_failed(p, MR_DATA_LOSS, "sent a message that is not allowed during training");
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
    *n = (p->has_head ? p->bytes : MR__RANK_HEAD_BYTES) - p->got;
    return (p->has_head ? p->payload : p->head) + p->got;
}

static void received(mr__socket *s, size_t n)
{
    peer *p = peer_of(s);
    uint32_t version;
    mr_status why;
    p->heard_ns = mr__loop_now(p->w->loop);
    p->got += n;
    if (!p->has_head && p->got == MR__RANK_HEAD_BYTES) {
        if (mr__read_head(p->head, &version, &p->kind, &p->bytes, &why) != MR_OK ||
            p->bytes > MAX_PAYLOAD) {
            peer_failed(p, MR_DATA_LOSS, "sent an invalid message");
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
    mr__tls_stream_close(&p->tls);
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
    peer_lost(p, text);
}

static const mr__socket_class class_ = {opened, room, received, closed};

/* ---- the same by TLS ---- */

/* Decrypts what was received, into the same places. */
static void take_secure(peer *p)
{
    mr_status why;
    size_t most, n = 1;
    while (n && p->open) {
        void *to = room(&p->socket, &most);
        mr_code rc = mr__tls_stream_read(&p->tls, to, most, &n, &why);
        if (rc == MR_END) /* it says so before it closes the socket */
            return;
        if (rc != MR_OK) {
            char text[300];
            snprintf(text, sizeof text, "sent bytes that cannot be decrypted: %.200s", why.message);
            peer_failed(p, MR_DATA_LOSS, text);
            mr__socket_close(&p->socket);
            return;
        }
        if (n)
            received(&p->socket, n);
    }
}

/* The rendezvous may have received more than it read. */
static void secure_opened(mr__socket *s)
{
    take_secure(peer_of(s));
}

static void *secure_room(mr__socket *s, size_t *n)
{
    return mr__tls_stream_room(&peer_of(s)->tls, n);
}

static void secure_received(mr__socket *s, size_t n)
{
    peer *p = peer_of(s);
    mr__tls_stream_received(&p->tls, n);
    take_secure(p);
}

static const mr__socket_class secure_class = {secure_opened, secure_room, secure_received, closed};

/* ---- the thread: messages of this process ---- */

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
    send_to(p, &p->alive);
}

static void say_last(mr__world *w)
{
    if (w->ending)
        return;
    w->ending = true;
    pthread_mutex_lock(&w->lock);
    mr_status why = w->for_the_rest;
    pthread_mutex_unlock(&w->lock);
    mr_code rc = why.code == MR_OK ? mr__write_empty(&w->last, MR__RANK_BYE, NULL)
                                   : mr__write_abort(&w->last, &why, NULL);
    for (uint32_t i = 0; i < w->group.world; i++) {
        peer *p = &w->peers[i];
        if (!p->open)
            continue;
        if (rc == MR_OK) {
            p->last_v = (struct iovec){w->last.data, w->last.size};
            p->last = (mr__send){.v = &p->last_v, .n = 1, .done = last_sent};
            send_to(p, &p->last);
        }
        if (p->is_secure)
            mr__tls_stream_finish(&p->tls);
        else
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

/* Sends a heartbeat to each peer, and checks for silent ones. If this process itself was suspended,
 * the others' heartbeats are still in the sockets: allow time to read them. */
static void beat(mr__timer *t)
{
    mr__world *w = (mr__world *)((char *)t - offsetof(mr__world, timer));
    int64_t now = mr__loop_now(w->loop), limit = w->beat_ns * (BEATS - 1);
    bool was_stopped = now - w->last_beat_ns > 2 * w->beat_ns;
    char text[200];
    for (uint32_t i = 0; i < w->group.world; i++) {
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
        peer_lost(p, text);
        mr__socket_close(&p->socket); /* it would not read the last message */
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
        if (w->ending && until == INT64_MAX) /* do not wait long for a peer that does not read */
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
        for (size_t i = 0; i < ROUNDS; i++) {
            round *r = &w->rounds[c][i];
            MR_TRY(round_init(w, r, st));
        }
    return MR_OK;
}

static mr_code start(mr__world *w, mr_status *st)
{
    MR_TRY(mr__write_empty(&w->alive, MR__RANK_ALIVE, st));
    MR_TRY(make_rounds(w, st));
    w->peers = mr_calloc(w->group.world, sizeof *w->peers);
    if (!w->peers)
        return mr_fail_memory(st, w->group.world * sizeof *w->peers, "the peers of a job");
    MR_TRY(mr__loop_open(MR__LOOP_AUTO, &w->loop, st));
    int64_t now = mr__loop_now(w->loop);
    for (uint32_t i = 0; i < w->group.world; i++) {
        peer *p = &w->peers[i];
        p->w = w;
        p->rank = i;
        p->heard_ns = now;
        p->socket.class_ = &class_;
        if (i == w->group.rank)
            continue;
        mr__member *m = &w->group.members[i];
        int fd = m->fd;
        m->fd = -1; /* taken over even on failure */
        p->is_secure = m->tls != NULL;
        if (p->is_secure) {
            p->socket.class_ = &secure_class;
            mr__tls_stream_adopt(&p->tls, m->tls, &p->socket);
            mr_free(m->tls);
            m->tls = NULL;
        }
        MR_TRY(mr__socket_adopt(w->loop, &p->socket, fd, st));
        p->open = true;
        w->n_open++;
    }
    w->last_beat_ns = now;
    w->timer.fire = beat;
    MR_TRY(mr__timer_set(w->loop, &w->timer, now, st));
    int err = pthread_create(&w->thread, NULL, watch, w);
    if (err)
        return mr_fail_errno(st, err, "cannot start the thread that watches the peers");
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
    w->group.next.fd = w->group.prev.fd = -1;
    w->wake.run = woken;
    w->timeout_s = o->peer_timeout_s;
    w->cancel = o->rendezvous.cancel ? mr_cancel_ref(o->rendezvous.cancel) : NULL;
    w->beat_ns = (int64_t)(o->peer_timeout_s * 1e9 / BEATS);
    mr_status_init(&w->failure);
    mr_status_init(&w->for_the_rest);
    mr_code rc = mr__rendezvous(&o->rendezvous, &w->group, st);
    if (rc == MR_OK)
        rc = start(w, st);
    if (rc != MR_OK) {
        mr__world_close(w);
        return rc;
    }
    *out = w;
    return MR_OK;
}

/* After a failed start the loop has no thread: closes its sockets in this thread. */
static void close_sockets(mr__world *w)
{
    for (uint32_t i = 0; w->peers && i < w->group.world; i++)
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
        /* Of sockets that were not closed, whose buffers the kernel could use until here. */
        for (uint32_t i = 0; w->peers && i < w->group.world; i++) {
            w->peers[i].tls.soon.place = 0; /* the loop's timers are gone */
            mr__tls_stream_close(&w->peers[i].tls);
        }
    }
    mr__rank_group_reset(&w->group);
    mr_cancel_unref(w->cancel);
    mr_free(w->peers);
    for (size_t c = 0; c < MR__CHANNELS; c++)
        for (size_t i = 0; i < ROUNDS; i++) {
            round_reset(&w->rounds[c][i]);
        }
    free_announcements(w);
    mr__outbox_reset(&w->alive);
    mr__outbox_reset(&w->last);
    pthread_cond_destroy(&w->moved);
    pthread_mutex_destroy(&w->lock);
    mr_free(w);
}
