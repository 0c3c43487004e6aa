/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/ledger/job_ledger_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/fault.h"
#include "tests/harness.h"

MR_ONE_THREAD;

static const char *file_name(void)
{
    return mr_test_path("run.ledger");
}

static mr_ledger *create(bool steps)
{
    mr_ledger *l = NULL;
    mr_status st;
    mr_ok(mr_ledger_create(file_name(), steps, &l, &st), &st);
    mr_check(mr_ledger_takes_steps(l) == steps);
    return l;
}

static size_t read_all(unsigned char *bytes, size_t room)
{
    FILE *f = fopen(file_name(), "rb");
    mr_check(f != NULL);
    size_t n = fread(bytes, 1, room, f);
    fclose(f);
    return n;
}

static void write_all(const unsigned char *bytes, size_t n)
{
    FILE *f = fopen(file_name(), "wb");
    mr_check(f != NULL);
    mr_check(fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static bool same(const mr_identity *a, const mr_identity *b)
{
    return a->source == b->source && a->file == b->file && a->ordinal == b->ordinal &&
           a->epoch == b->epoch;
}

/* Record i of a long run: steps in all directions, the largest numbers too. */
static mr_identity record(uint64_t i)
{
    mr_identity id = {.source = i % 7 == 0 ? UINT64_MAX - i : i % 3,
                      .file = i / 1000,
                      .ordinal = i % 11 == 0 ? UINT64_MAX : i * 0x9e3779b97f4a7c15u >> (i % 64),
                      .epoch = i / 50000};
    return id;
}

/* Entries of 0, 1, 2, ... records: many chunks, with ends anywhere in an entry. */
MR_TEST(what_was_written_is_read)
{
    enum { ENTRIES = 500 };
    mr_identity ids[ENTRIES];
    mr_ledger_reader *r = NULL;
    mr_ledger_entry e;
    mr_status st;
    mr_ledger *l = create(true);
    uint64_t n = 0;
    for (size_t i = 0; i < ENTRIES; i++) {
        for (size_t k = 0; k < i; k++)
            ids[k] = record(n++);
        mr_ok(mr_ledger_add(l, i ? ids : NULL, i, &st), &st);
    }
    mr_ok(mr_ledger_close(l, &st), &st);
    mr_ok(mr_ledger_open(file_name(), &r, &st), &st);
    mr_check(mr_ledger_is_of_steps(r));
    n = 0;
    for (size_t i = 0; i < ENTRIES; i++) {
        mr_ok(mr_ledger_next(r, &e, &st), &st);
        mr_eq_i64(e.number, (int64_t)i);
        mr_eq_u64(e.n, i);
        for (size_t k = 0; k < i; k++) {
            mr_identity want = record(n++);
            mr_check(same(&e.ids[k], &want));
            mr_check(!mr_ledger_name_of(r, &want));
        }
    }
    mr_code_is(mr_ledger_next(r, &e, &st), MR_END, &st);
    mr_code_is(mr_ledger_next(r, &e, &st), MR_END, &st);
    mr_ledger_reader_close(r);
}

/* A file in order takes next to nothing. */
MR_TEST(records_in_order_are_small)
{
    static unsigned char bytes[1 << 20];
    mr_status st;
    mr_ledger *l = create(false);
    mr_check(!mr_ledger_takes_steps(l));
    for (uint64_t i = 0; i < 1000000; i++) {
        mr_identity id = {.ordinal = i};
        mr_ok(mr_ledger_add(l, &id, 1, &st), &st);
    }
    mr_ok(mr_ledger_close(l, &st), &st);
    mr_check(read_all(bytes, sizeof bytes) < 20000);
}

MR_TEST(names_come_before_their_records)
{
    static const mr_identity a = {1, 5, 0, 0}, b = {1, 2, 7, 0}, c = {0, 9, 0, 3};
    mr_ledger_reader *r = NULL;
    mr_ledger_entry e;
    mr_status st;
    mr_ledger *l = create(false);
    mr_ok(mr_ledger_name(l, &a, "a", &st), &st);
    mr_ok(mr_ledger_name(l, &b, "", &st), &st);
    mr_ok(mr_ledger_name(l, &a, "ignored", &st), &st);
    mr_ok(mr_ledger_add(l, &a, 1, &st), &st);
    mr_ok(mr_ledger_name(l, &c, "dir/c", &st), &st);
    mr_ok(mr_ledger_add(l, &c, 1, &st), &st);
    mr_ok(mr_ledger_close(l, &st), &st);
    mr_ok(mr_ledger_open(file_name(), &r, &st), &st);
    mr_ok(mr_ledger_next(r, &e, &st), &st);
    mr_eq_str(mr_ledger_name_of(r, &a), "a");
    mr_eq_str(mr_ledger_name_of(r, &b), "");
    mr_check(!mr_ledger_name_of(r, &c));
    mr_ok(mr_ledger_next(r, &e, &st), &st);
    mr_eq_str(mr_ledger_name_of(r, &c), "dir/c");
    mr_ledger_reader_close(r);
}

/* Reads what is there: the entries before the error, or before the end, count. */
static mr_code count(size_t *n, mr_status *st)
{
    mr_ledger_reader *r = NULL;
    mr_ledger_entry e;
    *n = 0;
    mr_code rc = mr_ledger_open(file_name(), &r, st);
    while (rc == MR_OK && (rc = mr_ledger_next(r, &e, st)) == MR_OK)
        ++*n;
    mr_ledger_reader_close(r);
    return rc;
}

static size_t small_ledger(unsigned char *bytes, size_t room)
{
    mr_status st;
    mr_ledger *l = create(false);
    for (uint64_t i = 0; i < 40; i++) {
        mr_identity id = record(i);
        mr_ok(mr_ledger_name(l, &id, "name", &st), &st);
        mr_ok(mr_ledger_add(l, &id, 1, &st), &st);
    }
    mr_ok(mr_ledger_close(l, &st), &st);
    size_t size = read_all(bytes, room);
    mr_check(size < room);
    return size;
}

MR_TEST(a_ledger_that_is_cut_says_so_at_any_byte)
{
    unsigned char bytes[8192];
    size_t size = small_ledger(bytes, sizeof bytes), n;
    for (size_t cut = 0; cut < size; cut++) {
        mr_status st;
        write_all(bytes, cut);
        mr_code_is(count(&n, &st), MR_DATA_LOSS, &st);
        mr_check(n == 0 || (n == 40 && cut + 12 >= size));
        mr_has_str(st.message, cut < 16 ? "not a ledger" : n ? "stops after 40 entries" : "stops");
    }
}

MR_TEST(every_damaged_byte_is_met)
{
    unsigned char bytes[8192];
    size_t size = small_ledger(bytes, sizeof bytes), n;
    for (size_t at = 0; at < size; at++) {
        mr_status st;
        bytes[at] ^= 4;
        write_all(bytes, size);
        mr_code_is(count(&n, &st), at == 8 ? MR_INVALID_ARGUMENT : MR_DATA_LOSS, &st);
        bytes[at] ^= 4;
    }
    mr_status st;
    bytes[size] = 0;
    write_all(bytes, size + 1);
    mr_code_is(count(&n, &st), MR_DATA_LOSS, &st);
    mr_has_str(st.message, "bytes follow");
    mr_eq_u64(n, 40);
}

MR_TEST(another_version_is_named)
{
    unsigned char bytes[8192];
    size_t size = small_ledger(bytes, sizeof bytes), n;
    mr_status st;
    bytes[8] = 9;
    write_all(bytes, size);
    mr_code_is(count(&n, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "version 9; this program reads version 1");
}

MR_TEST(an_entry_has_a_most)
{
    mr_status st;
    mr_identity id = {0};
    mr_ledger *l = create(false);
    mr_code_is(mr_ledger_add(l, &id, ((size_t)1 << 26) + 1, &st), MR_INVALID_ARGUMENT, &st);
    mr_ok(mr_ledger_add(l, &id, 1, &st), &st);
    mr_ok(mr_ledger_close(l, &st), &st);
}

static mr_code write_some(mr_status *st)
{
    mr_ledger *l = NULL;
    MR_TRY(mr_ledger_create(file_name(), false, &l, st));
    mr_code rc = MR_OK;
    for (uint64_t i = 0; i < 20000 && rc == MR_OK; i++) {
        mr_identity id = record(i);
        rc = i % 1000 ? MR_OK : mr_ledger_name(l, &id, "name", st);
        if (rc == MR_OK)
            rc = mr_ledger_add(l, &id, 1, st);
    }
    mr_status why;
    mr_code ended = mr_ledger_close(l, &why);
    if (rc == MR_OK && ended != MR_OK)
        *st = why;
    return rc == MR_OK ? ended : rc;
}

MR_TEST(failing_allocations)
{
    mr_fault_each_allocation(n)
    {
        mr_status st;
        size_t entries;
        if (mr_fault_expect(write_some(&st), &st) == MR_OK)
            (void)mr_fault_expect(count(&entries, &st), &st);
    }
}

MR_TEST(failing_system_calls)
{
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EIO, false)
    {
        mr_status st;
        size_t entries;
        if (mr_fault_expect(write_some(&st), &st) == MR_OK)
            (void)mr_fault_expect(count(&entries, &st), &st);
    }
}

MR_TEST(names_of_files_that_cannot_be_opened)
{
    mr_ledger *l = NULL;
    mr_ledger_reader *r = NULL;
    mr_status st;
    mr_code_is(mr_ledger_create("/nonexistent/l", false, &l, &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "/nonexistent/l");
    mr_code_is(mr_ledger_open("/nonexistent/l", &r, &st), MR_NOT_FOUND, &st);
    mr_check(!l && !r);
    mr_ok(mr_ledger_close(NULL, &st), &st);
    mr_ledger_reader_close(NULL);
}

/* ---- of a job ---- */

static char job[MR__LEDGER_JOB];

/* Entry i has i records, of file i. */
static mr_code add_entries(mr_ledger *l, uint64_t from, uint64_t to, mr_status *st)
{
    mr_identity ids[64];
    char name[16];
    for (uint64_t i = from; i < to; i++) {
        for (uint64_t k = 0; k < i; k++)
            ids[k] = (mr_identity){.file = i, .ordinal = k};
        snprintf(name, sizeof name, "file-%d", (int)i);
        if (i > 0)
            MR_TRY(mr_ledger_name(l, ids, name, st));
        MR_TRY(mr_ledger_add(l, ids, i, st));
    }
    return MR_OK;
}

/* A job that was killed after 9 entries, of which 5 are durable, or more. */
static mr_code leave_job(mr_status *st)
{
    mr_ledger *l = NULL;
    MR_TRY(mr__ledger_create_job(file_name(), job, &l, st));
    mr_code rc = add_entries(l, 0, 5, st);
    if (rc == MR_OK)
        rc = mr__ledger_sync(l, st);
    if (rc == MR_OK)
        rc = add_entries(l, 5, 9, st);
    mr_status why;
    mr_code ended = mr_ledger_close(l, rc == MR_OK ? st : &why);
    return rc == MR_OK ? ended : rc;
}

static mr_code continue_job(int64_t entries, mr_status *st)
{
    mr_ledger *l = NULL;
    MR_TRY(mr__ledger_continue_job(file_name(), job, entries, &l, st));
    mr_code rc = add_entries(l, (uint64_t)entries, 9, st);
    mr_status why;
    mr_code ended = mr_ledger_close(l, rc == MR_OK ? st : &why);
    return rc == MR_OK ? ended : rc;
}

static void expect_nine(void)
{
    mr_ledger_reader *r = NULL;
    mr_ledger_entry e;
    mr_status st;
    char name[16];
    mr_ok(mr_ledger_open(file_name(), &r, &st), &st);
    for (int i = 0; i < 9; i++) {
        mr_ok(mr_ledger_next(r, &e, &st), &st);
        mr_eq_i64((int64_t)e.n, i);
        snprintf(name, sizeof name, "file-%d", i);
        for (size_t k = 0; k < e.n; k++) {
            mr_check(e.ids[k].file == (uint64_t)i && e.ids[k].ordinal == k);
            mr_eq_str(mr_ledger_name_of(r, &e.ids[k]), name);
        }
    }
    mr_code_is(mr_ledger_next(r, &e, &st), MR_END, &st);
    mr_ledger_reader_close(r);
}

MR_TEST(a_job_continues_its_ledger_after_any_entry)
{
    mr_status st;
    for (int64_t n = 1; n <= 9; n++) {
        mr_ok(leave_job(&st), &st);
        mr_ok(continue_job(n, &st), &st);
        expect_nine();
        mr_ok(continue_job(n, &st), &st); /* a second time */
        expect_nine();
    }
}

MR_TEST(what_was_synced_is_there)
{
    mr_ledger *l = NULL;
    mr_ledger_reader *r = NULL;
    mr_ledger_entry e;
    mr_status st;
    mr_ok(mr__ledger_create_job(file_name(), job, &l, &st), &st);
    mr_ok(add_entries(l, 0, 5, &st), &st);
    mr_ok(mr__ledger_sync(l, &st), &st);
    mr_ok(mr_ledger_open(file_name(), &r, &st), &st);
    for (int i = 0; i < 5; i++)
        mr_ok(mr_ledger_next(r, &e, &st), &st);
    mr_code_is(mr_ledger_next(r, &e, &st), MR_DATA_LOSS, &st); /* it has no end yet */
    mr_ledger_reader_close(r);
    mr_ok(mr_ledger_close(l, &st), &st);
}

MR_TEST(another_ledger_is_not_continued)
{
    unsigned char bytes[8192], after[8192];
    mr_ledger *l = NULL;
    mr_status st;
    mr_ok(leave_job(&st), &st);
    size_t n = read_all(bytes, sizeof bytes);
    mr_code_is(mr__ledger_continue_job(file_name(), job, 10, &l, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "9 steps");
    mr_has_str(st.message, "step 10");
    mr_code_is(mr__ledger_continue_job(file_name(), "0123456789abcdef", 3, &l, &st),
               MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "another job");
    mr_check(read_all(after, sizeof after) == n && memcmp(bytes, after, n) == 0);
    l = create(true); /* of no job */
    mr_ok(add_entries(l, 0, 5, &st), &st);
    mr_ok(mr_ledger_close(l, &st), &st);
    mr_code_is(mr__ledger_continue_job(file_name(), job, 3, &l, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "another job");
    mr_check(remove(file_name()) == 0);
    mr_code_is(mr__ledger_continue_job(file_name(), job, 3, &l, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "step 3");
}

MR_TEST(a_ledger_has_one_writer)
{
    unsigned char bytes[8192], after[8192];
    mr_ledger *l = NULL, *other = NULL;
    mr_status st;
    mr_ok(mr__ledger_create_job(file_name(), job, &l, &st), &st);
    mr_ok(add_entries(l, 0, 5, &st), &st);
    mr_ok(mr__ledger_sync(l, &st), &st);
    size_t n = read_all(bytes, sizeof bytes);
    mr_code_is(mr_ledger_create(file_name(), true, &other, &st), MR_UNAVAILABLE, &st);
    mr_has_str(st.message, "another run is writing this ledger");
    mr_code_is(mr__ledger_continue_job(file_name(), job, 3, &other, &st), MR_UNAVAILABLE, &st);
    mr_check(read_all(after, sizeof after) == n && memcmp(bytes, after, n) == 0);
    mr_ok(mr_ledger_close(l, &st), &st);
    mr_ok(mr__ledger_continue_job(file_name(), job, 3, &l, &st), &st);
    mr_code_is(mr_ledger_create(file_name(), true, &other, &st), MR_UNAVAILABLE, &st);
    mr_ok(mr_ledger_close(l, &st), &st);
    mr_ok(mr_ledger_create(file_name(), true, &other, &st), &st);
    mr_ok(mr_ledger_close(other, &st), &st);
    mr_ok(mr_ledger_create("/dev/null", true, &l, &st), &st); /* any number of them */
    mr_ok(mr_ledger_create("/dev/null", true, &other, &st), &st);
    mr_ok(mr_ledger_close(l, &st), &st);
    mr_ok(mr_ledger_close(other, &st), &st);
}

MR_TEST(names_are_kept_without_a_file)
{
    const mr_identity of = {.source = 1, .file = 2};
    mr_ledger *l = NULL;
    mr_status st;
    mr_ok(mr__ledger_of_names(&l, &st), &st);
    mr_check(mr_ledger_takes_steps(l) && !mr_ledger_name_set(l, &of));
    mr_ok(mr_ledger_name(l, &of, "a file", &st), &st);
    mr_ok(mr_ledger_add(l, &of, 1, &st), &st);
    mr_eq_str(mr_ledger_name_set(l, &of), "a file");
    mr_ok(mr_ledger_close(l, &st), &st);
}

/* The ledger remains, or the copy is there. */
MR_TEST(failures_while_a_job_continues)
{
    mr_fault_each_allocation(n)
    {
        mr_status st;
        if (mr_fault_expect(leave_job(&st), &st) == MR_OK)
            (void)mr_fault_expect(continue_job(4, &st), &st);
    }
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EIO, false)
    {
        mr_status st;
        if (mr_fault_expect(leave_job(&st), &st) == MR_OK)
            (void)mr_fault_expect(continue_job(4, &st), &st);
    }
}
