/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/read_scattered.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/system/system.h"
#include "tests/harness.h"

enum { READS = 64, SIZE = 7, SAMPLED = READS / 8 };

/* ---- what is asked of the kernel ---- */

static int asked;                /* reads that must not wait */
static int cached_asks;          /* this number of them find their data cached, later ones do not */
static atomic_int plain, failed; /* other reads; the number of the one that is to fail, from 1 */

static ssize_t see_preadv2(int fd, const struct iovec *v, int n, off_t offset, int flags)
{
    if (asked++ < cached_asks)
        return mr__system_real()->preadv2(fd, v, n, offset, flags);
    errno = EAGAIN;
    return -1;
}

static ssize_t see_pread(int fd, void *data, size_t n, off_t offset)
{
    if (atomic_fetch_add(&plain, 1) + 1 == failed) {
        errno = EIO;
        return -1;
    }
    return mr__system_real()->pread(fd, data, n, offset);
}

/* ---- runs ---- */

typedef struct rig {
    mr__system table;
    char *path;
    mr__scattered *files;
    mr_buffer *memory;
    mr__scattered_read reads[READS];
} rig;

/* A file in which byte i is i * 31, and a reader of it. */
static void set_up(rig *r, bool no_uring)
{
    uint8_t bytes[READS * SIZE];
    mr_status st;
    const mr__read_opts o = {.no_uring = no_uring};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31);
    r->path = strdup(mr_test_path("bytes"));
    FILE *f = fopen(r->path, "w");
    mr_check(fwrite(bytes, 1, sizeof bytes, f) == sizeof bytes);
    fclose(f);
    mr_ok(mr__scattered_open(&r->files, &r->path, 1, NULL, &o, &st), &st);
    mr_ok(mr_buffer_alloc(&r->memory, sizeof bytes, &st), &st);
    r->table = *mr__system_real();
    r->table.preadv2 = see_preadv2;
    r->table.pread = see_pread;
    mr__system_set(&r->table);
}

static void take_down(rig *r)
{
    mr__scattered_close(r->files);
    mr__system_set(NULL);
    mr_buffer_unref(r->memory);
    free(r->path);
}

/* Reads n pieces, the last one first, of which the first `cached` that are asked about are in the
 * page cache; `fail`: a plain read that fails. */
static void run(rig *r, size_t n, int cached, int fail)
{
    mr_status st;
    asked = 0;
    cached_asks = cached;
    plain = 0;
    failed = fail;
    memset(mr_buffer_data(r->memory), 0xee, READS * SIZE);
    for (size_t i = 0; i < n; i++)
        r->reads[i] = (mr__scattered_read){.offset = (int64_t)((READS - 1 - i) * SIZE),
                                           .size = SIZE,
                                           .data = (uint8_t *)mr_buffer_data(r->memory) + i * SIZE};
    mr_ok(mr__scattered_run(r->files, r->reads, n, r->memory, &st), &st);
    for (size_t i = 0; i < n; i++) {
        const mr__scattered_read *v = &r->reads[i];
        if (v->err)
            continue;
        mr_eq_u64(v->got, SIZE);
        for (size_t k = 0; k < SIZE; k++)
            mr_eq_u64(v->data[k], (uint8_t)(((uint64_t)v->offset + k) * 31));
    }
}

MR_TEST(after_many_cached_reads_few_are_asked_about)
{
    rig r = {0};
    set_up(&r, false);
    run(&r, READS, READS, 0);
    mr_eq_i64(asked, READS);
    for (int again = 0; again < 2; again++) {
        run(&r, READS, READS, 0);
        mr_eq_i64(asked, SAMPLED);
        mr_eq_i64(plain, READS - SAMPLED);
    }
    run(&r, 8, READS, 0); /* few say little */
    run(&r, READS, READS, 0);
    mr_eq_i64(asked, READS);
    take_down(&r);
}

MR_TEST(one_that_is_not_cached_ends_the_trust)
{
    for (int no_uring = 0; no_uring < 2; no_uring++) {
        rig r = {0};
        set_up(&r, no_uring);
        run(&r, READS, READS, 0);
        run(&r, READS, 1, 0); /* the second sample is not, and nothing after it */
        mr_eq_i64(asked, 1 + READS - 8);
        run(&r, READS, 0, 0);
        mr_eq_i64(asked, READS);
        run(&r, READS, READS, 0); /* all of it is back */
        mr_eq_i64(asked, READS);
        run(&r, READS, READS - 1, 0);
        mr_eq_i64(asked, SAMPLED);
        take_down(&r);
    }
}

MR_TEST(a_trusted_read_fails_by_itself)
{
    rig r = {0};
    set_up(&r, false);
    run(&r, READS, READS, 0);
    run(&r, READS, READS, 4);
    for (size_t i = 0; i < READS; i++)
        mr_eq_i64(r.reads[i].err, i == 4 ? EIO : 0);
    mr_check(truncate(r.path, READS * SIZE - 1) == 0);
    mr_status st;
    r.reads[4].offset = (READS - 1) * SIZE;
    mr_ok(mr__scattered_run(r.files, r.reads, READS, r.memory, &st), &st);
    mr_eq_u64(r.reads[4].got, SIZE - 1);
    mr_eq_i64(r.reads[4].err, 0);
    take_down(&r);
}
