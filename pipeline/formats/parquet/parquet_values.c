/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/parquet/parquet_values.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/formats/parquet/parquet_footer.h"
#include "pipeline/varint.h"

enum { PIECE = 256, MADE_BYTES = 256 << 10 };

/* ---- bits ---- */

/* false: the bytes end within it, or it has more than 64 bits. */
static bool take_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
    const uint8_t *next = mr__varint(*at, end, out);
    *at = next ? next : end;
    return next;
}

/* `width` bits, 1 to 64, from bit `bit` of p on, lowest first. p has `n` bytes. */
static uint64_t bits_at(const uint8_t *p, size_t n, uint64_t bit, int width)
{
    size_t byte = (size_t)(bit / 8), shift = (size_t)(bit % 8);
    uint64_t low = 0, high = 0;
    size_t have = n - byte;
    memcpy(&low, p + byte, have < 8 ? have : 8);
    if (shift + (size_t)width > 64 && have > 8)
        high = p[byte + 8];
    uint64_t v = low >> shift;
    if (shift)
        v |= high << (64 - shift);
    return width == 64 ? v : v & (((uint64_t)1 << width) - 1);
}

/* The same for numbers packed from the highest bit on; width at most 32. */
static uint32_t old_bits_at(const uint8_t *p, uint64_t bit, int width)
{
    uint32_t v = 0;
    for (int i = 0; i < width; i++, bit++)
        v = v << 1 | (p[bit / 8] >> (7 - bit % 8) & 1);
    return v;
}

/* ---- runs ---- */

bool mr__hybrid_start(mr__hybrid *h, const uint8_t *p, const uint8_t *end, int width)
{
    *h = (mr__hybrid){.at = p, .end = end, .width = width};
    return width >= 0 && width <= 32;
}

bool mr__hybrid_start_old(mr__hybrid *h, const uint8_t *p, const uint8_t *end, int width, size_t n,
                          const uint8_t **after)
{
    size_t bits;
    *h = (mr__hybrid){
        .at = end, .end = end, .width = width, .left = n, .packed = true, .group = p, .old = true};
    if (width < 0 || width > 32 || __builtin_mul_overflow(n, (size_t)width, &bits) ||
        bits / 8 + (bits % 8 != 0) > (size_t)(end - p))
        return false;
    *after = p + bits / 8 + (bits % 8 != 0);
    return true;
}

static bool next_run(mr__hybrid *h)
{
    uint64_t head;
    size_t bytes = ((size_t)h->width + 7) / 8;
    if (h->old || !take_varint(&h->at, h->end, &head))
        return false;
    size_t have = (size_t)(h->end - h->at);
    h->packed = head & 1;
    head >>= 1;
    if (h->packed) {
        /* The last group may be cut short. */
        uint64_t n = h->width ? (uint64_t)have * 8 / (uint64_t)h->width : UINT64_MAX;
        h->group = h->at;
        h->bit = 0;
        h->left = head < UINT64_MAX / 8 && head * 8 < n ? head * 8 : n;
        uint64_t size = head < UINT64_MAX / 32 ? head * (uint64_t)h->width : UINT64_MAX;
        h->at += size < have ? (size_t)size : have;
        return h->left > 0 || head == 0;
    }
    if (bytes > have)
        return false;
    h->value = 0;
    memcpy(&h->value, h->at, bytes);
    h->at += bytes;
    h->left = head;
    return true;
}

static void unpack(mr__hybrid *h, uint32_t *out, size_t n)
{
    size_t have = (size_t)(h->end - h->group);
    int w = h->width;
    size_t i = 0;
    if (w == 0) {
        memset(out, 0, n * sizeof *out);
        return;
    }
    if (!h->old) {
        uint64_t mask = ((uint64_t)1 << w) - 1;
        for (; i < n && h->bit / 8 + 8 <= have; i++, h->bit += (uint64_t)w) {
            uint64_t v; /* 32 bits, at most 7 bits in */
            memcpy(&v, h->group + h->bit / 8, 8);
            out[i] = (uint32_t)(v >> h->bit % 8 & mask);
        }
    }
    for (; i < n; i++, h->bit += (uint64_t)w)
        out[i] = h->old ? old_bits_at(h->group, h->bit, w)
                        : (uint32_t)bits_at(h->group, have, h->bit, w);
}

