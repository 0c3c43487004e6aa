/* SPDX-License-Identifier: Apache-2.0 */
/* npy and npz, of files made here as numpy makes them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "pipeline/ops/sources.h"
#include "pipeline/system/system.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"
#include "tests/pipeline/ops/npy_file.h"
#include "tests/pipeline/ops/table_file.h"

/* ---- npy ---- */

MR_TEST(entries_lie_along_axis_0)
{
    npy_file("a", NPY_HEAD("'<i8'", "False", "(6,)"), npy_six, sizeof npy_six);
    npy_file("b", NPY_HEAD("'<i8'", "False", "(2, 3)"), npy_six, sizeof npy_six);
    npy_file("c", NPY_HEAD("'<i8'", "False", "(2, 1, 3)"), npy_six, sizeof npy_six);
    npy_file("none", NPY_HEAD("'<i8'", "False", "(0,)"), NULL, 0);
    npy_file("flat", NPY_HEAD("'<i8'", "False", "(3, 0)"), NULL, 0);
    mr_drive(mr_drive_path("npy(\"@/a\")"), "0 1 2 3 4 5");
    mr_drive(mr_drive_path("npy(\"@/b\")"), "[0,1,2] [3,4,5]");
    mr_drive(mr_drive_path("npy(\"@/c\")"), "[[0,1,2]] [[3,4,5]]");
    mr_drive(mr_drive_path("npy([\"@/none\", \"@/a\", \"@/none\"]).skip(4).repeat(2)"), "4 5 4 5");
    mr_drive(mr_drive_path("npy(\"@/flat\")"), "[] [] []");
    mr_drive_count(mr_drive_path("npy([\"@/a\", \"@/a\", \"@/none\"])"), 12);
    mr_drive_alike(mr_drive_path("npy([\"@/a\", \"@/a\"]).shuffle(5, seed=3)"));
    mr_drive(mr_drive_path("list_files(\"@/b\").flat_map(f => npy(f, schema=int64[3]))"),
             "[0,1,2] [3,4,5]");
}

MR_TEST(fortran_order_is_turned)
{
    npy_file("a", NPY_HEAD("'<i8'", "True", "(2, 3)"), npy_six, sizeof npy_six);
    npy_file("b", NPY_HEAD("'<i8'", "True", "(1, 2, 3)"), npy_six, sizeof npy_six);
    npy_file("c", NPY_HEAD("'<i8'", "True", "(6,)"), npy_six, sizeof npy_six);
    mr_drive(mr_drive_path("npy(\"@/a\")"), "[0,2,4] [1,3,5]");
    mr_drive(mr_drive_path("npy(\"@/b\")"), "[[0,2,4],[1,3,5]]");
    mr_drive(mr_drive_path("npy(\"@/c\")"), "0 1 2 3 4 5");
    mr_drive(mr_drive_path("npy([\"@/a\", \"@/a\"]).skip(1)"), "[1,3,5] [0,2,4] [1,3,5]");
    mr_drive_alike(mr_drive_path("npy([\"@/a\", \"@/a\"]).repeat(2)"));
}

MR_TEST(numbers_of_either_byte_order_and_strings)
{
    npy_file("big", NPY_HEAD("'>i8'", "False", "(2,)"),
             "\0\0\0\0\0\0\1\2\xff\xff\xff\xff\xff\xff\xff\xfe", 16);
    mr_drive(mr_drive_path("npy(\"@/big\")"), "258 -2");
    npy_file("f", NPY_HEAD("'>f4'", "False", "(2, 1)"), "\x3f\x80\0\0\xbf\0\0\0", 8);
    mr_drive(mr_drive_path("npy(\"@/f\")"), "[1] [-0.5]");
    npy_file("b", NPY_HEAD("'|b1'", "False", "(3,)"), "\0\1\2", 3);
    mr_drive(mr_drive_path("npy(\"@/b\")"), "false true true");
    npy_file("s", NPY_HEAD("'|S3'", "False", "(3,)"), "abcd\0\0\0\0\0", 9);
    mr_drive(mr_drive_path("npy(\"@/s\")"), "\"abc\" \"d\" \"\"");
    npy_file("u", NPY_HEAD("'<U2'", "False", "(2,)"), "a\0\0\0\xe9\0\0\0\0\xf6\1\0\0\0\0\0", 16);
    mr_drive(mr_drive_path("npy(\"@/u\")"), "\"a\xc3\xa9\" \"\xf0\x9f\x98\x80\"");
    npy_file("U", NPY_HEAD("'>U1'", "False", "(1,)"), "\0\0\0x", 4);
    mr_drive(mr_drive_path("npy(\"@/U\")"), "\"x\"");
    npy_file("d", NPY_HEAD("'<M8[D]'", "False", "(1,)"), &npy_six[3], 8);
    mr_drive(mr_drive_path("npy(\"@/d\")"), "3");
}

