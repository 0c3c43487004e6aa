/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/codec.h"

#include <zdict.h>

#include "tests/pipeline/formats/record_files.h"

MR_ONE_THREAD;

static const mr_fixed_length_opts of_five = {.record_bytes = 5};

/* The same three records in each format. */
static const struct {
    const char *name;
    const mr_format *format;
    const void *own;
} formats[] = {{"tfrecord", &mr_format_tfrecord, NULL},
               {"text_line", &mr_format_text_line, NULL},
               {"fixed_length", &mr_format_fixed_length, &of_five}};
static const char *const records[] = {"first", "again", "third"};
#define ALL "first|again|third|"

static byte_string plain_of(size_t format)
{
    byte_string b = {0};
    if (format == 0)
        return framed(records, 3);
    for (size_t i = 0; i < 3; i++) {
        put(&b, records[i], 5);
        if (format == 1)
            put(&b, "\n", 1);
    }
    return b;
}

static byte_string zstd_of(const byte_string *plain)
{
    byte_string out = {keep(ZSTD_compressBound(plain->n)), 0, 0};
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    out.n = ZSTD_compress2(c, out.data, ZSTD_compressBound(plain->n), plain->data, plain->n);
    mr_check(!ZSTD_isError(out.n));
    ZSTD_freeCCtx(c);
    return out;
}

static byte_string packed(const byte_string *plain, mr_compression c)
{
    return c == MR_COMPRESSION_ZSTD
               ? zstd_of(plain)
               : deflated(plain->data, plain->n, c == MR_COMPRESSION_GZIP ? 31 : 15);
}

/* What comes out of a file with these bytes, as "a|b|"; *end is the code that ended it. */
static const char *read_bytes(size_t format, mr_compression c, const void *bytes, size_t n,
                              mr_code *end, mr_status *st)
{
    byte_string out = {keep(256), 0, 256};
    mr_reader *r = NULL;
    mr_array a = {0};
    const mr_file_opts opts = {.compression = c, .own = formats[format].own};
    const char *path = mr_test_path("packed");
    write_file(path, bytes, n);
    out.data[0] = '\0';
    mr_ok(mr_reader_open(&r, formats[format].format, path, &opts, st), st);
    while ((*end = mr_reader_read(r, 2, 1 << 18, &a, st)) == MR_OK) {
        put_rows(&out, &a);
        mr_array_reset(&a);
    }
    if (*end < 0) {
        mr_eq_str(st->file, path);
        mr_check(st->message[0]);
        mr_check(st->record >= 0 && st->offset >= 0);
        mr_eq_i64(mr_reader_read(r, 2, 1 << 18, &a, NULL), MR_END);
    }
    mr_reader_close(r);
    return (const char *)out.data;
}

MR_TEST(every_cut_of_a_compressed_file_is_data_loss_after_the_records_before_it)
{
    for (size_t f = 0; f < 3; f++)
        for (int c = MR_COMPRESSION_GZIP; c <= MR_COMPRESSION_ZSTD; c++) {
            byte_string plain = plain_of(f), z = packed(&plain, (mr_compression)c);
            for (size_t cut = 0; cut <= z.n; cut++) {
                mr_status st;
                mr_code end;
                mr_test_context("%s, %s, cut at %zu of %zu", formats[f].name,
                                mr_compression_name((mr_compression)c), cut, z.n);
                const char *out = read_bytes(f, (mr_compression)c, z.data, cut, &end, &st);
                mr_check(strncmp(ALL, out, strlen(out)) == 0);
                if (cut == z.n) {
                    mr_code_is(end, MR_END, &st);
                    mr_eq_str(out, ALL);
                } else {
                    mr_code_is(end, MR_DATA_LOSS, &st);
                    mr_has_str(st.message, "truncated");
                }
                /* Without its trailer all records were there. */
                if (cut < z.n && cut + (c == MR_COMPRESSION_GZIP ? 8 : 4) >= z.n)
                    mr_eq_str(out, ALL);
            }
        }
}

