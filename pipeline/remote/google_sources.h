/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_GOOGLE_SOURCES_H
#define MR_PIPELINE_REMOTE_GOOGLE_SOURCES_H
/* Sources of Google's access tokens.
 *
 * source   RFC 7523 (tokens for a signed assertion); RFC 6749 section 6 (refresh tokens); Compute
 *          Engine, "Authenticate workloads" (the metadata server)
 * thread   those of access.h, which end their waits */
#include "pipeline/remote/access.h"

/* For mr__access_get. Arguments: path of a file of a service account or of an authorised user. */
mr_code mr__google_ask_file(char *const *arguments, mr__credentials *out,
                            mr_status *st) MR_NODISCARD;
/* Arguments: URL of the metadata server. */
mr_code mr__google_ask_metadata(char *const *arguments, mr__credentials *out,
                                mr_status *st) MR_NODISCARD;
#endif
