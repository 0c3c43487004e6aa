/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_CREDENTIALS_H
#define MR_PIPELINE_REMOTE_CREDENTIALS_H
/* Credentials for S3, from the first of these sources that has any:
 *
 *     MILLRACE_S3_ANONYMOUS=1              none: requests are not signed
 *     AWS_ACCESS_KEY_ID and its relatives
 *     AWS_WEB_IDENTITY_TOKEN_FILE          the role AWS_ROLE_ARN, through STS
 *     ~/.aws/credentials and ~/.aws/config the profile that AWS_PROFILE names, or "default"
 *     AWS_CONTAINER_CREDENTIALS_...        a server of the container
 *     instance metadata                    version 2
 *
 * Those that end are kept and renewed; see access.h.
 *
 * thread   any; waits with mr__cancel_of_thread */
#include "pipeline/remote/access.h"

typedef struct mr__s3_credentials {
    char *id, *secret, *token; /* id NULL: anonymous; token NULL: none */
    char *region;
    const char *origin; /* where id and secret came from, for messages; static */
    mr__access *access; /* that renews them; NULL: nothing does */
    unsigned generation;
} mr__s3_credentials;

/* *out: owned, for mr__s3_credentials_reset.
 * errors   MR_PERMISSION_DENIED: no source has credentials; names the sources ·
 *          MR_INVALID_ARGUMENT: a source has a part of them; those of a source that is asked;
 *          MR_CANCELLED; MR_RESOURCE_EXHAUSTED; of no element */
mr_code mr__s3_credentials_find(mr__s3_credentials *out, mr_status *st) MR_NODISCARD;
void mr__s3_credentials_reset(mr__s3_credentials *c);
#endif
