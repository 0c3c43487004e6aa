/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SAVED_FILES_H
#define MR_TRAINER_SAVED_FILES_H
/* Files and directories that are there whole or not at all: written beside their place under a
 * hidden name, .NAME.partial, synced, then renamed. One that is there already is exchanged for the
 * new one in one step and removed after that. What a process that was killed leaves is the
 * hidden name, which the next write of the same name removes.
 *
 * thread   one at a time a name */
#include "pipeline/status.h"

/* The whole file, of at most `most` bytes (SIZE_MAX: any number), and a NUL byte after it; owned,
 * mr_free. errors as open(2) and read(2); MR_OUT_OF_RANGE: more bytes */
mr_code mr__read_file(const char *path, size_t most, void **bytes, size_t *size,
                      mr_status *st) MR_NODISCARD;

typedef struct mr__saved_file {
    int fd;
    char *path;    /* where it is written */
    char *becomes; /* the name it takes at its end; NULL: it has it */
} mr__saved_file;

mr_code mr__saved_file_open(mr__saved_file *f, const char *path, mr_status *st) MR_NODISCARD;
/* Under a hidden name until it is closed. */
mr_code mr__saved_file_open_beside(mr__saved_file *f, const char *path, mr_status *st) MR_NODISCARD;
mr_code mr__saved_file_write(mr__saved_file *f, const void *bytes, size_t n,
                             mr_status *st) MR_NODISCARD;
/* rc: whether all was written. Syncs and renames; after a failure removes the file. Returns the
 * first of both that failed. */
mr_code mr__saved_file_close(mr__saved_file *f, mr_code rc, mr_status *st) MR_NODISCARD;
/* All three for a file of these bytes; beside: see above. */
mr_code mr__write_file(const char *path, const void *bytes, size_t n, bool beside,
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
/* As mr__saved_file_close. */
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
/* What is in the directory stays there when the power fails. */
mr_code mr__sync_directory(const char *path, mr_status *st) MR_NODISCARD;
/* The name within a path: what follows its last slash. */
const char *mr__name_in_path(const char *path);
#endif
