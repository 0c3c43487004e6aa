/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/example.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/formats/tfrecord/example_wire.h"
#include "pipeline/memory/hash_index.h"

/* The bytes before the values of a feature are six tags, five lengths and the key. Comparing a few
 * words checks them. For a feature of one number they are the same in every record, except for the
 * length v of the number, on which four length bytes depend:
 *
 *   0a (k+8+v) 0a k key... 12 (4+v) kind (2+v) 0a v | v bytes
 *
 * so word i is base[i] + v * add[i]. Other fixed features are assumed to be as long as in the
 * previous record; nothing is added then. The words are the first and the last, and above 16 bytes
 * the second and the last but one too: they overlap, so no other bytes are read. */
enum { WORDS = 4, MOST_FRONT = 8 * WORDS, AHEAD = 6 };
typedef struct front {
    uint64_t base[WORDS], add[WORDS];
    size_t size;   /* in bytes, at least 8; 0: unknown */
    size_t length; /* of the values, if they are not a number */
} front;

typedef struct feature {
    mr_example_feature wanted;
    int kind;         /* of its list */
    size_t values;    /* fixed: prod(shape) */
    size_t row_bytes; /* fixed: of a row in its column */
    uint64_t prefix;  /* the first 8 bytes of the key */
    mr_buffer *text;  /* target of default strings, which columns hold; NULL: none */
    front number;     /* of a feature of one number */
} feature;

struct mr_example_plan {
    feature *f;
    size_t n;
    mr__hash_index index; /* of f, by key */
};

enum { MOST_MORE = 16 /* limit of the room for rows to come, as a multiple of the values */ };

/* The values of a variable-length feature, one row after the other. The number of values of each
 * row is in the column, where the shapes of its rows are. */
typedef struct values {
    mr_buffer *memory;     /* NULL: none yet */
    size_t used, capacity; /* values; of the finished rows */
    int64_t *counts;
} values;

/* State of one call of parse. */
typedef struct parse {
    const mr_example_plan *plan;
    const mr_bytes *records;
    size_t rows;
    mr_array *columns;
    values *ragged; /* of variable-length features; has_ragged: some exist */
    bool has_ragged;
    front *fronts;    /* of fixed features that are not a number, as in the last record */
    uint32_t *follow; /* follow[i]: the feature that followed feature i - 1 last time */
    uint32_t *seen;   /* seen[i] == stamp: feature i is in this record */
    uint32_t stamp;
    mr__entry *entries; /* slow path: the last entry of each feature */
} parse;

static uint64_t key_prefix(const uint8_t *key, size_t n)
{
    uint64_t v = 0;
    memcpy(&v, key, n < 8 ? n : 8);
    return v;
}

/* As key_prefix, if 8 bytes may be read. */
static inline uint64_t load_prefix(const uint8_t *key, size_t n)
{
    uint64_t v;
    memcpy(&v, key, 8);
    if (n >= 8)
        return v;
    uint64_t low = ((uint64_t)1 << 8 * n) - 1;
    return v & (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? low : __builtin_bswap64(low));
}

static uint64_t key_hash(uint64_t prefix, const uint8_t *key, size_t n)
{
    uint64_t h = (prefix ^ n) * 0x9E3779B97F4A7C15u;
    if (n > 8)
        h = (h ^ key_prefix(key + n - 8, 8)) * 0xC2B2AE3D27D4EB4Fu;
    return h;
}

static bool key_is(const feature *f, uint64_t prefix, const uint8_t *key, size_t n)
{
    return f->prefix == prefix && f->wanted.name_size == n &&
           (n <= 8 || memcmp(f->wanted.name + 8, key + 8, n - 8) == 0);
}

typedef struct sought {
    uint64_t prefix;
    const uint8_t *bytes;
    size_t size;
} sought;

static bool same_key(const void *features, size_t i, const void *key)
{
    const sought *k = key;
    return key_is((const feature *)features + i, k->prefix, k->bytes, k->size);
}

/* Index of the feature with this key, or n. */
static size_t find(const mr_example_plan *p, const uint8_t *bytes, size_t n)
{
    const sought k = {key_prefix(bytes, n), bytes, n};
    size_t i = mr__hash_find(&p->index, key_hash(k.prefix, bytes, n), same_key, p->f, &k);
    return i != MR__NO_PLACE ? i : p->n;
}

