/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_ATOMIC_FILE_IMPL_H
#define MR_PIPELINE_FILES_ATOMIC_FILE_IMPL_H
/* The parts of an atomic file for the formats: writing a compressor's output into its buffer,
 * overwriting the header last, and renaming a set of files together. Private to pipeline/. */
#include "pipeline/files/atomic_file.h"
#include "pipeline/memory/buffer.h"
#include "pipeline/remote/upload.h"

struct mr_atomic_file {
    int fd;
    char *path, *partial; /* partial NULL: in place */
    mr_buffer *buffer;    /* what is written next; NULL: put writes at once */
    size_t used;
    mr_file_sync sync;
    mr__upload *upload; /* a URL: fd is -1, and there is no partial file */
    bool created;       /* abort removes partial; false once the caller has renamed it */
};

/* As mr_atomic_file_open of a URL. */
mr_code mr__atomic_file_open_upload(mr_atomic_file **out, const char *url,
                                    const mr__upload_opts *opts, mr_status *st) MR_NODISCARD;
/* put in two steps: returns where the next bytes go, *n of them, at least one; then says how many
 * there are. */
void *mr__atomic_file_room(const mr_atomic_file *f, size_t *n);
mr_code mr__atomic_file_wrote(mr_atomic_file *f, size_t n, mr_status *st) MR_NODISCARD;
/* The next put overwrites the start of the file. errors as put */
mr_code mr__atomic_file_rewind(mr_atomic_file *f, mr_status *st) MR_NODISCARD;
/* The first half of close: the file keeps its partial name, or its upload is not visible. Only
 * close and abort may follow. */
mr_code mr__atomic_file_finish(mr_atomic_file *f, mr_status *st) MR_NODISCARD;

/* directory + "." + name + ".<process>-<number>" + ending: a name that no other writer uses and
 * PREFIX-* does not match. Owned; NULL: no memory. */
char *mr__hidden_name(const char *path, const char *ending);
#endif
