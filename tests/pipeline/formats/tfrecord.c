/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/tfrecord.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "pipeline/log.h"
#include "pipeline/system/system.h"
#include "pipeline/crc32c.h"
#include "tests/pipeline/formats/record_files.h"
#include "tests/pipeline/memory/fail_nth.h"

MR_ONE_THREAD;

static const char *const three[] = {"first", "", "third record"};

static void expect(const char *path, mr_compression c, const char *rows, mr_code end,
                   const char *message, int64_t record, int64_t offset)
{
    static const size_t wants[] = {1, 3, 1024};
    for (size_t i = 0; i < 3; i++) {
        mr_status st;
        mr_code got;
        mr_eq_str(all_records(path, c, wants[i], &got, &st), rows);
        mr_code_is(got, end, &st);
        if (end >= 0)
            continue;
        mr_has_str(st.message, message);
        mr_has_str(st.file, path);
        mr_eq_i64(st.record, record);
        mr_eq_i64(st.offset, offset);
    }
}

MR_TEST(foo_is_written_as_the_format_says)
{
    const char *const foo[] = {"foo"};
    byte_string b = framed(foo, 1);
    mr_eq_u64(b.n, 19);
    mr_eq_mem(b.data,
              "\x03\0\0\0\0\0\0\0\xb0\x99\x49\x0e"
              "foo\x61\x8a\xbe\xfe",
              19);
}

MR_TEST(records_come_back_in_every_compression)
{
    for (int c = MR_COMPRESSION_NONE; c <= MR_COMPRESSION_ZSTD; c++) {
        mr_status st;
        mr_tfrecord_writer *w = NULL;
        const char *path = mr_test_path("f");
        mr_test_context("compression %s", mr_compression_name((mr_compression)c));
        mr_tfrecord_writer_opts opts = {.compression = (mr_compression)c, .sync = true};
        mr_ok(mr_tfrecord_writer_open(&w, path, &opts, &st), &st);
        mr_check(access(path, F_OK) != 0); /* not there before it is complete */
        for (size_t i = 0; i < 3; i++)
            mr_ok(mr_tfrecord_writer_append(w, three[i], strlen(three[i]), &st), &st);
        mr_ok(mr_tfrecord_writer_close(w, &st), &st);
        expect(path, (mr_compression)c, "first||third record|", MR_END, "", 0, 0);
        unlink(path);
    }
}

MR_TEST(every_cut_of_a_file_ends_it_cleanly_or_is_data_loss)
{
    byte_string b = framed(three, 3);
    const size_t starts[] = {0, 21, 37, 65};
    const char *const rows[] = {"", "first|", "first||", "first||third record|"};
    for (size_t cut = 0; cut <= b.n; cut++) {
        size_t k = 0;
        while (k < 3 && starts[k + 1] <= cut)
            k++;
        mr_test_context("cut at %zu", cut);
        write_file(mr_test_path("cut"), b.data, cut);
        bool clean = cut - starts[k] < 12;
        expect(mr_test_path("cut"), MR_COMPRESSION_NONE, rows[k], clean ? MR_END : MR_DATA_LOSS,
               "truncated record at", (int64_t)k, (int64_t)starts[k]);
        for (int bits = 15; bits <= 31; bits += 16) {
            byte_string z = deflated(b.data, cut, bits);
            write_file(mr_test_path("cut.z"), z.data, z.n);
            expect(mr_test_path("cut.z"), bits == 31 ? MR_COMPRESSION_GZIP : MR_COMPRESSION_ZLIB,
                   rows[k], clean ? MR_END : MR_DATA_LOSS, "truncated record at", (int64_t)k,
                   (int64_t)starts[k]);
        }
    }
}

MR_TEST(every_flipped_bit_is_data_loss_at_its_record)
{
    byte_string b = framed(three, 3);
    const size_t starts[] = {0, 21, 37, 65};
    const char *const rows[] = {"", "first|", "first||"};
    for (size_t at = 0; at < b.n; at++) {
        size_t k = 0;
        while (starts[k + 1] <= at)
            k++;
        b.data[at] ^= (uint8_t)(1u << at % 8);
        write_file(mr_test_path("flip"), b.data, b.n);
        char text[64];
        size_t in = at - starts[k];
        snprintf(text, sizeof text, "corrupted record at %zu", starts[k] + (in < 12 ? 0 : 12));
        mr_test_context("byte %zu", at);
        expect(mr_test_path("flip"), MR_COMPRESSION_NONE, rows[k], MR_DATA_LOSS, text, (int64_t)k,
               (int64_t)starts[k]);
        b.data[at] ^= (uint8_t)(1u << at % 8);
    }
}

