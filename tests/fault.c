/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fault.h"

#include <errno.h>
#include <liburing.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pipeline/system/system.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/memory/buffer.h"
#include "tests/harness.h"

static int64_t exact_calls = 300; /* beyond these the short run of the tests samples */

/* What fails next. The kind is written while no other thread uses the tables. */
static struct {
    mr_fault_kind kind;
    int err;
    bool armed, persistent;
    int64_t nth;           /* the call that fails; 0: none */
    unsigned per_thousand; /* instead of nth */
    bool short_reads, no_uring, uncached;
} plan;
static atomic_int_fast64_t calls, faults, live, open_files;
static atomic_uint_fast64_t random_state;

static struct {
    int64_t live, open_files;
    uint64_t random;
    int64_t only; /* MR_FAULT_AT, or -1 */
    mr_fault_kind kind;
    int err;
    bool persistent;
} loop;

static uint64_t draw(void)
{
    uint64_t state = atomic_fetch_add(&random_state, 0x9e3779b97f4a7c15u);
    return mr_test_random(&state);
}

static bool fails(mr_fault_kind kind)
{
    if (!plan.armed || plan.kind != kind)
        return false;
    int64_t call = atomic_fetch_add(&calls, 1) + 1;
    bool hit = plan.per_thousand
                   ? draw() % 1000 < plan.per_thousand
                   : plan.nth > 0 && (plan.persistent ? call >= plan.nth : call == plan.nth);
    if (hit)
        atomic_fetch_add(&faults, 1);
    return hit;
}

/* ---- the allocator table */

static void *count(void *p)
{
    if (p)
        atomic_fetch_add(&live, 1);
    return p;
}

static void *fault_malloc(void *ctx, size_t bytes)
{
    (void)ctx;
    return fails(MR_FAULT_ALLOCATION) ? NULL : count(malloc(bytes));
}

static void *fault_realloc(void *ctx, void *old, size_t bytes)
{
    (void)ctx;
    if (fails(MR_FAULT_ALLOCATION))
        return NULL;
    return old ? realloc(old, bytes) : count(malloc(bytes));
}

static void *fault_aligned_alloc(void *ctx, size_t alignment, size_t bytes)
{
    (void)ctx;
    void *p = NULL;
    if (fails(MR_FAULT_ALLOCATION) || posix_memalign(&p, alignment, bytes) != 0)
        return NULL;
    return count(p);
}

static void fault_free(void *ctx, void *p)
{
    (void)ctx;
    atomic_fetch_sub(&live, 1);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    memset(p, 0xdd, malloc_usable_size(p)); /* what is used after it is seen without a sanitizer */
    __asm__ volatile("" : : "r"(p) : "memory"); /* or the compiler drops stores before a free */
#endif
    free(p);
}

/* ---- the table of system calls */

static bool call_fails(void)
{
    bool hit = fails(MR_FAULT_SYSTEM_CALL);
    if (hit)
        errno = plan.err;
    return hit;
}

/* The same for calls that no signal interrupts. */
static bool quick_call_fails(void)
{
    return plan.err != EINTR && call_fails();
}

static size_t shorter(size_t n)
{
    return plan.short_reads && n > 1 ? 1 + (size_t)(draw() % n) : n;
}

/* The calls that are the real ones where they do not fail. */
#define CALL(result, name, parameters, arguments, fails)                                           \
    static result fault_##name parameters                                                          \
    {                                                                                              \
        return fails() ? -1 : mr__system_real()->name arguments;                                   \
    }
