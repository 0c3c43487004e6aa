/* SPDX-License-Identifier: Apache-2.0 */
/* millrace write: expressions, JSON lines, text or IDX files into TFRecord shards. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "pipeline/formats/example.h"
#include "pipeline/formats/idx.h"
#include "pipeline/formats/shard_writer.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/element_example.h"
#include "pipeline/graph/op.h"

enum { WANT = 1024, MAX_FEATURES = 4096 };

typedef struct write_opts {
    cli_run run;
    const char *out, *compress, *expr;
    int64_t shards;
    cli_texts jsonl, text, idx;
} write_opts;

/* ---- a pipeline ---- */

static mr_code write_dataset(mr_dataset *ds, const write_opts *o, mr_shard_writer *w, mr_status *st)
{
    mr_iterator *it = NULL;
    mr_element_encoder *e = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = mr_iterator_open(&it, ds, &o->run.opts, st);
    if (rc == MR_OK) {
        cli_watch_iterator(it);
        rc = mr_element_encoder_new(&e, mr_iterator_spec(it), st);
    }
    while (rc == MR_OK && (rc = mr_iterator_next(it, WANT, &b, st)) == MR_OK)
        for (size_t i = 0; i < b.rows && rc == MR_OK; i++) {
            mr_bytes record;
            rc = mr_element_encode(e, &b, i, &record, st);
            if (rc == MR_OK)
                rc = mr_shard_writer_append(w, record.data, record.size, st);
        }
    mr_block_reset(&b);
    mr_element_encoder_free(e);
    cli_watch_iterator(NULL);
    mr_iterator_close(it);
    return rc == MR_END ? MR_OK : rc;
}

/* ---- JSON lines ---- */

typedef struct json_feature {
    int64_t *ints;
    float *floats;
    mr_bytes *strings;
} json_feature;

static mr_code bad_json(mr_status *st, const char *key, const char *what)
{
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "\"%s\" %s; a feature is a number, a string, or a list of one of them", key,
                   what);
}

/* The item's dtype as a feature; MR_DATASET: none. Bools are ints. */
static mr_dtype json_dtype(const json_t *item)
{
    switch (json_typeof(item)) {
    case JSON_INTEGER:
    case JSON_TRUE:
    case JSON_FALSE:
        return MR_INT64;
    case JSON_REAL:
        return MR_FLOAT32;
    case JSON_STRING:
        return MR_STRING;
    default:
        return MR_DATASET;
    }
}

static mr_code json_values(const char *key, const json_t *v, mr_example_value *f,
                           json_feature *room, mr_status *st)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    f->n = n;
    f->dtype = MR_INT64; /* an empty list could be of any type */
    for (size_t i = 0; i < n; i++) {
        mr_dtype t = json_dtype(json_is_array(v) ? json_array_get(v, i) : v);
        if (t == MR_DATASET)
            return bad_json(st, key, "is null, an object or a nested list");
        if (i == 0)
            f->dtype = t;
        else if ((t == MR_STRING) != (f->dtype == MR_STRING))
            return bad_json(st, key, "mixes strings and numbers");
        else if (t == MR_FLOAT32)
            f->dtype = t;
    }
    room->ints = f->dtype == MR_INT64 ? mr_calloc(n, sizeof *room->ints) : NULL;
    room->floats = f->dtype == MR_FLOAT32 ? mr_calloc(n, sizeof *room->floats) : NULL;
    room->strings = f->dtype == MR_STRING ? mr_calloc(n, sizeof *room->strings) : NULL;
    f->values = f->dtype == MR_INT64     ? (void *)room->ints
                : f->dtype == MR_FLOAT32 ? (void *)room->floats
                                         : (void *)room->strings;
    if (!f->values)
        return mr_fail_memory(st, n * sizeof *room->strings, "a feature");
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
        if (room->strings)
            room->strings[i] = (mr_bytes){json_string_value(item), json_string_length(item)};
        else if (room->floats)
            room->floats[i] =
                json_is_boolean(item) ? (float)json_is_true(item) : (float)json_number_value(item);
        else
            room->ints[i] = json_is_boolean(item) ? json_is_true(item) : json_integer_value(item);
    }
    return MR_OK;
}

