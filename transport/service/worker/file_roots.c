/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/worker/file_roots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/remote/url_roots_internal.h"
#include "pipeline/system/system.h"

enum { MOST_ROOTS = 256 };

typedef char root[PATH_MAX];

static root roots[MOST_ROOTS]; /* without links; "" is the root of all files */
static size_t n_roots;
static bool restricted; /* roots may also be URLs alone */
static const mr__system *beneath;
static mr__system table;

static bool is_below(const char *path)
{
    for (size_t i = 0; i < n_roots; i++) {
        size_t n = strlen(roots[i]);
        if (strncmp(path, roots[i], n) == 0 && (path[n] == '/' || path[n] == '\0'))
            return true;
    }
    return !restricted;
}

/* The file that path resolves to; if it does not exist, the part that does. */
static bool leads_below(const char *path)
{
    char real[PATH_MAX], part[PATH_MAX];
    if (realpath(path, real))
        return is_below(real);
    if (errno != ENOENT || strlen(path) >= sizeof part)
        return false;
    strcpy(part, path); /* a file to create, or a missing one: resolve its directory */
    char *slash = strrchr(part, '/');
    if (slash == part)
        slash[1] = '\0';
    else if (slash)
        *slash = '\0';
    return realpath(slash ? part : ".", real) ? is_below(real) : errno == ENOENT;
}

/* The path of the open file fd. */
static bool is_open_below(int fd)
{
    char link[64], real[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, real, sizeof real - 1);
    if (n < 0)
        return false;
    real[n] = '\0';
    return is_below(real);
}

static int open_below(const char *path, int flags, mode_t mode)
{
    if (!leads_below(path)) {
        errno = EACCES;
        return -1;
    }
    int fd = beneath->open(path, flags, mode);
    if (fd >= 0 && !is_open_below(fd)) { /* it was moved in the meantime */
        beneath->close(fd);
        errno = EACCES;
        return -1;
    }
    return fd;
}

static DIR *opendir_below(const char *path)
{
    int fd = open_below(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && !dir)
        beneath->close(fd);
    return dir;
}

static bool refused(const char *path)
{
    if (leads_below(path))
        return false;
    errno = EACCES;
    return true;
}

static int stat_below(const char *path, struct stat *out)
{
    return refused(path) ? -1 : beneath->stat(path, out);
}

static int lstat_below(const char *path, struct stat *out)
{
    return refused(path) ? -1 : beneath->lstat(path, out);
}

static int rename_below(const char *from, const char *to)
{
    return refused(from) || refused(to) ? -1 : beneath->rename(from, to);
}

static int unlink_below(const char *path)
{
    return refused(path) ? -1 : beneath->unlink(path);
}

static int mkdir_below(const char *path, mode_t mode)
{
    return refused(path) ? -1 : beneath->mkdir(path, mode);
}

static mr_code resolve(const char *name, char *out, mr_status *st)
{
    struct stat s;
    if (!realpath(name, out) || stat(out, &s) != 0)
        return mr_fail_errno(st, errno, "the root %s", name);
    if (!S_ISDIR(s.st_mode))
        return mr_fail_errno(st, ENOTDIR, "the root %s", name);
    if (strcmp(out, "/") == 0)
        out[0] = '\0';
    return MR_OK;
}

mr_code mr__file_roots_set(const char *const *names, size_t n, const mr__system **out,
                           mr_status *st)
{
    *out = NULL;
    (void)mr_usable_cpus(); /* reads the control group's limits, once, while they can be opened */
    if (n > MOST_ROOTS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "at most %d directories, not %zu", MOST_ROOTS, n);
    root *fresh = mr_calloc(n + 1, sizeof *fresh);
    if (!fresh)
        return mr_fail_memory(st, n * sizeof *fresh, "the directories of a worker");
    mr_code rc = MR_OK;
    size_t n_fresh = 0;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        if (!mr__is_url(names[i]))
            rc = resolve(names[i], fresh[n_fresh++], st);
    if (rc == MR_OK)
        rc = mr__url_roots_set(names, n, st);
    if (rc == MR_OK) {
        memcpy(roots, fresh, n_fresh * sizeof *fresh);
        n_roots = n_fresh;
        restricted = n > 0;
    }
    mr_free(fresh);
    if (rc != MR_OK || n == 0)
        return rc;
    if (mr__sys != &table)
        beneath = mr__sys;
    table = *beneath;
    table.open = open_below;
    table.opendir = opendir_below;
    table.stat = stat_below;
    table.lstat = lstat_below;
    table.rename = rename_below;
    table.unlink = unlink_below;
    table.mkdir = mkdir_below;
    *out = &table;
    return MR_OK;
}

void mr__file_roots_explain(mr_status *st)
{
    if (restricted && st->code == MR_PERMISSION_DENIED && st->sys_errno == EACCES && st->file[0] &&
        !leads_below(st->file))
        snprintf(st->message, sizeof st->message,
                 "the file is outside the directories that this worker is restricted to (--root)");
}

bool mr__file_roots_are_set(void)
{
    return restricted;
}
