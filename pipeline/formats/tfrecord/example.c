/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/example.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/formats/tfrecord/example_wire.h"
#include "pipeline/memory/hash_index.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define WIDE __attribute__((target("avx2,bmi,bmi2")))
#endif

/* The bytes before the values of a feature are six tags, five lengths and the key. Comparing a few
 * words, or one vector, checks them. For a feature of one integer they are the same in every record
 * except for the length v of the integer, on which four length bytes depend:
 *
 *   0a (k+8+v) 0a k key... 12 (4+v) kind (2+v) 0a v | v bytes
 *
 * so v is added where `longer` is 255, and nothing where it is 0. For a feature of one float v is
 * 4. Other fixed features are assumed to be as long as in the previous record. The words are the
 * first and the last, and above 16 bytes the second and the last but one too: they overlap, so no
 * other bytes are read. */
enum { WORDS = 4, MOST_FRONT = 8 * WORDS, AHEAD = 6 };
enum { ROOM = MOST_FRONT + 8 /* bytes that a feature of one number reads as a vector */ };
typedef enum what { OTHER, ONE_INT, ONE_FLOAT } what;
typedef struct front {
    uint8_t bytes[MOST_FRONT], longer[MOST_FRONT];
    uint8_t within[MOST_FRONT]; /* of numbers: 255 at the bytes of a front */
    uint32_t length;            /* of the values, if they are not an integer */
    uint8_t size;               /* in bytes, at least 8; 0: unknown */
    uint8_t what;
    uint8_t second; /* size of another float's front, which follows in `bytes`; 0: none */
} front;

typedef struct feature {
    mr_example_feature wanted;
    int kind;         /* of its list */
    size_t values;    /* fixed: prod(shape) */
    size_t row_bytes; /* fixed: of a row in its column */
    uint64_t prefix;  /* the first 8 bytes of the key */
    mr_buffer *text;  /* target of default strings, which columns hold; NULL: none */
    front number;     /* of a feature of one number; size 0: of another one */
} feature;

struct mr_example_plan {
    feature *f;
    size_t n;
    mr__hash_index index; /* of f, by key */
    bool has_numbers;     /* a feature is one; without any, the order of features gains nothing */
    bool only_numbers;    /* each is */
    bool wide;            /* the processor has what WIDE names, and it is fast */
};

enum { MOST_MORE = 16 /* limit of the room for rows to come, as a multiple of the values */ };

/* The values of a variable-length feature, one row after the other. The number of values of each
 * row is in the column, where the shapes of its rows are. */
typedef struct values {
    mr_buffer *memory;     /* NULL: none yet */
    size_t used, capacity; /* values; of the finished rows */
    int64_t *counts;
} values;

/* State of a feature in one call of parse. places[0] is before the first feature of a record, place
 * i + 1 is that of feature i, the last one is after the last feature. */
typedef struct place {
    front front;        /* of the number, or of another fixed feature as in the last record */
    uint8_t *to;        /* fixed: row 0 of its column */
    struct place *next; /* of the feature that followed it last time */
    uint32_t seen;      /* seen == stamp: the feature is in this record */
} place;

