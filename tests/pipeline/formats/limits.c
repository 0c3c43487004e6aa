/* SPDX-License-Identifier: Apache-2.0 */
/* Readers at their limits: bytes of a block, reads in flight during a seek, submissions that fail,
 * bytes after the end of a message. */
#include <errno.h>

#include "pipeline/formats/text/csv_reader.h"
#include "pipeline/formats/tfrecord/example.h"
#include "pipeline/formats/reader.h"
#include "tests/fault.h"
#include "tests/pipeline/formats/record_files.h"

static mr_reader *open_reader(const mr_format *format, const char *path, const void *own)
{
    mr_reader *r = NULL;
    mr_status st;
    mr_ok(mr_reader_open(&r, format, path, &(mr_file_opts){.own = own}, &st), &st);
    return r;
}

/* Rows of the first read. */
static size_t first_rows(const mr_format *format, const char *path, const void *own,
                         size_t max_bytes)
{
    mr_reader *r = open_reader(format, path, own);
    mr_array a = {0};
    mr_status st;
    mr_ok(mr_reader_read(r, 1000, max_bytes, &a, &st), &st);
    size_t rows = a.rows;
    mr_array_reset(&a);
    mr_reader_close(r);
    return rows;
}

MR_TEST(a_read_stops_at_its_bytes)
{
    enum { N = 64, SIZE = 100 };
    char record[SIZE + 1];
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    byte_string lines = {0};
    memset(record, 'r', SIZE);
    record[SIZE] = '\n';
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path("records"), NULL, &st), &st);
    for (int i = 0; i < N; i++) {
        mr_ok(mr_tfrecord_writer_append(w, record, SIZE, &st), &st);
        put(&lines, record, sizeof record);
    }
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    write_file(mr_test_path("lines"), lines.data, lines.n);
    const mr_fixed_length_opts fixed = {.record_bytes = SIZE + 1};
    const mr__csv_opts commas = {.sep = ','};
    for (size_t rows = 1; rows <= 5; rows++) {
        mr_eq_u64(first_rows(&mr_format_tfrecord, mr_test_path("records"), NULL, rows * SIZE),
                  rows);
        mr_eq_u64(first_rows(&mr_format_text_line, mr_test_path("lines"), NULL, rows * SIZE), rows);
        mr_eq_u64(first_rows(&mr__format_csv, mr_test_path("lines"), &commas, rows * SIZE), rows);
        mr_eq_u64(
            first_rows(&mr_format_fixed_length, mr_test_path("lines"), &fixed, rows * (SIZE + 1)),
            rows);
    }
    mr_eq_u64(first_rows(&mr_format_tfrecord, mr_test_path("records"), NULL, 1), 1);
    mr_eq_u64(first_rows(&mr_format_text_line, mr_test_path("lines"), NULL, 1), 1);
    mr_eq_u64(first_rows(&mr_format_fixed_length, mr_test_path("lines"), &fixed, 1), 1);
}

/* ---- a file of several reads in flight, of records that know their number ---- */

enum { RECORD = 4096, RECORDS = 2000 };
static const mr_fixed_length_opts numbered = {.record_bytes = RECORD};

static const char *numbered_file(void)
{
    uint64_t *all = malloc((size_t)RECORD * RECORDS);
    mr_check(all != NULL);
    for (size_t i = 0; i < (size_t)RECORD * RECORDS / 8; i++)
        all[i] = (uint64_t)i * 0x9e3779b97f4a7c15u;
    write_file(mr_test_path("numbered"), all, (size_t)RECORD * RECORDS);
    free(all);
    return mr_test_path("numbered");
}

/* The records of a are those from number `from` on. */
static void check_records(const mr_array *a, uint64_t from)
{
    const mr_bytes *v = a->data;
    for (size_t i = 0; i < a->rows; i++) {
        mr_eq_u64(v[i].size, RECORD);
        for (size_t k = 0; k < RECORD / 8; k++) {
            uint64_t word;
            memcpy(&word, v[i].data + 8 * k, 8);
            if (word != ((from + i) * (RECORD / 8) + k) * 0x9e3779b97f4a7c15u)
                mr_fail_test("record %llu has other bytes", (unsigned long long)(from + i));
        }
    }
}