MR_TEST(a_huge_length_with_a_right_checksum_asks_for_no_memory)
{
    /* 2^62 bytes, its checksum, and a few bytes of data. */
    uint8_t head[40] = {0, 0, 0, 0, 0, 0, 0, 0x40};

    uint32_t crc = mr_crc32c_mask(mr_crc32c(head, 8));
    memcpy(head + 8, &crc, 4);
    byte_string b = framed(three, 1);
    put(&b, head, sizeof head);
    write_file(mr_test_path("huge"), b.data, b.n);
    expect(mr_test_path("huge"), MR_COMPRESSION_NONE, "first|", MR_DATA_LOSS,
           "truncated record at 21", 1, 21);
    byte_string z = deflated(b.data, b.n, 31);
    write_file(mr_test_path("huge.gz"), z.data, z.n);
    expect(mr_test_path("huge.gz"), MR_COMPRESSION_GZIP, "first|", MR_DATA_LOSS,
           "truncated record at 21", 1, 21);
}

MR_TEST(gzip_members_follow_one_another_and_garbage_behind_them_is_data_loss)
{
    byte_string b = framed(three, 3), file = {0};
    byte_string x = deflated(b.data, 30, 31), y = deflated(b.data + 30, b.n - 30, 31);
    put(&file, x.data, x.n);
    put(&file, y.data, y.n);
    write_file(mr_test_path("m"), file.data, file.n);
    expect(mr_test_path("m"), MR_COMPRESSION_GZIP, "first||third record|", MR_END, "", 0, 0);
    for (int n = 1; n <= 3; n++) {
        put(&file, "x", 1);
        write_file(mr_test_path("m"), file.data, file.n);
        expect(mr_test_path("m"), MR_COMPRESSION_GZIP, "first||third record|", MR_DATA_LOSS,
               "gzip member", 3, 65);
    }
}

MR_TEST(only_the_first_of_several_zlib_streams_is_read)
{
    byte_string b = framed(three, 3);
    byte_string x = deflated(b.data, b.n, 15);
    put(&x, "garbage", 7);
    write_file(mr_test_path("z"), x.data, x.n);
    expect(mr_test_path("z"), MR_COMPRESSION_ZLIB, "first||third record|", MR_END, "", 0, 0);

    /* Strictly, bytes after it are an error. */
    for (size_t after = 0; after < 2; after++) {
        mr_status st;
        mr_code end;
        mr_array a = {0};
        mr_reader *r = NULL;
        mr_file_opts strict = {.compression = MR_COMPRESSION_ZLIB, .strict = true};
        x = deflated(b.data, b.n, 15);
        put(&x, "!", after);
        write_file(mr_test_path("strict"), x.data, x.n);
        mr_ok(mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("strict"), &strict, &st), &st);
        while ((end = mr_reader_read(r, 100, 1 << 20, &a, &st)) == MR_OK)
            mr_array_reset(&a);
        mr_code_is(end, after ? MR_DATA_LOSS : MR_END, &st);
        mr_reader_close(r);
    }
}

MR_TEST(a_missing_gzip_trailer_and_a_wrong_checksum_are_data_loss)
{
    byte_string b = framed(three, 3);
    byte_string x = deflated(b.data, b.n, 31);
    for (size_t cut = 1; cut <= 8; cut++) {
        write_file(mr_test_path("t"), x.data, x.n - cut);
        expect(mr_test_path("t"), MR_COMPRESSION_GZIP, "first||third record|", MR_DATA_LOSS,
               "truncated GZIP stream", 3, 65);
    }
    x.data[x.n - 6] ^= 1;
    write_file(mr_test_path("t"), x.data, x.n);
    expect(mr_test_path("t"), MR_COMPRESSION_GZIP, "first||third record|", MR_DATA_LOSS,
           "incorrect data check", 3, 65);
}

/* Memory of this process that the system knows of, in bytes. */
static size_t resident(void)
{
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    mr_check(f && fscanf(f, "%ld %ld", &all, &pages) == 2);
    fclose(f);
    return (size_t)pages * 4096;
}

