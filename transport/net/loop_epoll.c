/* SPDX-License-Identifier: Apache-2.0 */
/* The loop on epoll. Sockets are registered once, edge-triggered: their flags remember whether they
 * may still be read or written, so that a busy socket only waits for its turn. */
#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "transport/net/loop_engine.h"

enum { EVENTS = 256, ACCEPTS = 64 };

typedef struct engine {
    int epoll, wake;
    struct epoll_event events[EVENTS];
} engine;

/* The kind of an event: the low bits of its pointer. */
enum { ABOUT_WAKE = 0, ABOUT_SOCKET = 1, ABOUT_LISTENER = 2, ABOUT = 3 };

static mr_code watch(engine *e, int fd, uint32_t events, void *p, unsigned about, mr_status *st)
{
    struct epoll_event event = {.events = events, .data.u64 = (uintptr_t)p | about};
    if (mr__sys->epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return mr_fail_errno(st, errno, "epoll refuses a descriptor");
    return MR_OK;
}

static void close_engine(mr__loop *l)
{
    engine *e = l->engine;
    if (e->wake >= 0)
        mr__sys->close(e->wake);
    if (e->epoll >= 0)
        mr__sys->close(e->epoll);
    mr_free(e);
}

static mr_code open_engine(mr__loop *l, mr_status *st)
{
    engine *e = mr_calloc(1, sizeof *e);
    if (!e)
        return mr_fail_memory(st, sizeof *e, "an event loop");
    l->engine = e;
    e->wake = -1;
    e->epoll = mr__sys->epoll_create1(EPOLL_CLOEXEC);
    mr_code rc = MR_OK;
    if (e->epoll < 0 || (e->wake = mr__sys->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        rc = mr_fail_errno(st, errno, "epoll is not available");
    if (rc == MR_OK)
        rc = watch(e, e->wake, EPOLLIN, NULL, ABOUT_WAKE, st);
    if (rc != MR_OK)
        close_engine(l);
    return rc;
}

static void wake(mr__loop *l)
{
    const engine *e = l->engine;
    mr__event_raise(e->wake);
}

static bool arm(mr__listener *x, uint32_t events)
{
    const engine *e = x->loop->engine;
    struct epoll_event event = {.events = events, .data.u64 = (uintptr_t)x | ABOUT_LISTENER};
    return mr__sys->epoll_ctl(e->epoll, EPOLL_CTL_MOD, x->fd, &event) == 0;
}

static void accept_all(mr__listener *x)
{
    for (int i = 0; i < ACCEPTS && !x->closing; i++) {
        int fd = mr__sys->accept4(x->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            x->accepted(x, fd);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            /* The event would be reported again at once (e.g. if descriptors have run out). */
            if (mr__listener_pause(x, errno))
                arm(x, 0);
            return;
        }
    }
}

static void accept_again(mr__loop *l, mr__listener *x)
{
    (void)l;
    if (!arm(x, EPOLLIN))
        mr__listener_pause(x, errno);
}

static void note(mr__loop *l, const struct epoll_event *event)
{
    engine *e = l->engine;
    void *p = (void *)(uintptr_t)(event->data.u64 & ~(uint64_t)ABOUT);
    unsigned about = event->data.u64 & ABOUT;
    if (about == ABOUT_WAKE) {
        uint64_t n;
        while (mr__sys->read(e->wake, &n, sizeof n) < 0 && errno == EINTR)
            ;
    } else if (about == ABOUT_LISTENER) {
        mr__listener *x = p;
        if (!x->closing)
            accept_all(x);
    } else {
        mr__socket *s = p;
        if (event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            s->flags |= MR__SOCKET_READABLE;
        if (event->events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
            s->flags |= MR__SOCKET_WRITABLE;
        mr__socket_serve_later(s);
    }
}

static int timeout_ms(const mr__loop *l, int64_t until_ns)
{
    if (until_ns == INT64_MAX)
        return -1;
    if (until_ns <= l->now_ns)
        return 0;
    int64_t ms = (until_ns - l->now_ns + 999999) / 1000000;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

static mr_code wait_events(mr__loop *l, int64_t until_ns, mr_status *st)
{
    engine *e = l->engine;
    int n = mr__sys->epoll_wait(e->epoll, e->events, EVENTS, timeout_ms(l, until_ns));
    if (n < 0 && errno != EINTR)
        return mr_fail_errno(st, errno, "epoll cannot wait");
    mr__loop_woke(l);
    for (int i = 0; i < n; i++)
        note(l, &e->events[i]);
    return MR_OK;
}

static mr_code add(mr__loop *l, mr__socket *s, const mr__address *to, mr_status *st)
{
    if (s->state == MR__SOCKET_CONNECTING &&
        mr__sys->connect(s->fd, (const struct sockaddr *)&to->to, to->size) != 0 &&
        errno != EINPROGRESS && errno != EINTR) {
        /* Reported like any other end, so that the caller handles errors in one place. */
        mr__socket_fail_errno(s, errno, to->text);
        return MR_OK;
    }
    if (s->state == MR__SOCKET_OPEN)
        s->flags |= MR__SOCKET_READABLE | MR__SOCKET_WRITABLE;
    return watch(l->engine, s->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, s, ABOUT_SOCKET, st);
}

static void finish_connect(mr__socket *s)
{
    int err = 0;
    socklen_t size = sizeof err;
    if (mr__sys->getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &err, &size) != 0)
        err = errno;
    if (err)
        mr__socket_fail_errno(s, err, "cannot connect");
    else
        s->state = MR__SOCKET_OPEN;
}

static void send_queued(mr__socket *s, size_t *budget)
{
    if (s->state == MR__SOCKET_OPEN && (s->flags & MR__SOCKET_WRITABLE) &&
        !mr__socket_send_now(s, budget, false))
        s->flags &= (uint8_t)~MR__SOCKET_WRITABLE;
}

/* On a unix socket, a descriptor may arrive with the bytes. */
static ssize_t receive_some(mr__socket *s, void *p, size_t want)
{
    if (!s->is_local)
        return mr__sys->recv(s->fd, p, want, 0);
    mr__passing room;
    struct iovec v = {p, want};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    mr__expect_descriptor(&m, &room);
    ssize_t n = mr__sys->recvmsg(s->fd, &m, MSG_CMSG_CLOEXEC);
    if (n > 0)
        mr__socket_keep_passed(s, &m);
    return n;
}

static void receive(mr__socket *s, size_t *budget)
{
    while (s->state == MR__SOCKET_OPEN && (s->flags & MR__SOCKET_READABLE) &&
           !(s->flags & MR__SOCKET_PAUSED) && *budget) {
        size_t want = 0;
        void *p = s->class_->room(s, &want);
        if (!p) {
            mr__socket_pause(s);
            return;
        }
        ssize_t n = receive_some(s, p, want);
        if (n > 0) {
            *budget -= (size_t)n < *budget ? (size_t)n : *budget;
            s->class_->received(s, (size_t)n);
        } else if (n == 0) {
            mr__socket_at_end(s);
        } else if (errno == EAGAIN && !(s->flags & MR__SOCKET_MUTE)) {
            s->flags &= (uint8_t)~MR__SOCKET_READABLE;
        } else if (errno != EINTR) {
            mr__socket_fail_errno(s, errno, "cannot receive");
        }
    }
}

/* Removes it explicitly: a forked child may hold the descriptor open, and its events would
 * continue. */
static void forget(mr__loop *l, mr__socket *s)
{
    const engine *e = l->engine;
    mr__sys->epoll_ctl(e->epoll, EPOLL_CTL_DEL, s->fd, NULL);
    mr__sys->close(s->fd);
    mr__socket_is_gone(s);
}

static void serve(mr__loop *l, mr__socket *s)
{
    size_t budget = MR__TURN_BYTES;
    if (s->state == MR__SOCKET_CONNECTING && (s->flags & MR__SOCKET_WRITABLE))
        finish_connect(s);
    if (s->state == MR__SOCKET_OPEN && !(s->flags & MR__SOCKET_STARTED))
        mr__socket_is_open(s);
    send_queued(s, &budget);
    receive(s, &budget);
    if (s->state == MR__SOCKET_CLOSING && !(s->flags & MR__SOCKET_QUEUED))
        forget(l, s);
    else if (budget == 0)
        mr__socket_serve_later(s);
}

static mr_code start_listening(mr__loop *l, mr__listener *x, mr_status *st)
{
    return watch(l->engine, x->fd, EPOLLIN, x, ABOUT_LISTENER, st);
}

static void unlisten(mr__loop *l, mr__listener *x)
{
    const engine *e = l->engine;
    mr__sys->epoll_ctl(e->epoll, EPOLL_CTL_DEL, x->fd, NULL);
    mr__sys->close(x->fd);
    mr__listener_is_gone(x);
}

const mr__loop_engine mr__loop_epoll = {
    .name = "epoll",
    .open = open_engine,
    .close = close_engine,
    .wait = wait_events,
    .wake = wake,
    .add = add,
    .serve = serve,
    .listen = start_listening,
    .accept_again = accept_again,
    .unlisten = unlisten,
};
