/* SPDX-License-Identifier: Apache-2.0 */
/* Every system call that a dispatcher, a worker and a client make on sockets and to wait, failing
 * at its first, second, ... time: each run ends with the right elements or with an error that says
 * something, and never hangs. MR_FAULT_CALL=recv MR_FAULT_AT=n fails that call alone; with
 * MR_FAULT_SAY, each run says first what is to fail. */
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "pipeline/system.h"
#include "tests/harness.h"
#include "tests/transport/service/cluster.h"

typedef enum call {
    SOCKET,
    SOCKETPAIR,
    BIND,
    LISTEN,
    ACCEPT,
    CONNECT,
    SENDMSG,
    RECV,
    RECVMSG,
    SHUTDOWN,
    GETSOCKNAME,
    GETPEERNAME,
    GETSOCKOPT,
    SETSOCKOPT,
    FCNTL,
    EPOLL_CREATE,
    EPOLL_CTL,
    EPOLL_WAIT,
    EVENTFD,
    READ,
    WRITE,
    POLL,
    URING_INIT,
    URING_SUBMIT,
    URING_WAIT,
    COMPLETION,
    N_CALLS
} call;

static const char *const names[N_CALLS] = {
    "socket",     "socketpair",  "bind",    "listen",        "accept4",     "connect",
    "sendmsg",    "recv",        "recvmsg", "shutdown",      "getsockname", "getpeername",
    "getsockopt", "setsockopt",  "fcntl",   "epoll_create1", "epoll_ctl",   "epoll_wait",
    "eventfd",    "read",        "write",   "poll",          "uring_init",  "uring_submit",
    "uring_wait", "a completion"};

/* What each may fail with, but for EINTR, which all of them may. */
static const int errors[N_CALLS] = {
    EMFILE,     EMFILE,     EADDRINUSE, EADDRINUSE, EMFILE,    ECONNREFUSED, EPIPE,
    ECONNRESET, ECONNRESET, ENOTCONN,   ENOBUFS,    ENOTCONN,  ENOBUFS,      ENOPROTOOPT,
    EBADF,      EMFILE,     ENOMEM,     ENOMEM,     EMFILE,    EIO,          EIO,
    ENOMEM,     ENOMEM,     EAGAIN,     ENOMEM,     ECONNRESET};

static struct {
    atomic_int what, err;
    atomic_int_fast64_t nth, calls; /* nth 0: none */
    atomic_bool seen;
} plan;

static bool fails(call what)
{
    if ((int)what != plan.what || plan.nth == 0 || atomic_fetch_add(&plan.calls, 1) + 1 != plan.nth)
        return false;
    atomic_store(&plan.seen, true);
    errno = plan.err;
    return true;
}

static const mr__system *real(void)
{
    return mr__system_real();
}

