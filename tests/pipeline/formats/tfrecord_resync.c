/* SPDX-License-Identifier: Apache-2.0 */
/* Reading on after damage. */
#include <errno.h>
#include <inttypes.h>

#include "pipeline/crc32c.h"
#include "pipeline/memory_bound.h"
#include "tests/fault.h"
#include "tests/pipeline/formats/record_files.h"

/* What happened: "a|b|" for records, "<offset-end#record:bytes>" for what was skipped. */
static byte_string seen, bad;
static size_t chunk; /* bytes of one that is read; 0: as many as otherwise */

static mr_code take_bytes(void *ctx, const mr_tfrecord_damage *d, const void *p, size_t n,
                          mr_status *st)
{
    (void)ctx;
    (void)d;
    (void)st;
    put(&bad, p, n);
    return MR_OK;
}

static mr_code take_skipped(void *ctx, const mr_tfrecord_damage *d, mr_status *st)
{
    char text[128];
    (void)st;
    int n = snprintf(text, sizeof text, "<%" PRId64 "-%" PRId64 "#%" PRId64 ">", d->offset, d->end,
                     d->record);
    put(&seen, text, (size_t)n);
    const byte_string *whole = ctx;
    mr_eq_u64(bad.n, d->end - d->offset);
    mr_eq_mem(bad.data, whole->data + d->offset, bad.n);
    bad.n = 0;
    return MR_OK;
}

/* Reads the bytes as a file, going past damage. */
static const char *read_past(byte_string *b, mr_compression c, size_t want)
{
    mr_status st;
    mr_reader *r = NULL;
    mr_array a = {0};
    mr_code rc;
    const char *path = mr_test_path("damaged");
    const mr_tfrecord_read_opts own = {
        .skip_corrupt = true, .bytes = take_bytes, .skipped = take_skipped, .ctx = b};
    byte_string packed = c == MR_COMPRESSION_GZIP ? deflated(b->data, b->n, 31) : *b;
    write_file(path, packed.data, packed.n);
    seen.n = bad.n = 0;
    mr_ok(mr_reader_open(&r, &mr_format_tfrecord, path,
                         &(mr_file_opts){.compression = c, .own = &own, .chunk = chunk}, &st),
          &st);
    while ((rc = mr_reader_read(r, want, 1 << 18, &a, &st)) == MR_OK) {
        put_rows(&seen, &a);
        mr_array_reset(&a);
    }
    mr_code_is(rc, MR_END, &st);
    mr_reader_close(r);
    put(&seen, "", 1);
    return (const char *)seen.data;
}

/* ---- with a memory limit, and without ---- */

static void put_head(byte_string *b, uint64_t size)
{
    uint8_t head[12];
    for (int i = 0; i < 8; i++)
        head[i] = (uint8_t)(size >> 8 * i);
    uint32_t crc = mr_crc32c_mask(mr_crc32c(head, 8));
    for (int i = 0; i < 4; i++)
        head[8 + i] = (uint8_t)(crc >> 8 * i);
    put(b, head, 12);
}

static void put_record(byte_string *b, const byte_string *data)
{
    uint32_t crc = mr_crc32c_mask(data->n ? mr_crc32c(data->data, data->n) : 0);
    put_head(b, data->n);
    put(b, data->data, data->n);
    for (int i = 0; i < 4; i++)
        put(b, &(uint8_t){(uint8_t)(crc >> 8 * i)}, 1);
}

/* Data of a record: text, records, and headers that claim this and that. */
static byte_string random_data(uint64_t *random, int depth)
{
    byte_string b = {0};
    static const size_t sizes[] = {1, 30, 300, 3000};
    size_t n = mr_test_random(random) % sizes[mr_test_random(random) % 4];
    while (b.n < n) {
        uint64_t what = mr_test_random(random) % 8;
        if (what == 0 && depth < 3) {
            byte_string inner = random_data(random, depth + 1);
            put_record(&b, &inner);
        } else if (what == 1)
            put_head(&b, mr_test_random(random) % (2 * n));
        else
            put(&b, "some bytes of no meaning", 1 + mr_test_random(random) % 24);
    }
    return b;
}

