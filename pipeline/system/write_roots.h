/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_SYSTEM_WRITE_ROOTS_H
#define MR_PIPELINE_SYSTEM_WRITE_ROOTS_H
/* The directories that graphs of other processes may write to in this one: by default none.
 *
 * thread   any; mr__write_roots_set only before graphs of other processes run */
#include <stdbool.h>
#include <stddef.h>

#include "../status.h"
#include "path_roots.h"

/* Replaces the directories.
 * errors   as mr__path_roots_set */
mr_code mr__write_roots_set(const char *const *names, size_t n, mr_status *st) MR_NODISCARD;
const mr__path_roots *mr__write_roots_get(void);
/* MR_OK if this thread's graph may write to this path: it is this process's own, or the path leads
 * below one of the directories.
 * errors   MR_PERMISSION_DENIED, of no element */
mr_code mr__write_roots_check(const char *path, mr_status *st) MR_NODISCARD;
#endif