static int f_socket(int domain, int type, int protocol)
{
    return fails(SOCKET) ? -1 : real()->socket(domain, type, protocol);
}
static int f_socketpair(int domain, int type, int protocol, int fds[2])
{
    return fails(SOCKETPAIR) ? -1 : real()->socketpair(domain, type, protocol, fds);
}
static int f_bind(int fd, const struct sockaddr *at, socklen_t size)
{
    return fails(BIND) ? -1 : real()->bind(fd, at, size);
}
static int f_listen(int fd, int backlog)
{
    return fails(LISTEN) ? -1 : real()->listen(fd, backlog);
}
static int f_accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
    return fails(ACCEPT) ? -1 : real()->accept4(fd, from, size, flags);
}
static int f_connect(int fd, const struct sockaddr *to, socklen_t size)
{
    return fails(CONNECT) ? -1 : real()->connect(fd, to, size);
}
static ssize_t f_sendmsg(int fd, const struct msghdr *m, int flags)
{
    return fails(SENDMSG) ? -1 : real()->sendmsg(fd, m, flags);
}
static ssize_t f_recv(int fd, void *buf, size_t n, int flags)
{
    return fails(RECV) ? -1 : real()->recv(fd, buf, n, flags);
}
static ssize_t f_recvmsg(int fd, struct msghdr *m, int flags)
{
    return fails(RECVMSG) ? -1 : real()->recvmsg(fd, m, flags);
}
static int f_shutdown(int fd, int how)
{
    return fails(SHUTDOWN) ? -1 : real()->shutdown(fd, how);
}
static int f_getsockname(int fd, struct sockaddr *out, socklen_t *size)
{
    return fails(GETSOCKNAME) ? -1 : real()->getsockname(fd, out, size);
}
static int f_getpeername(int fd, struct sockaddr *out, socklen_t *size)
{
    return fails(GETPEERNAME) ? -1 : real()->getpeername(fd, out, size);
}
static int f_getsockopt(int fd, int level, int name, void *v, socklen_t *size)
{
    return fails(GETSOCKOPT) ? -1 : real()->getsockopt(fd, level, name, v, size);
}
static int f_setsockopt(int fd, int level, int name, const void *v, socklen_t size)
{
    return fails(SETSOCKOPT) ? -1 : real()->setsockopt(fd, level, name, v, size);
}
static int f_fcntl(int fd, int command, int v)
{
    return fails(FCNTL) ? -1 : real()->fcntl(fd, command, v);
}
static int f_epoll_create1(int flags)
{
    return fails(EPOLL_CREATE) ? -1 : real()->epoll_create1(flags);
}
static int f_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    return fails(EPOLL_CTL) ? -1 : real()->epoll_ctl(epoll, op, fd, event);
}
static int f_epoll_wait(int epoll, struct epoll_event *events, int n, int timeout_ms)
{
    return fails(EPOLL_WAIT) ? -1 : real()->epoll_wait(epoll, events, n, timeout_ms);
}
static int f_eventfd(unsigned initial, int flags)
{
    return fails(EVENTFD) ? -1 : real()->eventfd(initial, flags);
}
static ssize_t f_read(int fd, void *buf, size_t n)
{
    return fails(READ) ? -1 : real()->read(fd, buf, n);
}
static ssize_t f_write(int fd, const void *buf, size_t n)
{
    return fails(WRITE) ? -1 : real()->write(fd, buf, n);
}
static int f_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    return fails(POLL) ? -1 : real()->poll(fds, n, timeout_ms);
}
static int f_uring_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    return fails(URING_INIT) ? -plan.err : real()->uring_init(entries, ring, flags);
}
static int f_uring_submit(struct io_uring *ring)
{
    return fails(URING_SUBMIT) ? -plan.err : real()->uring_submit(ring);
}

/* Completions lie in memory that kernel and program share; their results are changed there. A
 * connection that was accepted is closed then: nobody else knows of it. */
static int f_uring_wait(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n,
                        struct __kernel_timespec *timeout)
{
    enum { MOST = 256, ACCEPTED = 3, ABOUT = 7 }; /* see transport/net/loop_uring.c */
    if (fails(URING_WAIT))
        return -plan.err;
    int rc = real()->uring_submit_and_wait_timeout(ring, cqe, n, timeout);
    struct io_uring_cqe *ready[MOST];
    unsigned have = io_uring_peek_batch_cqe(ring, ready, MOST);
    for (unsigned i = 0; i < have; i++) {
        if (ready[i]->res < 0 || !(ready[i]->user_data & ~(uint64_t)ABOUT) || !fails(COMPLETION))
            continue;
        if ((ready[i]->user_data & ABOUT) == ACCEPTED)
            close(ready[i]->res);
        ready[i]->res = -plan.err;
    }
    return rc;
}