/* Offset of word k of a front of `size` bytes. */
static inline size_t word_at(int k, size_t size)
{
    static const uint8_t from_start[WORDS] = {0, 0, 8, 0}, from_end[WORDS] = {0, 8, 0, 16};
    return from_end[k] ? size - from_end[k] : from_start[k];
}

/* Makes a front from its `size` bytes and what a number adds to each of them. */
static void make_front(front *t, const uint8_t *bytes, const uint8_t *add, size_t size)
{
    t->size = size;
    for (int k = 0; k < (size > 16 ? 4 : 2); k++) {
        memcpy(&t->base[k], bytes + word_at(k, size), 8);
        memcpy(&t->add[k], add + word_at(k, size), 8);
    }
}

static void make_number(feature *f)
{
    size_t k = f->wanted.name_size;
    uint8_t bytes[MOST_FRONT], add[MOST_FRONT] = {0}, *p = bytes;
    if (f->wanted.ragged || f->values != 1 || f->kind == MR__BYTES_LIST || k + 10 > sizeof bytes)
        return;
    *p++ = 0x0a;
    add[p - bytes] = 1;
    *p++ = (uint8_t)(k + 8);
    *p++ = 0x0a;
    *p++ = (uint8_t)k;
    memcpy(p, f->wanted.name, k);
    p += k;
    *p++ = 0x12;
    add[p - bytes] = 1;
    *p++ = 4;
    *p++ = (uint8_t)(f->kind << 3 | 2);
    add[p - bytes] = 1;
    *p++ = 2;
    *p++ = 0x0a;
    add[p - bytes] = 1;
    *p++ = 0;
    make_front(&f->number, bytes, add, (size_t)(p - bytes));
}

static mr_code check_feature(const mr_example_feature *w, feature *f, mr_status *st)
{
    int name_size = (int)(w->name_size < 100 ? w->name_size : 100);
    f->kind = w->dtype == MR_INT64     ? MR__INT64_LIST
              : w->dtype == MR_FLOAT32 ? MR__FLOAT_LIST
              : w->dtype == MR_STRING  ? MR__BYTES_LIST
                                       : 0;
    if (!f->kind)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "feature %.*s: expected int64, float32 or bytes, found %s", name_size,
                       w->name, mr_dtype_name(w->dtype));
    if (w->rank < 0 || w->rank > MR_MAX_RANK)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "feature %.*s: expected at most %d dimensions, found %d", name_size, w->name,
                       MR_MAX_RANK, w->rank);
    f->values = 1;
    for (int i = 0; i < w->rank && !w->ragged; i++)
        if (w->shape[i] < 0 || __builtin_mul_overflow(f->values, (size_t)w->shape[i], &f->values) ||
            f->values > SIZE_MAX / sizeof(mr_bytes))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "feature %.*s: all dimensions must be known, not negative and fit in "
                           "memory, found %lld",
                           name_size, w->name, (long long)w->shape[i]);
    f->row_bytes = f->values * mr_dtype_size(w->dtype);
    if (w->default_values && (w->ragged || w->n_default_values != f->values))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "feature %.*s: a default of %zu values does not fit a shape of %zu values",
                       name_size, w->name, w->n_default_values, w->ragged ? 0 : f->values);
    return MR_OK;
}

/* Copies the default. The bytes of strings go to f->text: columns with views of it may outlive the
 * plan. */
static void *copy_default(const mr_example_feature *w, feature *f)
{
    size_t n = f->values, bytes = 0;
    mr_bytes *to = mr_memdup(w->default_values, n * mr_dtype_size(w->dtype));
    if (!to || w->dtype != MR_STRING)
        return to;
    for (size_t i = 0; i < n; i++)
        if (__builtin_add_overflow(bytes, to[i].size, &bytes))
            bytes = SIZE_MAX / 2; /* above any valid size */
    if (mr_buffer_alloc(&f->text, bytes, NULL) != MR_OK) {
        mr_free(to);
        return NULL;
    }
    char *text = mr_buffer_data(f->text);
    for (size_t i = 0; i < n; i++) {
        if (to[i].size)
            memcpy(text, to[i].data, to[i].size);
        to[i].data = text;
        text += to[i].size;
    }
    return to;
}

