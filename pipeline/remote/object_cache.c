/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/object_cache.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/remote/cache_piece.h"

enum { MOST_PIECES = 1 << 26 };

typedef struct pieces {
    mr__cache *cache;
    mr__piece_note *v;
    size_t n, room;
} pieces;

static void reset(pieces *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++)
        mr_free(p->v[i].text);
    mr_free(p->v);
    mr__cache_close(p->cache);
    mr_free(p);
}

static mr_code add_piece(void *ctx, const char *name, mr_status *st)
{
    pieces *p = ctx;
    size_t n = strlen(name);
    if (n < 6 || strcmp(name + n - 6, ".piece") != 0)
        return MR_OK;
    MR_TRY(MR_GROW(p->v, p->room, p->n + 1, MOST_PIECES, "the pieces of a cache", st));
    mr__piece_state s = mr__piece_note_read(p->cache, name, &p->v[p->n]);
    if (s == MR__PIECE_OPEN)
        p->n++;
    return s == MR__PIECE_NO_MEMORY ? mr_fail_memory(st, 0, "the head of a piece") : MR_OK;
}

/* In the order of objects. */
static int compare(const void *a, const void *b)
{
    const mr__piece_note *x = a, *y = b;
    int c = strcmp(x->url, y->url);
    c = c ? c : strcmp(x->etag, y->etag);
    c = c ? c : strcmp(x->endpoint, y->endpoint);
    c = c ? c : (x->query > y->query) - (x->query < y->query);
    return c ? c : (x->size > y->size) - (x->size < y->size);
}

mr_code mr_object_cache_read(mr_object_cache *out, const char *directory, mr_status *st)
{
    pieces *p = mr_calloc(1, sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "the pieces of a cache");
    *out = (mr_object_cache){.internal = p};
    mr_code rc = mr__cache_open(&p->cache, directory, 0, false, st);
    if (rc == MR_OK)
        rc = mr__cache_shrink(p->cache, INT64_MAX, &out->bytes, st);
    if (rc == MR_OK)
        rc = mr__cache_each(p->cache, add_piece, p, st);
    if (rc == MR_OK && !(out->objects = mr_calloc(p->n + 1, sizeof *out->objects)))
        rc = mr_fail_memory(st, p->n * sizeof *out->objects, "the objects of a cache");
    if (rc != MR_OK) {
        mr_object_cache_reset(out);
        return rc;
    }
    out->directory = p->cache->directory;
    out->limit = atomic_load(&p->cache->limit);
    if (p->n)
        qsort(p->v, p->n, sizeof *p->v, compare);
    for (size_t i = 0; i < p->n; i++) {
        if (i == 0 || compare(&p->v[i - 1], &p->v[i]) != 0)
            out->objects[out->n_objects++] =
                (mr_cached_object){.url = p->v[i].url, .etag = p->v[i].etag, .size = p->v[i].size};
        out->objects[out->n_objects - 1].cached_bytes += p->v[i].bytes;
    }
    return MR_OK;
}

void mr_object_cache_reset(mr_object_cache *c)
{
    mr_free(c->objects);
    reset(c->internal);
    *c = (mr_object_cache){0};
}

mr_code mr_object_cache_prune(const char *directory, int64_t bytes, mr_status *st)
{
    mr__cache *c = NULL;
    int64_t left;
    if (bytes < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "bytes must be at least 0");
    MR_TRY(mr__cache_open(&c, directory, 0, false, st));
    mr_code rc = mr__cache_shrink(c, bytes, &left, st);
    mr__cache_close(c);
    return rc;
}
