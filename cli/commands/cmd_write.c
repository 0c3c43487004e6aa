/* SPDX-License-Identifier: Apache-2.0 */
/* millrace write: expressions, JSON lines, text or IDX files into shards. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <millrace/pipeline/files/glob.h>
#include <millrace/pipeline/formats/tfrecord/example.h>
#include <millrace/pipeline/formats/images/idx.h>
#include <millrace/pipeline/formats/shards/shard_writer.h>
#include <millrace/pipeline/memory/alloc.h>
#include <millrace/pipeline/streams/elements/element_writer.h>
#include <millrace/pipeline/ops/sources.h>
#include "distributed.h"
#include "../ledger_flag.h"
#include "write.h"

enum { WANT = 1024 };
#define ZSTD_RECORD "zstd-record"

typedef struct write_opts {
    cli_run run;
    const char *out, *format, *compress, *expr, *images, *schema, *ledger;
    mr_shard_format shard_format;
    bool overwrite, recover;
    int64_t shards, row_group; /* row_group 0: the default */
    cli_texts jsonl, text, idx;
} write_opts;

/* ---- a pipeline ---- */

static mr_code write_rows(mr_dataset *ds, const write_opts *o, mr_ledger *ledger,
                          mr_shard_writer *w, mr_status *st)
{
    mr_iterator_opts opts = o->run.opts;
    opts.ledger = ledger;
    return mr_write_elements(ds, w, &opts, st);
}

static mr_code write_dataset(mr_dataset *ds, const write_opts *o, mr_shard_writer *w, mr_status *st)
{
    mr_ledger *ledger = NULL;
    mr_status why;
    if (o->ledger)
        MR_TRY(mr_ledger_create(o->ledger, false, &ledger, st));
    mr_code rc = write_rows(ds, o, ledger, w, st);
    mr_code ended = mr_ledger_close(ledger, &why);
    if (rc != MR_OK || ended == MR_OK)
        return rc;
    *st = why;
    return ended;
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
        /* Reads one label for each image read. */
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
    mr_code rc = mr_idx_reader_open(&images, idx->v[0], cli_cancel(), st);
    if (rc == MR_OK)
        rc = mr_idx_reader_open(&labels, idx->v[1], cli_cancel(), st);
    if (rc == MR_OK)
        rc = check_idx(idx, images, labels, st);
    if (rc == MR_OK)
        rc = copy_idx(images, labels, w, st);
    mr_idx_reader_close(images);
    mr_idx_reader_close(labels);
    return rc;
}

/* ---- the command ---- */

static mr_code write_input(const write_opts *o, mr_dataset *ds, cli_jsonl *j, mr_shard_writer *w,
                           bool *again, mr_status *st)
{
    if (ds)
        return write_dataset(ds, o, w, st);
    /* Without a pipeline, an empty one enforces the memory limit. */
    mr_dataset *none = mr_range(0, 0, 1);
    mr_iterator *it = NULL;
    mr_code rc = mr_iterator_open(&it, none, &o->run.opts, st);
    if (rc == MR_OK)
        rc = j ? cli_jsonl_write(j, w, again, st) : write_idx(&o->idx, w, st);
    mr_iterator_close(it);
    mr_dataset_unref(none);
    return rc;
}

/* Element types are known before the first element. */
static int check_types(const write_opts *o, const mr_dataset *ds)
{
    mr_status st;
    mr_code rc = mr_write_elements_check(ds, o->shard_format, &st);
    return rc == MR_OK ? -1 : cli_fail(&st, rc == MR_INVALID_ARGUMENT ? CLI_USAGE : CLI_FAILED);
}

