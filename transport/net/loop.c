/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of all engines: timers, posted work, and the life of sockets. */
#include "transport/net/loop.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "transport/net/loop_engine.h"

enum { LOW_LEAST = 64 << 10, LOW_MOST = 1 << 20 };
enum { MOST_TIMERS = 1 << 24, ACCEPT_PAUSE = 100000000 /* ns */ };

/* ---- opening ---- */

static mr_code open_engine(mr__loop *l, const mr__loop_engine *engine, mr_status *st)
{
    l->engine_class = engine;
    return engine->open(l, st);
}

mr_code mr__loop_open(mr__loop_kind kind, mr__loop **out, mr_status *st)
{
    mr__loop *l = mr_calloc(1, sizeof *l);
    if (!l)
        return mr_fail_memory(st, sizeof *l, "an event loop");
    pthread_mutex_init(&l->lock, NULL);
    l->now_ns = mr__clock_ns(CLOCK_MONOTONIC);
    mr_status refused;
    mr_code rc;
    if (kind == MR__LOOP_EPOLL) {
        rc = open_engine(l, &mr__loop_epoll, st);
    } else {
        rc = open_engine(l, &mr__loop_uring, kind == MR__LOOP_URING ? st : &refused);
        if (rc != MR_OK && kind == MR__LOOP_AUTO) {
            mr_log(MR_LOG_INFO, "the event loop runs on epoll: %s", refused.message);
            rc = open_engine(l, &mr__loop_epoll, st);
        }
    }
    if (rc != MR_OK) {
        pthread_mutex_destroy(&l->lock);
        mr_free(l);
        return rc;
    }
    *out = l;
    return MR_OK;
}

void mr__loop_close(mr__loop *l)
{
    if (!l)
        return;
    mr__page_pipe_end(l, NULL);
    l->engine_class->close(l);
    mr_free(l->timers);
    pthread_mutex_destroy(&l->lock);
    mr_free(l);
}

const char *mr__loop_name(const mr__loop *l)
{
    return l->engine_class->name;
}

int64_t mr__loop_now(const mr__loop *l)
{
    return l->now_ns;
}

/* ---- timers: a binary heap, places counted from 1 ---- */

static void put(mr__loop *l, size_t place, mr__timer *t)
{
    l->timers[place - 1] = t;
    t->place = place;
}

static void sift_up(mr__loop *l, size_t place, mr__timer *t)
{
    while (place > 1 && t->at_ns < l->timers[place / 2 - 1]->at_ns) {
        put(l, place, l->timers[place / 2 - 1]);
        place /= 2;
    }
    put(l, place, t);
}

static void sift_down(mr__loop *l, size_t place, mr__timer *t)
{
    for (;;) {
        size_t child = place * 2;
        if (child > l->n_timers)
            break;
        if (child < l->n_timers && l->timers[child]->at_ns < l->timers[child - 1]->at_ns)
            child++;
        if (t->at_ns <= l->timers[child - 1]->at_ns)
            break;
        put(l, place, l->timers[child - 1]);
        place = child;
    }
    put(l, place, t);
}

mr_code mr__timer_set(mr__loop *l, mr__timer *t, int64_t at_ns, mr_status *st)
{
    mr__timer_clear(l, t);
    MR_TRY(MR_GROW(l->timers, l->timers_capacity, l->n_timers + 1, MOST_TIMERS, "timers", st));
    t->at_ns = at_ns;
    sift_up(l, ++l->n_timers, t);
    return MR_OK;
}

void mr__timer_clear(mr__loop *l, mr__timer *t)
{
    size_t place = t->place;
    if (place == 0)
        return;
    t->place = 0;
    mr__timer *last = l->timers[--l->n_timers];
    if (last == t)
        return;
    if (place > 1 && last->at_ns < l->timers[place / 2 - 1]->at_ns)
        sift_up(l, place, last);
    else
        sift_down(l, place, last);
}

/* Fires the timers that were due when the turn began: one that sets itself to the past again waits
 * for the next turn. */