/* State of one call of parse. */
typedef struct parse {
    const mr_example_plan *plan;
    const mr_bytes *records;
    size_t rows;
    mr_array *columns;
    values *ragged; /* of variable-length features; has_ragged: some exist */
    bool has_ragged;
    place *places;
    place **order; /* places of the features in a record, ended by the last of all places */
    bool in_order; /* order is that of all features, as in the last record */
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

static void make_number(feature *f)
{
    size_t k = f->wanted.name_size;
    front *t = &f->number;
    if (f->wanted.ragged || f->values != 1 || f->kind == MR__BYTES_LIST || k + 10 > MOST_FRONT)
        return;
    uint8_t *p = t->bytes, *v = t->longer, four = f->kind == MR__FLOAT_LIST ? 4 : 0;
    *p++ = 0x0a;
    v[p - t->bytes] = 255;
    *p++ = (uint8_t)(k + 8 + four);
    *p++ = 0x0a;
    *p++ = (uint8_t)k;
    memcpy(p, f->wanted.name, k);
    p += k;
    *p++ = 0x12;
    v[p - t->bytes] = 255;
    *p++ = 4 + four;
    *p++ = (uint8_t)(f->kind << 3 | 2);
    v[p - t->bytes] = 255;
    *p++ = 2 + four;
    *p++ = 0x0a;
    v[p - t->bytes] = 255;
    *p++ = four;
    t->size = (uint8_t)(p - t->bytes);
    memset(t->within, 255, t->size);
    t->length = four;
    t->what = four ? ONE_FLOAT : ONE_INT;
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
    p->has_numbers |= f->number.size > 0;
    p->only_numbers &= f->number.size > 0;
    return mr__hash_add(&p->index, key_hash(f->prefix, (const uint8_t *)name, w->name_size),
                        p->n - 1, "a parsing plan", st);
}

/* Two generations of processors have pext, but as a slow program. */
static bool is_wide(void)
{
#if defined(WIDE)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && !__builtin_cpu_is("znver1") &&
           !__builtin_cpu_is("znver2");
#else
    return false;
#endif
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
    p->only_numbers = true;
    p->wide = is_wide();
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

/* Bits in which word k of t differs from the bytes of a front with values of v bytes, where `each`
 * is v in each byte. */
static inline uint64_t differs(const front *t, int k, const uint8_t *p, uint64_t each)
{
    size_t at = word_at(k, t->size);
    uint64_t word, base, longer;
    memcpy(&word, p + at, 8);
    memcpy(&base, t->bytes + at, 8);
    memcpy(&longer, t->longer + at, 8);
    return word ^ (base + (each & longer));
}

/* true: the bytes at p are those of t, for an integer of v bytes, at most 10; 0: for others. */
static inline bool same_front(const front *t, const uint8_t *p, uint64_t v)
{
    uint64_t each = v * 0x0101010101010101;
    uint64_t differ = differs(t, 0, p, each) | differs(t, 1, p, each);
    if (t->size > 16)
        differ |= differs(t, 2, p, each) | differs(t, 3, p, each);
    return differ == 0;
}

/* Reads the entry of x at p, where [p, e) is the rest of the record, if it is as expected. Returns
 * what follows it, NULL: it is not there. */
static inline __attribute__((always_inline)) const uint8_t *
fast_expected(const parse *w, const place *x, size_t row, const uint8_t *p, const uint8_t *e)
{
    const front *t = &x->front;
    size_t left = (size_t)(e - p), size = t->size;
    if (t->what == ONE_INT) {
        uint64_t v = left > size ? p[size - 1] : 0, value;
        if (v == 0 || v > 10 || v > left - size || !same_front(t, p, v))
            return NULL;
        p += size;
        if (!(v <= 8 ? mr__varint_of(p, v, &value) : mr__varint(p, p + v, &value) == p + v))
            return NULL;
        memcpy(x->to + row * 8, &value, 8);
        return p + v;
    }
    if (size == 0 || left < size || t->length > left - size || !same_front(t, p, 0))
        return NULL;
    p += size;
    if (t->what == ONE_FLOAT)
        memcpy(x->to + row * 4, p, 4);
    else if (!fast_values(w, (size_t)(x - w->places) - 1, row, p, p + t->length, e))
        return NULL;
    return p + t->length;
}

#if defined(WIDE)
/* The bits of a varint of v bytes, without the top one; 0: it does not fit into a word. */
static const uint64_t varint_bits[256] = {0,
                                          0x7f,
                                          0x7fff,
                                          0x7fffff,
                                          0x7fffffff,
                                          0x7fffffffff,
                                          0x7fffffffffff,
                                          0x7fffffffffffff,
                                          0x7fffffffffffffff};

/* Reads the numbers that are expected in the order of places[*at], ..., as long as ROOM bytes are
 * left before e: the same as fast_expected, with one compare each. Returns what follows them. */
WIDE static const uint8_t *fast_numbers(place *const *places, size_t *at, size_t row,
                                        const uint8_t *p, const uint8_t *e)
{
    const uint8_t *end = e - ROOM;
    size_t i = *at;
    for (; p <= end; i++) {
        const front *t = &places[i]->front;
        void *to = places[i]->to;
        size_t size = t->size;
        __m256i there = _mm256_loadu_si256((const void *)p),
                want = _mm256_loadu_si256((const void *)t->bytes),
                within = _mm256_loadu_si256((const void *)t->within);
        if (t->what == ONE_FLOAT) {
            if (!_mm256_testz_si256(_mm256_xor_si256(there, want), within))
                break;
            memcpy((float *)to + row, p + size, 4);
            p += size + 4;
            if (t->second) {
                memcpy((float *)(void *)places[++i]->to + row, p + t->second, 4);
                p += t->second + 4;
            }
        } else if (t->what == ONE_INT) {
            size_t v = p[size - 1];
            __m256i each = _mm256_set1_epi8((char)v),
                    longer = _mm256_loadu_si256((const void *)t->longer);
            want = _mm256_add_epi8(want, _mm256_and_si256(each, longer));
            if (!_mm256_testz_si256(_mm256_xor_si256(there, want), within))
                break;
            uint64_t word, value;
            memcpy(&word, p + size, 8);
            uint64_t stops = ~word & 0x8080808080808080, bits = (stops - 1) & ~stops;
            if (bits != varint_bits[v])
                break;
            value = _pext_u64(word & bits, 0x7f7f7f7f7f7f7f7f);
            memcpy((int64_t *)to + row, &value, 8);
            p += size + v;
        } else
            break;
    }
    *at = i;
    return p;
}
#endif

/* Reads the entry at p. *i: the guess on entry, the feature on return (n: not requested). NULL: use
 * the slow path. */
static inline const uint8_t *fast_entry(const parse *w, size_t *i, size_t row, const uint8_t *p,
                                        const uint8_t *record_end)
{
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
    front *t = &w->places[*i + 1].front;
    size_t size = (size_t)(p - entry);
    if (t->what == OTHER && size <= MOST_FRONT && n <= UINT32_MAX) {
        t->size = (uint8_t)size;
        t->length = (uint32_t)n;
        for (int k = 0; k < (size > 16 ? 4 : 2); k++)
            memcpy(t->bytes + word_at(k, size), entry + word_at(k, size), 8);
    }
    return e;
}

/* Reads the entries from p on that come in w->order, *n of them. Returns what follows them. */
static inline const uint8_t *fast_in_order(const parse *w, size_t row, const uint8_t *p,
                                           const uint8_t *e, size_t *n)
{
    size_t i = 0;
    for (; i < w->plan->n; i++) {
#if defined(WIDE)
        if (w->plan->wide && e - p >= ROOM && w->order[i]->front.what != OTHER) {
            p = fast_numbers(w->order, &i, row, p, e);
            if (i == w->plan->n)
                break;
        }
#endif
        const uint8_t *after = fast_expected(w, w->order[i], row, p, e);
        if (!after) {
            size_t expected = (size_t)(w->order[i] - w->places) - 1, found = expected;
            if (p == e || !(after = fast_entry(w, &found, row, p, e)) || found != expected)
                break;
        }
        p = after;
    }
    *n = i;
    return p;
}

/* Lets one vector hold the fronts of two floats in a row and the first float, where they fit. */
static void join_floats(parse *w)
{
    for (size_t i = 0; i < w->plan->n; i++)
        if (w->order[i]->front.what == ONE_FLOAT)
            w->order[i]->front = w->plan->f[w->order[i] - w->places - 1].number;
    for (size_t i = 0; i + 1 < w->plan->n; i++) {
        front *t = &w->order[i]->front;
        const front *next = &w->order[i + 1]->front;
        size_t at = t->size + sizeof(float);
        if (t->what != ONE_FLOAT || next->what != ONE_FLOAT || at + next->size > MOST_FRONT)
            continue;
        memcpy(t->bytes + at, next->bytes, next->size);
        memset(t->within + at, 255, next->size);
        t->second = next->size;
        i++;
    }
}

static bool fast_record(parse *w, const mr_bytes *record, size_t row)
{
    const mr_example_plan *plan = w->plan;
    size_t n;
    if (record->size == 0) /* data may be NULL */
        return false;
    const uint8_t *p = (const uint8_t *)record->data, *e = p + record->size;
    if (*p != 0x0a || !(p = mr__length(p + 1, e, &n)) || p + n != e)
        return false;
    size_t found = 0; /* features, all of them different */
    if (w->in_order) {
        p = fast_in_order(w, row, p, e, &found);
        if (p == e && found == plan->n)
            return true;
        w->in_order = false;
    }
    if (++w->stamp == 0) {
        for (size_t i = 0; i <= plan->n; i++)
            w->places[i].seen = 0;
        w->stamp = 1;
    }
    for (size_t i = 0; i < found; i++)
        w->order[i]->seen = w->stamp;
    place *last = found ? w->order[found - 1] : w->places;
    bool as_before = true; /* nothing was found but what is next */
    while (p < e) {
        place *x = last->next;
        const uint8_t *after = fast_expected(w, x, row, p, e);
        if (!after) {
            size_t i = (size_t)(x - w->places) - 1;
            if (!(after = fast_entry(w, &i, row, p, e)))
                return false;
            as_before &= i == (size_t)(x - w->places) - 1 && i < plan->n;
            if (i == plan->n) {
                p = after;
                continue;
            }
            last->next = x = &w->places[i + 1];
        }
        p = after;
        if (x->seen == w->stamp)
            return false;
        x->seen = w->stamp;
        w->order[found++] = last = x;
    }
    w->in_order = as_before && found == plan->n && plan->has_numbers;
    if (w->in_order && plan->wide)
        join_floats(w);
    for (size_t i = 0; found < plan->n && i < plan->n; i++)
        if (w->places[i + 1].seen != w->stamp && !fill_missing(w, i, row))
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
        else
            w->places[i + 1].to = a->data;
    }
    return MR_OK;
}

/* Allocates one block of scratch for all arrays of w, and its columns. */
static mr_code prepare(parse *w, mr_buffer **scratch, mr_status *st)
{
    const mr_example_plan *p = w->plan;
    size_t each = sizeof *w->entries + sizeof *w->ragged + sizeof *w->places + sizeof *w->order;
    size_t more = 2 * sizeof *w->places + sizeof *w->order;
    MR_TRY(mr_buffer_alloc(scratch, p->n * each + more, st));
    w->places = mr_buffer_data(*scratch);
    w->entries = (mr__entry *)(void *)(w->places + p->n + 2);
    w->ragged = (values *)(void *)(w->entries + p->n);
    w->order = (place **)(void *)(w->ragged + p->n);
    memset(w->places, 0, (p->n + 2) * sizeof *w->places);
    for (size_t i = 0; i < p->n; i++) {
        w->places[i].next = &w->places[i + 1];
        w->places[i + 1].front = p->f[i].number;
        w->ragged[i] = (values){0};
        w->has_ragged |= p->f[i].wanted.ragged;
    }
    w->places[p->n].next = w->order[p->n] = &w->places[p->n + 1];
    return make_columns(w, st);
}

/* Prefetches the start of the first feature and the end of the last one: a large value between them
 * stays in place and is not read. Records of numbers alone come faster without. */
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
        if (!plan->only_numbers && n - row > AHEAD)
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
