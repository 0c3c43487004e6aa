/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/arrow_ipc/arrow_ipc.h"

#include <lz4frame.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "pipeline/formats/arrow_ipc/arrow_ipc_source.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/arrow_file.h"

/* ---- tables ---- */

/* {0: 7 as int16, 1: "text", 2: {0: -1 as int8}, 3: [1, 2] as structs, 4: [{}, {0: 5}], 6: 2^40} */
static mr_bytes sample(mr__flat_writer *f)
{
    static const int64_t structs[] = {1, 2};
    size_t tables[2];
    mr_bytes v;
    mr_status st;
    size_t text = mr__flat_put_string(f, "text", 4);
    size_t list = mr__flat_put_structs(f, structs, 2, 8);
    mr__flat_begin_table(f);
    tables[0] = mr__flat_end_table(f);
    mr__flat_begin_table(f);
    mr__flat_put_int(f, 0, 4, 5);
    tables[1] = mr__flat_end_table(f);
    size_t places = mr__flat_put_places(f, tables, 2);
    mr__flat_begin_table(f);
    mr__flat_put_int(f, 0, 1, -1);
    size_t child = mr__flat_end_table(f);
    mr__flat_begin_table(f);
    mr__flat_put_int(f, 6, 8, (int64_t)1 << 40);
    mr__flat_put_place(f, 1, text);
    mr__flat_put_place(f, 2, child);
    mr__flat_put_place(f, 3, list);
    mr__flat_put_place(f, 4, places);
    mr__flat_put_int(f, 0, 2, 7);
    mr_ok(mr__flat_finish(f, mr__flat_end_table(f), &v, &st), &st);
    mr_eq_u64(v.size % 8, 0);
    return v;
}

/* Everything in it; what is wrong leaves zeros, and `bad`. */
static int64_t read_sample(mr__flat *f)
{
    mr__flat_table t = mr__flat_root(f), child = mr__flat_child(f, &t, 2);
    mr_bytes text = mr__flat_string(f, &t, 1);
    mr__flat_vector list = mr__flat_items(f, &t, 3, 8), tables = mr__flat_items(f, &t, 4, 4);
    int64_t sum = mr__flat_int(f, &t, 0, 2, 99) + mr__flat_int(f, &child, 0, 1, 99);
    for (size_t i = 0; i < text.size; i++)
        sum += text.data[i] == "text"[i % 4];
    for (size_t i = 0; i < list.n; i++)
        sum += mr__flat_read(f, list.at + 8 * i, 8);
    for (size_t i = 0; i < tables.n && !f->bad; i++) {
        mr__flat_table one = mr__flat_table_at(f, &tables, i);
        sum += mr__flat_int(f, &one, 0, 4, 100);
    }
    return sum + mr__flat_int(f, &t, 5, 8, 1000) + mr__flat_int(f, &t, 6, 8, 0);
}

MR_TEST(tables_are_read_as_they_were_written)
{
    mr__flat_writer w = {0};
    mr_bytes v = sample(&w);
    mr__flat f = {.v = (const uint8_t *)v.data, .n = v.size};
    mr_eq_i64(read_sample(&f), 7 - 1 + 4 + 3 + 105 + 1000 + ((int64_t)1 << 40));
    mr_check(!f.bad);
    mr__flat_writer_reset(&w);
}

/* Each byte with each of some values, in memory that ends where the buffer does: the sanitizers see
 * what is read beyond it. */
MR_TEST(damaged_tables_are_noticed_or_harmless)
{
    static const uint8_t values[] = {0, 1, 4, 0x7f, 0x80, 0xff};
    mr__flat_writer w = {0};
    mr_bytes v = sample(&w);
    size_t bad = 0;
    for (size_t n = 0; n < v.size; n++) {
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, v.data, n);
        mr__flat f = {.v = cut, .n = n};
        read_sample(&f);
        bad += f.bad;
        free(cut);
    }
    mr_check(bad > v.size / 2);
    for (size_t i = 0; i < v.size; i++)
        for (size_t k = 0; k < sizeof values; k++) {
            uint8_t *copy = malloc(v.size);
            memcpy(copy, v.data, v.size);
            copy[i] = values[k];
            mr__flat f = {.v = copy, .n = v.size};
            read_sample(&f);
            free(copy);
        }
    mr__flat_writer_reset(&w);
}

/* ---- schemas ---- */

/* A schema of `levels` structs, each with `width` fields that are all the same table. */
static mr_code read_nested(int levels, size_t width, mr_status *st)
{
    mr__flat_writer w = {0};
    mr__arrow_schema s = {0};
    mr_bytes v;
    size_t places[4];
    mr__flat_begin_table(&w);
    size_t type = mr__flat_end_table(&w), field = 0;
    for (int i = 0; i < levels; i++) {
        for (size_t k = 0; k < width; k++)
            places[k] = field;
        size_t children = field ? mr__flat_put_places(&w, places, width) : 0;
        mr__flat_begin_table(&w);
        mr__flat_put_place(&w, 3, type);
        mr__flat_put_place(&w, 5, children);
        mr__flat_put_int(&w, 2, 1, MR__ARROW_STRUCT);
        field = mr__flat_end_table(&w);
    }
    size_t fields = mr__flat_put_places(&w, &field, 1);
    mr__flat_begin_table(&w);
    mr__flat_put_place(&w, 1, fields);
    mr_ok(mr__flat_finish(&w, mr__flat_end_table(&w), &v, st), st);
    mr__flat f = {.v = (const uint8_t *)v.data, .n = v.size};
    mr__flat_table t = mr__flat_root(&f);
    mr_code rc = mr__arrow_schema_read(&s, &f, &t, 4, st);
    mr__arrow_schema_reset(&s);
    mr__flat_writer_reset(&w);
    return rc;
}

