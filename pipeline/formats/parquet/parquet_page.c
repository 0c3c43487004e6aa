/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/parquet/parquet_page.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/formats/libz.h"
#include "pipeline/formats/parquet/parquet_codec.h"
#include "pipeline/formats/parquet/thrift_compact.h"

enum { FIRST_HEAD = 256, MOST_HEAD = 16 << 20, WINDOW = 64 << 10 };

static mr_code damaged(const char *what, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "a damaged page: %s", what);
}

/* ---- bytes of the chunk ---- */

static const uint8_t *window(const mr__parquet_column *c)
{
    return (const uint8_t *)mr_buffer_data(c->window) + c->window_at;
}

/* Makes the window hold the next n bytes of the chunk, which has as many. */
static mr_code need(mr__parquet_column *c, size_t n, mr_status *st)
{
    if (c->window && c->window_n >= n)
        return MR_OK;
    mr_buffer *b;
    int64_t left = c->end - c->at;
    size_t size = n > WINDOW ? n : left < WINDOW ? (size_t)left : WINDOW;
    size_t have = c->window ? c->window_n : 0;
    MR_TRY(mr_buffer_alloc(&b, size ? size : 1, st));
    if (have)
        memcpy(mr_buffer_data(b), window(c), have);
    mr_code rc = c->read(c->read_ctx, c->at + (int64_t)have, (char *)mr_buffer_data(b) + have,
                         size - have, st);
    if (rc != MR_OK) {
        mr_buffer_unref(b);
        return rc;
    }
    mr_buffer_unref(c->window);
    c->window = b;
    c->window_at = 0;
    c->window_n = size;
    return MR_OK;
}

static void advance(mr__parquet_column *c, int64_t n)
{
    c->at += n;
    if ((uint64_t)n < c->window_n) {
        c->window_at += (size_t)n;
        c->window_n -= (size_t)n;
        return;
    }
    mr_buffer_unref(c->window);
    c->window = NULL;
    c->window_n = c->window_at = 0;
}

/* ---- heads ---- */

static void read_data_head(mr__thrift *t, mr__parquet_head *h)
{
    mr__thrift_field f = {0};
    bool levels = h->type == MR__PARQUET_DATA_PAGE; /* a dictionary has none */
    while (mr__thrift_next(t, &f))
        if (f.id == 1)
            h->values = mr__thrift_int(t, &f);
        else if (f.id == 2)
            h->encoding = mr__thrift_int(t, &f);
        else if (f.id == 3 && levels)
            h->definition_encoding = mr__thrift_int(t, &f);
        else if (f.id == 4 && levels)
            h->repetition_encoding = mr__thrift_int(t, &f);
        else
            mr__thrift_skip(t, &f);
}

static void read_data_head_v2(mr__thrift *t, mr__parquet_head *h)
{
    mr__thrift_field f = {0};
    while (mr__thrift_next(t, &f))
        switch (f.id) {
        case 1:
            h->values = mr__thrift_int(t, &f);
            break;
        case 3:
            h->rows = mr__thrift_int(t, &f);
            break;
        case 4:
            h->encoding = mr__thrift_int(t, &f);
            break;
        case 5:
            h->definition_bytes = mr__thrift_int(t, &f);
            break;
        case 6:
            h->repetition_bytes = mr__thrift_int(t, &f);
            break;
        case 7:
            h->compressed = mr__thrift_bool(t, &f);
            break;
        default:
            mr__thrift_skip(t, &f);
        }
}

