/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/read_ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pipeline/system/system.h"
#include "pipeline/log.h"
#include "tests/harness.h"

#define SIZE (((size_t)5 << 20) + 12345)

static uint8_t *content;
static int lines_logged;

static void count_line(void *ctx, mr_log_level level, const char *message)
{
    (void)ctx;
    (void)level;
    lines_logged += strstr(message, "io_uring") != NULL;
}

/* What no page cache holds: every NOWAIT read says so. */
static ssize_t nothing_cached(int fd, const struct iovec *v, int n, off_t offset, int flags)
{
    (void)fd, (void)v, (void)n, (void)offset, (void)flags;
    errno = EAGAIN;
    return -1;
}

static const char *make_file(void)
{
    const char *path = mr_test_path("data");
    uint64_t state = 1;
    content = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (uint8_t)mr_test_random(&state);
    FILE *f = fopen(path, "wb");
    mr_check(f != NULL);
    mr_eq_u64(fwrite(content, 1, SIZE, f), SIZE);
    fclose(f);
    mr_log_set(count_line, NULL, MR_LOG_INFO);
    return path;
}

static bool no_uring, no_ahead, grows;

/* Reads from `start` on and compares every byte; *slots: how many came in separate buffers.
 * grows: the file does so before the first read. */
static void expect_content(const char *path, int64_t start, bool direct, size_t *slots)
{
    static uint8_t dst[100000];
    mr_status st;
    mr__read_ahead *r = NULL;
    mr_code rc;
    size_t at = (size_t)start;
    *slots = 0;
    mr_ok(mr__read_ahead_open(
              &r, path, start,
              &(mr__read_opts){.direct = direct, .no_uring = no_uring, .no_ahead = no_ahead}, &st),
          &st);
    mr_eq_i64(mr__read_ahead_size(r), SIZE);
    if (grows)
        mr_eq_i64(truncate(path, (off_t)(SIZE + 2 * MR__READ_SLOT)), 0);
    for (;;) {
        mr_buffer *slot = NULL;
        uint8_t *data = dst;
        size_t got = 0;
        rc = mr__read_ahead_next(r, dst, sizeof dst, &slot, &data, &got, &st);
        if (rc != MR_OK)
            break;
        mr_check(got > 0 && at + got <= SIZE);
        if (slot) {
            mr_check(data - (uint8_t *)mr_buffer_data(slot) >= (ptrdiff_t)MR__READ_HEADROOM);
            ++*slots;
        } else
            data = dst;
        mr_check(memcmp(data, content + at, got) == 0);
        at += got;
        mr_buffer_unref(slot);
    }
    mr_code_is(rc, MR_END, &st);
    mr_eq_u64(at, SIZE);
    mr_eq_u64(mr__read_ahead_cached(r, dst, sizeof dst), 0);
    mr__read_ahead_close(r);
    if (grows)
        mr_eq_i64(truncate(path, (off_t)SIZE), 0);
}

MR_TEST(cached_files_need_no_ring)
{
    const char *path = make_file();
    size_t slots;
    expect_content(path, 0, false, &slots);
    mr_eq_u64(slots, 0);
    expect_content(path, 4711, false, &slots);
    expect_content(path, SIZE, false, &slots);
}

MR_TEST(uncached_files_come_by_ring_or_pool)
{
    const char *path = make_file();
    size_t slots;
    mr__system table = *mr__system_real();
    table.preadv2 = nothing_cached;
    mr__system_set(&table);
    for (int pool = 0; pool < 2; pool++) {
        no_uring = pool;
        expect_content(path, 0, false, &slots);
        mr_check(slots > 0);
        expect_content(path, 70001, false, &slots);
        expect_content(path, 70001, true, &slots);
    }
    mr_eq_i64(lines_logged, 1);
}

MR_TEST(without_reads_in_flight_the_bytes_are_the_same)
{
    const char *path = make_file();
    size_t slots;
    mr__system table = *mr__system_real();
    table.preadv2 = nothing_cached;
    mr__system_set(&table);
    no_ahead = true;
    for (int direct = 0; direct < 2; direct++) {
        expect_content(path, 0, direct, &slots);
        mr_eq_u64(slots, 0);
        expect_content(path, 70001, direct, &slots);
        mr_eq_u64(slots, 0);
    }
}

MR_TEST(a_file_that_becomes_longer_ends_where_it_did)
{
    const char *path = make_file();
    size_t slots;
    mr__system table = *mr__system_real();
    grows = true;
    expect_content(path, 0, false, &slots);
    mr_eq_u64(slots, 0);
    table.preadv2 = nothing_cached;
    mr__system_set(&table);
    for (int how = 0; how < 4; how++) {
        no_uring = how & 1;
        no_ahead = how & 2;
        for (int direct = 0; direct < 2; direct++)
            expect_content(path, 70001, direct, &slots);
        mr_check((slots == 0) == no_ahead);
    }
}

