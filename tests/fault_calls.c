/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fault_calls.h"

#include <errno.h>
#include <string.h>

#include "tests/harness.h"

static mr_call_fails asked;

/* result, name, parameters, arguments, and what a call that failed returns */
#define CALLS                                                                                      \
    CALL(int, open, (const char *path, int flags, mode_t mode), (path, flags, mode), -1)           \
    CALL(int, open_straight, (const char *path, int flags, mode_t mode), (path, flags, mode), -1)  \
    CALL(ssize_t, read, (int fd, void *buf, size_t n), (fd, buf, n), -1)                           \
    CALL(ssize_t, write, (int fd, const void *buf, size_t n), (fd, buf, n), -1)                    \
    CALL(int, stat, (const char *path, struct stat *out), (path, out), -1)                         \
    CALL(int, fsync, (int fd), (fd), -1)                                                           \
    CALL(int, rename, (const char *from, const char *to), (from, to), -1)                          \
    CALL(int, rename_exchange, (const char *a, const char *b), (a, b), -1)                         \
    CALL(int, unlink, (const char *path), (path), -1)                                              \
    CALL(int, rmdir, (const char *path), (path), -1)                                               \
    CALL(int, flock, (int fd, int operation), (fd, operation), -1)                                 \
    CALL(int, mkdir, (const char *path, mode_t mode), (path, mode), -1)                            \
    CALL(DIR *, opendir, (const char *path), (path), NULL)                                         \
    CALL(struct dirent *, readdir, (DIR * dir), (dir), NULL)                                       \
    CALL(int, eventfd, (unsigned initial, int flags), (initial, flags), -1)                        \
    CALL(int, poll, (struct pollfd * fds, nfds_t n, int timeout_ms), (fds, n, timeout_ms), -1)     \
    CALL(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1)          \
    CALL(int, socketpair, (int domain, int type, int protocol, int fds[2]),                        \
         (domain, type, protocol, fds), -1)                                                        \
    CALL(int, bind, (int fd, const struct sockaddr *at, socklen_t size), (fd, at, size), -1)       \
    CALL(int, listen, (int fd, int backlog), (fd, backlog), -1)                                    \
    CALL(int, accept4, (int fd, struct sockaddr *from, socklen_t *size, int flags),                \
         (fd, from, size, flags), -1)                                                              \
    CALL(int, connect, (int fd, const struct sockaddr *to, socklen_t size), (fd, to, size), -1)    \
    CALL(ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags), -1)        \
    CALL(ssize_t, recv, (int fd, void *buf, size_t n, int flags), (fd, buf, n, flags), -1)         \
    CALL(ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags), -1)              \
    CALL(int, shutdown, (int fd, int how), (fd, how), -1)                                          \
    CALL(int, getsockname, (int fd, struct sockaddr *out, socklen_t *size), (fd, out, size), -1)   \
    CALL(int, getpeername, (int fd, struct sockaddr *out, socklen_t *size), (fd, out, size), -1)   \
    CALL(int, getsockopt, (int fd, int level, int name, void *v, socklen_t *size),                 \
         (fd, level, name, v, size), -1)                                                           \
    CALL(int, setsockopt, (int fd, int level, int name, const void *v, socklen_t size),            \
         (fd, level, name, v, size), -1)                                                           \
    CALL(int, pipe2, (int ends[2], int flags), (ends, flags), -1)                                  \
    CALL(ssize_t, vmsplice, (int pipe, const struct iovec *v, size_t n, unsigned flags),           \
         (pipe, v, n, flags), -1)                                                                  \
    CALL(ssize_t, splice, (int from, int to, size_t n, unsigned flags), (from, to, n, flags), -1)  \
    CALL(int, fcntl, (int fd, int command, int v), (fd, command, v), -1)                           \
    CALL(int, epoll_create1, (int flags), (flags), -1)                                             \
    CALL(int, epoll_ctl, (int epoll, int op, int fd, struct epoll_event *event),                   \
         (epoll, op, fd, event), -1)                                                               \
    CALL(int, epoll_wait, (int epoll, struct epoll_event *events, int n, int timeout_ms),          \
         (epoll, events, n, timeout_ms), -1)                                                       \
    CALL(int, uring_init, (unsigned entries, struct io_uring *ring, unsigned flags),               \
         (entries, ring, flags), -errno)                                                           \
    CALL(int, uring_submit, (struct io_uring * ring), (ring), -errno)

#define CALL(result, name, parameters, arguments, failed)                                          \
    static result ask_##name parameters                                                            \
    {                                                                                              \
        return asked(#name) ? failed : mr__system_real()->name arguments;                          \
    }
CALLS
#undef CALL

static int ask_close(int fd)
{
    bool failed = asked("close");
    int err = errno, rc = mr__system_real()->close(fd);
    errno = err;
    return failed ? -1 : rc;
}

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    return false;
}

void mr_fault_calls(mr__system *table, const char *names, mr_call_fails fails)
{
    size_t wanted = 1, found = 0;
    for (const char *at = names; (at = strchr(at, ' ')); at++)
        wanted++;
    asked = fails;
#define CALL(result, call, parameters, arguments, failed)                                          \
    if (has_word(names, #call)) {                                                                  \
        table->call = ask_##call;                                                                  \
        found++;                                                                                   \
    }
    CALLS
    CALL(int, close, , , )
#undef CALL
    mr_eq_u64(found, wanted);
}
