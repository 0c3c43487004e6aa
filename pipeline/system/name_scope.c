/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/system/name_scope.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

static _Thread_local mr__name_scope scope;

MR_API mr__name_scope mr__name_scope_set(mr__name_scope s)
{
    mr__name_scope before = scope;
    scope = s;
    return before;
}

MR_API mr__name_scope mr__name_scope_get(void)
{
    return scope;
}

MR_API mr__name_scope mr__name_scope_enter(const char *directory)
{
    mr__name_scope s = scope;
    if (directory)
        s.directory = directory;
    return mr__name_scope_set(s);
}

MR_API mr__name_scope mr__name_scope_enter_own(void)
{
    mr__name_scope s = scope;
    s.own = true;
    return mr__name_scope_set(s);
}

MR_API bool mr__name_scope_here(char *out, size_t size)
{
    return getcwd(out, size) != NULL;
}

MR_API bool mr__name_scope_is_here(const char *directory)
{
    char here[PATH_MAX];
    return mr__name_scope_here(here, sizeof here) && strcmp(here, directory) == 0;
}

static bool is_of_process(const char *name)
{
    static const char *const files[] = {"-", "/dev/stdin", "/dev/stdout", "/dev/stderr"};
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(name, files[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (strncmp(name, folders[i], strlen(folders[i])) == 0)
            return true;
    return false;
}

MR_API mr_code mr__name_scope_check(mr__name_scope s, const char *name, mr_status *st)
{
    if (!s.of_service || !is_of_process(name))
        return MR_OK;
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "a graph for a service cannot read '%s': it is an open file of one process; "
                   "name a file that all workers see",
                   name);
}
