/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_FILE_LOCK_H
#define MR_PIPELINE_FILES_FILE_LOCK_H
/* A lock between processes and iterators, identified by a file name. It is released when its
 * process dies; the empty file may remain, but does not lock anything.
 *
 * thread   any */
#include "pipeline/status.h"

/* Creates path if needed and locks it; *fd is for mr__file_unlock. If another process or iterator
 * has the lock, sets *busy, and *fd to -1. A lock is an empty file: anything else with that name is
 * left alone.
 * errors   MR_ALREADY_EXISTS: path is a file with content, a symbolic link or a directory */
mr_code mr__file_lock(const char *path, int *fd, bool *busy, mr_status *st) MR_NODISCARD;
/* Removes path if it still is the lock, and releases the lock. fd -1: no-op. */
void mr__file_unlock(const char *path, int fd);
#endif
