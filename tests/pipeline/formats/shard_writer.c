/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/shards/shard_writer.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/graph/dataset.h"
#include "pipeline/system/system.h"
#include "tests/fault.h"
#include "tests/fault_calls.h"
#include "tests/pipeline/formats/record_files.h"

MR_ONE_THREAD;

/* A set of n_shards, whose records all begin with its tag. */
static mr_code write_set(const char *prefix, int64_t n_shards, char tag, bool overwrite,
                         mr_status *st)
{
    mr_shard_writer *w = NULL;
    mr_code rc = mr_shard_writer_open(&w, prefix, n_shards,
                                      &(mr_shard_writer_opts){.overwrite = overwrite}, st);
    if (rc != MR_OK)
        return rc;
    for (int64_t i = 0; rc == MR_OK && i < 2 * n_shards; i++)
        rc = mr_shard_writer_append(w, &tag, 1, st);
    if (rc == MR_OK)
        return mr_shard_writer_close(w, st);
    mr_shard_writer_abort(w);
    return rc;
}

/* What PREFIX-* finds in a directory, and what is hidden there. */
typedef struct found {
    int n[128]; /* files by tag */
    int files, hidden;
} found;

static found look(const char *directory)
{
    found f = {.files = 0};
    struct dirent *e;
    DIR *d = opendir(directory);
    mr_check(d != NULL);
    while ((e = readdir(d))) {
        char path[1024];
        mr_code end;
        mr_status st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (e->d_name[0] == '.') {
            f.hidden++;
            continue;
        }
        mr_check(strncmp(e->d_name, "set-", 4) == 0);
        snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        const char *rows = all_records(path, MR_COMPRESSION_NONE, 10, &end, &st);
        mr_code_is(end, MR_END, &st); /* no file is seen before it is whole */
        mr_eq_u64(strlen(rows), 4);
        mr_check(rows[0] == rows[2]);
        f.n[(int)rows[0]]++;
        f.files++;
    }
    closedir(d);
    return f;
}

/* The disk is not waited for: thousands of sets are written here. */
static int no_fsync(int fd)
{
    (void)fd;
    return 0;
}
static mr__system quick;

static char *fresh_directory(int64_t n, char *prefix, size_t size)
{
    static char directory[512];
    quick = *mr__system_real();
    quick.fsync = no_fsync;
    mr__system_set(&quick);
    snprintf(directory, sizeof directory, "%s/d%lld", mr_test_dir(), (long long)n);
    snprintf(prefix, size, "%s/set", directory);
    mr_eq_i64(mkdir(directory, 0777), 0);
    return directory;
}

MR_TEST(a_set_of_other_shards_is_replaced_only_when_asked)
{
    mr_status st;
    char prefix[600];
    const char *d = fresh_directory(0, prefix, sizeof prefix);
    mr_ok(write_set(prefix, 3, 'a', false, &st), &st);
    mr_eq_i64(look(d).n['a'], 3);
    mr_ok(write_set(prefix, 3, 'b', false, &st), &st); /* the same names */
    mr_eq_i64(look(d).n['b'], 3);
    mr_code_is(write_set(prefix, 2, 'c', false, &st), MR_ALREADY_EXISTS, &st);
    mr_has_str(st.message, "set of 3 shards");
    mr_eq_i64(look(d).n['b'], 3);
    mr_ok(write_set(prefix, 2, 'c', true, &st), &st);
    mr_eq_i64(look(d).n['c'], 2);
    mr_ok(write_set(prefix, 1, 'd', true, &st), &st);
    mr_ok(write_set(prefix, 1, 'e', false, &st), &st);
    found f = look(d);
    mr_eq_i64(f.n['e'], 1);
    mr_eq_i64(f.files, 1);
    mr_eq_i64(f.hidden, 0);
}

/* The whole of file i of n, which ends in `ending`. */
static size_t read_shard(const char *prefix, int i, int n, const char *ending, char out[1024])
{
    char path[700];
    snprintf(path, sizeof path, "%s-%05d-of-%05d.%s", prefix, i, n, ending);
    FILE *f = fopen(path, "rb");
    mr_check(f != NULL);
    size_t size = fread(out, 1, 1023, f);
    out[size] = '\0';
    fclose(f);
    return size;
}

