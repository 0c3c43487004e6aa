/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_PATH_ROOTS_H
#define MR_PIPELINE_SYSTEM_PATH_ROOTS_H
/* Directories that paths must be below once their symbolic links and ".." are resolved. Exported
 * for the project's other libraries of the same version only.
 *
 * thread   any; mr__path_roots_set only before other threads use the same roots */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "../status.h"

enum { MR__MOST_ROOTS = 256 };

typedef struct mr__path_roots {
    size_t n;
    char v[MR__MOST_ROOTS][PATH_MAX]; /* without links; "" is the root of all files */
} mr__path_roots;

/* r = the names, without those that are URLs. Unchanged on failure.
 * errors   MR_INVALID_ARGUMENT: too many; MR_NOT_FOUND, ...: a directory does not exist, or is a
 *          file; the message names it */
mr_code mr__path_roots_set(mr__path_roots *r, const char *const *names, size_t n,
                           mr_status *st) MR_NODISCARD;
/* True if the path, which has no links, is one of the directories or below one. */
bool mr__path_roots_have(const mr__path_roots *r, const char *path);
/* out = the path that `path` leads to, without links and "..". Its last component need not exist,
 * and is not followed if follow is false.
 * false, errno: ENOENT: directories of it do not exist: out = the part that exists; else out is
 * undefined */
bool mr__path_resolve(const char *path, bool follow, char out[PATH_MAX]);
#endif
