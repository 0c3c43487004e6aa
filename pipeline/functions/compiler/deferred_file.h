/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_DEFERRED_FILE_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_DEFERRED_FILE_H
/* Data that a function reads from a file named in its call: a vocabulary, moments. The file is read
 * with the first block, not when the graph is built, because graphs are also built on machines that
 * only forward them. Private to functions/. */

#include "pipeline/functions/compiler/typed_tree.h"
#include "pipeline/memory/buffer.h"
#include "pipeline/system/fork.h"

/* A part of the call's plan. The data that it guards is immutable once loaded. */
typedef struct mr__deferred_file {
    mr__lock lock;
    bool ready;
    char *path; /* of the file that was read; NULL: none yet */
} mr__deferred_file;

void mr__deferred_file_init(mr__deferred_file *l);
void mr__deferred_file_reset(mr__deferred_file *l);
/* Calls `make` unless an earlier call succeeded; on failure `make` must leave nothing.
 * errors   those of `make`; they belong to no element, because all rows need the file */
mr_code mr__deferred_file_get(const mr_rows *r, mr__deferred_file *l,
                              mr_code (*make)(const mr_rows *r, mr_status *st),
                              mr_status *st) MR_NODISCARD;

/* Called within `make`: reads the file `name`, or, if that is a directory as written by `millrace
 * adapt`, the file `within` in it; at most `most` bytes. *bytes is owned; *path (owned) is the
 * file's path, also after a failure.
 * errors   MR_NOT_FOUND and others, with the path */
mr_code mr__deferred_file_read(const mr_rows *r, mr__deferred_file *l, const char *name,
                               const char *within, size_t most, char **path, mr_buffer **bytes,
                               size_t *size, mr_status *st) MR_NODISCARD;
#endif