static mr_code write_formatted(const char *prefix, mr_shard_format format, bool overwrite,
                               mr_status *st)
{
    static const char records[3][2] = {"a", "b", "c"};
    static const int64_t shape[] = {2, 1};
    mr_shard_writer *w = NULL;
    const mr_shard_writer_opts opts = {.format = format, .overwrite = overwrite};
    MR_TRY(mr_shard_writer_open(&w, prefix, 2, &opts, st));
    mr_code rc =
        format == MR_SHARDS_NPY ? mr_shard_writer_set_entry(w, "'|u1'", 2, shape, st) : MR_OK;
    for (int i = 0; i < 3 && rc == MR_OK; i++)
        rc = mr_shard_writer_append(w, records[i], 2, st);
    if (rc == MR_OK)
        return mr_shard_writer_close(w, st);
    mr_shard_writer_abort(w);
    return rc;
}

MR_TEST(row_groups_are_of_parquet_files)
{
    mr_shard_writer *w = NULL;
    mr_status st;
    for (int f = 0; f <= MR_SHARDS_PARQUET; f++) {
        mr_shard_writer_opts o = {.format = (mr_shard_format)f, .group_bytes = 1 << 20}, whole = o;
        if (f == MR_SHARDS_PARQUET)
            o.group_bytes = -1;
        whole.group_bytes = 0;
        mr_code_is(mr_shard_writer_open(&w, mr_test_path("g"), 1, &o, &st), MR_INVALID_ARGUMENT,
                   &st);
        o.group_bytes = 1 << 20;
        mr_check((mr_shard_writer_memory(1, &o, NULL) < mr_shard_writer_memory(1, &whole, NULL)) ==
                 (f == MR_SHARDS_PARQUET));
    }
}

MR_TEST(a_writer_that_is_refused_takes_nothing)
{
    static const int64_t refused[] = {0, -1, INT64_MIN, 100000, INT64_MAX};
    for (int f = 0; f <= MR_SHARDS_PARQUET; f++) {
        const mr_shard_writer_opts o = {.format = (mr_shard_format)f};
        for (size_t i = 0; i < 5; i++)
            mr_eq_i64(mr_shard_writer_memory(refused[i], &o, NULL), 0);
        mr_check(mr_shard_writer_memory(99999, &o, NULL) > mr_shard_writer_memory(1, &o, NULL));
    }
}

MR_TEST(a_prefix_has_one_writer)
{
    char prefix[600], lock[700], *directory = fresh_directory(1, prefix, sizeof prefix);
    mr_shard_writer *w, *other;
    mr_status st;
    snprintf(lock, sizeof lock, "%s/.set.lock", directory);
    fclose(fopen(lock, "w")); /* of a process that was killed: it locks nothing */
    mr_ok(mr_shard_writer_open(&w, prefix, 2, NULL, &st), &st);
    const mr_shard_writer_opts over = {.overwrite = true};
    mr_code_is(mr_shard_writer_open(&other, prefix, 3, &over, &st), MR_ALREADY_EXISTS, &st);
    mr_has_str(st.message, "another write");
    mr_code_is(mr_shard_writer_recover(prefix, &st), MR_ALREADY_EXISTS, &st);
    mr_ok(mr_shard_writer_append(w, "a", 1, &st), &st);
    mr_ok(mr_shard_writer_close(w, &st), &st);
    mr_ok(write_set(prefix, 2, 'b', false, &st), &st);
    found f = look(directory);
    mr_eq_i64(f.n['b'], 2);
    mr_eq_i64(f.hidden, 0);
}

MR_TEST(lines_end_and_arrays_have_heads)
{
    mr_status st;
    char prefix[600], text[1024];
    fresh_directory(0, prefix, sizeof prefix);
    mr_ok(write_formatted(prefix, MR_SHARDS_JSONL, false, &st), &st);
    mr_eq_u64(read_shard(prefix, 0, 2, "jsonl", text), 6);
    mr_eq_mem(text, "a\0\nc\0\n", 6);
    /* A set of another format is another set. */
    mr_code_is(write_formatted(prefix, MR_SHARDS_NPY, false, &st), MR_ALREADY_EXISTS, &st);
    mr_ok(write_formatted(prefix, MR_SHARDS_NPY, true, &st), &st);
    size_t size = read_shard(prefix, 0, 2, "npy", text);
    mr_eq_u64(size % 64, 4);
    mr_eq_mem(text, "\x93NUMPY\x01\x00", 8);
    mr_eq_u64((size_t)(unsigned char)text[8] + 256 * (size_t)(unsigned char)text[9] + 10 + 4, size);
    static const char head[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 1), } ";
    mr_eq_mem(text + 10, head, sizeof head - 1);
    mr_check(text[size - 5] == '\n');
    mr_eq_mem(text + size - 4, "a\0c", 4);
    size = read_shard(prefix, 1, 2, "npy", text);
    mr_has_str(text + 10, "'shape': (1, 2, 1), }");
    mr_eq_mem(text + size - 2, "b", 2);
}