static void read_on(mr_reader *r, uint64_t from, size_t want)
{
    mr_array a = {0};
    mr_status st;
    mr_ok(mr_reader_read(r, want, 1 << 20, &a, &st), &st);
    check_records(&a, from);
    mr_array_reset(&a);
}

MR_TEST(seeking_with_reads_in_flight_gives_the_bytes_that_stand_there)
{
    const char *path = numbered_file();
    uint64_t random = mr_test_seed();
    for (int way = 0; way < 2; way++) {
        mr_fault_uncached();
        if (way)
            mr_fault_no_uring();
        mr_reader *r = open_reader(&mr_format_fixed_length, path, &numbered);
        read_on(r, 0, 3);
        for (int i = 0; i < 60; i++) {
            int64_t n = (int64_t)(mr_test_random(&random) % RECORDS);
            mr_status st;
            mr_file_position p = {.offset = n * RECORD, .record = n};
            mr_ok(mr_reader_seek(r, &p, &st), &st);
            read_on(r, (uint64_t)n, 1 + (size_t)(mr_test_random(&random) % 40));
        }
        mr_reader_close(r);
        mr_fault_off();
    }
}

/* Reads all; false after an error, which must be the planned one. */
static bool read_all(const char *path, mr_code planned)
{
    mr_reader *r = NULL;
    mr_array a = {0};
    mr_status st;
    uint64_t next = 0;
    mr_code rc =
        mr_reader_open(&r, &mr_format_fixed_length, path, &(mr_file_opts){.own = &numbered}, &st);
    while (rc == MR_OK && (rc = mr_reader_read(r, 500, 1 << 18, &a, &st)) == MR_OK) {
        check_records(&a, next);
        next += a.rows;
        mr_array_reset(&a);
    }
    mr_reader_close(r);
    if (rc == MR_END)
        mr_eq_u64(next, RECORDS);
    else
        mr_check(mr_fault_seen() && rc == planned && st.message[0]);
    return rc == MR_END;
}

MR_TEST(reads_in_flight_that_fail_are_errors_or_are_read_again)
{
    static const int errors[] = {EIO, EINTR, EAGAIN, ECANCELED, ENOMEM};
    const char *path = numbered_file();
    mr_fault_uncached();
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        mr_code planned = mr_fail_errno(NULL, errors[i], "a fault");
        mr_test_context("%s", strerror(errors[i]));
        /* What a completion did not bring is read again, whatever it said. */
        mr_fault_exact(12);
        mr_fault_each(n, MR_FAULT_COMPLETION, errors[i], false) mr_check(read_all(path, planned));
        if (errors[i] != EINTR && errors[i] != EAGAIN)
            mr_fault_each(n, MR_FAULT_SYSTEM_CALL, errors[i], false)(void) read_all(path, planned);
    }
    mr_fault_short_reads(mr_test_seed());
    mr_check(read_all(path, MR_OK));
    mr_fault_off();
}

/* ---- Examples ---- */

MR_TEST(bytes_after_an_example_are_no_part_of_it)
{
    static const int64_t seven = 7;
    mr_example_value v = {.name = "a", .name_size = 1, .dtype = MR_INT64, .values = &seven, .n = 1};
    uint8_t *bytes = NULL;
    size_t room = 0, size = 0;
    mr_status st;
    mr_ok(mr_example_encode(&v, 1, &bytes, &room, &size, &st), &st);
    mr_ok(mr_example_visit(bytes, size, NULL, NULL, &st), &st);
    static const uint8_t stray[] = {0x00, 0x07, 0x0a, 0x80, 0xff};
    for (size_t i = 0; i < sizeof stray; i++) {
        uint8_t *longer = mr_malloc(size + 1);
        memcpy(longer, bytes, size);
        longer[size] = stray[i];
        mr_test_context("byte 0x%02x after it", stray[i]);
        mr_code_is(mr_example_visit(longer, size + 1, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
        mr_free(longer);
    }
    mr_free(bytes);
}
