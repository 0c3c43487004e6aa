/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "pipeline/system.h"

enum { MAX_RETRIES = 1000 };

/* A system call failed: *again where it was interrupted, or the name is gone. */
static mr_code failed(const char *path, const char *what, bool *again, mr_status *st)
{
    *again = errno == EINTR || (errno == ENOENT && *what == 'l');
    return *again ? MR_OK : mr_fail_errno(st, errno, "the lock %s cannot be %s", path, what);
}

/* A lock counts only on the file that has the name: its owner may have removed it meanwhile. */
static mr_code try_lock(const char *path, int *fd, bool *busy, bool *again, mr_status *st)
{
    struct stat mine, named;
    *again = *busy = false;
    *fd = mr__sys->open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return failed(path, "made", again, st);
    mr_code rc = MR_OK;
    if (mr__sys->flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        *busy = errno == EWOULDBLOCK;
        rc = *busy ? MR_OK : failed(path, "taken", again, st);
    } else if (mr__sys->fstat(*fd, &mine) != 0 || mr__sys->stat(path, &named) != 0)
        rc = failed(path, "looked at", again, st);
    else
        *again = mine.st_ino != named.st_ino || mine.st_dev != named.st_dev;
    if (rc != MR_OK || *busy || *again) {
        mr__sys->close(*fd);
        *fd = -1;
    }
    return rc;
}

mr_code mr__file_lock(const char *path, int *fd, bool *busy, mr_status *st)
{
    bool again = true;
    for (int tries = 0; again && tries < MAX_RETRIES; tries++)
        MR_TRY(try_lock(path, fd, busy, &again, st));
    return again ? mr_fail(st, MR_UNAVAILABLE,
                           "the lock %s cannot be taken, however often it is "
                           "tried",
                           path)
                 : MR_OK;
}

void mr__file_unlock(const char *path, int fd)
{
    if (fd < 0)
        return;
    /* Should that fail, an empty file stays that locks nothing. */
    for (int tries = 0; mr__sys->unlink(path) != 0 && errno == EINTR && tries < MAX_RETRIES;)
        tries++;
    mr__sys->close(fd);
}
