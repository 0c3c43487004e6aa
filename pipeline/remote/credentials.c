/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/credentials.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/remote/aws_profile.h"
#include "pipeline/remote/aws_sources.h"
#include "pipeline/remote/remote_object.h"
#include "pipeline/remote/secret_file.h"

void mr__s3_credentials_reset(mr__s3_credentials *c)
{
    mr__secret_free(c->id);
    mr__secret_free(c->secret);
    mr__secret_free(c->token);
    mr_free(c->region);
    mr__access_unref(c->access);
    *c = (mr__s3_credentials){0};
}

static mr_code from_environment(mr__s3_credentials *c, mr_status *st)
{
    const char *id = mr__variable("AWS_ACCESS_KEY_ID");
    const char *secret = mr__variable("AWS_SECRET_ACCESS_KEY");
    const char *token = mr__variable("AWS_SESSION_TOKEN");
    if (!id)
        return MR_OK;
    if (!secret)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not");
    c->origin = "AWS_ACCESS_KEY_ID";
    MR_TRY(mr__secret_copy(&c->id, id, st));
    MR_TRY(mr__secret_copy(&c->secret, secret, st));
    return token ? mr__secret_copy(&c->token, token, st) : MR_OK;
}

/* Takes what the source has now. */
static mr_code from_access(mr__s3_credentials *c, mr_status *st)
{
    mr__credentials now = {0};
    MR_TRY(mr__access_take(c->access, &c->generation, &now, st));
    c->id = now.id;
    c->secret = now.secret;
    c->token = now.token;
    c->origin = now.origin;
    return MR_OK;
}

static mr_code from_source(mr__s3_credentials *c, mr__access_fetch fetch,
                           const char *const *arguments, mr_status *st)
{
    MR_TRY(mr__access_get(&c->access, fetch, arguments, st));
    return from_access(c, st);
}

/* Arguments: file of the token, role, session or NULL, region. */
static mr_code ask_web_identity(char *const *arguments, mr__credentials *out, mr_status *st)
{
    mr__aws_role role = {.arn = arguments[1],
                         .session = arguments[2],
                         .region = arguments[3],
                         .origin = "the web identity (AWS_WEB_IDENTITY_TOKEN_FILE), through STS"};
    return mr__aws_take_role_by_token(&role, arguments[0], out, st);
}

static mr_code from_web_identity(mr__s3_credentials *c, mr_status *st)
{
    const char *const arguments[MR__ACCESS_ARGUMENTS] = {
        mr__variable("AWS_WEB_IDENTITY_TOKEN_FILE"), mr__variable("AWS_ROLE_ARN"),
        mr__variable("AWS_ROLE_SESSION_NAME"), c->region};
    if (!arguments[0])
        return MR_OK;
    if (!arguments[1])
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not");
    return from_source(c, ask_web_identity, arguments, st);
}

static const char *profile_name(void)
{
    const char *v = mr__variable("AWS_PROFILE");
    return v ? v : "default";
}

static mr_code from_profile(mr__s3_credentials *c, const mr__aws_files *f, mr_status *st)
{
    const char *name = profile_name();
    mr__credentials now = {0};
    char *asks = NULL;
    if (mr__variable("AWS_PROFILE") && !mr__aws_has_profile(f, name))
        return mr_fail(st, MR_PERMISSION_DENIED,
                       "no credentials for S3: AWS_PROFILE names the profile %.64s, which neither "
                       "%s (~/.aws/credentials) nor %s (~/.aws/config) has",
                       name, f->paths[0], f->paths[1]);
    mr_code rc = mr__aws_profile_keys(f, name, &now, &asks, st);
    const char *const arguments[MR__ACCESS_ARGUMENTS] = {name, c->region, f->paths[0], f->paths[1],
                                                         asks};
    if (rc == MR_OK) {
        rc = mr__access_put(&c->access, mr__aws_ask_profile, arguments, &now, st);
        if (rc == MR_OK)
            rc = from_access(c, st);
    } else if (rc == MR_NOT_FOUND)
        rc = asks ? from_source(c, mr__aws_ask_profile, arguments, st) : MR_OK;
    mr__credentials_reset(&now);
    mr_free(asks);
    return rc;
}

