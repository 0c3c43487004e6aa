/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_S3_H
#define MR_PIPELINE_REMOTE_S3_H
/* Amazon's S3 protocol: addresses of objects and documents that servers answer with.
 *
 * source   Amazon S3 API Reference (2006-03-01): GetObject, ListObjectsV2, error responses
 * thread   any */
#include "pipeline/remote/remote_object.h"
#include "pipeline/remote/xml_text.h"

/* Makes the target of s3://bucket/key; query (or NULL) is for the bucket instead. Owned parts, for
 * mr__object_target_reset, also after a failure.
 * errors   MR_INVALID_ARGUMENT, MR_PERMISSION_DENIED, MR_RESOURCE_EXHAUSTED */
mr_code mr__s3_target(const char *url, const char *query, mr__object_target *out,
                      mr_status *st) MR_NODISCARD;
/* Directs the target to the region that the server named.
 * errors   MR_RESOURCE_EXHAUSTED */
mr_code mr__s3_change_region(const char *url, const char *query, const char *region,
                             mr__object_target *target, mr_status *st) MR_NODISCARD;
void mr__object_target_reset(mr__object_target *t);
/* errors   MR_INVALID_ARGUMENT: the first n bytes are not the name of a bucket */
mr_code mr__check_bucket(const char *bucket, size_t n, mr_status *st) MR_NODISCARD;
/* Takes renewed credentials, if there are any. One thread at a time.
 * errors   MR_RESOURCE_EXHAUSTED */
mr_code mr__object_target_renew(mr__object_target *t, mr_status *st) MR_NODISCARD;

/* Length of "s3://bucket" or "gs://bucket", or 0. */
size_t mr__s3_bucket_size(const char *url);
#endif