static void fire_timers(mr__loop *l)
{
    int64_t now = l->now_ns;
    for (size_t left = l->n_timers; left && l->n_timers && l->timers[0]->at_ns <= now; left--) {
        mr__timer *t = l->timers[0];
        mr__timer_clear(l, t);
        t->fire(t);
    }
}

/* ---- posted work ---- */

void mr__event_raise(int fd)
{
    const uint64_t one = 1;
    enum { TRIES = 1000 };
    for (int i = 0; i < TRIES && mr__sys->write(fd, &one, sizeof one) < 0 && errno != EAGAIN; i++)
        ;
}

void mr__loop_post(mr__loop *l, mr__posted *p)
{
    p->next = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->posted_last)
        l->posted_last->next = p;
    else
        l->posted_first = p;
    l->posted_last = p;
    bool wake = l->waiting;
    l->waiting = false;
    pthread_mutex_unlock(&l->lock);
    if (wake)
        l->engine_class->wake(l);
}

static void run_posted(mr__loop *l)
{
    pthread_mutex_lock(&l->lock);
    mr__posted *p = l->posted_first;
    l->posted_first = l->posted_last = NULL;
    pthread_mutex_unlock(&l->lock);
    while (p) {
        mr__posted *next = p->next;
        p->run(p);
        p = next;
    }
}

/* ---- a turn ---- */

static void serve_sockets(mr__loop *l)
{
    mr__socket *s = l->serve_first;
    l->serve_first = l->serve_last = NULL;
    while (s) {
        mr__socket *next = s->next_ready;
        s->flags &= (uint8_t)~MR__SOCKET_QUEUED;
        l->engine_class->serve(l, s); /* may end the socket's life */
        s = next;
    }
}

static void say_listeners_closed(mr__loop *l)
{
    while (l->listeners_closed) {
        mr__listener *x = l->listeners_closed;
        l->listeners_closed = x->next;
        x->closed(x);
    }
}

void mr__loop_woke(mr__loop *l)
{
    pthread_mutex_lock(&l->lock);
    l->waiting = false;
    pthread_mutex_unlock(&l->lock);
    l->now_ns = mr__clock_ns(CLOCK_MONOTONIC);
}

mr_code mr__loop_turn(mr__loop *l, int64_t until_ns, mr_status *st)
{
    if (l->n_timers && l->timers[0]->at_ns < until_ns)
        until_ns = l->timers[0]->at_ns;
    pthread_mutex_lock(&l->lock);
    l->waiting = !l->posted_first && !l->serve_first && !l->listeners_closed;
    if (!l->waiting)
        until_ns = INT64_MIN;
    pthread_mutex_unlock(&l->lock);
    MR_TRY(l->engine_class->wait(l, until_ns, st));
    run_posted(l);
    fire_timers(l);
    serve_sockets(l);
    say_listeners_closed(l);
    return MR_OK;
}

/* ---- sockets ---- */

void mr__socket_serve_later(mr__socket *s)
{
    mr__loop *l = s->loop;
    if (s->flags & MR__SOCKET_QUEUED)
        return;
    s->flags |= MR__SOCKET_QUEUED;
    s->next_ready = NULL;
    if (l->serve_last)
        l->serve_last->next_ready = s;
    else
        l->serve_first = s;
    l->serve_last = s;
}

/* Sends small messages at once; on loopback, plain congestion control is faster than algorithms for
 * long distances. */
static void set_options(int fd, const mr__address *to)
{
    int one = 1;
    mr__sys->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (to && to->to.ss_family != AF_UNIX && mr__address_is_loopback(to))
        mr__sys->setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
}