size_t mr__hybrid_get(mr__hybrid *h, uint32_t *out, size_t n)
{
    size_t done = 0;
    while (done < n) {
        if (h->left == 0 && !next_run(h))
            break;
        size_t m = n - done < h->left ? n - done : (size_t)h->left;
        if (h->packed)
            unpack(h, out + done, m);
        else
            for (size_t i = 0; i < m; i++)
                out[done + i] = h->value;
        h->left -= m;
        done += m;
    }
    return done;
}

/* ---- differences ---- */

bool mr__delta_start(mr__delta *d, const uint8_t *p, const uint8_t *end)
{
    *d = (mr__delta){.at = p, .end = end, .first = true};
    if (!take_varint(&d->at, end, &d->block) || !take_varint(&d->at, end, &d->parts) ||
        !take_varint(&d->at, end, &d->total) || !take_varint(&d->at, end, &d->value))
        return false;
    d->value = (uint64_t)mr__unzigzag(d->value);
    if (d->block == 0 || d->parts == 0 || d->parts > d->block || d->block % d->parts)
        return false;
    d->of_part = d->block / d->parts;
    if (d->of_part % 8 || d->of_part > UINT32_MAX)
        return false;
    d->left = d->total;
    d->part = d->parts; /* no current part */
    return true;
}

/* Bytes of a part. */
static uint64_t part_size(const mr__delta *d)
{
    return d->of_part / 8 * d->widths[d->part];
}

static bool next_block(mr__delta *d)
{
    if (!take_varint(&d->at, d->end, &d->least) || d->parts > (uint64_t)(d->end - d->at))
        return false;
    d->least = (uint64_t)mr__unzigzag(d->least);
    d->widths = d->at;
    d->at += d->parts;
    d->part = 0;
    d->in_part = 0;
    return true;
}

/* Makes the part of the next difference current, with its bytes at d->at. */
static bool find_part(mr__delta *d)
{
    if (d->part < d->parts && d->in_part == d->of_part) {
        d->at += part_size(d);
        d->part++;
        d->in_part = 0;
    }
    if (d->part == d->parts && !next_block(d))
        return false;
    return d->widths[d->part] <= 64;
}

size_t mr__delta_get(mr__delta *d, int64_t *out, size_t n)
{
    size_t done = 0;
    if (n > d->left)
        n = (size_t)d->left;
    if (n && d->first) {
        out[done++] = (int64_t)d->value;
        d->first = false;
    }
    while (done < n && !d->bad) {
        if (!find_part(d)) {
            d->bad = true;
            break;
        }
        int w = d->widths[d->part];
        size_t have = (size_t)(d->end - d->at);
        uint64_t m = d->of_part - d->in_part;
        m = m < n - done ? m : n - done;
        /* A part may be cut short after the last value. */
        if (w && ((d->in_part + m) * (uint64_t)w + 7) / 8 > have) {
            uint64_t there = (uint64_t)have * 8 / (uint64_t)w;
            m = there > d->in_part ? there - d->in_part : 0;
            d->bad = true;
        }
        for (uint64_t i = 0; i < m; i++) {
            uint64_t v = w ? bits_at(d->at, have, (d->in_part + i) * (uint64_t)w, w) : 0;
            d->value += d->least + v;
            out[done++] = (int64_t)d->value;
        }
        d->in_part += m;
        if (d->in_part == d->of_part && part_size(d) > have)
            d->bad = true;
    }
    d->left -= done;
    return done;
}