static mr_code write_object(json_t *object, mr_shard_writer *w, uint8_t **buffer, size_t *capacity,
                            mr_status *st)
{
    size_t n = json_object_size(object), i = 0, size = 0;
    mr_example_value *f = mr_calloc(n, sizeof *f);
    json_feature *room = mr_calloc(n, sizeof *room);
    mr_code rc = f && room ? MR_OK : mr_fail_memory(st, n * sizeof *f, "features");
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (rc != MR_OK)
            break;
        f[i].name = key;
        f[i].name_size = strlen(key);
        rc = json_values(key, value, &f[i], &room[i], st);
        i++;
    }
    if (rc == MR_OK)
        rc = mr_example_encode(f, n, buffer, capacity, &size, st);
    if (rc == MR_OK)
        rc = mr_shard_writer_append(w, *buffer, size, st);
    for (i = 0; room && i < n; i++) {
        mr_free(room[i].ints);
        mr_free(room[i].floats);
        mr_free(room[i].strings);
    }
    mr_free(room);
    mr_free(f);
    return rc;
}

static mr_code write_json_line(const char *line, size_t n, mr_shard_writer *w, uint8_t **buffer,
                               size_t *capacity, mr_status *st)
{
    json_error_t why;
    json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    mr_code rc;
    if (!object)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "not JSON: %s at column %d", why.text, why.column);
    else if (!json_is_object(object))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "a line must be a JSON object");
    else
        rc = write_object(object, w, buffer, capacity, st);
    json_decref(object);
    return rc;
}

static mr_code write_jsonl(const char *path, mr_shard_writer *w, mr_status *st)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!f) {
        mr_fail_errno(st, errno, "it could not be opened");
        mr_status_at(st, path, -1, -1);
        return st->code;
    }
    char *line = NULL;
    size_t room = 0, capacity = 0;
    uint8_t *buffer = NULL;
    ssize_t n;
    mr_code rc = MR_OK;
    for (int64_t number = 1; rc == MR_OK && (n = getline(&line, &room, f)) >= 0; number++) {
        if (cli_interrupted())
            rc = mr_fail(st, MR_CANCELLED, "interrupted");
        else if (strspn(line, " \t\r\n") != (size_t)n)
            rc = write_json_line(line, (size_t)n, w, &buffer, &capacity, st);
        if (rc == MR_INVALID_ARGUMENT) {
            char why[sizeof st->message];
            memcpy(why, st->message, sizeof why);
            mr_fail(st, rc, "line %" PRId64 ": %.700s", number, why);
            mr_status_at(st, path, -1, -1);
        }
    }
    if (rc == MR_OK && ferror(f)) {
        rc = mr_fail_errno(st, errno, "it could not be read");
        mr_status_at(st, path, -1, -1);
    }
    free(line);
    mr_free(buffer);
    if (f != stdin)
        fclose(f);
    return rc;
}

/* ---- IDX ---- */

static mr_code check_idx(const cli_texts *idx, const mr_idx_reader *images,
                         const mr_idx_reader *labels, mr_status *st)
{
    int rank;
    mr_idx_reader_shape(labels, &rank);
    mr_code rc = MR_OK;
    const char *file = idx->v[1];
    if (mr_idx_reader_dtype(images) != MR_UINT8) {
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "images must be uint8, not %s",
                     mr_dtype_name(mr_idx_reader_dtype(images)));
        file = idx->v[0];
    } else if (rank != 0 || mr_dtype_is_floating(mr_idx_reader_dtype(labels)))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "labels must be one integer each");
    else if (mr_idx_reader_rows(images) != mr_idx_reader_rows(labels))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "%" PRId64 " labels for %" PRId64 " images",
                     mr_idx_reader_rows(labels), mr_idx_reader_rows(images));
    mr_status_at(st, file, -1, -1);
    return rc;
}

static int64_t label_at(const mr_array *a, size_t i)
{
    const void *p = mr_array_at(a, i);
    switch (a->dtype) {
    case MR_INT8:
        return *(const int8_t *)p;
    case MR_INT16:
        return *(const int16_t *)p;
    case MR_INT32:
        return *(const int32_t *)p;
    default:
        return *(const uint8_t *)p;
    }
}

