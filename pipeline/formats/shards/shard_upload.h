/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_SHARDS_SHARD_UPLOAD_H
#define MR_PIPELINE_FORMATS_SHARDS_SHARD_UPLOAD_H
/* Writes a set of shards to a store, which has no renames:
 *
 *     open     refuses an existing set, or remembers it to be overwritten
 *     begin    removes shard 0 of old sets and their indexes, so that no reader takes a mixture for
 *              a whole set
 *     ...      the writer makes the files visible, the last one first
 *     end      removes what is left of old sets
 *
 * thread   one at a time per writer */
#include "pipeline/formats/shards/shard_writer.h"
#include "pipeline/remote/upload.h"

typedef struct mr__shard_upload mr__shard_upload;

/* Bytes that the parts of the files take; 0: opts->prefix is not a URL. */
int64_t mr__shard_upload_memory(int64_t n_shards, const mr_shard_writer_opts *opts);
/* opts NULL: all zero.
 * errors   MR_ALREADY_EXISTS: a set, or the dictionary's name, exists, without `overwrite` */
mr_code mr__shard_upload_open(mr__shard_upload **out, const char *prefix, int64_t n_shards,
                              const mr_shard_writer_opts *opts, mr_status *st) MR_NODISCARD;
/* How to upload file i. */
mr__upload_opts mr__shard_upload_file(const mr__shard_upload *u, int64_t i);
/* dictionary: one is written.
 * errors   as open: another writer may have made a set since */
mr_code mr__shard_upload_begin(mr__shard_upload *u, bool dictionary, mr_status *st) MR_NODISCARD;
mr_code mr__shard_upload_end(mr__shard_upload *u, mr_status *st) MR_NODISCARD;
/* After all uploads. NULL: nothing. */
void mr__shard_upload_close(mr__shard_upload *u);
#endif
