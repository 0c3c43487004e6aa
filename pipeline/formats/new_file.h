/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_NEW_FILE_H
#define MR_PIPELINE_FORMATS_NEW_FILE_H
/* A file that is complete or not there: written beside its path under a hidden name, which close
 * replaces by the real one. Within the formats room and above.
 *
 * thread   one at a time per object */
#include "pipeline/memory/buffer.h"

typedef struct mr__new_file {
    int fd;
    char *path, *partial;
    mr_buffer *buffer; /* what goes to the file next */
    size_t used;
    bool created; /* false: abort leaves it */
} mr__new_file;

/* *f is overwritten. errors as open(2), with the file */
mr_code mr__new_file_open(mr__new_file *f, const char *path, mr_status *st) MR_NODISCARD;
/* errors   as write(2), with the file, which is removed; then only abort may follow */
mr_code mr__new_file_put(mr__new_file *f, const void *data, size_t n, mr_status *st) MR_NODISCARD;
/* The same in two steps: where the next bytes go, *n of them, at least one; then how many they
 * were. */
void *mr__new_file_room(const mr__new_file *f, size_t *n);
mr_code mr__new_file_wrote(mr__new_file *f, size_t n, mr_status *st) MR_NODISCARD;
/* What is put next replaces the head of the file. errors as putting */
mr_code mr__new_file_rewind(mr__new_file *f, mr_status *st) MR_NODISCARD;
/* Writes what is left, syncs it if asked, and closes the file, which keeps its hidden name. Then
 * only close and abort may follow. */
mr_code mr__new_file_finish(mr__new_file *f, bool sync, mr_status *st) MR_NODISCARD;
/* Finishes the file if it is not, and gives it its name. Releases everything, also on failure: then
 * there is no file. */
mr_code mr__new_file_close(mr__new_file *f, bool sync, mr_status *st) MR_NODISCARD;
/* Removes what was written. Also of a zeroed one, and twice. */
void mr__new_file_abort(mr__new_file *f);

/* directory + "." + name + ".<process>-<counter>" + ending: a name that no other writer has and
 * PREFIX-* does not match. Owned; NULL: no memory. */
char *mr__hidden_name(const char *path, const char *ending);

/* System calls that are tried again when a signal interrupts them; -1 and errno. */
int mr__open_again(const char *path, int flags);
int mr__fsync_again(int fd);
int mr__rename_again(const char *from, const char *to);
int mr__unlink_again(const char *path);
#endif
