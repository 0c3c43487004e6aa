/* SPDX-License-Identifier: Apache-2.0 */
/* millrace explain: the graph before and after it is distributed, and why. */
#include <inttypes.h>
#include <string.h>

#include <millrace/pipeline/files/glob.h>
#include <millrace/pipeline/formats/shards/data_files.h>
#include <millrace/pipeline/formats/shards/shard_writer.h>
#include <millrace/pipeline/graph/rewrite.h>
#include <millrace/pipeline/memory/alloc.h>
#include "distributed.h"
#include "explain_graph.h"

static int64_t in_mib(int64_t bytes)
{
    return (bytes >> 20) + ((bytes & 1048575) != 0);
}

/* The memory that `write` needs for each file, in addition to the graph. */
static void print_writing(const mr_dataset *ds, bool json)
{
    for (int f = 0; f <= MR_SHARDS_PARQUET; f++) {
        mr_shard_writer_opts o = {.format = (mr_shard_format)f};
        o.compression = f == MR_SHARDS_PARQUET ? MR_COMPRESSION_ZSTD : MR_COMPRESSION_NONE;
        int64_t bytes = mr_shard_writer_memory(1, &o, mr_dataset_spec(ds));
        const char *name = mr_shard_ending(o.format);
        if (json)
            printf("%s\"%s\": %" PRId64, f ? ", " : ", \"writing adds\": {", name, bytes);
        else
            printf("%s%s %" PRId64 "M",
                   f ? ", " : "  memory limit: write adds, for each file: ", name, in_mib(bytes));
    }
    fputs(json ? "}" : "\n", stdout);
}

/* The minimum memory_limit of the graph, and what training adds through the slots in opts. */
static mr_code print_memory(const mr_dataset *ds, const mr_iterator_opts *opts, bool json,
                            mr_status *st)
{
    int64_t bytes, staged;
    const char *unknown;
    mr_iterator_opts shown = *opts;
    shown.memory_slots = 0;
    MR_TRY(mr_memory_needed(ds, opts, &staged, &unknown, st));
    MR_TRY(mr_memory_needed(ds, &shown, &bytes, &unknown, st));
    staged = staged > bytes ? staged - bytes : 0;
    if (json) {
        printf("{\"bytes\": %" PRId64 ", \"training adds\": %" PRId64 ", \"lacks\": ", bytes,
               staged);
        printf(unknown ? "\"%s\"" : "null", unknown);
        print_writing(ds, json);
        putchar('}');
        return MR_OK;
    }
    printf("  memory limit: at least %" PRId64 " (%" PRId64 "M)", bytes, in_mib(bytes));
    if (staged)
        printf("; training adds %" PRId64 " (%" PRId64 "M) for batches on their way to the devices",
               staged, in_mib(staged));
    if (unknown)
        printf(", and what '%s' holds: elements whose size the types do not determine", unknown);
    putchar('\n');
    return MR_OK;
}

/* before: the graph to compare with, or NULL. *made (may be NULL) = the ops of the graph. */
static int print_graph(const char *title, const mr_dataset *ds, const mr_iterator_opts *opts,
                       bool json, const explained *before, explained **made)
{
    mr_status st;
    char *text = NULL;
    explained *ops = NULL;
    mr_code rc = mr_dataset_to_text(ds, &text, &st);
    if (rc == MR_OK) {
        mr_text_drop_secrets(text);
        rc = explained_new(ds, &ops, &st);
    }
    if (rc == MR_OK && before && !json)
        rc = explained_compare(ops, before, &st);
    if (rc == MR_OK && json) {
        printf("\"%s\": ", title);
        cli_print_string(stdout, text, strlen(text));
        printf(", \"ops %s\": ", title);
        explained_print_json(ops);
        printf(", \"memory %s\": ", title);
        rc = print_memory(ds, opts, json, &st);
        fputs(", ", stdout);
    } else if (rc == MR_OK) {
        printf("%s:\n  %s\n", title, text);
        explained_print(ops);
        rc = print_memory(ds, opts, json, &st);
        if (rc == MR_OK && !before) /* both have the same element type */
            print_writing(ds, json);
    }
    mr_free(text);
    if (rc == MR_OK && made)
        *made = ops;
    else
        explained_free(ops);
    return rc == MR_OK ? CLI_OK : cli_fail(&st, CLI_FAILED);
}

static void print_decisions(const mr_explanation *e, bool json)
{
    fputs(json ? "\"decisions\": [" : "why:\n", stdout);
    for (size_t i = 0; i < e->n; i++) {
        const mr_decision *d = &e->v[i];
        if (!json) {
            printf("  %s: %s%s%s%s\n", d->what, d->detail, d->op ? " (at " : "", d->op ? d->op : "",
                   d->op ? ")" : "");
            continue;
        }
        fputs(i ? ", {\"what\": " : "{\"what\": ", stdout);
        cli_print_string(stdout, d->what, strlen(d->what));
        fputs(", \"op\": ", stdout);
        if (d->op)
            cli_print_string(stdout, d->op, strlen(d->op));
        else
            fputs("null", stdout);
        fputs(", \"detail\": ", stdout);
        cli_print_string(stdout, d->detail, strlen(d->detail));
        putchar('}');
    }
    if (json)
        puts("]}");
    else if (!e->n)
        puts("  nothing had to be changed");
}

