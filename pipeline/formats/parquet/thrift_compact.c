/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/parquet/thrift_compact.h"

#include <string.h>

#include "pipeline/varint.h"

enum { MOST_DEPTH = 32, LONG_LIST = 15, MOST_BYTES = 1 << 30 };

/* ---- reading ---- */

static size_t left(const mr__thrift *t)
{
    return t->bad ? 0 : (size_t)(t->end - t->at);
}

static void spoil(mr__thrift *t)
{
    t->bad = true;
    t->at = t->end;
}

static uint8_t byte(mr__thrift *t)
{
    if (left(t) == 0) {
        spoil(t);
        return 0;
    }
    return *t->at++;
}

static uint64_t varint(mr__thrift *t)
{
    uint64_t v = 0;
    const uint8_t *next = mr__varint(t->at, t->end, &v);
    if (next)
        t->at = next;
    else
        spoil(t);
    return v;
}

static int64_t zigzag(mr__thrift *t)
{
    return mr__unzigzag(varint(t));
}

bool mr__thrift_next(mr__thrift *t, mr__thrift_field *f)
{
    uint8_t b = byte(t);
    f->type = b & 15;
    if (f->type == MR__THRIFT_STOP || t->bad) {
        if (b)
            spoil(t);
        return false;
    }
    int64_t id = b >> 4 ? f->id + (b >> 4) : zigzag(t);
    if (id < INT16_MIN || id > INT16_MAX || f->type > MR__THRIFT_STRUCT)
        spoil(t);
    f->id = (int16_t)id;
    return !t->bad;
}

int64_t mr__thrift_int(mr__thrift *t, const mr__thrift_field *f)
{
    if (f->type == MR__THRIFT_I8)
        return (int8_t)byte(t);
    if (f->type >= MR__THRIFT_I16 && f->type <= MR__THRIFT_I64)
        return zigzag(t);
    spoil(t);
    return 0;
}

bool mr__thrift_bool(mr__thrift *t, const mr__thrift_field *f)
{
    if (f->type != MR__THRIFT_TRUE && f->type != MR__THRIFT_FALSE)
        spoil(t);
    return !t->bad && f->type == MR__THRIFT_TRUE;
}

static mr_bytes bytes(mr__thrift *t)
{
    uint64_t n = varint(t);
    if (n > left(t)) {
        spoil(t);
        return (mr_bytes){NULL, 0};
    }
    mr_bytes v = {(const char *)t->at, (size_t)n};
    t->at += n;
    return v;
}

mr_bytes mr__thrift_bytes(mr__thrift *t, const mr__thrift_field *f)
{
    if (f->type != MR__THRIFT_BINARY)
        spoil(t);
    return bytes(t);
}

bool mr__thrift_enter(mr__thrift *t, const mr__thrift_field *f)
{
    if (f->type != MR__THRIFT_STRUCT)
        spoil(t);
    return !t->bad;
}

static size_t list_head(mr__thrift *t, uint8_t *type)
{
    uint8_t b = byte(t);
    uint64_t n = b >> 4 == LONG_LIST ? varint(t) : b >> 4;
    *type = b & 15;
    if (n > left(t))
        spoil(t);
    return t->bad ? 0 : (size_t)n;
}

size_t mr__thrift_list(mr__thrift *t, const mr__thrift_field *f, uint8_t type)
{
    uint8_t found;
    if (f->type != MR__THRIFT_LIST)
        spoil(t);
    size_t n = list_head(t, &found);
    if (n && found != type)
        spoil(t);
    return t->bad ? 0 : n;
}

static void skip(mr__thrift *t, uint8_t type, bool item, int depth);

static void skip_map(mr__thrift *t, int depth)
{
    uint64_t n = varint(t);
    if (n > left(t))
        spoil(t);
    uint8_t types = n && !t->bad ? byte(t) : 0;
    for (uint64_t i = 0; i < n && !t->bad; i++) {
        skip(t, types >> 4, true, depth + 1);
        skip(t, types & 15, true, depth + 1);
    }
}

