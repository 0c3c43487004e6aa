/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_GCS_H
#define MR_PIPELINE_REMOTE_GCS_H
/* Google Cloud Storage through its XML interface. Its documents are those of S3 (s3.h). Access is
 * that of the first of these sources that has any:
 *
 *     GOOGLE_OAUTH_ACCESS_TOKEN        a token
 *     GOOGLE_APPLICATION_CREDENTIALS   a file of a service account or of a user; else gcloud's
 *     metadata server                  of the machine's service account
 *     GCS_HMAC_KEY, GCS_HMAC_SECRET    requests are signed
 *     none                             anonymous
 *
 * source   Cloud Storage, XML API: "Overview", "Request headers", "HMAC keys"
 * thread   any; waits with mr__cancel_of_thread */
#include "pipeline/remote/remote_object.h"

/* Makes the target of gs://bucket/key; query (or NULL) is for the bucket instead. Owned parts, for
 * mr__object_target_reset, also after a failure.
 * errors   MR_INVALID_ARGUMENT; those of a source that is asked; MR_RESOURCE_EXHAUSTED */
mr_code mr__gcs_target(const char *url, const char *query, mr__object_target *out,
                       mr_status *st) MR_NODISCARD;
#endif
