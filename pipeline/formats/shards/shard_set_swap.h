/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_SHARDS_SHARD_SET_SWAP_H
#define MR_PIPELINE_FORMATS_SHARDS_SHARD_SET_SWAP_H
/* Putting a set of files in the place of another, so that a pattern over their names never finds
 * some of each. For shard_writer.c, and for who lists files.
 *
 * The names are PREFIX-00000-of-0000N.tfrecord (or another ending of shard_names.h) and so on, and
 * PREFIX.dict, where their records are compressed with a dictionary; beside them, where PREFIX-*
 * does not match, lie .PREFIX-... .partial (a new file, complete), .PREFIX-... .old (one that is
 * replaced) and .PREFIX.commit, the journal. Publishing
 *
 *     1. writes the journal, all renames that follow, under another name, syncs it, and renames it
 *     2. renames the old files to their hidden names
 *     3. renames the new files to theirs, and syncs the directory
 *     4. removes the journal, then the hidden old files
 *
 * Before 1 is done the old set stands; from then on the new one is complete on the disk, and
 * the next writer of PREFIX continues where a crash stopped (mr__shard_set_swap_recover). In
 * between PREFIX-* finds a part of one of the two sets, never of both; our own patterns see the
 * journal and fail (mr__shard_set_swap_check). A step that fails is undone with those before it.
 * One file that replaces none, or itself, needs no journal: one rename.
 *
 * thread   any; one writer of a prefix at a time */
#include <stdbool.h>
#include <stdint.h>

#include "pipeline/status.h"

/* What a pattern matched, sorted, is not part of a set that is being published.
 * errors   MR_FAILED_PRECONDITION: it is; names the journal, and says what to do */
mr_code mr__shard_set_swap_check(char *const *paths, size_t n, mr_status *st) MR_NODISCARD;

/* Directory and base name of a prefix, and names in that directory. */
typedef struct mr__shard_set_swap {
    char *directory; /* "" or with its slash */
    char *base;
    char **from, **to; /* whole paths: the old files, then the new ones */
    size_t n_old, n, capacity;
    char *lock_path; /* .BASE.lock; NULL: not locked */
    int lock;
} mr__shard_set_swap;

mr_code mr__shard_set_swap_init(mr__shard_set_swap *g, const char *prefix,
                                mr_status *st) MR_NODISCARD;
void mr__shard_set_swap_reset(mr__shard_set_swap *g);

/* Nobody else can until the reset; whoever dies leaves no lock. Where the directory takes no file,
 * or no lock, there is none: creating the files says what is wrong.
 * errors   MR_ALREADY_EXISTS: another process, or writer, has the prefix */
mr_code mr__shard_set_swap_lock(mr__shard_set_swap *g, mr_status *st) MR_NODISCARD;

/* Finishes what a crash left of an earlier publishing. */
mr_code mr__shard_set_swap_recover(const mr__shard_set_swap *g, mr_status *st) MR_NODISCARD;

/* Whether a file is there. */
bool mr__shard_set_swap_has(const char *path);

/* Finds the files of sets that are there (any number of shards, any ending), to be replaced by one
 * of n_shards with this ending, "tfrecord"; and their dictionary, PREFIX.dict.
 * errors   MR_ALREADY_EXISTS: a set of another number of shards or ending, and not `overwrite` */
mr_code mr__shard_set_swap_find_old(mr__shard_set_swap *g, int64_t n_shards, const char *ending,
                                    bool overwrite, mr_status *st) MR_NODISCARD;
/* Adds a new file: complete under its partial name, to be called path. After find_old. */
mr_code mr__shard_set_swap_add(mr__shard_set_swap *g, const char *partial, const char *path,
                               mr_status *st) MR_NODISCARD;
/* Renames them all, or none. *kept: nothing was published, but the journal could not be removed:
 * the partial files must stay for whoever recovers. */
mr_code mr__shard_set_swap_publish(const mr__shard_set_swap *g, bool *kept,
                                   mr_status *st) MR_NODISCARD;
#endif