static void skip(mr__thrift *t, uint8_t type, bool item, int depth)
{
    mr__thrift_field f = {0};
    size_t n;
    uint8_t of;
    if (depth > MOST_DEPTH)
        spoil(t);
    if (t->bad)
        return;
    switch (type) {
    case MR__THRIFT_TRUE:
    case MR__THRIFT_FALSE:
        if (item)
            byte(t);
        break;
    case MR__THRIFT_I8:
        byte(t);
        break;
    case MR__THRIFT_I16:
    case MR__THRIFT_I32:
    case MR__THRIFT_I64:
        varint(t);
        break;
    case MR__THRIFT_DOUBLE:
        if (left(t) < 8)
            spoil(t);
        else
            t->at += 8;
        break;
    case MR__THRIFT_BINARY:
        bytes(t);
        break;
    case MR__THRIFT_LIST:
    case MR__THRIFT_SET:
        n = list_head(t, &of);
        for (size_t i = 0; i < n && !t->bad; i++)
            skip(t, of, true, depth + 1);
        break;
    case MR__THRIFT_MAP:
        skip_map(t, depth);
        break;
    case MR__THRIFT_STRUCT:
        while (mr__thrift_next(t, &f))
            skip(t, f.type, false, depth + 1);
        break;
    default:
        spoil(t);
    }
}

void mr__thrift_skip(mr__thrift *t, const mr__thrift_field *f)
{
    skip(t, f->type, false, 0);
}

/* ---- writing ---- */

static void put(mr__thrift_w *w, const void *p, size_t n)
{
    if (w->failed == MR_OK)
        w->failed = MR_GROW(w->v, w->capacity, w->n + n, MOST_BYTES, "a Parquet head", NULL);
    if (w->failed != MR_OK || n == 0)
        return;
    memcpy(w->v + w->n, p, n);
    w->n += n;
}

static void put_byte(mr__thrift_w *w, unsigned b)
{
    uint8_t v = (uint8_t)b;
    put(w, &v, 1);
}

static void put_varint(mr__thrift_w *w, uint64_t v)
{
    uint8_t b[MR__VARINT_MOST];
    put(w, b, (size_t)(mr__varint_put(b, v) - b));
}

static void put_zigzag(mr__thrift_w *w, int64_t v)
{
    put_varint(w, mr__zigzag(v));
}

static void put_field(mr__thrift_w *w, int16_t id, uint8_t type)
{
    int16_t *last = &w->last[w->depth];
    int step = id - *last;
    if (step > 0 && step < 16)
        put_byte(w, (unsigned)step << 4 | type);
    else {
        put_byte(w, type);
        put_zigzag(w, id);
    }
    *last = id;
}

void mr__thrift_w_reset(mr__thrift_w *w)
{
    mr_free(w->v);
    *w = (mr__thrift_w){0};
}

void mr__thrift_put_struct(mr__thrift_w *w, int16_t id)
{
    put_field(w, id, MR__THRIFT_STRUCT);
    mr__thrift_item_struct(w);
}

void mr__thrift_item_struct(mr__thrift_w *w)
{
    w->last[++w->depth] = 0;
}

void mr__thrift_put_end(mr__thrift_w *w)
{
    put_byte(w, MR__THRIFT_STOP);
    if (w->depth)
        w->depth--;
}

void mr__thrift_put_int(mr__thrift_w *w, int16_t id, uint8_t type, int64_t v)
{
    put_field(w, id, type);
    if (type == MR__THRIFT_I8)
        put_byte(w, (uint8_t)v);
    else
        put_zigzag(w, v);
}

void mr__thrift_put_bool(mr__thrift_w *w, int16_t id, bool v)
{
    put_field(w, id, v ? MR__THRIFT_TRUE : MR__THRIFT_FALSE);
}

void mr__thrift_item_bytes(mr__thrift_w *w, const void *p, size_t n)
{
    put_varint(w, n);
    put(w, p, n);
}

void mr__thrift_put_bytes(mr__thrift_w *w, int16_t id, const void *p, size_t n)
{
    put_field(w, id, MR__THRIFT_BINARY);
    mr__thrift_item_bytes(w, p, n);
}

void mr__thrift_put_list(mr__thrift_w *w, int16_t id, uint8_t type, size_t n)
{
    put_field(w, id, MR__THRIFT_LIST);
    if (n < LONG_LIST)
        put_byte(w, (unsigned)n << 4 | type);
    else {
        put_byte(w, LONG_LIST << 4 | type);
        put_varint(w, n);
    }
}

void mr__thrift_item_int(mr__thrift_w *w, int64_t v)
{
    put_zigzag(w, v);
}
