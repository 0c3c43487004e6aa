/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a list ends where the next one begins, which may be stated only in the next page: levels
 * are read one entry ahead. */
#include "pipeline/formats/parquet/parquet_column.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/formats/compression_libraries.h"
#include "pipeline/formats/parquet/parquet_codec.h"
#include "pipeline/formats/parquet/thrift_compact.h"

/* ---- pages ---- */

/* The head of a page. */
typedef struct page_head {
    int64_t type, size, packed_size; /* bytes, uncompressed and as stored in the file */
    int64_t values, rows;            /* rows: -1 unless version 2 */
    int64_t encoding, definition_encoding, repetition_encoding;
    int64_t definition_bytes, repetition_bytes; /* version 2 */
    bool compressed, has_crc;
    uint32_t crc;
} page_head;

/* Rows of a page of lists; -1: not stated. Arrow before version 12 stored the number of values
 * instead. */
static int64_t rows_of(const page_head *h)
{
    return h->rows < h->values ? h->rows : -1;
}

enum { FIRST_HEAD = 256, MOST_HEAD = 16 << 20, WINDOW = 64 << 10 };

/* ---- bytes of the chunk ---- */

static const uint8_t *window(const mr__parquet_column *c)
{
    return (const uint8_t *)mr_buffer_data(c->window) + c->window_at;
}

/* Extends the window to the next n bytes of the chunk, which must exist. */
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

static void read_data_head(mr__thrift *t, page_head *h)
{
    mr__thrift_field f = {0};
    bool levels = h->type == MR__PARQUET_DATA_PAGE; /* a dictionary has no levels */
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

static void read_data_head_v2(mr__thrift *t, page_head *h)
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

static void read_head(mr__thrift *t, page_head *h)
{
    mr__thrift_field f = {0};
    bool there = false;
    *h = (page_head){.type = -1,
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

static mr_code check_head(const mr__parquet_column *c, const page_head *h, mr_status *st)
{
    if (h->packed_size < 0 || h->packed_size > c->end - c->at)
        return mr_fail(st, MR_DATA_LOSS,
                       "a damaged page: it has %" PRId64
                       " bytes, but its column chunk only %" PRId64 " more",
                       h->packed_size, c->end - c->at);
    if (h->size < 0)
        return mr__damaged_page("it has no size", st);
    if (h->size > MR__PARQUET_MOST_PAGE)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "a page of %" PRId64 " bytes; the limit is 1 GiB",
                       h->size);
    if ((c->codec == MR__PARQUET_UNCOMPRESSED || !h->compressed) && h->size != h->packed_size)
        return mr__damaged_page("it is not compressed, but has two different sizes", st);
    if (h->type == MR__PARQUET_DATA_PAGE_V2 &&
        (h->definition_bytes < 0 || h->repetition_bytes < 0 || h->rows < 0 ||
         h->definition_bytes > h->size || h->repetition_bytes > h->size - h->definition_bytes ||
         h->definition_bytes + h->repetition_bytes > h->packed_size))
        return mr__damaged_page("its levels are larger than it is", st);
    if (h->values < 0 || h->values > INT32_MAX)
        return mr__damaged_page("its number of values is missing", st);
    return MR_OK;
}

static mr_code find_head(mr__parquet_column *c, page_head *h, mr_status *st)
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
            return mr__damaged_page("its header cannot be read", st);
    }
}

/* Skips the bytes of the page. */
static void pass_page(mr__parquet_column *c, const page_head *h)
{
    advance(c, h->packed_size);
}

/* Reads the head of the next page with data or a dictionary. Sets c->page_offset; c->at and the
 * window are then at the bytes of the page. MR_END: no more pages in the chunk.
 * errors   MR_DATA_LOSS, those of reading */
static mr_code next_head(mr__parquet_column *c, page_head *h, mr_status *st)
{
    for (;;) {
        c->page_offset = c->at;
        if (c->at == c->end || (c->padded && c->values_left == 0))
            return MR_END;
        MR_TRY(find_head(c, h, st));
        h->compressed = h->compressed || c->always_compressed;
        bool one = h->type == MR__PARQUET_DATA_PAGE || h->type == MR__PARQUET_DICTIONARY_PAGE ||
                   h->type == MR__PARQUET_DATA_PAGE_V2;
        if (!one && h->packed_size >= 0)
            h->size = h->values = 0;
        if (one || h->packed_size < 0 || h->packed_size > c->end - c->at)
            return check_head(c, h, st);
        pass_page(c, h);
    }
}

