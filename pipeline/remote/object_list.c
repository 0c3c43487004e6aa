/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/object_list.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/log.h"
#include "pipeline/remote/cache_fetch.h"
#include "pipeline/remote/cache_list.h"
#include "pipeline/remote/hf_list.h"
#include "pipeline/remote/object_ranges.h"
#include "pipeline/remote/s3.h"
#include "pipeline/remote/url_roots_internal.h"
#include "pipeline/system/system.h"

enum { MOST_PAGE = 64 << 20, MOST_KEY = 4096 };

typedef struct listing {
    const char *pattern; /* the whole URL */
    size_t bucket;       /* bytes before the key's "/" */
    char *prefix;        /* literal: quoting removed */
    bool deep;           /* a wildcard is not in the last part of the key */
    bool wild;
    bool all; /* the pattern is a literal prefix, and everything below it matches */
    mr__object_list_fn found;
    void *ctx;
    size_t seen; /* keys */
    char *token; /* of the next page; NULL: none */
    int64_t began, said;
} listing;

mr_code mr__literal_prefix(const char *key, char **out, bool *wild, bool *deep, mr_status *st)
{
    char *to = *out = mr_malloc(strlen(key) + 1);
    if (!to)
        return mr_fail_memory(st, strlen(key), "a prefix");
    for (; *key && !strchr("*?[", *key); key++) {
        if (*key == '\\' && key[1])
            key++;
        *to++ = *key;
    }
    *to = '\0';
    *wild = *key != '\0';
    *deep = strchr(key, '/') != NULL;
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

mr_code mr__object_offer(const char *pattern, const char *url, int64_t size, const char *etag,
                         mr__object_list_fn found, void *ctx, mr_status *st)
{
    if (strcmp(url, pattern) != 0 && fnmatch(pattern, url, FNM_PATHNAME) != 0)
        return MR_OK;
    MR_TRY(mr__object_remember(url, size, etag, st));
    return found(ctx, url, st);
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
    mr_code rc;
    if (l->all) {
        rc = mr__object_remember(url, size, etag, st);
        if (rc == MR_OK)
            rc = l->found(l->ctx, url, st);
    } else {
        rc = mr__object_offer(l->pattern, url, size, etag, l->found, l->ctx, st);
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
        const char *in_key = contents, *in_size = contents, *in_etag = contents, *in_g = contents;
        if (!stop || !mr__xml_text(&in_key, stop, "Key", key, sizeof key) ||
            !mr__xml_text(&in_size, stop, "Size", number, sizeof number))
            return bad_page(st);
        int64_t bytes = strtoll(number, NULL, 10);
        if (!mr__xml_text(&in_etag, stop, "ETag", etag, sizeof etag))
            etag[0] = '\0';
        if (!etag[0] && mr__xml_text(&in_g, stop, "Generation", number, sizeof number))
            snprintf(etag, sizeof etag, MR__GENERATION "%s", number);
        if (coded)
            mr__url_decode(key);
        MR_TRY(take_object(l, key, bytes, etag, st));
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
        rc = mr__object_read_whole(o, MOST_PAGE, &text, &size, NULL, st);
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
        return mr_fail(st, MR_INVALID_ARGUMENT, "the URL has no bucket; write %.2s://bucket/key",
                       pattern);
    if (strpbrk(pattern + 5, "*?[") && strpbrk(pattern + 5, "*?[") < pattern + l.bucket)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the name of a bucket cannot be a pattern; buckets are not listed");
    const char *key = pattern + l.bucket + (pattern[l.bucket] == '/');
    mr_code rc = mr__literal_prefix(key, &l.prefix, &l.wild, &l.deep, st);
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

mr_code mr__object_list_below(const char *prefix, mr__object_list_fn found, void *ctx,
                              mr_status *st)
{
    listing l = {.pattern = prefix,
                 .bucket = mr__s3_bucket_size(prefix),
                 .deep = true,
                 .wild = true,
                 .all = true,
                 .found = found,
                 .ctx = ctx,
                 .began = mr__clock_ns(CLOCK_MONOTONIC)};
    if (mr__url_kind_of(prefix) != MR__URL_S3 || !l.bucket)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the URL has no bucket; write s3://bucket/key");
    l.prefix = mr_strdup(prefix + l.bucket + (prefix[l.bucket] == '/'));
    mr_code rc = l.prefix ? MR_OK : mr_fail_memory(st, strlen(prefix), "a prefix");
    while (rc == MR_OK) {
        rc = list_page(&l, st);
        if (!l.token)
            break;
    }
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

static mr_code list_objects(const char *pattern, mr__object_list_fn found, void *ctx, mr_status *st)
{
    return mr__url_kind_of(pattern) == MR__URL_HF ? mr__hf_list(pattern, found, ctx, st)
                                                  : list_keys(pattern, found, ctx, st);
}

/* ---- through the cache ---- */

typedef struct noted {
    mr__object_list_fn found;
    void *ctx;
    mr__list_note note;
} noted;

static mr_code find_and_note(void *ctx, const char *url, mr_status *st)
{
    noted *n = ctx;
    mr__object_info info;
    if (mr__object_recall(url, &info))
        mr__list_note_add(&n->note, url, &info);
    return n->found(n->ctx, url, st);
}

static mr_code recall(void *ctx, const char *url, const mr__object_info *info, mr_status *st)
{
    const noted *n = ctx;
    MR_TRY(mr__object_remember(url, info->size, info->etag, st));
    return n->found(n->ctx, url, st);
}

/* Notes what was listed; offline, lists what was noted. */
static mr_code list_cached(mr__cache *cache, const char *pattern, mr__object_list_fn found,
                           void *ctx, mr_status *st)
{
    noted n = {.found = found, .ctx = ctx};
    if (mr__cache_is_offline()) {
        MR_TRY(mr__url_roots_check(pattern, st));
        mr_code rc = mr__list_recall(cache, pattern, recall, &n, st);
        if (rc != MR_OK)
            mr_status_of_no_element(st);
        return rc;
    }
    mr_code rc = list_objects(pattern, find_and_note, &n, st);
    n.note.failed = n.note.failed || rc != MR_OK;
    mr__list_note_end(&n.note, cache, pattern);
    return rc;
}

mr_code mr__object_list(const char *pattern, mr__object_list_fn found, void *ctx, mr_status *st)
{
    mr__cache *cache;
    MR_TRY(mr__cache_current(&cache, st));
    MR_TRY(mr__cache_need(cache, pattern, st));
    mr_code rc = mr__url_kind_of(pattern) == MR__URL_HTTP ? look_at(pattern, found, ctx, st)
                 : cache ? list_cached(cache, pattern, found, ctx, st)
                         : list_objects(pattern, found, ctx, st);
    if (rc != MR_OK)
        mr_status_at(st, pattern, -1, -1);
    return rc;
}
