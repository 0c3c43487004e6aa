/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed files where no compression is given: what reads text and archives knows them by their
 * first bytes; what reads any bytes does not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"
#include "tests/pipeline/ops/table_file.h"

enum { ROOM = 1 << 20 };

/* File `name` is text, compressed by deflate with this number of window bits, or, 0, by zstd. */
static void pack(const char *name, const char *text, size_t n, int bits)
{
    unsigned char *out = malloc(ROOM);
    size_t size;
    if (bits) {
        z_stream z = {.next_in = (Bytef *)(uintptr_t)text,
                      .avail_in = (uInt)n,
                      .next_out = out,
                      .avail_out = ROOM};
        mr_check(deflateInit2(&z, 6, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
        mr_check(deflate(&z, Z_FINISH) == Z_STREAM_END);
        size = z.total_out;
        deflateEnd(&z);
    } else
        size = ZSTD_compress(out, ROOM, text, n, 3);
    table_write(name, out, size);
    free(out);
}

static const int ways[] = {31, 15, 0}; /* GZIP, ZLIB, ZSTD */

static const struct {
    const char *graph, *text, *expected;
} readers[] = {
    {"text_line(\"@/f\")", "a\nbc\n\nd", "\"a\" \"bc\" \"\" \"d\""},
    {"csv(\"@/f\", {\"n\": int64}).map(r => r[\"n\"])", "m,n\n1,2\n3,4\n", "2 4"},
    {"jsonl(\"@/f\", {\"n\": int64}).map(r => r[\"n\"])", "{\"n\": 1}\n{\"n\": 2}\n", "1 2"},
    {"list_files(\"@/f\").flat_map(f => text_line(f)).repeat(2)", "x", "\"x\" \"x\""}};

MR_TEST(compressed_text_is_known_by_its_first_bytes)
{
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        for (int k = 0; k < 3; k++) {
            pack("f", readers[i].text, strlen(readers[i].text), ways[k]);
            mr_test_context("%s, way %d", readers[i].graph, k);
            mr_drive(mr_drive_path(readers[i].graph), readers[i].expected);
        }
}

/* More than is looked at, and an empty text. */
MR_TEST(long_and_empty_compressed_texts_are_known)
{
    char *text = malloc(ROOM);
    uint64_t random = 7;
    size_t n = 0;
    for (int i = 0; i < 30000; i++)
        n += (size_t)sprintf(text + n, "%d %x\n", i, (unsigned)mr_test_random(&random));
    for (int k = 0; k < 3; k++) {
        pack("f", text, n, ways[k]);
        mr_drive(mr_drive_path("text_line(\"@/f\").skip(29999).map(x => split(x, \" \")[0])"),
                 "\"29999\"");
        mr_drive(mr_drive_path("text_line(\"@/f\").batch(30000).map(x => length(x))"), "30000");
        pack("f", "", 0, ways[k]);
        mr_drive(mr_drive_path("text_line(\"@/f\")"), "");
    }
    free(text);
}

/* As pzstd writes them before each frame. */
MR_TEST(zstd_frames_to_skip_are_known)
{
    unsigned char file[200] = {0}, text[100];
    size_t frame = ZSTD_compress(text, sizeof text, "a\nb\n", 4, 3);
    for (int kind = 0; kind < 16; kind++) {
        size_t n = 0;
        for (int i = 0; i < 2; i++) {
            memcpy(file + n, "\x50\x2a\x4d\x18\4\0\0\0size", 12);
            file[n] = (unsigned char)(0x50 + kind);
            memcpy(file + n + 12, text, frame);
            n += 12 + frame;
        }
        table_write("f", file, n);
        mr_drive(mr_drive_path("text_line(\"@/f\")"), "\"a\" \"b\" \"a\" \"b\"");
    }
}

MR_TEST(text_that_begins_like_a_compressed_file_is_text)
{
    static const char *const texts[] = {"x^2",     "x^", "h\x05", "(",    "(\xb5/", "BZh9",
                                        "BZh91AY", "PK", "XG...", "\x1f", "\xfd",   "x",
                                        "P",       "Q*", "_*M",   "7z",   "Rar!",   "LZIP"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char expected[40], line[40];
        snprintf(line, sizeof line, "%s\nand so on\n", texts[i]);
        mr_drive_file("f", line);
        snprintf(expected, sizeof expected, "\"%s\" \"and_so_on\"", texts[i]);
        mr_test_context("%s", texts[i]);
        char *shown = mr_drive_show(mr_drive_path("text_line(\"@/f\").map(x => length(x))"));
        char want[40];
        snprintf(want, sizeof want, "%zu 9", strlen(texts[i]));
        mr_eq_str(shown, want);
        free(shown);
    }
    /* Decompression finds no error in it, however long it is. */
    char *text = malloc(ROOM);
    memset(text, '2', ROOM - 1);
    memcpy(text, "x^", 2);
    text[ROOM - 1] = '\0';
    mr_drive_file("f", text);
    mr_drive(mr_drive_path("text_line(\"@/f\").map(x => length(x))"), "1048575");
    free(text);
}

MR_TEST(what_is_compressed_otherwise_is_refused_by_name)
{
    static const struct {
        const char *name, *bytes;
        size_t n;
    } kinds[] = {{"bzip2", "BZh91AY&SY\x01\x02", 12},
                 {"xz", "\xfd\x37zXZ\0\0\4", 8},
                 {"lz4", "\x04\x22\x4d\x18\x64\x40", 6},
                 {"zip", "PK\3\4\x14\0", 6},
                 {"compress", "\x1f\x9d\x90", 3},
                 {"snappy", "\xff\x06\0\0sNaPpY", 10},
                 {"lz4", "\x02\x21\x4c\x18\0", 5},
                 {"lzip", "LZIP\1\x0c", 6},
                 {"lzop", "\x89LZO\0\r\n\x1a\n", 9},
                 {"7z", "7z\xbc\xaf\x27\x1c\0\4", 8},
                 {"rar", "Rar!\x1a\x07\1", 7}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t k = 0; k < sizeof readers / sizeof *readers - 1; k++) {
            char expected[100];
            table_write("f", kinds[i].bytes, kinds[i].n);
            snprintf(expected, sizeof expected, "!compressed_with_%s;_of_compression_GZIP,",
                     kinds[i].name);
            mr_drive(mr_drive_path(readers[k].graph), expected);
        }
}

MR_TEST(readers_of_any_bytes_do_not_guess)
{
    for (int k = 0; k < 3; k++) {
        pack("f", "a text of some letters", 22, ways[k]);
        size_t n;
        free(table_bytes("f", &n));
        char graph[80], expected[20];
        snprintf(expected, sizeof expected, "%zu", n);
        mr_drive(mr_drive_path("files(\"@/f\").map(f => length(f[\"contents\"]))"), expected);
        snprintf(graph, sizeof graph, "fixed_length_record(\"@/f\", %zu).map(x => length(x))", n);
        mr_drive(mr_drive_path(graph), expected);
        mr_drive(mr_drive_path("tfrecord(\"@/f\")"), "!data_loss");
    }
}

/* Tables are read from their end or in pieces, so they are never compressed as a whole. */
MR_TEST(compressed_tables_are_refused_by_name)
{
    for (int k = 0; k < 3; k++) {
        pack("f", "ARROW1 and so on, and more of it", 32, ways[k]);
        table_refused(mr_drive_path("arrow(\"@/f\")"), MR_DATA_LOSS,
                      "only compression within Arrow files is read");
        table_refused(mr_drive_path("parquet(\"@/f\")"), MR_DATA_LOSS,
                      "only compression within Parquet files is read");
    }
}