MR_TEST_SLOW(every_flipped_byte_of_a_compressed_file_is_harmless_or_data_loss)
{
    uint64_t random = mr_test_seed();
    for (size_t f = 0; f < 3; f++)
        for (int c = MR_COMPRESSION_GZIP; c <= MR_COMPRESSION_ZSTD; c++) {
            byte_string plain = plain_of(f), z = packed(&plain, (mr_compression)c);
            for (size_t at = 0; at < z.n; at += mr_test_step(&random, 19))
                for (int bit = 0; bit < 8; bit++) {
                    mr_status st;
                    mr_code end;
                    mr_test_context("%s, %s, bit %d of byte %zu", formats[f].name,
                                    mr_compression_name((mr_compression)c), bit, at);
                    z.data[at] ^= (uint8_t)(1u << bit);
                    const char *out = read_bytes(f, (mr_compression)c, z.data, z.n, &end, &st);
                    if (end == MR_FAILED_PRECONDITION) /* the number of a dictionary */
                        mr_check(c == MR_COMPRESSION_ZSTD && strstr(st.message, "dictionary"));
                    else if (end != MR_END)
                        mr_code_is(end, MR_DATA_LOSS, &st);
                    else /* a byte that says nothing about the data, such as gzip's time */
                        mr_eq_str(out, ALL);
                    z.data[at] ^= (uint8_t)(1u << bit);
                }
        }
}

MR_TEST(a_damaged_frame_header_is_data_loss)
{
    for (size_t f = 0; f < 3; f++)
        for (int c = MR_COMPRESSION_GZIP; c <= MR_COMPRESSION_ZSTD; c++) {
            byte_string plain = plain_of(f), z = packed(&plain, (mr_compression)c), two = {0};
            mr_status st;
            mr_code end;
            if (c == MR_COMPRESSION_ZLIB) /* of several streams the first alone counts */
                continue;
            put(&two, z.data, z.n);
            put(&two, z.data, z.n);
            for (size_t at = z.n; at < z.n + 2; at++) {
                mr_test_context("%s, %s", formats[f].name, mr_compression_name((mr_compression)c));
                two.data[at] ^= 0x40;
                mr_eq_str(read_bytes(f, (mr_compression)c, two.data, two.n, &end, &st), ALL);
                mr_code_is(end, MR_DATA_LOSS, &st);
                two.data[at] ^= 0x40;
            }
            mr_eq_str(read_bytes(f, (mr_compression)c, two.data, two.n, &end, &st), ALL ALL);
            mr_code_is(end, MR_END, &st);
            /* 1 to 3 bytes of another frame, and no more of it. */
            for (size_t n = 1; n <= 3; n++) {
                mr_eq_str(read_bytes(f, (mr_compression)c, two.data, z.n + n, &end, &st), ALL);
                mr_code_is(end, MR_DATA_LOSS, &st);
            }
        }
}

/* Tapes and block devices pad files with zeros; another member may follow them. */
MR_TEST(zeros_after_a_gzip_member_are_skipped)
{
    static const size_t counts[] = {1, 511, 300000};
    for (size_t f = 0; f < 3; f++)
        for (size_t i = 0; i < 3; i++) {
            byte_string plain = plain_of(f), z = packed(&plain, MR_COMPRESSION_GZIP), x = {0};
            uint8_t *zeros = calloc(1, counts[i]);
            mr_status st;
            mr_code end;
            mr_test_context("%s, %zu zeros", formats[f].name, counts[i]);
            put(&x, z.data, z.n);
            put(&x, zeros, counts[i]);
            mr_eq_str(read_bytes(f, MR_COMPRESSION_GZIP, x.data, x.n, &end, &st), ALL);
            mr_code_is(end, MR_END, &st);
            put(&x, z.data, z.n);
            mr_eq_str(read_bytes(f, MR_COMPRESSION_GZIP, x.data, x.n, &end, &st), ALL ALL);
            mr_code_is(end, MR_END, &st);
            put(&x, "x", 1);
            mr_eq_str(read_bytes(f, MR_COMPRESSION_GZIP, x.data, x.n, &end, &st), ALL ALL);
            mr_code_is(end, MR_DATA_LOSS, &st);
            /* Zeros alone are not a gzip file. */
            mr_eq_str(read_bytes(f, MR_COMPRESSION_GZIP, zeros, counts[i], &end, &st), "");
            mr_code_is(end, MR_DATA_LOSS, &st);
            free(zeros);
        }
}

static char samples[8 << 10], dictionary[4 << 10];

/* Makes the dictionary from the samples, and returns its size. */
static size_t train(void)
{
    size_t sizes[256], n = 0;
    for (size_t i = 0; i < 256; i++)
        n += sizes[i] =
            (size_t)snprintf(samples + n, sizeof samples - n, "user %zu of town %zu;", i, i % 7);
    size_t size = ZDICT_trainFromBuffer(dictionary, sizeof dictionary, samples, sizes, 256);
    mr_check(!ZDICT_isError(size));
    return size;
}