static mr_code add_feature(mr_example_plan *p, const mr_example_feature *w, mr_status *st)
{
    feature *f = &p->f[p->n];
    mr_code rc = check_feature(w, f, st);
    if (rc != MR_OK)
        return rc;
    if (find(p, (const uint8_t *)w->name, w->name_size) < p->n)
        return mr_fail(st, MR_INVALID_ARGUMENT, "feature %.*s is requested twice",
                       (int)(w->name_size < 100 ? w->name_size : 100), w->name);
    f->wanted = *w;
    f->wanted.name = NULL;
    f->wanted.default_values = NULL;
    p->n++; /* from here on plan_free frees its parts */
    char *name = mr_strndup(w->name, w->name_size);
    f->wanted.name = name;
    if (name && w->default_values)
        f->wanted.default_values = copy_default(w, f);
    if (!name || (w->default_values && !f->wanted.default_values))
        return mr_fail_memory(st, w->name_size, "a feature");
    f->prefix = key_prefix((const uint8_t *)name, w->name_size);
    make_number(f);
    return mr__hash_add(&p->index, key_hash(f->prefix, (const uint8_t *)name, w->name_size),
                        p->n - 1, "a parsing plan", st);
}

mr_code mr_example_plan_new(mr_example_plan **out, const mr_example_feature *features, size_t n,
                            mr_status *st)
{
    if (n == 0 || n > (size_t)1 << 20)
        return mr_fail(st, MR_INVALID_ARGUMENT, "expected 1 to 1048576 features, found %zu", n);
    mr_example_plan *p = mr_calloc(1, sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "a parsing plan");
    p->f = mr_calloc(n, sizeof *p->f);
    mr_code rc = p->f ? MR_OK : mr_fail_memory(st, n * sizeof *p->f, "a parsing plan");
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        rc = add_feature(p, &features[i], st);
    if (rc != MR_OK) {
        mr_example_plan_free(p);
        return rc;
    }
    *out = p;
    return MR_OK;
}

void mr_example_plan_free(mr_example_plan *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++) {
        mr_free((void *)(uintptr_t)p->f[i].wanted.name);
        mr_free((void *)(uintptr_t)p->f[i].wanted.default_values);
        mr_buffer_unref(p->f[i].text);
    }
    mr_free(p->f);
    mr__hash_reset(&p->index);
    mr_free(p);
}

size_t mr_example_plan_columns(const mr_example_plan *p)
{
    return p->n;
}

static uint8_t *cell(const parse *w, size_t i, size_t row)
{
    return (uint8_t *)w->columns[i].data + row * w->plan->f[i].row_bytes;
}

/* Makes room for n more values of feature i, and for the rows to come at the average of the rows so
 * far if the records are large enough: a value takes at least a byte. Records may be large for
 * another reason, so this guess is limited by the number of values present. */
static mr_code grow(const parse *w, size_t i, size_t row, size_t n, mr_status *st)
{
    values *v = &w->ragged[i];
    size_t size = mr_dtype_size(w->plan->f[i].wanted.dtype), there, capacity, bytes;
    size_t more = 0, half = v->capacity / 2;
    mr_buffer *memory;
    if (__builtin_add_overflow(v->used, n, &there))
        return mr_fail_memory(st, SIZE_MAX, "the values of a feature");
    size_t mean = there / (row + 1);
    for (size_t r = row + 1; r < w->rows; r++)
        more += w->records[r].size < mean ? w->records[r].size : mean;
    more = more > half ? more : half;
    if (__builtin_add_overflow(there, more / MOST_MORE < there ? more : there * MOST_MORE,
                               &capacity) ||
        __builtin_mul_overflow(capacity, size, &bytes))
        return mr_fail_memory(st, SIZE_MAX, "the values of a feature");
    MR_TRY(mr_buffer_alloc(&memory, bytes, st));
    if (v->used)
        memcpy(mr_buffer_data(memory), mr_buffer_data(v->memory), v->used * size);
    mr_buffer_unref(v->memory);
    v->memory = memory;
    v->capacity = capacity;
    return MR_OK;
}

/* Appends the values of a list to those of the previous rows; a second call for a row replaces the
 * values of the first. MR_INVALID_ARGUMENT, without a status: the list is malformed. */
