/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_SHARD_NAMES_H
#define MR_PIPELINE_FORMATS_SHARD_NAMES_H
/* Names of shards, PREFIX-00000-of-0000N.ENDING, and of their indexes, which append ".idx". */
#include <stddef.h>

/* The endings, indexed by mr_shard_format. */
enum { MR__SHARD_ENDINGS = 5 };
extern const char *const mr__shard_endings[MR__SHARD_ENDINGS];

/* Length of PREFIX in the path of a shard, which has n bytes; 0 if it is not such a path. */
size_t mr__shard_prefix(const char *path, size_t n);
/* Length of F in the path of an index, F.idx; 0 if it is not such a path. */
size_t mr__index_stem(const char *path);
#endif
