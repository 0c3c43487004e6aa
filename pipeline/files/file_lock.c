/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "pipeline/system.h"

/* A lock counts only on the file that has the name: its owner may have removed it meanwhile. */
static mr_code try_lock(const char *path, int *fd, bool *busy, bool *again, mr_status *st)
{
    struct stat mine, named;
    *again = *busy = false;
    *fd = mr__sys->open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return mr_fail_errno(st, errno, "the lock %s cannot be made", path);
    int locked = mr__sys->flock(*fd, LOCK_EX | LOCK_NB), err = errno;
    mr_code rc = MR_OK;
    if (locked != 0 && (err == EWOULDBLOCK || err == EINTR)) {
        *busy = err == EWOULDBLOCK;
        *again = err == EINTR;
    } else if (locked != 0)
        rc = mr_fail_errno(st, err, "the lock %s cannot be taken", path);
    else if (mr__sys->fstat(*fd, &mine) != 0)
        rc = mr_fail_errno(st, errno, "the lock %s cannot be looked at", path);
    else if (mr__sys->stat(path, &named) != 0) {
        err = errno;
        *again = err == ENOENT;
        rc = *again ? MR_OK : mr_fail_errno(st, err, "the lock %s cannot be looked at", path);
    } else
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
    while (again)
        MR_TRY(try_lock(path, fd, busy, &again, st));
    return MR_OK;
}

void mr__file_unlock(const char *path, int fd)
{
    if (fd < 0)
        return;
    mr__sys->unlink(path); /* should that fail, an empty file stays that locks nothing */
    mr__sys->close(fd);
}
