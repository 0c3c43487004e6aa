/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRANSPORT_SERVICE_DISPATCHER_FAILING_VFS_H
#define MR_TESTS_TRANSPORT_SERVICE_DISPATCHER_FAILING_VFS_H
/* SQLite's own layer of system calls, with calls that change files failing on purpose. */
#include <stdbool.h>
#include <stdint.h>

/* Registers it, as "failing". */
void mr_failing_vfs(void);
/* The nth call from now (1: the next; 0: none) fails with `code`, and all after it where
 * persistent: writing, truncating, syncing, opening for writing, deleting. Counts from 1 again. */
void mr_failing_vfs_at(int64_t nth, int code, bool persistent);
/* Reading and asking for a file's size count too, and fail. */
void mr_failing_vfs_reads(bool count);
/* Calls since then. */
int64_t mr_failing_vfs_calls(void);
#endif
