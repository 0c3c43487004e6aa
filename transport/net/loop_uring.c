/* SPDX-License-Identifier: Apache-2.0 */
/* The loop on io_uring: one receive, one send and one connect per socket may be in flight; the call
 * that waits also submits the turn's operations. Bytes are received directly into the memory that
 * `room` returns; buffers provided to the kernel are not used, because data would have to be copied
 * out of them. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "transport/net/loop_engine.h"

enum { ENTRIES = 256 };

/* The kind of a completion: the low bits of its pointer; the first three are also the bits of
 * `in_flight`. */
enum { RECEIVE = 1, SEND = 2, CONNECT = 4, ACCEPT = 3, WAKE = 5, IGNORE = 6, ABOUT = 7 };

typedef struct engine {
    struct io_uring ring;
    int wake;
    uint64_t woken; /* the result of reading `wake` */
} engine;

/* The memory that a socket's operations use while they are in flight. */
typedef struct socket_op {
    struct msghdr message;
    struct iovec v[MR__SEND_PIECES];
    /* local: a descriptor may arrive with the bytes */
    struct msghdr received;
    struct iovec into;
    mr__passing passed;
    mr__address to;
    bool cancelled;
    bool waits; /* the operation in flight as SEND waits until s is writable */
} socket_op;

/* An entry to fill in; NULL only if the kernel accepts no submissions. */
static struct io_uring_sqe *entry(engine *e)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&e->ring);
    for (int i = 0; !sqe && i < 100; i++) {
        int rc = mr__sys->uring_submit(&e->ring);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY)
            return NULL;
        sqe = io_uring_get_sqe(&e->ring);
    }
    return sqe;
}

/* io_uring_prep_* overwrite the whole entry, so the pointer is stored last. */
static void about(struct io_uring_sqe *sqe, const void *p, unsigned what)
{
    sqe->user_data = (uintptr_t)p | what;
}

static bool read_wake(engine *e)
{
    struct io_uring_sqe *sqe = entry(e);
    if (!sqe)
        return false;
    io_uring_prep_read(sqe, e->wake, &e->woken, sizeof e->woken, 0);
    about(sqe, NULL, WAKE);
    return true;
}

static void close_engine(mr__loop *l)
{
    engine *e = l->engine;
    mr__sys->uring_exit(&e->ring);
    if (e->wake >= 0)
        mr__sys->close(e->wake);
    mr_free(e);
}

static mr_code open_engine(mr__loop *l, mr_status *st)
{
    engine *e = mr_calloc(1, sizeof *e);
    if (!e)
        return mr_fail_memory(st, sizeof *e, "an event loop");
    int rc = mr__sys->uring_init(ENTRIES, &e->ring, 0);
    if (rc < 0) {
        mr_free(e);
        return mr_fail_errno(st, -rc, "io_uring is not available");
    }
    l->engine = e;
    e->wake = mr__sys->eventfd(0, EFD_CLOEXEC);
    if (e->wake < 0 || !read_wake(e)) {
        mr_code code = mr_fail_errno(st, errno, "io_uring is not available");
        close_engine(l);
        return code;
    }
    return MR_OK;
}

static void wake(mr__loop *l)
{
    const engine *e = l->engine;
    mr__event_raise(e->wake);
}

/* ---- submitting ---- */

static void no_entry(mr__socket *s)
{
    mr__socket_fail_errno(s, EAGAIN, "io_uring accepts no more work");
}

static void submit_receive(engine *e, mr__socket *s)
{
    size_t n = 0;
    void *p = s->class_->room(s, &n);
    if (!p) {
        mr__socket_pause(s);
        return;
    }
    struct io_uring_sqe *sqe = entry(e);
    if (!sqe) {
        no_entry(s);
        return;
    }
    if (s->is_local) {
        socket_op *op = s->op;
        op->into = (struct iovec){p, n};
        op->received = (struct msghdr){.msg_iov = &op->into, .msg_iovlen = 1};
        mr__expect_descriptor(&op->received, &op->passed);
        io_uring_prep_recvmsg(sqe, s->fd, &op->received, MSG_CMSG_CLOEXEC);
    } else {
        io_uring_prep_recv(sqe, s->fd, p, n, 0);
    }
    about(sqe, s, RECEIVE);
    s->in_flight |= RECEIVE;
}

