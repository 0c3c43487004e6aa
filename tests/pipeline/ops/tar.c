/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "pipeline/formats/reader.h"
#include "pipeline/formats/tar.h"
#include "pipeline/graph/rewrite.h"
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
         ".flat_map(f => tar(f, compression=\"\", members=[\"__key__\", \"cls\"]))"}};
    write_samples();
    const char *const archives[] = {mr_test_path("a.tar"), mr_test_path("b.tar")};
    for (size_t i = 0; i < 2; i++) {
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

/* GNU's old sparse header: one part of one byte, at `at`, in a member of at + 1 bytes. */
static void write_sparse(const char *name, size_t at)
{
    tar t = {0};
    unsigned sum = 0;
    add_bytes(&t, "0.bin", 'S', "x", 1);
    char *h = t.v;
    memcpy(h + 257, "ustar  ", 8);
    snprintf(h + 386, 13, "%011zo", at);
    snprintf(h + 398, 13, "%011o", 1u);
    snprintf(h + 483, 13, "%011zo", at + 1);
    memset(h + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    finish(&t, name, 0);
}

MR_TEST(holes_are_zeros_and_bounded)
{
    write_sparse("small.tar", 100000);
    mr_drive(mr_drive_path("tar(\"@/small.tar\").map(r => decode_raw(r[\"bin\"], \"uint8\"))"
                           ".map(x => (size(x), x[0], x[-1]))"),
             "(100001,0,120)");
    write_sparse("large.tar", (size_t)3 << 30);
    mr_drive(mr_drive_path("tar(\"@/large.tar\").map(r => r[\"bin\"])"),
             "!a_sparse_member_with_3221225472_bytes_of_holes");
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
    add(&t, "0.txt", "zero");
    add(&t, "0.txt", "again");
    add(&t, "1.txt", "one");
    finish(&t, "twice.tar", 0);
    mr_drive(mr_drive_path("tar(\"@/twice.tar\", members=[\"txt\"])"),
             "!member_0.txt_appears_twice");
    table_write("junk.tar", "this is no archive at all, whatever its name says", 49);
    mr_drive(mr_drive_path("tar(\"@/junk.tar\", members=[\"txt\"])"), "!damaged_tar_archive");
    mr_drive(mr_drive_path("tar(\"@/none.tar\", members=[\"txt\"])"), "!not_found");
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
    add(&t, "2.txt", "once");
    add(&t, "2.txt", "twice");
    finish(&t, "twice.tar", 0);
    mr_ok(mr_reader_open(&r, &mr__format_tar, mr_test_path("twice.tar"),
                         &(mr_file_opts){.own = &own}, &st),
          &st);
    mr_ok(mr_reader_read(r, 100, 1 << 20, &a, &st), &st);
    mr_eq_u64(a.rows, 1);
    mr_array_reset(&a);
    mr_code_is(mr_reader_read(r, 100, 1 << 20, &a, &st), MR_DATA_LOSS, &st);
    mr_has_str(st.message, "appears twice");
    mr_reader_close(r);
}
