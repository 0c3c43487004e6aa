/* SPDX-License-Identifier: Apache-2.0 */
/* Reads page-cached TFRecords and verifies both checksums:
 *
 *   - in one thread, against the simplest loop that does the same: pread into one reused buffer,
 *     and walk over it
 *   - two files in two threads, against two independent loops, and against two loops whose records
 *     all go to one thread
 *   - 16 files, one record of each in turn
 *   - all records in random order, against the same loop in file order and against the iterator in
 *     file order
 *
 *     tfrecord [DIR [MIB]]       writes a file of MIB MiB for each record size to DIR */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <millrace/millrace.h>

#include "ceiling.h"

#define BUFFER ((size_t)512 << 10)

enum { FILES = 16 }; /* files read in turn */

typedef struct job {
    char path[4096];
    size_t record, n;
    uint8_t *buffer;
    size_t buffer_bytes;
    uint64_t looked; /* keeps the compiler from removing the loops */
} job;

/* CRC-32C by the instruction for it, 8 bytes at a time, inline: for short data a call would cost
 * more than the checksum. For long data the library's is several times as fast. */
#if defined(__x86_64__)
#include <immintrin.h>
#define WITH_CRC     __attribute__((target("sse4.2")))
#define CRC_REGISTER uint64_t
#define CRC_8        _mm_crc32_u64
#define CRC_4        _mm_crc32_u32
#define CRC_1        _mm_crc32_u8
#elif defined(__aarch64__)
#include <arm_acle.h>
#define WITH_CRC     __attribute__((target("+crc")))
#define CRC_REGISTER uint32_t
#define CRC_8        __crc32cd
#define CRC_4        __crc32cw
#define CRC_1        __crc32cb
#else
#error "no ceiling for this processor"
#endif

static uint64_t load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

WITH_CRC static inline uint32_t short_crc(const uint8_t *p, size_t n)
{
    uint64_t x = ~0u; /* 64 bits: no instruction to shorten it in between */
    for (; n >= 8; p += 8, n -= 8)
        x = CRC_8((CRC_REGISTER)x, load64(p));
    uint32_t c = (uint32_t)x;
    if (n >= 4) {
        c = CRC_4(c, load32(p));
        p += 4;
        n -= 4;
    }
    for (; n; n--)
        c = CRC_1(c, *p++);
    return ~c;
}

static uint32_t masked(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Walks over the whole records of [p, p + n); returns their bytes. */
WITH_CRC static size_t walk(const uint8_t *p, size_t n, size_t *rows, uint64_t *looked)
{
    enum { SHORT = 256 };
    size_t at = 0;
    while (n - at >= 16) {
        uint64_t size = load64(p + at);
        const uint8_t *data = p + at + 12;
        if (masked(short_crc(p + at, 8)) != load32(p + at + 8))
            bench_die("bad length");
        if (size > n - at - 16)
            break;
        uint32_t crc = size < SHORT ? short_crc(data, size) : mr_crc32c(data, size);
        if (masked(crc) != load32(data + size))
            bench_die("bad data");
        *looked += data[0];
        at += 16 + size;
        ++*rows;
    }
    return at;
}

static double ceiling(void *ctx)
{
    job *j = ctx;
    size_t have = 0, rows = 0;
    off_t at = 0;
    int fd = open(j->path, O_RDONLY);
    for (;;) {
        ssize_t got = pread(fd, j->buffer + have, j->buffer_bytes - have, at);
        if (got <= 0)
            break;
        at += got;
        have += (size_t)got;
        size_t taken = walk(j->buffer, have, &rows, &j->looked);
        have -= taken;
        memmove(j->buffer, j->buffer + taken, have);
    }
    close(fd);
    if (rows != j->n)
        bench_die("the ceiling missed records");
    return (double)at;
}

/* Reads all of ds. Takes ds. */
static double run(job *j, mr_dataset *ds, int64_t threads, size_t records)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    size_t rows = 0;
    mr_code rc = mr_iterator_open(
        &it, ds, &(mr_iterator_opts){.has_threads = true, .threads = threads}, &st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, 1 << 20, &b, &st)) == MR_OK) {
        const mr_bytes *v = b.columns[0].data;
        for (size_t i = 0; i < b.rows; i++)
            j->looked += (uint8_t)v[i].data[0];
        rows += b.rows;
    }
    if (rc != MR_END)
        bench_must(rc, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    if (rows != records)
        bench_die("the iterator missed records");
    return (double)rows * (double)(j->record + 16);
}

static double iterator(void *ctx)
{
    job *j = ctx;
    const char *path = j->path;
    return run(j, mr_tfrecord(&path, 1, NULL), 0, j->n);
}

/* ---- two threads ---- */