CALL(ssize_t, write, (int fd, const void *buf, size_t n), (fd, buf, n), call_fails)
CALL(off_t, lseek, (int fd, off_t offset, int whence), (fd, offset, whence), quick_call_fails)
CALL(int, fstat, (int fd, struct stat *out), (fd, out), quick_call_fails)
CALL(int, stat, (const char *path, struct stat *out), (path, out), quick_call_fails)
CALL(int, lstat, (const char *path, struct stat *out), (path, out), quick_call_fails)
CALL(int, fsync, (int fd), (fd), call_fails)
CALL(int, rename, (const char *from, const char *to), (from, to), quick_call_fails)
CALL(int, rename_exchange, (const char *a, const char *b), (a, b), quick_call_fails)
CALL(int, rmdir, (const char *path), (path), quick_call_fails)
CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), call_fails)
CALL(int, statvfs, (const char *path, struct statvfs *out), (path, out), call_fails)
CALL(int, statfs, (const char *path, struct statfs *out), (path, out), call_fails)
CALL(int, futimens, (int fd, const struct timespec times[2]), (fd, times), quick_call_fails)
CALL(int, flock, (int fd, int operation), (fd, operation), quick_call_fails)
CALL(int, unlink, (const char *path), (path), quick_call_fails)
CALL(int, ftruncate, (int fd, off_t size), (fd, size), call_fails)
CALL(ssize_t, vmsplice, (int pipe, const struct iovec *v, size_t n, unsigned flags),
     (pipe, v, n, flags), quick_call_fails)
CALL(ssize_t, splice, (int from, int to, size_t n, unsigned flags), (from, to, n, flags),
     call_fails)
CALL(int, madvise, (void *p, size_t n, int advice), (p, n, advice), quick_call_fails)
CALL(int, fcntl, (int fd, int command, int v), (fd, command, v), quick_call_fails)
CALL(int, poll, (struct pollfd * fds, nfds_t n, int timeout_ms), (fds, n, timeout_ms), call_fails)
CALL(ssize_t, getrandom, (void *buf, size_t n, unsigned flags), (buf, n, flags), call_fails)
CALL(int, bind, (int fd, const struct sockaddr *at, socklen_t size), (fd, at, size),
     quick_call_fails)
CALL(int, listen, (int fd, int backlog), (fd, backlog), quick_call_fails)
CALL(int, connect, (int fd, const struct sockaddr *to, socklen_t size), (fd, to, size), call_fails)
CALL(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), call_fails)
CALL(ssize_t, recv, (int fd, void *buf, size_t n, int flags), (fd, buf, n, flags), call_fails)
CALL(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags), call_fails)
CALL(int, shutdown, (int fd, int how), (fd, how), quick_call_fails)
CALL(int, getsockname, (int fd, struct sockaddr *out, socklen_t *size), (fd, out, size),
     quick_call_fails)
CALL(int, getpeername, (int fd, struct sockaddr *out, socklen_t *size), (fd, out, size),
     quick_call_fails)
CALL(int, getsockopt, (int fd, int level, int name, void *v, socklen_t *size),
     (fd, level, name, v, size), quick_call_fails)
CALL(int, setsockopt, (int fd, int level, int name, const void *v, socklen_t size),
     (fd, level, name, v, size), quick_call_fails)
CALL(int, epoll_ctl, (int epoll, int op, int fd, struct epoll_event *event), (epoll, op, fd, event),
     quick_call_fails)

/* Calls that return a file. */
#define OPENS(name, parameters, arguments, fails)                                                  \
    static int fault_##name parameters                                                             \
    {                                                                                              \
        int opened = fails() ? -1 : mr__system_real()->name arguments;                             \
        if (opened >= 0)                                                                           \
            atomic_fetch_add(&open_files, 1);                                                      \
        return opened;                                                                             \
    }
OPENS(open, (const char *path, int flags, mode_t mode), (path, flags, mode), call_fails)
OPENS(open_straight, (const char *path, int flags, mode_t mode), (path, flags, mode), call_fails)
OPENS(eventfd, (unsigned initial, int flags), (initial, flags), call_fails)
OPENS(memfd_create, (const char *name, unsigned flags), (name, flags), quick_call_fails)
OPENS(socket, (int domain, int type, int protocol), (domain, type, protocol), quick_call_fails)
OPENS(accept4, (int fd, struct sockaddr *from, socklen_t *size, int flags), (fd, from, size, flags),
      call_fails)
