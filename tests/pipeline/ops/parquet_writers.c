/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of old writers of Parquet, in files of two int64 columns with a dictionary each. */
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/parquet/parquet_footer.h"
#include "pipeline/formats/parquet/thrift_compact.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"
#include "tests/pipeline/ops/table_file.h"

enum { ROWS = 3, MOST = 1000, SNAPPY = 1 };

typedef struct writer {
    const char *name;  /* created_by */
    bool version2;     /* of the pages, which then say that they are not compressed */
    int codec;         /* as the footer says; the bytes are SNAPPY's or plain */
    int64_t rows;      /* in the footer */
    bool without_head; /* the size of a chunk lacks the head of the dictionary */
} writer;

typedef struct bytes {
    unsigned char v[MOST];
    size_t n;
} bytes;

static void put_bytes(bytes *b, const void *p, size_t n)
{
    mr_check(n <= sizeof b->v - b->n);
    memcpy(b->v + b->n, p, n);
    b->n += n;
}

/* Fewer than 60 bytes as SNAPPY stores them: their number, the tag of a literal, and they. */
static void put_packed(bytes *b, int codec, const void *p, size_t n)
{
    const unsigned char head[2] = {(unsigned char)n, (unsigned char)((n - 1) << 2)};
    if (codec == SNAPPY)
        put_bytes(b, head, sizeof head);
    put_bytes(b, p, n);
}

/* A page; returns the size of its head. */
static size_t put_page(bytes *b, const writer *w, bool dictionary, const void *p, size_t n)
{
    bytes packed = {{0}, 0};
    mr__thrift_w head = {0};
    bool v2 = w->version2 && !dictionary;
    put_packed(&packed, w->codec, p, n);
    mr__thrift_put_int(&head, 1, MR__THRIFT_I32,
                       dictionary ? MR__PARQUET_DICTIONARY_PAGE
                       : v2       ? MR__PARQUET_DATA_PAGE_V2
                                  : MR__PARQUET_DATA_PAGE);
    mr__thrift_put_int(&head, 2, MR__THRIFT_I32, (int64_t)n);
    mr__thrift_put_int(&head, 3, MR__THRIFT_I32, (int64_t)packed.n);
    mr__thrift_put_struct(&head, dictionary ? 7 : v2 ? 8 : 5);
    mr__thrift_put_int(&head, 1, MR__THRIFT_I32, ROWS);
    if (v2) {
        mr__thrift_put_int(&head, 2, MR__THRIFT_I32, 0);
        mr__thrift_put_int(&head, 3, MR__THRIFT_I32, ROWS);
        mr__thrift_put_int(&head, 4, MR__THRIFT_I32, MR__PARQUET_RLE_DICTIONARY);
        mr__thrift_put_int(&head, 5, MR__THRIFT_I32, 0);
        mr__thrift_put_int(&head, 6, MR__THRIFT_I32, 0);
        mr__thrift_put_bool(&head, 7, false);
    } else {
        mr__thrift_put_int(&head, 2, MR__THRIFT_I32,
                           dictionary ? MR__PARQUET_PLAIN : MR__PARQUET_RLE_DICTIONARY);
        if (!dictionary) {
            mr__thrift_put_int(&head, 3, MR__THRIFT_I32, MR__PARQUET_RLE);
            mr__thrift_put_int(&head, 4, MR__THRIFT_I32, MR__PARQUET_RLE);
        }
    }
    mr__thrift_put_end(&head);
    mr__thrift_put_end(&head);
    mr_check(head.failed == MR_OK);
    size_t size = head.n;
    put_bytes(b, head.v, head.n);
    put_bytes(b, packed.v, packed.n);
    mr__thrift_w_reset(&head);
    return size;
}

static void put_column(mr__thrift_w *t, const char *name)
{
    mr__thrift_item_struct(t);
    mr__thrift_put_int(t, 1, MR__THRIFT_I32, MR__PARQUET_INT64);
    mr__thrift_put_int(t, 3, MR__THRIFT_I32, MR__PARQUET_REQUIRED);
    mr__thrift_put_bytes(t, 4, name, strlen(name));
    mr__thrift_put_end(t);
}

