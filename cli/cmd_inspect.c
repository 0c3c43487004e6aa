/* SPDX-License-Identifier: Apache-2.0 */
/* millrace inspect: what is in TFRecord files, and whether it is whole. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "pipeline/engine/iterator.h"
#include "pipeline/formats/example.h"
#include "pipeline/formats/tfrecord.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"

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
        else if (f->dtype == MR_FLOAT32)
            printf("%.9g", (double)((const float *)f->values)[i]);
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
    /* First without printing: a record that is no Example is shown as bytes. */
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

/* ---- records that are zstd frames ---- */

static bool is_frame(const mr_bytes *r)
{
    static const unsigned char magic[] = {0x28, 0xb5, 0x2f, 0xfd};
    return r->size > sizeof magic && memcmp(r->data, magic, sizeof magic) == 0;
}

/* A pipeline that reads the file once more: it knows frames and finds their dictionary. */
typedef struct frames {
    mr_iterator *it;
    int64_t next; /* number of the record that it gives next */
    mr_block record;
} frames;

static mr_code read_frame(frames *f, const char *path, const inspect_opts *o,
                          mr_compression compression, int64_t number, mr_status *st)
{
    if (!f->it || f->next != number) {
        const mr_tfrecord_opts opts = {
            .paths = true,
            .compression = (char *)(uintptr_t)mr_compression_name(compression),
            .record_compression = (char *)(uintptr_t) "ZSTD",
            .dictionary = (char *)(uintptr_t)o->dictionary,
        };
        mr_iterator_close(f->it);
        f->it = NULL;
        f->next = number;
        mr_dataset *ds = mr_skip(mr_tfrecord(&path, 1, &opts), number);
        mr_code rc = mr_iterator_open(&f->it, ds, &(mr_iterator_opts){.cancel = cli_cancel()}, st);
        mr_dataset_unref(ds);
        if (rc != MR_OK)
            return rc;
    }
    f->next++;
    mr_code rc = mr_iterator_next(f->it, 1, &f->record, st);
    return rc == MR_END ? mr_fail(st, MR_DATA_LOSS, "the file has become shorter") : rc;
}

static void print_frame(frames *f, const char *path, const inspect_opts *o,
                        mr_compression compression, int64_t number, const mr_bytes *frame)
{
    mr_status st;
    struct stat file;
    if (stat(path, &file) != 0 || !S_ISREG(file.st_mode)) { /* a pipe cannot be read twice */
        printf("%zu bytes, a zstd frame; name its file to see the record", frame->size);
        print_data(frame);
    } else if (read_frame(f, path, o, compression, number, &st) != MR_OK) {
        printf("%zu bytes, a zstd frame that cannot be read: %s\n", frame->size, st.message);
    } else {
        const mr_bytes *record = f->record.columns[0].data;
        printf("%zu bytes in a zstd frame of %zu", record->size, frame->size);
        print_data(record);
    }
}

static void print_record(frames *f, const char *path, const inspect_opts *o,
                         mr_compression compression, int64_t number, const mr_bytes *r)
{
    printf("    record %" PRId64 ", ", number);
    if (is_frame(r)) {
        print_frame(f, path, o, compression, number, r);
        return;
    }
    printf("%zu bytes", r->size);
    print_data(r);
}

static void examine(const char *path, const inspect_opts *o, report *r)
{
    mr_reader *reader = NULL;
    mr_array a = {0};
    frames f = {.record = MR_BLOCK_EMPTY};
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
            r->bytes += n;
            r->smallest = n < r->smallest ? n : r->smallest;
            r->largest = n > r->largest ? n : r->largest;
            if (!o->json && r->records < o->examples)
                print_record(&f, path, o, r->compression, r->records, &records[i]);
        }
    }
    mr_array_reset(&a);
    mr_block_reset(&f.record);
    mr_iterator_close(f.it);
    mr_reader_close(reader);
    if (r->rc == MR_END)
        r->rc = MR_OK;
}

static void print_name(const char *path)
{
    char shown[4 * 4096];
    mr_text_visible(path, false, shown, sizeof shown);
    puts(shown);
}

static void print_json(const char *path, const report *r)
{
    fputs("{\"file\": ", stdout);
    cli_print_string(stdout, path, strlen(path));
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

static int run(int argc, char **argv)
{
    inspect_opts o = {.examples = 1};
    const cli_flag flags[] = {
        {.name = "verify",
         .kind = CLI_SWITCH,
         .value = &o.verify,
         .help = "check everything, also the end of the file; names the first error (exit 1)"},
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
         .help = "the zstd dictionary of its records; else PREFIX.dict, where they name one"},
        {.name = "json",
         .kind = CLI_SWITCH,
         .value = &o.json,
         .help = "print one JSON object per file"},
        {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **files = cli_words(argc);
    size_t n;
    int status = cli_parse(&cli_inspect, tables, argc, argv, files, &n);
    if (status < 0 && n == 0)
        status = cli_usage(&cli_inspect, "a file is wanted");
    if (status < 0) {
        status = CLI_OK;
        cli_run_start(&o.run); /* the log tells of bytes that are no record */
        if (o.verify)
            o.examples = 0;
        for (size_t i = 0; i < n; i++) {
            report r;
            if (!o.json)
                print_name(files[i]);
            examine(files[i], &o, &r);
            if (cli_interrupted())
                break;
            if (o.json)
                print_json(files[i], &r);
            else
                print_text(&r, &o);
            if (r.rc != MR_OK)
                status = cli_fail(&r.st, CLI_FAILED);
        }
        status = cli_flush(status);
    }
    mr_free(files);
    return status;
}

const cli_command cli_inspect = {
    .name = "inspect",
    .summary = "says what is in TFRecord files, and whether they are undamaged",
    .usage = "FILE... [--verify] [--examples N] [--dictionary FILE] [--json]",
    .details = "The file - is standard input. How a file is compressed is seen from its first "
               "bytes; records\n"
               "that are zstd frames (write --compress zstd-record) are shown as what is in them.",
    .run = run,
};
