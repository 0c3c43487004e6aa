/* SPDX-License-Identifier: Apache-2.0 */
/* Ops over values in memory, one thread, each against the simplest loop that does the same:
 *
 *     filter         random int64, half of them kept, batches of 1000, 32 of which the consumer
 *                    holds at a time; the loop packs by a mask, which is the best for x % 2, in one
 *                    pass over values that come from memory. The filter packs a block after its
 *                    function was evaluated for all of it; the other loop for x % 2 makes three
 *                    such passes, over blocks in the second-level cache
 *     map            a division by a constant, batches of 1000
 *     padded_batch   64 rows of 4 to 64 floats, from a cache
 *     cache          replays rows of 784 bytes in batches of 256, reading every byte
 *
 *     ops */
#include <stdint.h>
#include <string.h>

#include <millrace/millrace.h>

#include "ceiling.h"

enum {
    VALUES = 4000000,
    BATCH = 1000,
    ROWS = 20000,
    LONGEST = 64,
    PADDED = 64,
    IMAGE = 784,
    IMAGES = 256,
    EPOCHS = 20
};

static uint64_t looked; /* keeps the compiler from removing the loops */

static uint64_t sum_of_bytes(const uint8_t *p, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += p[i];
    return sum;
}

/* Takes ds over. */
static mr_iterator *open_one(mr_dataset *ds)
{
    mr_status st;
    mr_iterator *it;
    bench_must(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
    mr_dataset_unref(ds);
    return it;
}

/* Takes up to n batches. whole: reads every byte; otherwise the first one of each batch. */
static void run(mr_iterator *it, size_t n, size_t want, bool whole)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    while (n && (rc = mr_iterator_next(it, n < want ? n : want, &b, &st)) == MR_OK) {
        const mr_array *a = &b.columns[0];
        for (size_t i = 0; i < b.rows; i++)
            looked += whole ? sum_of_bytes(mr_array_at(a, i), mr_array_row_bytes(a))
                            : *(const uint8_t *)mr_array_at(a, i);
        n -= b.rows;
    }
    bench_must(rc == MR_END ? MR_OK : rc, &st);
    mr_block_reset(&b);
}

/* ---- filter, map ---- */

typedef struct numbers {
    const char *fn;
    uint64_t mask, bits; /* of the values that the filter keeps */
    int64_t *v;
} numbers;

static mr_dataset *dataset_of(const numbers *x)
{
    mr_status st;
    mr_array a = {.dtype = MR_INT64, .rows = VALUES, .data = x->v};
    bench_must(mr_buffer_wrap(&a.owner, x->v, VALUES * sizeof *x->v, true, NULL, NULL, &st), &st);
    mr_dataset *ds = mr_from_arrays(&a, NULL, 1);
    mr_buffer_unref(a.owner);
    return ds;
}

static double filter(void *ctx)
{
    const numbers *x = ctx;
    mr_iterator *it =
        open_one(mr_batch(mr_filter(dataset_of(x), mr_fn_text(x->fn), NULL), BATCH, NULL));
    run(it, SIZE_MAX, 32, false);
    mr_iterator_close(it);
    return VALUES;
}

#ifdef __x86_64__
#include <immintrin.h>

/* Both return the number of values kept; `to` has room for 8 more. */
__attribute__((target("avx512f"))) static size_t keep_8(const int64_t *v, size_t n, uint64_t mask,
                                                        uint64_t bits, int64_t *to)
{
    size_t kept = 0;
    __m512i m = _mm512_set1_epi64((long long)mask), b = _mm512_set1_epi64((long long)bits);
    for (size_t i = 0; i < n; i += 8) {
        __m512i x = _mm512_loadu_si512(v + i);
        __mmask8 k = _mm512_cmpeq_epi64_mask(_mm512_and_si512(x, m), b);
        _mm512_storeu_si512(to + kept, _mm512_maskz_compress_epi64(k, x));
        kept += (size_t)__builtin_popcount(k);
    }
    return kept;
}