MR_TEST(schemas_nest_only_so_deep_and_have_only_so_many_fields)
{
    mr_status st;
    mr_ok(read_nested(MR__ARROW_MOST_LEVELS, 1, &st), &st);
    mr_code_is(read_nested(MR__ARROW_MOST_LEVELS + 1, 1, &st), MR_DATA_LOSS, &st);
    mr_has_str(st.message, "nested too deep");
    mr_ok(read_nested(10, 2, &st), &st);
    mr_code_is(read_nested(60, 2, &st), MR_RESOURCE_EXHAUSTED, &st);
    mr_has_str(st.message, "columns of an Arrow file");
}

/* Each of as many columns as a file may have, the first of two of one name. */
MR_TEST(columns_are_found_by_name_however_many_there_are)
{
    enum { N = MR__ARROW_MOST_FIELDS, TWICE = 77 };
    mr__flat_writer w = {0};
    mr__arrow_schema s = {0};
    mr_bytes v;
    mr_status st;
    char name[16];
    size_t *places = malloc(N * sizeof *places);
    mr__flat_begin_table(&w);
    size_t type = mr__flat_end_table(&w);
    for (size_t i = 0; i < N; i++) {
        size_t k = i == N - 1 ? TWICE : N - i;
        snprintf(name, sizeof name, "c%zu", k);
        size_t text = mr__flat_put_string(&w, name, strlen(name));
        mr__flat_begin_table(&w);
        mr__flat_put_place(&w, 0, text);
        mr__flat_put_place(&w, 3, type);
        mr__flat_put_int(&w, 2, 1, MR__ARROW_BOOL);
        places[i] = mr__flat_end_table(&w);
    }
    size_t fields = mr__flat_put_places(&w, places, N);
    mr__flat_begin_table(&w);
    mr__flat_put_place(&w, 1, fields);
    mr_ok(mr__flat_finish(&w, mr__flat_end_table(&w), &v, &st), &st);
    mr__flat f = {.v = (const uint8_t *)v.data, .n = v.size};
    mr__flat_table t = mr__flat_root(&f);
    mr_ok(mr__arrow_schema_read(&s, &f, &t, 4, &st), &st);
    for (size_t k = 2; k <= N; k++) {
        snprintf(name, sizeof name, "c%zu", k);
        mr_eq_i64(mr__arrow_schema_find(&s, name), (int64_t)(N - k)); /* the first of two */
    }
    mr_eq_i64(mr__arrow_schema_find(&s, "c1"), -1);
    mr_eq_i64(mr__arrow_schema_find(&s, "z"), -1);
    mr_spec *spec = NULL;
    mr_code_is(mr__arrow_schema_spec(&s, NULL, 0, &spec, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "two columns are called 'c77'");
    mr__arrow_schema_reset(&s);
    mr__flat_writer_reset(&w);
    free(places);
}

/* ---- packed buffers ---- */

/* A length, then a frame of n bytes; *size of all. Owned: free. */
static uint8_t *packed(mr__arrow_codec codec, const void *data, size_t n, int64_t length,
                       size_t *size)
{
    size_t room = 2 * n + 4096;
    uint8_t *v = malloc(room);
    memcpy(v, &length, 8);
    if (codec == MR__ARROW_ZSTD)
        *size = ZSTD_compress(v + 8, room - 8, data, n, 3);
    else
        *size = LZ4F_compressFrame(v + 8, room - 8, data, n, NULL);
    mr_check(*size > 0 && *size < room);
    *size += 8;
    return v;
}

static mr_code unpack(mr__arrow_codec codec, const uint8_t *v, size_t n, const void *expected,
                      size_t size, mr_status *st)
{
    mr__arrow_unpacker u = {0};
    mr_code rc = MR_OK;
    for (int pass = 0; pass < 2 && rc == MR_OK; pass++) { /* a context is used again */
        mr_buffer *owner = NULL;
        const uint8_t *data = NULL;
        size_t got = 0;
        rc = mr__arrow_unpack(&u, codec, v, n, &owner, &data, &got, st);
        if (rc == MR_OK) {
            mr_eq_u64(got, size);
            mr_check(size == 0 || memcmp(data, expected, size) == 0);
        }
        mr_buffer_unref(owner);
    }
    mr__arrow_unpacker_reset(&u);
    return rc;
}

MR_TEST(buffers_are_unpacked_and_their_lengths_checked)
{
    static const mr__arrow_codec codecs[] = {MR__ARROW_LZ4, MR__ARROW_ZSTD};
    char text[5000];
    mr_status st;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i % 7 * (i % 11));
    for (size_t c = 0; c < 2; c++) {
        static const int64_t lengths[] = {5001, 4999, 1, (int64_t)1 << 40, INT64_MAX, -2};
        size_t n;
        uint8_t *v = packed(codecs[c], text, sizeof text, sizeof text, &n);
        mr_ok(unpack(codecs[c], v, n, text, sizeof text, &st), &st);
        for (size_t cut = 1; cut < n; cut += 13)
            mr_code_is(unpack(codecs[c], v, cut, text, sizeof text, &st), MR_DATA_LOSS, &st);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            memcpy(v, &lengths[i], 8);
            mr_code_is(unpack(codecs[c], v, n, text, sizeof text, &st), MR_DATA_LOSS, &st);
            mr_has_str(st.message, "compressed buffer is damaged");
        }
        memset(v, 0xff, 8); /* not packed */
        mr_ok(unpack(codecs[c], v, n, v + 8, n - 8, &st), &st);
        memset(v, 0, 8);
        mr_ok(unpack(codecs[c], v, n, NULL, 0, &st), &st);
        mr_ok(unpack(codecs[c], v, 0, NULL, 0, &st), &st);
        memset(v + 8, 'x', 20);
        memcpy(v, &(int64_t){5000}, 8);
        mr_code_is(unpack(codecs[c], v, n, NULL, 0, &st), MR_DATA_LOSS, &st);
        free(v);
    }
    mr_ok(unpack(MR__ARROW_PLAIN, (const uint8_t *)"abc", 3, "abc", 3, &st), &st);
}