static void put_chunk(mr__thrift_w *t, const writer *w, const char *name, size_t at, size_t size)
{
    mr__thrift_item_struct(t);
    mr__thrift_put_int(t, 2, MR__THRIFT_I64, (int64_t)at);
    mr__thrift_put_struct(t, 3);
    mr__thrift_put_int(t, 1, MR__THRIFT_I32, MR__PARQUET_INT64);
    mr__thrift_put_list(t, 2, MR__THRIFT_I32, 1);
    mr__thrift_item_int(t, MR__PARQUET_RLE_DICTIONARY);
    mr__thrift_put_list(t, 3, MR__THRIFT_BINARY, 1);
    mr__thrift_item_bytes(t, name, 1);
    mr__thrift_put_int(t, 4, MR__THRIFT_I32, w->codec);
    mr__thrift_put_int(t, 5, MR__THRIFT_I64, ROWS);
    mr__thrift_put_int(t, 6, MR__THRIFT_I64, (int64_t)size);
    mr__thrift_put_int(t, 7, MR__THRIFT_I64, (int64_t)size);
    mr__thrift_put_int(t, 9, MR__THRIFT_I64, (int64_t)at);
    mr__thrift_put_end(t);
    mr__thrift_put_end(t);
}

/* x.parquet: the rows (1, 30), (2, 20), (3, 10). */
static void write_file(const writer *w)
{
    static const int64_t values[2][ROWS] = {{1, 2, 3}, {10, 20, 30}};
    /* A width of 2 bits; a group of indices, 0 1 2 or 2 1 0. */
    static const unsigned char indices[2][4] = {{2, 3, 0x24, 0}, {2, 3, 0x06, 0}};
    static const char *const names[] = {"a", "b"};
    bytes b = {{0}, 0};
    size_t at[2], size[2];
    mr__thrift_w t = {0};
    put_bytes(&b, MR__PARQUET_MAGIC, 4);
    for (int i = 0; i < 2; i++) {
        at[i] = b.n;
        size_t head = put_page(&b, w, true, values[i], sizeof values[i]);
        put_page(&b, w, false, indices[i], sizeof indices[i]);
        size[i] = b.n - at[i] - (w->without_head ? head : 0);
    }
    mr__thrift_put_int(&t, 1, MR__THRIFT_I32, 1);
    mr__thrift_put_list(&t, 2, MR__THRIFT_STRUCT, 3);
    mr__thrift_item_struct(&t);
    mr__thrift_put_bytes(&t, 4, "root", 4);
    mr__thrift_put_int(&t, 5, MR__THRIFT_I32, 2);
    mr__thrift_put_end(&t);
    for (int i = 0; i < 2; i++)
        put_column(&t, names[i]);
    mr__thrift_put_int(&t, 3, MR__THRIFT_I64, w->rows);
    mr__thrift_put_list(&t, 4, MR__THRIFT_STRUCT, 1);
    mr__thrift_item_struct(&t);
    mr__thrift_put_list(&t, 1, MR__THRIFT_STRUCT, 2);
    for (int i = 0; i < 2; i++)
        put_chunk(&t, w, names[i], at[i], size[i]);
    mr__thrift_put_int(&t, 2, MR__THRIFT_I64, (int64_t)(size[0] + size[1]));
    mr__thrift_put_int(&t, 3, MR__THRIFT_I64, ROWS);
    mr__thrift_put_end(&t);
    if (w->name)
        mr__thrift_put_bytes(&t, 6, w->name, strlen(w->name));
    mr__thrift_put_end(&t);
    mr_check(t.failed == MR_OK);
    const uint32_t n = (uint32_t)t.n;
    put_bytes(&b, t.v, t.n);
    put_bytes(&b, &n, sizeof n);
    put_bytes(&b, MR__PARQUET_MAGIC, 4);
    mr__thrift_w_reset(&t);
    mr_drive_bytes("x.parquet", b.v, b.n);
}