static mr_code put_values(const parse *w, size_t i, size_t row, const mr__list *list, mr_status *st)
{
    values *v = &w->ragged[i];
    size_t count = (size_t)(list->end - list->from); /* upper bound */
    if (count > v->capacity - v->used) {
        if (!mr__count_values(list, &count))
            return MR_INVALID_ARGUMENT;
        if (count > v->capacity - v->used)
            MR_TRY(grow(w, i, row, count, st));
    }
    if (count) {
        size_t size = mr_dtype_size(w->plan->f[i].wanted.dtype);
        if (!mr__decode_values(list, (uint8_t *)mr_buffer_data(v->memory) + v->used * size, &count))
            return MR_INVALID_ARGUMENT;
    }
    v->counts[row] = (int64_t)count;
    return MR_OK;
}

/* Fills in a feature that the record lacks: the default, or no values. false: it is required. */
static bool fill_missing(const parse *w, size_t i, size_t row)
{
    const feature *f = &w->plan->f[i];
    if (f->wanted.ragged)
        w->ragged[i].counts[row] = 0;
    else if (!f->wanted.default_values)
        return false;
    else if (f->row_bytes)
        memcpy(cell(w, i, row), f->wanted.default_values, f->row_bytes);
    return true;
}

/* ---- fast path: a record as writers make it. false: use the slow path. ---- */

/* The values in [p, e) of fixed feature i, which must fill it. */
static inline __attribute__((always_inline)) bool fast_values(const parse *w, size_t i, size_t row,
                                                              const uint8_t *p, const uint8_t *e,
                                                              const uint8_t *record_end)
{
    const feature *f = &w->plan->f[i];
    uint8_t *to = cell(w, i, row);
    if (f->kind == MR__BYTES_LIST) {
        if (f->values != 1)
            return false;
        *(mr_bytes *)(void *)to = (mr_bytes){(const char *)p, (size_t)(e - p)};
        return true;
    }
    if (f->kind == MR__FLOAT_LIST) {
        if ((size_t)(e - p) != f->row_bytes)
            return false;
        memcpy(to, p, f->row_bytes);
        return true;
    }
    int64_t *ints = (int64_t *)(void *)to;
    size_t n;
    if (f->values > 1)
        return mr__packed_ints(p, e, ints, f->values, &n) && n == f->values;
    uint64_t v;
    for (size_t k = 0; k < f->values; k++) {
        if (p >= e || !(p = mr__varint_any(p, record_end, &v)))
            return false;
        ints[k] = (int64_t)v;
    }
    return p == e;
}

/* Bits in which a word of t differs from the bytes of a front with values of v bytes. */
static inline uint64_t differs(const front *t, int k, const uint8_t *p, uint64_t v)
{
    uint64_t word;
    memcpy(&word, p + word_at(k, t->size), 8);
    return word ^ (t->base[k] + v * t->add[k]);
}

/* true: the bytes at p are those of t, for values of v bytes. */
static inline bool same_front(const front *t, const uint8_t *p, uint64_t v)
{
    uint64_t differ = differs(t, 0, p, v) | differs(t, 1, p, v);
    if (t->size > 16)
        differ |= differs(t, 2, p, v) | differs(t, 3, p, v);
    return differ == 0;
}

/* Reads the number of feature i at p, where [p, e) is the rest of the record. Returns the bytes
 * taken, 0: it is not there. */
static inline size_t fast_number(const parse *w, size_t i, size_t row, const uint8_t *p,
                                 const uint8_t *e)
{
    const feature *f = &w->plan->f[i];
    size_t size = f->number.size, left = (size_t)(e - p);
    uint64_t v = left > size ? p[size - 1] : 0, value;
    if (v == 0 || v > 10 || v > left - size || !same_front(&f->number, p, v))
        return 0;
    uint8_t *to = cell(w, i, row);
    p += size;
    if (f->kind == MR__FLOAT_LIST) {
        if (v != 4)
            return 0;
        memcpy(to, p, 4);
    } else {
        if (!(v <= 8 ? mr__varint_of(p, v, &value) : mr__varint(p, p + v, &value) == p + v))
            return 0;
        memcpy(to, &value, 8);
    }
    return size + v;
}