MR_TEST_SLOW(a_huge_length_in_a_sparse_file_takes_no_memory)
{
    /* A record of 2 GiB whose length has a right checksum; its data are a hole. */
    const uint64_t size = (uint64_t)2 << 30;
    uint8_t head[12];
    mr_status st;
    for (int i = 0; i < 8; i++)
        head[i] = (uint8_t)(size >> 8 * i);
    uint32_t crc = mr_crc32c_mask(mr_crc32c(head, 8));
    memcpy(head + 8, &crc, 4);
    byte_string b = framed(three, 1);
    put(&b, head, sizeof head);
    write_file(mr_test_path("sparse"), b.data, b.n);
    mr_eq_i64(truncate(mr_test_path("sparse"), (off_t)(b.n + size + 4)), 0);
    mr_reader *r = NULL;
    mr_array a = {0};
    mr_ok(mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("sparse"), NULL, &st), &st);
    mr_ok(mr_reader_read(r, 10, 1 << 18, &a, &st), &st);
    mr_eq_u64(a.rows, 1);
    mr_array_reset(&a);
    size_t before = resident();
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they need terabytes */
    setrlimit(RLIMIT_DATA, &(struct rlimit){(rlim_t)1 << 29, RLIM_INFINITY});
#endif
    mr_code_is(mr_reader_read(r, 10, 1 << 18, &a, &st), MR_DATA_LOSS, &st);
    setrlimit(RLIMIT_DATA, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    mr_has_str(st.message, "corrupted record at 33");
    mr_check(resident() < before + ((size_t)64 << 20));
    mr_reader_close(r);
}

MR_TEST(a_record_of_many_chunks_is_read_whole)
{
    enum { SIZE = 70 << 20 };
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    mr_reader *r = NULL;
    mr_array a = {0};
    uint8_t *data = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 24);
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path("long"), NULL, &st), &st);
    mr_ok(mr_tfrecord_writer_append(w, "first", 5, &st), &st);
    mr_ok(mr_tfrecord_writer_append(w, data, SIZE, &st), &st);
    mr_ok(mr_tfrecord_writer_append(w, "last", 4, &st), &st);
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    mr_ok(mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("long"), NULL, &st), &st);
    static const size_t sizes[] = {5, SIZE, 4};
    for (int i = 0; i < 3; i++) {
        mr_ok(mr_reader_read(r, 1, 1 << 18, &a, &st), &st);
        const mr_bytes *v = a.data;
        mr_eq_u64(v->size, sizes[i]);
        mr_eq_mem(v->data, i == 1 ? (const void *)data : i ? "last" : "first", v->size);
        mr_array_reset(&a);
    }
    mr_eq_i64(mr_reader_read(r, 1, 1 << 18, &a, &st), MR_END);
    mr_reader_close(r);
    free(data);
}

static char logged[2048];
static void keep_log(void *ctx, mr_log_level level, const char *message)
{
    (void)ctx;
    if (level == MR_LOG_WARNING)
        snprintf(logged, sizeof logged, "%s", message);
}

MR_TEST(stray_bytes_at_the_end_are_warned_of_and_with_strict_data_loss)
{
    byte_string b = framed(three, 3);
    mr_log_set(keep_log, NULL, MR_LOG_WARNING);
    for (size_t n = 0; n <= 11; n++) {
        mr_status st;
        mr_reader *r = NULL;
        int64_t skipped;
        char text[64];
        write_file(mr_test_path("stray"), b.data, b.n);
        logged[0] = '\0';
        mr_test_context("%zu bytes", n);
        expect(mr_test_path("stray"), MR_COMPRESSION_NONE, "first||third record|", MR_END, "", 0,
               0);
        snprintf(text, sizeof text, "%zu bytes after its 3 records", n);
        mr_has_str(logged, n ? text : "");
        mr_check(n || !logged[0]);
        mr_ok(mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("stray"),
                             &(mr_file_opts){.strict = true}, &st),
              &st);
        mr_code rc = mr_reader_skip(r, 10, &skipped, &st);
        mr_eq_i64(skipped, 3);
        mr_code_is(rc, n ? MR_DATA_LOSS : MR_OK, &st);
        if (n)
            mr_eq_i64(st.offset, 65);
        mr_reader_close(r);
        put(&b, "x", 1);
    }
}

