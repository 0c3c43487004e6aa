/* SPDX-License-Identifier: Apache-2.0 */
/* range(10^7).map(x => x * 2).batch(1000), one thread, against the block loop: fill, multiply and
 * deliver batches of 1000 in blocks that fit the second-level cache.
 *
 *     map_batch */
#include <stdint.h>
#include <string.h>

#include <millrace/millrace.h>

#include "ceiling.h"

enum { N = 10000000, BATCH = 1000, BLOCK = 32 * BATCH };

static int64_t looked; /* keeps the compiler from removing the loops */

static double block_loop(void *ctx)
{
    int64_t *b = ctx;
    for (int64_t at = 0; at < N; at += BLOCK) {
        int64_t n = N - at < BLOCK ? N - at : BLOCK;
        for (int64_t i = 0; i < n; i++)
            b[i] = at + i;
        /* Two passes, as two ops need. */
        __asm__ volatile("" : : "r"(b) : "memory");
        for (int64_t i = 0; i < n; i++)
            b[i] *= 2;
        for (int64_t i = 0; i < n; i += BATCH)
            looked += b[i];
    }
    return N;
}

static double run(size_t want)
{
    static const char text[] = "range(10000000).map(x => x * 2).batch(1000)";
    mr_status st;
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, &st);
    if (rc == MR_OK)
        rc = mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st);
    int64_t rows = 0;
    while (rc == MR_OK && (rc = mr_iterator_next(it, want, &b, &st)) == MR_OK) {
        for (size_t i = 0; i < b.rows; i++)
            looked += *(const int64_t *)mr_array_at(&b.columns[0], i);
        rows += (int64_t)b.rows * BATCH;
    }
    bench_must(rc == MR_END ? MR_OK : rc, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return (double)rows;
}

static double many_batches(void *ctx)
{
    (void)ctx;
    return run(32);
}

static double one_batch(void *ctx)
{
    (void)ctx;
    return run(1);
}

int main(void)
{
    int64_t *b = malloc(BLOCK * sizeof *b);
    if (!b)
        return 1;
    bench_in_turns("32 batches a call", "M elements/s", 1e-6, 9, many_batches, block_loop, b);
    bench_in_turns("1 batch a call", "M elements/s", 1e-6, 9, one_batch, block_loop, b);
    free(b);
    return looked == 42;
}