/* ---- bytes of a page ---- */

static void drop_page(mr__parquet_column *c)
{
    mr_buffer_unref(c->page);
    c->page = NULL;
    c->page_left = 0;
    c->level_at = c->level_n = 0;
    c->definitions = c->repetitions = (mr__hybrid){0};
}

/* Returns the bytes of the page, decompressed, in *page from *data on; owned. The levels of version
 * 2 are separate: they remain in the window, at *levels. */
static mr_code read_bytes(mr__parquet_column *c, const page_head *h, mr_buffer **page,
                          const uint8_t **data, mr_buffer **levels, mr_status *st)
{
    size_t n = (size_t)h->packed_size;
    size_t before = (size_t)(h->definition_bytes + h->repetition_bytes);
    MR_TRY(need(c, n, st));
    const uint8_t *p = window(c);
    if (h->has_crc)
        MR_TRY(mr__zlib_need(st));
    if (h->has_crc && (uint32_t)mr__zlib.crc32_z(0, p, n) != h->crc)
        return mr__damaged_page("its checksum does not match its bytes", st);
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

/* Starts levels of version 1 at *at and advances *at past them. */
static mr_code start_levels(mr__hybrid *h, int64_t encoding, int most, size_t values,
                            const uint8_t **at, const uint8_t *end, mr_status *st)
{
    uint32_t size;
    if (most == 0)
        return MR_OK;
    if (encoding == MR__PARQUET_BIT_PACKED)
        return mr__hybrid_start_old(h, *at, end, width_of(most), values, at)
                   ? MR_OK
                   : mr__damaged_page("its levels are larger than it is", st);
    if (encoding != MR__PARQUET_RLE)
        return mr__damaged_page("its levels have an unknown encoding", st);
    if (end - *at < 4)
        return mr__damaged_page("it ends within its levels", st);
    memcpy(&size, *at, sizeof size);
    *at += sizeof size;
    if (size > (size_t)(end - *at))
        return mr__damaged_page("its levels are larger than it is", st);
    mr__hybrid_start(h, *at, *at + size, width_of(most));
    *at += size;
    return MR_OK;
}

/* Bytes of a value of the leaf; 0: they vary. */
static size_t size_of(const mr__parquet_leaf *leaf)
{
    static const uint8_t sizes[] = {
        [MR__PARQUET_BOOLEAN] = 1, [MR__PARQUET_INT32] = 4, [MR__PARQUET_INT64] = 8,
        [MR__PARQUET_INT96] = 12,  [MR__PARQUET_FLOAT] = 4, [MR__PARQUET_DOUBLE] = 8};
    return leaf->type == MR__PARQUET_FIXED       ? (size_t)leaf->size
           : leaf->type < MR__PARQUET_BYTE_ARRAY ? sizes[leaf->type]
                                                 : 0;
}

static mr_code take_dictionary(mr__parquet_column *c, const page_head *h, mr_buffer *page,
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
        return mr__damaged_page("a second dictionary", st);
    if (leaf->type == MR__PARQUET_BOOLEAN)
        return mr__damaged_page("a dictionary of bools", st);
    if (h->encoding != MR__PARQUET_PLAIN && h->encoding != MR__PARQUET_PLAIN_DICTIONARY)
        return mr__damaged_page("a dictionary of an unknown encoding", st);
    if (n > (size_t)h->size / (size ? size : 4))
        return mr__damaged_page("a dictionary of more values than it has bytes", st);
    MR_TRY(mr_array_alloc(&a, text ? MR_STRING : of_size[size], 0, NULL, n, st));
    mr_code rc = mr_buffer_hold(a.owner, page, st);
    if (rc == MR_OK)
        rc = mr__parquet_values_start(&v, MR__PARQUET_PLAIN, (int)leaf->type, size, data, end, n,
                                      st);
    if (rc == MR_OK)
        rc = v.get(&v, n, a.data, &got, st);
    if (rc == MR_OK && got < n)
        rc = mr__damaged_page("a dictionary of fewer values than its header says", st);
    mr__parquet_values_reset(&v);
    if (rc != MR_OK) {
        mr_array_reset(&a);
        return rc;
    }
    c->dictionary = a;
    c->has_dictionary = true;
    return MR_OK;
}

static mr_code start_page(mr__parquet_column *c, const page_head *h, const uint8_t *data,
                          const uint8_t *levels, mr_status *st)
{
    const mr__parquet_leaf *leaf = c->leaf;
    size_t n = (size_t)h->values;
    bool v2 = h->type == MR__PARQUET_DATA_PAGE_V2;
    const uint8_t *end = data + h->size - h->definition_bytes - h->repetition_bytes;
    if (h->values > c->values_left)
        return mr__damaged_page("it has more values than its column chunk", st);
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
    c->rows_left = rows_of(h);
    c->values_left -= h->values;
    return MR_OK;
}

/* Reads the bytes of the page and makes it the current one, or the dictionary of the chunk. */
static mr_code take_page(mr__parquet_column *c, const page_head *h, mr_status *st)
{
    mr_buffer *page = NULL, *levels = NULL;
    const uint8_t *data = NULL;
    drop_page(c);
    MR_TRY(read_bytes(c, h, &page, &data, &levels, st));
    const uint8_t *first = window(c);
    mr_code rc = h->type == MR__PARQUET_DICTIONARY_PAGE ? take_dictionary(c, h, page, data, st)
                                                        : start_page(c, h, data, first, st);
    if (rc == MR_OK && page != levels && h->type == MR__PARQUET_DATA_PAGE_V2)
        rc = mr_buffer_hold(page, levels, st); /* its levels are in the window */
    mr_buffer_unref(levels);
    if (rc != MR_OK) {
        mr_buffer_unref(page);
        drop_page(c);
        return rc;
    }
    c->page = page;
    pass_page(c, h);
    if (h->type == MR__PARQUET_DICTIONARY_PAGE)
        drop_page(c);
    return MR_OK;
}

/* ---- rows ---- */

enum { PIECE = 256, SOFT_BYTES = 256 << 10 };
#define MOST_ROW_BYTES   ((size_t)1 << 30)
#define MOST_ROW_ENTRIES ((int64_t)1 << 27)

void mr__parquet_rows_reset(mr__parquet_rows *r)
{
    mr_array_reset(&r->a);
    mr_buffer_unref(r->flaws);
    r->flaws = NULL;
}

void mr__parquet_column_reset(mr__parquet_column *c)
{
    drop_page(c);
    mr__parquet_values_reset(&c->values);
    mr_array_reset(&c->dictionary);
    mr_buffer_unref(c->window);
    *c = (mr__parquet_column){0};
}

void mr__parquet_column_start(mr__parquet_column *c, const mr__parquet_leaf *leaf,
                              const mr__parquet_chunk *chunk, mr__parquet_read_fn *read,
                              void *read_ctx)
{
    mr__parquet_column_reset(c);
    c->leaf = leaf;
    c->codec = chunk->codec;
    c->always_compressed = chunk->always_compressed;
    c->padded = chunk->padded;
    c->at = chunk->begin;
    c->end = chunk->begin + chunk->size;
    c->values_left = chunk->values;
    c->read = read;
    c->read_ctx = read_ctx;
}

/* ---- pages ---- */

static mr_code at_page(const mr__parquet_column *c, mr_code rc, mr_status *st)
{
    if (rc != MR_OK && rc != MR_END)
        mr_status_at(st, NULL, c->page_offset, -1);
    return rc;
}

/* Makes the next data page current. If `skip`, entries or rows, covers a whole page, the page is
 * skipped and *skip is reduced. MR_END: no more pages. */
static mr_code next_page(mr__parquet_column *c, int64_t *skip, mr_status *st)
{
    for (;;) {
        page_head h;
        mr_code rc = next_head(c, &h, st);
        int64_t covers = c->leaf->lists ? rows_of(&h) : h.values;
        if (rc != MR_OK)
            return at_page(c, rc, st);
        if (h.type != MR__PARQUET_DICTIONARY_PAGE && skip && covers >= 0 && covers <= *skip &&
            h.values <= c->values_left) {
            *skip -= covers;
            c->values_left -= h.values;
            pass_page(c, &h);
            if (*skip == 0)
                return MR_OK;
            continue;
        }
        rc = take_page(c, &h, st);
        if (rc != MR_OK)
            return at_page(c, rc, st);
        if (h.type != MR__PARQUET_DICTIONARY_PAGE)
            return MR_OK;
    }
}

static mr_code fail_ended(const mr__parquet_column *c, mr_status *st)
{
    mr_fail(st, MR_DATA_LOSS, "its chunk has fewer rows than the row group");
    return at_page(c, MR_DATA_LOSS, st);
}

static mr_code fail_short(const mr__parquet_column *c, const char *what, mr_status *st)
{
    mr_fail(st, MR_DATA_LOSS, "a damaged page: it has fewer %s than its header says", what);
    return at_page(c, MR_DATA_LOSS, st);
}

static mr_code fail_long(const mr__parquet_column *c, mr_status *st)
{
    mr_fail(st, MR_DATA_LOSS, "a damaged page: it has more rows than its header says");
    return at_page(c, MR_DATA_LOSS, st);
}

/* ---- values ---- */

/* Narrows values of the physical type to those of the column. false: a value does not fit; *good
 * are before it. */
#define NARROW(type)                                                                               \
    do {                                                                                           \
        for (; *good < n && (type)from[*good] == from[*good]; ++*good)                             \
            ((type *)to)[*good] = (type)from[*good];                                               \
    } while (0)

static bool narrow(mr_dtype t, const int32_t *from, size_t n, void *to, size_t *good)
{
    *good = 0;
    if (t == MR_INT8)
        NARROW(int8_t);
    else if (t == MR_INT16)
        NARROW(int16_t);
    else if (t == MR_UINT8)
        NARROW(uint8_t);
    else
        NARROW(uint16_t);
    return *good == n;
}

/* Strings are views into the page, the buffer that decoding made, or the dictionary. */
static mr_code hold_text(const mr__parquet_column *c, mr_buffer *owner, mr_status *st)
{
    if (c->page)
        MR_TRY(mr_buffer_hold(owner, c->page, st));
    if (c->values.made)
        MR_TRY(mr_buffer_hold(owner, c->values.made, st));
    return c->dictionary.owner ? mr_buffer_hold(owner, c->dictionary.owner, st) : MR_OK;
}

/* Decodes n values of the page to `to`; *got is their number, also after an error. owner keeps
 * alive what they point to. */
static mr_code take_values(mr__parquet_column *c, size_t n, void *to, mr_buffer *owner, size_t *got,
                           mr_status *st)
{
    mr_dtype t = c->leaf->dtype;
    size_t size = mr_dtype_size(t);
    bool narrows = c->leaf->type == MR__PARQUET_INT32 && size < sizeof(int32_t);
    int32_t piece[PIECE];
    for (*got = 0; *got < n;) {
        size_t m = 0, want = n - *got, good;
        char *at = (char *)to + *got * size;
        if (narrows && want > PIECE)
            want = PIECE;
        mr_code rc = c->values.get(&c->values, want, narrows ? (void *)piece : at, &m, st);
        good = m;
        if (narrows && !narrow(t, piece, m, at, &good)) {
            mr_fail(st, MR_DATA_LOSS, "a damaged page: the value %" PRId32 " is not a valid %s",
                    piece[good], mr_dtype_name(t));
            rc = MR_DATA_LOSS;
        }
        if (m && t == MR_STRING) {
            mr_status why;
            mr_code held = hold_text(c, owner, &why);
            if (held != MR_OK) {
                if (st)
                    *st = why;
                return held;
            }
        }
        *got += good;
        if (rc != MR_OK)
            return at_page(c, rc, st);
        if (m == 0)
            return fail_short(c, "values", st);
    }
    return MR_OK;
}

/* ---- rows of one value ---- */

/* Decodes the levels of n entries of the page; *there of them have values, which are contiguous in
 * `to`. missing[i]: entry i has no value. */
static mr_code take_definitions(mr__parquet_column *c, size_t n, uint8_t *missing, size_t *got,
                                size_t *there, mr_status *st)
{
    uint32_t piece[PIECE], most = (uint32_t)c->leaf->max_definition;
    *got = *there = 0;
    while (*got < n) {
        size_t want = n - *got < PIECE ? n - *got : PIECE;
        size_t m = mr__hybrid_get(&c->definitions, piece, want);
        for (size_t i = 0; i < m; i++, ++*got) {
            if (piece[i] > most)
                return fail_short(c, "levels", st);
            missing[*got] = piece[i] < most ? MR__PARQUET_NULL : 0;
            *there += piece[i] == most;
        }
        if (m < want)
            return fail_short(c, "levels", st);
    }
    return MR_OK;
}

/* Moves contiguous values to the positions of their rows. Returns the number of rows that are
 * complete if only `have` values were decoded. */
static size_t spread(char *v, size_t size, const uint8_t *missing, size_t rows, size_t there,
                     size_t have)
{
    size_t good = rows;
    if (have < there) { /* up to the first row without its value */
        size_t k = 0;
        for (good = 0; good < rows && (missing[good] || k < have); good++)
            k += !missing[good];
    }
    size_t k = have;
    for (size_t row = good; row-- > 0;) {
        if (missing[row])
            memset(v + row * size, 0, size);
        else if (--k != row)
            memmove(v + row * size, v + k * size, size);
    }
    return good;
}

/* Decodes up to n rows of the current page into the rows from `done` on. */
static mr_code page_rows(mr__parquet_column *c, size_t n, mr__parquet_rows *out, size_t done,
                         size_t *got, mr_status *st)
{
    size_t size = mr_dtype_size(out->a.dtype), levels = n, there = n, have = 0;
    char *to = (char *)out->a.data + done * size;
    mr_status why;
    mr_code rc = MR_OK;
    if (c->leaf->max_definition == 0)
        return take_values(c, n, to, out->a.owner, got, st);
    uint8_t *missing = (uint8_t *)mr_buffer_data(out->flaws) + done;
    mr_code short_of = take_definitions(c, n, missing, &levels, &there, &why);
    rc = take_values(c, there, to, out->a.owner, &have, st);
    *got = there == levels ? have : spread(to, size, missing, levels, there, have);
    if (rc == MR_OK && short_of != MR_OK) {
        if (st)
            *st = why;
        rc = short_of;
    }
    return rc;
}

static mr_code flat_rows(mr__parquet_column *c, size_t n, mr__parquet_rows *out, mr_status *st)
{
    size_t done = 0;
    MR_TRY(mr_array_alloc(&out->a, c->leaf->dtype, 0, NULL, n, st));
    mr_code rc = MR_OK;
    if (c->leaf->max_definition)
        rc = mr_buffer_alloc(&out->flaws, n, st);
    while (rc == MR_OK && done < n) {
        size_t got = 0;
        if (c->page_left == 0) {
            rc = next_page(c, NULL, st);
            if (rc == MR_END)
                rc = fail_ended(c, st);
            continue;
        }
        rc = page_rows(c, n - done < c->page_left ? n - done : c->page_left, out, done, &got, st);
        done += got;
        c->page_left -= got;
    }
    out->a.rows = done;
    return rc;
}

/* ---- lists ---- */

/* List rows under construction. */
typedef struct lists {
    char *v; /* values, `size` bytes each */
    size_t n, capacity, size;
    size_t waiting;   /* values of the current page whose levels are read */
    int64_t *lengths; /* of the rows, in values */
    uint8_t *flaws;
    size_t rows, most;
    int64_t length;  /* of the open row */
    int64_t entries; /* the same, including nulls */
    int definition;  /* of the last entry */
    uint8_t flaw;
    /* of lists of lists */
    int64_t *outer;                             /* number of lists in each row */
    int64_t *inner;                             /* lengths of these lists */
    size_t n_inner, inner_capacity, open_inner; /* open_inner: number before the open row */
    /* of deeper lists, whose lengths are the same within a row */
    int depth;                       /* of all lists */
    int64_t *deep;                   /* their lengths on axes 2 to depth, for each row */
    int64_t axes[MR__PARQUET_LISTS]; /* of the open row; -1: unknown yet */
    int64_t open[MR__PARQUET_LISTS]; /* entries of the open lists; -1: none open */
} lists;

enum { DEEP = 2 }; /* number of axes before the deep ones */

static size_t bytes_of(const lists *l)
{
    return (l->n + l->waiting) * l->size + l->n_inner * sizeof *l->inner;
}

/* Decodes the waiting values. */
static mr_code take_waiting(mr__parquet_column *c, lists *l, mr_buffer *owner, mr_status *st)
{
    size_t n = l->waiting, got = 0;
    void *v = l->v;
    l->waiting = 0;
    if (n == 0)
        return MR_OK;
    mr_code rc = mr_grow(&v, &l->capacity, l->n + n, l->size, MOST_ROW_BYTES / l->size,
                         "the values of a list", st);
    l->v = v;
    if (rc == MR_OK)
        rc = take_values(c, n, l->v + l->n * l->size, owner, &got, st);
    l->n += got;
    return rc;
}

/* Ends the open list of axis k. All lists of a row on one axis must have equal lengths. */
static void end_list(lists *l, int k)
{
    if (l->open[k] >= 0 && l->axes[k] >= 0 && l->axes[k] != l->open[k])
        l->flaw = l->flaw ? l->flaw : MR__PARQUET_UNEVEN;
    else if (l->open[k] >= 0)
        l->axes[k] = l->open[k];
    l->open[k] = -1;
}

static void end_deep(lists *l)
{
    int64_t *to = l->deep + l->rows * (size_t)(l->depth - DEEP);
    for (int k = DEEP; k < l->depth; k++) {
        end_list(l, k);
        *to++ = l->axes[k] < 0 ? 0 : l->axes[k];
        l->axes[k] = -1;
    }
}

static void end_row(mr__parquet_column *c, lists *l)
{
    if (l->deep)
        end_deep(l);
    l->flaws[l->rows] = l->flaw;
    if (l->outer)
        l->outer[l->rows] = (int64_t)(l->n_inner - l->open_inner);
    l->lengths[l->rows++] = l->length;
    l->open_inner = l->n_inner;
    l->length = l->entries = 0;
    l->flaw = 0;
    c->row_open = false;
}

/* Reads more levels of the current page. */
static mr_code take_levels(mr__parquet_column *c, mr_status *st)
{
    size_t n = c->page_left < MR__PARQUET_LEVELS ? c->page_left : MR__PARQUET_LEVELS;
    size_t r = mr__hybrid_get(&c->repetitions, c->repetition, n);
    size_t d = mr__hybrid_get(&c->definitions, c->definition, n);
    size_t got = r < d ? r : d;
    for (size_t i = 0; i < got; i++)
        if (c->repetition[i] > (uint32_t)c->leaf->lists ||
            c->definition[i] > (uint32_t)c->leaf->max_definition)
            got = i;
    c->level_at = 0;
    c->level_n = got;
    c->page_left -= got;
    return got ? MR_OK : fail_short(c, "levels", st);
}

/* Starts another list in the open row. */
static mr_code add_inner(lists *l, mr_status *st)
{
    MR_TRY(MR_GROW(l->inner, l->inner_capacity, l->n_inner + 1, MOST_ROW_BYTES / sizeof *l->inner,
                   "the lengths of lists", st));
    l->inner[l->n_inner++] = 0;
    return MR_OK;
}

/* The same for deeper lists: an entry with these levels begins or continues lists of axis k. */
static void add_deep(lists *l, const mr__parquet_leaf *leaf, int r, int d)
{
    for (int k = DEEP; k < l->depth; k++) {
        if (r > k) {
            l->open[k] += r == k + 1;
            continue;
        }
        end_list(l, k);
        if (d >= leaf->in_list[k - 1])
            l->open[k] = d >= leaf->in_list[k];
    }
}

/* Adds the entry at level_at to the open row. */
static mr_code take_entry(mr__parquet_column *c, lists *l, mr_status *st)
{
    const mr__parquet_leaf *leaf = c->leaf;
    int r = (int)c->repetition[c->level_at], d = (int)c->definition[c->level_at];
    c->level_at++;
    /* A list that continues has entries: this one and the previous one. */
    if (r > 0 && (d < leaf->in_list[r - 1] || l->definition < leaf->in_list[r - 1])) {
        mr_fail(st, MR_DATA_LOSS, "a damaged page: its levels contradict each other");
        return at_page(c, MR_DATA_LOSS, st);
    }
    l->definition = d;
    if (l->outer && r < 2 && d >= leaf->in_list[0])
        MR_TRY(add_inner(l, st));
    if (l->outer && r <= 2 && d >= leaf->in_list[1])
        l->inner[l->n_inner - 1]++;
    if (l->deep)
        add_deep(l, leaf, r, d);
    if (d == leaf->max_definition) {
        l->waiting++;
        l->length++;
        return MR_OK;
    }
    /* The path is not complete: an empty list, or a null. */
    bool empty = false;
    for (int i = 0; i < leaf->lists; i++)
        empty = empty || d == leaf->in_list[i] - 1;
    if (!empty)
        l->flaw = d < leaf->in_list[0] - 1 ? MR__PARQUET_NULL : MR__PARQUET_WITHIN;
    return MR_OK;
}

/* Reads until `most` rows are complete or take much memory, or until an error. */
static mr_code take_rows(mr__parquet_column *c, lists *l, mr_buffer *owner, mr_status *st)
{
    while (l->rows < l->most) {
        if (c->level_at == c->level_n && c->page_left == 0) {
            MR_TRY(take_waiting(c, l, owner, st));
            if (c->rows_left > 0)
                return fail_short(c, "rows", st);
            if (c->row_open && c->rows_left == 0) {
                end_row(c, l);
                continue;
            }
            if (l->rows && bytes_of(l) >= SOFT_BYTES && !c->row_open)
                return MR_OK;
            mr_code rc = next_page(c, NULL, st);
            if (rc == MR_END && c->row_open) {
                end_row(c, l);
                continue;
            }
            if (rc == MR_END)
                return fail_ended(c, st);
            MR_TRY(rc);
            continue;
        }
        if (c->level_at == c->level_n)
            MR_TRY(take_levels(c, st));
        while (c->level_at < c->level_n && l->rows < l->most) {
            bool begins = c->repetition[c->level_at] == 0;
            if (begins && c->row_open) {
                end_row(c, l);
                if (bytes_of(l) >= SOFT_BYTES)
                    return take_waiting(c, l, owner, st);
                continue;
            }
            if (!begins && !c->row_open)
                return fail_short(c, "rows", st);
            if (begins && c->rows_left == 0)
                return fail_long(c, st);
            c->rows_left -= begins && c->rows_left > 0;
            c->row_open = true;
            if (++l->entries > MOST_ROW_ENTRIES)
                return mr_fail(st, MR_RESOURCE_EXHAUSTED, "a list of more than %" PRId64 " entries",
                               MOST_ROW_ENTRIES);
            MR_TRY(take_entry(c, l, st));
        }
        if (l->waiting > SOFT_BYTES) /* a long row */
            MR_TRY(take_waiting(c, l, owner, st));
    }
    return take_waiting(c, l, owner, st);
}

static void release(void *ctx, void *data)
{
    (void)ctx;
    mr_free(data);
}

/* Splits the first rows of a into lists of lists with these lengths. A row with a flaw is made
 * empty, because its lengths do not match its values. */
static mr_code split_rows(const lists *l, mr_array *a, mr_status *st)
{
    mr_buffer *splits;
    size_t rows = a->rows;
    MR_TRY(mr_buffer_alloc(&splits, (l->n_inner + rows) * sizeof(int64_t), st));
    mr_code rc = mr_buffer_hold(a->owner, splits, st);
    int64_t *at = mr_buffer_data(splits);
    size_t first = 0; /* index of the row's first inner list */
    for (size_t i = 0; i < rows && rc == MR_OK; i++) {
        mr_row *row = &((mr_row *)a->data)[i];
        int64_t *shape = mr_array_shape_slot(a, i);
        shape[0] = l->flaws[i] ? 0 : l->outer[i];
        shape[1] = -1;
        for (int k = DEEP; k < l->depth; k++)
            shape[k] = l->deep[i * (size_t)(l->depth - DEEP) + (size_t)(k - DEEP)];
        row->splits = at;
        *at++ = 0;
        for (int64_t k = 0; k < shape[0]; k++, at++)
            *at = at[-1] + l->inner[first + (size_t)k];
        first += (size_t)l->outer[i];
    }
    mr_buffer_unref(splits);
    return rc;
}

/* Makes ragged rows of the rows whose values were decoded. Takes l->v. */
static mr_code finish(lists *l, mr_dtype t, mr_buffer *owner, mr__parquet_rows *out, mr_status *st)
{
    mr_buffer *values = NULL;
    size_t rows = 0, used = 0;
    while (rows < l->rows && used + (size_t)l->lengths[rows] <= l->n)
        used += (size_t)l->lengths[rows++];
    if (rows == 0)
        return MR_OK;
    MR_TRY(mr_array_alloc_ragged(&out->a, t, l->depth, rows, st));
    mr_code rc = mr_buffer_hold(out->a.owner, owner, st);
    if (rc == MR_OK && l->v) {
        rc = mr_buffer_wrap(&values, l->v, l->n * l->size, true, release, NULL, st);
        if (rc == MR_OK) {
            char *v = l->v;
            l->v = NULL;
            rc = mr_buffer_hold(out->a.owner, values, st);
            for (size_t i = 0; i < rows && rc == MR_OK; i++) {
                ((mr_row *)out->a.data)[i].data = v;
                v += (size_t)l->lengths[i] * l->size;
            }
        }
        mr_buffer_unref(values);
    }
    for (size_t i = 0; i < rows && rc == MR_OK; i++) {
        mr_row *row = &((mr_row *)out->a.data)[i];
        int64_t *shape = mr_array_shape_slot(&out->a, i);
        shape[0] = l->lengths[i];
        row->shape = shape;
    }
    if (rc == MR_OK && l->outer)
        rc = split_rows(l, &out->a, st);
    if (rc != MR_OK)
        mr_array_reset(&out->a);
    return rc;
}

static mr_code list_rows(mr__parquet_column *c, size_t n, mr__parquet_rows *out, mr_status *st)
{
    lists l = {.size = mr_dtype_size(c->leaf->dtype), .most = n, .depth = c->leaf->lists};
    mr_buffer *owner = NULL; /* keeps the bytes of strings alive */
    mr_status why;
    size_t deep = l.depth > DEEP ? (size_t)(l.depth - DEEP) : 0;
    memset(l.axes, -1, sizeof l.axes);
    memset(l.open, -1, sizeof l.open);
    l.lengths = mr_malloc(n * sizeof *l.lengths);
    l.outer = l.depth > 1 ? mr_malloc(n * sizeof *l.outer) : NULL;
    l.deep = deep ? mr_malloc(n * deep * sizeof *l.deep) : NULL;
    mr_code rc = l.lengths && (l.outer || l.depth == 1) && (l.deep || !deep)
                     ? mr_buffer_alloc(&out->flaws, n, st)
                     : mr_fail_memory(st, n * sizeof *l.lengths, "lengths of lists");
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&owner, 1, st);
    if (rc == MR_OK) {
        l.flaws = mr_buffer_data(out->flaws);
        mr_code read = take_rows(c, &l, owner, &why);
        mr_code taken = read == MR_OK ? MR_OK : take_waiting(c, &l, owner, NULL);
        (void)taken; /* values of the rows before the error, as far as they were decoded */
        rc = finish(&l, c->leaf->dtype, owner, out, st);
        if (rc == MR_OK && read != MR_OK) {
            rc = read;
            if (st)
                *st = why;
        }
    }
    mr_buffer_unref(owner);
    mr_free(l.lengths);
    mr_free(l.outer);
    mr_free(l.inner);
    mr_free(l.deep);
    mr_free(l.v);
    return rc;
}