MR_TEST(wrong_compression_is_data_loss)
{
    byte_string b = framed(three, 3);
    write_file(mr_test_path("plain"), b.data, b.n);
    expect(mr_test_path("plain"), MR_COMPRESSION_GZIP, "", MR_DATA_LOSS, "GZIP", 0, 0);
    expect(mr_test_path("plain"), MR_COMPRESSION_ZLIB, "", MR_DATA_LOSS, "ZLIB", 0, 0);
    expect(mr_test_path("plain"), MR_COMPRESSION_ZSTD, "", MR_DATA_LOSS, "ZSTD", 0, 0);
    byte_string x = deflated(b.data, b.n, 31);
    write_file(mr_test_path("gz"), x.data, x.n);
    expect(mr_test_path("gz"), MR_COMPRESSION_NONE, "", MR_DATA_LOSS, "corrupted record at 0", 0,
           0);
}

MR_TEST(a_missing_file_is_not_found_and_a_directory_is_refused)
{
    mr_status st;
    mr_reader *r = NULL;
    mr_code_is(mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("none"), NULL, &st),
               MR_NOT_FOUND, &st);
    mr_has_str(st.file, "none");
    mr_code_is(mr_reader_open(&r, &mr_format_tfrecord, mr_test_dir(), NULL, &st),
               MR_FAILED_PRECONDITION, &st);
}

/* Record i: its number, then bytes derived from it, of sizes that cross chunks and slots. */
static size_t sized(uint8_t *to, uint64_t i, uint64_t *state)
{
    size_t n = 8 + mr_test_random(state) % (i % 10 == 0 ? 900000 : 3000);
    memset(to, (int)i, n);
    memcpy(to, &i, 8);
    return n;
}

MR_TEST(seeking_to_every_position_gives_the_rest_of_the_file)
{
    static uint8_t record[1 << 20];
    enum { N = 60 };
    for (int c = MR_COMPRESSION_NONE; c <= MR_COMPRESSION_ZSTD; c += 3) {
        mr_status st;
        mr_tfrecord_writer *w = NULL;
        mr_reader *r = NULL, *other = NULL;
        mr_file_opts opts = {.compression = (mr_compression)c};
        mr_file_position at[N + 1];
        uint64_t state = mr_test_seed(), i = 0;
        mr_ok(mr_tfrecord_writer_open(&w, mr_test_path("s"),
                                      &(mr_tfrecord_writer_opts){.compression = (mr_compression)c},
                                      &st),
              &st);
        for (i = 0; i < N; i++)
            mr_ok(mr_tfrecord_writer_append(w, record, sized(record, i, &state), &st), &st);
        mr_ok(mr_tfrecord_writer_close(w, &st), &st);
        mr_ok(mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("s"), &opts, &st), &st);
        mr_ok(mr_reader_open(&other, &mr_format_tfrecord, mr_test_path("s"), &opts, &st), &st);
        for (i = 0; i <= N; i++) {
            mr_array a = {0};
            mr_reader_position(r, &at[i]);
            mr_eq_i64(at[i].record, i);
            mr_code rc = mr_reader_read(r, 1, 1 << 18, &a, &st);
            mr_code_is(rc, i < N ? MR_OK : MR_END, &st);
            if (i < N)
                mr_eq_mem(((mr_bytes *)a.data)->data, &i, 8);
            mr_array_reset(&a);
        }
        for (int k = 0; k < 40; k++) {
            mr_array a = {0};
            i = mr_test_random(&state) % (N + 1);
            mr_ok(mr_reader_seek(other, &at[i], &st), &st);
            mr_code rc = mr_reader_read(other, 5, 1 << 18, &a, &st);
            mr_code_is(rc, i < N ? MR_OK : MR_END, &st);
            if (i < N)
                mr_eq_mem(((mr_bytes *)a.data)->data, &i, 8);
            mr_array_reset(&a);
        }
        int64_t skipped = 0;
        mr_ok(mr_reader_seek(other, &at[0], &st), &st);
        mr_ok(mr_reader_skip(other, 7, &skipped, &st), &st);
        mr_eq_i64(skipped, 7);
        mr_file_position now;
        mr_reader_position(other, &now);
        mr_eq_i64(now.offset, at[7].offset);
        mr_reader_close(r);
        mr_reader_close(other);
    }
}

