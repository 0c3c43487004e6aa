/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SAVED_FILES_H
#define MR_TRAINER_SAVED_FILES_H
/* Atomic replacement of directories: written next to their place under a hidden name,
 * .NAME.partial, synced, then renamed. An existing directory is exchanged for the new one in one
 * step and removed after that. A process that is killed leaves the hidden name, which the next
 * write of the same name removes.
 *
 * thread   one at a time a name */
#include "pipeline/files/atomic_file.h"
#include "pipeline/files/whole_file.h"

/* For files of a directory that is not visible yet. */
extern const mr_atomic_file_opts mr__of_new_directory;
/* For files of a saved model: pipes and devices are refused. */
extern const mr_file_read_opts mr__of_saved;
/* Makes the n bytes the contents of such a file. */
mr_code mr__write_in_place(const char *path, const void *bytes, size_t n,
                           mr_status *st) MR_NODISCARD;

typedef struct mr__new_directory {
    char *path, *partial;
} mr__new_directory;

/* Makes the directories above it too. A directory at path is refused unless `ours` says of each
 * name in it that it may be removed. After a failure nothing is owned.
 * errors   MR_ALREADY_EXISTS: path is there and is something else */
mr_code mr__new_directory_open(mr__new_directory *d, const char *path,
                               bool (*ours)(const char *name), mr_status *st) MR_NODISCARD;
/* d->partial/name, owned; NULL: no memory. */
char *mr__path_in(const char *directory, const char *name);
/* rc: whether all was written. Syncs and renames; after a failure removes the directory. Returns
 * the first of both that failed. */
mr_code mr__new_directory_close(mr__new_directory *d, mr_code rc, mr_status *st) MR_NODISCARD;

/* Removes what was made. */
mr_code mr__new_directory_drop(mr__new_directory *d, mr_status *st) MR_NODISCARD;

/* Removes a file, or a directory with all in it; what is not there is fine. */
mr_code mr__remove_saved(const char *path, mr_status *st) MR_NODISCARD;
/* The same in one step, for those who look at the name: it is hidden first. */
mr_code mr__drop_saved(const char *path, mr_status *st) MR_NODISCARD;
/* Removes a directory that has nothing in it. */
void mr__remove_empty(const char *directory);
/* Calls fn for each name in a directory but . and .. */
mr_code mr__each_name(const char *directory,
                      mr_code (*fn)(void *ctx, const char *name, mr_status *st), void *ctx,
                      mr_status *st) MR_NODISCARD;
/* The directory and those above it, where they are not there. */
mr_code mr__make_directories(const char *path, mr_status *st) MR_NODISCARD;
bool mr__is_directory(const char *path);
bool mr__is_there(const char *path);
/* The name within a path: what follows its last slash. */
const char *mr__name_in_path(const char *path);
#endif
