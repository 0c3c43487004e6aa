/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_FILES_REMOTE_SAVED_H
#define MR_TRAINER_FILES_REMOTE_SAVED_H
/* Saved directories in a store, which has neither directories nor renames:
 *
 *     PATH/v-0123456789abcdef/...   the files, under a fresh name
 *     PATH/checkpoint               names it, and makes it valid
 *
 * The object PATH/checkpoint is written last, and replaced as a whole; then the files that it named
 * before are removed. A process that is killed leaves the old ones valid. What it wrote is removed
 * by the next write of PATH.
 *
 * thread   one at a time per name */
#include <stdbool.h>

#include "pipeline/status.h"

/* Refuses a PATH with other content. *fresh: PATH/v-..., owned.
 * errors   MR_ALREADY_EXISTS: other content; those of listing */
mr_code mr__remote_saved_begin(const char *path, char **fresh, mr_status *st) MR_NODISCARD;
/* Makes the files under `fresh` those of PATH, and removes the others. *done: PATH has them. */
mr_code mr__remote_saved_publish(const char *path, const char *fresh, bool *done,
                                 mr_status *st) MR_NODISCARD;
/* The files of PATH: *out is PATH/v-..., owned; NULL: nothing was saved there. */
mr_code mr__remote_saved_find(const char *path, char **out, mr_status *st) MR_NODISCARD;

/* Removes the object, and all objects below path/; first path/checkpoint. */
mr_code mr__remote_saved_remove(const char *path, mr_status *st) MR_NODISCARD;
/* *there: the object exists, or objects below path/ do. */
mr_code mr__remote_saved_look(const char *path, bool *there, mr_status *st) MR_NODISCARD;
/* Calls fn for each name below a path, of objects and of what would be directories. */
mr_code mr__remote_saved_names(const char *path,
                               mr_code (*fn)(void *ctx, const char *name, mr_status *st), void *ctx,
                               mr_status *st) MR_NODISCARD;
/* Total size of the objects below path/. */
mr_code mr__remote_saved_bytes(const char *path, uint64_t *bytes, mr_status *st) MR_NODISCARD;
#endif