static void set_table(void)
{
    static mr__system t;
    t = *real();
    t.socket = f_socket;
    t.socketpair = f_socketpair;
    t.bind = f_bind;
    t.listen = f_listen;
    t.accept4 = f_accept4;
    t.connect = f_connect;
    t.sendmsg = f_sendmsg;
    t.recv = f_recv;
    t.recvmsg = f_recvmsg;
    t.shutdown = f_shutdown;
    t.getsockname = f_getsockname;
    t.getpeername = f_getpeername;
    t.getsockopt = f_getsockopt;
    t.setsockopt = f_setsockopt;
    t.fcntl = f_fcntl;
    t.epoll_create1 = f_epoll_create1;
    t.epoll_ctl = f_epoll_ctl;
    t.epoll_wait = f_epoll_wait;
    t.eventfd = f_eventfd;
    t.read = f_read;
    t.write = f_write;
    t.poll = f_poll;
    t.uring_init = f_uring_init;
    t.uring_submit = f_uring_submit;
    t.uring_submit_and_wait_timeout = f_uring_wait;
    mr__system_set(&t);
}

/* ---- a dispatcher, a worker and a client ---- */

/* patience: seconds after which the client gives up. */
static mr_code try_run(mr__loop_kind loop, call what, int err, int64_t nth, double patience)
{
    cluster c;
    mr_status st;
    size_t n = 0;
    alarm(600); /* each run has its own time */
    mr_test_context("%s: %s fails with %s; MR_FAULT_AT=%d",
                    loop == MR__LOOP_EPOLL ? "epoll" : "auto", names[what], strerror(err),
                    (int)nth);
    if (getenv("MR_FAULT_SAY"))
        fprintf(stderr, "%s fails with %s, call %d\n", names[what], strerror(err), (int)nth);
    plan.what = (int)what;
    plan.err = err;
    plan.nth = nth;
    atomic_store(&plan.calls, 0);
    atomic_store(&plan.seen, false);
    mr_status_init(&st);
    const mr_service_opts o = {.streams = CLUSTER_STREAMS,
                               .connect_timeout = patience,
                               .stall_timeout = patience,
                               .max_outstanding_bytes = 500};
    mr_code rc = cluster_start(&c, loop, &st);
    if (rc == MR_OK)
        rc = cluster_read(&c, &o, loop != MR__LOOP_EPOLL, &n, &st);
    cluster_stop(&c);
    for (int i = 0; i < 2; i++)
        mr_check(c.rc[i] == MR_OK || (c.rc[i] < 0 && c.st[i].message[0]));
    if (rc == MR_END)
        mr_eq_u64(n, CLUSTER_ELEMENTS);
    else
        mr_check(rc < 0 && st.code == rc && st.message[0]);
    return rc;
}

/* One run, of which the n-th such call fails; whether it came to that call. Where it did not, a
 * busy machine may have been slow. */
static bool run(mr__loop_kind loop, call what, int err, int64_t nth)
{
    mr_code rc = try_run(loop, what, err, nth, 1);
    if (rc != MR_END && !atomic_load(&plan.seen))
        rc = try_run(loop, what, err, nth, 300);
    mr_check(rc == MR_END || atomic_load(&plan.seen));
    return atomic_load(&plan.seen);
}

/* In the short run: the first calls, and a sample of those after them. */
static void each(mr__loop_kind loop, call what, int err)
{
    const char *only = getenv("MR_FAULT_AT");
    uint64_t random = mr_test_seed();
    for (int64_t n = only ? strtoll(only, NULL, 10) : 1; run(loop, what, err, n) && !only;)
        n += n < 3 || mr_test_long() ? 1
                                     : 1 + (int64_t)(mr_test_random(&random) % (uint64_t)(n + 4));
}

static void each_call(mr__loop_kind loop)
{
    const char *one = getenv("MR_FAULT_CALL");
    set_table();
    for (call what = 0; what < N_CALLS; what++) {
        if (one && strcmp(one, names[what]) != 0)
            continue;
#ifdef __SANITIZE_ADDRESS__ /* a client whose loop cannot wait keeps what is in flight for good */
        if (what == EPOLL_WAIT || what == URING_WAIT)
            continue;
#endif
        each(loop, what, errors[what]);
        each(loop, what, EINTR);
    }
    mr__system_set(NULL);
}

MR_TEST(any_call_on_a_socket_may_fail_on_epoll)
{
    each_call(MR__LOOP_EPOLL);
}

MR_TEST(any_call_on_a_socket_may_fail_on_io_uring)
{
    each_call(MR__LOOP_AUTO);
}
