/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_SYSTEM_H
#define MR_PIPELINE_SYSTEM_SYSTEM_H
/* A table of all system calls that can fail for reasons outside the program, and of the clock and
 * the random source. Only system.c calls the real ones; tests replace entries to fail the n-th call
 * or to stop the clock. Each entry behaves like its namesake: -1 and errno on failure (io_uring
 * entries: -errno).
 *
 * thread   any; mr__system_set only before other threads use the table */
#include <dirent.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct io_uring;
struct io_uring_cqe;
struct __kernel_timespec;
struct epoll_event;

typedef struct mr__system {
    int (*open)(const char *path, int flags, mode_t mode);
    /* The same, but fails with ELOOP if a directory on the path, or the file, is a symbolic link. A
     * kernel without openat2 checks the last component only. */
    int (*open_straight)(const char *path, int flags, mode_t mode);
    int (*close)(int fd);
    ssize_t (*pread)(int fd, void *buf, size_t n, off_t offset);
    ssize_t (*preadv2)(int fd, const struct iovec *iov, int n, off_t offset, int flags);
    ssize_t (*read)(int fd, void *buf, size_t n);
    ssize_t (*write)(int fd, const void *buf, size_t n);
    off_t (*lseek)(int fd, off_t offset, int whence);
    int (*fstat)(int fd, struct stat *out);
    int (*stat)(const char *path, struct stat *out);
    int (*lstat)(const char *path, struct stat *out); /* of a link itself */
    int (*fsync)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*rename_exchange)(const char *a, const char *b); /* swaps the two names */
    int (*unlink)(const char *path);
    int (*rmdir)(const char *path);
    int (*flock)(int fd, int operation);
    int (*mkdir)(const char *path, mode_t mode);
    int (*statvfs)(const char *path, struct statvfs *out);
    int (*statfs)(const char *path, struct statfs *out);
    int (*futimens)(int fd, const struct timespec times[2]);
    DIR *(*opendir)(const char *path);
    struct dirent *(*readdir)(DIR *dir);
    int (*closedir)(DIR *dir);
    int (*posix_fadvise)(int fd, off_t offset, off_t len, int advice); /* returns the errno */
    int (*eventfd)(unsigned initial, int flags);
    int (*poll)(struct pollfd *fds, nfds_t n, int timeout_ms);
    int (*clock_gettime)(clockid_t clock, struct timespec *out);
    ssize_t (*getrandom)(void *buf, size_t n, unsigned flags);
    /* sockets and event loops */
    int (*socket)(int domain, int type, int protocol);
    int (*socketpair)(int domain, int type, int protocol, int fds[2]);
    int (*bind)(int fd, const struct sockaddr *at, socklen_t size);
    int (*listen)(int fd, int backlog);
    int (*accept4)(int fd, struct sockaddr *from, socklen_t *size, int flags);
    int (*connect)(int fd, const struct sockaddr *to, socklen_t size);
    ssize_t (*sendmsg)(int fd, const struct msghdr *m, int flags);
    ssize_t (*recv)(int fd, void *buf, size_t n, int flags);
    ssize_t (*recvmsg)(int fd, struct msghdr *m, int flags);
    int (*shutdown)(int fd, int how);
    int (*getsockname)(int fd, struct sockaddr *out, socklen_t *size);
    int (*getpeername)(int fd, struct sockaddr *out, socklen_t *size);
    int (*getsockopt)(int fd, int level, int name, void *v, socklen_t *size);
    int (*setsockopt)(int fd, int level, int name, const void *v, socklen_t size);
    int (*fcntl)(int fd, int command, int v);
    int (*memfd_create)(const char *name, unsigned flags);
    int (*ftruncate)(int fd, off_t size);
    void *(*mmap)(void *at, size_t n, int protection, int flags, int fd, off_t offset);
    int (*munmap)(void *p, size_t n);
    int (*madvise)(void *p, size_t n, int advice);
    int (*pipe2)(int ends[2], int flags);
    ssize_t (*vmsplice)(int pipe, const struct iovec *v, size_t n, unsigned flags);
    ssize_t (*splice)(int from, int to, size_t n, unsigned flags); /* at both current offsets */
    int (*epoll_create1)(int flags);
    int (*epoll_ctl)(int epoll, int op, int fd, struct epoll_event *event);
    int (*epoll_wait)(int epoll, struct epoll_event *events, int n, int timeout_ms);
    int (*uring_init)(unsigned entries, struct io_uring *ring, unsigned flags);
    int (*uring_submit)(struct io_uring *ring);
    /* timeout NULL: none */
    int (*uring_submit_and_wait_timeout)(struct io_uring *ring, struct io_uring_cqe **cqe,
                                         unsigned n, struct __kernel_timespec *timeout);
    int (*uring_wait)(struct io_uring *ring, struct io_uring_cqe **cqe);
    void (*uring_exit)(struct io_uring *ring);
} mr__system;

/* The current table; read this pointer for every call. It and the next two functions are exported
 * for the project's other libraries of the same version only; this header is not installed. */
extern const mr__system *mr__sys;
/* Replaces the table (NULL: restores the real one); the caller keeps it alive. */
void mr__system_set(const mr__system *table);
/* The real table, as a starting point for a replacement. */
const mr__system *mr__system_real(void);

static inline int64_t mr__clock_ns(clockid_t clock)
{
    struct timespec t;
    mr__sys->clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
#endif