static mr_code copy_idx(mr_idx_reader *images, mr_idx_reader *labels, mr_shard_writer *w,
                        mr_status *st)
{
    uint8_t *buffer = NULL;
    size_t capacity = 0;
    mr_code rc = MR_OK;
    int64_t left = mr_idx_reader_rows(images);
    while (left > 0 && rc == MR_OK) {
        mr_array x = {0}, y = {0};
        if (cli_interrupted())
            rc = mr_fail(st, MR_CANCELLED, "interrupted");
        if (rc == MR_OK)
            rc = mr_idx_reader_read(images, WANT, &x, st);
        /* As many labels as images came. */
        for (size_t done = 0; rc == MR_OK && done < x.rows; done += y.rows) {
            mr_array_reset(&y);
            rc = mr_idx_reader_read(labels, x.rows - done, &y, st);
            for (size_t i = 0; rc == MR_OK && i < y.rows; i++) {
                mr_bytes pixels = {mr_array_at(&x, done + i), mr_array_row_bytes(&x)};
                int64_t label = label_at(&y, i);
                mr_example_value f[2] = {{"image", 5, MR_STRING, &pixels, 1},
                                         {"label", 5, MR_INT64, &label, 1}};
                size_t size = 0;
                rc = mr_example_encode(f, 2, &buffer, &capacity, &size, st);
                if (rc == MR_OK)
                    rc = mr_shard_writer_append(w, buffer, size, st);
            }
        }
        left -= (int64_t)x.rows;
        mr_array_reset(&x);
        mr_array_reset(&y);
    }
    mr_free(buffer);
    return rc;
}

static mr_code write_idx(const cli_texts *idx, mr_shard_writer *w, mr_status *st)
{
    mr_idx_reader *images = NULL, *labels = NULL;
    mr_code rc = mr_idx_reader_open(&images, idx->v[0], st);
    if (rc == MR_OK)
        rc = mr_idx_reader_open(&labels, idx->v[1], st);
    if (rc == MR_OK)
        rc = check_idx(idx, images, labels, st);
    if (rc == MR_OK)
        rc = copy_idx(images, labels, w, st);
    mr_idx_reader_close(images);
    mr_idx_reader_close(labels);
    return rc;
}

/* ---- the command ---- */

static mr_code write_input(const write_opts *o, mr_dataset *ds, mr_shard_writer *w, mr_status *st)
{
    if (ds)
        return write_dataset(ds, o, w, st);
    if (o->idx.n)
        return write_idx(&o->idx, w, st);
    for (size_t i = 0; i < o->jsonl.n; i++)
        MR_TRY(write_jsonl(o->jsonl.v[i], w, st));
    return MR_OK;
}

