/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/system/write_roots.h"

#include <errno.h>
#include <string.h>

#include "pipeline/system/name_scope.h"

static mr__path_roots roots;

MR_API mr_code mr__write_roots_set(const char *const *names, size_t n, mr_status *st)
{
    return mr__path_roots_set(&roots, names, n, st);
}

MR_API const mr__path_roots *mr__write_roots_get(void)
{
    return &roots;
}

static mr_code refuse(const char *path, mr_status *st)
{
    mr_fail(st, MR_PERMISSION_DENIED, "%s",
            roots.n ? "a worker of a service writes only below the directories that its "
                      "--allow-writes names, and this is not below one of them"
                    : "a worker of a service writes no files; its operator can allow it with "
                      "--allow-writes DIR");
    mr_status_at(st, path, -1, -1);
    mr_status_of_no_element(st);
    return MR_PERMISSION_DENIED;
}

/* A part of the path is "..". */
static bool has_dots(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")); at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == '/' || !at[2]))
            return true;
    return false;
}

mr_code mr__write_roots_check(const char *path, mr_status *st)
{
    char real[PATH_MAX];
    mr__name_scope names = mr__name_scope_get();
    if (!names.of_service || names.may_write)
        return MR_OK;
    /* Where directories are missing, the part that exists decides, unless ".." would lead out of it
     * once they are made. */
    bool leads = mr__path_resolve(path, true, real) || (errno == ENOENT && !has_dots(path));
    return leads && mr__path_roots_have(&roots, real) ? MR_OK : refuse(path, st);
}
