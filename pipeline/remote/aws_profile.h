/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_AWS_PROFILE_H
#define MR_PIPELINE_REMOTE_AWS_PROFILE_H
/* Profiles of ~/.aws/credentials and ~/.aws/config. A profile has, in this order: role_arn, which
 * is taken with the credentials of source_profile, those that credential_source names, or the token
 * of web_identity_token_file; keys in the first file; credential_process; keys in the second file.
 *
 * thread   any */
#include "pipeline/remote/access.h"

typedef struct mr__aws_files {
    char *paths[2]; /* of credentials, of the configuration */
    char *texts[2]; /* NULL: the file does not exist */
} mr__aws_files;

/* Reads AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE, or their defaults.
 * errors   as mr__secret_file_read */
mr_code mr__aws_files_read(mr__aws_files *out, mr_status *st) MR_NODISCARD;
void mr__aws_files_reset(mr__aws_files *f);

bool mr__aws_has_profile(const mr__aws_files *f, const char *name);
/* *out: the value, owned, or NULL. */
mr_code mr__aws_profile_value(const mr__aws_files *f, const char *name, const char *key, char **out,
                              mr_status *st) MR_NODISCARD;

/* The keys that the profile itself has. MR_NOT_FOUND: it has none, or a role or program to be asked
 * instead: *asks, owned, else NULL, says which.
 * errors   MR_INVALID_ARGUMENT: a part of them */
mr_code mr__aws_profile_keys(const mr__aws_files *f, const char *name, mr__credentials *out,
                             char **asks, mr_status *st) MR_NODISCARD;
/* For mr__access_get. Arguments: name of the profile; region of STS; the paths of the two files;
 * what mr__aws_profile_keys said, or NULL. */
mr_code mr__aws_ask_profile(char *const *arguments, mr__credentials *out,
                            mr_status *st) MR_NODISCARD;
#endif
