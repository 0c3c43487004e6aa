/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_OBJECT_LIST_H
#define MR_PIPELINE_REMOTE_OBJECT_LIST_H
/* Lists the objects that a pattern matches: s3://bucket/, gs://bucket/ or hf://datasets/OWNER/NAME/
 * and a pattern for keys, as in list_files.
 * Only keys below the literal prefix are listed, 1,000 a request; their sizes and ETags are
 * remembered (mr__object_recall). A key that ends in "/" is left out.
 *
 * thread   any */
#include "pipeline/remote/remote_object.h"

typedef mr_code (*mr__object_list_fn)(void *ctx, const char *url, mr_status *st);

/* Calls found for the URL of each match, in the order of the store. A URL of a web server is its
 * own only match, if it can be read.
 * errors   those of found and of mr__transfer_take; with the pattern */
mr_code mr__object_list(const char *pattern, mr__object_list_fn found, void *ctx,
                        mr_status *st) MR_NODISCARD;

/* Remembers the object and calls found for it, if the pattern matches its URL. */
mr_code mr__object_offer(const char *pattern, const char *url, int64_t size, const char *etag,
                         mr__object_list_fn found, void *ctx, mr_status *st) MR_NODISCARD;
/* *out: the part of a pattern for keys before the first wildcard, without quoting backslashes;
 * owned. *wild: it has a wildcard; *deep: one that is not in the last part of the key. */
mr_code mr__literal_prefix(const char *key, char **out, bool *wild, bool *deep,
                           mr_status *st) MR_NODISCARD;
/* Calls found for all objects whose URLs begin with the prefix, s3://bucket/..., which is taken
 * literally. There may be none.
 * errors   as above */
mr_code mr__object_list_below(const char *prefix, mr__object_list_fn found, void *ctx,
                              mr_status *st) MR_NODISCARD;
#endif