MR_TEST(views_stay_good_while_their_column_is_held)
{
    static uint8_t record[1 << 20];
    enum { N = 400 };
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    mr_reader *r = NULL;
    mr_array held[N];
    size_t n_held = 0;
    uint64_t state = 7, number = 0;
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path("v"), NULL, &st), &st);
    for (uint64_t i = 0; i < N; i++)
        mr_ok(mr_tfrecord_writer_append(w, record, sized(record, i, &state), &st), &st);
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    mr_ok(mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("v"), NULL, &st), &st);
    while (mr_reader_read(r, 100, 1 << 18, &held[n_held], &st) == MR_OK)
        n_held++;
    mr_reader_close(r);
    state = 7;
    for (size_t k = 0; k < n_held; k++) {
        const mr_bytes *v = held[k].data;
        for (size_t i = 0; i < held[k].rows; i++, number++) {
            mr_eq_u64(v[i].size, sized(record, number, &state));
            mr_eq_mem(v[i].data, record, v[i].size);
        }
        mr_array_reset(&held[k]);
    }
    mr_eq_u64(number, N);
}

/* Of record i, that much, and each byte is its number's. even: a piece ends with a record. */
static size_t piece_of(uint8_t *record, size_t i, bool even)
{
    size_t n = even ? 1024 - 16 : 700 + i * 7 % 600;
    memset(record, (int)(i % 251), n);
    memcpy(record, &i, sizeof i);
    return n;
}

/* Reads all of the file, whose chunks are of 1 MiB, and holds it to the end.
 * returns  rows that came and were right; *largest: bytes of a block */
static size_t in_large_chunks(bool even, size_t want, size_t most, size_t *largest, mr_code *end,
                              mr_status *st)
{
    enum { MOST_HELD = 64 };
    static uint8_t record[2048];
    mr_array held[MOST_HELD];
    mr_reader *r = NULL;
    size_t n = 0, rows = 0;
    const mr_file_opts opts = {.chunk = 1 << 20};
    mr_ok(mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("p"), &opts, st), st);
    while ((*end = mr_reader_read(r, want, most, &held[n], st)) == MR_OK)
        mr_check(++n < MOST_HELD);
    mr_reader_close(r);
    *largest = 0;
    for (size_t k = 0; k < n; k++) {
        const mr_bytes *v = held[k].data;
        size_t bytes = 0;
        for (size_t i = 0; i < held[k].rows; i++, rows++) {
            mr_eq_u64(v[i].size, piece_of(record, rows, even));
            mr_eq_mem(v[i].data, record, v[i].size);
            bytes += v[i].size;
        }
        mr_check(bytes <= most && held[k].rows <= want);
        *largest = bytes > *largest ? bytes : *largest;
        mr_array_reset(&held[k]);
    }
    return rows;
}

/* Returns where record `bad` begins. */
static size_t write_pieces(bool even, size_t n, size_t bad)
{
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    uint8_t record[2048];
    size_t bad_at = 0;
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path("p"), NULL, &st), &st);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = piece_of(record, i, even);
        bad_at += i < bad ? bytes + 16 : 0;
        mr_ok(mr_tfrecord_writer_append(w, record, bytes, &st), &st);
    }
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    return bad_at;
}

MR_TEST(a_large_chunk_is_read_in_pieces_and_gives_one_block)
{
    enum { N = 4000, BAD = 800, HALF = 512 << 10 };
    mr_status st;
    mr_code end;
    size_t largest, bad_at;
    for (int even = 1; even >= 0; even--) {
        bad_at = write_pieces(even, N, BAD);
        mr_check(bad_at > HALF + 2048 && bad_at < 2 * HALF - 2048); /* in the second piece */
        mr_eq_u64(in_large_chunks(even, 100000, 1 << 20, &largest, &end, &st), N);
        mr_check(end == MR_END && largest > HALF + HALF / 2);
        for (size_t most = HALF - (16 << 10); most < HALF; most += 700) /* as a piece has */
            mr_eq_u64(in_large_chunks(even, 100000, most, &largest, &end, &st), N);
        mr_eq_u64(in_large_chunks(even, 300, 1 << 20, &largest, &end, &st), N);
    }
    byte_string b = read_file(mr_test_path("p"));
    b.data[bad_at + 100] ^= 1;
    write_file(mr_test_path("p"), b.data, b.n);
    mr_eq_u64(in_large_chunks(false, 100000, 1 << 20, &largest, &end, &st), BAD);
    mr_code_is(end, MR_DATA_LOSS, &st);
    mr_eq_i64(st.record, BAD);
    mr_eq_u64(st.offset, bad_at);
}

