/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_OBJECT_CACHE_H
#define MR_PIPELINE_REMOTE_OBJECT_CACHE_H
/* What is in a directory of cached objects (docs/remote.md), whose files graphs write.
 *
 * thread   any
 * since    0.2 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_cached_object {
    const char *url, *etag; /* the URL without the query of a presigned one, and without secrets */
    int64_t size;           /* in bytes, of the object */
    int64_t cached_bytes;   /* of it that are in the cache */
} mr_cached_object;

typedef struct mr_object_cache {
    const char *directory;
    int64_t bytes;             /* of all files, in whole blocks of the disk; at most the limit */
    int64_t limit;             /* in bytes */
    mr_cached_object *objects; /* by URL and ETag */
    size_t n_objects;
    void *internal;
} mr_object_cache;

/* Reads the directory; damaged files are left out. *out is owned: mr_object_cache_reset.
 * errors   MR_NOT_FOUND: not a cache; MR_PERMISSION_DENIED: another user's; MR_FAILED_PRECONDITION:
 *          on a network file system, or made by a later version */
MR_API mr_code mr_object_cache_read(mr_object_cache *out, const char *directory,
                                    mr_status *st) MR_NODISCARD;
MR_API void mr_object_cache_reset(mr_object_cache *c);
/* Removes the pieces used least recently until at most `bytes` bytes are left. Graphs may
 * read from the cache meanwhile.
 * errors   as above */
MR_API mr_code mr_object_cache_prune(const char *directory, int64_t bytes,
                                     mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