typedef struct listing {
    bool json;
    size_t n; /* patterns printed */
} listing;

/* The objects that a pattern of a store stands for. */
static mr_code print_objects(void *ctx, const char *name, mr_status *st)
{
    listing *l = ctx;
    char **urls = NULL;
    size_t n = 0;
    int64_t bytes = 0;
    if (!strstr(name, "://") || !mr_glob_is_pattern(name))
        return MR_OK;
    MR_TRY(mr_data_files(&name, 1, &urls, &n, st));
    for (size_t i = 0; i < n; i++) {
        int64_t size = mr_glob_listed_bytes(urls[i]);
        bytes += size > 0 ? size : 0;
    }
    mr_glob_free(urls, n);
    if (l->json) {
        fputs(l->n ? ", {\"pattern\": " : "\"objects\": [{\"pattern\": ", stdout);
        cli_print_string(stdout, name, strlen(name));
        printf(", \"objects\": %zu, \"bytes\": %" PRId64 "}", n, bytes);
    } else
        printf("%s  %s: %zu objects, %" PRId64 " bytes\n", l->n ? "" : "objects:\n", name, n,
               bytes);
    l->n++;
    return MR_OK;
}

static int print_patterns(const mr_dataset *ds, bool json)
{
    mr_status st;
    listing l = {.json = json};
    if (mr_dataset_file_names(ds, print_objects, &l, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    if (json && l.n)
        fputs("], ", stdout);
    return CLI_OK;
}

static int explain(mr_dataset *before, const mr_dist_dataset *dd, const mr_iterator_opts *opts,
                   bool json)
{
    int status = CLI_OK;
    explained *ops = NULL;
    mr_iterator_opts training = *opts;
    int64_t parts = mr_dist_dataset_parts(dd);
    if (json)
        putchar('{');
    training.memory_slots = MR_STAGED_BATCHES;
    if (before)
        status = print_graph("before", before, &training, json, NULL, &ops);
    if (before && status == CLI_OK)
        status = print_patterns(before, json);
    training.memory_slots = (MR_STAGED_BATCHES + parts - 1) / parts;
    for (int64_t i = 0; i < mr_dist_dataset_num_local_workers(dd) && status == CLI_OK; i++) {
        char title[64];
        snprintf(title, sizeof title, json ? "worker %" PRId64 : "after, on worker %" PRId64,
                 mr_dist_dataset_worker(dd) + i);
        status =
            print_graph(title, mr_dist_dataset_graph(dd, (size_t)i), &training, json, ops, NULL);
    }
    if (status == CLI_OK && before && cli_this.explain)
        status = cli_this.explain(before, json);
    if (status == CLI_OK)
        print_decisions(mr_dist_dataset_explanation(dd), json);
    explained_free(ops);
    return cli_flush(status);
}

static int run(int argc, char **argv)
{
    cli_run r = {0};
    cli_distribution d = {0};
    bool json = false;
    cli_flag run_flags[CLI_RUN_FLAGS], distribution_flags[CLI_DISTRIBUTION_FLAGS];
    cli_run_flags(&r, run_flags, true);
    cli_distribution_flags(&d, distribution_flags);
    const cli_flag flags[] = {
        {.name = "json", .kind = CLI_SWITCH, .value = &json, .help = "print one JSON object"}, {0}};
    const cli_flag *const tables[] = {distribution_flags, flags, run_flags, NULL};
    const char **rest = cli_words(argc);
    size_t n, size = 0;
    char *text = NULL;
    mr_dataset *before = NULL;
    mr_dist_dataset *dd = NULL;
    int status = cli_parse(&cli_explain, tables, argc, argv, rest, &n);
    if (status < 0)
        status = cli_distribution_check(&cli_explain, &d);
    if (status < 0)
        status = cli_expression(&cli_explain, &r, rest, n, &text, &size);
    if (status < 0) {
        cli_run_start(&r);
        status = cli_distribute(&d, &r, text, size, &before, &dd);
    }
    if (status < 0)
        status = explain(before, dd, &r.opts, json);
    mr_dist_dataset_free(dd);
    mr_dataset_unref(before);
    mr_free(text);
    mr_free(rest);
    return status;
}

const cli_command cli_explain = {
    .name = "explain",
    .summary = "prints a pipeline before and after it is distributed, and why",
    .usage = "EXPR [--replicas R] [--workers W [--worker I]] [--json] [OPTIONS]\n"
             "    [--auto-shard POLICY | --elastic S]",
    .details =
        "The graphs are printed as text that 'millrace show' runs, and as a table of their ops:\n"
        "the number of elements that each emits, their type, and how many it holds at once.\n"
        "+ marks an op that was added, - one that was removed. URL patterns are listed, to\n"
        "print how many objects and bytes they match.",
    .run = run,
};
