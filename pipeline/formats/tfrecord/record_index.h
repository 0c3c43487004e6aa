/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_RECORD_INDEX_H
#define MR_PIPELINE_FORMATS_TFRECORD_RECORD_INDEX_H
/* Index of an uncompressed TFRecord file, FILE.idx next to it: the place of each record. An index
 * is either text or compact; its first bytes tell which. The text form, which other tools also
 * write and read, has one line a record: its byte offset, a blank, its size with the 16 bytes of
 * framing. The compact form, version 1, little-endian, G = 64:
 *
 *   offset   size          meaning
 *   0        8             "MRINDEX" and the version, a byte
 *   8        8             N, the number of records
 *   16       8             bytes of the TFRecord file up to the end of its last record
 *   24       8             M, subtracted from each size
 *   32       4             W, bytes of an entry: 0, 1, 2, 4 or 8
 *   36       4             0
 *   40       8 * ceil(N/G) offsets of records 0, G, 2G, ...
 *   ...      W * N         sizes of the records with their framing, each less M
 *   end - 4  4             CRC-32C of all bytes before
 *
 * An index is stale, and refused, if the TFRecord file is newer, if it does not end where the index
 * says, or if its first, middle or last record is not where the index says.
 *
 * thread   any, once opened
 * since    0.1 */
#include "../../wait/cancel.h"
#include "../../memory/alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_record_index mr_record_index;

typedef struct mr_record_index_opts {
    bool compact;      /* write the compact form instead of text */
    mr_cancel *cancel; /* borrowed during the call; NULL: none */
} mr_record_index_opts;

/* Reads the TFRecord file `path` from front to back and writes path.idx atomically. opts NULL: all
 * zero. *records, which may be NULL, is the number of records.
 * errors   those of mr_reader_open and mr_reader_read: a damaged file gets no index
 *          MR_FAILED_PRECONDITION: a compressed file, whose records have no offsets, or a pipe */
MR_API mr_code mr_record_index_write(const char *path, const mr_record_index_opts *opts,
                                     int64_t *records, mr_status *st) MR_NODISCARD;

/* Reads path.idx, the index of the TFRecord file `path`. Returns owned in *out.
 * errors   MR_NOT_FOUND: the index or the file does not exist
 *          MR_FAILED_PRECONDITION: it is stale; the message says how, and what to do
 *          MR_DATA_LOSS: it has neither form, or is damaged */
MR_API mr_code mr_record_index_open(mr_record_index **out, const char *path,
                                    mr_status *st) MR_NODISCARD;
MR_API void mr_record_index_close(mr_record_index *ix); /* NULL: no effect */

/* Number of records; offset of record i (0 <= i < count) and its size with framing. */
MR_API int64_t mr_record_index_count(const mr_record_index *ix);
MR_API void mr_record_index_at(const mr_record_index *ix, int64_t i, int64_t *offset,
                               int64_t *size);

#ifdef __cplusplus
}
#endif
#endif
