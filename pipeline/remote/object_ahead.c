/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/object_ahead.h"

#include <stdlib.h>
#include <string.h>

#include "pipeline/remote/object_ranges.h"
#include "pipeline/system/name_scope.h"

#define CLOSE       ((int64_t)64 << 10) /* as of object_ranges.c */
#define LEAST_PIECE ((int64_t)64 << 10)
#define MOST_PIECE  ((int64_t)4 << 20)
#define MOST_ALL    ((int64_t)64 << 20) /* requested or in memory */
#define LIMITED     ((int64_t)3 << 19)  /* the same, under a memory limit */

typedef struct piece {
    int64_t from, to;
    int64_t wanted;         /* bytes that belong to parts and were not read */
    int64_t turn;           /* pieces of its part before it */
    mr__transfer *transfer; /* NULL: not started, or gone */
    uint8_t *data;          /* room for all; NULL: nothing was read */
    int64_t have;
    bool gone; /* all was read, or it failed */
} piece;

struct mr__object_ahead {
    mr__object *object;
    int64_t room; /* bytes that may still be requested; negative: a piece had to be */
    size_t n, next;
    size_t *order; /* in which pieces are requested: by turn, then by place */
    piece v[];     /* by place */
};

static int by_place(const void *a, const void *b)
{
    const mr__object_part *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static int by_turn(const void *a, const void *b, void *ctx)
{
    const piece *v = ctx, *x = &v[*(const size_t *)a], *y = &v[*(const size_t *)b];
    return x->turn != y->turn ? (x->turn > y->turn) - (x->turn < y->turn)
                              : (x->from > y->from) - (x->from < y->from);
}

static int64_t most_bytes(void)
{
    int64_t set = mr__name_scope_get().remote_read_ahead, most = set ? set : MOST_ALL;
    return mr__remote_is_limited() && most > LIMITED ? LIMITED : most;
}

/* Number of the pieces of parts sorted by place, which it writes to v unless that is NULL. */
static size_t cut(const mr__object_part *parts, size_t n_parts, int64_t size, piece *v)
{
    size_t n = 0;
    piece last = {0};
    for (size_t i = 0; i < n_parts; i++) {
        int64_t from = parts[i].from, to = parts[i].to;
        if (n && last.turn == 0 && from <= last.to + CLOSE && to - last.from <= size) {
            last.to = to > last.to ? to : last.to;
            last.wanted += to - from;
            if (v)
                v[n - 1] = last;
            continue;
        }
        for (int64_t turn = 0; from < to; turn++, from = last.to) {
            last = (piece){.from = from, .to = to - from < size ? to : from + size, .turn = turn};
            last.wanted = last.to - last.from;
            if (v)
                v[n] = last;
            n++;
        }
    }
    return n;
}

static void end(mr__object_ahead *a, piece *p)
{
    if (p->transfer)
        a->room += p->to - p->from;
    mr__transfer_drop(p->transfer);
    mr_free(p->data);
    p->transfer = NULL;
    p->data = NULL;
    p->gone = true;
}

static mr_code start(mr__object_ahead *a, piece *p, mr_status *st)
{
    MR_TRY(mr__transfer_start(&p->transfer, a->object, p->from, p->to, true, st));
    a->room -= p->to - p->from;
    return MR_OK;
}

static mr_code start_more(mr__object_ahead *a, mr_status *st)
{
    for (; a->next < a->n; a->next++) {
        piece *p = &a->v[a->order[a->next]];
        if (p->transfer || p->gone)
            continue;
        if (p->to - p->from > a->room)
            break;
        MR_TRY(start(a, p, st));
    }
    return MR_OK;
}

mr_code mr__object_ahead_open(mr__object_ahead **out, mr__object *o, mr__object_part *parts,
                              size_t n_parts, mr_status *st)
{
    int64_t most = most_bytes(), size = most / (int64_t)(n_parts + 1);
    size = size > MOST_PIECE ? MOST_PIECE : size < LEAST_PIECE ? LEAST_PIECE : size;
    if (n_parts)
        qsort(parts, n_parts, sizeof *parts, by_place);
    size_t n = cut(parts, n_parts, size, NULL);
    mr__object_ahead *a = mr_calloc(1, sizeof *a + n * sizeof *a->v);
    size_t *order = a ? mr_calloc(n + 1, sizeof *order) : NULL;
    if (!order) {
        mr_free(a);
        return mr_fail_memory(st, n * sizeof *a->v, "parts of a remote object");
    }
    a->object = mr__object_ref(o);
    a->room = most;
    a->order = order;
    a->n = cut(parts, n_parts, size, a->v);
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    if (n)
        qsort_r(order, n, sizeof *order, by_turn, a->v);
    mr_code rc = start_more(a, st);
    if (rc != MR_OK) {
        mr__object_ahead_close(a);
        return rc;
    }
    *out = a;
    return MR_OK;
}

void mr__object_ahead_close(mr__object_ahead *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->n; i++)
        end(a, &a->v[i]);
    mr__object_unref(a->object);
    mr_free(a->order);
    mr_free(a);
}