/* The same for a fixed feature that is not a number and is as long as in the last record. */
static inline size_t fast_again(const parse *w, size_t i, size_t row, const uint8_t *p,
                                const uint8_t *e)
{
    const front *t = &w->fronts[i];
    size_t left = (size_t)(e - p);
    if (t->size == 0 || left < t->size || t->length > left - t->size || !same_front(t, p, 0))
        return 0;
    p += t->size;
    return fast_values(w, i, row, p, p + t->length, e) ? t->size + t->length : 0;
}

/* Reads the entry at p. *i: the guess on entry, the feature on return (n: not requested). NULL: use
 * the slow path. */
static inline const uint8_t *fast_entry(const parse *w, size_t *i, size_t row, const uint8_t *p,
                                        const uint8_t *record_end)
{
    static const uint8_t nothing[MOST_FRONT];
    const mr_example_plan *plan = w->plan;
    const uint8_t *entry = p;
    size_t n, n_key, n_value;
    if (*p != 0x0a || !(p = mr__length(p + 1, record_end, &n)))
        return NULL;
    const uint8_t *e = p + n;
    if (p == e || *p != 0x0a || !(p = mr__length(p + 1, e, &n_key)))
        return NULL;
    const uint8_t *key = p;
    p += n_key;
    if (p == e || *p != 0x12 || !(p = mr__length(p + 1, e, &n_value)) || p + n_value != e)
        return NULL;
    uint64_t prefix = record_end - key >= 8 ? load_prefix(key, n_key) : key_prefix(key, n_key);
    if (*i >= plan->n || !key_is(&plan->f[*i], prefix, key, n_key)) {
        *i = find(plan, key, n_key);
        if (*i == plan->n)
            return e;
    }
    const feature *f = &plan->f[*i];
    mr__list list = {f->kind, p, e};
    size_t n_list;
    if (p == e || *p != (f->kind << 3 | 2) || !(p = mr__length(p + 1, e, &n_list)) ||
        p + n_list != e)
        return NULL;
    if (f->wanted.ragged)
        return put_values(w, *i, row, &list, NULL) == MR_OK ? e : NULL;
    if (p == e || *p != 0x0a || !(p = mr__length(p + 1, e, &n)) || p + n != e ||
        !fast_values(w, *i, row, p, e, record_end))
        return NULL;
    if (f->number.size == 0 && p - entry <= MOST_FRONT) {
        make_front(&w->fronts[*i], entry, nothing, (size_t)(p - entry));
        w->fronts[*i].length = n;
    }
    return e;
}

static bool fast_record(parse *w, const mr_bytes *record, size_t row)
{
    const mr_example_plan *plan = w->plan;
    size_t n, missing = plan->n, last = 0; /* last: index + 1 of the previous feature */
    if (record->size == 0)                 /* data may be NULL */
        return false;
    const uint8_t *p = (const uint8_t *)record->data, *e = p + record->size;
    if (*p != 0x0a || !(p = mr__length(p + 1, e, &n)) || p + n != e)
        return false;
    if (++w->stamp == 0) {
        memset(w->seen, 0, plan->n * sizeof *w->seen);
        w->stamp = 1;
    }
    while (p < e) {
        size_t i = w->follow[last];
        size_t taken = i == plan->n             ? 0
                       : plan->f[i].number.size ? fast_number(w, i, row, p, e)
                                                : fast_again(w, i, row, p, e);
        if (taken)
            p += taken;
        else {
            if (!(p = fast_entry(w, &i, row, p, e)))
                return false;
            if (i == plan->n)
                continue;
            w->follow[last] = (uint32_t)i;
        }
        if (w->seen[i] == w->stamp)
            return false;
        w->seen[i] = w->stamp;
        last = i + 1;
        missing--;
    }
    for (size_t i = 0; missing && i < plan->n; i++)
        if (w->seen[i] != w->stamp && !fill_missing(w, i, row))
            return false;
    return true;
}

/* ---- slow path: every form the wire format allows, and every error ---- */