__attribute__((target("avx2"))) static size_t keep_4(const int64_t *v, size_t n, uint64_t mask,
                                                     uint64_t bits, int64_t *to)
{
    static uint32_t order[16][8]; /* the kept of four values first */
    for (uint32_t k = 0; k < 16; k++)
        for (uint32_t lane = 0, at = 0; lane < 4; lane++)
            if (k >> lane & 1) {
                order[k][at++] = 2 * lane;
                order[k][at++] = 2 * lane + 1;
            }
    size_t kept = 0;
    __m256i m = _mm256_set1_epi64x((long long)mask), b = _mm256_set1_epi64x((long long)bits);
    for (size_t i = 0; i < n; i += 4) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(v + i));
        __m256i same = _mm256_cmpeq_epi64(_mm256_and_si256(x, m), b);
        int k = _mm256_movemask_pd(_mm256_castsi256_pd(same));
        __m256i first = _mm256_loadu_si256((const __m256i *)order[k]);
        _mm256_storeu_si256((__m256i *)(to + kept), _mm256_permutevar8x32_epi32(x, first));
        kept += (size_t)__builtin_popcount((unsigned)k);
    }
    return kept;
}
#endif

static size_t keep(const int64_t *v, size_t n, uint64_t mask, uint64_t bits, int64_t *to)
{
    size_t kept = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return keep_8(v, n, mask, bits, to);
    if (__builtin_cpu_supports("avx2"))
        return keep_4(v, n, mask, bits, to);
#endif
    for (size_t i = 0; i < n; i++) {
        to[kept] = v[i];
        kept += ((uint64_t)v[i] & mask) == bits;
    }
    return kept;
}

enum { HELD = 32 * BATCH }; /* values, as many as in a block */

/* Two of the three passes. */

#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#endif
static void
judge(const int64_t *v, uint64_t mask, uint64_t bits)
{
    static uint64_t rests[HELD];
    static uint8_t verdicts[HELD];
    for (size_t i = 0; i < HELD; i++)
        rests[i] = (uint64_t)v[i] & mask;
    __asm__ volatile("" : : "r"(rests) : "memory"); /* as if it were read */
    for (size_t i = 0; i < HELD; i++)
        verdicts[i] = rests[i] == bits;
    __asm__ volatile("" : : "r"(verdicts) : "memory");
}

/* The consumer has the batches of one buffer while the other is filled. */
static double pack(const numbers *x, bool in_passes)
{
    static int64_t buffers[2][HELD + BATCH + 8];
    int64_t *to = buffers[0], *other = buffers[1];
    size_t n = 0;
    for (size_t i = 0; i < VALUES; i += BATCH) {
        if (in_passes && i % HELD == 0)
            judge(x->v + i, x->mask, x->bits);
        n += keep(x->v + i, BATCH, x->mask, x->bits, to + n);
        if (n < HELD)
            continue;
        for (size_t k = 0; k < HELD; k += BATCH)
            looked += (uint64_t)to[k];
        n -= HELD;
        memcpy(other, to + HELD, n * sizeof *to);
        int64_t *filled = to;
        to = other;
        other = filled;
    }
    looked += (uint64_t)to[0];
    return VALUES;
}

static double compact(void *ctx)
{
    return pack(ctx, false);
}

static double compact_in_passes(void *ctx)
{
    return pack(ctx, true);
}

static double map(void *ctx)
{
    const numbers *x = ctx;
    mr_iterator *it =
        open_one(mr_batch(mr_map(dataset_of(x), mr_fn_text(x->fn), NULL), BATCH, NULL));
    run(it, SIZE_MAX, 32, false);
    mr_iterator_close(it);
    return VALUES;
}

/* The compiler multiplies and shifts. */
static double divide(void *ctx)
{
    enum { BLOCK = 16 * BATCH };
    static int64_t quotients[BLOCK];
    const numbers *x = ctx;
    for (size_t i = 0; i < VALUES; i += BLOCK) {
        for (size_t k = 0; k < BLOCK; k++) {
            int64_t v = x->v[i + k];
            quotients[k] = v / 1000 - (v < 0 && v % 1000 != 0);
        }
        for (size_t k = 0; k < BLOCK; k += BATCH)
            looked += (uint64_t)quotients[k];
        __asm__ volatile("" : : : "memory");
    }
    return VALUES;
}

/* ---- from a cache ---- */

