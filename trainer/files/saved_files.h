/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SAVED_FILES_H
#define MR_TRAINER_SAVED_FILES_H
/* Atomic writes of files and directories: they are written in the same directory under a hidden
 * name, .NAME.partial, synced, then renamed. An existing one is exchanged for the new one in one
 * step and then removed. A process that is killed leaves only the hidden name, which the next write
 * of the same name removes.
 *
 * thread   one at a time per name */
#include "pipeline/status.h"

/* Reads the whole file, of at most `most` bytes (SIZE_MAX: any size), and appends a NUL byte;
 * owned, mr_free. errors as open(2) and read(2); MR_OUT_OF_RANGE: larger */
mr_code mr__read_file(const char *path, size_t most, void **bytes, size_t *size,
                      mr_status *st) MR_NODISCARD;

typedef struct mr__saved_file {
    int fd;
    char *path;    /* path while it is written */
    char *becomes; /* its final name; NULL: path */
} mr__saved_file;

mr_code mr__saved_file_open(mr__saved_file *f, const char *path, mr_status *st) MR_NODISCARD;
/* Under a hidden name until it is closed. */
mr_code mr__saved_file_open_beside(mr__saved_file *f, const char *path, mr_status *st) MR_NODISCARD;
mr_code mr__saved_file_write(mr__saved_file *f, const void *bytes, size_t n,
                             mr_status *st) MR_NODISCARD;
/* rc: whether everything was written. Syncs and renames; after a failure removes the file. Returns
 * rc, or the first error. */
mr_code mr__saved_file_close(mr__saved_file *f, mr_code rc, mr_status *st) MR_NODISCARD;
/* Opens, writes and closes a file of these bytes. The flag selects a hidden name until it is
 * closed. */
mr_code mr__write_file(const char *path, const void *bytes, size_t n, bool beside,
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
/* Like mr__saved_file_close. */
mr_code mr__new_directory_close(mr__new_directory *d, mr_code rc, mr_status *st) MR_NODISCARD;

/* Removes the new directory. */
mr_code mr__new_directory_drop(mr__new_directory *d, mr_status *st) MR_NODISCARD;

/* Removes a file, or a directory with its contents; it need not exist. */
mr_code mr__remove_saved(const char *path, mr_status *st) MR_NODISCARD;
/* The same, but atomic for readers of the name: renames it to a hidden name first. */
mr_code mr__drop_saved(const char *path, mr_status *st) MR_NODISCARD;
/* Removes a directory if it is empty. */
void mr__remove_empty(const char *directory);
/* Calls fn for each name in a directory except . and .. */
mr_code mr__each_name(const char *directory,
                      mr_code (*fn)(void *ctx, const char *name, mr_status *st), void *ctx,
                      mr_status *st) MR_NODISCARD;
/* Creates the directory and its parents, if they do not exist. */
mr_code mr__make_directories(const char *path, mr_status *st) MR_NODISCARD;
bool mr__is_directory(const char *path);
bool mr__is_there(const char *path);
/* Makes the entries of the directory survive a power failure. */
mr_code mr__sync_directory(const char *path, mr_status *st) MR_NODISCARD;
/* The last component of a path. */
const char *mr__name_in_path(const char *path);
#endif