static double iterator_in_two(void *ctx)
{
    job *j = ctx;
    const char *paths[2] = {j->path, j->path};
    return run(j, mr_tfrecord(paths, 2, &(mr_tfrecord_opts){.num_parallel_reads = 2}), 2, 2 * j->n);
}

static void *in_thread(void *ctx)
{
    ceiling(ctx);
    return NULL;
}

static double ceiling_in_two(void *ctx)
{
    job *j = ctx, other = *j;
    pthread_t thread;
    other.buffer = malloc(j->buffer_bytes);
    if (!other.buffer)
        bench_die("out of memory");
    if (pthread_create(&thread, NULL, in_thread, &other))
        bench_die("cannot start a second thread");
    double bytes = ceiling(j);
    pthread_join(thread, NULL);
    free(other.buffer);
    j->looked += other.looked;
    return 2 * bytes;
}

/* ---- two threads, one of which reads all records ---- */

enum { SLOTS = 4, TRIPS = 2000 };

static atomic_uint ball;

static void *answer(void *ctx)
{
    for (unsigned i = 0; i < TRIPS; i++) {
        while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * i + 1)
            ;
        atomic_store_explicit(&ball, 2 * i + 2, memory_order_release);
    }
    return ctx;
}

/* The round-trip time of a cache line to another CPU, in nanoseconds. On a virtual machine it may
 * change at any time, and with it the cost of passing records between threads. */
static double round_trip(void)
{
    enum { PART = TRIPS / 20 };
    pthread_t thread;
    double best = 1;
    atomic_store(&ball, 0);
    if (pthread_create(&thread, NULL, answer, NULL))
        bench_die("cannot start a second thread");
    for (unsigned i = 0; i < TRIPS;) {
        double start = bench_now();
        for (unsigned end = i + PART; i < end; i++) {
            atomic_store_explicit(&ball, 2 * i + 1, memory_order_release);
            while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * i + 2)
                ;
        }
        double each = (bench_now() - start) / PART;
        best = each < best ? each : best;
    }
    pthread_join(thread, NULL);
    return 1e9 * best;
}

/* A file that is read into slots of whole records. */
typedef struct lane {
    const job *j;
    int fd;
    off_t at;
    uint8_t (*slots)[BUFFER];
    size_t rows[SLOTS], rest; /* rest: bytes after the records of the last slot */
    atomic_size_t filled, used;
} lane;

/* Fills a free slot; an empty one marks the end. */
static size_t fill_slot(lane *l, uint64_t *looked)
{
    size_t filled = l->filled, i = filled % SLOTS, rows = 0, whole = l->j->record + 16;
    if (l->rest) {
        size_t last = (filled - 1) % SLOTS;
        memcpy(l->slots[i], l->slots[last] + l->rows[last] * whole, l->rest);
    }
    ssize_t got = pread(l->fd, l->slots[i] + l->rest, BUFFER - l->rest, l->at);
    if (got > 0) {
        size_t have = l->rest + (size_t)got;
        l->at += got;
        l->rest = have - walk(l->slots[i], have, &rows, looked);
    }
    l->rows[i] = rows;
    atomic_store_explicit(&l->filled, filled + 1, memory_order_release);
    return rows;
}

static void *fill_slots(void *ctx)
{
    lane *l = ctx;
    uint64_t looked = 0;
    do
        while (l->filled - atomic_load_explicit(&l->used, memory_order_acquire) == SLOTS)
            ;
    while (fill_slot(l, &looked));
    return NULL;
}

/* As iterator_in_two: a record of each file in turn. This thread reads one file itself. */
static double ceiling_given_over(void *ctx)
{
    job *j = ctx;
    static uint8_t slots[2][SLOTS][BUFFER];
    lane own = {.j = j, .fd = open(j->path, O_RDONLY), .slots = slots[0]};
    lane other = {.j = j, .fd = open(j->path, O_RDONLY), .slots = slots[1]};
    pthread_t thread;
    size_t rows = 0, whole = j->record + 16;
    if (pthread_create(&thread, NULL, fill_slots, &other))
        bench_die("cannot start a second thread");
    for (size_t n = 1, i; n; rows += 2 * n) { /* an equal number of records in each slot */
        n = fill_slot(&own, &j->looked);
        i = (own.filled - 1) % SLOTS;
        while (atomic_load_explicit(&other.filled, memory_order_acquire) < own.filled)
            ;
        if (other.rows[i] != n)
            bench_die("the files differ");
        for (size_t r = 0; r < n; r++)
            j->looked += own.slots[i][r * whole + 12] + other.slots[i][r * whole + 12];
        atomic_store_explicit(&other.used, other.used + 1, memory_order_release);
    }
    pthread_join(thread, NULL);
    close(own.fd);
    close(other.fd);
    if (rows != 2 * j->n)
        bench_die("the ceiling missed records");
    return (double)rows * (double)whole;
}

/* ---- sixteen files in turn ---- */