static void submit_send(engine *e, mr__socket *s)
{
    socket_op *op = s->op;
    const void *pages;
    size_t lent;
    op->message = (struct msghdr){.msg_iov = op->v};
    mr__socket_gather(s, &op->message, MR__SEND_PIECES, NULL, &pages, &lent);
    if (op->message.msg_iovlen == 0) {
        mr__socket_sent(s, 0);
        return;
    }
    struct io_uring_sqe *sqe = entry(e);
    if (!sqe) {
        no_entry(s);
        return;
    }
    io_uring_prep_sendmsg(sqe, s->fd, &op->message, MSG_NOSIGNAL | MSG_WAITALL);
    about(sqe, s, SEND);
    s->in_flight |= SEND;
}

/* Lent pages are sent by system calls: with io_uring, each would block a kernel thread. Sends to
 * processes on this host are short and happen at once: a completion would cost a turn. */
static bool sends_by_calls(const mr__socket *s)
{
    return s->is_local || mr__socket_lends(s);
}

static void send_by_calls(engine *e, mr__socket *s)
{
    socket_op *op = s->op;
    size_t budget = MR__TURN_BYTES;
    if (mr__socket_send_now(s, &budget, true)) {
        if (s->first && s->state == MR__SOCKET_OPEN)
            mr__socket_serve_later(s);
        return;
    }
    struct io_uring_sqe *sqe = entry(e);
    if (!sqe) {
        no_entry(s);
        return;
    }
    io_uring_prep_poll_add(sqe, s->fd, POLLOUT);
    about(sqe, s, SEND);
    s->in_flight |= SEND;
    op->waits = true;
}

/* Cancels the operations in flight; their completions follow. */
static void cancel_all(engine *e, mr__socket *s)
{
    socket_op *op = s->op;
    if (op->cancelled)
        return;
    op->cancelled = true;
    mr__sys->shutdown(s->fd, SHUT_RDWR);
    for (unsigned what = RECEIVE; what <= CONNECT; what <<= 1) {
        struct io_uring_sqe *sqe = s->in_flight & what ? entry(e) : NULL;
        if (!sqe)
            continue;
        io_uring_prep_cancel64(sqe, (uintptr_t)s | what, 0);
        about(sqe, NULL, IGNORE);
    }
}

static void serve(mr__loop *l, mr__socket *s)
{
    engine *e = l->engine;
    if (s->state == MR__SOCKET_OPEN && !(s->flags & MR__SOCKET_STARTED))
        mr__socket_is_open(s);
    if (s->state == MR__SOCKET_OPEN && s->first && !(s->in_flight & SEND) &&
        !(s->flags & MR__SOCKET_MUTE))
        (sends_by_calls(s) ? send_by_calls : submit_send)(e, s);
    /* A local peer may have stopped reading alone: what it has sent is received, and then ends. */
    if (s->state == MR__SOCKET_OPEN && s->is_local && (s->flags & MR__SOCKET_MUTE))
        mr__sys->shutdown(s->fd, SHUT_RD);
    if (s->state == MR__SOCKET_OPEN && !(s->in_flight & RECEIVE) && !(s->flags & MR__SOCKET_PAUSED))
        submit_receive(e, s);
    if (s->state != MR__SOCKET_CLOSING || (s->flags & MR__SOCKET_QUEUED))
        return;
    if (s->in_flight) {
        cancel_all(e, s);
        return;
    }
    mr__sys->close(s->fd);
    mr_free(s->op);
    mr__socket_is_gone(s);
}

