/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "pipeline/remote/url.h"
#include "pipeline/system/retry.h"

/* Handles a failed system call: sets *again if it was interrupted, or if the file was removed
 * before it could be checked ("looked up"). */
static mr_code failed(const char *path, const char *what, bool *again, mr_status *st)
{
    *again = errno == EINTR || (errno == ENOENT && *what == 'l');
    return *again ? MR_OK : mr_fail_errno(st, errno, "the lock %s cannot be %s", path, what);
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

static bool is_lock(const struct stat *s)
{
    return S_ISREG(s->st_mode) && s->st_size == 0;
}

/* Fails: something else has the name of the lock. is->st_mode is 0 if its type is unknown. */
static mr_code foreign(const char *path, const struct stat *is, mr_status *st)
{
    const char *what = S_ISREG(is->st_mode)   ? "a file with content"
                       : S_ISLNK(is->st_mode) ? "a symbolic link"
                       : S_ISDIR(is->st_mode) ? "a directory"
                                              : "something else";
    mr_code rc = mr_fail(st, MR_ALREADY_EXISTS,
                         "expected a lock, which is an empty file, found %s; move it away, or "
                         "write to another path",
                         what);
    mr_status_at(st, path, -1, -1);
    return rc;
}

/* Fails: path could not be opened for writing, because of its type or for another reason. */
static mr_code not_opened(const char *path, bool *again, mr_status *st)
{
    struct stat is = {0};
    int err = errno;
    if (err == ELOOP || err == EISDIR || err == ENXIO) {
        int fd = mr__sys->open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
        bool seen = fd >= 0 && mr__sys->fstat(fd, &is) == 0;
        if (fd >= 0)
            mr__sys->close(fd);
        if (seen)
            return foreign(path, &is, st);
        errno = err;
    }
    return failed(path, "made", again, st);
}

/* The lock is valid only if the locked file still has the name: the previous owner may have removed
 * it in the meantime. */
static mr_code try_lock(const char *path, int *fd, bool *busy, bool *again, mr_status *st)
{
    struct stat mine, named;
    *again = *busy = false;
    MR_TRY(mr__url_refuse_writing(path, st));
    *fd = mr__sys->open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (*fd < 0)
        return not_opened(path, again, st);
    mr_code rc = MR_OK;
    if (mr__sys->flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        *busy = errno == EWOULDBLOCK;
        rc = *busy ? MR_OK : failed(path, "taken", again, st);
    } else if (mr__sys->fstat(*fd, &mine) != 0 || mr__sys->stat(path, &named) != 0)
        rc = failed(path, "looked up", again, st);
    else if (!same(&mine, &named))
        *again = true;
    else if (!is_lock(&mine))
        rc = foreign(path, &mine, st);
    if (rc != MR_OK || *busy || *again) {
        mr__sys->close(*fd);
        *fd = -1;
    }
    return rc;
}

mr_code mr__file_lock(const char *path, int *fd, bool *busy, mr_status *st)
{
    bool again = true;
    for (int tries = 0; again && tries < MR__MOST_RETRIES; tries++)
        MR_TRY(try_lock(path, fd, busy, &again, st));
    return again ? mr_fail(st, MR_UNAVAILABLE, "the lock %s cannot be taken after %d attempts",
                           path, MR__MOST_RETRIES)
                 : MR_OK;
}

void mr__file_unlock(const char *path, int fd)
{
    if (fd < 0)
        return;
    /* Do not remove a file that replaced the lock, or one with content. */
    struct stat mine = {0}, named = {0};
    bool seen = false;
    for (int tries = 0; !seen && tries < MR__MOST_RETRIES; tries++) {
        seen = mr__sys->fstat(fd, &mine) == 0 && mr__sys->stat(path, &named) == 0;
        if (!seen && errno != EINTR)
            break;
    }
    /* If that fails, an empty file remains, which does not lock anything. */
    if (seen && is_lock(&mine) && same(&mine, &named))
        mr__unlink_again(path);
    mr__sys->close(fd);
}
