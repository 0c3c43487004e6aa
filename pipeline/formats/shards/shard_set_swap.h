/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_SHARDS_SHARD_SET_SWAP_H
#define MR_PIPELINE_FORMATS_SHARDS_SHARD_SET_SWAP_H
/* Atomic replacement of a set of files, so that a pattern over their names never finds some of each
 * set. For shard_writer.c and for code that lists files.
 *
 * The names are PREFIX-00000-of-0000N.tfrecord (or another ending of shard_names.h) and so on, and
 * PREFIX.dict if their records are compressed with a dictionary. Next to them are names that
 * PREFIX-* does not match: .PREFIX-... .partial (a new file, complete), .PREFIX-... .old (a file
 * being replaced) and .PREFIX.commit, the journal. Publishing
 *
 *     1. writes the journal, all renames that follow, under another name, syncs it, and renames it
 *     2. renames the old files to their hidden names
 *     3. renames the new files to theirs, and syncs the directory
 *     4. removes the journal, then the hidden old files
 *
 * Until step 1 is complete the old set remains. From then on the new set is complete on the disk,
 * and the next writer of PREFIX continues where a crash stopped (mr__shard_set_swap_recover). In
 * between, PREFIX-* finds part of one of the two sets, never of both; patterns of this library see
 * the journal and fail (mr__shard_set_swap_check). If a step fails, it and those before it are
 * undone. A single file that replaces no file, or only itself, needs no journal: one rename.
 *
 * thread   any; one writer of a prefix at a time */
#include <stdbool.h>
#include <stdint.h>

#include "pipeline/status.h"

/* Checks that the sorted matches of a pattern are not part of a set that is being published.
 * errors   MR_FAILED_PRECONDITION: they are; names the journal and says what to do */
mr_code mr__shard_set_swap_check(char *const *paths, size_t n, mr_status *st) MR_NODISCARD;

/* Directory and base name of a prefix, and the renames in that directory. */
typedef struct mr__shard_set_swap {
    char *directory; /* "", or with a trailing slash */
    char *base;
    char **from, **to; /* whole paths: the old files, then the new ones */
    size_t n_old, n, capacity;
    char *lock_path; /* .BASE.lock; NULL: not locked */
    int lock;
} mr__shard_set_swap;

mr_code mr__shard_set_swap_init(mr__shard_set_swap *g, const char *prefix,
                                mr_status *st) MR_NODISCARD;
void mr__shard_set_swap_reset(mr__shard_set_swap *g);

/* Locks the prefix until the reset; the death of the process releases the lock. If the directory
 * accepts no new file or no lock, the call succeeds without one: creating the files will report the
 * cause.
 * errors   MR_ALREADY_EXISTS: another process or writer has the prefix */
mr_code mr__shard_set_swap_lock(mr__shard_set_swap *g, mr_status *st) MR_NODISCARD;

/* Completes an earlier publication that a crash interrupted. */
mr_code mr__shard_set_swap_recover(const mr__shard_set_swap *g, mr_status *st) MR_NODISCARD;

/* Whether a file exists. */
bool mr__shard_set_swap_has(const char *path);

/* Finds the existing sets (any number of shards, any ending) and their dictionary, PREFIX.dict, to
 * be replaced by a set of n_shards with this ending, such as "tfrecord".
 * errors   MR_ALREADY_EXISTS: a set of another number of shards or another ending exists, without
 *          `overwrite` */
mr_code mr__shard_set_swap_find_old(mr__shard_set_swap *g, int64_t n_shards, const char *ending,
                                    bool overwrite, mr_status *st) MR_NODISCARD;
/* Adds a new file, complete under its partial name and to be renamed to path. Call it after
 * find_old. */
mr_code mr__shard_set_swap_add(mr__shard_set_swap *g, const char *partial, const char *path,
                               mr_status *st) MR_NODISCARD;
/* Renames all files, or none. *kept: the publication failed and the journal could not be removed;
 * the partial files must stay for the next recovery. */
mr_code mr__shard_set_swap_publish(const mr__shard_set_swap *g, bool *kept,
                                   mr_status *st) MR_NODISCARD;
#endif
