/* SPDX-License-Identifier: Apache-2.0 */
/* millrace inspect: lists the contents of TFRecord files, and checks them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <millrace/pipeline/formats/tfrecord/example.h>
#include <millrace/pipeline/formats/tfrecord/zstd_records.h>
#include <millrace/pipeline/formats/tfrecord/tfrecord.h>
#include <millrace/pipeline/memory/alloc.h>
#include "../cli.h"

enum { WANT = 4096, BLOCK_BYTES = 1 << 20, SHOWN_VALUES = 6 };

typedef struct inspect_opts {
    cli_run run;
    bool verify, json;
    int64_t examples;
    const char *dictionary;
} inspect_opts;

typedef struct report {
    mr_compression compression;
    int64_t records, bytes, smallest, largest;
    bool opened;
    mr_code rc;
    mr_status st;
} report;

static mr_code print_feature(void *ctx, const mr_example_value *f, mr_status *st)
{
    (void)ctx;
    (void)st;
    printf("      %.*s: ", (int)f->name_size, f->name);
    if (f->dtype == MR_DATASET) {
        puts("nothing set");
        return MR_OK;
    }
    printf("%s[%zu] ", f->dtype == MR_STRING ? "bytes" : mr_dtype_name(f->dtype), f->n);
    for (size_t i = 0; i < f->n && i < SHOWN_VALUES; i++) {
        if (i)
            fputs(", ", stdout);
        if (f->dtype == MR_INT64)
            printf("%" PRId64, ((const int64_t *)f->values)[i]);
        else if (f->dtype == MR_FLOAT32 && isfinite(((const float *)f->values)[i]))
            cli_print_float(stdout, ((const float *)f->values)[i]);
        else if (f->dtype == MR_FLOAT32)
            printf("%g", (double)((const float *)f->values)[i]);
        else {
            const mr_bytes *s = (const mr_bytes *)f->values + i;
            cli_print_string(stdout, s->data, s->size < 40 ? s->size : 40);
            if (s->size > 40)
                printf("... (%zu bytes)", s->size);
        }
    }
    puts(f->n > SHOWN_VALUES ? ", ..." : "");
    return MR_OK;
}

static void print_data(const mr_bytes *r)
{
    mr_status st;
    /* First without printing: a record that is not an Example is shown as bytes. */
    if (r->size && mr_example_visit(r->data, r->size, NULL, NULL, &st) == MR_OK) {
        puts(", an Example:");
        if (mr_example_visit(r->data, r->size, print_feature, NULL, &st) != MR_OK)
            puts("      (damaged)");
        return;
    }
    fputs(": ", stdout);
    cli_print_string(stdout, r->data, r->size < 60 ? r->size : 60);
    puts(r->size > 60 ? "..." : "");
}

static void print_record(int64_t number, const mr_bytes *r, const mr_bytes *unpacked,
                         const mr_status *why)
{
    printf("    record %" PRId64 ", ", number);
    if (why) {
        printf("%zu bytes, a zstd frame that cannot be read: %s\n", r->size, why->message);
        return;
    }
    if (unpacked)
        printf("%zu bytes in a zstd frame of %zu", unpacked->size, r->size);
    else
        printf("%zu bytes", r->size);
    print_data(unpacked ? unpacked : r);
}

/* Shows the next record, if requested. A frame that cannot be decompressed is an error if all are
 * checked, or if its dictionary was given. */
static mr_code look_at(mr_zstd_records *f, const char *path, const inspect_opts *o, const report *r,
                       const mr_bytes *record, mr_status *st)
{
    bool shown = !o->json && r->records < o->examples, frame = mr_is_zstd_record(record);
    mr_array text = {0};
    mr_code rc = MR_OK;
    if (!shown && !o->verify)
        return MR_OK;
    if (frame)
        rc = mr_zstd_records_read(f, path, record, 1, 1, &text, st);
    if (shown)
        print_record(r->records, record, text.data, rc == MR_OK ? NULL : st);
    mr_array_reset(&text);
    if (rc == MR_OK || (!o->verify && !o->dictionary))
        return MR_OK;
    /* A record of n bytes takes n + 16 bytes in the file. */
    bool plain = !*mr_compression_name(r->compression);
    mr_status_prefix(st, "a zstd frame that cannot be read");
    mr_status_at(st, path, plain && o->verify ? r->bytes + 16 * r->records : -1, r->records);
    return rc;
}

static void examine(const char *path, mr_zstd_records *f, const inspect_opts *o, report *r)
{
    mr_reader *reader = NULL;
    mr_array a = {0};
    const mr_file_opts opts = {
        .compression = MR_COMPRESSION_DETECT, .strict = o->verify, .cancel = cli_cancel()};
    *r = (report){.smallest = INT64_MAX};
    r->rc = mr_reader_open(&reader, &mr_format_tfrecord, path, &opts, &r->st);
    r->opened = r->rc == MR_OK;
    if (r->opened)
        r->compression = mr_reader_compression(reader);
    while (r->rc == MR_OK && !cli_interrupted()) {
        mr_array_reset(&a);
        r->rc = mr_reader_read(reader, WANT, BLOCK_BYTES, &a, &r->st);
        const mr_bytes *records = a.data;
        for (size_t i = 0; r->rc == MR_OK && i < a.rows; i++, r->records++) {
            int64_t n = (int64_t)records[i].size;
            r->rc = look_at(f, path, o, r, &records[i], &r->st);
            if (r->rc != MR_OK)
                break;
            r->bytes += n;
            r->smallest = n < r->smallest ? n : r->smallest;
            r->largest = n > r->largest ? n : r->largest;
        }
    }
    mr_array_reset(&a);
    mr_reader_close(reader);
    if (r->rc == MR_END)
        r->rc = MR_OK;
}

