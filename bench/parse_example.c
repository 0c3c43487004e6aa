/* SPDX-License-Identifier: Apache-2.0 */
/* tf.train.Example into columns, one thread, against hand-written parsers for exactly these
 * messages: for the image the minimum of work; for 66 features byte templates, and below them a
 * plain loop over entries for comparison; for two lists (floats and integers, of fixed and of
 * varying length) one pass over the bytes. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <millrace/pipeline/formats/tfrecord/example.h>

#include "ceiling.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { ROWS = 256, KEYS = 66, PIXELS = 784, RECORDS = 8192, DENSE = 40, SPARSE = 26 };
enum { WIDTH = 32 /* of a template; records are followed by as many bytes */ };

/* What precedes the number of a feature: tags, lengths and the key. `longer` has 255 (-1) at the
 * lengths that grow with the number's own, which is the last byte. */
typedef struct template
{
    uint8_t bytes[WIDTH], longer[WIDTH];
    uint32_t where; /* bit k: byte k belongs to it */
    size_t size;
}
template;

typedef struct job {
    mr_example_plan *plan;
    mr_bytes records[RECORDS];
    size_t n_features;
    char names[KEYS][8]; /* NUL-padded: one compare of 8 bytes */
    size_t name_sizes[KEYS];
    bool is_float[KEYS];
    mr_bytes *images; /* views, as the parser returns them */
    uint8_t *pixels;  /* NULL: the ceiling makes views too; else it copies the images here */
    int64_t *ints[KEYS];
    float *floats[KEYS];
    template templates[KEYS];
} job;

static inline const uint8_t *varint(const uint8_t *p, const uint8_t *e, uint64_t *v)
{
    if (p < e && *p < 0x80) {
        *v = *p;
        return p + 1;
    }
    uint64_t x = 0;
    for (int shift = 0; shift < 70 && p < e; shift += 7) {
        x |= (uint64_t)(*p & 0x7f) << shift;
        if (*p++ < 0x80) {
            *v = x;
            return p;
        }
    }
    bench_die("varint");
    return NULL;
}

/* Tag and length of a field that must be `tag`. */
static inline const uint8_t *open_field(const uint8_t *p, const uint8_t *e, uint8_t tag,
                                        const uint8_t **end)
{
    uint64_t n;
    if (p == e || *p != tag)
        bench_die("tag");
    p = varint(p + 1, e, &n);
    if (n > (uint64_t)(e - p))
        bench_die("length");
    *end = p + n;
    return p;
}

/* Names are at most 8 bytes long, and a record has at least 8 more after each key. */
static inline bool same(const char *name, const uint8_t *key, size_t n)
{
    uint64_t a, b;
    memcpy(&a, name, 8);
    memcpy(&b, key, 8);
    return (a ^ b) << (64 - 8 * n) == 0;
}

/* Index of a key, starting where it is expected. */
static inline size_t key_index(const job *j, const uint8_t *key, size_t n, size_t guess)
{
    for (size_t k = 0; k < j->n_features; k++) {
        size_t i = guess + k < j->n_features ? guess + k : guess + k - j->n_features;
        if (j->name_sizes[i] == n && same(j->names[i], key, n))
            return i;
    }
    bench_die("key");
    return 0;
}

/* Any number of one-value features and one image, into row. */
static void hand_parse(job *j, const mr_bytes *record, size_t row)
{
    const uint8_t *p = (const uint8_t *)record->data, *e = p + record->size, *features, *entry,
                  *key, *feature, *list, *value;
    size_t guess = 0, found = 0;
    p = open_field(p, e, 0x0a, &features);
    while (p < features) {
        p = open_field(p, features, 0x0a, &entry);
        const uint8_t *name = open_field(p, entry, 0x0a, &key);
        size_t i = key_index(j, name, (size_t)(key - name), guess);
        p = open_field(key, entry, 0x12, &feature);
        uint8_t kind = *p;
        p = open_field(p, feature, kind, &list);
        p = open_field(p, list, 0x0a, &value);
        if (kind == 0x0a) {
            if (value - p != PIXELS)
                bench_die("image");
            if (j->pixels)
                memcpy(j->pixels + row * PIXELS, p, PIXELS);
            else
                j->images[row] = (mr_bytes){(const char *)p, PIXELS};
        } else if (kind == 0x12) {
            if (value - p != 4)
                bench_die("float");
            memcpy(&j->floats[i][row], p, 4);
        } else {
            uint64_t v;
            if (varint(p, value, &v) != value)
                bench_die("int");
            j->ints[i][row] = (int64_t)v;
        }
        p = entry;
        guess = i + 1;
        found++;
    }
    if (found != j->n_features)
        bench_die("features");
}

