/* SPDX-License-Identifier: Apache-2.0 */
/* millrace explain: the graph before and after it is distributed, and why. */
#include <inttypes.h>
#include <string.h>

#include "cli/distributed.h"
#include "pipeline/memory/alloc.h"

static int print_graph(const char *title, const mr_dataset *ds, bool json)
{
    mr_status st;
    char *text = NULL;
    if (mr_dataset_to_text(ds, &text, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    if (json) {
        printf("\"%s\": ", title);
        cli_print_string(stdout, text, strlen(text));
        fputs(", ", stdout);
    } else
        printf("%s:\n  %s\n", title, text);
    mr_free(text);
    return CLI_OK;
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

static int explain(const mr_dataset *before, const mr_dist_dataset *dd, bool json)
{
    int status = CLI_OK;
    if (json)
        putchar('{');
    if (before)
        status = print_graph("before", before, json);
    for (int64_t i = 0; i < mr_dist_dataset_num_local_workers(dd) && status == CLI_OK; i++) {
        char title[64];
        snprintf(title, sizeof title, json ? "worker %" PRId64 : "after, on worker %" PRId64,
                 mr_dist_dataset_worker(dd) + i);
        status = print_graph(title, mr_dist_dataset_graph(dd, (size_t)i), json);
    }
    if (status == CLI_OK)
        print_decisions(mr_dist_dataset_explanation(dd), json);
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
        {.name = "json", .kind = CLI_SWITCH, .value = &json, .help = "one JSON object"}, {0}};
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
        status = explain(before, dd, json);
    mr_dist_dataset_free(dd);
    mr_dataset_unref(before);
    mr_free(text);
    mr_free(rest);
    return status;
}

const cli_command cli_explain = {
    .name = "explain",
    .summary = "prints a pipeline before and after it is distributed, and why",
    .usage = "EXPR [--replicas R] [--workers W [--worker I]] [--auto-shard POLICY]",
    .details = "The graphs are printed in text form: 'millrace show' runs them.",
    .run = run,
};
