/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_ATOMIC_FILE_H
#define MR_PIPELINE_FILES_ATOMIC_FILE_H
/* Atomic file replacement: readers of a name find the old contents or the new ones, never a part.
 *
 *     open     creates .NAME.<process>-<number>.partial in the directory of NAME
 *     put      appends to it
 *     close    syncs the file, renames it to NAME and syncs the directory
 *
 * A URL of an S3 store is written as an upload, which becomes visible as a whole when it is closed.
 * A failure, or abort, removes the partial file and leaves NAME as it was. A process that is killed
 * leaves the partial file, which no other writer uses.
 *
 * thread   one at a time per object
 * source   rename(2), fsync(2)
 * since    0.2 */
#include <stdbool.h>
#include <stddef.h>
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_atomic_file mr_atomic_file;

/* The guarantee after a power failure. */
typedef enum mr_file_sync {
    MR_SYNC_ALL,      /* the name has the new contents if close returned */
    MR_SYNC_CONTENTS, /* the name has the old contents or the new ones */
    MR_SYNC_NONE      /* none: the file may be empty or truncated */
} mr_file_sync;

typedef struct mr_atomic_file_opts {
    mr_file_sync sync;
    /* Write to the name directly, without a rename: for a pipe or a device, and for files of a
     * directory that is itself renamed when it is complete. */
    bool in_place;
} mr_atomic_file_opts;

/* opts NULL: all zero.
 * errors   as open(2), with the file; MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_atomic_file_open(mr_atomic_file **out, const char *path,
                                   const mr_atomic_file_opts *opts, mr_status *st) MR_NODISCARD;
/* Appends n bytes. After a failure only close and abort may be called.
 * errors   as write(2), with the file */
MR_API mr_code mr_atomic_file_put(mr_atomic_file *f, const void *data, size_t n,
                                  mr_status *st) MR_NODISCARD;
/* Replaces the file if rc is MR_OK, else removes what was written and returns rc, so that the
 * result of the last put can be passed. Releases f (NULL: returns rc) in both cases.
 * errors   as fsync(2), close(2) and rename(2), with the file */
MR_API mr_code mr_atomic_file_close(mr_atomic_file *f, mr_code rc, mr_status *st) MR_NODISCARD;
/* Removes what was written and releases f; NULL: nothing. */
MR_API void mr_atomic_file_abort(mr_atomic_file *f);

/* Makes the n bytes at data the contents of path, with MR_SYNC_ALL. A path that exists and is not a
 * regular file (a pipe, /dev/stdout) is written in place.
 * errors   as above */
MR_API mr_code mr_file_replace(const char *path, const void *data, size_t n,
                               mr_status *st) MR_NODISCARD;

/* Makes the names in a directory durable. Does nothing where the file system does not support this
 * or the directory may not be opened.
 * errors   as open(2) and fsync(2), with the directory */
MR_API mr_code mr_directory_sync(const char *path, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