static double ceiling(void *ctx)
{
    job *j = ctx;
    for (size_t r = 0; r < RECORDS; r++) {
        hand_parse(j, &j->records[r], r % ROWS);
        __asm__ volatile("" : : : "memory");
    }
    return RECORDS;
}

/* ---- 66 numbers, each with its key ---- */

#if defined(__x86_64__)
#define TEMPLATES __attribute__((target("avx2,bmi2")))

static void make_templates(job *j)
{
    for (size_t i = 0; i < j->n_features; i++) {
        size_t n = j->name_sizes[i];
        template *t = &j->templates[i];
        uint8_t kind = j->is_float[i] ? 0x12 : 0x1a;
        memcpy(t->bytes, (uint8_t[]){0x0a, (uint8_t)(n + 8), 0x0a, (uint8_t)n}, 4);
        memcpy(t->bytes + 4, j->names[i], n);
        memcpy(t->bytes + 4 + n, (uint8_t[]){0x12, 4, kind, 2, 0x0a, 0}, 6);
        t->size = n + 10;
        t->where = ((uint32_t)1 << t->size) - 1;
        t->longer[1] = t->longer[n + 5] = t->longer[n + 7] = t->longer[n + 9] = 255;
    }
}

/* The features come in the order of the templates. */
TEMPLATES static void template_parse(job *j, const mr_bytes *record, size_t row)
{
    const uint8_t *p = (const uint8_t *)record->data, *e = p + record->size, *features;
    p = open_field(p, e, 0x0a, &features);
    for (size_t i = 0; i < j->n_features; i++) {
        const template *t = &j->templates[i];
        if (p >= e)
            bench_die("features");
        uint8_t n = p[t->size - 1];
        __m256i length = _mm256_set1_epi8((char)n),
                grown = _mm256_and_si256(length, _mm256_loadu_si256((const void *)t->longer)),
                want = _mm256_add_epi8(grown, _mm256_loadu_si256((const void *)t->bytes)),
                equal = _mm256_cmpeq_epi8(want, _mm256_loadu_si256((const void *)p));
        if (~(uint32_t)_mm256_movemask_epi8(equal) & t->where)
            bench_die("template");
        p += t->size;
        if (j->is_float[i]) {
            if (n != 4)
                bench_die("float");
            memcpy(&j->floats[i][row], p, 4);
        } else {
            uint64_t x, stops;
            memcpy(&x, p, 8);
            stops = ~x & 0x8080808080808080;
            if (!stops || (size_t)(__builtin_ctzll(stops) >> 3) + 1 != n)
                bench_die("int");
            j->ints[i][row] = (int64_t)_pext_u64(x & (stops ^ (stops - 1)), 0x7f7f7f7f7f7f7f7f);
        }
        p += n;
    }
    if (p != e)
        bench_die("record");
}

TEMPLATES static double template_ceiling(void *ctx)
{
    job *j = ctx;
    for (size_t r = 0; r < RECORDS; r++) {
        template_parse(j, &j->records[r], r % ROWS);
        __asm__ volatile("" : : : "memory");
    }
    return RECORDS;
}
#endif

static double measured(void *ctx)
{
    job *j = ctx;
    mr_status st;
    mr_array columns[KEYS];
    for (size_t r = 0; r < RECORDS; r += ROWS) {
        bench_must(mr_example_parse(j->plan, &j->records[r], ROWS, NULL, columns, NULL, NULL, &st),
                   &st);
        for (size_t i = 0; i < j->n_features; i++)
            mr_array_reset(&columns[i]);
    }
    return RECORDS;
}

/* ---- two lists ---- */

/* Columns of two lists, of 2 * DENSE and 2 * SPARSE values a row at most. */
typedef struct lists {
    job j;
    size_t ends[2][ROWS]; /* the end of each row's values */
    float dense[ROWS * 2 * DENSE];
    int64_t sparse[ROWS * 2 * SPARSE];
} lists;

