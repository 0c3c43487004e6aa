/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TEXT_LINE_H
#define MR_PIPELINE_FORMATS_TEXT_LINE_H
/* Lines of a text file, without their \n; every \r is removed, wherever it stands. A last line
 * without \n is delivered if anything but \r is in it. Blank lines are kept.
 *
 * Functions as in tfrecord.h; a record is a line. A line may be at most 1 GiB long
 * (MR_RESOURCE_EXHAUSTED); a damaged compressed file is MR_DATA_LOSS after the lines before it.
 *
 * thread   one at a time per reader
 * since    0.1 */
#include "../memory/array.h"
#include "file_position.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_text_line_reader mr_text_line_reader;

/* Opens path. Returns owned in *out. errors as open(2); MR_INVALID_ARGUMENT: bad options */
MR_API mr_code mr_text_line_reader_open(mr_text_line_reader **out, const char *path,
                                        const mr_file_opts *opts, mr_status *st) MR_NODISCARD;
/* NULL: nothing. */
MR_API void mr_text_line_reader_close(mr_text_line_reader *r);
/* Up to `want` next records of about max_bytes together into *out; MR_END behind the last. */
MR_API mr_code mr_text_line_reader_read(mr_text_line_reader *r, size_t want, size_t max_bytes,
                                        mr_array *out, mr_status *st) MR_NODISCARD;
/* The place behind what was read, for seek on a reader of the same file. */
MR_API void mr_text_line_reader_position(const mr_text_line_reader *r, mr_file_position *out);
/* Goes on at `to`. errors as read, where the way there is damaged */
MR_API mr_code mr_text_line_reader_seek(mr_text_line_reader *r, const mr_file_position *to,
                                        mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
