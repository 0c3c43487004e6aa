/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_CREDENTIALS_H
#define MR_PIPELINE_REMOTE_CREDENTIALS_H
/* Credentials for S3, from the first of these sources that has any:
 *
 *     MILLRACE_S3_ANONYMOUS=1              none: requests are not signed
 *     AWS_ACCESS_KEY_ID and its relatives
 *     ~/.aws/credentials and ~/.aws/config the profile that AWS_PROFILE names, or "default"
 *
 * thread   any */
#include "pipeline/memory/alloc.h"

typedef struct mr__s3_credentials {
    char *id, *secret, *token; /* id NULL: anonymous; token NULL: none */
    char *region;
    const char *origin; /* where id and secret came from, for messages; static */
} mr__s3_credentials;

/* *out: owned, for mr__s3_credentials_reset.
 * errors   MR_PERMISSION_DENIED: no source has credentials; names the sources ·
 *          MR_INVALID_ARGUMENT: a source has a part of them; MR_RESOURCE_EXHAUSTED */
mr_code mr__s3_credentials_find(mr__s3_credentials *out, mr_status *st) MR_NODISCARD;
void mr__s3_credentials_reset(mr__s3_credentials *c);
#endif