/* The 7-bit groups of 8 bytes side by side. */
#if defined(__x86_64__)
#define LISTS __attribute__((target("bmi2")))
LISTS static inline uint64_t join(uint64_t x)
{
    return _pext_u64(x, 0x7f7f7f7f7f7f7f7f);
}
#else
#define LISTS
static inline uint64_t join(uint64_t x)
{
    x &= 0x7f7f7f7f7f7f7f7f;
    x = (x & 0x007f007f007f007f) | ((x & 0x7f007f007f007f00) >> 1);
    x = (x & 0x00003fff00003fff) | ((x & 0x3fff00003fff0000) >> 2);
    return (x & 0x000000000fffffff) | ((x & 0x0fffffff00000000) >> 4);
}
#endif

/* Reads a varint of at most 8 bytes without a loop; 8 bytes must be readable. */
LISTS static inline const uint8_t *varint_of_word(const uint8_t *p, const uint8_t *e, uint64_t *v)
{
    uint64_t x, stops = 0;
    if (e - p >= 8) {
        memcpy(&x, p, 8);
        stops = ~x & 0x8080808080808080;
    }
    if (!stops)
        return varint(p, e, v);
    *v = join(x & (stops ^ (stops - 1)));
    return p + (__builtin_ctzll(stops) >> 3) + 1;
}

/* The entries are sorted by name: "dense", then "sparse". */
LISTS static void hand_parse_lists(lists *l, const mr_bytes *record, size_t row)
{
    const uint8_t *p = (const uint8_t *)record->data, *e = p + record->size, *end, *entry, *key;
    size_t n_dense = row ? l->ends[0][row - 1] : 0, n_sparse = row ? l->ends[1][row - 1] : 0;
    p = open_field(p, e, 0x0a, &end);
    for (int i = 0; i < 2; i++) {
        p = open_field(p, end, 0x0a, &entry);
        p = open_field(p, entry, 0x0a, &key);
        if ((size_t)(key - p) != l->j.name_sizes[i] || !same(l->j.names[i], p, (size_t)(key - p)))
            bench_die("key");
        p = open_field(key, entry, 0x12, &key);
        p = open_field(p, key, i ? 0x1a : 0x12, &key);
        p = open_field(p, key, 0x0a, &key);
        size_t n = (size_t)(key - p);
        if (i == 0) {
            if (n % 4 || n > 2 * DENSE * sizeof(float))
                bench_die("floats");
            memcpy(l->dense + n_dense, p, n);
            n_dense += n / 4;
            p = key;
        }
        for (size_t k = 0; p < key; k++) {
            uint64_t v;
            if (k == 2 * SPARSE)
                bench_die("ints");
            p = varint_of_word(p, e, &v);
            l->sparse[n_sparse++] = (int64_t)v;
        }
        if (p != key)
            bench_die("list");
    }
    if (p != e)
        bench_die("record");
    l->ends[0][row] = n_dense;
    l->ends[1][row] = n_sparse;
}

static double lists_ceiling(void *ctx)
{
    lists *l = ctx;
    for (size_t r = 0; r < RECORDS; r++) {
        hand_parse_lists(l, &l->j.records[r], r % ROWS);
        __asm__ volatile("" : : : "memory");
    }
    return RECORDS;
}

static double lists_measured(void *ctx)
{
    return measured(&((lists *)ctx)->j);
}

/* varying: 1 to twice the number of values of the fixed length. */
static lists *make_lists(bool varying)
{
    static float floats[2 * DENSE];
    static int64_t ints[2 * SPARSE];
    static const int64_t shapes[2][1] = {{DENSE}, {SPARSE}};
    lists *l = calloc(1, sizeof *l);
    mr_example_feature f[2] = {0};
    uint64_t x = 88172645463325252u;
    mr_status st;
    l->j.n_features = 2;
    for (size_t i = 0; i < 2; i++) {
        strcpy(l->j.names[i], i ? "sparse" : "dense");
        f[i].name = l->j.names[i];
        f[i].name_size = l->j.name_sizes[i] = strlen(l->j.names[i]);
        f[i].dtype = i ? MR_INT64 : MR_FLOAT32;
        f[i].ragged = varying;
        f[i].rank = 1;
        f[i].shape[0] = shapes[i][0];
    }
    for (size_t r = 0; r < RECORDS; r++) {
        uint8_t *buffer = NULL;
        size_t capacity = 0, size = 0, n[2] = {DENSE, SPARSE};
        for (size_t i = 0; i < 2 * DENSE; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            floats[i] = (float)x * 1e-19f;
            if (i < 2 * SPARSE)
                ints[i] = (int64_t)(x >> (40 + x % 20));
        }
        if (varying)
            n[0] = 1 + x % (2 * DENSE), n[1] = 1 + (x >> 32) % (2 * SPARSE);
        mr_example_value v[2] = {{"dense", 5, MR_FLOAT32, floats, n[0]},
                                 {"sparse", 6, MR_INT64, ints, n[1]}};
        bench_must(mr_example_encode(v, 2, &buffer, &capacity, &size, &st), &st);
        l->j.records[r] = (mr_bytes){(char *)buffer, size};
    }
    bench_must(mr_example_plan_new(&l->j.plan, f, 2, &st), &st);
    return l;
}

