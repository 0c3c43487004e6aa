/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_UPLOADS_H
#define MR_PIPELINE_REMOTE_UPLOADS_H
/* Multipart uploads that were begun and neither completed nor aborted: those of writers that are
 * running, and of writers that were killed. They are invisible, but stores charge for their parts.
 *
 * thread   any
 * since    0.2 */
#include <stdint.h>
#include "../wait/cancel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Borrowed during the call. */
typedef struct mr_unfinished_upload {
    const char *url, *id;
    const char *initiated; /* as the store writes it: 2026-01-02T03:04:05.678Z; "": unknown */
} mr_unfinished_upload;

/* Calls fn for each unfinished upload whose URL begins with the prefix, s3://bucket or
 * s3://bucket/beginning, in the order of the store. cancel may be NULL.
 * errors   MR_INVALID_ARGUMENT: not such a URL; MR_UNIMPLEMENTED: a store without uploads; those of
 *          reading; the error that fn returns */
MR_API mr_code mr_uploads_list(const char *prefix,
                               mr_code (*fn)(void *ctx, const mr_unfinished_upload *u,
                                             mr_status *st),
                               void *ctx, mr_cancel *cancel, mr_status *st) MR_NODISCARD;
/* Aborts it: its parts are removed. It need not exist. If its writer still runs, that fails.
 * errors   those of reading */
MR_API mr_code mr_upload_abort(const char *url, const char *id, mr_cancel *cancel,
                               mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
