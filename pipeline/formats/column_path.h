/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_COLUMN_PATH_H
#define MR_PIPELINE_FORMATS_COLUMN_PATH_H
/* Paths of nested columns: "x.a" is the field a of column x, "x" all of it. A name may contain
 * dots. */
#include <stddef.h>
#include <string.h>

/* The part of path after its first name, if that is `name`; "": the path ends with it. NULL: the
 * path begins with another name. */
static inline const char *mr__column_path_after(const char *path, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(path, name, n) != 0)
        return NULL;
    if (path[n] == '.' && path[n + 1])
        return path + n + 1;
    return path[n] ? NULL : path + n;
}
#endif
