/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_NEW_FILE_H
#define MR_PIPELINE_FORMATS_NEW_FILE_H
/* A file written atomically: complete or absent. It is written next to its path under a hidden
 * name, and close renames it. For the formats room and those above it.
 *
 * thread   one at a time per object */
#include "pipeline/memory/buffer.h"

typedef struct mr__new_file {
    int fd;
    char *path, *partial;
    mr_buffer *buffer; /* bytes to write next */
    size_t used;
    bool created; /* false: abort keeps the file */
} mr__new_file;

/* *f is overwritten. errors as open(2), with the file */
mr_code mr__new_file_open(mr__new_file *f, const char *path, mr_status *st) MR_NODISCARD;
/* errors   as write(2), with the file, which is removed; only abort may follow */
mr_code mr__new_file_put(mr__new_file *f, const void *data, size_t n, mr_status *st) MR_NODISCARD;
/* The same in two steps: returns the place for the next bytes, *n of them, at least one; then takes
 * their number. */
void *mr__new_file_room(const mr__new_file *f, size_t *n);
mr_code mr__new_file_wrote(mr__new_file *f, size_t n, mr_status *st) MR_NODISCARD;
/* Bytes put next replace the head of the file. errors as mr__new_file_put */
mr_code mr__new_file_rewind(mr__new_file *f, mr_status *st) MR_NODISCARD;
/* Flushes, syncs if `sync`, and closes the file, which keeps its hidden name. Only close and abort
 * may follow. */
mr_code mr__new_file_finish(mr__new_file *f, bool sync, mr_status *st) MR_NODISCARD;
/* Finishes the file if necessary and renames it to its path. Releases everything, also on failure;
 * then no file remains. */
mr_code mr__new_file_close(mr__new_file *f, bool sync, mr_status *st) MR_NODISCARD;
/* Removes the file. Also for a zeroed or aborted one. */
void mr__new_file_abort(mr__new_file *f);

/* directory + "." + name + ".<process>-<counter>" + ending: a name that no other writer has and
 * that PREFIX-* does not match. Owned; NULL: out of memory. */
char *mr__hidden_name(const char *path, const char *ending);

/* System calls that are retried after a signal; they return -1 with errno. */
int mr__open_again(const char *path, int flags);
int mr__fsync_again(int fd);
int mr__rename_again(const char *from, const char *to);
int mr__unlink_again(const char *path);
#endif
