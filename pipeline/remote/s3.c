/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/remote/aws_sources.h"
#include "pipeline/remote/credentials.h"
#include "pipeline/remote/secret_file.h"

enum { SCHEME = sizeof "s3://" - 1 };

size_t mr__s3_bucket_size(const char *url)
{
    size_t n = strcspn(url + SCHEME, "/");
    return n ? SCHEME + n : 0;
}

void mr__object_target_reset(mr__object_target *t)
{
    mr_free(t->url);
    mr__secret_free(t->user);
    mr__secret_free(t->token);
    mr_free(t->region);
    mr_free(t->origin);
    mr__access_unref(t->access);
    *t = (mr__object_target){0};
}

mr_code mr__object_target_renew(mr__object_target *t, mr_status *st)
{
    mr__credentials c = {0};
    mr_code rc = t->access ? mr__access_take(t->access, &t->generation, &c, st) : MR_END;
    if (rc != MR_OK)
        return rc == MR_END ? MR_OK : rc;
    char *user = c.id ? mr_strf("%s:%s", c.id, c.secret) : NULL;
    if (user || !c.id) {
        mr__secret_free(t->user);
        mr__secret_free(t->token);
        t->user = user;
        t->token = c.token;
        c.token = NULL;
    } else
        rc = mr_fail_memory(st, 0, "credentials");
    mr__credentials_reset(&c);
    return rc;
}

/* Virtual hosts need a name with labels: not an address, and not a single label. */
static bool is_named(const char *host, size_t n)
{
    bool dot = false, other = false;
    for (size_t i = 0; i < n && host[i] != ':'; i++) {
        if (host[i] == '[')
            return false;
        dot = dot || host[i] == '.';
        other = other || (host[i] != '.' && (host[i] < '0' || host[i] > '9'));
    }
    return dot && other;
}

static bool path_style(const char *host, size_t n, const char *bucket, size_t n_bucket)
{
    const char *v = mr__variable("MILLRACE_S3_PATH_STYLE");
    if (v)
        return strcmp(v, "0") != 0;
    /* A certificate for *.host does not hold for a bucket with dots. */
    return !is_named(host, n) || memchr(bucket, '.', n_bucket);
}

mr_code mr__check_bucket(const char *bucket, size_t n, mr_status *st)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._", bucket[i]))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "'%.*s' is not the name of a bucket, which has letters, digits, dots "
                           "and hyphens",
                           (int)(n < 64 ? n : 64), bucket);
    return MR_OK;
}

static mr_code make_url(const char *url, const char *query, const char *region, char **out,
                        mr_status *st)
{
    const char *endpoint = mr__variable("AWS_ENDPOINT_URL_S3"), *bucket = url + SCHEME;
    size_t n_bucket = strcspn(bucket, "/");
    const char *key = bucket[n_bucket] ? bucket + n_bucket + 1 : "";
    if (!n_bucket)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the URL has no bucket; write s3://bucket/key");
    if (!*key && !query)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the URL names a bucket; write s3://bucket/key, or a pattern for keys");
    MR_TRY(mr__check_bucket(bucket, n_bucket, st));
    if (!endpoint)
        endpoint = mr__variable("AWS_ENDPOINT_URL");
    char host[512];
    const char *protocol = "https://", *at = endpoint;
    if (!endpoint) {
        snprintf(host, sizeof host, "s3.%.64s.amazonaws.com%s", region, mr__aws_ending(region));
    } else {
        if (strncmp(at, "http://", 7) == 0)
            protocol = "http://";
        at += strncmp(at, "http://", 7) == 0 ? 7 : strncmp(at, "https://", 8) == 0 ? 8 : 0;
        size_t n = strlen(at);
        while (n && at[n - 1] == '/')
            n--;
        if (n >= sizeof host || !n)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "AWS_ENDPOINT_URL is not the URL of a server: '%.100s'", endpoint);
        snprintf(host, sizeof host, "%.*s", (int)n, at);
    }
    char *path = mr__url_encode(query ? "" : key, "/");
    const char *mark = query ? "?" : "";
    if (path && path_style(host, strcspn(host, "/"), bucket, n_bucket))
        *out = mr_strf("%s%s/%.*s%s%s%s%s", protocol, host, (int)n_bucket, bucket, query ? "" : "/",
                       path, mark, query ? query : "");
    else if (path)
        *out = mr_strf("%s%.*s.%s/%s%s%s", protocol, (int)n_bucket, bucket, host, path, mark,
                       query ? query : "");
    mr_free(path);
    return *out ? MR_OK : mr_fail_memory(st, strlen(url), "a URL");
}

mr_code mr__s3_target(const char *url, const char *query, mr__object_target *out, mr_status *st)
{
    mr__s3_credentials c = {0};
    *out = (mr__object_target){0};
    MR_TRY(mr__s3_credentials_find(&c, st));
    mr_code rc = make_url(url, query, c.region, &out->url, st);
    out->region = mr_strdup(c.region);
    if (c.id) {
        out->signs = true;
        out->user = mr_strf("%s:%s", c.id, c.secret);
        out->token = c.token ? mr_strdup(c.token) : NULL;
        out->origin = mr_strdup(c.origin);
        out->access = c.access;
        out->generation = c.generation;
        c.access = NULL;
    }
    if (rc == MR_OK &&
        (!out->region || (c.id && (!out->user || !out->origin)) || (c.token && !out->token)))
        rc = mr_fail_memory(st, 0, "credentials");
    mr__s3_credentials_reset(&c);
    return rc;
}

mr_code mr__s3_change_region(const char *url, const char *query, const char *region,
                             mr__object_target *target, mr_status *st)
{
    char *name = mr_strdup(region), *moved = NULL;
    mr_code rc = name ? make_url(url, query, region, &moved, st)
                      : mr_fail_memory(st, strlen(region), "a region");
    if (rc != MR_OK) {
        mr_free(name);
        return rc;
    }
    mr_free(target->region);
    mr_free(target->url);
    target->region = name;
    target->url = moved;
    return MR_OK;
}
