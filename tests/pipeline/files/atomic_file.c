/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/files/atomic_file_impl.h"
#include "pipeline/files/whole_file.h"
#include "tests/fault.h"
#include "tests/fault_calls.h"
#include "tests/harness.h"

MR_ONE_THREAD;

/* Is `text` what the file holds? */
static void expect_text(const char *path, const char *text)
{
    mr_status st;
    void *bytes;
    size_t n;
    mr_ok(mr_file_read(path, NULL, &bytes, &n, &st), &st);
    mr_eq_str(bytes, text); /* a NUL byte follows */
    mr_eq_u64(n, strlen(text));
    mr_free(bytes);
}

/* The number of names in the directory of the test. */
static int names(void)
{
    int n = -2;
    DIR *d = opendir(mr_test_dir());
    mr_check(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* ---- in what order ---- */

static char calls[64];
static const char *failing; /* the call that fails, or NULL */
static int passes;          /* of it, before it fails */

static bool note(const char *call)
{
    if (strlen(calls) + 2 < sizeof calls)
        strcat(calls, strcmp(call, "fsync") == 0 ? "s" : (char[]){call[0], '\0'});
    if (!failing || strcmp(call, failing) != 0 || passes-- > 0)
        return false;
    errno = EIO;
    return true;
}

static void watch(const char *fails, int after)
{
    static mr__system table;
    table = *mr__system_real();
    failing = fails;
    passes = after;
    calls[0] = '\0';
    mr_fault_calls(&table, "open write fsync rename unlink", note);
    mr__system_set(&table);
}

/* In a container the process that is started again has the number of the one that was killed. */
MR_TEST(a_name_that_a_killed_process_left_is_not_in_the_way)
{
    mr_status st;
    unsigned number;
    char left[3][600];
    const char *path = mr_test_file("f", "old");
    char *taken = mr__hidden_name(path, ".partial");
    mr_check(taken && sscanf(strrchr(taken, '-'), "-%u.partial", &number) == 1);
    int before = (int)(strrchr(taken, '-') - taken);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(left[i], sizeof left[i], "%.*s-%u.partial", before, taken, number + 1 + i);
        FILE *f = fopen(left[i], "w");
        mr_check(f && fclose(f) == 0);
    }
    mr_free(taken);
    mr_ok(mr_file_replace(path, "new", 3, &st), &st);
    expect_text(path, "new");
    mr_eq_i64(names(), 4); /* the other process may be alive */
}

MR_TEST(a_file_is_synced_renamed_and_its_directory_synced)
{
    mr_status st;
    const char *path = mr_test_file("f", "old");
    watch(NULL, 0);
    mr_ok(mr_file_replace(path, "new", 3, &st), &st);
    mr__system_set(NULL);
    mr_eq_str(calls, "owsros"); /* open, write, sync, rename, open the directory, sync */
    expect_text(path, "new");
    mr_eq_i64(names(), 1);
}

MR_TEST(less_is_synced_on_request)
{
    static const char *const expected[] = {"owsros", "owsr", "owr"};
    for (int sync = MR_SYNC_ALL; sync <= MR_SYNC_NONE; sync++) {
        mr_status st;
        mr_atomic_file *f;
        mr_atomic_file_opts o = {.sync = (mr_file_sync)sync};
        watch(NULL, 0);
        mr_ok(mr_atomic_file_open(&f, mr_test_path("f"), &o, &st), &st);
        mr_ok(mr_atomic_file_close(f, mr_atomic_file_put(f, "x", 1, &st), &st), &st);
        mr__system_set(NULL);
        mr_eq_str(calls, expected[sync]);
    }
}

MR_TEST(a_call_that_fails_leaves_the_old_file_alone)
{
    static const struct {
        const char *call;
        int after;
        const char *text, *then; /* of the message; the file's after that */
    } cases[] = {{"open", 0, "cannot create the file", "old"},
                 {"write", 0, "cannot write the file", "old"},
                 {"fsync", 0, "cannot sync the file to disk", "old"},
                 {"rename", 0, "cannot rename the file to its final name", "old"},
                 /* It is in place: only a power failure could bring the old one back. */
                 {"open", 1, "cannot sync the directory", "new"},
                 {"fsync", 1, "cannot sync the directory", "new"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_status st;
        const char *path = mr_test_file("f", "old");
        mr_test_context("%s after %d", cases[i].call, cases[i].after);
        watch(cases[i].call, cases[i].after);
        mr_code rc = mr_file_replace(path, "new", 3, &st);
        mr__system_set(NULL);
        mr_check(rc != MR_OK);
        mr_eq_i64(st.sys_errno, EIO);
        mr_has_str(st.message, cases[i].text);
        mr_eq_i64(strncmp(st.file, path, strlen(mr_test_dir())), 0);
        expect_text(path, cases[i].then);
        mr_eq_i64(names(), 1);
    }
}

/* ---- any call ---- */

static void replace(int64_t n)
{
    mr_status st;
    const char *path = mr_test_file("f", "old");
    mr_fault_expect(mr_file_replace(path, "new", 3, &st), &st);
    if (n == 0)
        expect_text(path, "new");
}

static void write_in_parts(int64_t n)
{
    static char bytes[3 << 20]; /* more than what is written at once */
    mr_status st;
    mr_atomic_file *f = NULL;
    (void)n;
    mr_code rc = mr_atomic_file_open(&f, mr_test_path("g"), NULL, &st);
    for (size_t at = 0; rc == MR_OK && at < sizeof bytes; at += sizeof bytes / 4)
        rc = mr_atomic_file_put(f, bytes + at, sizeof bytes / 4, &st);
    if (rc == MR_OK)
        rc = mr__atomic_file_rewind(f, &st);
    if (rc == MR_OK)
        rc = mr_atomic_file_put(f, "head", 4, &st);
    mr_fault_expect(mr_atomic_file_close(f, rc, &st), &st);
}

MR_TEST(every_allocation_and_system_call_may_fail)
{
    static const int errors[] = {EIO, ENOSPC, EINTR};
    mr_fault_each_allocation(n) replace(n);
    mr_fault_each_allocation(n) write_in_parts(n);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        mr_fault_each(n, MR_FAULT_SYSTEM_CALL, errors[i], false) replace(n);
        mr_fault_each(n, MR_FAULT_SYSTEM_CALL, errors[i], false) write_in_parts(n);
        mr_fault_each(n, MR_FAULT_SYSTEM_CALL, errors[i], true) replace(n);
    }
}

MR_TEST(an_interrupted_call_is_repeated)
{
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EINTR, false)
    {
        mr_status st;
        mr_ok(mr_file_replace(mr_test_path("f"), "new", 3, &st), &st);
    }
}

