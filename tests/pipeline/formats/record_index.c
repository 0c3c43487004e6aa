/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/record_index.h"

#include <errno.h>
#include <glob.h>
#include <sys/stat.h>

#include "pipeline/crc32c.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "tests/fault.h"
#include "tests/pipeline/formats/record_files.h"

MR_ONE_THREAD;

/* A file of records of these sizes. */
static const char *records(const char *name, const int *sizes, int n)
{
    static const char zeros[70000];
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    const char *path = mr_test_path(name);
    mr_ok(mr_tfrecord_writer_open(&w, path, NULL, &st), &st);
    for (int i = 0; i < n; i++)
        mr_ok(mr_tfrecord_writer_append(w, zeros, (size_t)sizes[i], &st), &st);
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    return path;
}

static const char *index_of(const char *path)
{
    static char name[4096];
    snprintf(name, sizeof name, "%s.idx", path);
    return name;
}

static void expect_refused(const char *path, mr_code code, const char *part)
{
    mr_status st;
    mr_record_index *ix = NULL;
    mr_code_is(mr_record_index_open(&ix, path, &st), code, &st);
    mr_has_str(st.message, part);
    mr_check(ix == NULL);
}

static void expect_index(const char *path, const int *sizes, int n)
{
    mr_status st;
    mr_record_index *ix = NULL;
    mr_ok(mr_record_index_open(&ix, path, &st), &st);
    mr_eq_i64(mr_record_index_count(ix), n);
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        int64_t offset, size;
        mr_record_index_at(ix, i, &offset, &size);
        mr_eq_i64(offset, at);
        mr_eq_i64(size, sizes[i] + 16);
        at += size;
    }
    mr_record_index_close(ix);
}

static void write_both(const int *sizes, int n)
{
    mr_status st;
    const char *path = records("data", sizes, n);
    for (int compact = 0; compact <= 1; compact++) {
        const mr_record_index_opts o = {.compact = compact};
        int64_t found = -1;
        mr_ok(mr_record_index_write(path, &o, &found, &st), &st);
        mr_eq_i64(found, n);
        expect_index(path, sizes, n);
    }
}

MR_TEST(both_forms_say_where_each_record_is)
{
    enum { MANY = 200 };
    int sizes[MANY] = {0};
    write_both(sizes, 0);
    for (int i = 0; i < MANY; i++)
        sizes[i] = 5;
    write_both(sizes, 1);
    write_both(sizes, MANY); /* no entry at all */
    sizes[70] = 0;
    sizes[130] = 200;
    write_both(sizes, MANY); /* a byte each */
    sizes[131] = 300;
    write_both(sizes, MANY);
    sizes[199] = 66000;
    write_both(sizes, MANY);
    for (int i = 0; i < MANY; i++)
        sizes[i] = 65999 - i;
    write_both(sizes, 65); /* the first is the largest */
}

MR_TEST(text_is_as_other_tools_write_it)
{
    static const int sizes[] = {3, 0, 10};
    mr_status st;
    const char *path = records("data", sizes, 3);
    mr_ok(mr_record_index_write(path, NULL, NULL, &st), &st);
    byte_string b = read_file(index_of(path));
    mr_eq_u64(b.n, strlen("0 19\n19 16\n35 26\n"));
    mr_eq_mem(b.data, "0 19\n19 16\n35 26\n", b.n);
    static const char *const same[] = {"0 19\n19 16\n35 26", "0 19\r\n19 16\r\n35 26\r\n",
                                       "0\t19\n19  16\n35 26\n"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        write_file(index_of(path), same[i], strlen(same[i]));
        expect_index(path, sizes, 3);
    }
}

MR_TEST(what_is_no_index_is_refused_with_its_line)
{
    static const int sizes[] = {3, 0, 10};
    static const struct {
        const char *text, *part;
    } bad[] = {{"0 19\n\n35 26\n", "line 2: expected"},
               {"0 19\n19 x\n", "line 2: expected"},
               {"0 19\n19 16 1\n", "line 2: expected"},
               {"0 19\n19\n", "line 2: expected"},
               {"-1 19\n", "line 1: expected"},
               {"0 15\n", "line 1: no record"},
               {"0 9223372036854775807\n", "line 1: "},
               {"0 99999999999999999999999\n", "line 1: expected"},
               {"0 19\n20 16\n", "line 2: the record does not follow"},
               {"1 19\n", "line 1: the record does not follow"}};
    const char *path = records("data", sizes, 3);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_test_context("%s", bad[i].text);
        write_file(index_of(path), bad[i].text, strlen(bad[i].text));
        expect_refused(path, MR_DATA_LOSS, bad[i].part);
    }
}

