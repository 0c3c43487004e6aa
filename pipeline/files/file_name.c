/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/file_name.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/remote/url.h"
#include "pipeline/system/system.h"

mr_code mr__file_name_in(mr__name_scope s, const char *name, char **out, mr_status *st)
{
    MR_TRY(mr__name_scope_check(s, name, st));
    bool whole = !s.directory || *name == '/' || strcmp(name, "-") == 0 || mr__is_url(name);
    *out = whole ? mr_strdup(name) : mr_strf("%s/%s", s.directory, name);
    return *out ? MR_OK : mr_fail_memory(st, strlen(name), "a file name");
}

mr_code mr__file_name(const char *name, char **out, mr_status *st)
{
    return mr__file_name_in(mr__name_scope_get(), name, out, st);
}

bool mr__file_is_pipe(const char *path)
{
    struct stat s;
    bool input = strcmp(path, "-") == 0;
    return (input ? mr__sys->fstat(fileno(stdin), &s) : mr__sys->stat(path, &s)) == 0 &&
           !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}