/* A file of some records, damaged here and there. */
static byte_string random_file(uint64_t *random)
{
    byte_string b = {0};
    size_t n = 1 + mr_test_random(random) % 12, times = mr_test_random(random) % 5;
    for (size_t i = 0; i < n; i++) {
        byte_string data = random_data(random, 0);
        put_record(&b, &data);
    }
    for (; times-- > 0 && b.n > 1;) {
        size_t at = mr_test_random(random) % b.n, left = b.n - at;
        size_t part = 1 + mr_test_random(random) % (left < 40 ? left : 40);
        byte_string more = {0};
        switch (mr_test_random(random) % 5) {
        case 0:
            b.data[at] ^= (uint8_t)(1 + mr_test_random(random) % 255);
            break;
        case 1: /* missing */
            memmove(b.data + at, b.data + at + part, left - part);
            b.n -= part;
            break;
        case 2: /* the end is */
            b.n -= left < 60 ? left : 0;
            break;
        case 3: /* something between */
            put(&more, b.data, at);
            put_head(&more, mr_test_random(random) % (left + 100));
            put(&more, b.data + at, left);
            b = more;
            break;
        default:
            memset(b.data + at, (int)mr_test_random(random) % 256, part);
        }
    }
    return b;
}

/* Bytes beyond a small part of the limit are examined without being kept: the records found, the
 * messages and the bytes skipped are the same. */
MR_TEST_SLOW(a_memory_limit_changes_nothing_after_damage)
{
    uint64_t random = mr_test_seed();
    for (int i = 0; i < (mr_test_long() ? 20000 : 500); i++) {
        byte_string b = random_file(&random), want = {0};
        read_past(&b, MR_COMPRESSION_NONE, 9);
        put(&want, seen.data, seen.n);
        for (int way = 0; way < 4; way++) {
            size_t rows = 1 + mr_test_random(&random) % 9;
            uint64_t bound = 64 * (16 + mr_test_random(&random) % 500);
            chunk = (size_t)1 << (4 + mr_test_random(&random) % 6);
            mr_test_context("file %d of seed %" PRIu64
                            ", %zu bytes, way %d, chunk %zu, limit %" PRIu64,
                            i, mr_test_seed(), b.n, way, chunk, bound);
            if (way & 1)
                mr_fault_short_reads(mr_test_random(&random));
            mr__memory_bound_set(way & 2 ? bound : SIZE_MAX);
            read_past(&b, MR_COMPRESSION_NONE, rows);
            mr_eq_u64(seen.n, want.n);
            mr_eq_mem(seen.data, want.data, want.n);
            mr__memory_bound_set(SIZE_MAX);
            mr_fault_off();
            chunk = 0;
        }
    }
    mr_test_context("%s", "");
}

/* ---- one damage each ---- */

static const char *const five[] = {"zero", "one", "two", "three", "four"};
/* at               0       20      39      58       79 .. 99 */

/* The five records with n bytes at `at` replaced by `by`. */
static byte_string five_with(size_t at, size_t n, const char *by)
{
    byte_string all = framed(five, 5), b = {0};
    put(&b, all.data, at);
    put(&b, by, strlen(by));
    put(&b, all.data + at + n, all.n - at - n);
    return b;
}

static void expect(size_t at, size_t n, const char *by, const char *want)
{
    static const mr_compression ways[] = {MR_COMPRESSION_NONE, MR_COMPRESSION_GZIP};
    mr_test_context("%zu bytes at %zu are '%s'", n, at, by);
    for (size_t way = 0; way < 2; way++)
        for (size_t rows = 1; rows <= 9; rows += 8) {
            byte_string b = five_with(at, n, by);
            mr_eq_str(read_past(&b, ways[way], rows), want);
        }
}