static double interleaved(void *ctx)
{
    job *j = ctx;
    const char *path = j->path;
    mr_dataset *names = mr_list_files(&path, 1, NULL);
    return run(j,
               mr_interleave(mr_repeat(names, FILES), mr_fn_text("f => tfrecord(f)"),
                             &(mr_interleave_opts){.cycle_length = FILES, .block_length = 1}),
               0, FILES * j->n);
}

/* One record of each file at a time, all files through buffers of 128 KiB. */
static double ceiling_in_turn(void *ctx)
{
    job *j = ctx;
    enum { PART = 128 << 10 };
    static uint8_t parts[FILES][PART];
    size_t have[FILES] = {0}, at[FILES] = {0}, rows = 0, whole = j->record + 16;
    off_t from[FILES] = {0};
    int fd = open(j->path, O_RDONLY);
    for (size_t r = 0; r < j->n; r++)
        for (size_t i = 0; i < FILES; i++) {
            if (have[i] - at[i] < whole) {
                have[i] -= at[i];
                memmove(parts[i], parts[i] + at[i], have[i]);
                at[i] = 0;
                ssize_t got = pread(fd, parts[i] + have[i], PART - have[i], from[i]);
                if (got <= 0)
                    bench_die("a file ends early");
                from[i] += got;
                have[i] += (size_t)got;
            }
            at[i] += walk(parts[i] + at[i], whole, &rows, &j->looked);
        }
    close(fd);
    if (rows != FILES * j->n)
        bench_die("the ceiling missed records");
    return (double)rows * (double)whole;
}

/* ---- in a random order ---- */

static double shuffled(void *ctx)
{
    job *j = ctx;
    const char *path = j->path;
    return run(j,
               mr_global_shuffle(mr_tfrecord(&path, 1, NULL),
                                 &(mr_global_shuffle_opts){.seed = 1, .has_seed = true}),
               0, j->n);
}

static void make_file(job *j, const char *dir, size_t bytes)
{
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    uint8_t *record = malloc(j->record);
    uint64_t x = 88172645463325252u;
    snprintf(j->path, sizeof j->path, "%s/bench-%zu.tfrecord", dir, j->record);
    bench_must(mr_tfrecord_writer_open(&w, j->path, NULL, &st), &st);
    for (j->n = 0; j->n < bytes / (j->record + 16); j->n++) {
        for (size_t i = 0; i < j->record; i += 4) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            memcpy(record + i, &x, 4);
        }
        bench_must(mr_tfrecord_writer_append(w, record, j->record, &st), &st);
    }
    bench_must(mr_tfrecord_writer_close(w, &st), &st);
    free(record);
}

static void make(job *j, const char *dir, size_t record, size_t bytes)
{
    *j = (job){.record = record, .buffer_bytes = record < BUFFER / 4 ? BUFFER : 4 * BUFFER};
    make_file(j, dir, bytes);
    j->buffer = malloc(j->buffer_bytes);
    if (!j->buffer)
        bench_die("out of memory");
    memset(j->buffer, 1, j->buffer_bytes);
}

static void drop(job *j)
{
    unlink(j->path);
    free(j->buffer);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {100, 1024, 16384, 131072};
    const char *dir = argc > 1 ? argv[1] : "/tmp";
    size_t bytes = (argc > 2 ? (size_t)atoi(argv[2]) : 128) << 20;
    char name[4200];
    mr_status st;
    job j;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        make(&j, dir, sizes[i], bytes);
        snprintf(name, sizeof name, "%zu B records", sizes[i]);
        bench_in_turns(name, "GB/s", 1e-9, 7, iterator, ceiling, &j);
        if (sizes[i] == 100)
            printf("a cache line to another processor and back: %.0f ns\n", round_trip());
        if (sizes[i] <= 1024) {
            snprintf(name, sizeof name, "%zu B, two threads", sizes[i]);
            bench_in_turns(name, "GB/s", 1e-9, 7, iterator_in_two, ceiling_in_two, &j);
            bench_in_turns("  given to one thread", "GB/s", 1e-9, 7, iterator_in_two,
                           ceiling_given_over, &j);
        }
        if (sizes[i] == 16384) {
            bench_must(mr_record_index_write(j.path, NULL, NULL, &st), &st);
            bench_in_turns("16384 B, global_shuffle", "GB/s", 1e-9, 7, shuffled, ceiling, &j);
            bench_in_turns("  against the reader", "GB/s", 1e-9, 7, shuffled, iterator, &j);
            snprintf(name, sizeof name, "%s.idx", j.path);
            unlink(name);
        }
        drop(&j);
    }
    make(&j, dir, 1024, bytes / FILES);
    bench_in_turns("1024 B, 16 files in turn", "GB/s", 1e-9, 7, interleaved, ceiling_in_turn, &j);
    drop(&j);
    return 0;
}
