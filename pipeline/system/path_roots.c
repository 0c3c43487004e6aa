/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/system/path_roots.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static mr_code resolve_root(const char *name, char out[PATH_MAX], mr_status *st)
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

static bool is_url(const char *name)
{
    return strstr(name, "://") != NULL;
}

MR_API mr_code mr__path_roots_set(mr__path_roots *r, const char *const *names, size_t n,
                                  mr_status *st)
{
    if (n > MR__MOST_ROOTS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "at most %d directories, not %zu", MR__MOST_ROOTS,
                       n);
    char real[PATH_MAX];
    for (size_t i = 0; i < n; i++)
        if (!names || !names[i])
            return mr_fail(st, MR_INVALID_ARGUMENT, "directory %zu is NULL", i);
        else if (!is_url(names[i]))
            MR_TRY(resolve_root(names[i], real, st));
    r->n = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_url(names[i]) && resolve_root(names[i], real, NULL) == MR_OK)
            strcpy(r->v[r->n++], real);
    return MR_OK;
}

MR_API bool mr__path_roots_have(const mr__path_roots *r, const char *path)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t n = strlen(r->v[i]);
        if (strncmp(path, r->v[i], n) == 0 && (path[n] == '/' || path[n] == '\0'))
            return true;
    }
    return false;
}

/* Cuts the last component off; returns it; NULL: the path has one only. */
static char *cut(char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash || !slash[1])
        return NULL;
    char *last = slash + 1;
    if (slash == path)
        memmove(last + 1, last, strlen(last) + 1), last++;
    *(last - 1) = '\0';
    return last;
}

/* out = the longest part of `part` that exists; `part` is cut. */
static bool resolve_part(char part[PATH_MAX], char out[PATH_MAX])
{
    while (!realpath(part, out))
        if (errno != ENOENT || !cut(part))
            return false;
    return true;
}

MR_API bool mr__path_resolve(const char *path, bool follow, char out[PATH_MAX])
{
    char part[PATH_MAX + 1];
    size_t n = strlen(path);
    if (follow && realpath(path, out))
        return true;
    if ((follow && errno != ENOENT) || n + 3 > PATH_MAX) {
        errno = follow && errno != ENOENT ? errno : ENAMETOOLONG;
        return false;
    }
    memcpy(part, *path == '/' ? path : "./", *path == '/' ? n + 1 : 3);
    if (*path != '/')
        memcpy(part + 2, path, n + 1);
    const char *last = cut(part);
    if (!last || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return realpath(path, out) != NULL;
    if (realpath(part, out)) {
        size_t have = strcmp(out, "/") == 0 ? 0 : strlen(out);
        if (have + 1 + strlen(last) >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return false;
        }
        out[have] = '/';
        strcpy(out + have + 1, last);
        return true;
    }
    if (errno != ENOENT || !resolve_part(part, out))
        return false;
    errno = ENOENT;
    return false;
}
