/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TFRECORD_ZSTD_RECORDS_H
#define MR_PIPELINE_FORMATS_TFRECORD_ZSTD_RECORDS_H
/* Reads records that are each one zstd frame (RFC 8878). A frame compressed with a dictionary
 * carries the dictionary's ID. The dictionary is the one that the caller names, or PREFIX.dict next
 * to the file PREFIX-00000-of-0000N.tfrecord, where the shard writer puts it.
 *
 * thread   one at a time per object
 * since    0.1 */
#include "../../memory/array.h"
#include "../../wait/cancel.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_zstd_records mr_zstd_records;

/* Opens a reader. dictionary: its path; NULL: none. cancel: borrowed until close; NULL: none.
 * errors   as open(2) · MR_INVALID_ARGUMENT: the dictionary is damaged · MR_OUT_OF_RANGE: it is
 *          larger than 256 MiB · MR_NOT_FOUND: libzstd is not installed */
MR_API mr_code mr_zstd_records_open(mr_zstd_records **out, const char *dictionary,
                                    mr_cancel *cancel, mr_status *st) MR_NODISCARD;
MR_API void mr_zstd_records_close(mr_zstd_records *f); /* NULL: no effect */
/* True if the record begins with the magic number of a zstd frame. */
MR_API bool mr_is_zstd_record(const mr_bytes *record);

/* Decompresses the first of n frames of the file `path`: those up to the first bad one, at least
 * one, and not much more than `most` bytes together. *out has their records; the caller resets it.
 * errors   of the first frame: MR_DATA_LOSS: it is damaged, or not a frame ·
 *          MR_FAILED_PRECONDITION: it needs another dictionary, or one that is unknown ·
 *          MR_RESOURCE_EXHAUSTED: a record of more than 1 GiB · those of opening */
MR_API mr_code mr_zstd_records_read(mr_zstd_records *f, const char *path, const mr_bytes *frames,
                                    size_t n, size_t most, mr_array *out,
                                    mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