static mr_code from_container(mr__s3_credentials *c, mr_status *st)
{
    char *url = NULL;
    mr_code rc = mr__aws_container_url(&url, st);
    if (rc != MR_OK)
        return rc == MR_NOT_FOUND ? MR_OK : rc;
    const char *file = mr__variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *const arguments[MR__ACCESS_ARGUMENTS] = {
        url, file ? NULL : mr__variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"), file};
    rc = from_source(c, mr__aws_ask_container, arguments, st);
    mr_free(url);
    return rc;
}

static mr_code fail_without(const char *instance, mr_status *st)
{
    return mr_fail(st, MR_PERMISSION_DENIED,
                   "no credentials for S3 in AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE, "
                   "~/.aws/credentials and ~/.aws/config (profile %.64s), "
                   "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and _FULL_URI, and instance metadata "
                   "(%s); MILLRACE_S3_ANONYMOUS=1 reads public buckets without",
                   profile_name(), instance);
}

static mr_code from_instance(mr__s3_credentials *c, mr_status *st)
{
    char *url = NULL;
    bool disabled = false;
    MR_TRY(mr__aws_instance_url(&url, &disabled, st));
    mr_status why;
    mr_status_init(&why);
    const char *const arguments[MR__ACCESS_ARGUMENTS] = {url};
    mr_code rc = disabled ? MR_NOT_FOUND : from_source(c, mr__aws_ask_instance, arguments, &why);
    mr_free(url);
    if (rc == MR_NOT_FOUND)
        return fail_without(disabled ? "AWS_EC2_METADATA_DISABLED" : why.message, st);
    if (rc != MR_OK && st)
        *st = why;
    return rc;
}

static mr_code find_region(mr__s3_credentials *c, const mr__aws_files *f, mr_status *st)
{
    MR_TRY(mr__aws_profile_value(f, profile_name(), "region", &c->region, st));
    return c->region ? MR_OK : mr__secret_copy(&c->region, "us-east-1", st);
}

/* Asks the sources in their order. */
static mr_code find(mr__s3_credentials *c, mr_status *st)
{
    const char *region = mr__variable("AWS_REGION"), *none = mr__variable("MILLRACE_S3_ANONYMOUS");
    bool anonymous = none && strcmp(none, "0") != 0;
    mr__aws_files f = {0};
    if (!region)
        region = mr__variable("AWS_DEFAULT_REGION");
    mr_code rc = region ? mr__secret_copy(&c->region, region, st) : MR_OK;
    if (rc == MR_OK && !anonymous)
        rc = from_environment(c, st);
    if (rc == MR_OK && ((!anonymous && !c->id) || !c->region)) {
        rc = mr__aws_files_read(&f, st);
        if (rc == MR_OK && !c->region)
            rc = find_region(c, &f, st);
    }
    bool looks = !anonymous && !c->id;
    if (rc == MR_OK && looks)
        rc = from_web_identity(c, st);
    if (rc == MR_OK && looks && !c->id)
        rc = from_profile(c, &f, st);
    if (rc == MR_OK && looks && !c->id)
        rc = from_container(c, st);
    if (rc == MR_OK && looks && !c->id)
        rc = from_instance(c, st);
    mr__aws_files_reset(&f);
    return rc;
}

mr_code mr__s3_credentials_find(mr__s3_credentials *out, mr_status *st)
{
    mr__s3_credentials c = {0};
    mr_code rc = find(&c, st);
    if (rc == MR_OK) {
        *out = c;
        return MR_OK;
    }
    mr__s3_credentials_reset(&c);
    mr_status_of_no_element(st);
    return rc;
}