OPENS(epoll_create1, (int flags), (flags), quick_call_fails)

/* A close that fails has closed the file all the same. */
static int fault_close(int fd)
{
    int rc = mr__system_real()->close(fd);
    if (rc == 0)
        atomic_fetch_sub(&open_files, 1);
    return call_fails() ? -1 : rc;
}

static ssize_t fault_pread(int fd, void *buf, size_t n, off_t offset)
{
    return call_fails() ? -1 : mr__system_real()->pread(fd, buf, shorter(n), offset);
}

static ssize_t fault_preadv2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
    if (call_fails())
        return -1;
    if (plan.uncached && (flags & RWF_NOWAIT)) {
        errno = EAGAIN;
        return -1;
    }
    if (n < 1 || !plan.short_reads)
        return mr__system_real()->preadv2(fd, iov, n, offset, flags);
    struct iovec first = {iov[0].iov_base, shorter(iov[0].iov_len)};
    return mr__system_real()->preadv2(fd, &first, 1, offset, flags);
}

static ssize_t fault_read(int fd, void *buf, size_t n)
{
    return call_fails() ? -1 : mr__system_real()->read(fd, buf, shorter(n));
}

static DIR *fault_opendir(const char *path)
{
    DIR *dir = quick_call_fails() ? NULL : mr__system_real()->opendir(path);
    if (dir)
        atomic_fetch_add(&open_files, 1);
    return dir;
}

static struct dirent *fault_readdir(DIR *dir)
{
    return quick_call_fails() ? NULL : mr__system_real()->readdir(dir);
}

static int fault_closedir(DIR *dir)
{
    int rc = mr__system_real()->closedir(dir);
    if (rc == 0)
        atomic_fetch_sub(&open_files, 1);
    return call_fails() ? -1 : rc;
}

static int fault_posix_fadvise(int fd, off_t offset, off_t len, int advice)
{
    return quick_call_fails() ? plan.err
                              : mr__system_real()->posix_fadvise(fd, offset, len, advice);
}

static int fault_pipe2(int ends[2], int flags)
{
    int rc = quick_call_fails() ? -1 : mr__system_real()->pipe2(ends, flags);
    if (rc == 0)
        atomic_fetch_add(&open_files, 2);
    return rc;
}

static int fault_socketpair(int domain, int type, int protocol, int fds[2])
{
    int rc = quick_call_fails() ? -1 : mr__system_real()->socketpair(domain, type, protocol, fds);
    if (rc == 0)
        atomic_fetch_add(&open_files, 2);
    return rc;
}

static void *fault_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return quick_call_fails() ? MAP_FAILED
                              : mr__system_real()->mmap(at, n, protection, flags, fd, offset);
}

static int fault_munmap(void *p, size_t n)
{
    return mr__system_real()->munmap(p, n);
}

/* Not failed here: a loop that cannot wait cannot close its sockets, and is abandoned with them on
 * purpose (transport/service/socket_faults.c has it). */
static int fault_epoll_wait(int epoll, struct epoll_event *events, int n, int timeout_ms)
{
    return mr__system_real()->epoll_wait(epoll, events, n, timeout_ms);
}

/* A clock does not fail. */
static int fault_clock_gettime(clockid_t clock, struct timespec *out)
{
    return mr__system_real()->clock_gettime(clock, out);
}

static int fault_uring_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    if (plan.no_uring)
        return -ENOSYS;
    return quick_call_fails() ? -plan.err : mr__system_real()->uring_init(entries, ring, flags);
}

static int fault_uring_submit(struct io_uring *ring)
{
    return call_fails() ? -plan.err : mr__system_real()->uring_submit(ring);
}

/* The completion lies in the ring that kernel and program share: its result is changed there. Those
 * without user data are the library's own wake-ups. */
