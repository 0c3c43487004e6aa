/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/gcs.h"

#include <string.h>
#include <strings.h>

#include "pipeline/remote/google_sources.h"
#include "pipeline/remote/s3.h"
#include "pipeline/remote/secret_file.h"

/* The server, with its scheme; *n: without slashes at the end. */
static const char *server(const char **scheme, size_t *n)
{
    const char *v = mr__variable("STORAGE_EMULATOR_HOST");
    *scheme = v && !strstr(v, "://") ? "http://" : "";
    v = v ? v : "https://storage.googleapis.com";
    *n = strlen(v);
    while (*n && v[*n - 1] == '/')
        --*n;
    return v;
}

static mr_code make_url(const char *url, const char *query, char **out, mr_status *st)
{
    const char *scheme, *bucket = url + sizeof "gs://" - 1;
    size_t n_bucket = strcspn(bucket, "/"), n;
    const char *host = server(&scheme, &n), *key = bucket[n_bucket] ? bucket + n_bucket + 1 : "";
    if (!n_bucket)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the URL has no bucket; write gs://bucket/key");
    if (!*key && !query)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the URL names a bucket; write gs://bucket/key, or a pattern for keys");
    MR_TRY(mr__check_bucket(bucket, n_bucket, st));
    char *path = mr__url_encode(query ? "" : key, "/");
    *out = path ? mr_strf("%s%.*s/%.*s%s%s", scheme, (int)n, host, (int)n_bucket, bucket,
                          query ? "?" : "/", query ? query : path)
                : NULL;
    mr_free(path);
    return *out ? MR_OK : mr_fail_memory(st, strlen(url), "a URL");
}

/* MR_NOT_FOUND: the source does not exist here. */
static mr_code from_source(mr__object_target *t, mr__access_fetch fetch, const char *argument,
                           mr_status *st)
{
    const char *const arguments[MR__ACCESS_ARGUMENTS] = {argument};
    mr__credentials now = {0};
    MR_TRY(mr__access_get(&t->access, fetch, arguments, st));
    MR_TRY(mr__access_take(t->access, &t->generation, &now, st));
    t->token = now.token;
    return mr__secret_copy(&t->origin, now.origin, st);
}

/* *out: the file of gcloud auth application-default login, owned; NULL: it does not exist. */
static mr_code find_default_file(char **out, mr_status *st)
{
    const char *folder = mr__variable("CLOUDSDK_CONFIG"), *home = mr__variable("HOME");
    char *text = NULL;
    *out = folder ? mr_strf("%s/application_default_credentials.json", folder)
                  : mr_strf("%s/.config/gcloud/application_default_credentials.json",
                            home ? home : "");
    mr_code rc =
        *out ? mr__secret_file_read(*out, &text, st) : mr_fail_memory(st, 0, "a file name");
    if (rc != MR_OK || !text) {
        mr_free(*out);
        *out = NULL;
    }
    mr__secret_free(text);
    return rc;
}

static mr_code from_file(mr__object_target *t, mr_status *st)
{
    const char *path = mr__variable("GOOGLE_APPLICATION_CREDENTIALS");
    char *found = NULL;
    mr_code rc = path ? MR_OK : find_default_file(&found, st);
    if (rc == MR_OK && (path || found))
        rc = from_source(t, mr__google_ask_file, path ? path : found, st);
    mr_free(found);
    return rc;
}

static mr_code from_metadata(mr__object_target *t, mr_status *st)
{
    const char *host = mr__variable("GCE_METADATA_HOST"), *off = mr__variable("NO_GCE_CHECK");
    if (!host)
        host = mr__variable("GCE_METADATA_IP");
    /* With another server there is no machine of Google's, unless it is named. */
    if ((off && strcasecmp(off, "true") == 0) || (!host && mr__variable("STORAGE_EMULATOR_HOST")))
        return MR_OK;
    char *url = mr_strf("http://%s", host ? host : "169.254.169.254");
    mr_code rc =
        url ? from_source(t, mr__google_ask_metadata, url, st) : mr_fail_memory(st, 0, "a URL");
    mr_free(url);
    return rc == MR_NOT_FOUND ? MR_OK : rc;
}

static mr_code from_keys(mr__object_target *t, mr_status *st)
{
    const char *id = mr__variable("GCS_HMAC_KEY"), *secret = mr__variable("GCS_HMAC_SECRET");
    if (!id)
        return MR_OK;
    if (!secret)
        return mr_fail(st, MR_INVALID_ARGUMENT, "GCS_HMAC_KEY is set, but GCS_HMAC_SECRET is not");
    t->signs = true;
    t->user = mr_strf("%s:%s", id, secret);
    return t->user ? mr__secret_copy(&t->origin, "GCS_HMAC_KEY", st)
                   : mr_fail_memory(st, 0, "credentials");
}

static mr_code find_access(mr__object_target *t, mr_status *st)
{
    const char *token = mr__variable("GOOGLE_OAUTH_ACCESS_TOKEN");
    if (token && strpbrk(token, "\r\n"))
        return mr_fail(st, MR_INVALID_ARGUMENT, "GOOGLE_OAUTH_ACCESS_TOKEN has a line break");
    if (token) {
        MR_TRY(mr__secret_copy(&t->token, token, st));
        return mr__secret_copy(&t->origin, "GOOGLE_OAUTH_ACCESS_TOKEN", st);
    }
    MR_TRY(from_file(t, st));
    if (!t->origin)
        MR_TRY(from_metadata(t, st));
    if (!t->origin)
        MR_TRY(from_keys(t, st));
    t->tried = "GOOGLE_OAUTH_ACCESS_TOKEN, GOOGLE_APPLICATION_CREDENTIALS, gcloud's file, Google's "
               "metadata server and GCS_HMAC_KEY";
    return MR_OK;
}

mr_code mr__gcs_target(const char *url, const char *query, mr__object_target *out, mr_status *st)
{
    *out = (mr__object_target){0};
    MR_TRY(make_url(url, query, &out->url, st));
    MR_TRY(mr__secret_copy(&out->region, "auto", st));
    mr_code rc = find_access(out, st);
    if (rc != MR_OK)
        mr_status_of_no_element(st);
    return rc;
}
