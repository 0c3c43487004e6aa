/* SPDX-License-Identifier: Apache-2.0 */
/* millrace uploads: what writers that were killed left in a store. */
#include <inttypes.h>
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/pipeline/remote/uploads.h>
#include "../cli.h"

enum { MOST_UPLOADS = 1 << 24 };

typedef struct entry {
    char *url, *id, *initiated;
} entry;

typedef struct list {
    entry *all;
    size_t n, room;
} list;

static mr_code add(void *ctx, const mr_unfinished_upload *u, mr_status *st)
{
    list *l = ctx;
    MR_TRY(MR_GROW(l->all, l->room, l->n + 1, MOST_UPLOADS, "uploads", st));
    entry *e = &l->all[l->n++];
    *e = (entry){mr_strdup(u->url), mr_strdup(u->id), mr_strdup(u->initiated)};
    return e->url && e->id && e->initiated ? MR_OK : mr_fail_memory(st, 0, "uploads");
}

static void print_json(const list *l, bool aborted)
{
    printf("[");
    for (size_t i = 0; i < l->n; i++) {
        const entry *e = &l->all[i];
        printf("%s{\"url\": ", i ? ", " : "");
        cli_print_string(stdout, e->url, strlen(e->url));
        printf(", \"id\": ");
        cli_print_string(stdout, e->id, strlen(e->id));
        printf(", \"initiated\": ");
        cli_print_string(stdout, e->initiated, strlen(e->initiated));
        printf(", \"aborted\": %s}", aborted ? "true" : "false");
    }
    printf("]\n");
}

static int run(int argc, char **argv)
{
    bool abort_them = false, json = false;
    const cli_flag flags[] = {{.name = "abort",
                               .kind = CLI_SWITCH,
                               .value = &abort_them,
                               .help = "abort them, which also ends writes that are running"},
                              {.name = "json",
                               .kind = CLI_SWITCH,
                               .value = &json,
                               .help = "print a JSON list instead of lines"},
                              {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **rest = cli_words(argc);
    cli_run r = {0};
    list l = {0};
    mr_status st;
    size_t n;
    int status = cli_parse(&cli_uploads, tables, argc, argv, rest, &n);
    if (status < 0 && n != 1)
        status = cli_usage(&cli_uploads, "expected one URL, such as s3://bucket/prefix");
    if (status < 0) {
        cli_run_start(&r);
        status = CLI_OK;
        if (mr_uploads_list(rest[0], add, &l, cli_cancel(), &st) != MR_OK)
            status = cli_fail(&st, CLI_FAILED);
    }
    for (size_t i = 0; i < l.n && status == CLI_OK; i++) {
        if (abort_them && mr_upload_abort(l.all[i].url, l.all[i].id, cli_cancel(), &st) != MR_OK)
            status = cli_fail(&st, CLI_FAILED);
        else if (!json)
            printf("%s%s  %s  %s\n", abort_them ? "aborted: " : "", l.all[i].initiated,
                   l.all[i].url, l.all[i].id);
    }
    if (status == CLI_OK && json)
        print_json(&l, abort_them);
    if (status == CLI_OK)
        status = cli_flush(status);
    for (size_t i = 0; i < l.n; i++) {
        mr_free(l.all[i].url);
        mr_free(l.all[i].id);
        mr_free(l.all[i].initiated);
    }
    mr_free(l.all);
    mr_free(rest);
    return status;
}

const cli_command cli_uploads = {
    .name = "uploads",
    .summary = "lists, or aborts, uploads to a store that were not finished",
    .usage = "URL-PREFIX [--abort] [--json]",
    .details =
        "A write to s3:// that is killed leaves multipart uploads. No reader sees them, but the\n"
        "store keeps their parts, and may charge for them. Prints a line for each upload whose\n"
        "URL begins with URL-PREFIX: when it began, the URL and the store's id. Writes that are\n"
        "running are listed too, and --abort makes them fail.",
    .run = run,
};
