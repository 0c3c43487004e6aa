/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_H
#define MR_PIPELINE_FORMATS_TFRECORD_H
/* TFRecord files: records back to back, no header, no trailer, no alignment. Little-endian.
 *
 *   offset  size  meaning
 *   0       8     L, length of the data, uint64
 *   8       4     masked CRC-32C of the 8 length bytes
 *   12      L     data
 *   12+L    4     masked CRC-32C of the data; the next record starts at 16+L
 *
 * masked(c) = ((c >> 15) | (c << 17)) + 0xA282EAD8 mod 2^32. In a compressed file the whole of it
 * is one compressed stream. 1 to 11 bytes at the end are a clean end, as in TensorFlow.
 *
 * thread   one at a time per reader or writer
 * since    0.1 */
#include "../memory/array.h"
#include "file_position.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_tfrecord_reader mr_tfrecord_reader;

/* errors   MR_NOT_FOUND and others: as open(2), with the file; MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_tfrecord_reader_open(mr_tfrecord_reader **out, const char *path,
                                       const mr_file_opts *opts, mr_status *st) MR_NODISCARD;
MR_API void mr_tfrecord_reader_close(mr_tfrecord_reader *r); /* NULL: nothing */

/* The next 1 to `want` records as a scalar BYTES array of views into the bytes as they were read;
 * *out (empty before) holds what they point into. Stops after max_bytes of payload (at least one
 * record) and where going on would mean another read.
 *
 * MR_END at the end, and after an error.
 * errors   MR_DATA_LOSS: "corrupted record at ..." or "truncated record at ...", with file, byte
 *          offset and record number; the records before it are returned first, the file is given up
 *          MR_RESOURCE_EXHAUSTED, and what read(2) may say
 * memory   no copy of a record that lies whole in a chunk; a length is checked before memory is
 *          asked for on its word. Chunks are reused when *out of the call before has been let go */
MR_API mr_code mr_tfrecord_reader_read(mr_tfrecord_reader *r, size_t want, size_t max_bytes,
                                       mr_array *out, mr_status *st) MR_NODISCARD;

/* Passes by up to n records without building views (their checksums are verified); *skipped is
 * their number, less than n only at the end or before an error, which is returned. */
MR_API mr_code mr_tfrecord_reader_skip(mr_tfrecord_reader *r, int64_t n, int64_t *skipped,
                                       mr_status *st) MR_NODISCARD;

/* Where the next record starts; seek goes there, also in another reader of the same file. */
MR_API void mr_tfrecord_reader_position(const mr_tfrecord_reader *r, mr_file_position *out);
MR_API mr_code mr_tfrecord_reader_seek(mr_tfrecord_reader *r, const mr_file_position *to,
                                       mr_status *st) MR_NODISCARD;

typedef struct mr_tfrecord_writer mr_tfrecord_writer;

typedef struct mr_tfrecord_writer_opts {
    mr_compression compression;
    bool sync; /* fsync before the file gets its name */
} mr_tfrecord_writer_opts;

/* Writes to a temporary name beside path; close renames it, so that the file is complete or not
 * there at all. opts NULL: uncompressed.
 * errors   as open(2) */
MR_API mr_code mr_tfrecord_writer_open(mr_tfrecord_writer **out, const char *path,
                                       const mr_tfrecord_writer_opts *opts,
                                       mr_status *st) MR_NODISCARD;
/* errors   MR_RESOURCE_EXHAUSTED (disk full, file size limit) and others as write(2); the temporary
 *          file is gone then, and every later call returns the same code */
MR_API mr_code mr_tfrecord_writer_append(mr_tfrecord_writer *w, const void *data, size_t n,
                                         mr_status *st) MR_NODISCARD;
/* Writes what is left, gives the file its name and frees w, also on failure (then there is no
 * file). NULL: MR_OK. */
MR_API mr_code mr_tfrecord_writer_close(mr_tfrecord_writer *w, mr_status *st) MR_NODISCARD;
/* Removes what was written and frees w. NULL: nothing. */
MR_API void mr_tfrecord_writer_abort(mr_tfrecord_writer *w);

#ifdef __cplusplus
}
#endif
#endif
