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

/* Reads the file at path, of at most `most` bytes (SIZE_MAX: any number; some files, as /dev/zero,
 * never end). "-" is standard input. A pipe is read to its end; cancel (NULL: nothing) interrupts
 * the wait for its writer. Returns owned in *out, for mr_free, the *size bytes of the file and a
 * NUL byte.
 * errors   as open(2) and read(2), with the file; MR_OUT_OF_RANGE: more than `most` bytes;
 *          MR_FAILED_PRECONDITION: a directory; MR_CANCELLED; MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_file_read(const char *path, size_t most, mr_cancel *cancel, void **out,
                            size_t *size, mr_status *st) MR_NODISCARD;
/* The same without a copy: *out is a buffer, owned, that starts with these bytes. */
MR_API mr_code mr_file_read_buffer(const char *path, size_t most, mr_cancel *cancel,
                                   mr_buffer **out, size_t *size, mr_status *st) MR_NODISCARD;

/* As mr_file_read_buffer, for a path that is itself data: errors have it in the message, since
 * their place is the record that holds it. */
mr_code mr__file_read_named(const char *path, size_t most, mr_cancel *cancel, mr_buffer **out,
                            size_t *size, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
