/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_CACHE_DIRECTORY_H
#define MR_PIPELINE_REMOTE_CACHE_DIRECTORY_H
/* A directory of a local disk with pieces of remote objects, for all processes of one user.
 *
 *     DIR/millrace-cache       "millrace cache 1", the limit and the bytes counted. Its flock
 *                              is held while they change, and while names below do
 *     DIR/objects/HASH.piece   a piece of an object, whole, with checksums (cache_piece.h)
 *     DIR/objects/HASH.list    what a pattern matched (cache_list.h)
 *     DIR/objects/HASH.x.part  one of these that a process is writing, which holds its flock
 *
 * A file is written under its .part name at its full size, which is counted before, and renamed
 * when it is whole. So a process that is killed leaves a .part file whose lock is free: the next
 * writer of that name, or the next one that needs room, removes it. The counter is never less than
 * what the files have: it is raised before they grow and lowered after they are gone.
 *
 * thread   any */
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "pipeline/memory/alloc.h"

enum { MR__CACHE_NAME = 48 }; /* "HASH.piece" */

typedef struct mr__cache {
    char *directory; /* without a "/" at its end */
    atomic_int_fast64_t limit;
    atomic_bool closed; /* nothing more is written: the disk is full, or read-only */
} mr__cache;

/* Opens the directory; makes it, with mode 0700, if `make`. limit: the one to store in it; 0: the
 * stored one, which is a fifth of the free space at first. Returns owned.
 * errors   MR_NOT_FOUND · MR_PERMISSION_DENIED: it belongs to another user, or others may write to
 *          it · MR_FAILED_PRECONDITION: on a network file system, or of a later version ·
 *          MR_INVALID_ARGUMENT: not a directory; MR_RESOURCE_EXHAUSTED */
mr_code mr__cache_open(mr__cache **out, const char *directory, int64_t limit, bool make,
                       mr_status *st) MR_NODISCARD;
void mr__cache_close(mr__cache *c); /* NULL: no-op */
/* Stops writing, and says why, once. */
void mr__cache_give_up(mr__cache *c, int err);

/* The path of the file of that name; with `part`, while it is being written. room: PATH_MAX. */
void mr__cache_path(const mr__cache *c, const char *name, bool part, char *out);

/* ---- writing ---- */

typedef enum mr__claim_state {
    MR__CLAIM_MINE, /* write the file, then commit or drop the claim */
    MR__CLAIM_DONE, /* the file is there */
    MR__CLAIM_BUSY, /* another one writes it */
    MR__CLAIM_NONE  /* there is no room for it, or nothing can be written */
} mr__claim_state;

typedef struct mr__claim {
    const char *name; /* borrowed */
    int fd;           /* at offset 0 */
    int64_t cost;     /* bytes counted */
    /* BUSY: what another one's file was like, to see its progress */
    ino_t file;
    int64_t changed;
} mr__claim;

/* Begins to write a file of `bytes` bytes, for which room is made. replace: also if the file is
 * there. */
mr__claim_state mr__claim_take(mr__cache *c, const char *name, int64_t bytes, bool replace,
                               mr__claim *out);
/* Gives the file its name. false: it could not be, or another one has taken the claim over. */
bool mr__claim_commit(mr__cache *c, mr__claim *claim);
void mr__claim_drop(mr__cache *c, mr__claim *claim);
/* Takes the claim of a writer away, unless it has changed its file since `seen`. */
void mr__claim_break(mr__cache *c, const mr__claim *seen);

/* ---- other files ---- */

/* Removes a file, unless it was replaced since `seen`. */
void mr__cache_remove(mr__cache *c, const char *name, const struct stat *seen);
/* Marks an open file as used now. */
void mr__cache_touch(int fd);
/* Calls fn for the name of each whole file, in no order.
 * errors   those of fn, and of reading a directory */
mr_code mr__cache_each(mr__cache *c, mr_code (*fn)(void *ctx, const char *name, mr_status *st),
                       void *ctx, mr_status *st) MR_NODISCARD;
/* Counts the files again and removes the least recently used ones until they have at most `most`
 * bytes. *bytes = what is left. most INT64_MAX: removes none. */
mr_code mr__cache_shrink(mr__cache *c, int64_t most, int64_t *bytes, mr_status *st) MR_NODISCARD;
#endif
