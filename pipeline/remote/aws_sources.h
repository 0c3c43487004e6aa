/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_AWS_SOURCES_H
#define MR_PIPELINE_REMOTE_AWS_SOURCES_H
/* Sources of temporary credentials for S3 that are asked by a request or by a program.
 *
 * source   AWS SDKs and Tools Reference Guide, "Standardized credential providers"; STS API
 *          Reference (2011-06-15); Amazon EC2 User Guide, "Instance metadata" (IMDSv2)
 * thread   those of access.h, which end their waits */
#include "pipeline/remote/access.h"

typedef struct mr__aws_role {
    const char *arn;
    const char *session;     /* NULL: "millrace" */
    const char *external_id; /* NULL: none */
    const char *seconds;     /* for which the credentials are to hold; NULL: STS decides */
    const char *region;      /* of STS */
    const char *origin;      /* for messages */
} mr__aws_role;

/* Take the role: with credentials of another user, or with the token of a web identity. */
mr_code mr__aws_take_role(const mr__aws_role *role, const mr__credentials *by, mr__credentials *out,
                          mr_status *st) MR_NODISCARD;
mr_code mr__aws_take_role_by_token(const mr__aws_role *role, const char *token_file,
                                   mr__credentials *out, mr_status *st) MR_NODISCARD;
/* Runs a shell command that prints credentials as JSON; at most a minute. */
mr_code mr__aws_run_process(const char *command, mr__credentials *out, mr_status *st) MR_NODISCARD;

/* The end of the names of Amazon's servers in the region, after amazonaws.com. */
const char *mr__aws_ending(const char *region);

/* The URL of the container's credentials. MR_NOT_FOUND: the variables are not set.
 * errors   MR_INVALID_ARGUMENT: an address that may not get the token */
mr_code mr__aws_container_url(char **out, mr_status *st) MR_NODISCARD;
/* For mr__access_get. Arguments: URL; token or NULL; file of the token or NULL. */
mr_code mr__aws_ask_container(char *const *arguments, mr__credentials *out,
                              mr_status *st) MR_NODISCARD;
/* Arguments: URL of the metadata server. */
mr_code mr__aws_ask_instance(char *const *arguments, mr__credentials *out,
                             mr_status *st) MR_NODISCARD;
/* The URL of the metadata server, owned; *disabled: it is not to be asked. */
mr_code mr__aws_instance_url(char **out, bool *disabled, mr_status *st) MR_NODISCARD;
#endif
