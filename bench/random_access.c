/* SPDX-License-Identifier: Apache-2.0 */
/* Records of an indexed TFRecord file in the page cache, looked up by number in random order, one
 * at a time and 256 in a call, against pread of the same bytes.
 *
 *     random_access
 *
 * The file, of 16 MB, is written to $TMPDIR, or to /tmp, and removed. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <millrace/millrace.h>

#include "ceiling.h"

enum { N = 60000, SIZE = 250, FRAME = 16, LOOKUPS = 1 << 16, MOST = 256 };

typedef struct job {
    mr_random_access *ra;
    int fd;
    size_t in_a_call;
    uint64_t looked; /* keeps the compiler from removing the loops */
} job;

/* A random number of a record; the same sequence in each run. */
static int64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*state >> 33) % N);
}

static double look_up(void *ctx)
{
    job *j = ctx;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    int64_t numbers[MOST];
    uint64_t state = 1;
    for (size_t at = 0; at < LOOKUPS; at += j->in_a_call) {
        for (size_t i = 0; i < j->in_a_call; i++)
            numbers[i] = draw(&state);
        for (size_t done = 0; done < j->in_a_call; done += b.rows) {
            bench_must(mr_random_access_at(j->ra, numbers + done, j->in_a_call - done, &b, &st),
                       &st);
            j->looked += ((const mr_bytes *)b.columns[0].data)->size;
        }
    }
    mr_block_reset(&b);
    return LOOKUPS;
}

static double read_only(void *ctx)
{
    job *j = ctx;
    char record[SIZE + FRAME];
    uint64_t state = 1;
    for (size_t at = 0; at < LOOKUPS; at++)
        j->looked += (uint64_t)pread(j->fd, record, sizeof record, draw(&state) * (SIZE + FRAME));
    return LOOKUPS;
}

static void write_file(const char *path)
{
    mr_tfrecord_writer *w = NULL;
    mr_status st;
    char record[SIZE];
    memset(record, 'x', sizeof record);
    bench_must(mr_tfrecord_writer_open(&w, path, NULL, &st), &st);
    for (int i = 0; i < N; i++)
        bench_must(mr_tfrecord_writer_append(w, record, sizeof record, &st), &st);
    bench_must(mr_tfrecord_writer_close(w, &st), &st);
    bench_must(mr_record_index_write(path, NULL, NULL, &st), &st);
}

int main(void)
{
    char path[4096], index[4100];
    mr_status st;
    job j = {.in_a_call = 1};
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/random_access-%d.tfrecord", folder ? folder : "/tmp",
             (int)getpid());
    snprintf(index, sizeof index, "%s.idx", path);
    write_file(path);
    mr_dataset *ds = mr_tfrecord((const char *[]){path}, 1, NULL);
    bench_must(mr_random_access_open(&j.ra, ds, NULL, &st), &st);
    j.fd = open(path, O_RDONLY);
    if (j.fd < 0)
        return 1;
    bench_in_turns("1 record a call", "lookups/us", 1e-6, 9, look_up, read_only, &j);
    j.in_a_call = MOST;
    bench_in_turns("256 records a call", "lookups/us", 1e-6, 9, look_up, read_only, &j);
    close(j.fd);
    mr_random_access_close(j.ra);
    mr_dataset_unref(ds);
    unlink(path);
    unlink(index);
    return j.looked == 42;
}