static void read_head(mr__thrift *t, mr__parquet_head *h)
{
    mr__thrift_field f = {0};
    bool there = false;
    *h = (mr__parquet_head){.type = -1,
                            .size = -1,
                            .packed_size = -1,
                            .values = -1,
                            .rows = -1,
                            .encoding = -1,
                            .definition_encoding = MR__PARQUET_RLE,
                            .repetition_encoding = MR__PARQUET_RLE,
                            .compressed = true};
    while (mr__thrift_next(t, &f)) {
        bool data = f.id == 5 && h->type == MR__PARQUET_DATA_PAGE;
        bool dictionary = f.id == 7 && h->type == MR__PARQUET_DICTIONARY_PAGE;
        bool data2 = f.id == 8 && h->type == MR__PARQUET_DATA_PAGE_V2;
        if (f.id == 1)
            h->type = mr__thrift_int(t, &f);
        else if (f.id == 2)
            h->size = mr__thrift_int(t, &f);
        else if (f.id == 3)
            h->packed_size = mr__thrift_int(t, &f);
        else if (f.id == 4) {
            h->crc = (uint32_t)mr__thrift_int(t, &f);
            h->has_crc = true;
        } else if ((data || dictionary || data2) && mr__thrift_enter(t, &f)) {
            there = true;
            if (data2)
                read_data_head_v2(t, h);
            else
                read_data_head(t, h);
        } else
            mr__thrift_skip(t, &f);
    }
    bool one = h->type == MR__PARQUET_DATA_PAGE || h->type == MR__PARQUET_DICTIONARY_PAGE ||
               h->type == MR__PARQUET_DATA_PAGE_V2;
    if (one && !there)
        t->bad = true;
    if (h->type != MR__PARQUET_DATA_PAGE_V2) /* a damaged head may have several types */
        h->definition_bytes = h->repetition_bytes = 0;
}

static mr_code check_head(const mr__parquet_column *c, const mr__parquet_head *h, mr_status *st)
{
    if (h->packed_size < 0 || h->packed_size > c->end - c->at)
        return mr_fail(st, MR_DATA_LOSS,
                       "a damaged page: it has %" PRId64 " bytes, and its column chunk %" PRId64
                       " more",
                       h->packed_size, c->end - c->at);
    if (h->size < 0)
        return damaged("it has no size", st);
    if (h->size > MR__PARQUET_MOST_PAGE)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "a page of %" PRId64 " bytes; at most 1 GiB is read", h->size);
    if ((c->codec == MR__PARQUET_UNCOMPRESSED || !h->compressed) && h->size != h->packed_size)
        return damaged("it is not compressed, and has two sizes", st);
    if (h->type == MR__PARQUET_DATA_PAGE_V2 &&
        (h->definition_bytes < 0 || h->repetition_bytes < 0 || h->rows < 0 ||
         h->definition_bytes > h->size || h->repetition_bytes > h->size - h->definition_bytes ||
         h->definition_bytes + h->repetition_bytes > h->packed_size))
        return damaged("its levels are larger than it is", st);
    if (h->values < 0 || h->values > INT32_MAX)
        return damaged("it does not say how many values it has", st);
    return MR_OK;
}

static mr_code find_head(mr__parquet_column *c, mr__parquet_head *h, mr_status *st)
{
    size_t n = FIRST_HEAD;
    for (;; n *= 4) {
        int64_t left = c->end - c->at;
        n = left < (int64_t)n ? (size_t)left : n;
        MR_TRY(need(c, n, st));
        mr__thrift t = {.at = window(c), .end = window(c) + c->window_n};
        read_head(&t, h);
        if (!t.bad) {
            advance(c, t.at - window(c));
            return MR_OK;
        }
        n = c->window_n > n ? c->window_n : n;
        if ((int64_t)n == left || n > MOST_HEAD)
            return damaged("its head cannot be read", st);
    }
}

mr_code mr__parquet_next_head(mr__parquet_column *c, mr__parquet_head *h, mr_status *st)
{
    for (;;) {
        c->page_offset = c->at;
        if (c->at == c->end)
            return MR_END;
        MR_TRY(find_head(c, h, st));
        bool one = h->type == MR__PARQUET_DATA_PAGE || h->type == MR__PARQUET_DICTIONARY_PAGE ||
                   h->type == MR__PARQUET_DATA_PAGE_V2;
        if (!one && h->packed_size >= 0)
            h->size = h->values = 0;
        if (one || h->packed_size < 0 || h->packed_size > c->end - c->at)
            return check_head(c, h, st);
        mr__parquet_pass_page(c, h);
    }
}