/* A writer that is at the file has come as far as the middle of a record. */
MR_TEST(what_is_added_to_a_file_that_is_open_is_not_read)
{
    static const uint8_t half[9] = {200};
    static const size_t chunks[] = {0, 1 << 20};
    for (size_t k = 0; k < 2; k++)
        for (size_t n = 1; n < 3000; n += 740) {
            mr_status st;
            mr_reader *r = NULL;
            mr_array a = {0};
            size_t rows = 0;
            const mr_file_opts opts = {.chunk = chunks[k], .strict = true};
            mr_code rc;
            write_pieces(false, n, 0);
            mr_ok(mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("p"), &opts, &st), &st);
            FILE *f = fopen(mr_test_path("p"), "ab");
            mr_check(f && fwrite(half, 1, sizeof half, f) == sizeof half && fclose(f) == 0);
            while ((rc = mr_reader_read(r, n, 1 << 20, &a, &st)) == MR_OK) {
                rows += a.rows;
                mr_array_reset(&a);
            }
            mr_code_is(rc, MR_END, &st);
            mr_eq_u64(rows, n);
            mr_reader_close(r);
        }
}

MR_TEST(a_file_over_the_size_limit_is_removed)
{
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    static uint8_t record[300000];
    signal(SIGXFSZ, SIG_IGN);
    mr_ok(mr_tfrecord_writer_open(&w, mr_test_path("full"), NULL, &st), &st);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, RLIM_INFINITY});
    mr_code rc = MR_OK;
    for (int i = 0; i < 20 && rc == MR_OK; i++)
        rc = mr_tfrecord_writer_append(w, record, sizeof record, &st);
    mr_code_is(rc, MR_RESOURCE_EXHAUSTED, &st);
    mr_eq_i64(st.sys_errno, EFBIG);
    mr_code_is(mr_tfrecord_writer_close(w, &st), MR_RESOURCE_EXHAUSTED, &st);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    mr_eq_i64(rmdir(mr_test_dir()), 0); /* nothing is left in it */
    mkdir(mr_test_dir(), 0777);
}

static int writes_left;
static ssize_t failing_write(int fd, const void *data, size_t n)
{
    if (writes_left-- > 0)
        return write(fd, data, n < 100 ? n : 100 + n / 2);
    errno = ENOSPC;
    return -1;
}

MR_TEST(a_full_disk_at_any_write_leaves_no_file)
{
    for (int n = 0; n < 6; n++) {
        mr_status st;
        mr__system table = *mr__system_real();
        mr_tfrecord_writer *w = NULL;
        static uint8_t record[1 << 20];
        table.write = failing_write;
        writes_left = n;
        mr__system_set(&table);
        mr_ok(mr_tfrecord_writer_open(&w, mr_test_path("d"), NULL, &st), &st);
        mr_code rc = mr_tfrecord_writer_append(w, record, sizeof record, &st);
        mr_code closed = mr_tfrecord_writer_close(w, &st);
        mr__system_set(NULL);
        mr_check(rc == MR_OK || rc == MR_RESOURCE_EXHAUSTED);
        mr_code_is(closed, MR_RESOURCE_EXHAUSTED, &st);
        mr_check(access(mr_test_path("d"), F_OK) != 0);
    }
}

MR_TEST(running_out_of_memory_at_any_call_is_reported)
{
    byte_string b = framed(three, 3), z = deflated(b.data, b.n, 31);
    for (int gzip = 0; gzip < 2; gzip++) {
        write_file(mr_test_path("oom"), gzip ? z.data : b.data, gzip ? z.n : b.n);
        mr_compression c = gzip ? MR_COMPRESSION_GZIP : MR_COMPRESSION_NONE;
        for (size_t nth = 0; fail_nth_next(nth); nth++) {
            mr_status st;
            mr_reader *r = NULL;
            mr_array a = {0};
            mr_code rc = mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("oom"),
                                        &(mr_file_opts){.compression = c}, &st);
            size_t rows = 0;
            mr_test_context("gzip %d, call %zu", gzip, nth);
            while (rc == MR_OK && (rc = mr_reader_read(r, 10, 1 << 18, &a, &st)) == MR_OK) {
                rows += a.rows;
                mr_array_reset(&a);
            }
            if (rc == MR_END)
                mr_eq_u64(rows, 3);
            else
                mr_code_is(rc, MR_RESOURCE_EXHAUSTED, &st);
            mr_reader_close(r);
            mr_tfrecord_writer *w = NULL;
            rc = mr_tfrecord_writer_open(&w, mr_test_path("oom.out"),
                                         &(mr_tfrecord_writer_opts){.compression = c}, &st);
            if (rc == MR_OK)
                rc = mr_tfrecord_writer_append(w, "x", 1, &st);
            mr_code closed = mr_tfrecord_writer_close(w, &st);
            mr_check(rc == MR_OK || rc == MR_RESOURCE_EXHAUSTED);
            mr_check(closed == MR_OK || closed == MR_RESOURCE_EXHAUSTED);
            fail_nth_end();
        }
    }
}

