/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_DEFERRED_FILE_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_DEFERRED_FILE_H
/* What a function reads from a file that its call names: a vocabulary, moments. It is read with the
 * first block, not when the graph is built: graphs are built on machines too that only hand them
 * on. Private to functions/. */
#include <pthread.h>

#include "pipeline/functions/compiler/typed_tree.h"
#include "pipeline/memory/buffer.h"

/* A part of the call's plan. What it guards stays as it is once it is there. */
typedef struct mr__deferred_file {
    pthread_mutex_t lock;
    bool ready;
} mr__deferred_file;

void mr__deferred_file_init(mr__deferred_file *l);
void mr__deferred_file_reset(mr__deferred_file *l);
/* Calls `make` unless it did what it should before; on failure it leaves nothing. *good = false: it
 * failed, which is now the error of every row.
 * errors   MR_RESOURCE_EXHAUSTED, MR_CANCELLED: it may be tried again */
mr_code mr__deferred_file_get(const mr_rows *r, mr__deferred_file *l,
                              mr_code (*make)(const mr_rows *r, mr_status *st), bool *good,
                              mr_status *st) MR_NODISCARD;

/* Reads `name`, or the file called `within` where that is a directory, as `millrace adapt` writes
 * it; at most `most` bytes. *bytes is owned; *path (owned) is what was read, also after a failure.
 * errors   MR_NOT_FOUND and others, with the path */
mr_code mr__deferred_file_read(const mr_rows *r, const char *name, const char *within, size_t most,
                               char **path, mr_buffer **bytes, size_t *size,
                               mr_status *st) MR_NODISCARD;
#endif
