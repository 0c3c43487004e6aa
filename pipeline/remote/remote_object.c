/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/remote_object.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/fnv.h"
#include "pipeline/memory/hash_index.h"
#include "pipeline/remote/address_scope.h"
#include "pipeline/remote/cache_fetch.h"
#include "pipeline/remote/gcs.h"
#include "pipeline/remote/hf.h"
#include "pipeline/remote/s3.h"
#include "pipeline/remote/url_roots_internal.h"
#include "pipeline/system/fork.h"

static void free_object(mr__object *o)
{
    mr__object_target_reset(&o->target);
    mr_free(o->url);
    mr_free(o->link);
    mr_free(o->query);
    mr_free(o);
}

mr__object *mr__object_ref(mr__object *o)
{
    atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
    return o;
}

void mr__object_unref(mr__object *o)
{
    /* Acquire and release: the last one frees what others read. */
    if (o && atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) == 1)
        free_object(o);
}

static mr_code http_target(const char *url, mr__object_target *out, mr_status *st)
{
    const char *host = strstr(url, "://") + 3;
    if (strcspn(host, "/?#") == 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "the URL has no host");
    /* What a URL cannot contain is encoded; what is encoded already stays so. */
    out->url = mr__url_encode(url, "%!*'();:@&=+$,/?[]#");
    out->region = mr_strdup("");
    out->redirects = mr__url_roots_are_open();
    if (!out->url || !out->region)
        return mr_fail_memory(st, strlen(url), "a URL");
    out->url[strcspn(out->url, "#")] = '\0';
    return MR_OK;
}

static mr_code make_target(mr__object *o, const char *query, const char *address, mr_status *st)
{
    switch (o->kind) {
    case MR__URL_S3:
        return mr__s3_target(o->url, query, &o->target, st);
    case MR__URL_GS:
        return mr__gcs_target(o->url, query, &o->target, st);
    case MR__URL_HF:
        return mr__hf_target(o->url, address, &o->target, st);
    default:
        return http_target(o->url, &o->target, st);
    }
}

/* query, address: at most one is not NULL, and says that the object is a document. */
static mr_code make(mr__object **out, const char *url, const char *query, const char *address,
                    mr_status *st)
{
    MR_TRY(mr__url_roots_check(url, st));
    mr__object *o = mr_calloc(1, sizeof *o);
    if (!o)
        return mr_fail_memory(st, sizeof *o, "a remote object");
    atomic_init(&o->refs, 1);
    o->kind = mr__url_kind_of(url);
    o->info.size = -1;
    o->whole = query || address;
    o->url = mr_strdup(url);
    mr_code rc = o->url ? MR_OK : mr_fail_memory(st, strlen(url), "a URL");
    if (rc == MR_OK && !mr__cache_is_offline()) /* which needs no credentials */
        rc = make_target(o, query, address, st);
    if (rc == MR_OK) {
        /* The servers of stores are those of the operator's environment. */
        o->guarded = !mr__url_roots_are_open() && !mr__proxy_is_set() &&
                     (o->kind == MR__URL_HTTP || o->target.redirects);
        *out = o;
        return MR_OK;
    }
    mr_status_at(st, url, -1, -1);
    free_object(o);
    return rc;
}

mr_code mr__object_open(mr__object **out, const char *url, mr_status *st)
{
    MR_TRY(make(out, url, NULL, NULL, st));
    bool known = mr__object_recall(url, &(*out)->info);
    atomic_init(&(*out)->known, known);
    return MR_OK;
}

mr_code mr__object_open_listing(mr__object **out, const char *url, const char *query, mr_status *st)
{
    return make(out, url, query, NULL, st);
}

mr_code mr__object_open_document(mr__object **out, const char *url, const char *address,
                                 mr_status *st)
{
    return make(out, url, NULL, address, st);
}

