/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_WHOLE_FILE_H
#define MR_PIPELINE_FILES_WHOLE_FILE_H
/* Reads a whole file into memory. Private to pipeline/.
 *
 * thread   any */
#include "../memory/buffer.h"
#include "../wait/cancel.h"

/* Reads a file of at most `most` bytes (SIZE_MAX: no limit; some files, such as /dev/zero, never
 * end). *out holds its *size bytes, owned. "-" is standard input. A pipe is read to its end, unless
 * cancel (may be NULL) ends the wait for it.
 * errors   of read_ahead.h, with the path in the message; MR_OUT_OF_RANGE: more than `most` bytes;
 *          MR_CANCELLED */
mr_code mr__whole_file(const char *path, size_t most, mr_cancel *cancel, mr_buffer **out,
                       size_t *size, mr_status *st) MR_NODISCARD;
#endif
