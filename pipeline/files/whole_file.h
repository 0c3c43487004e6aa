/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_WHOLE_FILE_H
#define MR_PIPELINE_FILES_WHOLE_FILE_H
/* A file read at one go, for those that are needed whole. Private to pipeline/.
 *
 * thread   any */
#include "../memory/buffer.h"
#include "../wait/cancel.h"

/* *out holds the *size bytes of the file, owned; at most `most` (SIZE_MAX: any number), since some
 * files, as /dev/zero, never end. "-" is standard input; a pipe is read to its end, which cancel
 * (NULL: nothing) does not wait for.
 * errors   of read_ahead.h, with the path in the message; MR_OUT_OF_RANGE: over `most`;
 *          MR_CANCELLED */
mr_code mr__whole_file(const char *path, size_t most, mr_cancel *cancel, mr_buffer **out,
                       size_t *size, mr_status *st) MR_NODISCARD;
#endif