static int write_all(write_opts *o, mr_dataset *ds, cli_jsonl *j)
{
    mr_shard_writer_opts opts = {.overwrite = o->overwrite,
                                 .format = o->shard_format,
                                 .group_bytes = o->row_group,
                                 .prefix = o->out,
                                 .memory_limit = o->run.opts.memory_limit,
                                 .cancel = cli_cancel()};
    opts.zstd_records = o->compress && strcmp(o->compress, ZSTD_RECORD) == 0;
    if (o->shard_format == MR_SHARDS_PARQUET)
        opts.compression = MR_COMPRESSION_ZSTD;
    if (o->compress && !opts.zstd_records && !mr_compression_find(o->compress, &opts.compression))
        return cli_usage(&cli_write, "unknown compression '%s'", o->compress);
    mr_shard_writer *w = NULL;
    mr_status st;
    bool again;
    o->run.opts.memory_taken =
        mr_shard_writer_memory(o->shards, &opts, ds ? mr_dataset_spec(ds) : NULL);
    do {
        again = false;
        if (mr_shard_writer_open(&w, o->out, o->shards, &opts, &st) != MR_OK)
            return cli_fail(&st, CLI_FAILED);
        mr_code rc = write_input(o, ds, j, w, &again, &st);
        if (rc != MR_OK || again)
            mr_shard_writer_abort(w);
        if (rc != MR_OK)
            return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
    } while (again);
    int64_t records = mr_shard_writer_records(w);
    if (mr_shard_writer_close(w, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    char *prefix = mr_glob_quote(o->out); /* the pattern can be read as it is printed */
    printf("%" PRId64 " record%s in %" PRId64 " file%s: %s-*-of-%05" PRId64 ".%s\n", records,
           records == 1 ? "" : "s", o->shards, o->shards == 1 ? "" : "s", prefix ? prefix : o->out,
           o->shards, mr_shard_ending(o->shard_format));
    mr_free(prefix);
    /* The files are published: failing to print the report is not a failure of the command. */
    cli_flush(CLI_OK);
    return CLI_OK;
}

/* Names on the command line are literal paths: the shell has expanded patterns. */
static mr_dataset *text_files(const cli_texts *t)
{
    return mr_text_line(t->v, t->n, &(mr_text_line_opts){.paths = true});
}

/* JSON objects whose features have the types of the schema. */
static int schema_files(const write_opts *o, mr_dataset **out)
{
    mr_status st;
    const cli_texts *t = &o->jsonl;
    *out = mr_jsonl(t->v, t->n, o->schema, &(mr_jsonl_opts){.paths = true});
    return mr_dataset_check(*out, &st) == MR_OK ? -1 : cli_fail(&st, CLI_USAGE);
}

static int check_format(write_opts *o, const char *const *words)
{
    for (int i = 0; o->format && words[i]; i++)
        if (strcmp(o->format, words[i]) == 0)
            o->shard_format = (mr_shard_format)i;
    bool pipeline = !o->idx.n && (!o->jsonl.n || o->schema);
    if (o->ledger && !pipeline)
        return cli_usage(
            &cli_write,
            "--ledger needs a pipeline: --expr, --text, --images, or --jsonl with --schema");
    if (o->shard_format != MR_SHARDS_PARQUET && o->row_group)
        return cli_usage(&cli_write, "--row-group applies only to parquet files");
    if (o->shard_format == MR_SHARDS_TFRECORD)
        return -1;
    if (!pipeline)
        return cli_usage(
            &cli_write,
            "--format %s needs a pipeline: --expr, --text, --images, or --jsonl with --schema",
            o->format);
    if (o->compress && strcmp(o->compress, ZSTD_RECORD) == 0)
        return cli_usage(&cli_write, "--compress " ZSTD_RECORD " applies only to tfrecord files");
    if (o->shard_format == MR_SHARDS_NPY && o->compress)
        return cli_usage(&cli_write,
                         "--compress does not apply to npy files, which numpy memory-maps");
    if (o->shard_format == MR_SHARDS_ARROW && o->compress && strcmp(o->compress, "ZSTD") != 0)
        return cli_usage(&cli_write,
                         "--compress of arrow files must be ZSTD, which compresses their buffers");
    if (o->shard_format == MR_SHARDS_PARQUET && o->compress && strcmp(o->compress, "ZLIB") == 0)
        return cli_usage(
            &cli_write,
            "--compress of parquet files must be ZSTD or GZIP, which compresses their pages");
    return -1;
}

static int run(int argc, char **argv)
{
    static const char *const codecs[] = {"GZIP", "ZLIB", "ZSTD", ZSTD_RECORD, NULL};
    static const char *const formats[] = {"tfrecord", "jsonl", "npy", "arrow", "parquet", NULL};
    write_opts o = {.shards = 1};
    o.jsonl.v = cli_words(argc);
    o.text.v = cli_words(argc);
    o.idx.v = cli_words(argc);
    cli_flag run_flags[CLI_RUN_FLAGS];
    cli_run_flags(&o.run, run_flags, false);
    const cli_flag flags[] = {
        {.name = "out",
         .kind = CLI_TEXT,
         .value = &o.out,
         .what = "PREFIX",
         .help = "files are PREFIX-00000-of-0000N.tfrecord (or the format's ending) and so on; a "
                 "path or s3://bucket/..."},
        {.name = "shards",
         .kind = CLI_INT,
         .value = &o.shards,
         .what = "N",
         .min = 1,
         .max = 99999,
         .help = "number of files (default 1), elements dealt round robin"},
        {.name = "overwrite",
         .kind = CLI_SWITCH,
         .value = &o.overwrite,
         .help = "replace an existing set of any number of files once the new one is complete"},
        {.name = "recover",
         .kind = CLI_SWITCH,
         .value = &o.recover,
         .help = "only finish a write of PREFIX that was killed during its last steps"},
        {.name = "format",
         .kind = CLI_TEXT,
         .value = &o.format,
         .what = "FORMAT",
         .words = formats,
         .help = "tfrecord (the default), jsonl, npy, arrow or parquet"},
        {.name = "compress",
         .kind = CLI_TEXT,
         .value = &o.compress,
         .what = "CODEC",
         .words = codecs,
         .help = "GZIP, ZLIB or ZSTD: whole files; zstd-record: each record, with a dictionary"},
        {.name = "row-group",
         .kind = CLI_SIZE,
         .value = &o.row_group,
         .what = "SIZE",
         .help = "for parquet: bytes of values in a row group, which is buffered in memory; "
                 "default: 64M"},
        cli_ledger_flag(&o.ledger),
        {.name = "expr",
         .kind = CLI_TEXT,
         .value = &o.expr,
         .what = "EXPR",
         .help = "write a pipeline's elements"},
        {.name = "jsonl",
         .kind = CLI_TEXTS,
         .value = &o.jsonl,
         .what = "FILE...",
         .help = "write JSON objects, one per line (- for standard input)"},
        {.name = "schema",
         .kind = CLI_TEXT,
         .value = &o.schema,
         .what = "FEATURES",
         .help = "for --jsonl: the features to write, as in '{\"x\": float32[3]}'"},
        {.name = "text",
         .kind = CLI_TEXTS,
         .value = &o.text,
         .what = "FILE...",
         .help = "write each line as a record (- for standard input)"},
        {.name = "images",
         .kind = CLI_TEXT,
         .value = &o.images,
         .what = "DIR",
         .help = "write the JPEG and PNG files in DIR's folders, labelled by folder"},
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
    cli_jsonl *j = NULL;
    int status = cli_parse(&cli_write, tables, argc, argv, rest, &n);
    if (status < 0 && n)
        status =
            cli_usage(&cli_write, "unexpected '%s'; a pipeline is given as --expr EXPR", rest[0]);
    if (status < 0 && !o.out)
        status = cli_usage(&cli_write, "--out PREFIX is missing");
    if (status < 0 && (!*o.out || o.out[strlen(o.out) - 1] == '/'))
        status =
            cli_usage(&cli_write, "--out '%s' has no name after its directory; give one: '%strain'",
                      o.out, o.out);
    int inputs =
        (o.expr != NULL) + (o.jsonl.n > 0) + (o.text.n > 0) + (o.idx.n > 0) + (o.images != NULL);
    if (status < 0 && o.recover && inputs)
        status = cli_usage(&cli_write, "--recover writes nothing new: give --out PREFIX alone");
    if (status < 0 && !o.recover && inputs != 1)
        status = cli_usage(&cli_write, "give one of --expr, --jsonl, --text, --images and --idx");
    if (status < 0 && o.schema && !o.jsonl.n)
        status = cli_usage(&cli_write, "--schema needs --jsonl FILE...");
    if (status < 0 && o.idx.n && o.idx.n != 2)
        status = cli_usage(&cli_write, "--idx needs two files, images and labels");
    if (status < 0)
        status = check_format(&o, formats);
    if (status < 0 && o.recover) {
        mr_status st;
        status = mr_shard_writer_recover(o.out, &st) == MR_OK ? CLI_OK : cli_fail(&st, CLI_FAILED);
    }
    if (status < 0) {
        cli_catch_termination(); /* unfinished files are to be removed */
        cli_catch_hangup();
        cli_run_start(&o.run);
        if (o.text.n)
            ds = text_files(&o.text);
        if (o.images)
            ds = mr_image_folder(o.images, NULL);
        if (o.schema)
            status = schema_files(&o, &ds);
        else if (o.jsonl.n && !(j = cli_jsonl_new(&o.jsonl, o.out)))
            status = cli_usage(&cli_write, "out of memory");
        else if (o.expr)
            status = cli_dataset(NULL, o.expr, strlen(o.expr), &ds);
        if (status < 0) {
            cli_warn_of_cluster(&cli_write);
            status = ds ? check_types(&o, ds) : -1;
        }
        if (status < 0)
            status = write_all(&o, ds, j);
    }
    cli_jsonl_free(j);
    mr_dataset_unref(ds);
    mr_free(rest);
    mr_free(o.jsonl.v);
    mr_free(o.text.v);
    mr_free(o.idx.v);
    return status;
}

const cli_command cli_write = {
    .name = "write",
    .summary = "writes TFRecord, Arrow, Parquet, npy or JSON-lines shards from a pipeline or files",
    .usage = "--out PREFIX [--shards N] [--overwrite] [--format FORMAT] [--compress CODEC]\n"
             "    (--expr EXPR | --jsonl FILE... [--schema FEATURES] | --text FILE... |\n"
             "     --images DIR | --idx IMAGES LABELS) [OPTIONS]\n"
             "--out PREFIX --recover",
    .details =
        "Records and JSON objects become tf.train.Examples: integers int64 lists, floats float\n"
        "lists, strings and uint8 tensors bytes. A pipeline of single strings is written\n"
        "unchanged. --idx names its features \"image\" and \"label\". --images writes each file\n"
        "unchanged as \"image\", the index of its folder in order of names as \"label\", and\n"
        "its \"path\". Files are written atomically.\n\n"
        "--compress zstd-record makes each record a separate zstd frame, so that any TFRecord\n"
        "reader finds the records, and tfrecord(..., record_compression=\"ZSTD\") their data. If\n"
        "it saves more than it costs, the frames use a dictionary, the file PREFIX.dict, which is\n"
        "trained on the first records.\n\n"
        "--format jsonl writes the lines that 'millrace show' prints. --format npy writes\n"
        "numpy arrays: elements of numbers and bools, all of one shape, along axis 0; those\n"
        "of several components become records of a structured type. --format arrow (Arrow IPC\n"
        "files) and --format parquet write a column for each component: axes become lists,\n"
        "nested records become structs or groups. --compress ZSTD compresses Arrow's buffers;\n"
        "ZSTD (the default) or GZIP compresses Parquet's pages.\n"
        "\n"
        "JSON lines are what 'millrace show' prints: a value is a number, a string,\n"
        "{\"b64\": BASE64} for bytes, or a list of one of them. A feature has one type in all\n"
        "lines: integers become floats where other lines have floats, and \"nan\", \"inf\" and\n"
        "\"-inf\" among numbers are floats; strings among numbers are an error. With --schema\n"
        "the types are those of its features, as in the jsonl op: nothing else is written, the\n"
        "files are read once, and a line that does not fit is an error.",
    .run = run,
};