static int fault_uring_wait(struct io_uring *ring, struct io_uring_cqe **cqe)
{
    if (call_fails())
        return -plan.err;
    int rc = mr__system_real()->uring_wait(ring, cqe);
    if (rc == 0 && *cqe && (*cqe)->user_data && (*cqe)->res > 0) {
        if (fails(MR_FAULT_COMPLETION))
            (*cqe)->res = -plan.err;
        else
            (*cqe)->res = (int)shorter((size_t)(*cqe)->res);
    }
    return rc;
}

static void fault_uring_exit(struct io_uring *ring)
{
    mr__system_real()->uring_exit(ring);
}

static const mr__system fault_table = {
    .open = fault_open,
    .open_straight = fault_open_straight,
    .close = fault_close,
    .pread = fault_pread,
    .preadv2 = fault_preadv2,
    .read = fault_read,
    .write = fault_write,
    .lseek = fault_lseek,
    .fstat = fault_fstat,
    .stat = fault_stat,
    .lstat = fault_lstat,
    .fsync = fault_fsync,
    .rename = fault_rename,
    .rename_exchange = fault_rename_exchange,
    .unlink = fault_unlink,
    .rmdir = fault_rmdir,
    .flock = fault_flock,
    .mkdir = fault_mkdir,
    .statvfs = fault_statvfs,
    .statfs = fault_statfs,
    .futimens = fault_futimens,
    .opendir = fault_opendir,
    .readdir = fault_readdir,
    .closedir = fault_closedir,
    .posix_fadvise = fault_posix_fadvise,
    .eventfd = fault_eventfd,
    .memfd_create = fault_memfd_create,
    .ftruncate = fault_ftruncate,
    .fcntl = fault_fcntl,
    .mmap = fault_mmap,
    .munmap = fault_munmap,
    .madvise = fault_madvise,
    .pipe2 = fault_pipe2,
    .vmsplice = fault_vmsplice,
    .splice = fault_splice,
    .poll = fault_poll,
    .clock_gettime = fault_clock_gettime,
    .getrandom = fault_getrandom,
    .socket = fault_socket,
    .socketpair = fault_socketpair,
    .bind = fault_bind,
    .listen = fault_listen,
    .accept4 = fault_accept4,
    .connect = fault_connect,
    .sendmsg = fault_sendmsg,
    .recv = fault_recv,
    .recvmsg = fault_recvmsg,
    .shutdown = fault_shutdown,
    .getsockname = fault_getsockname,
    .getpeername = fault_getpeername,
    .getsockopt = fault_getsockopt,
    .setsockopt = fault_setsockopt,
    .epoll_create1 = fault_epoll_create1,
    .epoll_ctl = fault_epoll_ctl,
    .epoll_wait = fault_epoll_wait,
    .uring_init = fault_uring_init,
    .uring_submit = fault_uring_submit,
    .uring_wait = fault_uring_wait,
    .uring_exit = fault_uring_exit,
};

/* ---- plans */

void mr_fault_count(void)
{
    static const mr_allocator allocator = {fault_malloc, fault_realloc, fault_aligned_alloc,
                                           fault_free, NULL};
    static bool installed;
    if (installed)
        return;
    installed = true;
    mr_allocator_set(&allocator);
    mr__system_set(&fault_table);
}

void mr_fault_off(void)
{
    memset(&plan, 0, sizeof plan);
}

static void disarm(void)
{
    plan.armed = plan.persistent = false;
    plan.nth = 0;
    plan.per_thousand = 0;
}

static void arm(mr_fault_kind kind, int err)
{
    mr_fault_count();
    plan.kind = kind;
    plan.err = err;
    plan.armed = true;
    atomic_store(&calls, 0);
    atomic_store(&faults, 0);
}

void mr_fault_random(mr_fault_kind kind, int err, unsigned per_thousand, uint64_t seed)
{
    atomic_store(&random_state, seed);
    plan.per_thousand = per_thousand;
    arm(kind, err);
}

