/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_FILES_SAVED_FILES_H
#define MR_TRAINER_FILES_SAVED_FILES_H
/* Atomic writes of directories: they are written in the same directory under a hidden name,
 * .NAME.partial, synced, then renamed. An existing one is exchanged for the new one in one step and
 * then removed. A process that is killed leaves only the hidden name, which the next write of the
 * same name removes.
 *
 * A path may be a URL of a store, see remote_saved.h.
 *
 * thread   one at a time per name */
#include "pipeline/files/atomic_file.h"
#include "pipeline/files/whole_file.h"

/* For files of a directory that is not visible yet. */
extern const mr_atomic_file_opts mr__of_new_directory;
/* For files of a saved model: pipes and devices are refused. */
extern const mr_file_read_opts mr__of_saved;
/* Makes the n bytes the contents of a file of a directory that is not visible yet. */
mr_code mr__write_in_place(const char *path, const void *bytes, size_t n,
                           mr_status *st) MR_NODISCARD;

typedef struct mr__new_directory {
    char *path, *partial;
} mr__new_directory;

/* Creates the parent directories too. A directory at path is refused unless `ours` returns true for
 * each name in it, which allows removing it. After a failure nothing is owned.
 * errors   MR_ALREADY_EXISTS: path exists and has other content */
mr_code mr__new_directory_open(mr__new_directory *d, const char *path,
                               bool (*ours)(const char *name), mr_status *st) MR_NODISCARD;
/* directory/name, owned; NULL: out of memory. */
char *mr__path_in(const char *directory, const char *name);
/* rc: whether everything was written. Syncs and renames; after a failure removes the directory.
 * Returns rc, or the first error. */
mr_code mr__new_directory_close(mr__new_directory *d, mr_code rc, mr_status *st) MR_NODISCARD;

/* Removes the new directory. */
mr_code mr__new_directory_drop(mr__new_directory *d, mr_status *st) MR_NODISCARD;

/* Removes a file, or a directory with its contents; it need not exist. */
mr_code mr__remove_saved(const char *path, mr_status *st) MR_NODISCARD;
/* The same, but atomic for readers of the name: renames it to a hidden name first. */
mr_code mr__drop_saved(const char *path, mr_status *st) MR_NODISCARD;
/* Removes what killed processes were writing to replace the file (atomic_file.h). Another process
 * that is replacing it fails. Frees path, also on failure; NULL fails, as out of memory. */
mr_code mr__remove_partial(char *path, mr_status *st) MR_NODISCARD;
/* Removes a directory if it is empty. */
void mr__remove_empty(const char *directory);
/* Calls fn for each name in a directory except . and .. */
mr_code mr__each_name(const char *directory,
                      mr_code (*fn)(void *ctx, const char *name, mr_status *st), void *ctx,
                      mr_status *st) MR_NODISCARD;
/* Creates the directory and its parents, if they do not exist. */
mr_code mr__make_directories(const char *path, mr_status *st) MR_NODISCARD;
bool mr__is_directory(const char *path); /* false for a URL */
bool mr__is_there(const char *path);     /* of a local file */
/* The same for a URL too.
 * errors   those of the store */
mr_code mr__look_there(const char *path, bool *there, mr_status *st) MR_NODISCARD;
/* Where the files of a saved directory are: path itself, or what it stands for in a store. Owned;
 * NULL: there is no such directory. */
mr_code mr__find_saved(const char *path, char **out, mr_status *st) MR_NODISCARD;
/* The last component of a path. */
const char *mr__name_in_path(const char *path);
#endif
