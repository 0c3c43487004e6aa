/* SPDX-License-Identifier: Apache-2.0 */
/* shuffle(100,000) of 784-byte elements into batches of 256, one thread: resident rows against
 * index and gather, rows streamed from records against a loop that copies each row into its slot
 * and out again. All draw from Philox, as the op does.
 *
 *     shuffle [DIR]       writes a file of 300,000 records to DIR (default /tmp) */
#include <stdint.h>
#include <string.h>

#include <millrace/millrace.h>

#include "ceiling.h"

enum { ROW = 784, BUFFER = 100000, BATCH = 256, ROWS = 300000 };

typedef struct job {
    uint8_t *rows, *slots, *batch;
    uint32_t *index;
    char path[4096];
    uint64_t looked;
} job;

static uint32_t draw(uint32_t counter[4])
{
    uint32_t c[4] = {counter[0] >> 2, counter[1], counter[2], counter[3]}, k0 = 1, k1 = 2;
    static uint32_t block[4];
    uint32_t lane = counter[0]++ & 3;
    if (lane)
        return block[lane];
    for (int i = 0; i < 10; i++) {
        uint64_t p = (uint64_t)0xD2511F53u * c[0], q = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(q >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)q;
        c[3] = (uint32_t)p;
        c[0] = n0;
        c[2] = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(block, c, sizeof block);
    return block[0];
}

static void prefetch_row(const uint8_t *p)
{
    for (int i = 0; i < ROW; i += 64)
        __builtin_prefetch(p + i);
}

static double index_and_gather(void *ctx)
{
    job *j = ctx;
    uint32_t counter[4] = {0}, picked[BATCH + 8];
    size_t next = BUFFER, left = ROWS, held = BUFFER;
    for (uint32_t i = 0; i < BUFFER; i++)
        j->index[i] = i;
    while (left) {
        size_t n = left < BATCH ? left : BATCH;
        for (size_t i = 0; i < n; i++) {
            uint32_t at = draw(counter) % (uint32_t)held;
            picked[i] = j->index[at];
            if (next < ROWS)
                j->index[at] = (uint32_t)next++;
            else
                j->index[at] = j->index[--held];
        }
        for (size_t i = 0; i < n; i++) {
            if (i + 6 < n)
                prefetch_row(j->rows + (size_t)picked[i + 6] * ROW);
            memcpy(j->batch + i * ROW, j->rows + (size_t)picked[i] * ROW, ROW);
        }
        j->looked += j->batch[0];
        left -= n;
    }
    return ROWS;
}

static double copy_loop(void *ctx)
{
    job *j = ctx;
    uint32_t counter[4] = {0};
    size_t next = BUFFER, left = ROWS, held = BUFFER, in_batch = 0;
    memcpy(j->slots, j->rows, (size_t)BUFFER * ROW);
    for (; left; left--) {
        uint32_t at = draw(counter) % (uint32_t)held;
        uint8_t *slot = j->slots + (size_t)at * ROW;
        memcpy(j->batch + in_batch * ROW, slot, ROW);
        if (next < ROWS)
            memcpy(slot, j->rows + next++ * ROW, ROW);
        else
            memcpy(slot, j->slots + --held * ROW, ROW);
        if (++in_batch == BATCH) {
            j->looked += j->batch[0];
            in_batch = 0;
        }
    }
    return ROWS;
}

static double run(job *j, mr_dataset *source)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_dataset *ds = mr_batch(
        mr_shuffle(source, BUFFER, &(mr_shuffle_opts){.seed = 1, .has_seed = true}), BATCH, NULL);
    mr_code rc = mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st);
    double rows = 0;
    while (rc == MR_OK && (rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK) {
        const mr_array *a = &b.columns[0];
        j->looked += a->dtype == MR_STRING ? (uint8_t)((const mr_bytes *)mr_array_at(a, 0))->data[0]
                                           : *(const uint8_t *)mr_array_at(a, 0);
        rows += (double)a->shape[0];
    }
    bench_must(rc == MR_END ? MR_OK : rc, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rows;
}

static double resident(void *ctx)
{
    job *j = ctx;
    mr_status st;
    mr_array a = {.dtype = MR_UINT8, .rank = 1, .shape = {ROW}, .rows = ROWS, .data = j->rows};
    bench_must(mr_buffer_wrap(&a.owner, j->rows, (size_t)ROWS * ROW, true, NULL, NULL, &st), &st);
    mr_dataset *ds = mr_from_arrays(&a, NULL, 1);
    mr_buffer_unref(a.owner);
    return run(j, ds);
}

static double streamed(void *ctx)
{
    job *j = ctx;
    const char *file = j->path;
    return run(j, mr_map(mr_tfrecord(&file, 1, NULL), mr_fn_text("x => x"), NULL));
}

static void make_file(job *j, const char *dir)
{
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    snprintf(j->path, sizeof j->path, "%s/bench-shuffle.tfrecord", dir);
    bench_must(mr_tfrecord_writer_open(&w, j->path, NULL, &st), &st);
    for (size_t i = 0; i < ROWS; i++)
        bench_must(mr_tfrecord_writer_append(w, j->rows + i * ROW, ROW, &st), &st);
    bench_must(mr_tfrecord_writer_close(w, &st), &st);
}

int main(int argc, char **argv)
{
    job j = {.rows = malloc((size_t)ROWS * ROW),
             .slots = malloc((size_t)BUFFER * ROW),
             .batch = malloc((size_t)BATCH * ROW),
             .index = malloc(BUFFER * sizeof *j.index)};
    uint64_t x = 88172645463325252u;
    if (!j.rows || !j.slots || !j.batch || !j.index)
        return 1;
    for (size_t i = 0; i < (size_t)ROWS * ROW; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(j.rows + i, &x, 8);
    }
    make_file(&j, argc > 1 ? argv[1] : "/tmp");
    bench_in_turns("resident, index + gather", "M rows/s", 1e-6, 5, resident, index_and_gather, &j);
    bench_in_turns("streamed, copy loop", "M rows/s", 1e-6, 5, streamed, copy_loop, &j);
    remove(j.path);
    free(j.rows);
    free(j.slots);
    free(j.batch);
    free(j.index);
    return j.looked == 42;
}