void mr_fault_short_reads(uint64_t seed)
{
    mr_fault_count();
    atomic_store(&random_state, seed);
    plan.short_reads = true;
}

void mr_fault_uncached(void)
{
    mr_fault_count();
    plan.uncached = true;
}

void mr_fault_no_uring(void)
{
    mr_fault_count();
    plan.no_uring = true;
}

bool mr_fault_seen(void)
{
    return atomic_load(&faults) > 0;
}

int64_t mr_fault_live_allocations(void)
{
    return atomic_load(&live);
}

int64_t mr_fault_open_files(void)
{
    return atomic_load(&open_files);
}

mr_code mr__fault_expect(const char *file, int line, const char *call, mr_code rc,
                         const mr_status *st)
{
    if (rc >= 0)
        return rc;
    if (!mr_fault_seen())
        mr__code_is(file, line, call, rc, MR_OK, st);
    if (plan.kind == MR_FAULT_ALLOCATION && rc != MR_RESOURCE_EXHAUSTED)
        mr__code_is(file, line, call, rc, MR_RESOURCE_EXHAUSTED, st);
    if (st && (st->code != rc || !st->message[0]))
        mr__test_fail(file, line, "%s: returned %s but its status says %s: \"%s\"", call,
                      mr_code_text(rc), mr_code_text(st->code), st->message);
    return rc;
}

/* ---- the loop: n = -1 before the first run, then 0 (no fault), 1, 2, ... */

void mr_fault_exact(int64_t calls_to_try)
{
    exact_calls = calls_to_try;
}

int64_t mr__fault_start(mr_fault_kind kind, int err, bool persistent)
{
    const char *at = getenv("MR_FAULT_AT");
    disarm();
    arm(kind, err);
    loop.kind = kind;
    loop.err = err;
    loop.persistent = persistent;
    loop.random = mr_test_seed();
    loop.only = at ? strtoll(at, NULL, 10) : -1;
    return -1;
}

static void check_nothing_left(int64_t n)
{
    mr_buffer_pool_trim();
    if (mr_fault_live_allocations() != loop.live)
        mr__test_fail(__FILE__, __LINE__, "%lld allocations left over by the run with fault %lld",
                      (long long)(mr_fault_live_allocations() - loop.live), (long long)n);
    if (mr_fault_open_files() != loop.open_files)
        mr__test_fail(__FILE__, __LINE__, "%lld files left open by the run with fault %lld",
                      (long long)(mr_fault_open_files() - loop.open_files), (long long)n);
}

static int64_t next_call(int64_t n)
{
    if (loop.only > n)
        return loop.only;
    bool races = mr_test_for_races(); /* the loop is exact in one thread only */
    if (n < (races ? 3 : exact_calls) || mr_test_long())
        return n + 1;
    uint64_t most = (uint64_t)(races ? n / 4 + 32 : n / 16 + 8);
    return n + 1 + (int64_t)(mr_test_random(&loop.random) % most);
}

bool mr__fault_step(int64_t *n)
{
    plan.armed = false;
    if (*n > 0)
        check_nothing_left(*n);
    if (*n > 0 && (!mr_fault_seen() || *n == loop.only)) {
        mr_test_context("%s", "");
        disarm();
        return false;
    }
    if (*n == 0) {
        mr_buffer_pool_trim();
        loop.live = mr_fault_live_allocations();
        loop.open_files = mr_fault_open_files();
    }
    *n = *n < 0 ? 0 : next_call(*n);
    mr_test_context("repeat with MR_FAULT_AT=%lld", (long long)*n);
    plan.kind = loop.kind; /* again: a body may have ended with mr_fault_off */
    plan.err = loop.err;
    plan.persistent = loop.persistent;
    plan.nth = *n;
    atomic_store(&calls, 0);
    atomic_store(&faults, 0);
    plan.armed = true;
    return true;
}
