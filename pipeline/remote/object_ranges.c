/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/object_ranges.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/remote/cache_fetch.h"

#define CLOSE      ((int64_t)64 << 10) /* a gap that costs less than another request */
#define MOST_RANGE ((int64_t)8 << 20)

/* Parts [first, first + n) of the sorted list, fetched as one range. */
typedef struct group {
    mr__fetch *transfer;
    size_t first, n;
    int64_t from, to;
} group;

static int compare(const void *a, const void *b)
{
    const mr__object_range *x = a, *y = b;
    uintptr_t p = (uintptr_t)x->object, q = (uintptr_t)y->object;
    return p != q ? (p > q) - (p < q) : (x->offset > y->offset) - (x->offset < y->offset);
}

static mr_code keep_why(mr__object_range *v, const mr_status *why, mr_status *st)
{
    v->why = mr_memdup(why, sizeof *why);
    return v->why ? MR_OK : mr_fail_memory(st, sizeof *why, "an error");
}

/* Copies n bytes from `at` on to the parts that they belong to. */
static void hand_out(mr__object_range *v, size_t n_parts, const uint8_t *data, size_t n, int64_t at)
{
    for (size_t i = 0; i < n_parts; i++) {
        mr__object_range *r = &v[i];
        int64_t want = r->offset + (int64_t)r->got, skip = want - at;
        if (r->got == r->size || skip < 0 || skip >= (int64_t)n)
            continue;
        size_t part = n - (size_t)skip, left = r->size - r->got;
        part = part < left ? part : left;
        memcpy(r->data + r->got, data + skip, part);
        r->got += part;
    }
}

static mr_code receive(group *g, mr__object_range *v, mr_cancel *cancel, mr_status *st)
{
    mr_status why;
    int64_t at = g->from;
    for (;;) {
        mr_buffer *slot = NULL;
        uint8_t *data;
        size_t got;
        mr_code rc = mr__fetch_take(g->transfer, cancel, &slot, &data, &got, &why);
        if (rc == MR_END)
            return MR_OK;
        if (rc == MR_CANCELLED || rc == MR_RESOURCE_EXHAUSTED) {
            if (st)
                *st = why;
            return rc;
        }
        if (rc != MR_OK) {
            for (size_t i = 0; i < g->n; i++)
                if (v[g->first + i].got < v[g->first + i].size)
                    MR_TRY(keep_why(&v[g->first + i], &why, st));
            return MR_OK;
        }
        hand_out(v + g->first, g->n, data, got, at);
        at += (int64_t)got;
        mr_buffer_unref(slot);
    }
}

static size_t make_groups(const mr__object_range *v, size_t n, group *groups)
{
    size_t n_groups = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t end = v[i].offset + (int64_t)v[i].size;
        group *g = n_groups ? &groups[n_groups - 1] : NULL;
        if (g && v[i].object == v[g->first].object && v[i].offset <= g->to + CLOSE &&
            (end <= g->to || end - g->from <= MOST_RANGE)) {
            g->to = end > g->to ? end : g->to;
            g->n++;
        } else
            groups[n_groups++] = (group){.first = i, .n = 1, .from = v[i].offset, .to = end};
    }
    return n_groups;
}

/* Cuts the range at the end of the object. false: nothing is left. */
static bool fit(group *g, const mr__object *o)
{
    if (atomic_load_explicit(&o->known, memory_order_acquire) && o->info.size >= 0 &&
        g->to > o->info.size)
        g->to = o->info.size;
    return g->to > g->from;
}

/* Starts to read the group. An object is found in a cache by its ETag, so it must be known. */
static mr_code start(group *g, mr__object_range *v, mr_cancel *cancel, mr_status *st)
{
    mr_status why;
    mr__object *o = v[g->first].object;
    mr__cache *cache;
    MR_TRY(mr__cache_current(&cache, st));
    mr_code rc = cache ? mr__object_need_known(o, cancel, &why) : MR_OK;
    if (rc == MR_CANCELLED || rc == MR_RESOURCE_EXHAUSTED) {
        if (st)
            *st = why;
        return rc;
    }
    for (size_t i = 0; rc != MR_OK && i < g->n; i++)
        MR_TRY(keep_why(&v[g->first + i], &why, st));
    if (rc != MR_OK || !fit(g, o))
        return MR_OK;
    return mr__fetch_start(&g->transfer, o, g->from, g->to, true, st);
}

