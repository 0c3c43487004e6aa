/* SPDX-License-Identifier: Apache-2.0 */
/* shuffle(100,000) of 784-byte elements into batches of 256, one thread: resident rows against
 * index and gather, rows streamed from records against a loop that reads and verifies them, and
 * copies each row into its slot and out again. All draw from Philox, as the op does.
 *
 * Then a position of shuffle(1,000,000) after 9 million of 10 million short records of an indexed
 * file is restored, up to the next batch, against a loop that only repeats the draws.
 *
 *     shuffle [DIR]       writes files of 300,000 and 10 million records to DIR (default /tmp) */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <millrace/millrace.h>

#include "ceiling.h"

enum { ROW = 784, BUFFER = 100000, BATCH = 256, ROWS = 300000, CHUNK = 512 << 10, AHEAD = 6 };
enum { MANY = 10000000, PASSED = 9000000, LARGE = 1000000 /* of what is restored */ };

typedef struct job {
    uint8_t *rows, *slots, *batch, *chunk;
    uint32_t *index;
    void *position; /* after PASSED of the MANY records of the other file */
    size_t position_size;
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

/* The records of a file, read in order. */
typedef struct records {
    int fd;
    uint8_t *buffer;
    size_t at, end;
    off_t offset;
} records;

static uint64_t load(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    memcpy(&v, p, n);
    return v;
}

static uint32_t masked(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* The next record, which has ROW bytes, verified. */
static const uint8_t *next_record(records *r)
{
    if (r->end - r->at < 16 + ROW) {
        memmove(r->buffer, r->buffer + r->at, r->end - r->at);
        r->end -= r->at;
        r->at = 0;
        ssize_t got = pread(r->fd, r->buffer + r->end, CHUNK - r->end, r->offset);
        if (got <= 0)
            bench_die("the file ends early");
        r->offset += got;
        r->end += (size_t)got;
    }
    const uint8_t *p = r->buffer + r->at, *data = p + 12;
    if (load(p, 8) != ROW || masked(mr_crc32c(p, 8)) != load(p + 8, 4) ||
        masked(mr_crc32c(data, ROW)) != load(data + ROW, 4))
        bench_die("a bad record");
    r->at += 16 + ROW;
    return data;
}

/* Slots are known AHEAD draws in advance, and fetched. */
static double copy_loop(void *ctx)
{
    job *j = ctx;
    uint32_t counter[4] = {0}, picks[AHEAD] = {0};
    records r = {.fd = open(j->path, O_RDONLY), .buffer = j->chunk};
    size_t in_batch = 0;
    for (size_t i = 0; i < BUFFER; i++)
        memcpy(j->slots + i * ROW, next_record(&r), ROW);
    for (size_t drawn = 0; drawn < ROWS + AHEAD; drawn++) {
        uint32_t pick = picks[drawn % AHEAD];
        if (drawn < ROWS) {
            size_t held = ROWS - drawn < BUFFER ? ROWS - drawn : BUFFER;
            uint32_t ahead = draw(counter) % (uint32_t)held;
            picks[drawn % AHEAD] = ahead;
            prefetch_row(j->slots + (size_t)ahead * ROW);
        }
        if (drawn < AHEAD)
            continue;
        size_t row = drawn - AHEAD;
        uint8_t *slot = j->slots + (size_t)pick * ROW;
        memcpy(j->batch + in_batch * ROW, slot, ROW);
        if (row + BUFFER < ROWS)
            memcpy(slot, next_record(&r), ROW);
        else
            memcpy(slot, j->slots + (ROWS - row - 1) * ROW, ROW);
        if (++in_batch == BATCH) {
            j->looked += j->batch[0];
            in_batch = 0;
        }
    }
    close(r.fd);
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

/* ---- restoring ---- */

static mr_iterator *open_many(const job *j)
{
    mr_status st;
    mr_iterator *it = NULL;
    const char *file = j->path;
    const mr_iterator_opts o = {.has_threads = true, .positions = true};
    mr_dataset *ds = mr_batch(mr_shuffle(mr_tfrecord(&file, 1, NULL), LARGE,
                                         &(mr_shuffle_opts){.seed = 1, .has_seed = true}),
                              BATCH, NULL);
    bench_must(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_dataset_unref(ds);
    return it;
}

/* Writes the file, its index, and the position. */
static void make_many(job *j, const char *dir)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_tfrecord_writer *w = NULL;
    snprintf(j->path, sizeof j->path, "%s/bench-restore.tfrecord", dir);
    bench_must(mr_tfrecord_writer_open(&w, j->path, NULL, &st), &st);
    for (int i = 0; i < MANY; i++) {
        char text[16];
        int n = snprintf(text, sizeof text, "%d", i);
        bench_must(mr_tfrecord_writer_append(w, text, (size_t)n, &st), &st);
    }
    bench_must(mr_tfrecord_writer_close(w, &st), &st);
    bench_must(mr_record_index_write(j->path, NULL, NULL, &st), &st);
    mr_iterator *it = open_many(j);
    for (size_t done = 0; done < PASSED; done += b.rows * BATCH)
        bench_must(mr_iterator_next(it, (PASSED - done + BATCH - 1) / BATCH, &b, &st), &st);
    bench_must(mr_iterator_save(it, &j->position, &j->position_size, &st), &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
}

static double restored(void *ctx)
{
    job *j = ctx;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_iterator *it = open_many(j);
    bench_must(mr_iterator_restore(it, j->position, j->position_size, &st), &st);
    bench_must(mr_iterator_next(it, 1, &b, &st), &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    return PASSED;
}

/* Which record is in which slot. */
static double draws(void *ctx)
{
    job *j = ctx;
    uint32_t counter[4] = {0}, picks[64], *index = (uint32_t *)(void *)j->slots, next = LARGE;
    for (uint32_t i = 0; i < LARGE; i++)
        index[i] = i;
    for (size_t done = 0; done < PASSED; done += 64) {
        for (size_t i = 0; i < 64; i++) {
            picks[i] = draw(counter) % LARGE;
            __builtin_prefetch(index + picks[i], 1);
        }
        for (size_t i = 0; i < 64; i++)
            index[picks[i]] = next++;
    }
    j->looked += index[0];
    return PASSED;
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
    const char *dir = argc > 1 ? argv[1] : "/tmp";
    job j = {.rows = malloc((size_t)ROWS * ROW),
             .slots = malloc((size_t)BUFFER * ROW),
             .batch = malloc((size_t)BATCH * ROW),
             .chunk = malloc(CHUNK),
             .index = malloc(BUFFER * sizeof *j.index)};
    uint64_t x = 88172645463325252u;
    if (!j.rows || !j.slots || !j.batch || !j.chunk || !j.index)
        return 1;
    for (size_t i = 0; i < (size_t)ROWS * ROW; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(j.rows + i, &x, 8);
    }
    make_file(&j, dir);
    bench_in_turns("resident, index + gather", "M rows/s", 1e-6, 5, resident, index_and_gather, &j);
    bench_in_turns("streamed, copy loop", "M rows/s", 1e-6, 5, streamed, copy_loop, &j);
    remove(j.path);
    make_many(&j, dir);
    bench_in_turns("restored after 9 million", "M rows/s", 1e-6, 5, restored, draws, &j);
    remove(j.path);
    snprintf(j.path, sizeof j.path, "%s/bench-restore.tfrecord.idx", dir);
    remove(j.path);
    mr_free(j.position);
    free(j.rows);
    free(j.slots);
    free(j.batch);
    free(j.chunk);
    free(j.index);
    return j.looked == 42;
}