const uint8_t *mr__delta_end(const mr__delta *from)
{
    mr__delta d = *from;
    uint64_t left = d.total ? d.total - 1 : 0; /* differences */
    while (left) {
        if (!next_block(&d))
            return NULL;
        for (; d.part < d.parts; d.part++) {
            /* Parts without values take no room. */
            if (left == 0)
                break;
            if (d.widths[d.part] > 64 || part_size(&d) > (uint64_t)(d.end - d.at))
                return NULL;
            d.at += part_size(&d);
            left -= left < d.of_part ? left : d.of_part;
        }
        d.part = d.parts;
    }
    return d.at;
}

/* ---- values ---- */

mr_code mr__damaged_page(const char *what, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "a damaged page: %s", what);
}

static mr_code get_fixed(mr__parquet_values *v, size_t n, void *out, size_t *got, mr_status *st)
{
    size_t have = (size_t)(v->end - v->at) / v->size;
    (void)st;
    *got = n < have ? n : have;
    memcpy(out, v->at, *got * v->size);
    v->at += *got * v->size;
    return MR_OK;
}

static mr_code get_fixed_text(mr__parquet_values *v, size_t n, void *out, size_t *got,
                              mr_status *st)
{
    size_t have = (size_t)(v->end - v->at) / v->size;
    (void)st;
    *got = n < have ? n : have;
    for (size_t i = 0; i < *got; i++, v->at += v->size)
        ((mr_bytes *)out)[i] = (mr_bytes){(const char *)v->at, v->size};
    return MR_OK;
}

static mr_code get_text(mr__parquet_values *v, size_t n, void *out, size_t *got, mr_status *st)
{
    for (*got = 0; *got < n; ++*got) {
        size_t have = (size_t)(v->end - v->at);
        uint32_t size;
        if (have == 0)
            return MR_OK;
        if (have < sizeof size)
            return mr__damaged_page("it ends within the length of a string", st);
        memcpy(&size, v->at, sizeof size);
        if (size > have - sizeof size)
            return mr_fail(st, MR_DATA_LOSS,
                           "a damaged page: a string of %" PRIu32 " bytes, but only %zu are left",
                           size, have - sizeof size);
        v->at += sizeof size;
        ((mr_bytes *)out)[*got] = (mr_bytes){size ? (const char *)v->at : NULL, size};
        v->at += size;
    }
    return MR_OK;
}

static mr_code get_bits(mr__parquet_values *v, size_t n, void *out, size_t *got, mr_status *st)
{
    uint64_t have = (uint64_t)(v->end - v->at) * 8 - v->bit;
    (void)st;
    *got = n < have ? n : (size_t)have;
    for (size_t i = 0; i < *got; i++, v->bit++)
        ((bool *)out)[i] = v->at[v->bit / 8] >> (v->bit % 8) & 1;
    return MR_OK;
}

static mr_code get_bools(mr__parquet_values *v, size_t n, void *out, size_t *got, mr_status *st)
{
    uint32_t piece[PIECE];
    (void)st;
    for (*got = 0; *got < n;) {
        size_t want = n - *got < PIECE ? n - *got : PIECE;
        size_t m = mr__hybrid_get(&v->runs, piece, want);
        for (size_t i = 0; i < m; i++)
            ((bool *)out)[(*got)++] = piece[i] & 1;
        if (m < want)
            break;
    }
    return MR_OK;
}

/* Looks up one value of the dictionary for each index. */
#define PICK(type)                                                                                 \
    do {                                                                                           \
        for (size_t i = 0; i < m; i++)                                                             \
            ((type *)out)[*got + i] = ((const type *)v->dictionary)[piece[i]];                     \
    } while (0)

