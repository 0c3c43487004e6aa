/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_FILE_LOCK_H
#define MR_PIPELINE_FILES_FILE_LOCK_H
/* A lock that processes and iterators share by the name of a file. It lives as long as an open file
 * does: whoever dies leaves none (the empty file may stay, and locks nothing).
 *
 * thread   any */
#include "pipeline/status.h"

/* Makes path if need be and locks it: *fd, for mr__file_unlock. *busy: somebody else has it, and
 * *fd is -1. A lock is an empty file: anything else of that name is left as it is.
 * errors   MR_ALREADY_EXISTS: path is a file with content, a symbolic link, a directory */
mr_code mr__file_lock(const char *path, int *fd, bool *busy, mr_status *st) MR_NODISCARD;
/* Removes path, where it still is the lock, and gives that back. fd -1: nothing. */
void mr__file_unlock(const char *path, int fd);
#endif
