/* SPDX-License-Identifier: Apache-2.0 */
/* Ops over values in memory, one thread, each against the simplest loop that does the same:
 *
 *     filter         random int64, half of them kept, batches of 1000
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

/* ---- filter ---- */

static double filter(void *ctx)
{
    mr_status st;
    mr_array a = {.dtype = MR_INT64, .rows = VALUES, .data = ctx};
    bench_must(mr_buffer_wrap(&a.owner, ctx, VALUES * sizeof(int64_t), true, NULL, NULL, &st), &st);
    mr_dataset *ds = mr_from_arrays(&a, NULL, 1);
    mr_buffer_unref(a.owner);
    mr_iterator *it =
        open_one(mr_batch(mr_filter(ds, mr_fn_text("x => x < 0"), NULL), BATCH, NULL));
    run(it, SIZE_MAX, 32, false);
    mr_iterator_close(it);
    return VALUES;
}

static double compact(void *ctx)
{
    enum { BLOCK = 32 * BATCH };
    static int64_t kept[BLOCK];
    const int64_t *v = ctx;
    size_t n = 0;
    for (size_t i = 0; i < VALUES; i++) {
        kept[n] = v[i];
        n += v[i] < 0;
        if (n == BLOCK) {
            for (size_t k = 0; k < BLOCK; k += BATCH)
                looked += (uint64_t)kept[k];
            n = 0;
        }
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
    uint64_t x = 88172645463325252u, *values = malloc(VALUES * sizeof *values);
    float *rows = malloc((size_t)ROWS * LONGEST * sizeof *rows);
    uint8_t *bytes = malloc((size_t)ROWS * IMAGE);
    char text[256];
    if (!values || !rows || !bytes)
        return 1;
    for (size_t i = 0; i < VALUES; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        values[i] = x;
    }
    for (size_t i = 0; i < (size_t)ROWS * LONGEST; i++)
        rows[i] = 1;
    memset(bytes, 0, (size_t)ROWS * IMAGE);
    bench_in_turns("filter, every second stays", "M/s", 1e-6, 9, filter, compact, values);
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