MR_TEST(a_file_that_becomes_shorter_ends_there)
{
    const char *path = mr_test_path("shrinks");
    mr__system table = *mr__system_real();
    table.preadv2 = nothing_cached;
    mr__system_set(&table);
    for (int pool = 0; pool < 2; pool++) {
        FILE *f = fopen(path, "wb");
        mr_check(f != NULL);
        fclose(f);
        mr_eq_i64(truncate(path, (off_t)(20 * MR__READ_SLOT)), 0);
        mr__read_ahead *r = NULL;
        mr_status st;
        mr_ok(mr__read_ahead_open(&r, path, 0, &(mr__read_opts){.no_uring = pool}, &st), &st);
        mr_code rc = MR_OK;
        for (size_t n = 0; rc == MR_OK; n++) {
            static uint8_t dst[4096];
            mr_buffer *slot = NULL;
            uint8_t *data = dst;
            size_t got = 0;
            rc = mr__read_ahead_next(r, dst, sizeof dst, &slot, &data, &got, &st);
            mr_check(rc != MR_OK || got > 0);
            mr_check(n <= 2 * MR__READ_DEPTH); /* what was under way, and no more */
            mr_buffer_unref(slot);
            mr_eq_i64(truncate(path, 0), 0);
        }
        mr_code_is(rc, MR_END, &st);
        mr__read_ahead_close(r);
    }
}

static ssize_t read_slowly(int fd, void *data, size_t n, off_t offset)
{
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    return pread(fd, data, n, offset);
}

MR_TEST(who_sleeps_for_a_read_of_the_pool_is_woken)
{
    const char *path = make_file();
    size_t slots;
    mr__system table = *mr__system_real();
    table.preadv2 = nothing_cached;
    table.pread = read_slowly;
    mr__system_set(&table);
    no_uring = true;
    expect_content(path, 0, false, &slots);
    mr_check(slots > 0);
}

static int refuse_ring(unsigned entries, struct io_uring *ring, unsigned flags)
{
    (void)entries, (void)ring, (void)flags;
    return -ENOSYS;
}

MR_TEST(a_kernel_without_io_uring_gives_the_same_bytes_and_one_line)
{
    const char *path = make_file();
    size_t slots;
    mr__system table = *mr__system_real();
    table.preadv2 = nothing_cached;
    table.uring_init = refuse_ring;
    mr__system_set(&table);
    expect_content(path, 0, false, &slots);
    expect_content(path, 0, false, &slots);
    mr_check(slots > 0);
    mr_eq_i64(lines_logged, 1);
}

MR_TEST(a_seccomp_filter_that_forbids_io_uring_gives_the_same_bytes_and_one_line)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    const char *path = make_file();
    size_t slots;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        mr_skip_test("seccomp filters are not available here");
    mr__system table = *mr__system_real();
    table.preadv2 = nothing_cached;
    mr__system_set(&table);
    expect_content(path, 0, false, &slots);
    expect_content(path, 0, true, &slots);
    mr_check(slots > 0);
    mr_eq_i64(lines_logged, 1);
}

MR_TEST(an_unprivileged_user_with_a_small_memlock_limit_reads_the_same_bytes)
{
    const char *path = make_file();
    size_t slots;
    setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){4096, 4096});
    if (geteuid() == 0) {
        mr_eq_i64(chmod(mr_test_dir(), 0777), 0);
        if (setresuid(65534, 65534, 65534) != 0 || access(path, R_OK) != 0)
            mr_skip_test("cannot become an unprivileged user here");
    }
    mr__system table = *mr__system_real();
    table.preadv2 = nothing_cached;
    mr__system_set(&table);
    expect_content(path, 0, false, &slots);
    mr_check(slots > 0);
}

/* ---- faults: interruptions and short reads everywhere, on both ways ---- */

static _Atomic uint64_t fault_state; /* the pool's threads draw too */

static uint64_t fault_random(void)
{
    uint64_t state = atomic_fetch_add(&fault_state, 0x9E3779B97F4A7C15u) | 1;
    return mr_test_random(&state);
}

static ssize_t shy_pread(int fd, void *dst, size_t n, off_t offset)
{
    uint64_t x = fault_random();
    if (x % 4 == 0) {
        errno = x % 8 ? EINTR : EAGAIN;
        return -1;
    }
    return pread(fd, dst, n > 1 && x % 3 == 0 ? n / 2 + 1 : n, offset);
}

static ssize_t shy_preadv2(int fd, const struct iovec *v, int n, off_t offset, int flags)
{
    uint64_t x = fault_random();
    if (x % 4 == 0) {
        errno = EINTR;
        return -1;
    }
    struct iovec part = {v->iov_base, x % 3 == 0 ? v->iov_len / 3 + 1 : v->iov_len};
    return preadv2(fd, &part, n, offset, flags);
}