static mr_code start(mr__loop *l, mr__socket *s, int fd, uint8_t state, const mr__address *to,
                     mr_status *st)
{
    const mr__socket_class *class_ = s->class_;
    *s = (mr__socket){.class_ = class_,
                      .loop = l,
                      .fd = fd,
                      .passed = -1,
                      .low = 1,
                      .is_local = to && to->to.ss_family == AF_UNIX,
                      .state = state};
    mr_status_init(&s->why);
    set_options(fd, to);
    mr_code rc = l->engine_class->add(l, s, to, st);
    if (rc != MR_OK) {
        mr__sys->close(fd);
        s->state = MR__SOCKET_CLOSED;
        return rc;
    }
    s->next = l->sockets;
    if (l->sockets)
        l->sockets->prev = s;
    l->sockets = s;
    return MR_OK;
}

mr_code mr__socket_connect(mr__loop *l, mr__socket *s, const mr__address *to, mr_status *st)
{
    int fd = mr__sys->socket(to->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return mr_fail_errno(st, errno, "cannot create a socket for %s", to->text);
    return start(l, s, fd, MR__SOCKET_CONNECTING, to, st);
}

mr_code mr__socket_adopt(mr__loop *l, mr__socket *s, int fd, mr_status *st)
{
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    mr__address a;
    bool known = mr__sys->getpeername(fd, (struct sockaddr *)&from, &size) == 0;
    if (known)
        mr__address_of((struct sockaddr *)&from, size, &a);
    MR_TRY(start(l, s, fd, MR__SOCKET_OPEN, known ? &a : NULL, st));
    mr__socket_serve_later(s);
    return MR_OK;
}

void mr__socket_is_open(mr__socket *s)
{
    s->state = MR__SOCKET_OPEN;
    s->flags |= MR__SOCKET_STARTED;
    s->class_->opened(s);
}

void mr__socket_send(mr__socket *s, mr__send *send)
{
    send->next = NULL;
    send->at = send->offset = 0;
    for (size_t i = 0; i < send->n; i++)
        s->queued_bytes += send->v[i].iov_len;
    if (s->last)
        s->last->next = send;
    else
        s->first = send;
    s->last = send;
    mr__socket_serve_later(s);
}

void mr__socket_receive(mr__socket *s)
{
    if (s->state != MR__SOCKET_OPEN)
        return;
    s->flags &= (uint8_t)~MR__SOCKET_PAUSED;
    mr__socket_serve_later(s);
}

void mr__socket_expect(mr__socket *s, size_t n)
{
    int low = n < LOW_LEAST ? 1 : n < LOW_MOST ? (int)n : LOW_MOST;
    if (s->is_local || (uint32_t)low == s->low)
        return;
    s->low = (uint32_t)low;
    mr__sys->setsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
}

void mr__socket_keep_passed(mr__socket *s, const struct msghdr *m)
{
    int fd = mr__passed_descriptor(m);
    if (fd < 0)
        return;
    if (s->passed >= 0)
        mr__sys->close(s->passed);
    s->passed = fd;
}

int mr__socket_take_passed(mr__socket *s)
{
    int fd = s->passed;
    s->passed = -1;
    return fd;
}

static void pop_send(mr__socket *s, bool sent)
{
    mr__send *send = s->first;
    s->first = send->next;
    if (!s->first)
        s->last = NULL;
    send->done(send, sent);
}

void mr__socket_sent(mr__socket *s, size_t n)
{
    s->queued_bytes -= n;
    while (s->first) {
        mr__send *send = s->first;
        while (send->at < send->n) {
            size_t left = send->v[send->at].iov_len - send->offset;
            if (n < left) {
                send->offset += n;
                return;
            }
            n -= left;
            send->at++;
            send->offset = 0;
        }
        pop_send(s, true);
    }
    if (s->flags & MR__SOCKET_FINISHING)
        mr__socket_close(s);
}

static void fail(mr__socket *s, const mr_status *why)
{
    if (s->state >= MR__SOCKET_CLOSING)
        return;
    if (!(s->flags & MR__SOCKET_MUTE) || why->code == MR_OK)
        s->why = *why;
    s->state = MR__SOCKET_CLOSING;
    mr__socket_serve_later(s);
}

static void describe(int err, const char *what, mr_status *why)
{
    mr_status_init(why);
    mr_fail_errno(why, err, "%s", what);
    if (why->code != MR_RESOURCE_EXHAUSTED) /* any network error: the peer is unreachable */
        why->code = MR_UNAVAILABLE;
}

void mr__socket_fail_errno(mr__socket *s, int err, const char *what)
{
    mr_status why;
    describe(err, what, &why);
    fail(s, &why);
}

void mr__socket_at_end(mr__socket *s)
{
    mr_status why;
    mr_status_init(&why);
    why.code = MR_END;
    fail(s, &why);
}

void mr__socket_cannot_send(mr__socket *s, int err)
{
    bool listens = s->state == MR__SOCKET_OPEN && !(s->flags & MR__SOCKET_FINISHING);
    if (!listens || (err != EPIPE && err != ECONNRESET)) {
        mr__socket_fail_errno(s, err, "cannot send");
        return;
    }
    describe(err, "cannot send", &s->why);
    s->flags |= MR__SOCKET_MUTE | MR__SOCKET_READABLE;
    if (s->flags & MR__SOCKET_PAUSED) /* perhaps until something is sent */
        mr__socket_at_end(s);
    mr__socket_serve_later(s);
}

void mr__socket_pause(mr__socket *s)
{
    s->flags |= MR__SOCKET_PAUSED;
    if (s->flags & MR__SOCKET_MUTE)
        mr__socket_at_end(s);
}

void mr__socket_close(mr__socket *s)
{
    mr_status why;
    mr_status_init(&why);
    fail(s, &why);
}

void mr__socket_finish(mr__socket *s)
{
    if (!s->first || s->flags & MR__SOCKET_MUTE)
        mr__socket_close(s);
    else
        s->flags |= MR__SOCKET_FINISHING;
}

void mr__socket_is_gone(mr__socket *s)
{
    mr__loop *l = s->loop;
    s->state = MR__SOCKET_CLOSED;
    s->fd = -1;
    mr__page_pipe_end(l, s);
    if (s->passed >= 0)
        mr__sys->close(s->passed);
    s->passed = -1;
    if (s->prev)
        s->prev->next = s->next;
    else
        l->sockets = s->next;
    if (s->next)
        s->next->prev = s->prev;
    while (s->first)
        pop_send(s, false);
    mr_status why = s->why;
    s->class_->closed(s, &why);
}

/* ---- listeners ---- */

static void accept_again(mr__timer *t)
{
    mr__listener *x = (mr__listener *)((char *)t - offsetof(mr__listener, retry));
    x->loop->engine_class->accept_again(x->loop, x);
}

bool mr__listener_pause(mr__listener *x, int err)
{
    mr_status why;
    mr_fail_errno(&why, err, "%s cannot accept connections at the moment", x->address.text);
    mr__stranger_log_add(&x->full, x->loop->now_ns, MR_LOG_WARNING, "%s", why.message);
    return mr__timer_set(x->loop, &x->retry, x->loop->now_ns + ACCEPT_PAUSE, NULL) == MR_OK;
}

mr_code mr__listen(mr__loop *loop, mr__listener *x, const mr__address *at, mr_status *st)
{
    int fd;
    MR_TRY(mr__address_listen(at, &fd, &x->address, st));
    x->loop = loop;
    x->fd = fd;
    x->in_flight = 0;
    x->closing = false;
    x->full = (mr__stranger_log){0};
    x->next = NULL;
    x->retry = (mr__timer){.fire = accept_again};
    mr_code rc = loop->engine_class->listen(loop, x, st);
    if (rc != MR_OK)
        mr__sys->close(fd);
    return rc;
}

void mr__listener_close(mr__listener *x)
{
    if (x->closing)
        return;
    x->closing = true;
    mr__timer_clear(x->loop, &x->retry);
    x->loop->engine_class->unlisten(x->loop, x);
}

void mr__listener_is_gone(mr__listener *x)
{
    x->fd = -1;
    mr__stranger_log_end(&x->full);
    x->next = x->loop->listeners_closed;
    x->loop->listeners_closed = x;
}
