/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "pipeline/formats/reader.h"
#include "pipeline/formats/tar.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/log.h"
#include "pipeline/ops/apply.h"
#include "pipeline/ops/sources.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"
#include "tests/pipeline/ops/table_file.h"

/* ---- archives, written block by block ---- */

typedef struct tar {
    char *v;
    size_t n;
} tar;

static char *room(tar *t, size_t blocks)
{
    t->v = realloc(t->v, t->n + blocks * 512);
    char *at = memset(t->v + t->n, 0, blocks * 512);
    t->n += blocks * 512;
    return at;
}

/* A ustar header and the data of a member; type '0' is a file, '5' a directory. */
static void add_bytes(tar *t, const char *path, char type, const void *data, size_t size)
{
    char *h = room(t, 1);
    unsigned sum = 0;
    snprintf(h, 100, "%s", path);
    snprintf(h + 100, 8, "0000644");
    snprintf(h + 108, 8, "0000000");
    snprintf(h + 116, 8, "0000000");
    snprintf(h + 124, 12, "%011zo", size);
    snprintf(h + 136, 12, "00000000000");
    memset(h + 148, ' ', 8);
    h[156] = type;
    memcpy(h + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    if (size)
        memcpy(room(t, (size + 511) / 512), data, size);
}

static void add(tar *t, const char *path, const char *text)
{
    add_bytes(t, path, '0', text, strlen(text));
}

/* Ends the archive and writes it; `cut` bytes less. */
static void finish(tar *t, const char *name, size_t cut)
{
    room(t, 2);
    table_write(name, t->v, t->n - cut);
    free(t->v);
    *t = (tar){0};
}

static void write_samples(void)
{
    tar t = {0};
    add(&t, "a/0001.jpg", "one");
    add(&t, "a/0001.cls", "1");
    add_bytes(&t, "a/inner/", '5', NULL, 0);
    add(&t, "a/notes", "no point");
    add(&t, "a/.hidden.jpg", "no key");
    add(&t, "a/0002.cls", "2");
    add(&t, "a/0002.jpg", "two");
    finish(&t, "a.tar", 0);
    add(&t, "b/0003.jpg", "");
    add(&t, "b/0003.seg.png", "more");
    add(&t, "b/0003.cls", "3");
    finish(&t, "b.tar", 0);
}

MR_TEST(members_of_one_key_are_one_element)
{
    write_samples();
    mr_drive(mr_drive_path("tar(\"@/?.tar\").map(r => (r[\"__key__\"], r[\"jpg\"], r[\"cls\"]))"),
             "(\"a/0001\",\"one\",\"1\") (\"a/0002\",\"two\",\"2\") (\"b/0003\",\"\",\"3\")");
    mr_drive(mr_drive_path("tar(\"@/b.tar\").map(r => r[\"seg.png\"]).repeat(2)"),
             "\"more\" \"more\"");
    mr_drive(mr_drive_path("tar(\"@/a.tar\", \"@/b.tar\", members=[\"cls\"])"
                           ".map(r => r[\"cls\"]).batch(2)"),
             "[\"1\",\"2\"] [\"3\"]");
    mr_drive(
        mr_drive_path("list_files(\"@/?.tar\").flat_map(f => tar(f, members=[\"cls\"]).take(1))"
                      ".map(r => r[\"cls\"])"),
        "\"1\" \"3\"");
}

/* The third member does not lie in one piece of the file, and the fifth is larger than any. */
MR_TEST(the_function_of_one_archive_has_the_components_of_the_node)
{
    static const char *const cases[][2] = {
        {"tar(\"@/a.tar\")", ".flat_map(f => tar(f, members=[\"__key__\", \"cls\", \"jpg\"]))"},
        {"tar(\"@/?.tar\", members=[\"cls\"], compression=\"\")",
         ".flat_map(f => tar(f, compression=\"\", members=[\"cls\"]))"},
        {"tar(\"@/?.tar\", members=[\"cls\", \"png;jpg\", \"txt?\"])",
         ".flat_map(f => tar(f, members=[\"cls\", \"png;jpg\", \"txt?\"]))"}};
    write_samples();
    const char *const archives[] = {mr_test_path("a.tar"), mr_test_path("b.tar")};
    for (size_t i = 0; i < 3; i++) {
        mr_status st;
        mr_fn *fn = NULL;
        char *printed = NULL;
        mr_dataset *ds = mr_drive_build(mr_drive_path(cases[i][0]));
        mr_ok(mr_dataset_read_function(ds, &fn, &st), &st);
        mr_dataset_unref(ds);
        ds = mr_flat_map(mr_from_strings(archives, 2), fn);
        mr_ok(mr_dataset_to_text(ds, &printed, &st), &st);
        mr_has_str(printed, cases[i][1]);
        mr_free(printed);
        ds = mr_map(ds, mr_fn_text("r => r[\"cls\"]"), NULL);
        mr_drive_dataset(ds, "\"1\" \"2\" \"3\"");
    }
}

MR_TEST(large_members_come_whole)
{
    static const size_t sizes[] = {1000, 200000, 700001, 3, 2500000, 65536};
    tar t = {0};
    for (size_t i = 0; i < 6; i++) {
        char path[40], *data = malloc(sizes[i]);
        snprintf(path, sizeof path, "%zu.bin", i);
        memset(data, (int)i + 1, sizes[i]);
        add_bytes(&t, path, '0', data, sizes[i]);
        free(data);
    }
    finish(&t, "large.tar", 0);
    mr_drive(mr_drive_path("tar(\"@/large.tar\").map(r => decode_raw(r[\"bin\"], \"uint8\"))"
                           ".map(x => (size(x), min(x), max(x)))"),
             "(1000,1,1) (200000,2,2) (700001,3,3) (3,4,4) (2500000,5,5) (65536,6,6)");
}

/* GNU's old sparse header: one part of one byte, at `at`, in a member of at + 1 bytes and `after`
 * more. */
static void write_sparse(const char *name, size_t at, size_t after)
{
    tar t = {0};
    unsigned sum = 0;
    add_bytes(&t, "0.bin", 'S', "x", 1);
    char *h = t.v;
    memcpy(h + 257, "ustar  ", 8);
    snprintf(h + 386, 13, "%011zo", at);
    snprintf(h + 398, 13, "%011o", 1u);
    snprintf(h + 483, 13, "%011zo", at + 1 + after);
    memset(h + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    finish(&t, name, 0);
}

MR_TEST(holes_are_zeros_and_bounded)
{
    write_sparse("small.tar", 100000, 0);
    mr_drive(mr_drive_path("tar(\"@/small.tar\").map(r => decode_raw(r[\"bin\"], \"uint8\"))"
                           ".map(x => (size(x), x[0], x[-1]))"),
             "(100001,0,120)");
    write_sparse("end.tar", 10, 100000); /* the last hole too */
    mr_drive(mr_drive_path("tar(\"@/end.tar\").map(r => decode_raw(r[\"bin\"], \"uint8\"))"
                           ".map(x => (size(x), x[10], x[11], x[-1]))"),
             "(100011,120,0,0)");
    write_sparse("large.tar", (size_t)3 << 30, 0);
    mr_drive(mr_drive_path("tar(\"@/large.tar\").map(r => r[\"bin\"])"),
             "!a_sparse_member_with_3221225472_bytes_of_holes");
    write_sparse("large.tar", 0, (size_t)3 << 30);
    mr_drive(mr_drive_path("tar(\"@/large.tar\").map(r => r[\"bin\"])"),
             "!a_sparse_member_with_3221225472_bytes_of_holes");
    tar t = {0}; /* and only a hole */
    unsigned sum = 0;
    add_bytes(&t, "0.bin", 'S', NULL, 0);
    memcpy(t.v + 257, "ustar  ", 8);
    snprintf(t.v + 483, 13, "%011o", 5000u);
    memset(t.v + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)t.v[i];
    snprintf(t.v + 148, 8, "%06o", sum);
    add(&t, "1.bin", "x");
    finish(&t, "hole.tar", 0);
    mr_drive(mr_drive_path("tar(\"@/hole.tar\").map(r => length(r[\"bin\"]))"), "5000 1");
}

MR_TEST(compressed_archives_are_read)
{
    tar t = {0};
    add(&t, "0.txt", "zero");
    add(&t, "1.txt", "one");
    room(&t, 2);
    gzFile f = gzopen(mr_test_path("a.tar.gz"), "wb");
    mr_check(f && gzwrite(f, t.v, (unsigned)t.n) == (int)t.n && gzclose(f) == Z_OK);
    free(t.v);
    mr_drive(mr_drive_path("tar(\"@/a.tar.gz\", compression=\"GZIP\").map(r => r[\"txt\"])"),
             "\"zero\" \"one\"");
    mr_drive(mr_drive_path("tar(\"@/a.tar.gz\").map(r => r[\"txt\"])"), "\"zero\" \"one\"");
    table_write("a.tar.xz", "\xFD\x37zXZ\0 and so on", 16);
    mr_drive(mr_drive_path("tar(\"@/a.tar.xz\", members=[\"txt\"])"),
             "!compressed_with_xz;_of_compression_GZIP");
}

MR_TEST(a_record_that_lacks_a_member_is_one_error)
{
    tar t = {0};
    add(&t, "0.jpg", "j0");
    add(&t, "0.cls", "c0");
    add(&t, "1.jpg", "j1");
    add(&t, "2.cls", "c2");
    add(&t, "2.jpg", "j2");
    finish(&t, "a.tar", 0);
    mr_drive(mr_drive_path("tar(\"@/a.tar\").map(r => r[\"cls\"])"),
             "\"c0\" !record_1_lacks_the_member_cls \"c2\"");
    mr_status error;
    mr_drive_error(mr_drive_path("tar(\"@/a.tar\")"), &error);
    mr_eq_i64(error.record, 1);
    mr_eq_str(error.file, mr_test_path("a.tar"));
}

MR_TEST(a_damaged_archive_ends_with_an_error)
{
    tar t = {0};
    add(&t, "0.txt", "zero");
    add(&t, "1.txt", "one");
    add(&t, "2.txt", "two");
    finish(&t, "cut.tar", 1024 + 512 + 200); /* within the third header */
    mr_drive_file("b.txt", "");
    write_samples();
    mr_drive(mr_drive_path("tar(\"@/cut.tar\", \"@/b.tar\", members=[\"__key__\"])"
                           ".map(r => r[\"__key__\"])"),
             "\"0\" \"1\" !data_loss \"b/0003\"");
    table_write("junk.tar", "this is no archive at all, whatever its name says", 49);
    mr_drive(mr_drive_path("tar(\"@/junk.tar\", members=[\"txt\"])"), "!damaged_tar_archive");
    mr_drive(mr_drive_path("tar(\"@/none.tar\", members=[\"txt\"])"), "!not_found");
}

/* The error of record `record`, whose first header is at `offset`, and no other's. */
static void expect_place(const char *graph, int64_t record, int64_t offset)
{
    mr_status error;
    mr_drive_error(mr_drive_path(graph), &error);
    mr_eq_i64(error.record, record);
    mr_eq_i64(error.offset, offset);
}

MR_TEST(a_member_that_stands_twice_is_the_error_of_its_record)
{
    tar t = {0};
    add(&t, "0.txt", "zero");
    for (int i = 0; i < 3; i++)
        add(&t, "1.txt", "one");
    add(&t, "2.txt", "two");
    add(&t, "2.jpg", "unasked");
    add(&t, "2.jpg", "unasked");
    add(&t, "3.txt", "three");
    add(&t, "3.TXT", "again");
    finish(&t, "twice.tar", 0);
    mr_drive(mr_drive_path("tar(\"@/twice.tar\", members=[\"txt\"]).map(r => r[\"txt\"])"),
             "\"zero\" !record_1_has_more_than_one_member_txt \"two\" !record_3_has");
    expect_place("tar(\"@/twice.tar\", members=[\"txt\"]).take(2)", 1, 1024);
    expect_place("tar(\"@/twice.tar\", members=[\"txt\"])", 3, 7 * 1024);
    mr_drive_faults(mr_drive_path("tar(\"@/twice.tar\", members=[\"txt\", \"x?\"])"));
}

MR_TEST(damage_is_said_where_it_lies)
{
    for (int at = 0; at < 4; at++) { /* in the header of each member */
        tar t = {0};
        for (int i = 0; i < 4; i++) {
            char name[16];
            snprintf(name, sizeof name, "%d.txt", i);
            add(&t, name, "text");
        }
        t.v[1024 * at + 5] ^= 1;
        finish(&t, "bad.tar", 0);
        mr_test_context("header %d", at);
        expect_place("tar(\"@/bad.tar\", members=[\"txt\"])", at, 1024 * at);
    }
    tar t = {0};
    add(&t, "0.txt", "text");
    add(&t, "1.txt", "text");
    finish(&t, "cut.tar", 1024 + 512);
    expect_place("tar(\"@/cut.tar\", members=[\"txt\"])", 1, 1024);
    mr_drive(mr_drive_path("tar(\"@/cut.tar\", members=[\"__key__\"]).map(r => r[\"__key__\"])"),
             "\"0\" !the_rest_of_the_file_is_skipped");
    table_write("none.tar", "", 0);
    mr_drive(mr_drive_path("tar(\"@/none.tar\", members=[\"txt\"])"), "!the_file_is_empty");
    expect_place("tar(\"@/none.tar\", members=[\"txt\"])", 0, 0);
    table_refused(mr_drive_path("tar(\"@/none.tar\")"), MR_DATA_LOSS, "the file is empty");
}

MR_TEST(the_case_of_extensions_does_not_matter)
{
    tar t = {0};
    add(&t, "a/IMG.1.JPG", "one");
    add(&t, "a/IMG.1.Cls", "1");
    add(&t, "a/img.2.jpg", "two");
    add(&t, "a/img.2.cls", "2");
    finish(&t, "a.tar", 0);
    static const char *const graphs[] = {
        "tar(\"@/a.tar\").map(r => (r[\"__key__\"], r[\"1.jpg\"], r[\"1.cls\"])).take(1)",
        "tar(\"@/a.tar\", members=[\"1.jpg\", \"1.CLS\"])"
        ".map(r => (r[\"__key__\"], r[\"1.jpg\"], r[\"1.CLS\"])).take(1)"};
    for (int i = 0; i < 2; i++)
        mr_drive(mr_drive_path(graphs[i]), "(\"a/IMG\",\"one\",\"1\")");
}

MR_TEST(members_have_alternatives_and_may_be_optional)
{
    tar t = {0};
    add(&t, "0.jpg", "j0");
    add(&t, "0.txt", "t0");
    add(&t, "1.PNG", "p1");
    add(&t, "2.jpeg", "j2");
    add(&t, "2.txt", "");
    add(&t, "3.txt", "t3");
    add(&t, "4.jpg", "j4");
    add(&t, "4.png", "p4");
    add(&t, "5.png", "p5");
    finish(&t, "a.tar", 0);
#define SHOWN ".map(r => (r[\"__key__\"], r[\"jpg\"], r[\"txt\"]))"
    mr_drive(mr_drive_path("tar(\"@/a.tar\", members=[\"jpg;jpeg;png\", \"txt?\"])" SHOWN),
             "(\"0\",\"j0\",\"t0\") (\"1\",\"p1\",\"\") (\"2\",\"j2\",\"\") "
             "!record_3_lacks_the_member_jpg;jpeg;png "
             "!record_4_has_more_than_one_member_jpg;jpeg;png (\"5\",\"p5\",\"\")");
    mr_drive(mr_drive_path("tar(\"@/a.tar\", members=[\"txt\", "
                           "\"jpg;png?\"]).ignore_errors().skip(2).take(1)" SHOWN),
             "(\"3\",\"\",\"t3\")");
    expect_place("tar(\"@/a.tar\", members=[\"jpg;jpeg;png\", \"txt?\"])", 4, 5120 + 512);
    static const char *const bad[][2] = {{"\"jpg;\"", "what follows the first dot"},
                                         {"\";jpg\"", "what follows the first dot"},
                                         {"\"jpg;;png\"", "what follows the first dot"},
                                         {"\"?\"", "what follows the first dot"},
                                         {"\"jpg;.png\"", "what follows the first dot"},
                                         {"\"jpg?;png\"", "must be at the end"},
                                         {"\"jpg\", \"png;JPG\"", "JPG is requested twice"},
                                         {"\"jpg;jpg\"", "jpg is requested twice"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[100];
        snprintf(text, sizeof text, "tar(\"@/a.tar\", members=[%s])", bad[i][0]);
        mr_drive_bad(mr_drive_path(text), bad[i][1]);
    }
}

/* What is damaged may be a member that the record may lack. */
MR_TEST(damage_does_not_become_an_empty_member)
{
    for (int cut = 0; cut < 3; cut++) { /* in the header, and before and in the data */
        tar t = {0};
        add(&t, "0.jpg", "j0");
        add(&t, "0.txt", "t0");
        add(&t, "1.jpg", "j1");
        add(&t, "1.txt", "t1");
        finish(&t, "cut.tar", 1024 + (size_t[]){512 + 200, 512, 300}[cut]);
        mr_test_context("cut %d", cut);
        mr_drive(mr_drive_path("tar(\"@/cut.tar\", members=[\"jpg\", \"txt?\"])" SHOWN),
                 "(\"0\",\"j0\",\"t0\") !damaged_tar_archive");
        mr_drive(mr_drive_path("tar(\"@/cut.tar\", members=[\"jpg\", \"png?\"])"
                               ".map(r => r[\"jpg\"])"),
                 "\"j0\" !damaged_tar_archive");
    }
}

/* An image of no bytes names its member. */
MR_TEST(an_error_of_an_empty_member_says_where_it_is)
{
    tar t = {0};
    add(&t, "0.cls", "0");
    add(&t, "0.jpg", "");
    finish(&t, "a.tar", 0);
    expect_place("tar(\"@/a.tar\").map(r => decode_image(r[\"jpg\"]))", 0, 1024);
    add(&t, "0.cls", "0");
    add(&t, "0.jpg", "");
    add(&t, "1.cls", "1");
    finish(&t, "b.tar", 0);
    expect_place("tar(\"@/b.tar\", members=[\"jpg?\"]).map(r => decode_image(r[\"jpg\"]))", 1,
                 1536);
}

/* ---- archives in one file ---- */

static char logged[512];
static int n_logged;
static void keep_log(void *ctx, mr_log_level level, const char *message)
{
    (void)ctx;
    if (level == MR_LOG_WARNING) {
        snprintf(logged, sizeof logged, "%s", message);
        n_logged++;
    }
}

/* What the graph gives, and the one warning that it logs; "": none. */
static void expect_logged(const char *graph, const char *expected, const char *warning)
{
    mr_test_context("%s", graph);
    logged[0] = '\0';
    n_logged = 0;
    mr_log_set(keep_log, NULL, MR_LOG_WARNING);
    char *shown = mr_drive_show(mr_drive_path(graph));
    mr_log_set(NULL, NULL, MR_LOG_WARNING);
    mr_has_str(logged, warning);
    mr_eq_i64(n_logged, *warning != '\0');
    free(shown);
    mr_drive(mr_drive_path(graph), expected);
}

/* As `cat` joins them; the record at the end of one and that at the start of the next have one
 * key. */
MR_TEST(archives_that_follow_one_another_are_read)
{
    static const size_t padding[] = {1, 2, 3, 20, 3000};
    for (size_t i = 0; i < sizeof padding / sizeof *padding; i++) {
        tar t = {0};
        add(&t, "0.txt", "zero");
        add(&t, "1.txt", "one");
        room(&t, padding[i]);
        add(&t, "1.txt", "again");
        add(&t, "2.txt", "two");
        room(&t, 2);
        room(&t, padding[i]);
        add(&t, "3.txt", "three");
        finish(&t, "a.tar", 0);
        expect_logged("tar(\"@/a.tar\").map(r => (r[\"__key__\"], r[\"txt\"]))",
                      "(\"0\",\"zero\") (\"1\",\"one\") (\"1\",\"again\") "
                      "(\"2\",\"two\") (\"3\",\"three\")",
                      "");
    }
}

MR_TEST(an_odd_end_of_an_archive_is_warned_of)
{
    tar t = {0};
    add(&t, "0.txt", "zero");
    add(&t, "1.txt", "one");
    finish(&t, "cut.tar", 1024);
#define TEXTS(name) "tar(\"@/" name "\").map(r => r[\"txt\"])"
    expect_logged(TEXTS("cut.tar"), "\"zero\" \"one\"",
                  "cut.tar: the archive has no end and may be cut short (byte 2048)");
    add(&t, "0.txt", "zero");
    finish(&t, "short.tar", 512);
    expect_logged(TEXTS("short.tar"), "\"zero\"", "");
    for (int i = 0; i < 2; i++) { /* less than a block, and more */
        add(&t, "0.txt", "zero");
        room(&t, 2);
        memcpy(room(&t, 3), "This isn't header.", 18);
        finish(&t, "more.tar", i ? 2 * 512 : 2 * 512 + 2 * 512 + 412);
        expect_logged(
            TEXTS("more.tar"), "\"zero\"",
            "more.tar: bytes that are not an archive follow its end and are not read (byte 2048)");
    }
    /* A member that was cut off is missed in its record. */
    add(&t, "0.txt", "zero");
    add(&t, "0.cls", "0");
    add(&t, "1.txt", "one");
    finish(&t, "half.tar", 1024);
    expect_logged("tar(\"@/half.tar\").map(r => r[\"cls\"])", "\"0\" !record_1_lacks", "no end");
}

MR_TEST(an_odd_end_of_an_archive_is_an_error_if_wanted)
{
    const char *const names[] = {"txt"};
    const mr__tar_opts own = {names, 1};
    for (int i = 0; i < 2; i++) {
        mr_reader *r = NULL;
        int64_t skipped;
        mr_status st;
        tar t = {0};
        add(&t, "0.txt", "zero");
        if (i) {
            room(&t, 2);
            memcpy(room(&t, 1), "x", 1);
        }
        finish(&t, "odd.tar", 1024);
        mr_ok(mr_reader_open(&r, &mr__format_tar, mr_test_path("odd.tar"),
                             &(mr_file_opts){.own = &own, .strict = true}, &st),
              &st);
        mr_code_is(mr_reader_skip(r, 10, &skipped, &st), MR_DATA_LOSS, &st);
        mr_eq_i64(skipped, 1);
        mr_eq_i64(st.offset, i ? 2048 : 1024);
        mr_reader_close(r);
    }
}

MR_TEST(files_of_no_record_are_warned_of)
{
    tar t = {0};
    add(&t, "README", "no point");
    add(&t, "0.txt", "zero");
    add(&t, "0.", "no extension");
    add(&t, "d/.hidden.txt", "no key");
    add(&t, "1.txt", "one");
    finish(&t, "some.tar", 0);
    expect_logged(TEXTS("some.tar"), "\"zero\" \"one\"",
                  "some.tar: 3 files without a key or an extension belong to no record and are "
                  "not read, such as \"README\"");
    add(&t, "0.txt", "zero");
    room(&t, 2);
    add(&t, "LICENSE", "in the second archive");
    finish(&t, "joined.tar", 0);
    expect_logged(TEXTS("joined.tar"), "\"zero\"",
                  "1 file without a key or an extension belongs to no record and is not read");
    add_bytes(&t, "folder", '5', NULL, 0);
    add(&t, "0.txt", "zero");
    finish(&t, "folder.tar", 0);
    expect_logged(TEXTS("folder.tar"), "\"zero\"", "");
}

MR_TEST(files_without_any_record_are_an_error)
{
    tar t = {0};
    add(&t, "0.txt", "zero");
    finish(&t, "a.tar", 0);
    add(&t, "README", "no point");
    add(&t, ".hidden", "no key");
    finish(&t, "b.tar", 0);
    mr_drive(mr_drive_path("tar([\"@/a.tar\", \"@/b.tar\", \"@/a.tar\"]).map(r => r[\"txt\"])"),
             "\"zero\" !none_of_its_2_files_belongs_to_a_record,_such_as_\"README\" \"zero\"");
}

MR_TEST(a_link_is_the_error_of_its_record)
{
    static const char types[] = {'1', '2', '3', '6'}; /* links, a device, a FIFO */
    for (size_t i = 0; i < sizeof types; i++) {
        tar t = {0};
        add(&t, "0.txt", "zero");
        add_bytes(&t, "1.txt", types[i], NULL, 0);
        add(&t, "1.cls", "1");
        add(&t, "2.txt", "two");
        finish(&t, "linked.tar", 0);
        mr_drive(mr_drive_path(TEXTS("linked.tar")),
                 "\"zero\" !record_1_has_its_member_txt_as_a_link \"two\"");
        mr_drive(mr_drive_path("tar(\"@/linked.tar\", members=[\"cls?\"]).map(r => r[\"cls\"])"),
                 "\"\" \"1\" \"\"");
        mr_drive(mr_drive_path("tar(\"@/linked.tar\", members=[\"txt?\"]).map(r => r[\"txt\"])"),
                 "\"zero\" !as_a_link \"two\"");
    }
}

MR_TEST(an_archive_without_records_is_empty)
{
    tar t = {0};
    finish(&t, "empty.tar", 0);
    mr_drive(mr_drive_path("tar(\"@/empty.tar\", members=[\"txt\"])"), "");
    mr_drive_bad(mr_drive_path("tar(\"@/empty.tar\")"), "no members with a key and an extension");
}

MR_TEST(what_cannot_be_known_is_refused)
{
    write_samples();
    mr_drive_bad("list_files(\"*.tar\").flat_map(f => tar(f))", "members must be given");
    mr_drive_bad("tar(\"a.tar\", members=[\"jpg\", \"jpg\"])", "requested twice");
    mr_drive_bad("tar(\"a.tar\", members=[\".jpg\"])", "what follows the first dot");
}

MR_TEST(every_failed_allocation_is_reported)
{
    write_samples();
    mr_drive_faults(mr_drive_path("tar(\"@/?.tar\", members=[\"cls\", \"jpg\"]).batch(2)"));
}

MR_TEST(the_constructor_is_the_text)
{
    const char *names[] = {"a-*.tar"};
    mr_bytes members[] = {{"jpg", 3}, {"cls", 3}};
    mr_dataset *ds = mr_tar(names, 1, &(mr_tar_opts){.members = {.v = members, .n = 2}});
    char *text = NULL;
    mr_status st;
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text, "tar(\"a-*.tar\", members=[\"jpg\", \"cls\"])");
    mr_free(text);
    mr_dataset_unref(ds);
}

MR_TEST(a_read_stops_at_its_bytes)
{
    const char *const names[] = {"txt"};
    const mr__tar_opts own = {names, 1};
    tar t = {0};
    for (int i = 0; i < 9; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d.txt", i);
        add(&t, name, "ten bytes.");
    }
    finish(&t, "tens.tar", 0);
    for (size_t rows = 1; rows <= 5; rows++) {
        mr_reader *r = NULL;
        mr_array a = {0};
        mr_status st;
        mr_ok(mr_reader_open(&r, &mr__format_tar, mr_test_path("tens.tar"),
                             &(mr_file_opts){.own = &own}, &st),
              &st);
        mr_ok(mr_reader_read(r, 100, rows * 10, &a, &st), &st);
        mr_eq_u64(a.rows, rows);
        mr_array_reset(&a);
        mr_reader_close(r);
    }
}

MR_TEST(an_error_comes_after_the_rows_before_it)
{
    const char *const names[] = {"txt"};
    const mr__tar_opts own = {names, 1};
    mr_reader *r = NULL;
    mr_array a = {0};
    mr_status st;
    tar t = {0};
    add(&t, "1.txt", "good");
    add(&t, "2.txt", "cut");
    finish(&t, "cut.tar", 1024 + 512);
    mr_ok(mr_reader_open(&r, &mr__format_tar, mr_test_path("cut.tar"), &(mr_file_opts){.own = &own},
                         &st),
          &st);
    mr_ok(mr_reader_read(r, 100, 1 << 20, &a, &st), &st);
    mr_eq_u64(a.rows, 1);
    mr_array_reset(&a);
    mr_code_is(mr_reader_read(r, 100, 1 << 20, &a, &st), MR_DATA_LOSS, &st);
    mr_has_str(st.message, "damaged tar archive");
    mr_reader_close(r);
}
