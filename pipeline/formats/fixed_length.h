/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_FIXED_LENGTH_H
#define MR_PIPELINE_FORMATS_FIXED_LENGTH_H
/* Files of records of one length between a header and a footer.
 *
 *   offset          size            meaning
 *   0               header_bytes    passed by
 *   header_bytes    n * record_bytes  the records
 *   ...             footer_bytes    passed by
 *
 * Functions as in tfrecord.h. A body that is not a multiple of record_bytes is
 * MR_INVALID_ARGUMENT from open; in a compressed file, whose size is not known, MR_DATA_LOSS after
 * the records.
 *
 * thread   one at a time per reader
 * since    0.1 */
#include "../memory/array.h"
#include "file_position.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_fixed_length_reader mr_fixed_length_reader;

typedef struct mr_fixed_length_opts {
    mr_file_opts file;
    int64_t record_bytes;               /* at least 1 */
    int64_t header_bytes, footer_bytes; /* at least 0 */
} mr_fixed_length_opts;

/* Opens path. Returns owned in *out. errors as open(2); MR_INVALID_ARGUMENT: bad options */
MR_API mr_code mr_fixed_length_reader_open(mr_fixed_length_reader **out, const char *path,
                                           const mr_fixed_length_opts *opts,
                                           mr_status *st) MR_NODISCARD;
/* NULL: nothing. */
MR_API void mr_fixed_length_reader_close(mr_fixed_length_reader *r);
/* Up to `want` next records of about max_bytes together into *out; MR_END behind the last. */
MR_API mr_code mr_fixed_length_reader_read(mr_fixed_length_reader *r, size_t want, size_t max_bytes,
                                           mr_array *out, mr_status *st) MR_NODISCARD;
/* The place behind what was read, for seek on a reader of the same file. */
MR_API void mr_fixed_length_reader_position(const mr_fixed_length_reader *r, mr_file_position *out);
/* Goes on at `to`. errors as read, where the way there is damaged */
MR_API mr_code mr_fixed_length_reader_seek(mr_fixed_length_reader *r, const mr_file_position *to,
                                           mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