void mr__parquet_pass_page(mr__parquet_column *c, const mr__parquet_head *h)
{
    advance(c, h->packed_size);
}

/* ---- bytes of a page ---- */

void mr__parquet_drop_page(mr__parquet_column *c)
{
    mr_buffer_unref(c->page);
    c->page = NULL;
    c->page_left = 0;
    c->level_at = c->level_n = 0;
    c->definitions = c->repetitions = (mr__hybrid){0};
}

/* *page holds the bytes of the page from *data on, decompressed; owned. Levels of version 2 are
 * none of them: they are left in *levels, in the window. */
static mr_code read_bytes(mr__parquet_column *c, const mr__parquet_head *h, mr_buffer **page,
                          const uint8_t **data, mr_buffer **levels, mr_status *st)
{
    size_t n = (size_t)h->packed_size;
    size_t before = (size_t)(h->definition_bytes + h->repetition_bytes);
    MR_TRY(need(c, n, st));
    const uint8_t *p = window(c);
    if (h->has_crc)
        MR_TRY(mr__zlib_need(st));
    if (h->has_crc && (uint32_t)mr__zlib.crc32_z(0, p, n) != h->crc)
        return damaged("its checksum does not match its bytes", st);
    bool plain = c->codec == MR__PARQUET_UNCOMPRESSED || !h->compressed;
    if (plain || (n == before && h->size == (int64_t)before)) {
        *page = mr_buffer_ref(c->window);
        *data = p + before;
    } else {
        MR_TRY(mr__parquet_decompress(c->codec, p + before, n - before, (size_t)h->size - before,
                                      page, st));
        *data = mr_buffer_data(*page);
    }
    *levels = mr_buffer_ref(c->window);
    return MR_OK;
}

static int width_of(int most)
{
    int width = 0;
    while (most >> width)
        width++;
    return width;
}

/* Levels of version 1 at *at, which goes past them. */
static mr_code start_levels(mr__hybrid *h, int64_t encoding, int most, size_t values,
                            const uint8_t **at, const uint8_t *end, mr_status *st)
{
    uint32_t size;
    if (most == 0)
        return MR_OK;
    if (encoding == MR__PARQUET_BIT_PACKED)
        return mr__hybrid_start_old(h, *at, end, width_of(most), values, at)
                   ? MR_OK
                   : damaged("its levels are larger than it is", st);
    if (encoding != MR__PARQUET_RLE)
        return damaged("its levels are encoded in no known way", st);
    if (end - *at < 4)
        return damaged("it ends within its levels", st);
    memcpy(&size, *at, sizeof size);
    *at += sizeof size;
    if (size > (size_t)(end - *at))
        return damaged("its levels are larger than it is", st);
    mr__hybrid_start(h, *at, *at + size, width_of(most));
    *at += size;
    return MR_OK;
}

/* Bytes of a value of the leaf; 0: they differ. */
static size_t size_of(const mr__parquet_leaf *leaf)
{
    static const uint8_t sizes[] = {
        [MR__PARQUET_BOOLEAN] = 1, [MR__PARQUET_INT32] = 4, [MR__PARQUET_INT64] = 8,
        [MR__PARQUET_INT96] = 12,  [MR__PARQUET_FLOAT] = 4, [MR__PARQUET_DOUBLE] = 8};
    return leaf->type == MR__PARQUET_FIXED       ? (size_t)leaf->size
           : leaf->type < MR__PARQUET_BYTE_ARRAY ? sizes[leaf->type]
                                                 : 0;
}

