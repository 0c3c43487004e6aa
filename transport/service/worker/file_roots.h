/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_WORKER_FILE_ROOTS_H
#define MR_TRANSPORT_SERVICE_WORKER_FILE_ROOTS_H
/* Confines a worker to directories: it opens files and directories (no devices, FIFOs and sockets)
 * only below them, whatever names graphs contain. Symbolic links and ".." are resolved first, the
 * resolved path is opened without following any link, and what was opened is checked again. A file
 * elsewhere is refused in the same way whether it exists or not. The directories that graphs may
 * write to (pipeline/system/write_roots.h) can be read as well.
 *
 * It affects the whole process: it replaces entries of the table of system calls.
 *
 * thread   mr__file_roots_set before other threads start; the rest any */
#include <stdbool.h>
#include "pipeline/status.h"
#include "pipeline/system/system.h"

/* *out = a table for mr__system_set with which files are opened, listed, checked and changed only
 * below these directories; NULL if n is 0: anywhere. Replaces the directories of an earlier call.
 * errors   MR_NOT_FOUND, ...: a directory does not exist; the message names it */
mr_code mr__file_roots_set(const char *const *roots, size_t n, const mr__system **out,
                           mr_status *st) MR_NODISCARD;
bool mr__file_roots_are_set(void);
/* Adds the reason to the error of a file outside of these directories. */
void mr__file_roots_explain(mr_status *st);
#endif