enum { NAME = 4096 };

/* The path, or the URL without its secrets. */
static void copy_name(const char *path, char name[NAME])
{
    snprintf(name, NAME, "%s", path);
    mr_text_drop_secrets(name);
}

static void print_name(const char *path)
{
    char name[NAME], shown[4 * NAME];
    copy_name(path, name);
    mr_text_visible(name, false, shown, sizeof shown);
    puts(shown);
}

static void print_json(const char *path, const report *r)
{
    char name[NAME];
    copy_name(path, name);
    fputs("{\"file\": ", stdout);
    cli_print_string(stdout, name, strlen(name));
    if (!r->opened) {
        fputs(", \"error\": ", stdout);
        cli_print_string(stdout, r->st.message, strlen(r->st.message));
        puts("}");
        return;
    }
    printf(", \"compression\": \"%s\", \"records\": %" PRId64 ", \"bytes\": %" PRId64
           ", \"corrupt\": ",
           mr_compression_name(r->compression), r->records, r->bytes);
    if (r->rc == MR_OK)
        fputs("null", stdout);
    else {
        printf("{\"record\": %" PRId64 ", \"offset\": %" PRId64 ", \"error\": ", r->st.record,
               r->st.offset);
        cli_print_string(stdout, r->st.message, strlen(r->st.message));
        putchar('}');
    }
    puts("}");
}

static void print_text(const report *r, const inspect_opts *o)
{
    if (!r->opened)
        return;
    printf("  %" PRId64 " record%s, %" PRId64 " bytes of data", r->records,
           r->records == 1 ? "" : "s", r->bytes);
    if (r->records)
        printf(" (%" PRId64 " to %" PRId64 " a record, %.1f on average)", r->smallest, r->largest,
               (double)r->bytes / (double)r->records);
    printf(", %s\n", *mr_compression_name(r->compression) ? mr_compression_name(r->compression)
                                                          : "uncompressed");
    if (r->rc == MR_OK && (o->verify || r->records))
        puts(o->verify ? "  every record and checksum is good, to the end of the file"
                       : "  checksums good");
}

static int inspect(const char *path, const inspect_opts *o, int status)
{
    report r;
    mr_zstd_records *frames = NULL;
    mr_status st;
    if (mr_zstd_records_open(&frames, o->dictionary, cli_cancel(), &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    if (!o->json)
        print_name(path);
    examine(path, frames, o, &r);
    mr_zstd_records_close(frames);
    if (cli_interrupted())
        return status;
    if (o->json)
        print_json(path, &r);
    else
        print_text(&r, o);
    return r.rc == MR_OK ? status : cli_fail(&r.st, CLI_FAILED);
}

static int run(int argc, char **argv)
{
    inspect_opts o = {.examples = 1};
    const cli_flag flags[] = {
        {.name = "verify",
         .kind = CLI_SWITCH,
         .value = &o.verify,
         .help = "check the whole file up to its end; report the first error (exit 1)"},
        {.name = "examples",
         .kind = CLI_INT,
         .value = &o.examples,
         .what = "N",
         .max = INT64_MAX,
         .help = "show the first N records (default 1)"},
        {.name = "dictionary",
         .kind = CLI_TEXT,
         .value = &o.dictionary,
         .what = "FILE",
         .help = "zstd dictionary of the records; default: PREFIX.dict, if they name one"},
        {.name = "json",
         .kind = CLI_SWITCH,
         .value = &o.json,
         .help = "print one JSON object per file"},
        {0}};
    cli_flag cache_flags[CLI_CACHE_FLAGS];
    cli_cache_flags(&o.run, cache_flags);
    const cli_flag *const tables[] = {flags, cache_flags, NULL};
    const char **files = cli_words(argc);
    size_t n;
    int status = cli_parse(&cli_inspect, tables, argc, argv, files, &n);
    if (status < 0 && n == 0)
        status = cli_usage(&cli_inspect, "expected at least one file");
    if (status < 0) {
        status = CLI_OK;
        cli_run_start(&o.run); /* bytes that are not a record are logged */
        if (o.verify)
            o.examples = 0;
        for (size_t i = 0; i < n && !cli_interrupted(); i++)
            status = inspect(files[i], &o, status);
        status = cli_flush(status);
    }
    mr_free(files);
    return status;
}

const cli_command cli_inspect = {
    .name = "inspect",
    .summary = "shows what is in TFRecord files and checks them for damage",
    .usage = "FILE... [--verify] [--examples N] [--dictionary FILE] [--json] [OPTIONS]",
    .details =
        "The file - is standard input. A file's compression is detected from its first bytes;\n"
        "records that are zstd frames (write --compress zstd-record) are shown decompressed.",
    .run = run,
};