MR_TEST(long_heads_and_names_beyond_ascii_have_other_versions)
{
    mr_status st;
    char prefix[600], text[1024], *descr = mr_malloc(70000);
    mr_check(descr != NULL);
    const mr_shard_writer_opts opts = {.format = MR_SHARDS_NPY};
    for (int version = 2; version <= 3; version++) {
        mr_shard_writer *w = NULL;
        fresh_directory(version, prefix, sizeof prefix);
        memset(descr, 'x', 70000);
        descr[69999] = '\0';
        if (version == 3)
            strcpy(descr, "[('\xc3\xa9', '<i8')]");
        mr_ok(mr_shard_writer_open(&w, prefix, 1, &opts, &st), &st);
        mr_ok(mr_shard_writer_set_entry(w, descr, 0, NULL, &st), &st);
        mr_code_is(mr_shard_writer_set_entry(w, descr, 0, NULL, &st), MR_INVALID_ARGUMENT, &st);
        mr_ok(mr_shard_writer_close(w, &st), &st);
        size_t size = read_shard(prefix, 0, 1, "npy", text);
        mr_eq_i64(text[6], version);
        size_t said = 0;
        for (int b = 0; b < 4; b++)
            said += (size_t)(unsigned char)text[8 + b] << 8 * b;
        mr_eq_u64((said + 12) % 64, 0);
        mr_check(version == 3 ? said + 12 == size : said > 70000);
        mr_has_str(text + 12, version == 3 ? "\xc3\xa9" : "{'descr': xxx");
    }
    mr_free(descr);
}

