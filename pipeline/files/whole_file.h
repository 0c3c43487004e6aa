/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_WHOLE_FILE_H
#define MR_PIPELINE_FILES_WHOLE_FILE_H
/* Reads a whole file into memory.
 *
 * thread   any
 * since    0.2 */
#include "../memory/buffer.h"
#include "../wait/cancel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_file_read_opts {
    size_t most;       /* maximum size in bytes; 0: unlimited, although /dev/zero never ends */
    mr_cancel *cancel; /* ends the wait for the writer of a pipe; borrowed; may be NULL */
    bool regular;      /* refuse pipes and devices, which could block forever */
} mr_file_read_opts;

/* Reads the file at path, a pipe to its end; "-" is standard input. Returns owned in *out, for
 * mr_free, the *size bytes of the file and a NUL byte. opts NULL: all zero.
 * errors   as open(2) and read(2), with the file; MR_OUT_OF_RANGE: more than `most` bytes;
 *          MR_FAILED_PRECONDITION: a directory; MR_INVALID_ARGUMENT: refused as not regular;
 *          MR_CANCELLED; MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_file_read(const char *path, const mr_file_read_opts *opts, void **out,
                            size_t *size, mr_status *st) MR_NODISCARD;
/* The same without a copy: *out is a buffer, owned, that starts with these bytes. */
MR_API mr_code mr_file_read_buffer(const char *path, const mr_file_read_opts *opts, mr_buffer **out,
                                   size_t *size, mr_status *st) MR_NODISCARD;

/* As mr_file_read_buffer, for a path that is itself data: errors have it in the message, since
 * their place is the record that holds it. */
mr_code mr__file_read_named(const char *path, const mr_file_read_opts *opts, mr_buffer **out,
                            size_t *size, mr_status *st) MR_NODISCARD;
/* From now on, mr__file_read_named calls fn first, on its thread; an error of fn is its error. */
typedef mr_code (*mr__file_read_fn)(const char *path, mr_status *st);
void mr__file_read_watch(mr__file_read_fn fn);
/* Calls that function: the contents of `path`, read earlier, are used again. */
mr_code mr__file_read_again(const char *path, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