/* ---- contents ---- */

MR_TEST(puts_of_all_sizes_follow_each_other)
{
    static const size_t sizes[] = {1, (1 << 20) - 1, 1, 1 << 20, 0, 5, (2 << 20) + 3, 7};
    static char bytes[6 << 20];
    uint64_t random = 1;
    size_t all = 0, n;
    mr_status st;
    mr_atomic_file *f;
    mr_buffer *b;
    for (size_t i = 0; i < sizeof bytes; i += 8) {
        uint64_t v = mr_test_random(&random);
        memcpy(bytes + i, &v, 8);
    }
    mr_ok(mr_atomic_file_open(&f, mr_test_path("f"), NULL, &st), &st);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; all += sizes[i++])
        mr_ok(mr_atomic_file_put(f, bytes + all, sizes[i], &st), &st);
    mr_check(access(mr_test_path("f"), F_OK) != 0); /* not yet */
    mr_ok(mr_atomic_file_close(f, MR_OK, &st), &st);
    mr_ok(mr_file_read_buffer(mr_test_path("f"), NULL, &b, &n, &st), &st);
    mr_eq_u64(n, all);
    mr_eq_mem(mr_buffer_data(b), bytes, n);
    mr_buffer_unref(b);
}

MR_TEST(an_aborted_file_is_removed)
{
    mr_status st;
    mr_atomic_file *f;
    const char *path = mr_test_file("f", "old");
    mr_ok(mr_atomic_file_open(&f, path, NULL, &st), &st);
    mr_eq_i64(names(), 2);
    mr_atomic_file_abort(f);
    mr_atomic_file_abort(NULL);
    mr_ok(mr_atomic_file_open(&f, path, NULL, &st), &st);
    mr_code_is(mr_atomic_file_close(f, MR_DATA_LOSS, &st), MR_DATA_LOSS, NULL);
    mr_code_is(mr_atomic_file_close(NULL, MR_DATA_LOSS, &st), MR_DATA_LOSS, NULL);
    mr_eq_i64(names(), 1);
    expect_text(path, "old");
}