MR_TEST(the_next_valid_record_is_found)
{
    expect(0, 0, "", "zero|one|two|three|four|");
    expect(39 + 12, 1, "T", "zero|one|<39-58#2>three|four|");
    expect(39, 1, "T", "zero|one|<39-58#2>three|four|");
    expect(0, 1, "T", "<0-20#0>one|two|three|four|");
    expect(79 + 13, 1, "T", "zero|one|two|three|<79-99#4>");
    expect(79, 1, "T", "zero|one|two|three|<79-99#4>");
    expect(38, 2, "xx", "zero|<20-58#1>three|four|");
    expect(0, 99, "nothing of it is left", "<0-21#0>");
}

MR_TEST(bytes_may_be_missing_or_too_many)
{
    expect(39 + 12, 1, "", "zero|one|<39-57#2>three|four|");
    expect(39 + 12, 0, "more", "zero|one|<39-62#2>three|four|");
    expect(20, 19, "", "zero|two|three|four|");
    expect(39, 0, "between", "zero|one|<39-46#2>two|three|four|");
    expect(39, 0, "x", "zero|one|<39-40#2>two|three|four|");
    expect(91, 8, "", "zero|one|two|three|<79-91#4>");
    expect(95, 4, "", "zero|one|two|three|<79-95#4>");
}

MR_TEST(a_record_within_a_damaged_one_is_data)
{
    byte_string inner = framed(five, 1);
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    const char *path = mr_test_path("nested");
    byte_string body = {0};
    put(&body, "xx", 2);
    put(&body, inner.data, inner.n);
    mr_ok(mr_tfrecord_writer_open(&w, path, NULL, &st), &st);
    mr_ok(mr_tfrecord_writer_append(w, body.data, body.n, &st), &st);
    mr_ok(mr_tfrecord_writer_append(w, "last", 4, &st), &st);
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    byte_string b = read_file(path);
    b.data[12] ^= 1; /* its length is good, and shows where the next record is */
    mr_eq_str(read_past(&b, MR_COMPRESSION_NONE, 9), "<0-38#0>last|");
    b.n = 38; /* or that it is the last one */
    mr_eq_str(read_past(&b, MR_COMPRESSION_NONE, 9), "<0-38#0>");
}

/* The last byte of the header that no record follows is the first of a record. */
MR_TEST(a_record_may_begin_in_what_looked_like_a_header)
{
    uint8_t head[12] = {[5] = 1}; /* of more bytes than there are */
    uint32_t crc = mr_crc32c_mask(mr_crc32c(head, 8));
    for (int i = 0; i < 4; i++)
        head[8 + i] = (uint8_t)(crc >> 8 * i);
    char text[256] = "", want[300];
    memset(text, 'r', head[11]);
    const char *const records[] = {text};
    byte_string record = framed(records, 1), b = {0};
    put(&b, "x", 1);
    put(&b, head, 11);
    put(&b, record.data, record.n);
    snprintf(want, sizeof want, "<0-12#0>%s|", text);
    mr_eq_str(read_past(&b, MR_COMPRESSION_NONE, 9), want);
}

MR_TEST(damage_across_chunks_is_gone_past)
{
    enum { N = 4000, SIZE = 1000 };
    static char record[SIZE];
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    const char *path = mr_test_path("long");
    mr_ok(mr_tfrecord_writer_open(&w, path, NULL, &st), &st);
    for (int i = 0; i < N; i++) {
        memset(record, 'a' + i % 26, sizeof record);
        mr_ok(mr_tfrecord_writer_append(w, record, sizeof record, &st), &st);
    }
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    byte_string b = read_file(path);
    memset(b.data + (size_t)500 * (SIZE + 16) + 1, 0x55, (size_t)3000 * (SIZE + 16));
    for (int uncached = 0; uncached < 2; uncached++) {
        if (uncached)
            mr_fault_uncached();
        const char *got = read_past(&b, MR_COMPRESSION_NONE, 100);
        mr_fault_off();
        mr_has_str(got, "<508000-3557016#500>");
        mr_eq_u64(strlen(got), (N - 3001) * (size_t)(SIZE + 1) + strlen("<508000-3557016#500>"));
    }
}

