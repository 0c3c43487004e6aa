/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_FILE_NAME_H
#define MR_PIPELINE_FILES_FILE_NAME_H
/* The path of a file that a graph names.
 *
 * thread   any */
#include <stdbool.h>

#include "pipeline/system/name_scope.h"

/* *out = the path to open for `name` in that scope; owned, mr_free. Not for the pieces of a path
 * that was made here already.
 * errors   those of mr__name_scope_check; MR_RESOURCE_EXHAUSTED */
mr_code mr__file_name_in(mr__name_scope s, const char *name, char **out,
                         mr_status *st) MR_NODISCARD;
/* The same in this thread's scope. */
mr_code mr__file_name(const char *name, char **out, mr_status *st) MR_NODISCARD;

/* true: a pipe, a socket or a terminal, which can be read only once. path: "-" is standard input */
bool mr__file_is_pipe(const char *path);
#endif