MR_TEST(a_zstd_stream_that_needs_a_dictionary_says_which)
{
    size_t size = train();
    for (size_t f = 0; f < 3; f++)
        for (int whole = 0; whole < 2; whole++) { /* after a frame without, or as the first */
            byte_string plain = plain_of(f), z = packed(&plain, MR_COMPRESSION_ZSTD), x = {0};
            char out[4096], number[40];
            mr_status st;
            mr_code end;
            ZSTD_CCtx *c = ZSTD_createCCtx();
            size_t made = ZSTD_compress_usingDict(c, out, sizeof out, plain.data, plain.n,
                                                  dictionary, size, 3);
            mr_check(!ZSTD_isError(made));
            ZSTD_freeCCtx(c);
            if (whole)
                put(&x, z.data, z.n);
            put(&x, out, made);
            mr_eq_str(read_bytes(f, MR_COMPRESSION_ZSTD, x.data, x.n, &end, &st), whole ? ALL : "");
            mr_code_is(end, MR_FAILED_PRECONDITION, &st);
            snprintf(number, sizeof number, "dictionary, number %u,",
                     ZSTD_getDictID_fromDict(dictionary, size));
            mr_has_str(st.message, number);
        }
}

/* zstd --no-dictID: what the library finds missing is part of a dictionary, or of the frame. */
MR_TEST(a_zstd_stream_whose_dictionary_has_no_number_may_be_whole)
{
    char out[16 << 10];
    size_t size = train();
    ZSTD_CCtx *c = ZSTD_createCCtx();
    mr_check(!ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_dictIDFlag, 0)));
    mr_check(!ZSTD_isError(ZSTD_CCtx_loadDictionary(c, dictionary, size)));
    size_t made = ZSTD_compress2(c, out, sizeof out, samples, 300);
    ZSTD_freeCCtx(c);
    mr_check(!ZSTD_isError(made) && ZSTD_getDictID_fromFrame(out, made) == 0);
    for (size_t f = 0; f < 3; f++) {
        mr_status st;
        mr_code end;
        mr_eq_str(read_bytes(f, MR_COMPRESSION_ZSTD, out, made, &end, &st), "");
        mr_code_is(end, MR_DATA_LOSS, &st);
        mr_has_str(st.message, "or was made with a dictionary that it does not name");
    }
}

/* Blocks as they are written where nothing can be saved; the last one is of no type. */
static byte_string zstd_with_bad_block(size_t good)
{
    static const uint8_t head[] = {0x28, 0xb5, 0x2f, 0xfd, 0, 0x50}, bad[] = {6, 0, 0};
    enum { BLOCK = 131070 };
    static char block[BLOCK];
    const uint8_t before[] = {(uint8_t)(BLOCK << 3), (uint8_t)(BLOCK >> 5), BLOCK >> 13};
    byte_string z = {0};
    put(&z, head, sizeof head);
    for (size_t i = 0; i < good; i++) {
        put(&z, before, sizeof before);
        put(&z, block, sizeof block);
    }
    put(&z, bad, sizeof bad);
    return z;
}

/* The blocks before it were decoded without a dictionary. */
MR_TEST(a_later_block_of_a_zstd_frame_fails_by_damage_alone)
{
    for (size_t good = 0; good <= 16; good += 16) {
        byte_string z = zstd_with_bad_block(good);
        const mr_file_opts opts = {.compression = MR_COMPRESSION_ZSTD, .own = &of_five};
        mr_status st;
        mr_reader *r = NULL;
        int64_t skipped;
        write_file(mr_test_path("bad"), z.data, z.n);
        mr_ok(mr_reader_open(&r, &mr_format_fixed_length, mr_test_path("bad"), &opts, &st), &st);
        mr_code_is(mr_reader_skip(r, INT64_MAX, &skipped, &st), MR_DATA_LOSS, &st);
        mr_check((strstr(st.message, "dictionary") != NULL) == (good == 0));
        mr_reader_close(r);
    }
}

MR_TEST(the_first_bytes_say_how_a_file_is_compressed)
{
    for (int c = MR_COMPRESSION_NONE; c <= MR_COMPRESSION_ZSTD; c++) {
        mr_status st;
        mr_reader *r = NULL;
        int64_t skipped;
        byte_string plain = plain_of(0);
        byte_string z = c == MR_COMPRESSION_NONE ? plain : packed(&plain, (mr_compression)c);
        write_file(mr_test_path("d"), z.data, z.n);
        mr_ok(mr_reader_open(&r, &mr_format_tfrecord, mr_test_path("d"),
                             &(mr_file_opts){.compression = MR_COMPRESSION_DETECT}, &st),
              &st);
        mr_eq_i64(mr_reader_compression(r), c);
        mr_ok(mr_reader_skip(r, 10, &skipped, &st), &st);
        mr_eq_i64(skipped, 3);
        mr_reader_close(r);
    }
}