MR_TEST(structured_types_make_records)
{
    static const unsigned char v[] = {1, 0, 0, 0, 7, 9, 'p', 0, 2, 0, 0, 0, 8, 5, 'q', 'r'};
    npy_file(
        "a",
        NPY_HEAD("[('id', '<i4'), ('box', '|u1', (2,)), (('title', 's'), '|S2')]", "False", "(2,)"),
        v, sizeof v);
    mr_drive(mr_drive_path("npy(\"@/a\").map(x => (cast(x[\"id\"], \"int64\"), cast(x[\"box\"], "
                           "\"int64\"), x[\"s\"]))"),
             "(1,[7,9],\"p\") (2,[8,5],\"qr\")");
    npy_file("b",
             NPY_HEAD("[('id', '<i4'), ('', '|V2'), ('n', [('s', '|S2')])]", "False", "(1, 2)"), v,
             sizeof v);
    mr_drive(mr_drive_path("npy(\"@/b\").map(x => (cast(x[\"id\"], \"int64\"), x[\"n/s\"]))"),
             "([1,2],[\"p\",\"qr\"])");
}

MR_TEST(heads_of_every_version_and_spelling)
{
    static const char *const heads[] = {NPY_HEAD("'<i8'", "False", "(2,)"),
                                        "'shape': (2L,), 'fortran_order': False, 'descr': '<i8'",
                                        "\"descr\": \"<i8\",\n 'shape':(2,),'fortran_order':True"};
    for (int version = 1; version <= 3; version++)
        for (size_t i = 0; i < 3; i++) {
            npy_bytes f = {{0}, 0};
            npy_put_array(&f, version, heads[i], npy_six, 16);
            mr_drive_bytes("h", f.v, f.n);
            mr_drive(mr_drive_path("npy(\"@/h\")"), "0 1");
        }
}

MR_TEST(what_is_not_read_is_refused_by_name)
{
    static const struct {
        const char *head, *part;
        mr_code code;
    } bad[] = {
        {NPY_HEAD("'|O'", "False", "(1,)"), "'|O': Python objects", MR_INVALID_ARGUMENT},
        {NPY_HEAD("'<c8'", "False", "(1,)"), "complex numbers", MR_INVALID_ARGUMENT},
        {NPY_HEAD("'<f4'", "False", "()"), "the array is one value", MR_INVALID_ARGUMENT},
        {NPY_HEAD("[('a', '|V3')]", "False", "(1,)"), "field a: ", MR_INVALID_ARGUMENT},
        {NPY_HEAD("[('a', [('b', '<f4')], (2,))]", "False", "(1,)"), "field a: an array of",
         MR_INVALID_ARGUMENT},
        {NPY_HEAD("'<f3'", "False", "(1,)"), "'<f3': a type that is not", MR_INVALID_ARGUMENT},
        {"'descr': '<f4', 'shape': (1,)", "the head of the NPY file is damaged", MR_DATA_LOSS},
        {NPY_HEAD("'<f4'", "Maybe", "(1,)"), "damaged", MR_DATA_LOSS},
        {NPY_HEAD("'<f4'", "False", "(1"), "damaged", MR_DATA_LOSS},
        {NPY_HEAD("'<f4'", "False", "(-1,)"), "damaged", MR_DATA_LOSS},
        {NPY_HEAD("'<f8'", "False", "(9223372036854775807,)"), "larger than can be", MR_DATA_LOSS},
        {NPY_HEAD("[('a' '<f4')]", "False", "(1,)"), "damaged", MR_DATA_LOSS}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        npy_file("bad", bad[i].head, npy_six, 16);
        table_refused(mr_drive_path("npy(\"@/bad\")"), bad[i].code, bad[i].part);
    }
    mr_drive_bytes("bad", "", 0);
    table_refused(mr_drive_path("npy(\"@/bad\")"), MR_DATA_LOSS, "it is empty");
    mr_drive_bytes("bad", "PK\3\4aaaaaaaaaa", 14);
    table_refused(mr_drive_path("npy(\"@/bad\")"), MR_DATA_LOSS, "not an NPY file");
    mr_drive_bad("npy(\"a\", schema=int65)", "expected a type such as");
}