/* ---- end of a chunk ---- */

/* Whether the remaining bytes of the chunk begin with a page that has values. Other bytes are
 * ignored: old writers left some. */
static bool page_follows(mr__parquet_column *c)
{
    page_head h;
    return c->at < c->end && next_head(c, &h, NULL) == MR_OK &&
           h.type != MR__PARQUET_DICTIONARY_PAGE && h.values > 0;
}

mr_code mr__parquet_column_end(mr__parquet_column *c, mr_status *st)
{
    if (c->page_left || c->level_at < c->level_n || c->values_left || page_follows(c)) {
        mr_fail(st, MR_DATA_LOSS, "its chunk has more values than the rows of the row group");
        return at_page(c, MR_DATA_LOSS, st);
    }
    return MR_OK;
}

mr_code mr__parquet_column_rows(mr__parquet_column *c, size_t n, mr__parquet_rows *out,
                                mr_status *st)
{
    return c->leaf->lists ? list_rows(c, n, out, st) : flat_rows(c, n, out, st);
}

mr_code mr__parquet_column_skip(mr__parquet_column *c, int64_t n, mr_status *st)
{
    enum { ROWS = 4096 };
    while (n > 0) {
        mr__parquet_rows rows = {0};
        bool between = c->page_left == 0 && c->level_at == c->level_n && !c->row_open;
        if (between) {
            mr_code rc = next_page(c, &n, st);
            if (rc == MR_END)
                return fail_ended(c, st);
            MR_TRY(rc);
            continue;
        }
        mr_code rc = mr__parquet_column_rows(c, n < ROWS ? (size_t)n : ROWS, &rows, st);
        n -= (int64_t)rows.a.rows;
        mr__parquet_rows_reset(&rows);
        MR_TRY(rc);
    }
    return MR_OK;
}
