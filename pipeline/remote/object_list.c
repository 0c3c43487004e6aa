/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/object_list.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/log.h"
#include "pipeline/remote/object_ranges.h"
#include "pipeline/remote/s3.h"
#include "pipeline/system/system.h"

enum { MOST_PAGE = 64 << 20, MOST_KEY = 4096 };

typedef struct listing {
    const char *pattern; /* the whole URL */
    size_t bucket;       /* bytes before the key's "/" */
    char *prefix;        /* literal: quoting removed */
    bool deep;           /* a wildcard is not in the last part of the key */
    bool wild;
    mr__object_list_fn found;
    void *ctx;
    size_t seen; /* keys */
    char *token; /* of the next page; NULL: none */
    int64_t began, said;
} listing;

/* The part of the key's pattern before the first wildcard, without quoting backslashes. */
static mr_code find_prefix(listing *l, mr_status *st)
{
    const char *key = l->pattern + l->bucket + (l->pattern[l->bucket] == '/');
    char *to = l->prefix = mr_malloc(strlen(key) + 1);
    if (!to)
        return mr_fail_memory(st, strlen(key), "a prefix");
    for (; *key && !strchr("*?[", *key); key++) {
        if (*key == '\\' && key[1])
            key++;
        *to++ = *key;
    }
    *to = '\0';
    l->wild = *key != '\0';
    l->deep = strchr(key, '/') != NULL;
    return MR_OK;
}

static mr_code make_query(const listing *l, char **out, mr_status *st)
{
    char *prefix = mr__url_encode(l->prefix, ""), *token = NULL;
    if (l->token)
        token = mr__url_encode(l->token, "");
    *out = NULL;
    if (prefix && (token || !l->token))
        /* Sorted by name, as the signature wants it. */
        *out = mr_strf("%s%s%s%sencoding-type=url&list-type=2&max-keys=%d&prefix=%s",
                       token ? "continuation-token=" : "", token ? token : "", token ? "&" : "",
                       l->deep ? "" : "delimiter=%2F&", l->wild ? 1000 : 2, prefix);
    mr_free(prefix);
    mr_free(token);
    return *out ? MR_OK : mr_fail_memory(st, 0, "a query");
}

static mr_code take_object(listing *l, char *key, int64_t size, const char *etag, mr_status *st)
{
    size_t n = strlen(key);
    l->seen++;
    if (n == 0 || key[n - 1] == '/')
        return MR_OK;
    char *url = mr_strf("%.*s/%s", (int)l->bucket, l->pattern, key);
    if (!url)
        return mr_fail_memory(st, n, "a URL");
    mr_code rc = MR_OK;
    if (strcmp(url, l->pattern) == 0 || fnmatch(l->pattern, url, FNM_PATHNAME) == 0) {
        rc = mr__object_remember(url, size, etag, st);
        if (rc == MR_OK)
            rc = l->found(l->ctx, url, st);
    }
    mr_free(url);
    return rc;
}

static mr_code bad_page(mr_status *st)
{
    return mr_fail(
        st, MR_DATA_LOSS,
        "the server's answer is not a list of objects (ListBucketResult); is the endpoint "
        "that of a store?");
}

static mr_code take_page(listing *l, const char *text, size_t size, mr_status *st)
{
    const char *at = text, *end = text + size;
    char key[MOST_KEY], number[32], etag[136], value[2048];
    if (!strstr(text, "<ListBucketResult"))
        return bad_page(st);
    bool coded = strstr(text, "<EncodingType>url</EncodingType>") != NULL;
    const char *contents = text;
    while ((contents = strstr(contents, "<Contents>"))) {
        const char *stop = strstr(contents, "</Contents>");
        const char *in_key = contents, *in_size = contents, *in_etag = contents;
        if (!stop || !mr__xml_text(&in_key, stop, "Key", key, sizeof key) ||
            !mr__xml_text(&in_size, stop, "Size", number, sizeof number))
            return bad_page(st);
        if (!mr__xml_text(&in_etag, stop, "ETag", etag, sizeof etag))
            etag[0] = '\0';
        if (coded)
            mr__url_decode(key);
        MR_TRY(take_object(l, key, strtoll(number, NULL, 10), etag, st));
        contents = stop;
    }
    mr_free(l->token);
    l->token = NULL;
    if (mr__xml_text(&at, end, "IsTruncated", value, sizeof value) && strcmp(value, "true") == 0) {
        at = text;
        if (!mr__xml_text(&at, end, "NextContinuationToken", value, sizeof value))
            return bad_page(st);
        l->token = mr_strdup(value);
        if (!l->token)
            return mr_fail_memory(st, sizeof value, "a token");
    }
    return MR_OK;
}

/* After two seconds, and then now and then: listing millions of objects takes minutes. */
static void say_progress(listing *l)
{
    int64_t now = mr__clock_ns(CLOCK_MONOTONIC);
    if (l->token && now - l->began > 2000000000 && now - l->said > 5000000000) {
        mr_log(MR_LOG_WARNING, "still listing %s: %zu objects so far", l->pattern, l->seen);
        l->said = now;
    }
}

static mr_code list_page(listing *l, mr_status *st)
{
    mr__object *o = NULL;
    char *query = NULL, *text = NULL;
    size_t size;
    mr_code rc = make_query(l, &query, st);
    if (rc == MR_OK)
        rc = mr__object_open_listing(&o, l->pattern, query, st);
    if (rc == MR_OK)
        rc = mr__object_read_whole(o, MOST_PAGE, &text, &size, mr__remote_cancel(), st);
    if (rc == MR_OK)
        rc = take_page(l, text, size, st);
    mr_free(text);
    mr_free(query);
    mr__object_unref(o);
    return rc;
}

static mr_code list_keys(const char *pattern, mr__object_list_fn found, void *ctx, mr_status *st)
{
    listing l = {.pattern = pattern,
                 .bucket = mr__s3_bucket_size(pattern),
                 .found = found,
                 .ctx = ctx,
                 .began = mr__clock_ns(CLOCK_MONOTONIC)};
    if (!l.bucket)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the URL has no bucket; write s3://bucket/key");
    if (strpbrk(pattern + 5, "*?[") && strpbrk(pattern + 5, "*?[") < pattern + l.bucket)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the name of a bucket cannot be a pattern; buckets are not listed");
    mr_code rc = find_prefix(&l, st);
    do {
        if (rc == MR_OK)
            rc = list_page(&l, st);
        if (rc == MR_OK)
            say_progress(&l);
    } while (rc == MR_OK && l.token && l.wild);
    mr_free(l.prefix);
    mr_free(l.token);
    return rc;
}

/* A file of a web server. */
static mr_code look_at(const char *url, mr__object_list_fn found, void *ctx, mr_status *st)
{
    mr__object_info info;
    MR_TRY(mr__object_look(url, &info, st));
    return found(ctx, url, st);
}

mr_code mr__object_list(const char *pattern, mr__object_list_fn found, void *ctx, mr_status *st)
{
    mr_code rc = mr__url_kind_of(pattern) == MR__URL_S3 ? list_keys(pattern, found, ctx, st)
                                                        : look_at(pattern, found, ctx, st);
    if (rc != MR_OK)
        mr_status_at(st, pattern, -1, -1);
    return rc;
}