MR_TEST(a_damaged_compact_index_is_refused)
{
    static const int sizes[] = {3, 0, 10};
    static const mr_record_index_opts compact = {.compact = true};
    mr_status st;
    const char *path = records("data", sizes, 3);
    mr_ok(mr_record_index_write(path, &compact, NULL, &st), &st);
    byte_string good = read_file(index_of(path));
    for (size_t i = 7; i < good.n; i++)
        for (int bit = 0; bit < 8; bit++) {
            mr_test_context("bit %d of byte %zu", bit, i);
            good.data[i] ^= (uint8_t)(1 << bit);
            write_file(index_of(path), good.data, good.n);
            expect_refused(path, MR_DATA_LOSS, "make it again");
            good.data[i] ^= (uint8_t)(1 << bit);
        }
    for (size_t n = 8; n < good.n; n++) {
        write_file(index_of(path), good.data, n);
        expect_refused(path, MR_DATA_LOSS, "make it again");
    }
    write_file(index_of(path), good.data, good.n);
    expect_index(path, sizes, 3);
}

/* Writes the index with another byte at `at`, and the checksum of that. */
static void put_forged(const char *path, const byte_string *good, size_t at, uint8_t byte)
{
    uint8_t old = good->data[at];
    good->data[at] = byte;
    uint32_t crc = mr_crc32c(good->data, good->n - 4);
    uint8_t *forged = mr_malloc(good->n);
    mr_check(forged != NULL);
    memcpy(forged, good->data, good->n);
    for (int i = 0; i < 4; i++)
        forged[good->n - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
    write_file(index_of(path), forged, good->n);
    mr_free(forged);
    good->data[at] = old;
}

MR_TEST(a_compact_index_whose_checksum_matches_must_still_make_sense)
{
    enum { VERSION = 7, FIRST_SIZE = 40 + 8 };
    static const int sizes[] = {3, 0, 10};
    static const mr_record_index_opts compact = {.compact = true};
    mr_status st;
    const char *path = records("data", sizes, 3);
    mr_ok(mr_record_index_write(path, &compact, NULL, &st), &st);
    byte_string good = read_file(index_of(path));
    mr_eq_u64(good.data[FIRST_SIZE], 3);
    put_forged(path, &good, FIRST_SIZE, 4);
    expect_refused(path, MR_DATA_LOSS, "its sizes do not add up");
    put_forged(path, &good, VERSION, 2);
    expect_refused(path, MR_DATA_LOSS, "its format has another version");
    put_forged(path, &good, VERSION, 1);
    expect_index(path, sizes, 3);
}

MR_TEST(a_stale_index_is_refused)
{
    static const int sizes[] = {3, 0, 10}, other[] = {0, 3, 10}, longer[] = {3, 0, 40};
    mr_status st;
    const char *path = records("data", sizes, 3);
    expect_refused(path, MR_NOT_FOUND, "millrace index");
    mr_ok(mr_record_index_write(path, NULL, NULL, &st), &st);
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    mr_check(utimensat(AT_FDCWD, index_of(path), old, 0) == 0);
    expect_refused(path, MR_FAILED_PRECONDITION, "was changed after the index was made");
    mr_check(utimensat(AT_FDCWD, path, old, 0) == 0);
    expect_index(path, sizes, 3);
    records("data", longer, 3);
    mr_check(utimensat(AT_FDCWD, path, old, 0) == 0);
    expect_refused(path, MR_FAILED_PRECONDITION, "does not have the size");
    records("data", other, 3);
    mr_check(utimensat(AT_FDCWD, path, old, 0) == 0);
    expect_refused(path, MR_FAILED_PRECONDITION, "different records");
    mr_check(unlink(path) == 0);
    expect_refused(path, MR_NOT_FOUND, "cannot stat");
}

/* Files of one size and time that differ in the middle, or at the end. */
MR_TEST(the_middle_and_the_last_record_are_looked_at)
{
    static const int sizes[] = {3, 0, 10, 5, 7}, middle[] = {3, 10, 0, 5, 7},
                     last[] = {3, 0, 10, 7, 5};
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    mr_status st;
    const char *path = records("data", sizes, 5);
    mr_ok(mr_record_index_write(path, NULL, NULL, &st), &st);
    for (int i = 0; i < 2; i++) {
        records("data", i ? last : middle, 5);
        mr_check(utimensat(AT_FDCWD, path, old, 0) == 0);
        expect_refused(path, MR_FAILED_PRECONDITION, "different records");
    }
}

MR_TEST(bytes_that_are_no_record_may_follow_the_last)
{
    static const int sizes[] = {3, 4};
    mr_status st;
    const char *path = records("data", sizes, 2);
    byte_string b = read_file(path);
    put(&b, "stray bytes", 11);
    write_file(path, b.data, b.n);
    mr_ok(mr_record_index_write(path, NULL, NULL, &st), &st);
    expect_index(path, sizes, 2);
}

MR_TEST(what_has_no_offsets_gets_no_index)
{
    static const int sizes[] = {30, 40};
    mr_status st;
    byte_string b = read_file(records("data", sizes, 2)), z = deflated(b.data, b.n, 31);
    const char *path = mr_test_path("packed");
    write_file(path, z.data, z.n);
    mr_code_is(mr_record_index_write(path, NULL, NULL, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "compressed");
    mr_eq_i64(access(index_of(path), F_OK), -1);
    b.data[20] ^= 1;
    write_file(path, b.data, b.n);
    mr_code_is(mr_record_index_write(path, NULL, NULL, &st), MR_DATA_LOSS, &st);
    mr_eq_i64(access(index_of(path), F_OK), -1);
    path = mr_test_path("pipe");
    mr_check(mkfifo(path, 0600) == 0);
    mr_code_is(mr_record_index_write(path, NULL, NULL, &st), MR_FAILED_PRECONDITION, &st);
    mr_code_is(mr_record_index_write(mr_test_path("gone"), NULL, NULL, &st), MR_NOT_FOUND, &st);
}

static void write_and_open(int64_t n, bool compact)
{
    static const int sizes[] = {3, 0, 10};
    const mr_record_index_opts o = {.compact = compact};
    mr_status st;
    mr_record_index *ix = NULL;
    const char *path = n ? mr_test_path("data") : records("data", sizes, 3);
    unlink(index_of(path));
    mr_code rc = mr_fault_expect(mr_record_index_write(path, &o, NULL, &st), &st);
    if (rc == MR_OK) {
        rc = mr_fault_expect(mr_record_index_open(&ix, path, &st), &st);
        if (rc == MR_OK)
            mr_eq_i64(mr_record_index_count(ix), 3);
        mr_record_index_close(ix);
    } else
        mr_eq_i64(access(index_of(path), F_OK), -1);
    glob_t left;
    mr_eq_i64(glob(mr_test_path(".data.idx.*"), 0, NULL, &left), GLOB_NOMATCH);
}

MR_TEST(every_allocation_and_system_call_may_fail)
{
    for (int compact = 0; compact <= 1; compact++) {
        mr_fault_each_allocation(n) write_and_open(n, compact);
        mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EIO, false) write_and_open(n, compact);
        mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EINTR, false) write_and_open(n, compact);
    }
}

static ssize_t no_space(int fd, const void *p, size_t n)
{
    (void)fd;
    (void)p;
    (void)n;
    errno = ENOSPC;
    return -1;
}

/* Longer than what is written at once. */
MR_TEST(a_long_index_that_cannot_be_written_leaves_nothing)
{
    static const int sizes[120000];
    const char *path = records("data", sizes, 120000);
    mr__system table = *mr__system_real();
    mr_status st;
    glob_t left;
    int before = dup(0);
    close(before);
    table.write = no_space;
    mr__system_set(&table);
    mr_check(mr_record_index_write(path, NULL, NULL, &st) != MR_OK);
    mr__system_set(NULL);
    mr_has_str(st.message, "cannot write");
    mr_eq_i64(glob(mr_test_path(".data.idx.*"), 0, NULL, &left), GLOB_NOMATCH);
    int after = dup(0);
    close(after);
    mr_eq_i64(after, before); /* nothing is left open */
}