/* Memory is had step by step: a good length is reached, a bad one is not asked for. */
MR_TEST(buffers_that_are_packed_very_well_grow)
{
    static const mr__arrow_codec codecs[] = {MR__ARROW_LZ4, MR__ARROW_ZSTD};
    size_t size = (size_t)20 << 20, n;
    char *zeros = calloc(1, size);
    mr_status st;
    for (size_t c = 0; c < 2; c++) {
        uint8_t *v = packed(codecs[c], zeros, size, (int64_t)size, &n);
        mr_check(n < size / 100);
        mr_ok(unpack(codecs[c], v, n, zeros, size, &st), &st);
        free(v);
    }
    free(zeros);
}

/* ---- sources ---- */

/* Sums of n, of `want` columns, from row `from` on, with and without what is read ahead. */
static void read_rows(const char *path, const mr_bytes *want, size_t n_want, int64_t from,
                      int64_t rows)
{
    mr_reader *r = NULL;
    mr_spec *spec = NULL;
    mr_array a = {0};
    mr_status st;
    mr_code rc;
    int64_t row = from;
    mr_ok(mr__arrow_file_spec(path, want, n_want, &spec, &st), &st);
    const mr__arrow_opts own = {.spec = spec};
    mr_ok(mr_reader_open(&r, &mr__format_arrow, path, &(mr_file_opts){.own = &own}, &st), &st);
    mr_ok(mr_reader_seek(r, &(mr_file_position){.record = from}, &st), &st);
    size_t n_at = mr_spec_first_leaf(spec, (size_t)mr_spec_find(spec, "n"));
    while ((rc = mr_reader_read(r, 1000, 1 << 18, &a, &st)) == MR_OK) {
        mr_block b = MR_BLOCK_EMPTY;
        const uint32_t *nulls;
        int64_t batch;
        mr_ok(mr__arrow_take_rows(r, &b, &nulls, &batch, &st), &st);
        mr_check(nulls == NULL);
        for (size_t i = 0; i < b.rows; i++, row++)
            mr_eq_i64(*(const int64_t *)mr_array_at(&b.columns[n_at], i), row);
        mr_block_reset(&b);
    }
    mr_code_is(rc, MR_END, &st);
    mr_eq_i64(row, rows);
    mr_code_is(mr_reader_seek(r, &(mr_file_position){.record = rows + 1}, &st), MR_OUT_OF_RANGE,
               &st);
    mr_reader_close(r);
    mr_spec_unref(spec);
}

MR_TEST(rows_are_the_same_from_the_cache_and_from_the_disk)
{
    static const mr_bytes n = {"n", 1};
    static const int64_t starts[] = {0, 1, 700, 1399, 1400};
    const char *path = mr_test_path("large.arrow");
    /* 17 MB: gaps that are read through and gaps that are not. */
    arrow_file("large.arrow", "range(1400).map(n => {\"a\": ones([3000]), \"n\": n})", 1500000);
    arrow_stream("large.stream", "large.arrow");
    for (int way = 0; way < 3; way++) {
        mr_fault_off();
        if (way)
            mr_fault_uncached();
        if (way == 2)
            mr_fault_no_uring();
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
            read_rows(path, &n, 1, starts[i], 1400);
            read_rows(path, NULL, 0, starts[i], 1400);
            read_rows(mr_test_path("large.stream"), &n, 1, starts[i], 1400);
        }
    }
    mr_fault_off();
}