/* io_uring returns EAGAIN for non-blocking descriptors instead of waiting. */
static void let_block(int fd)
{
    int flags = mr__sys->fcntl(fd, F_GETFL, 0);
    if (flags >= 0)
        mr__sys->fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

static mr_code add(mr__loop *l, mr__socket *s, const mr__address *to, mr_status *st)
{
    socket_op *op = mr_calloc(1, sizeof *op);
    if (!op)
        return mr_fail_memory(st, sizeof *op, "a socket");
    s->op = op;
    let_block(s->fd);
    if (s->state == MR__SOCKET_OPEN)
        return MR_OK;
    op->to = *to;
    struct io_uring_sqe *sqe = entry(l->engine);
    if (!sqe) {
        mr_free(op);
        return mr_fail_errno(st, EAGAIN, "io_uring accepts no more work");
    }
    io_uring_prep_connect(sqe, s->fd, (const struct sockaddr *)&op->to.to, op->to.size);
    about(sqe, s, CONNECT);
    s->in_flight |= CONNECT;
    return MR_OK;
}

/* ---- listeners ---- */

static bool submit_accept(engine *e, mr__listener *x)
{
    struct io_uring_sqe *sqe = entry(e);
    if (!sqe)
        return false;
    io_uring_prep_multishot_accept(sqe, x->fd, NULL, NULL, SOCK_CLOEXEC);
    about(sqe, x, ACCEPT);
    x->in_flight = 1;
    return true;
}

static mr_code start_listening(mr__loop *l, mr__listener *x, mr_status *st)
{
    let_block(x->fd);
    if (!submit_accept(l->engine, x))
        return mr_fail_errno(st, EAGAIN, "io_uring accepts no more work");
    return MR_OK;
}

static void accept_again(mr__loop *l, mr__listener *x)
{
    if (!submit_accept(l->engine, x))
        mr__listener_pause(x, EAGAIN);
}

static void unlisten(mr__loop *l, mr__listener *x)
{
    struct io_uring_sqe *sqe = x->in_flight ? entry(l->engine) : NULL;
    if (sqe) {
        io_uring_prep_cancel64(sqe, (uintptr_t)x | ACCEPT, 0);
        about(sqe, NULL, IGNORE);
        return;
    }
    mr__sys->close(x->fd);
    mr__listener_is_gone(x);
}

static void accepted(mr__listener *x, int res, bool more)
{
    x->in_flight = more;
    if (x->closing) {
        if (res >= 0)
            mr__sys->close(res);
        if (!more) {
            mr__sys->close(x->fd);
            mr__listener_is_gone(x);
        }
        return;
    }
    if (res >= 0)
        x->accepted(x, res);
    if (more || x->closing)
        return;
    if (res < 0 && res != -EINTR && res != -ECONNABORTED)
        mr__listener_pause(x, -res);
    else
        accept_again(x->loop, x);
}

/* ---- completions ---- */

static void completed(mr__socket *s, unsigned what, int res)
{
    socket_op *op = s->op;
    s->in_flight &= (uint8_t)~what;
    mr__socket_serve_later(s);
    if (what == RECEIVE && res > 0 && s->is_local)
        mr__socket_keep_passed(s, &op->received);
    if (s->state == MR__SOCKET_CLOSING)
        return;
    bool again = res == -EINTR || res == -EAGAIN;
    if (what == CONNECT) {
        if (res < 0)
            mr__socket_fail_errno(s, -res, "cannot connect");
        else
            s->state = MR__SOCKET_OPEN;
    } else if (what == SEND && op->waits) {
        op->waits = false; /* the next send will return any error */
    } else if (what == SEND) {
        if (res >= 0)
            mr__socket_sent(s, (size_t)res);
        else if (!again)
            mr__socket_cannot_send(s, -res);
    } else if (res > 0) {
        s->class_->received(s, (size_t)res);
    } else if (res == 0) {
        mr__socket_at_end(s);
    } else if (!again) {
        mr__socket_fail_errno(s, -res, "cannot receive");
    }
}

static void complete(mr__loop *l, const struct io_uring_cqe *cqe)
{
    void *p = (void *)(uintptr_t)(cqe->user_data & ~(uint64_t)ABOUT);
    unsigned what = cqe->user_data & ABOUT;
    if (what == WAKE)
        read_wake(l->engine);
    else if (what == ACCEPT)
        accepted(p, cqe->res, cqe->flags & IORING_CQE_F_MORE);
    else if (what != IGNORE)
        completed(p, what, cqe->res);
}

static mr_code wait_events(mr__loop *l, int64_t until_ns, mr_status *st)
{
    engine *e = l->engine;
    struct io_uring_cqe *cqe = NULL;
    int64_t ns = until_ns > l->now_ns ? until_ns - l->now_ns : 0;
    struct __kernel_timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    int rc = mr__sys->uring_submit_and_wait_timeout(&e->ring, &cqe, 1,
                                                    until_ns == INT64_MAX ? NULL : &t);
    if (rc < 0 && rc != -ETIME && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY)
        return mr_fail_errno(st, -rc, "io_uring cannot wait");
    mr__loop_woke(l);
    struct io_uring_cqe *ready[ENTRIES];
    unsigned n;
    while ((n = io_uring_peek_batch_cqe(&e->ring, ready, ENTRIES)) > 0) {
        for (unsigned i = 0; i < n; i++)
            complete(l, ready[i]);
        io_uring_cq_advance(&e->ring, n);
    }
    return MR_OK;
}

const mr__loop_engine mr__loop_uring = {
    .name = "io_uring",
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