/* The piece that has the byte; NULL: none. */
static piece *find(mr__object_ahead *a, int64_t offset)
{
    size_t low = 0, high = a->n;
    while (low < high) { /* the first that ends after it */
        size_t middle = low + (high - low) / 2;
        if (a->v[middle].to > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low < a->n && a->v[low].from <= offset && !a->v[low].gone ? &a->v[low] : NULL;
}

/* Receives until the piece has n bytes, or the object ends. */
static mr_code receive(piece *p, int64_t n, mr_cancel *cancel, mr_status *st)
{
    size_t room = (size_t)(p->to - p->from);
    if (!p->data && !(p->data = mr_malloc(room)))
        return mr_fail_memory(st, room, "bytes of a remote object");
    while (p->have < n) {
        mr_buffer *slot = NULL;
        uint8_t *data;
        size_t got;
        mr_code rc = mr__transfer_take(p->transfer, cancel, &slot, &data, &got, st);
        if (rc == MR_END)
            return MR_OK;
        if (rc != MR_OK)
            return rc;
        memcpy(p->data + p->have, data, got);
        p->have += (int64_t)got;
        mr_buffer_unref(slot);
    }
    return MR_OK;
}

/* Reads up to n bytes of the piece. */
static mr_code read_piece(mr__object_ahead *a, piece *p, int64_t offset, uint8_t *data, size_t n,
                          size_t *got, mr_cancel *cancel, mr_status *st)
{
    int64_t at = offset - p->from, left = p->to - offset;
    left = left < (int64_t)n ? left : (int64_t)n;
    mr_code rc = p->transfer ? MR_OK : start(a, p, st);
    if (rc == MR_OK)
        rc = receive(p, at + left, cancel, st);
    if (rc != MR_OK) {
        mr_status_at(st, a->object->url, offset, -1);
        if (rc != MR_CANCELLED)
            end(a, p);
        return rc;
    }
    left = p->have - at < left ? p->have - at : left;
    left = left > 0 ? left : 0;
    memcpy(data, p->data + at, (size_t)left);
    *got = (size_t)left;
    p->wanted -= left;
    if (p->wanted <= 0)
        end(a, p);
    return start_more(a, st);
}

mr_code mr__object_ahead_read(mr__object_ahead *a, int64_t offset, void *data, size_t n,
                              size_t *got, mr_cancel *cancel, mr_status *st)
{
    *got = 0;
    while (*got < n) {
        size_t part = 0;
        int64_t at = offset + (int64_t)*got;
        uint8_t *to = (uint8_t *)data + *got;
        piece *p = find(a, at);
        mr_code rc = p ? read_piece(a, p, at, to, n - *got, &part, cancel, st)
                       : mr__object_read(a->object, at, to, n - *got, &part, cancel, st);
        *got += part;
        if (rc != MR_OK || part == 0)
            return rc;
    }
    return MR_OK;
}
