/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_COLUMN_PATH_H
#define MR_PIPELINE_FORMATS_COLUMN_PATH_H
/* Names of columns that lie in others: "x.a" is the field a of column x, "x" all of it. A name may
 * have dots itself. */
#include <stddef.h>
#include <string.h>

/* What of the path follows `name`, with which it begins; "": nothing, all below is meant. NULL: it
 * is another's. */
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