mr_code mr__object_ranges_read(mr__object_range *v, size_t n, mr_cancel *cancel, mr_status *st)
{
    group *groups = mr_calloc(n + 1, sizeof *groups);
    if (!groups)
        return mr_fail_memory(st, n * sizeof *groups, "ranges");
    mr_code rc = MR_OK;
    if (n)
        qsort(v, n, sizeof *v, compare);
    size_t n_groups = make_groups(v, n, groups);
    for (size_t i = 0; i < n; i++) {
        v[i].got = 0;
        v[i].why = NULL;
    }
    for (size_t i = 0; i < n_groups && rc == MR_OK; i++)
        rc = start(&groups[i], v, cancel, st);
    for (size_t i = 0; i < n_groups && rc == MR_OK; i++)
        if (groups[i].transfer)
            rc = receive(&groups[i], v, cancel, st);
    for (size_t i = 0; i < n_groups; i++)
        mr__fetch_drop(groups[i].transfer);
    for (size_t i = 0; i < n && rc != MR_OK; i++) {
        mr_free(v[i].why);
        v[i].why = NULL;
    }
    mr_free(groups);
    return rc;
}

enum { PARTS = 16 };

mr_code mr__object_read(mr__object *o, int64_t offset, void *data, size_t n, size_t *got,
                        mr_cancel *cancel, mr_status *st)
{
    *got = 0;
    while (*got < n) {
        mr__object_range v[PARTS];
        size_t n_parts = 0, begun = *got;
        for (; n_parts < PARTS && begun < n; n_parts++) {
            size_t part = n - begun < (size_t)MOST_RANGE ? n - begun : (size_t)MOST_RANGE;
            v[n_parts] = (mr__object_range){.object = o,
                                            .offset = offset + (int64_t)begun,
                                            .size = part,
                                            .data = (uint8_t *)data + begun};
            begun += part;
        }
        MR_TRY(mr__object_ranges_read(v, n_parts, cancel, st));
        mr_code rc = MR_OK;
        bool ends = false;
        for (size_t i = 0; i < n_parts; i++) {
            if (v[i].why && rc == MR_OK) {
                rc = v[i].why->code;
                mr_status_at(v[i].why, o->url, v[i].offset + (int64_t)v[i].got, -1);
                if (st)
                    *st = *v[i].why;
            }
            mr_free(v[i].why);
            if (!ends && rc == MR_OK)
                *got += v[i].got;
            ends = ends || v[i].got < v[i].size;
        }
        if (rc != MR_OK || ends)
            return rc;
    }
    return MR_OK;
}

mr_code mr__object_need_known(mr__object *o, mr_cancel *cancel, mr_status *st)
{
    mr__transfer *t = NULL;
    if (atomic_load_explicit(&o->known, memory_order_acquire))
        return MR_OK;
    MR_TRY(mr__cache_recall_object(o, st));
    if (atomic_load_explicit(&o->known, memory_order_acquire))
        return MR_OK;
    MR_TRY(mr__transfer_start(&t, o, 0, 1, true, st));
    mr_code rc = mr__transfer_wait_known(t, cancel, st);
    mr__transfer_drop(t);
    if (rc == MR_NOT_FOUND ||
        (rc == MR_OK && atomic_load_explicit(&o->known, memory_order_acquire)))
        mr__cache_note_object(o);
    return rc;
}

mr_code mr__object_look(const char *url, mr__object_info *out, mr_status *st)
{
    mr__object *o = NULL;
    MR_TRY(mr__object_open(&o, url, st));
    mr_code rc = mr__object_need_known(o, NULL, st);
    if (rc == MR_OK)
        *out = o->info;
    mr__object_unref(o);
    return rc;
}

mr_code mr__object_need_ranges(mr__object *o, mr_cancel *cancel, mr_status *st)
{
    MR_TRY(mr__object_need_known(o, cancel, st));
    if (o->info.ranges || o->info.size == 0)
        return MR_OK;
    mr_fail(st, MR_FAILED_PRECONDITION,
            "the server does not send parts of files, which this reader needs; copy the file and "
            "use its local path");
    mr_status_at(st, o->url, -1, -1);
    return MR_FAILED_PRECONDITION;
}

mr_code mr__object_read_whole(mr__object *o, size_t most, char **out, size_t *size,
                              mr_cancel *cancel, mr_status *st)
{
    mr__transfer *t = NULL;
    char *text = mr_malloc(1);
    size_t n = 0, room = 1;
    if (!text)
        return mr_fail_memory(st, 1, "a document");
    mr_code rc = mr__transfer_start(&t, o, 0, -1, true, st);
    while (rc == MR_OK) {
        mr_buffer *slot = NULL;
        uint8_t *data;
        size_t got;
        rc = mr__transfer_take(t, cancel, &slot, &data, &got, st);
        if (rc != MR_OK)
            break;
        rc = got > most - n ? mr_fail(st, MR_OUT_OF_RANGE, "more than %zu bytes", most)
                            : MR_GROW(text, room, n + got + 1, most + 1, "a document", st);
        if (rc == MR_OK)
            memcpy(text + n, data, got);
        n += got;
        mr_buffer_unref(slot);
    }
    mr__transfer_drop(t);
    if (rc == MR_END) {
        text[n] = '\0';
        *out = text;
        *size = n;
        return MR_OK;
    }
    mr_status_at(st, o->url, -1, -1);
    mr_free(text);
    return rc;
}