static void expect(const writer *w, const char *want)
{
    write_file(w);
    mr_drive(mr_drive_path("parquet(\"@/x.parquet\")"), want);
}

#define GOOD "(1,30) (2,20) (3,10)"

MR_TEST(a_footer_without_the_number_of_rows_has_those_of_its_groups)
{
    expect(
        &(writer){.name =
                      "parquet-rs version 0.3.0 (build b45ce7cba2199f22d93269c150d8a83916c69b5e)"},
        GOOD);
    expect(&(writer){.rows = ROWS}, GOOD);
    mr_drive_count(mr_drive_path("parquet(\"@/x.parquet\")"), ROWS);
    write_file(&(writer){.rows = ROWS + 1});
    table_refused(mr_drive_path("parquet(\"@/x.parquet\")"), MR_DATA_LOSS,
                  "4 rows in total, but 3 in its row groups");
}

MR_TEST(the_head_of_a_dictionary_may_lack_in_the_size_of_a_chunk)
{
    static const char *const old[] = {"parquet-mr version 1.2.8 (build abc)", "parquet-mr",
                                      "parquet-mr version 1.2.8-SNAPSHOT",
                                      "parquet-mr version 1.0.0", "parquet-mr version 0.9"};
    static const char *const other[] = {
        "parquet-mr version 1.2.9", "parquet-mr version 1.10.0 (build x)",
        "parquet-mrs version 1.0.0", "parquet-cpp version 1.0.0", NULL};
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        expect(&(writer){.name = old[i], .rows = ROWS, .without_head = true}, GOOD);
        expect(&(writer){.name = old[i], .rows = ROWS}, GOOD);
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        expect(&(writer){.name = other[i], .rows = ROWS, .without_head = true}, "!damaged_page");
}

MR_TEST(pages_of_version_2_of_old_arrow_are_compressed_whatever_they_say)
{
    static const char *const old[] = {"parquet-cpp-arrow version 2.0.0",
                                      "parquet-cpp version 1.5.1-SNAPSHOT",
                                      "parquet-cpp-arrow version 0.17.1"};
    static const char *const other[] = {"parquet-cpp-arrow version 3.0.0",
                                        "parquet-cpp-arrow version 14.0.2",
                                        "parquet-mr version 1.12.0", NULL};
    mr_status error;
    writer w = {.name = old[0], .rows = ROWS, .codec = SNAPPY, .version2 = true};
    write_file(&w);
    mr_drive_error(mr_drive_path("parquet(\"@/x.parquet\")"), &error);
    if (error.code == MR_NOT_FOUND)
        mr_skip_test("libsnappy is not installed");
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        w.name = old[i];
        expect(&w, GOOD);
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        w.name = other[i];
        expect(&w, "!it_is_not_compressed,_but_has_two_different_sizes");
    }
    w.codec = 0;
    expect(&w, GOOD);
}

MR_TEST(codecs_that_are_not_there_are_refused_when_the_file_is_opened)
{
    static const struct {
        int codec;
        const char *part;
    } codecs[] = {{3, "it_is_compressed_with_LZO"},
                  {5, "it_is_compressed_with_the_framed_LZ4"},
                  {8, "it_is_compressed_with_a_codec_that_is_unknown"},
                  {-1, "it_is_compressed_with_a_codec_that_is_unknown"}};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        mr_status error;
        char want[100];
        snprintf(want, sizeof want, "!column_'a'_cannot_be_read:_%s", codecs[i].part);
        write_file(&(writer){.rows = ROWS, .codec = codecs[i].codec});
        table_refused(mr_drive_path("parquet(\"@/x.parquet\")"), MR_UNIMPLEMENTED,
                      "column 'a' cannot be read");
        mr_drive_error(
            mr_drive_path("parquet(\"@/x.parquet\", schema={\"a\": int64, \"b\": int64})"), &error);
        mr_code_is(error.code, MR_UNIMPLEMENTED, &error);
        mr_drive(mr_drive_path("parquet(\"@/x.parquet\", schema={\"a\": int64, \"b\": int64})"),
                 want);
    }
}
