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

#include "pipeline/system/system.h"
#include "tests/fault_calls.h"
#include "tests/harness.h"
#include "tests/transport/service/cluster.h"

/* What each may fail with, but for EINTR, which all of them may. */
typedef struct call {
    const char *name;
    int err;
} call;
static const call calls[] = {
    {"socket", EMFILE},       {"socketpair", EMFILE},
    {"bind", EADDRINUSE},     {"listen", EADDRINUSE},
    {"accept4", EMFILE},      {"connect", ECONNREFUSED},
    {"sendmsg", EPIPE},       {"recv", ECONNRESET},
    {"recvmsg", ECONNRESET},  {"shutdown", ENOTCONN},
    {"getsockname", ENOBUFS}, {"getpeername", ENOTCONN},
    {"getsockopt", ENOBUFS},  {"setsockopt", ENOPROTOOPT},
    {"fcntl", EBADF},         {"epoll_create1", EMFILE},
    {"epoll_ctl", ENOMEM},    {"epoll_wait", ENOMEM},
    {"eventfd", EMFILE},      {"read", EIO},
    {"write", EIO},           {"poll", ENOMEM},
    {"uring_init", ENOMEM},   {"uring_submit", EAGAIN},
    {"uring_wait", ENOMEM},   {"a completion", ECONNRESET},
    {"pipe2", EMFILE},        {"vmsplice", ENOSYS},
    {"splice", ECONNRESET},
};
static const char uring_wait[] = "uring_wait", completion[] = "a completion";

static struct {
    const char *_Atomic what;
    atomic_int err;
    atomic_int_fast64_t nth, calls; /* nth 0: none */
    atomic_bool seen;
} plan;

static bool fails(const char *what)
{
    if (plan.nth == 0 || strcmp(what, plan.what) != 0 ||
        atomic_fetch_add(&plan.calls, 1) + 1 != plan.nth)
        return false;
    atomic_store(&plan.seen, true);
    errno = plan.err;
    return true;
}

/* Completions are in memory that kernel and program share; their results are changed there. A
 * connection that was accepted is closed then, since no other code knows of it. */
static int f_uring_wait(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n,
                        struct __kernel_timespec *timeout)
{
    enum { MOST = 256, ACCEPTED = 3, ABOUT = 7 }; /* see transport/net/loop_uring.c */
    if (fails(uring_wait))
        return -plan.err;
    int rc = mr__system_real()->uring_submit_and_wait_timeout(ring, cqe, n, timeout);
    struct io_uring_cqe *ready[MOST];
    unsigned have = io_uring_peek_batch_cqe(ring, ready, MOST);
    for (unsigned i = 0; i < have; i++) {
        if (ready[i]->res < 0 || !(ready[i]->user_data & ~(uint64_t)ABOUT) || !fails(completion))
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
    t = *mr__system_real();
    mr_fault_calls(&t,
                   "socket socketpair bind listen accept4 connect sendmsg recv recvmsg shutdown "
                   "getsockname getpeername getsockopt setsockopt fcntl epoll_create1 epoll_ctl "
                   "epoll_wait eventfd read write poll uring_init uring_submit pipe2 vmsplice "
                   "splice",
                   fails);
    t.uring_submit_and_wait_timeout = f_uring_wait;
    mr__system_set(&t);
}

/* ---- a dispatcher, a worker and a client ---- */

/* patience: seconds after which the client gives up. */
static mr_code try_run(mr__loop_kind loop, const char *what, int err, int64_t nth, double patience)
{
    cluster c;
    mr_status st;
    size_t n = 0;
    alarm(600); /* each run has its own time */
    mr_test_context("%s: %s fails with %s; MR_FAULT_AT=%d",
                    loop == MR__LOOP_EPOLL ? "epoll" : "auto", what, strerror(err), (int)nth);
    if (getenv("MR_FAULT_SAY"))
        fprintf(stderr, "%s fails with %s, call %d\n", what, strerror(err), (int)nth);
    plan.what = what;
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
static bool run(mr__loop_kind loop, const char *what, int err, int64_t nth)
{
    mr_code rc = try_run(loop, what, err, nth, 1);
    if (rc != MR_END && !atomic_load(&plan.seen))
        rc = try_run(loop, what, err, nth, 300);
    mr_check(rc == MR_END || atomic_load(&plan.seen));
    return atomic_load(&plan.seen);
}

/* In the short run: the first calls, and a sample of those after them. */
static void each(mr__loop_kind loop, const char *what, int err)
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
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const char *what = calls[i].name;
        if (one && strcmp(one, what) != 0)
            continue;
#ifdef __SANITIZE_ADDRESS__ /* a client whose loop cannot wait keeps what is in flight for good */
        if (strcmp(what, "epoll_wait") == 0 || strcmp(what, uring_wait) == 0)
            continue;
#endif
        each(loop, what, calls[i].err);
        each(loop, what, EINTR);
    }
    mr__system_set(NULL);
}

MR_TEST_SLOW(any_call_on_a_socket_may_fail_on_epoll)
{
    each_call(MR__LOOP_EPOLL);
}

MR_TEST_SLOW(any_call_on_a_socket_may_fail_on_io_uring)
{
    each_call(MR__LOOP_AUTO);
}