static void *write_pipe(void *path)
{
    static char bytes[256];
    FILE *from = fopen(mr_test_path("a"), "rb"), *to = fopen(path, "wb");
    size_t n = from ? fread(bytes, 1, sizeof bytes, from) : 0;
    bool whole = to && n > 0 && fwrite(bytes, 1, n, to) == n;
    if (from)
        fclose(from);
    if (to && fclose(to) != 0)
        whole = false;
    return whole ? path : NULL;
}

/* A look at its head, for the type, takes the head from the reader. */
MR_TEST(a_pipe_gives_entries_of_a_known_schema)
{
    char path[512];
    pthread_t writer;
    void *written;
    npy_file("a", NPY_HEAD("'<i8'", "False", "(6,)"), npy_six, sizeof npy_six);
    snprintf(path, sizeof path, "%s", mr_test_path("pipe"));
    mr_check(mkfifo(path, 0600) == 0);
    mr_drive_bad(mr_drive_path("npy(\"@/pipe\")"), "a pipe can be read only once, and its first");
    mr_drive_bad(mr_drive_path("npz(\"@/pipe\")"), "a pipe can be read only once, and its first");
    mr_check(pthread_create(&writer, NULL, write_pipe, path) == 0);
    char *shown = mr_drive_show(mr_drive_path("npy(\"@/pipe\", schema=int64)"));
    mr_check(pthread_join(writer, &written) == 0 && written);
    mr_eq_str(shown, "0 1 2 3 4 5");
    free(shown);
}

MR_TEST(files_of_another_type_and_files_cut_short)
{
    npy_bytes f = {{0}, 0};
    npy_file("a", NPY_HEAD("'<i8'", "False", "(2,)"), npy_six, 16);
    npy_file("b", NPY_HEAD("'<i4'", "False", "(2,)"), npy_six, 8);
    mr_drive(mr_drive_path("npy([\"@/a\", \"@/b\", \"@/a\"])"),
             "0 1 !its_entries_are_int32[],_and_those_of_the_first_file_or_the_schema_int64[] 0 1");
    npy_file("cut", NPY_HEAD("'<i8'", "False", "(6,)"), npy_six, 20);
    mr_drive(mr_drive_path("npy([\"@/cut\", \"@/a\"])"),
             "0 1 !its_head_says_6_entries,_and_the_values_end_after_2 0 1");
    npy_file("cut", NPY_HEAD("'<i8'", "True", "(2, 3)"), npy_six, 47);
    mr_drive(mr_drive_path("npy([\"@/cut\", \"@/a\"], schema=int64[3]).take(1)"),
             "!the_file_is_truncated !its_entries_are_int64[]");
    npy_put_array(&f, 1, NPY_HEAD("'<i8'", "False", "(6,)"), npy_six, sizeof npy_six);
    for (size_t n = 0; n + sizeof npy_six < f.n; n += 7) {
        mr_drive_bytes("cut", f.v, n);
        mr_drive(mr_drive_path("npy(\"@/cut\", schema=int64)"), "!cut");
    }
}

/* ---- npz ---- */

