/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_PROCESS_LOCK_H
#define MR_PIPELINE_FILES_PROCESS_LOCK_H
/* A lock between processes, for a directory that one run at a time may use. It is an empty file of
 * the given name, and disappears with its owner: if the process dies, the file may remain, but does
 * not lock anything.
 *
 * thread   any
 * since    0.2 */
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_process_lock mr_process_lock;

/* Does not wait. Returns owned.
 * errors   MR_UNAVAILABLE: another process, or another lock of this one, has it ·
 *          MR_ALREADY_EXISTS: path is a file with content, a symbolic link or a directory ·
 *          as open(2) and flock(2) */
MR_API mr_code mr_process_lock_take(mr_process_lock **out, const char *path,
                                    mr_status *st) MR_NODISCARD;
/* Removes the file and releases the lock; NULL: nothing. */
MR_API void mr_process_lock_release(mr_process_lock *l);

#ifdef __cplusplus
}
#endif
#endif