static mr_code get_indexed(mr__parquet_values *v, size_t n, void *out, size_t *got, mr_status *st)
{
    uint32_t piece[PIECE];
    for (*got = 0; *got < n;) {
        size_t want = n - *got < PIECE ? n - *got : PIECE, good = 0;
        size_t m = mr__hybrid_get(&v->runs, piece, want);
        while (good < m && piece[good] < v->n_dictionary)
            good++;
        bool bad = good < m;
        uint32_t index = bad ? piece[good] : 0;
        m = good;
        if (v->text)
            PICK(mr_bytes);
        else if (v->size == 8)
            PICK(uint64_t);
        else if (v->size == 4)
            PICK(uint32_t);
        else
            PICK(uint16_t);
        *got += m;
        if (bad)
            return mr_fail(st, MR_DATA_LOSS,
                           "a damaged page: value %" PRIu32 " of a dictionary of %zu", index,
                           v->n_dictionary);
        if (m < want)
            break;
    }
    return MR_OK;
}

static mr_code get_delta(mr__parquet_values *v, size_t n, void *out, size_t *got, mr_status *st)
{
    int64_t piece[PIECE];
    (void)st;
    if (v->size == 8) {
        *got = mr__delta_get(&v->lengths, out, n);
        return MR_OK;
    }
    for (*got = 0; *got < n;) {
        size_t want = n - *got < PIECE ? n - *got : PIECE;
        size_t m = mr__delta_get(&v->lengths, piece, want);
        for (size_t i = 0; i < m; i++)
            ((int32_t *)out)[(*got)++] = (int32_t)piece[i];
        if (m < want)
            break;
    }
    return MR_OK;
}

static mr_code bad_length(int64_t size, size_t have, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS,
                   "a damaged page: a string of %" PRId64 " bytes, but only %zu are left", size,
                   have);
}

static mr_code get_lengths(mr__parquet_values *v, size_t n, void *out, size_t *got, mr_status *st)
{
    int64_t piece[PIECE];
    for (*got = 0; *got < n;) {
        size_t want = n - *got < PIECE ? n - *got : PIECE;
        size_t m = mr__delta_get(&v->lengths, piece, want);
        for (size_t i = 0; i < m; i++) {
            size_t have = (size_t)(v->end - v->at);
            if (piece[i] < 0 || (uint64_t)piece[i] > have)
                return bad_length(piece[i], have, st);
            size_t size = (size_t)piece[i];
            ((mr_bytes *)out)[(*got)++] = (mr_bytes){size ? (const char *)v->at : NULL, size};
            v->at += size;
        }
        if (m < want)
            break;
    }
    return MR_OK;
}

/* A string made of the first `prefix` bytes of the previous one and of bytes of the page. */
struct joined {
    size_t prefix, suffix;
};

/* Determines the parts of the strings for one buffer, up to the first invalid one. */
static mr_code plan(mr__parquet_values *v, size_t n, struct joined *parts, size_t *planned,
                    size_t *bytes, mr_status *st)
{
    size_t last = v->last_size, have = (size_t)(v->end - v->at);
    *bytes = 0;
    for (*planned = 0; *planned < n && *bytes < MADE_BYTES;) {
        int64_t prefix, suffix;
        mr__delta a = v->lengths, b = v->suffixes;
        if (mr__delta_get(&a, &prefix, 1) == 0 || mr__delta_get(&b, &suffix, 1) == 0)
            return MR_OK;
        if (v->text && v->size && (uint64_t)prefix + (uint64_t)suffix != v->size)
            return mr__damaged_page("a string whose length is not the column's", st);
        if (prefix < 0 || (uint64_t)prefix > last)
            return mr__damaged_page("a string's prefix is longer than the string before it", st);
        if (suffix < 0 || (uint64_t)suffix > have)
            return bad_length(suffix, have, st);
        parts[(*planned)++] = (struct joined){(size_t)prefix, (size_t)suffix};
        v->lengths = a;
        v->suffixes = b;
        have -= (size_t)suffix;
        last = (size_t)(prefix + suffix);
        *bytes += last;
    }
    return MR_OK;
}

