/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/uploads.h"

#include <string.h>

#include "pipeline/remote/object_ranges.h"
#include "pipeline/remote/s3.h"
#include "pipeline/remote/upload.h"

enum { MOST_PAGE = 64 << 20, MOST_KEY = 4096, MOST_ID = 1024 };

typedef mr_code (*upload_fn)(void *ctx, const mr_unfinished_upload *u, mr_status *st);

/* Where the next page begins; NULL: at the beginning, or nowhere. */
typedef struct marks {
    char *key, *id;
} marks;

static void drop_marks(marks *m)
{
    mr_free(m->key);
    mr_free(m->id);
    *m = (marks){0};
}

static mr_code bad_page(mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS,
                   "the server's answer is not a list of uploads (ListMultipartUploadsResult); is "
                   "the endpoint that of a store?");
}

/* Sorted by name, as the signature wants it. */
static mr_code make_query(const char *prefix, const marks *m, char **out, mr_status *st)
{
    char *coded = mr__url_encode(prefix, "");
    char *key = m->key ? mr__url_encode(m->key, "") : NULL;
    char *id = m->id ? mr__url_encode(m->id, "") : NULL;
    *out = NULL;
    if (coded && (key || !m->key) && (id || !m->id))
        *out = mr_strf("encoding-type=url%s%s&max-uploads=1000&prefix=%s%s%s&uploads=",
                       key ? "&key-marker=" : "", key ? key : "", coded,
                       id ? "&upload-id-marker=" : "", id ? id : "");
    mr_free(coded);
    mr_free(key);
    mr_free(id);
    return *out ? MR_OK : mr_fail_memory(st, strlen(prefix), "a query");
}

static mr_code take_upload(const char *prefix, size_t bucket, const char *at, const char *end,
                           bool coded, upload_fn fn, void *ctx, mr_status *st)
{
    char key[MOST_KEY], id[MOST_ID], time[64];
    const char *in_key = at, *in_id = at, *in_time = at;
    if (!mr__xml_text(&in_key, end, "Key", key, sizeof key) ||
        !mr__xml_text(&in_id, end, "UploadId", id, sizeof id))
        return bad_page(st);
    if (!mr__xml_text(&in_time, end, "Initiated", time, sizeof time))
        time[0] = '\0';
    if (coded)
        mr__url_decode(key);
    char *url = mr_strf("%.*s/%s", (int)bucket, prefix, key);
    if (!url)
        return mr_fail_memory(st, strlen(key), "a URL");
    /* Some stores ignore the prefix. */
    mr_code rc = strncmp(url, prefix, strlen(prefix)) == 0
                     ? fn(ctx, &(mr_unfinished_upload){url, id, time}, st)
                     : MR_OK;
    mr_free(url);
    return rc;
}

static mr_code next_mark(const char *text, const char *name, char **out, mr_status *st)
{
    char value[MOST_KEY];
    const char *at = text;
    if (!mr__xml_text(&at, text + strlen(text), name, value, sizeof value) || !value[0])
        return MR_OK;
    *out = mr_strdup(value);
    return *out ? MR_OK : mr_fail_memory(st, sizeof value, "a key");
}

/* Sets *m to where the next page begins. */
static mr_code take_page(const char *prefix, size_t bucket, const char *text, marks *m,
                         upload_fn fn, void *ctx, mr_status *st)
{
    char more[8] = "";
    if (!strstr(text, "<ListMultipartUploadsResult"))
        return bad_page(st);
    bool coded = strstr(text, "<EncodingType>url</EncodingType>") != NULL;
    for (const char *at = text; (at = strstr(at, "<Upload>"));) {
        const char *end = strstr(at, "</Upload>");
        if (!end)
            return bad_page(st);
        MR_TRY(take_upload(prefix, bucket, at, end, coded, fn, ctx, st));
        at = end;
    }
    drop_marks(m);
    const char *at = text;
    if (!mr__xml_text(&at, text + strlen(text), "IsTruncated", more, sizeof more) ||
        strcmp(more, "true") != 0)
        return MR_OK;
    MR_TRY(next_mark(text, "NextKeyMarker", &m->key, st));
    MR_TRY(next_mark(text, "NextUploadIdMarker", &m->id, st));
    if (!m->key)
        return bad_page(st);
    if (coded)
        mr__url_decode(m->key);
    return MR_OK;
}

mr_code mr_uploads_list(const char *prefix, upload_fn fn, void *ctx, mr_cancel *cancel,
                        mr_status *st)
{
    marks m = {0};
    MR_TRY(mr__url_check_writing(prefix, st));
    size_t bucket = mr__is_url(prefix) ? mr__s3_bucket_size(prefix) : 0;
    if (!bucket)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "uploads are those of a store; write s3://bucket/prefix");
    const char *key = prefix + bucket + (prefix[bucket] == '/');
    mr_code rc;
    do {
        mr__object *o = NULL;
        char *query = NULL, *text = NULL;
        size_t size;
        rc = make_query(key, &m, &query, st);
        if (rc == MR_OK)
            rc = mr__object_open_listing(&o, prefix, query, st);
        if (rc == MR_OK)
            rc = mr__object_read_whole(o, MOST_PAGE, &text, &size, cancel, st);
        if (rc == MR_OK)
            rc = take_page(prefix, bucket, text, &m, fn, ctx, st);
        mr_free(text);
        mr_free(query);
        mr__object_unref(o);
    } while (rc == MR_OK && m.key);
    drop_marks(&m);
    if (rc != MR_OK)
        mr_status_at(st, prefix, -1, -1);
    return rc;
}

mr_code mr_upload_abort(const char *url, const char *id, mr_cancel *cancel, mr_status *st)
{
    mr_cancel *before = mr_cancel_set_thread(cancel);
    mr_code rc = mr__upload_abort_id(url, id, 0, st);
    mr_cancel_set_thread(before);
    if (rc != MR_OK)
        mr_status_at(st, url, -1, -1);
    return rc;
}
