/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/system/system.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pipeline/system/late_library.h"

/* Wrappers with a plain address, for functions that are variadic, inline or differently typed in
 * some C libraries. */
static int real_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

static int real_open_straight(const char *path, int flags, mode_t mode)
{
    struct open_how how = {.flags = (unsigned)flags,
                           .mode = flags & O_CREAT ? mode : 0,
                           .resolve = RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    /* EPERM: a sandbox that does not know the call. */
    return fd < 0 && (errno == ENOSYS || errno == EPERM) ? open(path, flags | O_NOFOLLOW, mode)
                                                         : fd;
}

static int real_stat(const char *path, struct stat *out)
{
    return stat(path, out);
}

static int real_lstat(const char *path, struct stat *out)
{
    return lstat(path, out);
}

static int real_fstat(int fd, struct stat *out)
{
    return fstat(fd, out);
}

static int real_rename_exchange(const char *a, const char *b)
{
    return (int)syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, 2U /* RENAME_EXCHANGE */);
}

static int real_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    return poll(fds, n, timeout_ms);
}

static int real_eventfd(unsigned initial, int flags)
{
    return eventfd(initial, flags);
}

static ssize_t real_splice(int from, int to, size_t n, unsigned flags)
{
    return splice(from, NULL, to, NULL, n, flags);
}

static int real_clock_gettime(clockid_t clock, struct timespec *out)
{
    return clock_gettime(clock, out);
}

static ssize_t real_getrandom(void *buf, size_t n, unsigned flags)
{
    return getrandom(buf, n, flags);
}

static int real_bind(int fd, const struct sockaddr *at, socklen_t size)
{
    return bind(fd, at, size);
}

static int real_accept4(int fd, struct sockaddr *from, socklen_t *size, int flags)
{
    return accept4(fd, from, size, flags);
}

static int real_connect(int fd, const struct sockaddr *to, socklen_t size)
{
    return connect(fd, to, size);
}

static int real_getsockname(int fd, struct sockaddr *out, socklen_t *size)
{
    return getsockname(fd, out, size);
}

static int real_getpeername(int fd, struct sockaddr *out, socklen_t *size)
{
    return getpeername(fd, out, size);
}

static int real_fcntl(int fd, int command, int v)
{
    return fcntl(fd, command, v);
}

/* liburing is loaded with the first ring. Without it, io_uring is reported as unsupported. */
#define URING(X)                                                                                   \
    X(io_uring_queue_init)                                                                         \
    X(io_uring_submit)                                                                             \
    X(io_uring_submit_and_wait_timeout)                                                            \
    X(io_uring_wait_cqes)                                                                          \
    X(io_uring_queue_exit)
static struct {
    URING(MR__LATE_MEMBER)
} uring;
static mr__late_library liburing =
    MR__LATE_LIBRARY("io_uring is used", "liburing.so.2", "liburing2", URING, uring);

static int real_uring_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    return mr__late_library_need(&liburing, NULL) == MR_OK
               ? uring.io_uring_queue_init(entries, ring, flags)
               : -ENOSYS;
}

static int real_uring_submit(struct io_uring *ring)
{
    return uring.io_uring_submit(ring);
}

static int real_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
                                              unsigned n, struct __kernel_timespec *timeout)
{
    return uring.io_uring_submit_and_wait_timeout(ring, cqe, n, timeout, NULL);
}

static int real_uring_wait(struct io_uring *ring, struct io_uring_cqe **cqe)
{
    return uring.io_uring_wait_cqes(ring, cqe, 1, NULL, NULL);
}

static void real_uring_exit(struct io_uring *ring)
{
    uring.io_uring_queue_exit(ring);
}

static const mr__system real_table = {
    .open = real_open,
    .open_straight = real_open_straight,
    .close = close,
    .pread = pread,
    .preadv2 = preadv2,
    .read = read,
    .write = write,
    .lseek = lseek,
    .fstat = real_fstat,
    .stat = real_stat,
    .lstat = real_lstat,
    .fsync = fsync,
    .rename = rename,
    .rename_exchange = real_rename_exchange,
    .unlink = unlink,
    .rmdir = rmdir,
    .flock = flock,
    .mkdir = mkdir,
    .statvfs = statvfs,
    .statfs = statfs,
    .futimens = futimens,
    .opendir = opendir,
    .readdir = readdir,
    .closedir = closedir,
    .posix_fadvise = posix_fadvise,
    .eventfd = real_eventfd,
    .poll = real_poll,
    .clock_gettime = real_clock_gettime,
    .getrandom = real_getrandom,
    .socket = socket,
    .socketpair = socketpair,
    .bind = real_bind,
    .listen = listen,
    .accept4 = real_accept4,
    .connect = real_connect,
    .sendmsg = sendmsg,
    .recv = recv,
    .recvmsg = recvmsg,
    .shutdown = shutdown,
    .getsockname = real_getsockname,
    .getpeername = real_getpeername,
    .getsockopt = getsockopt,
    .setsockopt = setsockopt,
    .fcntl = real_fcntl,
    .memfd_create = memfd_create,
    .ftruncate = ftruncate,
    .mmap = mmap,
    .munmap = munmap,
    .madvise = madvise,
    .pipe2 = pipe2,
    .vmsplice = vmsplice,
    .splice = real_splice,
    .epoll_create1 = epoll_create1,
    .epoll_ctl = epoll_ctl,
    .epoll_wait = epoll_wait,
    .uring_init = real_uring_init,
    .uring_submit = real_uring_submit,
    .uring_submit_and_wait_timeout = real_uring_submit_and_wait_timeout,
    .uring_wait = real_uring_wait,
    .uring_exit = real_uring_exit,
};

MR_API const mr__system *mr__sys = &real_table;

MR_API void mr__system_set(const mr__system *table)
{
    mr__sys = table ? table : &real_table;
}

MR_API const mr__system *mr__system_real(void)
{
    return &real_table;
}