static mr_code get_joined(mr__parquet_values *v, size_t n, void *out, size_t *got, mr_status *st)
{
    struct joined parts[PIECE];
    size_t planned, bytes;
    mr_status why;
    *got = 0;
    mr_code planning = plan(v, n < PIECE ? n : PIECE, parts, &planned, &bytes, &why);
    mr_buffer_unref(v->made);
    v->made = NULL;
    MR_TRY(mr_buffer_alloc(&v->made, bytes ? bytes : 1, st));
    char *to = mr_buffer_data(v->made);
    const char *last = v->last;
    for (size_t i = 0; i < planned; i++) {
        size_t size = parts[i].prefix + parts[i].suffix;
        if (parts[i].prefix)
            memcpy(to, last, parts[i].prefix);
        if (parts[i].suffix)
            memcpy(to + parts[i].prefix, v->at, parts[i].suffix);
        v->at += parts[i].suffix;
        ((mr_bytes *)out)[i] = (mr_bytes){size ? to : NULL, size};
        last = to;
        v->last_size = size;
        to += size;
    }
    *got = planned;
    if (planned) {
        void *room = v->last;
        mr_code rc = mr_grow(&room, &v->last_room, v->last_size, 1, (size_t)MR__PARQUET_MOST_PAGE,
                             "a string", st);
        v->last = room;
        if (rc != MR_OK) {
            *got = 0;
            return rc;
        }
        if (v->last_size)
            memcpy(v->last, last, v->last_size);
    }
    if (planning != MR_OK && st)
        *st = why;
    return planning;
}

static mr_code get_split(mr__parquet_values *v, size_t n, void *out, size_t *got, mr_status *st)
{
    size_t have = v->n - v->next;
    uint8_t *to = out;
    (void)st;
    *got = n < have ? n : have;
    for (size_t b = 0; b < v->size; b++) {
        const uint8_t *from = v->at + b * v->n + v->next;
        for (size_t i = 0; i < *got; i++)
            to[i * v->size + b] = from[i];
    }
    v->next += *got;
    return MR_OK;
}

static mr_code get_split_text(mr__parquet_values *v, size_t n, void *out, size_t *got,
                              mr_status *st)
{
    size_t most = MADE_BYTES / v->size, have = v->n - v->next;
    n = n < have ? n : have;
    n = n < most ? n : most ? most : n ? 1 : 0;
    mr_buffer_unref(v->made);
    v->made = NULL;
    *got = 0;
    MR_TRY(mr_buffer_alloc(&v->made, n * v->size + 1, st));
    char *to = mr_buffer_data(v->made);
    MR_TRY(get_split(v, n, to, got, st));
    for (size_t i = 0; i < *got; i++)
        ((mr_bytes *)out)[i] = (mr_bytes){to + i * v->size, v->size};
    return MR_OK;
}

/* ---- starting ---- */

static mr_code start_plain(mr__parquet_values *v, int type)
{
    v->get = type == MR__PARQUET_BOOLEAN      ? get_bits
             : type == MR__PARQUET_BYTE_ARRAY ? get_text
             : v->text                        ? get_fixed_text
                                              : get_fixed;
    return MR_OK;
}

static mr_code start_indexed(mr__parquet_values *v, int type, mr_status *st)
{
    if (!v->dictionary)
        return mr__damaged_page("its values refer to a dictionary, which is missing", st);
    if (type == MR__PARQUET_BOOLEAN)
        return mr__damaged_page("bools of a dictionary", st);
    v->get = get_indexed;
    if (v->at == v->end) /* no values, and so no width either */
        return MR_OK;
    int width = *v->at;
    return mr__hybrid_start(&v->runs, v->at + 1, v->end, width)
               ? MR_OK
               : mr__damaged_page("a dictionary's indices of more than 32 bits", st);
}

