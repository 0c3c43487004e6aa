/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_RECORD_INDEX_H
#define MR_PIPELINE_FORMATS_TFRECORD_RECORD_INDEX_H
/* Where the records of an uncompressed TFRecord file lie, as FILE.idx beside it says. The file has
 * one of two forms; which, is seen from its first bytes. As text, which other tools write and read
 * too, a record is a line: its byte offset, a blank, its size with its framing of 16 bytes. The
 * compact form, version 1, little-endian, G = 64:
 *
 *   offset   size          meaning
 *   0        8             "MRINDEX" and the version, a byte
 *   8        8             N, the number of records
 *   16       8             bytes of the TFRecord file up to the end of its last record
 *   24       8             M, what all sizes have in common
 *   32       4             W, bytes of an entry: 0, 1, 2, 4 or 8
 *   36       4             0
 *   40       8 * ceil(N/G) offsets of records 0, G, 2G, ...
 *   ...      W * N         sizes of the records with their framing, each less M
 *   end - 4  4             CRC-32C of all bytes before
 *
 * An index is stale, and refused, when the TFRecord file is younger, when it does not end where the
 * index says, or when its first, middle or last record is not where the index says.
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
    bool compact;      /* the compact form; else text */
    mr_cancel *cancel; /* borrowed during the call; NULL: none */
} mr_record_index_opts;

/* Reads the TFRecord file `path` from front to back and writes path.idx, which is complete or not
 * there. opts NULL: all zero. *records (may be NULL): how many there are.
 * errors   those of mr_reader_open and mr_reader_read: a damaged file gets no index
 *          MR_FAILED_PRECONDITION: a compressed file, whose records have no offsets, or a pipe */
MR_API mr_code mr_record_index_write(const char *path, const mr_record_index_opts *opts,
                                     int64_t *records, mr_status *st) MR_NODISCARD;

/* Reads path.idx, the index of the TFRecord file `path`. Returns owned in *out.
 * errors   MR_NOT_FOUND: there is none, or no such file
 *          MR_FAILED_PRECONDITION: it is stale; says how, and what to do
 *          MR_DATA_LOSS: it is neither form, or damaged */
MR_API mr_code mr_record_index_open(mr_record_index **out, const char *path,
                                    mr_status *st) MR_NODISCARD;
MR_API void mr_record_index_close(mr_record_index *ix); /* NULL: nothing */

/* Number of records; where record i (0 to that less 1) lies, and its size with its framing. */
MR_API int64_t mr_record_index_count(const mr_record_index *ix);
MR_API void mr_record_index_at(const mr_record_index *ix, int64_t i, int64_t *offset,
                               int64_t *size);

#ifdef __cplusplus
}
#endif
#endif