MR_TEST(arrays_of_an_archive_lie_side_by_side)
{
    mr_status st;
    npz_file("z.npz");
    mr_drive_error(mr_drive_path("npz(\"@/z.npz\", schema={\"x\": int64[2]}, arrays=[\"x\"])"),
                   &st);
    if (st.code == MR_NOT_FOUND)
        mr_skip_test("libarchive is not installed");
    mr_drive(mr_drive_path("npz(\"@/z.npz\", arrays=[\"x\", \"y\"])"),
             "([0,1],[0,3]) ([2,3],[1,4]) ([4,5],[2,5])");
    mr_drive(mr_drive_path("npz(\"@/z.npz\", arrays=\"t\").map(r => r[\"t\"])"), "true false");
    mr_drive(mr_drive_path("npz([\"@/z.npz\", \"@/z.npz\"], arrays=[\"y\"]).skip(2).take(2)"
                           ".map(r => r[\"y\"])"),
             "[2,5] [0,3]");
    mr_drive(mr_drive_path("list_files(\"@/z.npz\").flat_map(f => npz(f, schema={\"y\": int64[2]}))"
                           ".map(r => r[\"y\"])"),
             "[0,3] [1,4] [2,5]");
    mr_drive_count(mr_drive_path("npz([\"@/z.npz\", \"@/z.npz\"], arrays=[\"y\"])"), 6);
    mr_drive_alike(mr_drive_path("npz([\"@/z.npz\", \"@/z.npz\"], arrays=[\"y\"]).repeat(2)"));
    table_refused(mr_drive_path("npz(\"@/z.npz\")"), MR_INVALID_ARGUMENT,
                  "array 't': it has 2 entries on axis 0, and the arrays before it 3");
    table_refused(mr_drive_path("npz(\"@/z.npz\", arrays=[\"x\", \"q\"])"), MR_INVALID_ARGUMENT,
                  "there is no array 'q'");
    npy_file("a.npy", NPY_HEAD("'<i8'", "False", "(2,)"), npy_six, 16);
    table_refused(mr_drive_path("npz(\"@/a.npy\")"), MR_DATA_LOSS, "damaged NPZ file");
}

MR_TEST(damage_to_an_archive_is_an_error)
{
    size_t n;
    mr_status st;
    npz_file("z.npz");
    unsigned char *v = table_read(mr_test_path("z.npz"), &n);
    mr_drive_error(mr_drive_path("npz(\"@/z.npz\", schema={\"x\": int64[2]}, arrays=[\"x\"])"),
                   &st);
    if (st.code == MR_NOT_FOUND)
        mr_skip_test("libarchive is not installed");
    for (size_t i = 0; i < 35 + 128 + sizeof npy_six; i += 11) { /* the first member, x */
        mr_drive_bytes("cut.npz", v, i);
        mr_drive(mr_drive_path("npz(\"@/cut.npz\", arrays=[\"x\"], schema={\"x\": int64[2]})"),
                 "!cut");
    }
    for (unsigned char length = 0; length < 4; length++) { /* of the head of x, without the magic */
        unsigned char *at = v + 35 + 8, was[2] = {at[0], at[1]};
        at[0] = length;
        at[1] = 0;
        mr_drive_bytes("short.npz", v, n);
        mr_drive(mr_drive_path("npz(\"@/short.npz\", arrays=[\"x\"], schema={\"x\": int64[2]})"),
                 length < 2 ? "!its_head_is_too_short" : "!data_loss");
        memcpy(at, was, 2);
    }
    v[35 + 128 + 9] ^= 1; /* a value */
    mr_drive_bytes("cut.npz", v, n);
    mr_drive(mr_drive_path("npz(\"@/cut.npz\", arrays=[\"x\"], schema={\"x\": int64[2]})"), "!CRC");
    free(v);
}

enum { HOLE = 128 << 20, HEAD = 128 };

static void add_hole(unsigned char *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof v);
    v += HOLE;
    memcpy(at, &v, sizeof v);
}

/* An archive of big, of int64[], most of which is a hole of the file, and y, of int64[2]. */
static void npz_with_hole(const char *name)
{
    npy_bytes f = {{0}, 0}, directory = {{0}, 0}, big = {{0}, 0}, y = {{0}, 0};
    char shape[64];
    snprintf(shape, sizeof shape, NPY_HEAD("'<i8'", "False", "(%d,)"), HOLE / 8);
    npy_put_array(&big, 1, shape, NULL, 0);
    mr_eq_u64(big.n, HEAD);
    npy_put_array(&y, 1, NPY_HEAD("'<i8'", "False", "(3, 2)"), npy_six, sizeof npy_six);
    npy_put_member(&f, &directory, "big.npy", &big);
    for (int k = 0; k < 2; k++) {
        add_hole(f.v + 18 + 4 * k);
        add_hole(directory.v + 20 + 4 * k);
    }
    size_t before = f.n, second = directory.n;
    npy_put_member(&f, &directory, "y.npy", &y);
    add_hole(directory.v + second + 42);
    npy_end_zip(&f, &directory, 2);
    add_hole(f.v + f.n - 6);
    FILE *to = fopen(mr_test_path(name), "wb");
    mr_check(to && fwrite(f.v, 1, before, to) == before && fseek(to, HOLE, SEEK_CUR) == 0 &&
             fwrite(f.v + before, 1, f.n - before, to) == f.n - before && fclose(to) == 0);
}