MR_TEST(two_writers_of_a_name_do_not_meet)
{
    mr_status st;
    mr_atomic_file *f, *g;
    const char *path = mr_test_path("f");
    mr_ok(mr_atomic_file_open(&f, path, NULL, &st), &st);
    mr_ok(mr_atomic_file_open(&g, path, NULL, &st), &st);
    mr_ok(mr_atomic_file_put(f, "first", 5, &st), &st);
    mr_ok(mr_atomic_file_close(g, mr_atomic_file_put(g, "second", 6, &st), &st), &st);
    expect_text(path, "second");
    mr_ok(mr_atomic_file_close(f, MR_OK, &st), &st);
    expect_text(path, "first");
    mr_eq_i64(names(), 1);
}

MR_TEST(a_file_in_place_has_its_name_from_the_start)
{
    mr_status st;
    mr_atomic_file *f;
    mr_atomic_file_opts o = {.in_place = true};
    const char *path = mr_test_file("f", "old text");
    mr_ok(mr_atomic_file_open(&f, path, &o, &st), &st);
    mr_eq_i64(names(), 1);
    mr_ok(mr_atomic_file_close(f, mr_atomic_file_put(f, "new", 3, &st), &st), &st);
    expect_text(path, "new");
}

MR_TEST(a_pipe_is_not_replaced)
{
    char got[8] = "";
    mr_status st;
    struct stat s;
    const char *path = mr_test_path("pipe");
    mr_eq_i64(mkfifo(path, 0666), 0);
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    mr_ok(mr_file_replace(path, "new", 3, &st), &st);
    mr_eq_i64(read(fd, got, sizeof got), 3);
    mr_eq_str(got, "new");
    close(fd);
    mr_eq_i64(stat(path, &s), 0);
    mr_check(S_ISFIFO(s.st_mode));
}

MR_TEST(a_name_without_a_directory_is_in_the_current_one)
{
    mr_status st;
    mr_eq_i64(chdir(mr_test_dir()), 0);
    mr_ok(mr_file_replace("f", "", 0, &st), &st);
    expect_text("f", "");
    mr_code_is(mr_file_replace("none/f", "", 0, &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "directory does not exist");
    mr_eq_str(st.file, "none/f");
}

/* ---- reading ---- */

static mr_code read_with(mr_file_read_opts opts, const char *path, mr_status *st)
{
    void *bytes = NULL;
    size_t n = 77;
    mr_code rc = mr_file_read(path, &opts, &bytes, &n, st);
    mr_check(rc == MR_OK || (!bytes && n == 77)); /* left alone */
    mr_free(bytes);
    return rc;
}

MR_TEST(a_file_is_read_up_to_a_limit)
{
    mr_status st;
    const char *path = mr_test_file("f", "12345");
    mr_code_is(read_with((mr_file_read_opts){.most = 4}, path, &st), MR_OUT_OF_RANGE, &st);
    mr_eq_str(st.file, path);
    mr_ok(read_with((mr_file_read_opts){.most = 5}, path, &st), &st);
    mr_code_is(read_with((mr_file_read_opts){.most = 5}, "/dev/zero", &st), MR_OUT_OF_RANGE, &st);
    mr_code_is(read_with((mr_file_read_opts){.most = 5}, mr_test_dir(), &st),
               MR_FAILED_PRECONDITION, &st);
}

MR_TEST(what_is_no_regular_file_can_be_refused)
{
    mr_status st;
    mr_file_read_opts regular = {.regular = true};
    const char *pipe = mr_test_path("pipe");
    mr_eq_i64(mkfifo(pipe, 0666), 0);
    mr_code_is(read_with(regular, pipe, &st), MR_INVALID_ARGUMENT, &st);
    mr_eq_str(st.file, pipe);
    mr_code_is(read_with(regular, "/dev/zero", &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(read_with(regular, mr_test_path("none"), &st), MR_NOT_FOUND, &st);
    mr_ok(read_with(regular, mr_test_file("f", ""), &st), &st);
}