static mr_code take_dictionary(mr__parquet_column *c, const mr__parquet_head *h, mr_buffer *page,
                               const uint8_t *data, mr_status *st)
{
    static const mr_dtype of_size[] = {[2] = MR_UINT16, [4] = MR_UINT32, [8] = MR_UINT64};
    const mr__parquet_leaf *leaf = c->leaf;
    size_t size = size_of(leaf), n = (size_t)h->values, got = 0;
    bool text = leaf->dtype == MR_STRING;
    const uint8_t *end = data + h->size;
    mr__parquet_values v = {.text = text};
    mr_array a;
    if (c->has_dictionary)
        return damaged("a second dictionary", st);
    if (leaf->type == MR__PARQUET_BOOLEAN)
        return damaged("a dictionary of bools", st);
    if (h->encoding != MR__PARQUET_PLAIN && h->encoding != MR__PARQUET_PLAIN_DICTIONARY)
        return damaged("a dictionary encoded in no known way", st);
    if (n > (size_t)h->size / (size ? size : 4))
        return damaged("a dictionary of more values than it has bytes", st);
    MR_TRY(mr_array_alloc(&a, text ? MR_STRING : of_size[size], 0, NULL, n, st));
    mr_code rc = mr_buffer_hold(a.owner, page, st);
    if (rc == MR_OK)
        rc = mr__parquet_values_start(&v, MR__PARQUET_PLAIN, (int)leaf->type, size, data, end, n,
                                      st);
    if (rc == MR_OK)
        rc = v.get(&v, n, a.data, &got, st);
    if (rc == MR_OK && got < n)
        rc = damaged("a dictionary of fewer values than its head says", st);
    mr__parquet_values_reset(&v);
    if (rc != MR_OK) {
        mr_array_reset(&a);
        return rc;
    }
    c->dictionary = a;
    c->has_dictionary = true;
    return MR_OK;
}

static mr_code start_page(mr__parquet_column *c, const mr__parquet_head *h, const uint8_t *data,
                          const uint8_t *levels, mr_status *st)
{
    const mr__parquet_leaf *leaf = c->leaf;
    size_t n = (size_t)h->values;
    bool v2 = h->type == MR__PARQUET_DATA_PAGE_V2;
    const uint8_t *end = data + h->size - h->definition_bytes - h->repetition_bytes;
    if (h->values > c->values_left)
        return damaged("it has more values than its column chunk", st);
    if (v2) {
        const uint8_t *middle = levels + h->repetition_bytes;
        mr__hybrid_start(&c->repetitions, levels, middle, width_of(leaf->lists));
        mr__hybrid_start(&c->definitions, middle, middle + h->definition_bytes,
                         width_of(leaf->max_definition));
    } else {
        MR_TRY(
            start_levels(&c->repetitions, h->repetition_encoding, leaf->lists, n, &data, end, st));
        MR_TRY(start_levels(&c->definitions, h->definition_encoding, leaf->max_definition, n, &data,
                            end, st));
    }
    c->values.dictionary = c->has_dictionary ? (const void *)c->dictionary.data : NULL;
    c->values.n_dictionary = c->dictionary.rows;
    c->values.text = leaf->dtype == MR_STRING;
    MR_TRY(mr__parquet_values_start(&c->values, (int)h->encoding, (int)leaf->type, size_of(leaf),
                                    data, end, n, st));
    c->page_left = n;
    c->rows_left = mr__parquet_rows_of(h);
    c->values_left -= h->values;
    return MR_OK;
}

mr_code mr__parquet_take_page(mr__parquet_column *c, const mr__parquet_head *h, mr_status *st)
{
    mr_buffer *page = NULL, *levels = NULL;
    const uint8_t *data = NULL;
    mr__parquet_drop_page(c);
    MR_TRY(read_bytes(c, h, &page, &data, &levels, st));
    const uint8_t *first = window(c);
    mr_code rc = h->type == MR__PARQUET_DICTIONARY_PAGE ? take_dictionary(c, h, page, data, st)
                                                        : start_page(c, h, data, first, st);
    if (rc == MR_OK && page != levels && h->type == MR__PARQUET_DATA_PAGE_V2)
        rc = mr_buffer_hold(page, levels, st); /* its levels lie in the window */
    mr_buffer_unref(levels);
    if (rc != MR_OK) {
        mr_buffer_unref(page);
        mr__parquet_drop_page(c);
        return rc;
    }
    c->page = page;
    mr__parquet_pass_page(c, h);
    if (h->type == MR__PARQUET_DICTIONARY_PAGE)
        mr__parquet_drop_page(c);
    return MR_OK;
}