/* 3,000 records of 300 to 1,300 bytes, several chunks; record i begins with its number. */
static const char *numbered_records(mr_compression c)
{
    mr_status st;
    mr_tfrecord_writer *w = NULL;
    const char *path = mr_test_path("numbered");
    char data[1300];
    mr_tfrecord_writer_opts opts = {.compression = c};
    mr_ok(mr_tfrecord_writer_open(&w, path, &opts, &st), &st);
    for (int i = 0; i < 3000; i++) {
        memset(data, 'a' + i % 26, sizeof data);
        snprintf(data, 16, "%d", i);
        mr_ok(mr_tfrecord_writer_append(w, data, 300 + (size_t)(i * 37 % 1000), &st), &st);
    }
    mr_ok(mr_tfrecord_writer_close(w, &st), &st);
    return path;
}

MR_TEST(every_record_knows_its_file_number_and_offset)
{
    for (int c = MR_COMPRESSION_NONE; c <= MR_COMPRESSION_GZIP; c++) {
        mr_status st, where;
        mr_reader *r = NULL;
        const char *path = numbered_records((mr_compression)c);
        const mr_file_opts opts = {.compression = (mr_compression)c};
        mr_array held[8] = {{0}};
        mr_code rc = mr_reader_open(&r, &mr_format_tfrecord, path, &opts, &st);
        int64_t record = 0, offset = 0;
        for (size_t k = 0; rc == MR_OK; k = (k + 1) % 8) {
            /* Every other array is released at once, so that chunks are used again. */
            mr_array_reset(&held[k % 2 ? k : 0]);
            mr_array *a = &held[k % 2 ? k : 0];
            rc = mr_reader_read(r, 100, SIZE_MAX, a, &st);
            for (size_t i = 0; rc == MR_OK && i < a->rows; i++) {
                const mr_bytes *v = (const mr_bytes *)a->data + i;
                mr_fail(&where, MR_INVALID_ARGUMENT, "bad");
                mr_buffer_locate(a->owner, v->data + v->size / 2, &where);
                mr_eq_str(where.file, path);
                mr_eq_i64(where.record, record);
                mr_eq_i64(where.offset, offset);
                mr_eq_i64(atoi(v->data), record);
                record++;
                offset += 16 + (int64_t)v->size;
            }
        }
        mr_eq_i64(rc, MR_END);
        mr_eq_i64(record, 3000);
        for (size_t k = 0; k < 8; k++)
            mr_array_reset(&held[k]);
        mr_reader_close(r);
    }
}

MR_TEST(seeking_leaves_records_alone_that_somebody_holds)
{
    mr_status st;
    mr_reader *r = NULL;
    mr_file_position start, later;
    mr_array first = {0}, second = {0};
    mr_ok(mr_reader_open(&r, &mr_format_tfrecord, numbered_records(MR_COMPRESSION_NONE), NULL, &st),
          &st);
    mr_reader_position(r, &start);
    mr_ok(mr_reader_read(r, 3, SIZE_MAX, &first, &st), &st);
    mr_reader_position(r, &later);
    mr_eq_i64(later.record, 3);
    mr_ok(mr_reader_seek(r, &later, &st), &st);
    mr_ok(mr_reader_read(r, 3, SIZE_MAX, &second, &st), &st);
    for (size_t i = 0; i < 3; i++) {
        mr_eq_i64(atoi(((const mr_bytes *)first.data)[i].data), (int64_t)i);
        mr_eq_i64(atoi(((const mr_bytes *)second.data)[i].data), (int64_t)i + 3);
    }
    mr_array_reset(&first);
    mr_array_reset(&second);
    mr_reader_close(r);
}