MR_TEST(arrays_are_not_compressed)
{
    mr_status st;
    char prefix[600];
    fresh_directory(0, prefix, sizeof prefix);
    mr_shard_writer *w = NULL;
    const mr_shard_writer_opts opts = {.format = MR_SHARDS_NPY, .compression = MR_COMPRESSION_GZIP};
    mr_code_is(mr_shard_writer_open(&w, prefix, 1, &opts, &st), MR_INVALID_ARGUMENT, &st);
    mr_ok(mr_shard_writer_open(&w, prefix, 1, NULL, &st), &st);
    mr_code_is(mr_shard_writer_set_entry(w, "'<i8'", 0, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_shard_writer_abort(w);
}

MR_TEST(running_out_of_memory_leaves_whole_arrays)
{
    char prefix[600], text[1024];
    fresh_directory(0, prefix, sizeof prefix);
    mr_fault_each_allocation(n)
    {
        mr_status st;
        mr_code rc = mr_fault_expect(write_formatted(prefix, MR_SHARDS_NPY, false, &st), &st);
        if (n == 0)
            mr_ok(rc, &st);
        mr_check(read_shard(prefix, 0, 2, "npy", text) % 64 == 4);
        mr_check(read_shard(prefix, 1, 2, "npy", text) % 64 == 2);
    }
}

/* Three rows in two files. */
static mr_code write_table(const char *prefix, mr_shard_format format, mr_compression compression,
                           bool overwrite, mr_status *st)
{
    mr_shard_writer *w = NULL;
    mr_dataset *ds = NULL;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    static const char graph[] = "range(3).map(n => (n, format(\"s{}\", n), ones([n]), n > 0))";
    const mr_shard_writer_opts opts = {
        .format = format, .compression = compression, .overwrite = overwrite};
    mr_code rc = mr_shard_writer_open(&w, prefix, 2, &opts, st);
    if (rc == MR_OK)
        rc = mr_dataset_from_text(graph, sizeof graph - 1, NULL, &ds, st);
    if (rc == MR_OK)
        rc = mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, st);
    if (rc == MR_OK)
        rc = mr_shard_writer_set_spec(w, mr_iterator_spec(it), NULL, st);
    while (rc == MR_OK && (rc = mr_iterator_next(it, 100, &b, st)) == MR_OK)
        for (size_t i = 0; i < b.rows && rc == MR_OK; i++)
            rc = mr_shard_writer_append_row(w, &b, i, st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    if (rc == MR_END)
        return mr_shard_writer_close(w, st);
    mr_shard_writer_abort(w);
    return rc;
}

/* All that is read of the set, where a row is (n, s, l, b). */
static void is_table(const char *prefix, mr_shard_format format)
{
    char graph[800];
    int64_t sum = 0, rows = 0;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    snprintf(graph, sizeof graph,
             "%s(\"%s-*\").map(r => r[\"0\"] * 100 + length(r[\"2\"]) * 10 + "
             "to_number(substring(r[\"1\"], 1), \"int64\") + cast(r[\"3\"], \"int64\"))",
             mr_shard_ending(format), prefix);
    mr_dataset *ds = mr_test_graph(graph);
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
    mr_code rc;
    while ((rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK) {
        sum = sum * 1000 + *(const int64_t *)mr_array_at(&b.columns[0], 0);
        rows++;
    }
    mr_code_is(rc, MR_END, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_eq_i64(rows, 3);
    mr_eq_i64(sum, 223112); /* 0 and 223 are of the first file, 112 of the second */
}

static const mr_shard_format of_rows[] = {MR_SHARDS_ARROW, MR_SHARDS_PARQUET};

MR_TEST(rows_become_tables)
{
    static const mr_compression packings[] = {MR_COMPRESSION_NONE, MR_COMPRESSION_ZSTD};
    char prefix[600];
    mr_status st;
    for (int f = 0; f < 2; f++) {
        mr_compression other = f ? MR_COMPRESSION_ZLIB : MR_COMPRESSION_GZIP;
        fresh_directory(f, prefix, sizeof prefix);
        for (size_t i = 0; i < 2; i++) {
            mr_ok(write_table(prefix, of_rows[f], packings[i], false, &st), &st);
            is_table(prefix, of_rows[f]);
        }
        /* A set of another format is another set. */
        mr_code_is(write_formatted(prefix, MR_SHARDS_JSONL, false, &st), MR_ALREADY_EXISTS, &st);
        mr_code_is(write_table(prefix, of_rows[!f], MR_COMPRESSION_NONE, false, &st),
                   MR_ALREADY_EXISTS, &st);
        mr_code_is(write_table(prefix, of_rows[f], other, true, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, mr_compression_name(other));
        is_table(prefix, of_rows[f]);
    }
}

/* set_spec says no. */
static void refuse_spec(const char *prefix, mr_shard_format format, mr_spec *spec, const char *part)
{
    mr_shard_writer *w = NULL;
    mr_status st;
    mr_ok(mr_shard_writer_open(&w, prefix, 1, &(mr_shard_writer_opts){.format = format}, &st), &st);
    mr_code_is(mr_shard_writer_set_spec(w, spec, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, part);
    mr_code_is(mr_shard_writer_close(w, &st), MR_INVALID_ARGUMENT, &st);
    mr_spec_unref(spec);
}

MR_TEST(tables_are_of_rows_whose_types_were_said)
{
    mr_status st;
    char prefix[600];
    mr_shard_writer *w = NULL;
    mr_spec *spec = mr_spec_scalar(MR_INT64);
    int64_t seven = 7;
    mr_array column = {.dtype = MR_INT64, .rows = 1, .data = &seven};
    mr_array pair = {.dtype = MR_INT64, .rows = 1, .rank = 1, .shape = {1}, .data = &seven};
    mr_array other = {.dtype = MR_UINT64, .rows = 1, .data = &seven};
    const struct {
        mr_block b;
        const char *said;
    } bad[] = {{{.rows = 1, .n_columns = 1, .columns = &pair},
                "component 'value' has shape [1], expected []"},
               {{.rows = 1, .n_columns = 1, .columns = &other}, "is uint64, expected int64"},
               {{.rows = 1, .n_columns = 2, .columns = &other}, "a row has 2 columns"}};
    const mr_block b = {.rows = 1, .n_columns = 1, .columns = &column};
    for (int f = 0; f < 2; f++) {
        const mr_shard_writer_opts opts = {.format = of_rows[f]};
        fresh_directory(f, prefix, sizeof prefix);
        for (size_t i = 0; i < 3; i++) {
            mr_ok(mr_shard_writer_open(&w, prefix, 1, &opts, &st), &st);
            mr_code_is(mr_shard_writer_append(w, "x", 1, &st), MR_INVALID_ARGUMENT, &st);
            mr_code_is(mr_shard_writer_append_row(w, &b, 0, &st), MR_FAILED_PRECONDITION, &st);
            mr_ok(mr_shard_writer_set_spec(w, spec, &b, &st), &st);
            mr_code_is(mr_shard_writer_set_spec(w, spec, &b, &st), MR_INVALID_ARGUMENT, &st);
            mr_ok(mr_shard_writer_append_row(w, &b, 0, &st), &st);
            mr_code_is(mr_shard_writer_append_row(w, &bad[i].b, 0, &st), MR_INVALID_ARGUMENT, &st);
            mr_has_str(st.message, bad[i].said);
            mr_code_is(mr_shard_writer_close(w, &st), MR_INVALID_ARGUMENT, &st);
        }
        mr_ok(mr_shard_writer_open(&w, prefix, 1, &opts, &st), &st);
        mr_code_is(mr_shard_writer_close(w, &st), MR_FAILED_PRECONDITION, &st);
        refuse_spec(prefix, of_rows[f], mr_spec_scalar(MR_BFLOAT16), "cast it to float32");
        refuse_spec(
            prefix, of_rows[f],
            mr_spec_record((const char *[]){"\xff"}, (mr_spec *[]){mr_spec_scalar(MR_INT64)}, 1),
            "not UTF-8");
        refuse_spec(prefix, of_rows[f], mr_spec_tuple(NULL, 0), "have no columns");
        mr_spec *parts[] = {mr_spec_scalar(MR_INT8), mr_spec_tuple(NULL, 0)};
        refuse_spec(prefix, of_rows[f], mr_spec_tuple(parts, 2), "'1' has no components");
    }
    refuse_spec(prefix, MR_SHARDS_ARROW, mr_spec_dataset(mr_spec_scalar(MR_INT8)), "is dataset");
    mr_ok(mr_shard_writer_open(&w, prefix, 1, NULL, &st), &st);
    mr_code_is(mr_shard_writer_set_spec(w, spec, &b, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_shard_writer_append_row(w, &b, 0, &st), MR_INVALID_ARGUMENT, &st);
    mr_shard_writer_abort(w);
    mr_spec_unref(spec);
}

MR_TEST(running_out_of_memory_leaves_whole_tables)
{
    char prefix[600];
    mr_status st;
    for (int f = 0; f < 2; f++) {
        fresh_directory(f, prefix, sizeof prefix);
        mr_ok(write_table(prefix, of_rows[f], MR_COMPRESSION_NONE, false, &st), &st);
        mr_fault_each_allocation(n)
        {
            mr_code rc = write_table(prefix, of_rows[f], MR_COMPRESSION_ZSTD, false, &st);
            rc = mr_fault_expect(rc, &st);
            if (n == 0)
                mr_ok(rc, &st);
        }
        is_table(prefix, of_rows[f]);
    }
}

/* A set of n_shards of records that are alike, each compressed by itself. */
static mr_code write_frames(const char *prefix, int64_t n_shards, int n, bool overwrite,
                            mr_status *st)
{
    mr_shard_writer *w = NULL;
    mr_code rc = mr_shard_writer_open(
        &w, prefix, n_shards, &(mr_shard_writer_opts){.overwrite = overwrite, .zstd_records = true},
        st);
    for (int i = 0; rc == MR_OK && i < n; i++) {
        char record[128];
        int size = snprintf(record, sizeof record, "{\"name\": \"user %d\", \"city\": \"town %d\"}",
                            i, i * 7919 % 1000);
        rc = mr_shard_writer_append(w, record, (size_t)size, st);
    }
    if (rc == MR_OK)
        return mr_shard_writer_close(w, st);
    mr_shard_writer_abort(w);
    return rc;
}

/* 0: the set has no dictionary. */
static off_t dictionary_size(const char *prefix)
{
    char path[700];
    struct stat is;
    snprintf(path, sizeof path, "%s.dict", prefix);
    return stat(path, &is) == 0 ? is.st_size : 0;
}

MR_TEST(a_dictionary_comes_and_goes_with_its_set)
{
    mr_status st;
    char prefix[600], path[700];
    fresh_directory(0, prefix, sizeof prefix);
    mr_ok(write_frames(prefix, 2, 400, false, &st), &st);
    mr_check(dictionary_size(prefix) > 0);
    mr_code_is(write_frames(prefix, 1, 400, false, &st), MR_ALREADY_EXISTS, &st);
    mr_ok(write_frames(prefix, 1, 3, true, &st), &st); /* too few for one */
    mr_eq_i64(dictionary_size(prefix), 0);
    mr_ok(write_frames(prefix, 1, 400, false, &st), &st);
    mr_check(dictionary_size(prefix) > 0);
    mr_ok(write_set(prefix, 2, 'a', true, &st), &st);
    mr_eq_i64(dictionary_size(prefix), 0);
    mr_code_is(mr_shard_writer_open(
                   &(mr_shard_writer *){NULL}, prefix, 1,
                   &(mr_shard_writer_opts){.format = MR_SHARDS_JSONL, .zstd_records = true}, &st),
               MR_INVALID_ARGUMENT, &st);
    /* A file that is not the writer's is left alone. */
    snprintf(path, sizeof path, "%s.dict", prefix);
    FILE *f = fopen(path, "w");
    fputs("mine", f);
    fclose(f);
    mr_code_is(write_frames(prefix, 1, 400, true, &st), MR_ALREADY_EXISTS, &st);
    mr_has_str(st.file, ".dict");
    mr_ok(write_set(prefix, 1, 'a', true, &st), &st);
    mr_eq_i64(dictionary_size(prefix), 4);
}

MR_TEST_SLOW(running_out_of_memory_leaves_a_set_with_its_dictionary)
{
    mr_status st;
    char prefix[600];
    fresh_directory(0, prefix, sizeof prefix);
    mr_ok(write_frames(prefix, 2, 400, false, &st), &st);
    off_t size = dictionary_size(prefix);
    mr_fault_each_allocation(n)
    {
        mr_code rc = mr_fault_expect(write_frames(prefix, 2, 400, false, &st), &st);
        if (n == 0)
            mr_ok(rc, &st);
        mr_eq_i64(dictionary_size(prefix), size); /* the same records make the same one */
    }
}

MR_TEST(nothing_is_seen_before_all_is_written)
{
    mr_status st;
    char prefix[600];
    const char *d = fresh_directory(0, prefix, sizeof prefix);
    mr_shard_writer *w = NULL;
    mr_ok(mr_shard_writer_open(&w, prefix, 4, NULL, &st), &st);
    mr_ok(mr_shard_writer_append(w, "x", 1, &st), &st);
    mr_eq_i64(look(d).files, 0);
    mr_eq_i64(look(d).hidden, 5); /* the lock too */
    mr_shard_writer_abort(w);
    mr_eq_i64(look(d).hidden, 0);
}

/* From sets of `before` shards to `after`; 0: no set. */
static const struct {
    int before, after;
} changes[] = {{0, 1}, {1, 1}, {0, 3}, {3, 3}, {3, 2}, {1, 3}};
enum { N_CHANGES = sizeof changes / sizeof *changes };

/* The call that comes after `left` others fails with err or, for err 0, ends the process as kill -9
 * would. left < 0: none does. */
static struct {
    int left, err;
    bool hit;
} fault = {.left = -1};

static bool hits(const char *call)
{
    (void)call;
    if (fault.left < 0 || fault.left-- > 0)
        return false;
    if (fault.err == 0)
        _exit(9);
    fault.hit = true;
    errno = fault.err;
    return true;
}

static int faulty_fsync(int fd)
{
    return hits("fsync") ? -1 : no_fsync(fd);
}

/* write_set with the n-th call failing (n from 0); *hit: there was such a call. */
static mr_code write_with_fault(int n, int err, const char *prefix, int64_t shards, char tag,
                                bool *hit, mr_status *st)
{
    mr__system table = *mr__system_real();
    mr_fault_calls(&table, "open close read write stat rename unlink opendir readdir", hits);
    table.fsync = faulty_fsync;
    fault.left = n;
    fault.err = err;
    fault.hit = false;
    mr__system_set(&table);
    mr_code rc = write_set(prefix, shards, tag, true, st);
    mr__system_set(&quick);
    fault.left = -1;
    *hit = fault.hit;
    return rc;
}

MR_TEST_SLOW(a_failed_system_call_leaves_the_old_set_or_the_new_one)
{
    static const int errors[] = {EIO, ENOSPC, EINTR};
    for (int c = 0; c < 3 * N_CHANGES; c++) {
        int before = changes[c / 3].before, after = changes[c / 3].after, err = errors[c % 3];
        bool hit = true;
        for (int n = 0; hit; n++) {
            mr_status st, again;
            char prefix[600];
            const char *d = fresh_directory(1000 * c + n, prefix, sizeof prefix);
            mr_test_context("from %d to %d shards, call %d: %s", before, after, n, strerror(err));
            if (before)
                mr_ok(write_set(prefix, before, 'a', false, &again), &again);
            mr_code rc = write_with_fault(n, err, prefix, after, 'b', &hit, &st);
            found f = look(d);
            mr_eq_i64(f.files, rc == MR_OK ? after : before);
            mr_eq_i64(f.n[rc == MR_OK ? 'b' : 'a'], f.files);
            if (!hit || err == EINTR) { /* is tried again */
                mr_ok(rc, &st);
                mr_eq_i64(f.hidden, 0);
            }
            if (rc != MR_OK) {
                mr_eq_i64(st.sys_errno, err);
                mr_check(st.message[0]);
            }
            /* A second try works, and removes only what it replaces. */
            mr_ok(write_set(prefix, after, 'c', true, &again), &again);
            mr_eq_i64(look(d).n['c'], after);
            mr_eq_i64(look(d).files, after);
        }
    }
}

MR_TEST(running_out_of_memory_leaves_the_old_set)
{
    mr_status st;
    char prefix[600];
    const char *d = fresh_directory(0, prefix, sizeof prefix);
    mr_ok(write_set(prefix, 3, 'a', false, &st), &st);
    mr_fault_each_allocation(n)
    {
        mr_code rc = mr_fault_expect(write_set(prefix, 2, 'a', true, &st), &st);
        int files = 0, hidden = 0;
        struct dirent *e;
        DIR *names = opendir(d); /* look() takes memory itself */
        while ((e = readdir(names)))
            if (strncmp(e->d_name, ".", 2) && strncmp(e->d_name, "..", 3))
                ++*(e->d_name[0] == '.' ? &hidden : &files);
        closedir(names);
        mr_eq_i64(files, n == 0 || rc == MR_OK ? 2 : files);
        mr_check(files == 2 || files == 3);
        mr_eq_i64(hidden, 0);
    }
}

/* Runs write_set in a process that dies at call n; false: it came to its end. */
static bool die_at(int n, const char *prefix, int shards, char tag)
{
    int how;
    pid_t child = fork();
    mr_check(child >= 0);
    if (child == 0) {
        bool hit;
        mr_status st;
        _exit(write_with_fault(n, 0, prefix, shards, tag, &hit, &st) == MR_OK ? 0 : 1);
    }
    mr_eq_i64(waitpid(child, &how, 0), child);
    mr_check(WIFEXITED(how) && (WEXITSTATUS(how) == 0 || WEXITSTATUS(how) == 9));
    return WEXITSTATUS(how) == 9;
}

/* The next writer finds one whole set. */
static char recovered(const char *d, const char *prefix, int before, int after)
{
    mr_status st;
    mr_shard_writer *w = NULL;
    mr_ok(mr_shard_writer_open(&w, prefix, 1, &(mr_shard_writer_opts){.overwrite = true}, &st),
          &st);
    mr_shard_writer_abort(w);
    found f = look(d);
    bool is_new = f.n['b'] > 0;
    mr_eq_i64(f.files, is_new ? after : before);
    mr_eq_i64(f.n[is_new ? 'b' : 'a'], f.files);
    return is_new ? 'b' : 'a';
}

/* Patterns of datasets find a whole set, nothing, or an error that names the journal; which a
 * recovery ends. */
static void check_reading(const char *d, int before, int after)
{
    char text[700];
    snprintf(text, sizeof text, "tfrecord(\"%s/set-*\")", d);
    for (int recovered = 0; recovered < 2; recovered++) {
        mr_status st;
        mr_dataset *ds = NULL;
        mr_iterator *it = NULL;
        mr_block b = MR_BLOCK_EMPTY;
        int64_t rows = 0;
        mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, &st);
        mr_ok(rc, &st);
        rc = mr_iterator_open(&it, ds, NULL, &st);
        while (rc == MR_OK && (rc = mr_iterator_next(it, 100, &b, &st)) == MR_OK)
            rows += (int64_t)b.rows;
        mr_block_reset(&b);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
        if (rc == MR_END)
            mr_check(rows == 2 * before || rows == 2 * after);
        else if (rc == MR_FAILED_PRECONDITION) {
            mr_check(!recovered);
            mr_has_str(st.message, "--recover");
            mr_has_str(st.file, "/.set.commit");
        } else
            mr_check(rc == MR_NOT_FOUND && (!recovered || before == 0));
        if (!recovered) {
            snprintf(text, sizeof text, "%s/set", d);
            mr_ok(mr_shard_writer_recover(text, &st), &st);
            snprintf(text, sizeof text, "tfrecord(\"%s/set-*\")", d);
        }
    }
}

MR_TEST(a_crash_at_any_system_call_leaves_the_old_set_or_the_new_one)
{
    for (int c = 0; c < N_CHANGES; c++) {
        int before = changes[c].before, after = changes[c].after;
        bool died = true, was_new = false;
        for (int n = 0; died; n++) {
            mr_status st;
            char prefix[600];
            const char *d = fresh_directory(1000 * c + n, prefix, sizeof prefix);
            mr_test_context("from %d to %d shards, call %d", before, after, n);
            if (before)
                mr_ok(write_set(prefix, before, 'a', false, &st), &st);
            died = die_at(n, prefix, after, 'b');
            found f = look(d);
            mr_check(f.n['a'] == 0 || f.n['b'] == 0); /* never of both */
            check_reading(d, before, after);
            bool is_new = recovered(d, prefix, before, after) == 'b';
            mr_check(is_new >= was_new); /* once it is the new one, it stays */
            mr_check(died || is_new);
            was_new = is_new;
        }
    }
}

MR_TEST_SLOW(a_crash_while_recovering_from_a_crash_loses_nothing)
{
    for (int first = 0;; first++) {
        mr_status st;
        char prefix[600];
        bool died = true;
        for (int second = 0; died; second++) {
            const char *d = fresh_directory(1000 * first + second, prefix, sizeof prefix);
            mr_test_context("calls %d and %d", first, second);
            mr_ok(write_set(prefix, 3, 'a', false, &st), &st);
            if (!die_at(first, prefix, 2, 'b'))
                return;
            died = die_at(second, prefix, 1, 'c');
            found f = look(d);
            mr_check((f.n['a'] > 0) + (f.n['b'] > 0) + (f.n['c'] > 0) <= 1);
            if (f.n['c'] == 0) {
                mr_shard_writer *w = NULL;
                mr_ok(mr_shard_writer_open(&w, prefix, 1,
                                           &(mr_shard_writer_opts){.overwrite = true}, &st),
                      &st);
                mr_shard_writer_abort(w);
                f = look(d);
            }
            mr_check(f.n['a'] == 3 || f.n['b'] == 2 || f.n['c'] == 1);
            if (!mr_test_long() && second > 12)
                second += 3;
            while (died && !mr_test_takes((size_t)(first + second + 1), 3))
                second++;
        }
    }
}

MR_TEST(a_damaged_journal_is_named)
{
    static const char *const bad[] = {"", "MRG1",
                                      "MRG2\0"
                                      "0\0"
                                      "0",
                                      "MRG1\0"
                                      "1\0"
                                      "1\0../x\0set-y",
                                      "MRG1\0"
                                      "0\0"
                                      "99999999\0set-x\0set-y"};
    static const size_t sizes[] = {0, 5, 9, 20, 28};
    for (size_t i = 0; i < 5; i++) {
        mr_status st;
        char prefix[600], path[700];
        const char *d = fresh_directory((int64_t)i, prefix, sizeof prefix);
        mr_ok(write_set(prefix, 2, 'a', false, &st), &st);
        snprintf(path, sizeof path, "%s/.set.commit", d);
        write_file(path, bad[i], sizes[i]);
        mr_code_is(write_set(prefix, 2, 'b', false, &st), MR_DATA_LOSS, &st);
        mr_has_str(st.message, "journal");
        mr_has_str(st.file, ".set.commit");
        mr_eq_i64(look(d).n['a'], 2);
    }

    /* A file that is not a journal has no writer to wait for. */
    char prefix[600], path[700];
    mr_status st;
    const char *d = fresh_directory(99, prefix, sizeof prefix);
    snprintf(path, sizeof path, "%s/.set.commit", d);
    mr_eq_i64(mkfifo(path, 0600), 0);
    mr_code_is(write_set(prefix, 2, 'b', false, &st), MR_DATA_LOSS, &st);
}