/* "[3,4]" */
static void shape_text(const mr_example_feature *w, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < w->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i ? "," : "",
                                 (long long)w->shape[i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

static const char *type_text(mr_dtype t)
{
    return t == MR_DATASET ? "no value" : t == MR_STRING ? "string" : mr_dtype_name(t);
}

static MR_PRINTF(5, 6) mr_code
    bad(const feature *f, size_t row, const mr_bytes *name, mr_status *st, const char *fmt, ...)
{
    char why[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    int n_key = f ? (int)(f->wanted.name_size < 100 ? f->wanted.name_size : 100) : 0;
    int n_name = name ? (int)(name->size < 100 ? name->size : 100) : 9;
    return mr_fail(st, MR_INVALID_ARGUMENT, "Name: %.*s%s%.*s, Index: %zu. %s", n_name,
                   name ? (name->data ? name->data : "") : "<unknown>", f ? ", Feature: " : "",
                   n_key, f ? f->wanted.name : "", row, why);
}

static mr_code missing_feature(parse *w, size_t i, size_t row, const mr_bytes *name, mr_status *st)
{
    const feature *f = &w->plan->f[i];
    if (fill_missing(w, i, row))
        return MR_OK;
    return bad(f, row, name, st, "Feature: %.*s (data type: %s) is required but could not be found",
               (int)(f->wanted.name_size < 100 ? f->wanted.name_size : 100), f->wanted.name,
               type_text(f->wanted.dtype));
}

static mr_code slow_feature(parse *w, size_t i, size_t row, const mr_bytes *name, mr_status *st)
{
    const feature *f = &w->plan->f[i];
    mr__list list;
    size_t count;
    if (!w->entries[i].value)
        return missing_feature(w, i, row, name, st);
    if (!mr__find_list(w->entries[i].value, w->entries[i].n_value, &list) ||
        !mr__count_values(&list, &count))
        return bad(f, row, name, st, "could not parse example input: the feature is malformed");
    if (list.kind == 0)
        return missing_feature(w, i, row, name, st);
    if (list.kind != f->kind)
        return bad(f, row, name, st, "data types differ: expected %s, found %s",
                   type_text(f->wanted.dtype), type_text(mr__list_dtype(list.kind)));
    if (f->wanted.ragged)
        return put_values(w, i, row, &list, st);
    if (count != f->values) {
        char shape[200];
        shape_text(&f->wanted, shape, sizeof shape);
        return bad(f, row, name, st,
                   "Number of %s values != expected. values size: %zu but output shape: %s",
                   type_text(f->wanted.dtype), count, shape);
    }
    if (count)
        mr__decode_values(&list, cell(w, i, row), &count);
    return MR_OK;
}

static mr_code slow_record(parse *w, const mr_bytes *record, size_t row, const mr_bytes *name,
                           mr_status *st)
{
    const mr_example_plan *plan = w->plan;
    mr__walker in = {.outer = (const uint8_t *)record->data};
    in.outer_end = record->size ? in.outer + record->size : in.outer;
    mr__entry entry;
    int got;
    memset(w->entries, 0, plan->n * sizeof *w->entries);
    while ((got = mr__next_entry(&in, &entry)) != 0) {
        if (got < 0)
            return bad(NULL, row, name, st,
                       "could not parse example input: %zu bytes that are not a tf.train.Example",
                       record->size);
        if (got == 2)
            continue;
        size_t i = find(plan, entry.key ? entry.key : (const uint8_t *)"", entry.n_key);
        if (i < plan->n)
            w->entries[i] = entry;
    }
    for (size_t i = 0; i < plan->n; i++)
        MR_TRY(slow_feature(w, i, row, name, st));
    return MR_OK;
}

/* A bad record leaves zeros. */
static void clear_row(parse *w, size_t row)
{
    for (size_t i = 0; i < w->plan->n; i++) {
        if (w->plan->f[i].wanted.ragged)
            w->ragged[i].counts[row] = 0;
        else if (w->plan->f[i].row_bytes)
            memset(cell(w, i, row), 0, w->plan->f[i].row_bytes);
    }
}

/* Makes the values that a row has put permanent. */
static void keep_values(const parse *w, size_t row)
{
    for (size_t i = 0; i < w->plan->n; i++)
        if (w->plan->f[i].wanted.ragged)
            w->ragged[i].used += (size_t)w->ragged[i].counts[row];
}

/* Makes the rows of variable-length feature i from its values. */
static mr_code make_rows(parse *w, size_t i, mr_status *st)
{
    values *v = &w->ragged[i];
    mr_array *a = &w->columns[i];
    mr_row *out = a->data;
    size_t size = mr_dtype_size(a->dtype);
    if (!v->memory)
        MR_TRY(mr_buffer_alloc(&v->memory, 0, st));
    const uint8_t *at = mr_buffer_data(v->memory);
    for (size_t row = 0; row < w->rows; row++) {
        out[row] = (mr_row){.data = at, .shape = &v->counts[row]};
        at += (size_t)v->counts[row] * size;
    }
    return mr_buffer_hold(a->owner, v->memory, st);
}

static mr_code make_columns(parse *w, mr_status *st)
{
    const mr_example_plan *p = w->plan;
    for (size_t i = 0; i < p->n; i++) {
        const mr_example_feature *f = &p->f[i].wanted;
        mr_array *a = &w->columns[i];
        MR_TRY(f->ragged ? mr_array_alloc_ragged(a, f->dtype, 1, w->rows, st)
                         : mr_array_alloc(a, f->dtype, f->rank, f->shape, w->rows, st));
        if (f->ragged)
            w->ragged[i].counts = mr_array_shape_slot(a, 0);
    }
    return MR_OK;
}

/* Allocates one block of scratch for all arrays of w, and its columns. */
static mr_code prepare(parse *w, mr_buffer **scratch, mr_status *st)
{
    const mr_example_plan *p = w->plan;
    size_t each = sizeof *w->entries + sizeof *w->fronts + sizeof *w->ragged + sizeof *w->seen +
                  sizeof *w->follow;
    MR_TRY(mr_buffer_alloc(scratch, p->n * each + sizeof *w->follow, st));
    w->entries = mr_buffer_data(*scratch);
    w->fronts = (front *)(void *)(w->entries + p->n);
    w->ragged = (values *)(void *)(w->fronts + p->n);
    w->seen = (uint32_t *)(w->ragged + p->n);
    w->follow = w->seen + p->n;
    memset(w->seen, 0, p->n * sizeof *w->seen);
    for (size_t i = 0; i < p->n; i++) {
        w->fronts[i].size = 0;
        w->ragged[i] = (values){0};
        w->has_ragged |= p->f[i].wanted.ragged;
    }
    for (size_t i = 0; i <= p->n; i++)
        w->follow[i] = (uint32_t)i;
    return make_columns(w, st);
}

/* Prefetches the start of the first feature and the end of the last one: a large value between them
 * stays in place and is not read. */
static inline void prefetch(const mr_bytes *record)
{
    if (record->size == 0)
        return;
    __builtin_prefetch(record->data);
    __builtin_prefetch(record->data + record->size - 1);
}

mr_code mr_example_parse(const mr_example_plan *plan, const mr_bytes *records, size_t n,
                         const mr_bytes *names, mr_array *columns, mr_example_error_fn on_error,
                         void *ctx, mr_status *st)
{
    parse w = {.plan = plan, .records = records, .rows = n, .columns = columns};
    mr_buffer *scratch = NULL;
    mr_status bad_row;
    memset(columns, 0, plan->n * sizeof *columns);
    mr_code rc = prepare(&w, &scratch, st);
    for (size_t row = 0; row < n && rc == MR_OK; row++) {
        if (n - row > AHEAD)
            prefetch(&records[row + AHEAD]);
        if (!fast_record(&w, &records[row], row)) {
            rc = slow_record(&w, &records[row], row, names ? &names[row] : NULL, &bad_row);
            if (rc == MR_INVALID_ARGUMENT && on_error) {
                clear_row(&w, row);
                on_error(ctx, row, &bad_row);
                rc = MR_OK;
            } else if (rc != MR_OK && st)
                *st = bad_row;
        }
        if (w.has_ragged && rc == MR_OK)
            keep_values(&w, row);
    }
    for (size_t i = 0; i < plan->n && rc == MR_OK; i++) {
        if (plan->f[i].wanted.ragged)
            rc = make_rows(&w, i, st);
        else if (plan->f[i].text)
            rc = mr_buffer_hold(columns[i].owner, plan->f[i].text, st);
    }
    for (size_t i = 0; scratch && i < plan->n; i++)
        mr_buffer_unref(w.ragged[i].memory);
    mr_buffer_unref(scratch);
    if (rc != MR_OK)
        for (size_t i = 0; i < plan->n; i++)
            mr_array_reset(&columns[i]);
    return rc;
}