static int shy_wait(struct io_uring *ring, struct io_uring_cqe **cqe)
{
    static const int results[] = {-EINTR, -EAGAIN, -ECANCELED, 0, 100};
    uint64_t x = fault_random();
    if (x % 5 == 0)
        return -EINTR;
    int rc = mr__system_real()->uring_wait(ring, cqe);
    if (rc == 0 && x % 3 == 0)
        (*cqe)->res = results[x % 15 / 3];
    return rc;
}

static int shy_submit(struct io_uring *ring)
{
    return fault_random() % 3 ? mr__system_real()->uring_submit(ring) : -EINTR;
}

MR_TEST(short_reads_and_interruptions_change_nothing)
{
    const char *path = make_file();
    size_t slots;
    fault_state = mr_test_seed();
    for (int way = 0; way < 3; way++) {
        mr__system table = *mr__system_real();
        table.pread = shy_pread;
        table.preadv2 = way ? nothing_cached : shy_preadv2;
        table.uring_wait = shy_wait;
        table.uring_submit = shy_submit;
        mr__system_set(&table);
        no_uring = way == 2;
        for (int k = 0; k < 5; k++)
            expect_content(path, k * 9999, false, &slots);
    }
}

static atomic_int preads_left;
static ssize_t failing_pread(int fd, void *dst, size_t n, off_t offset)
{
    if (preads_left-- > 0)
        return pread(fd, dst, n, offset);
    errno = EIO;
    return -1;
}

MR_TEST(a_failing_disk_is_reported_with_file_and_offset)
{
    const char *path = make_file();
    static uint8_t dst[100000];
    mr__system table = *mr__system_real();
    table.pread = failing_pread;
    table.preadv2 = nothing_cached;
    mr__system_set(&table);
    preads_left = 2;
    mr_status st;
    mr__read_ahead *r = NULL;
    mr_code rc;
    size_t got;
    mr_ok(mr__read_ahead_open(&r, path, 0, &(mr__read_opts){.no_uring = true}, &st), &st);
    do {
        mr_buffer *slot = NULL;
        uint8_t *data;
        rc = mr__read_ahead_next(r, dst, sizeof dst, &slot, &data, &got, &st);
        mr_buffer_unref(slot);
    } while (rc == MR_OK);
    mr_code_is(rc, MR_DATA_LOSS, &st);
    mr_eq_str(st.file, path);
    mr_check(st.offset >= 0 && st.offset % (int64_t)MR__READ_SLOT == 0);
    mr_eq_i64(st.sys_errno, EIO);
    mr__read_ahead_close(r);
}

MR_TEST(closing_with_reads_in_flight_waits_for_them)
{
    const char *path = make_file();
    static uint8_t dst[1000];
    mr__system table = *mr__system_real();
    table.preadv2 = nothing_cached;
    mr__system_set(&table);
    for (int k = 0; k < 20; k++) {
        mr_status st;
        mr__read_ahead *r = NULL;
        mr_buffer *slot = NULL;
        uint8_t *data;
        size_t got;
        mr_ok(mr__read_ahead_open(&r, path, 0, &(mr__read_opts){.no_uring = k % 2}, &st), &st);
        mr_ok(mr__read_ahead_next(r, dst, sizeof dst, &slot, &data, &got, &st), &st);
        mr_ok(mr__read_ahead_seek(r, 1 << 20, &st), &st);
        mr_buffer_unref(slot);
        mr_ok(mr__read_ahead_next(r, dst, sizeof dst, &slot, &data, &got, &st), &st);
        mr_check(memcmp(data, content + (1 << 20), got) == 0);
        mr_buffer_unref(slot);
        mr__read_ahead_close(r);
    }
}

MR_TEST(pipes_are_read_to_their_end)
{
    int ends[2];
    char path[40];
    static uint8_t dst[1000];
    mr_status st;
    mr__read_ahead *r = NULL;
    mr_buffer *slot;
    uint8_t *data;
    size_t got = 0;
    mr_eq_i64(pipe(ends), 0);
    mr_eq_i64(write(ends[1], "hello", 5), 5);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    mr_ok(mr__read_ahead_open(&r, path, 0, NULL, &st), &st);
    close(ends[1]);
    mr_eq_i64(mr__read_ahead_size(r), -1);
    mr_ok(mr__read_ahead_next(r, dst, sizeof dst, &slot, &data, &got, &st), &st);
    mr_eq_u64(got, 5);
    mr_code_is(mr__read_ahead_next(r, dst, sizeof dst, &slot, &data, &got, &st), MR_END, &st);
    mr__read_ahead_close(r);
}
