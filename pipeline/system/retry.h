/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_RETRY_H
#define MR_PIPELINE_SYSTEM_RETRY_H
/* System calls that are repeated while signals interrupt them, and transfers that continue until
 * all bytes are moved. A call that is interrupted every time fails in the end, with EINTR. All
 * return -1 and set errno on failure.
 *
 * thread   any */
#include <errno.h>
#include <fcntl.h>

#include "system.h"

enum { MR__MOST_RETRIES = 1000 };

/* rc: an lvalue for the call's result, negative on failure. */
#define MR__RETRY(rc, call)                                                                        \
    do {                                                                                           \
        int mr__tries = 0;                                                                         \
        do                                                                                         \
            (rc) = (call);                                                                         \
        while ((rc) < 0 && errno == EINTR && mr__tries++ < MR__MOST_RETRIES);                      \
    } while (0)

/* Adds O_CLOEXEC; a new file gets the mode 0666. */
static inline int mr__open_again(const char *path, int flags)
{
    int fd;
    MR__RETRY(fd, mr__sys->open(path, flags | O_CLOEXEC, 0666));
    return fd;
}

static inline int mr__fsync_again(int fd)
{
    int rc;
    MR__RETRY(rc, mr__sys->fsync(fd));
    return rc;
}

static inline int mr__rename_again(const char *from, const char *to)
{
    int rc;
    MR__RETRY(rc, mr__sys->rename(from, to));
    return rc;
}

static inline int mr__unlink_again(const char *path)
{
    int rc;
    MR__RETRY(rc, mr__sys->unlink(path));
    return rc;
}

static inline int mr__mkdir_again(const char *path, mode_t mode)
{
    int rc;
    MR__RETRY(rc, mr__sys->mkdir(path, mode));
    return rc;
}

/* Writes all n bytes. */
static inline int mr__write_all(int fd, const void *data, size_t n)
{
    const char *p = data;
    for (int tries = 0; n;) {
        ssize_t put = mr__sys->write(fd, p, n);
        if (put > 0) {
            p += put;
            n -= (size_t)put;
            tries = 0;
        } else if (put == 0) {
            errno = ENOSPC;
            return -1;
        } else if ((errno != EINTR && errno != EAGAIN) || tries++ == MR__MOST_RETRIES)
            return -1;
    }
    return 0;
}

/* Reads the n bytes at offset (negative: those that follow, as read does). Returns how many were
 * read: fewer than n only at the end of the file. */
static inline ssize_t mr__read_all(int fd, void *data, size_t n, int64_t offset)
{
    size_t done = 0;
    for (int tries = 0; done < n;) {
        char *to = (char *)data + done;
        ssize_t got = offset < 0
                          ? mr__sys->read(fd, to, n - done)
                          : mr__sys->pread(fd, to, n - done, (off_t)(offset + (int64_t)done));
        if (got > 0) {
            done += (size_t)got;
            tries = 0;
        } else if (got == 0)
            break;
        else if ((errno != EINTR && errno != EAGAIN) || tries++ == MR__MOST_RETRIES)
            return -1;
    }
    return (ssize_t)done;
}
#endif
