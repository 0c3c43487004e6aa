/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_SHARD_WRITER_H
#define MR_PIPELINE_FORMATS_SHARD_WRITER_H
/* A set of TFRecord files, PREFIX-00000-of-0000N.tfrecord and so on, records dealt round robin.
 * Each file is complete or not there at all: they get their names when all of them are written.
 *
 * thread   one at a time per writer
 * since    0.1 */
#include "tfrecord.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_shard_writer mr_shard_writer;

/* units    n_shards 1 to 99,999 files, all open at once
 * errors   MR_INVALID_ARGUMENT: n_shards; what mr_tfrecord_writer_open says */
MR_API mr_code mr_shard_writer_open(mr_shard_writer **out, const char *prefix, int64_t n_shards,
                                    const mr_tfrecord_writer_opts *opts,
                                    mr_status *st) MR_NODISCARD;
/* Appends a record to the file whose turn it is. errors as mr_tfrecord_writer_append */
MR_API mr_code mr_shard_writer_append(mr_shard_writer *w, const void *data, size_t n,
                                      mr_status *st) MR_NODISCARD;
/* Finishes all files and frees w; on failure the files not finished by then are removed. */
MR_API mr_code mr_shard_writer_close(mr_shard_writer *w, mr_status *st) MR_NODISCARD;
/* Removes everything and frees w. NULL: nothing. */
MR_API void mr_shard_writer_abort(mr_shard_writer *w);
/* Records so far. */
MR_API int64_t mr_shard_writer_records(const mr_shard_writer *w);

#ifdef __cplusplus
}
#endif
#endif