mr_code mr__object_add_query(mr__object *o, mr_status *st)
{
    if (!o->query || !o->target.url)
        return MR_OK;
    char *url = mr_strf("%s?%s", o->target.url, o->query);
    if (!url)
        return mr_fail_memory(st, strlen(o->query), "a query");
    mr_free(o->target.url);
    o->target.url = url;
    return MR_OK;
}

mr_code mr__object_open_request(mr__object **out, const char *url, const char *query, mr_status *st)
{
    mr__object *o = NULL;
    MR_TRY(make(&o, url, NULL, NULL, st));
    o->whole = o->of_key = true;
    o->query = query ? mr_strdup(query) : NULL;
    mr_code rc = query && !o->query ? mr_fail_memory(st, strlen(query), "a query")
                                    : mr__object_add_query(o, st);
    if (rc == MR_OK)
        *out = o;
    else
        mr__object_unref(o);
    return rc;
}

/* ---- listed objects ---- */

enum { MOST_LISTED = 1 << 24 };

typedef struct listed {
    char *url, *etag;
    int64_t size;
} listed;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
MR__AROUND_FORK(lock, NULL)
static mr__hash_index places;
static listed *all;
static size_t n_all, all_room;

static bool is_same(const void *keys, size_t place, const void *url)
{
    return strcmp(((const listed *)keys)[place].url, url) == 0;
}

static uint64_t hash_of(const char *url)
{
    return mr__fnv1a(MR__FNV_BASIS, url, strlen(url));
}

static mr_code put(const char *url, int64_t size, const char *etag, mr_status *st)
{
    static const char what[] = "listed objects";
    size_t at = mr__hash_find(&places, hash_of(url), is_same, all, url);
    char *tag = mr_strdup(etag);
    if (!tag)
        return mr_fail_memory(st, strlen(etag), what);
    if (at != MR__NO_PLACE) {
        mr_free(all[at].etag);
        all[at].etag = tag;
        all[at].size = size;
        return MR_OK;
    }
    char *name = mr_strdup(url);
    mr_code rc = name ? MR_GROW(all, all_room, n_all + 1, MOST_LISTED, what, st)
                      : mr_fail_memory(st, strlen(url), what);
    if (rc == MR_OK)
        rc = mr__hash_add(&places, hash_of(url), n_all, what, st);
    if (rc == MR_OK)
        all[n_all++] = (listed){name, tag, size};
    else {
        mr_free(tag);
        mr_free(name);
    }
    return rc;
}

mr_code mr__object_remember(const char *url, int64_t size, const char *etag, mr_status *st)
{
    pthread_mutex_lock(&lock);
    mr_code rc = put(url, size, etag, st);
    pthread_mutex_unlock(&lock);
    return rc;
}

void mr__object_forget(const char *url)
{
    pthread_mutex_lock(&lock);
    size_t at = mr__hash_find(&places, hash_of(url), is_same, all, url);
    if (at != MR__NO_PLACE)
        all[at].size = -1;
    pthread_mutex_unlock(&lock);
}

void mr__object_set_known(mr__object *o)
{
    const char *said = o->info.etag[0] ? o->info.etag : o->info.modified;
    uint64_t mark = mr__fnv1a(MR__FNV_BASIS, said, strlen(said));
    o->mark = *said ? mr__fnv1a(mark, &o->info.size, sizeof o->info.size) : 0;
    atomic_store_explicit(&o->known, true, memory_order_release);
}

uint64_t mr__object_mark(const mr__object *o)
{
    return atomic_load_explicit(&o->known, memory_order_acquire) ? o->mark : 0;
}

bool mr__object_recall(const char *url, mr__object_info *out)
{
    pthread_mutex_lock(&lock);
    size_t at = mr__hash_find(&places, hash_of(url), is_same, all, url);
    bool found = at != MR__NO_PLACE && all[at].size >= 0;
    if (found) {
        *out = (mr__object_info){.size = all[at].size, .ranges = true};
        snprintf(out->etag, sizeof out->etag, "%s", all[at].etag);
    }
    pthread_mutex_unlock(&lock);
    return found;
}