MR_TEST(errors_in_records_behind_damage_say_the_right_record)
{
    static const struct {
        const char *text;
        int64_t record, offset;
    } want[] = {{"zero", 0, 0}, {"one", 1, 20}, {"three", 3, 58}, {"four", 4, 79}};
    mr_status st;
    mr_reader *r = NULL;
    mr_array a = {0};
    byte_string b = five_with(39, 1, "T");
    const char *path = mr_test_path("damaged");
    const mr_tfrecord_read_opts own = {.skip_corrupt = true};
    write_file(path, b.data, b.n);
    mr_ok(mr_reader_open(&r, &mr_format_tfrecord, path, &(mr_file_opts){.own = &own}, &st), &st);
    for (size_t n = 0; n < 4; n++) {
        mr_ok(mr_reader_read(r, 1, 1 << 18, &a, &st), &st);
        const mr_bytes *v = a.data;
        mr_eq_mem(v->data, want[n].text, v->size);
        mr_fail(&st, MR_INTERNAL, "x");
        mr_buffer_locate(a.owner, v->data + 1, &st);
        mr_eq_i64(st.record, want[n].record);
        mr_eq_i64(st.offset, want[n].offset);
        mr_array_reset(&a);
    }
    mr_reader_close(r);
}

static mr_code refuse(void *ctx, const mr_tfrecord_damage *d, mr_status *st)
{
    (void)ctx;
    return mr_fail(st, MR_ABORTED, "enough: %s", d->what);
}

MR_TEST(who_is_told_may_end_it)
{
    mr_status st;
    mr_reader *r = NULL;
    mr_array a = {0};
    byte_string b = five_with(39 + 12, 1, "T");
    const char *path = mr_test_path("damaged");
    const mr_tfrecord_read_opts own = {.skip_corrupt = true, .skipped = refuse};
    write_file(path, b.data, b.n);
    mr_ok(mr_reader_open(&r, &mr_format_tfrecord, path, &(mr_file_opts){.own = &own}, &st), &st);
    mr_ok(mr_reader_read(r, 9, 1 << 18, &a, &st), &st);
    mr_eq_u64(a.rows, 2);
    mr_array_reset(&a);
    mr_code_is(mr_reader_read(r, 9, 1 << 18, &a, &st), MR_ABORTED, &st);
    mr_has_str(st.message, "enough: corrupted record at 51");
    mr_eq_i64(mr_reader_read(r, 9, 1 << 18, &a, NULL), MR_END);
    mr_reader_close(r);
}

static void read_with_faults(void)
{
    mr_status st;
    mr_reader *r = NULL;
    mr_array a = {0};
    const mr_tfrecord_read_opts own = {.skip_corrupt = true};
    mr_code rc = mr_fault_expect(mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("damaged"),
                                                &(mr_file_opts){.own = &own, .chunk = chunk}, &st),
                                 &st);
    for (int i = 0; rc == MR_OK && i < 20; i++) {
        rc = mr_fault_expect(mr_reader_read(r, 1, 1 << 18, &a, &st), &st);
        mr_array_reset(&a);
    }
    mr_reader_close(r);
}

MR_TEST(every_allocation_and_read_may_fail)
{
    byte_string b = five_with(38, 2, "xx");
    write_file(mr_test_path("damaged"), b.data, b.n);
    for (int limited = 0; limited < 2; limited++) {
        chunk = limited ? 16 : 0;
        mr__memory_bound_set(limited ? 64 * 16 : SIZE_MAX);
        mr_fault_each_allocation(n) read_with_faults();
        mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EIO, false) read_with_faults();
        mr_fault_each(n, MR_FAULT_SYSTEM_CALL, EINTR, false) read_with_faults();
    }
    mr__memory_bound_set(SIZE_MAX);
    mr_fault_short_reads(3);
    read_with_faults();
    mr_fault_off();
}