/* The runs of bools are preceded by their size. */
static mr_code start_bools(mr__parquet_values *v, mr_status *st)
{
    uint32_t size;
    if (v->end - v->at < 4)
        return v->at == v->end ? MR_OK
                               : mr__damaged_page("it ends within the size of its values", st);
    memcpy(&size, v->at, sizeof size);
    if (size > (size_t)(v->end - v->at) - sizeof size)
        return mr__damaged_page("its values are larger than it is", st);
    mr__hybrid_start(&v->runs, v->at + sizeof size, v->at + sizeof size + size, 1);
    return MR_OK;
}

static mr_code start_lengths(mr__parquet_values *v, mr_status *st)
{
    v->get = get_lengths;
    if (v->at == v->end)
        return MR_OK;
    const uint8_t *after =
        mr__delta_start(&v->lengths, v->at, v->end) ? mr__delta_end(&v->lengths) : NULL;
    if (!after)
        return mr__damaged_page("the lengths of its strings cannot be read", st);
    v->at = after;
    return MR_OK;
}

static mr_code start_joined(mr__parquet_values *v, mr_status *st)
{
    v->get = get_joined;
    if (v->at == v->end)
        return MR_OK;
    const uint8_t *after =
        mr__delta_start(&v->lengths, v->at, v->end) ? mr__delta_end(&v->lengths) : NULL;
    if (after)
        after = mr__delta_start(&v->suffixes, after, v->end) ? mr__delta_end(&v->suffixes) : NULL;
    if (!after)
        return mr__damaged_page("the lengths of its strings cannot be read", st);
    v->at = after;
    return MR_OK;
}

static bool is_integer(int type)
{
    return type == MR__PARQUET_INT32 || type == MR__PARQUET_INT64;
}

mr_code mr__parquet_values_start(mr__parquet_values *v, int encoding, int type, size_t size,
                                 const uint8_t *p, const uint8_t *end, size_t values, mr_status *st)
{
    const void *dictionary = v->dictionary;
    size_t n_dictionary = v->n_dictionary;
    bool text = v->text;
    mr__parquet_values_reset(v);
    *v = (mr__parquet_values){.at = p,
                              .end = end,
                              .size = size,
                              .dictionary = dictionary,
                              .n_dictionary = n_dictionary,
                              .text = text};
    bool fixed = type != MR__PARQUET_BOOLEAN && type != MR__PARQUET_BYTE_ARRAY;
    switch (encoding) {
    case MR__PARQUET_PLAIN:
        return start_plain(v, type);
    case MR__PARQUET_PLAIN_DICTIONARY:
    case MR__PARQUET_RLE_DICTIONARY:
        return start_indexed(v, type, st);
    case MR__PARQUET_RLE:
        v->get = get_bools;
        if (type == MR__PARQUET_BOOLEAN)
            return start_bools(v, st);
        break;
    case MR__PARQUET_DELTA_BINARY_PACKED:
        v->get = get_delta;
        if (!is_integer(type))
            break;
        return p == end || mr__delta_start(&v->lengths, p, end)
                   ? MR_OK
                   : mr__damaged_page("its values cannot be read", st);
    case MR__PARQUET_DELTA_LENGTH_BYTE_ARRAY:
        if (type == MR__PARQUET_BYTE_ARRAY)
            return start_lengths(v, st);
        break;
    case MR__PARQUET_DELTA_BYTE_ARRAY:
        if (text)
            return start_joined(v, st);
        break;
    case MR__PARQUET_BYTE_STREAM_SPLIT:
        if (!fixed)
            break;
        v->n = (size_t)(end - p) / size;
        if (v->n > values)
            return mr__damaged_page("more values than its header says", st);
        v->get = text ? get_split_text : get_split;
        return MR_OK;
    default:
        return mr_fail(st, MR_UNIMPLEMENTED, "values have the unknown encoding %d", encoding);
    }
    return mr__damaged_page("the encoding of its values is for another type", st);
}

void mr__parquet_values_reset(mr__parquet_values *v)
{
    mr_free(v->last);
    mr_buffer_unref(v->made);
    v->last = NULL;
    v->made = NULL;
}