static size_t bytes_read;

static ssize_t counting_pread(int fd, void *buf, size_t n, off_t offset)
{
    ssize_t got = mr__system_real()->pread(fd, buf, n, offset);
    bytes_read += got > 0 ? (size_t)got : 0;
    return got;
}

static ssize_t counting_preadv2(int fd, const struct iovec *v, int n, off_t offset, int flags)
{
    ssize_t got = mr__system_real()->preadv2(fd, v, n, offset, flags);
    bytes_read += got > 0 ? (size_t)got : 0;
    return got;
}

MR_TEST(only_what_is_asked_for_is_read_of_an_archive)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    npz_with_hole("z.npz");
    mr_drive_error(mr_drive_path("npz(\"@/z.npz\", schema={\"y\": int64[2]}, arrays=[\"y\"])"),
                   &st);
    if (st.code == MR_NOT_FOUND)
        mr_skip_test("libarchive is not installed");
    mr__system table = *mr__system_real();
    table.pread = counting_pread;
    table.preadv2 = counting_preadv2;
    mr__system_set(&table);
    mr_dataset *ds = mr_drive_build(mr_drive_path("npz(\"@/z.npz\", arrays=[\"y\"])"));
    mr_eq_i64(mr_dataset_cardinality(ds), 3);
    const mr_iterator_opts o = {.has_threads = true, .no_uring = true};
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_ok(mr_iterator_next(it, 3, &b, &st), &st);
    mr_eq_u64(b.rows, 3);
    mr_test_context("%zu bytes", bytes_read);
    mr_check(bytes_read > 0 && bytes_read < HOLE / 4);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr__system_set(NULL);
    mr_drive_faults(mr_drive_path("npz(\"@/z.npz\", arrays=[\"y\"])"));
}

/* Of a limit that has room for one, but not for both. */
MR_TEST(arrays_that_memory_has_no_room_for_are_refused)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    npz_with_hole("z.npz");
    mr_drive_error(mr_drive_path("npz(\"@/z.npz\", schema={\"y\": int64[2]}, arrays=[\"y\"])"),
                   &st);
    if (st.code == MR_NOT_FOUND)
        mr_skip_test("libarchive is not installed");
    mr_dataset *ds = mr_drive_build(mr_drive_path("npz(\"@/z.npz\", arrays=[\"big\"])"));
    const mr_iterator_opts o = {.has_threads = true, .memory_limit = 30 << 20};
    mr_ok(mr_iterator_open(&it, ds, &o, &st), &st);
    mr_code_is(mr_iterator_next(it, 1, &b, &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_has_str(st.message, "array 'big'");
    mr_has_str(st.message, "name fewer in arrays=[...]");
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
}

MR_TEST(every_failed_allocation_is_reported)
{
    npy_file("a", NPY_HEAD("'<U1'", "True", "(2, 1)"), "a\0\0\0b\0\0\0", 8);
    npz_file("z.npz");
    mr_drive_faults(mr_drive_path("npy(\"@/a\")"));
    mr_drive_faults(mr_drive_path("npz(\"@/z.npz\", arrays=[\"y\"])"));
}

MR_TEST(the_constructors_are_the_text)
{
    mr_status st;
    char *text = NULL;
    const char *name = "a.npz";
    mr_bytes arrays[] = {{"x", 1}, {"y", 1}};
    mr_npz_opts o = {.schema = (char *)"{\"x\": int64, \"y\": float32[2]}"};
    o.arrays.v = arrays;
    o.arrays.n = 2;
    mr_dataset *ds = mr_npz(&name, 1, &o);
    mr_ok(mr_dataset_to_text(ds, &text, &st), &st);
    mr_eq_str(text,
              "npz(\"a.npz\", arrays=[\"x\", \"y\"], schema={\"x\": int64, \"y\": float32[2]})");
    mr_free(text);
    mr_dataset_unref(ds);
    mr_npy_opts p = {.schema = (char *)"uint8[28, 28]", .paths = true};
    ds = mr_npy(&name, 1, &p);
    mr_ok(mr_dataset_check(ds, &st), &st);
    mr_dataset_unref(ds);
}
