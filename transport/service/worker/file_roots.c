/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/worker/file_roots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/remote/url_roots_internal.h"
#include "pipeline/system/name_scope.h"
#include "pipeline/system/path_roots.h"
#include "pipeline/system/system.h"
#include "pipeline/system/write_roots.h"

static mr__path_roots roots;
static bool restricted; /* roots may also be URLs alone */
static const mr__system *beneath;
static mr__system table;

static bool is_below(const char *real)
{
    return mr__path_roots_have(&roots, real) || mr__path_roots_have(mr__write_roots_get(), real);
}

/* No root applies: the worker is not restricted, or the file is not named by a graph. */
static bool is_free(void)
{
    return !restricted || mr__name_scope_get().own;
}

/* real = the file that the path leads to. false, errno: EACCES: outside of the roots, whether it
 * exists or not; ENOENT: a directory below them does not exist */
static bool leads_below(const char *path, bool follow, char real[PATH_MAX])
{
    bool found = mr__path_resolve(path, follow, real);
    bool below = (found || errno == ENOENT) && is_below(real);
    errno = below ? ENOENT : EACCES;
    return found && below;
}

static bool is_special(const struct stat *s)
{
    return !S_ISREG(s->st_mode) && !S_ISDIR(s->st_mode);
}

/* A file or directory below a root: no device or FIFO, on which a stream might wait for ever, and
 * (with "/" as root) nothing that the kernel tells of processes. */
static bool may_be_open(int fd)
{
    struct stat s;
    struct statfs f;
    char link[64], real[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, real, sizeof real - 1);
    real[n > 0 ? n : 0] = '\0';
    return n > 0 && is_below(real) && beneath->fstat(fd, &s) == 0 && !is_special(&s) &&
           beneath->statfs(link, &f) == 0 && f.f_type != PROC_SUPER_MAGIC &&
           f.f_type != SYSFS_MAGIC;
}

/* Files are opened without waiting. The flag does not stay, because io_uring fails on files with
 * it. */
static bool set_flags(int fd, int flags)
{
    return (flags & (O_PATH | O_NONBLOCK)) ||
           beneath->fcntl(fd, F_SETFL, flags & (O_APPEND | O_DIRECT)) == 0;
}

static int open_below(const char *path, int flags, mode_t mode)
{
    char real[PATH_MAX];
    if (is_free())
        return beneath->open(path, flags, mode);
    if (!leads_below(path, !(flags & O_NOFOLLOW), real))
        return -1;
    int fd = beneath->open_straight(real, flags | (flags & O_PATH ? 0 : O_NONBLOCK), mode);
    if (fd < 0) {
        bool follows = errno == ELOOP && !(flags & O_NOFOLLOW); /* a link to nothing, or new */
        bool socket = errno == ENXIO && (flags & O_ACCMODE) == O_RDONLY;
        if (follows || socket)
            errno = EACCES;
        return -1;
    }
    if (may_be_open(fd) && set_flags(fd, flags))
        return fd;
    beneath->close(fd);
    errno = EACCES;
    return -1;
}

static DIR *opendir_below(const char *path)
{
    int fd = open_below(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && !dir)
        beneath->close(fd);
    return dir;
}

/* Of what is opened, which no link can replace meanwhile. */
static int look_below(const char *path, bool follow, struct stat *out)
{
    char real[PATH_MAX];
    if (!leads_below(path, follow, real))
        return -1;
    int fd = beneath->open_straight(real, O_PATH | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int rc = beneath->fstat(fd, out), err = errno;
    beneath->close(fd);
    errno = err;
    return rc;
}

static int stat_below(const char *path, struct stat *out)
{
    return is_free() ? beneath->stat(path, out) : look_below(path, true, out);
}

static int lstat_below(const char *path, struct stat *out)
{
    return is_free() ? beneath->lstat(path, out) : look_below(path, false, out);
}

static int unlink_below(const char *path)
{
    char real[PATH_MAX];
    if (is_free())
        return beneath->unlink(path);
    return leads_below(path, false, real) ? beneath->unlink(real) : -1;
}

static int rmdir_below(const char *path)
{
    char real[PATH_MAX];
    if (is_free())
        return beneath->rmdir(path);
    return leads_below(path, false, real) ? beneath->rmdir(real) : -1;
}

static int mkdir_below(const char *path, mode_t mode)
{
    char real[PATH_MAX];
    if (is_free())
        return beneath->mkdir(path, mode);
    return leads_below(path, false, real) ? beneath->mkdir(real, mode) : -1;
}

static int rename_by(int (*call)(const char *from, const char *to), const char *from,
                     const char *to)
{
    char real_from[PATH_MAX], real_to[PATH_MAX];
    if (is_free())
        return call(from, to);
    bool below = leads_below(from, false, real_from) && leads_below(to, false, real_to);
    return below ? call(real_from, real_to) : -1;
}

static int rename_below(const char *from, const char *to)
{
    return rename_by(beneath->rename, from, to);
}

static int rename_exchange_below(const char *a, const char *b)
{
    return rename_by(beneath->rename_exchange, a, b);
}

mr_code mr__file_roots_set(const char *const *names, size_t n, const mr__system **out,
                           mr_status *st)
{
    *out = NULL;
    (void)mr_usable_cpus(); /* reads the control group's limits, once, while they can be opened */
    MR_TRY(mr__path_roots_set(&roots, names, n, st));
    MR_TRY(mr__url_roots_set(names, n, st));
    restricted = n > 0;
    if (n == 0)
        return MR_OK;
    if (mr__sys != &table)
        beneath = mr__sys;
    table = *beneath;
    table.open = open_below;
    table.opendir = opendir_below;
    table.stat = stat_below;
    table.lstat = lstat_below;
    table.rename = rename_below;
    table.rename_exchange = rename_exchange_below;
    table.unlink = unlink_below;
    table.rmdir = rmdir_below;
    table.mkdir = mkdir_below;
    *out = &table;
    return MR_OK;
}

void mr__file_roots_explain(mr_status *st)
{
    char real[PATH_MAX];
    struct stat s;
    if (!restricted || st->code != MR_PERMISSION_DENIED || st->sys_errno != EACCES || !st->file[0])
        return;
    if (!leads_below(st->file, true, real) && errno == EACCES)
        snprintf(st->message, sizeof st->message,
                 "the file is outside the directories that this worker is restricted to (--root)");
    else if (beneath->lstat(real, &s) == 0 && is_special(&s))
        snprintf(st->message, sizeof st->message,
                 "it is neither a file nor a directory; a worker with --root opens nothing else");
}

bool mr__file_roots_are_set(void)
{
    return restricted;
}