static int write_all(const write_opts *o, mr_dataset *ds)
{
    mr_tfrecord_writer_opts opts = {0};
    if (o->compress && !mr_compression_find(o->compress, &opts.compression))
        return cli_usage(&cli_write, "there is no compression '%s'", o->compress);
    mr_shard_writer *w = NULL;
    mr_status st;
    mr_code rc = mr_shard_writer_open(&w, o->out, o->shards, &opts, &st);
    if (rc != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    rc = write_input(o, ds, w, &st);
    if (rc != MR_OK) {
        mr_shard_writer_abort(w);
        return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
    }
    int64_t records = mr_shard_writer_records(w);
    if (mr_shard_writer_close(w, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    printf("%" PRId64 " records in %" PRId64 " file%s: %s-*-of-%05" PRId64 ".tfrecord\n", records,
           o->shards, o->shards == 1 ? "" : "s", o->out, o->shards);
    return cli_flush(CLI_OK);
}

/* Names on the command line are paths as they stand: the shell has seen to patterns. */
static mr_dataset *text_files(const cli_texts *t)
{
    mr_value *items = mr_calloc(t->n, sizeof *items);
    for (size_t i = 0; items && i < t->n; i++)
        items[i] = (mr_value){.kind = MR_V_STRING,
                              .computed = true,
                              .s = (char *)(uintptr_t)t->v[i],
                              .size = strlen(t->v[i])};
    mr_value values[2] = {{.kind = MR_V_LIST, .items = items, .n = items ? t->n : 0}, {0}};
    mr_dataset *ds = mr_dataset_from_values(mr_op_find("text_line", 9), values, NULL, 0);
    mr_free(items);
    return ds;
}

static int run(int argc, char **argv)
{
    static const char *const codecs[] = {"GZIP", "ZLIB", "ZSTD", NULL};
    write_opts o = {.shards = 1};
    o.jsonl.v = cli_words(argc);
    o.text.v = cli_words(argc);
    o.idx.v = cli_words(argc);
    cli_flag run_flags[CLI_RUN_FLAGS];
    cli_run_flags(&o.run, run_flags, false);
    const cli_flag flags[] = {{.name = "out",
                               .kind = CLI_TEXT,
                               .value = &o.out,
                               .what = "PREFIX",
                               .help = "files are PREFIX-00000-of-0000N.tfrecord and so on"},
                              {.name = "shards",
                               .kind = CLI_INT,
                               .value = &o.shards,
                               .what = "N",
                               .min = 1,
                               .max = 99999,
                               .help = "number of files (default 1), elements dealt round robin"},
                              {.name = "compress",
                               .kind = CLI_TEXT,
                               .value = &o.compress,
                               .what = "CODEC",
                               .words = codecs,
                               .help = "GZIP, ZLIB or ZSTD"},
                              {.name = "expr",
                               .kind = CLI_TEXT,
                               .value = &o.expr,
                               .what = "EXPR",
                               .help = "write a pipeline's elements"},
                              {.name = "jsonl",
                               .kind = CLI_TEXTS,
                               .value = &o.jsonl,
                               .what = "FILE...",
                               .help = "write JSON objects, one a line (- for standard input)"},
                              {.name = "text",
                               .kind = CLI_TEXTS,
                               .value = &o.text,
                               .what = "FILE...",
                               .help = "write each line as a record"},
                              {.name = "idx",
                               .kind = CLI_TEXTS,
                               .value = &o.idx,
                               .what = "IMAGES LABELS",
                               .help = "write IDX files (MNIST's), gzipped or not"},
                              {0}};
    const cli_flag *const tables[] = {flags, run_flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    mr_dataset *ds = NULL;
    mr_status st;
    int status = cli_parse(&cli_write, tables, argc, argv, rest, &n);
    if (status < 0 && n)
        status = cli_usage(&cli_write, "unexpected '%s'", rest[0]);
    if (status < 0 && !o.out)
        status = cli_usage(&cli_write, "--out PREFIX is missing");
    if (status < 0 && (o.expr != NULL) + (o.jsonl.n > 0) + (o.text.n > 0) + (o.idx.n > 0) != 1)
        status = cli_usage(&cli_write, "give one of --expr, --jsonl, --text and --idx");
    if (status < 0 && o.idx.n && o.idx.n != 2)
        status = cli_usage(&cli_write, "--idx wants two files, images and labels");
    if (status < 0) {
        cli_run_start(&o.run);
        if (o.text.n)
            ds = text_files(&o.text);
        if (o.expr && mr_dataset_from_text(o.expr, strlen(o.expr), NULL, &ds, &st) != MR_OK)
            status = cli_fail(&st, CLI_USAGE);
        else
            status = write_all(&o, ds);
    }
    mr_dataset_unref(ds);
    mr_free(rest);
    mr_free(o.jsonl.v);
    mr_free(o.text.v);
    mr_free(o.idx.v);
    return status;
}

const cli_command cli_write = {
    .name = "write",
    .summary = "writes TFRecord shards from a pipeline, JSON lines, text or IDX files",
    .usage = "--out PREFIX [--shards N] [--compress CODEC]\n"
             "    (--expr EXPR | --jsonl FILE... | --text FILE... | --idx IMAGES LABELS)",
    .details =
        "Records and JSON objects become tf.train.Examples: ints int64 lists, floats float\n"
        "lists, strings and uint8 tensors bytes. A pipeline of single strings is written as\n"
        "it is. --idx names its features \"image\" and \"label\". A file is complete or not\n"
        "there at all.",
    .run = run,
};