static job *make(size_t n, bool image)
{
    job *j = calloc(1, sizeof *j);
    mr_example_feature f[KEYS] = {0};
    mr_example_value v[KEYS];
    static uint8_t pixels[PIXELS];
    static float floats[KEYS];
    static int64_t ints[KEYS];
    mr_bytes view = {(const char *)pixels, PIXELS};
    uint64_t x = 88172645463325252u;
    mr_status st;
    j->n_features = n;
    j->images = calloc(ROWS, sizeof *j->images);
    for (size_t i = 0; i < n; i++) {
        j->is_float[i] = !image && i >= 26;
        snprintf(j->names[i], sizeof j->names[i], image ? (i ? "label" : "image") : "%c%02zu",
                 i < 26 ? 'C' : 'I', i);
        j->ints[i] = malloc(ROWS * sizeof(int64_t));
        j->floats[i] = malloc(ROWS * sizeof(float));
        f[i].name = j->names[i];
        f[i].name_size = j->name_sizes[i] = strlen(j->names[i]);
        f[i].dtype = image && i == 0 ? MR_STRING : j->is_float[i] ? MR_FLOAT32 : MR_INT64;
        v[i] = (mr_example_value){f[i].name, f[i].name_size, f[i].dtype,
                                  f[i].dtype == MR_STRING ? (void *)&view
                                  : j->is_float[i]        ? (void *)&floats[i]
                                                          : (void *)&ints[i],
                                  1};
    }
    for (size_t r = 0; r < RECORDS; r++) {
        uint8_t *buffer = NULL;
        size_t capacity = 0, size = 0;
        for (size_t i = 0; i < n; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            ints[i] = image ? (int64_t)(x % 10) : (int64_t)(x >> (40 + x % 20));
            floats[i] = (float)x * 1e-19f;
        }
        for (size_t i = 0; image && i < PIXELS; i++)
            pixels[i] = (uint8_t)(x >> i % 56);
        bench_must(mr_example_encode(v, n, &buffer, &capacity, &size, &st), &st);
        if (!(buffer = realloc(buffer, size + WIDTH)))
            bench_die("memory");
        j->records[r] = (mr_bytes){(char *)buffer, size};
    }
    bench_must(mr_example_plan_new(&j->plan, f, n, &st), &st);
    return j;
}

int main(void)
{
    job *views = make(2, true), *copies = make(2, true), *numbers = make(KEYS, false);
    if (!(copies->pixels = malloc((size_t)ROWS * PIXELS)))
        return 1;
    bench_in_turns("image + label, into columns", "M/s", 1e-6, 9, measured, ceiling, copies);
    bench_in_turns("image + label, views only", "M/s", 1e-6, 9, measured, ceiling, views);
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("avx2"))
        bench_die("no ceilings for lists and templates on this processor");
    make_templates(numbers);
    bench_in_turns("66 one-value features", "M/s", 1e-6, 9, measured, template_ceiling, numbers);
#endif
    bench_in_turns("66, against a plain loop", "M/s", 1e-6, 9, measured, ceiling, numbers);
    bench_in_turns("two lists, 40 and 26 values", "M/s", 1e-6, 9, lists_measured, lists_ceiling,
                   make_lists(false));
    bench_in_turns("two lists of varying length", "M/s", 1e-6, 9, lists_measured, lists_ceiling,
                   make_lists(true));
    return 0;
}