static mr_iterator *replay; /* infinite; the warm-up round fills its cache */

static void open_replay(const char *text)
{
    mr_status st;
    mr_dataset *ds;
    mr_iterator_close(replay);
    bench_must(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    replay = open_one(ds);
}

/* ---- padded_batch ---- */

static size_t length_of(size_t row)
{
    return row * 7919 % (LONGEST - 3) + 4;
}

static double padded(void *ctx)
{
    (void)ctx;
    run(replay, ROWS / PADDED * EPOCHS, 8, false);
    return (double)(ROWS / PADDED) * PADDED * EPOCHS;
}

/* The rows are contiguous. */
static double fill_and_copy(void *ctx)
{
    const float *rows = ctx, *p = rows;
    static float batch[PADDED * LONGEST];
    for (size_t done = 0, row = 0; done < (size_t)ROWS * EPOCHS; done += PADDED) {
        size_t longest = 0, n = (size_t)ROWS * EPOCHS - done;
        n = n < PADDED ? n : PADDED;
        for (size_t i = 0; i < n; i++) {
            size_t length = length_of((row + i) % ROWS);
            longest = length > longest ? length : longest;
        }
        for (size_t i = 0; i < n; i++) {
            size_t length = length_of(row);
            memcpy(batch + i * longest, p, length * sizeof *p);
            memset(batch + i * longest + length, 0, (longest - length) * sizeof *p);
            p += length;
            if (++row == ROWS)
                row = 0, p = rows;
        }
        looked += (uint64_t)batch[0];
        __asm__ volatile("" : : : "memory");
    }
    return (double)ROWS * EPOCHS;
}

/* ---- cache ---- */

static double images(void *ctx)
{
    (void)ctx;
    run(replay, ROWS / IMAGES * EPOCHS, 1, true);
    return (double)(ROWS / IMAGES) * IMAGES * EPOCHS;
}

static double look(void *ctx)
{
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        for (size_t i = 0; i < ROWS; i++)
            looked += sum_of_bytes((const uint8_t *)ctx + i * IMAGE, IMAGE);
    return (double)ROWS * EPOCHS;
}

int main(void)
{
    uint64_t x = 88172645463325252u;
    int64_t *values = malloc(VALUES * sizeof *values);
    float *rows = malloc((size_t)ROWS * LONGEST * sizeof *rows);
    uint8_t *bytes = malloc((size_t)ROWS * IMAGE);
    char text[256];
    if (!values || !rows || !bytes)
        return 1;
    for (size_t i = 0; i < VALUES; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        values[i] = (int64_t)x;
    }
    for (size_t i = 0; i < (size_t)ROWS * LONGEST; i++)
        rows[i] = 1;
    memset(bytes, 0, (size_t)ROWS * IMAGE);
    numbers negative = {"x => x < 0", 1ull << 63, 1ull << 63, values};
    numbers even = {"x => x % 2 == 0", 1, 0, values};
    numbers thousands = {.fn = "x => x // 1000", .v = values};
    bench_in_turns("filter(x => x < 0)", "M/s", 1e-6, 9, filter, compact, &negative);
    bench_in_turns("filter(x => x % 2 == 0)", "M/s", 1e-6, 9, filter, compact, &even);
    bench_in_turns("  against three passes", "M/s", 1e-6, 9, filter, compact_in_passes, &even);
    bench_in_turns("map(x => x // 1000)", "M/s", 1e-6, 9, map, divide, &thousands);
    snprintf(text, sizeof text,
             "range(%d).map(x => ones([x * 7919 %% %d + 4])).cache().repeat().padded_batch(%d)",
             ROWS, LONGEST - 3, PADDED);
    open_replay(text);
    bench_in_turns("padded_batch of 64", "M/s", 1e-6, 9, padded, fill_and_copy, rows);
    snprintf(text, sizeof text,
             "range(%d).map(x => zeros([%d], \"uint8\")).cache().repeat().batch(%d)", ROWS, IMAGE,
             IMAGES);
    open_replay(text);
    bench_in_turns("cache, replayed", "M/s", 1e-6, 9, images, look, bytes);
    mr_iterator_close(replay);
    free(values);
    free(rows);
    free(bytes);
    return looked == 42;
}
