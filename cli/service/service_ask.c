/* SPDX-License-Identifier: Apache-2.0 */
/* millrace service: requests reports from a dispatcher, and sends it commands. */
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/transport/service/dispatcher/service_requests.h>
#include "service_commands.h"

typedef struct asked {
    const char *dispatcher;
    mr_service_request_opts opts;
    mr_tls_opts tls;
    bool json, watch;
    struct winsize terminal; /* 0 by 0: output is not truncated */
} asked;

typedef struct verb {
    cli_flag word;                     /* what: its operand; NULL: none */
    void (*print)(const json_t *rows); /* of a report; NULL: not one */
    mr_code (*order)(const asked *a, const char *operand, mr_status *st); /* NULL: a report */
} verb;

/* ---- for people ---- */

typedef struct column {
    const char *key, *title;
} column;
enum { MOST_COLUMNS = 6, MOST_CELL = 256 };

static void cell(const json_t *row, const char *key, char *out)
{
    const json_t *v = json_object_get(row, key);
    if (json_is_string(v))
        mr_text_visible(json_string_value(v)[0] ? json_string_value(v) : "-", false, out,
                        MOST_CELL);
    else if (json_is_boolean(v))
        strcpy(out, json_is_true(v) ? "yes" : "no");
    else
        snprintf(out, MOST_CELL, "%lld", (long long)json_integer_value(v));
}

/* rows as a table; columns end with key NULL. */
static void print_table(const json_t *rows, const column *columns)
{
    size_t width[MOST_COLUMNS] = {0}, i;
    json_t *row;
    char text[MOST_CELL];
    for (int c = 0; columns[c].key; c++)
        width[c] = strlen(columns[c].title);
    json_array_foreach(rows, i, row) for (int c = 0; columns[c].key; c++)
    {
        cell(row, columns[c].key, text);
        width[c] = strlen(text) > width[c] ? strlen(text) : width[c];
    }
    for (int c = 0; columns[c].key; c++)
        printf("%-*s%s", columns[c + 1].key ? (int)width[c] + 2 : 0, columns[c].title,
               columns[c + 1].key ? "" : "\n");
    json_array_foreach(rows, i, row) for (int c = 0; columns[c].key; c++)
    {
        cell(row, columns[c].key, text);
        printf("%-*s%s", columns[c + 1].key ? (int)width[c] + 2 : 0, text,
               columns[c + 1].key ? "" : "\n");
    }
}

/* A job without a name is shown by its number. */
static void print_jobs(const json_t *report)
{
    static const column columns[] = {{"job", "JOB"},           {"mode", "MODE"},
                                     {"streams", "STREAMS"},   {"elements", "ELEMENTS"},
                                     {"finished", "FINISHED"}, {NULL, NULL}};
    static const column with_owner[] = {{"job", "JOB"},
                                        {"owner", "OWNER"},
                                        {"mode", "MODE"},
                                        {"streams", "STREAMS"},
                                        {"elements", "ELEMENTS"},
                                        {"finished", "FINISHED"},
                                        {NULL, NULL}};
    size_t i;
    json_t *row;
    json_array_foreach(report, i, row) if (json_string_length(json_object_get(row, "job")) == 0)
        json_object_set(row, "job", json_object_get(row, "id"));
    bool tied = json_object_get(json_array_get(report, 0), "owner") != NULL;
    print_table(report, tied ? with_owner : columns);
}

static void print_workers(const json_t *report)
{
    static const column columns[] = {
        {"worker", "WORKER"}, {"streams", "STREAMS"}, {"state", "STATE"}, {NULL, NULL}};
    print_table(report, columns);
}

static void print_streams(const json_t *report)
{
    static const column columns[] = {{"stream", "STREAM"},
                                     {"worker", "WORKER"},
                                     {"generation", "GENERATION"},
                                     {"acknowledged", "ACKNOWLEDGED"},
                                     {"end", "END"},
                                     {NULL, NULL}};
    print_table(report, columns);
}

/* ---- requests ---- */

static mr_code cancel_job(const asked *a, const char *job, mr_status *st)
{
    return mr_service_cancel(a->dispatcher, job, &a->opts, st);
}

static mr_code drain_worker(const asked *a, const char *worker, mr_status *st)
{
    return mr_service_drain(a->dispatcher, worker, &a->opts, st);
}

static mr_code rebalance(const asked *a, const char *job, mr_status *st)
{
    int64_t n;
    MR_TRY(mr_service_rebalance(a->dispatcher, job[0] ? job : NULL, &a->opts, &n, st));
    printf(a->json ? "{\"moves\": %" PRId64 "}\n" : "%" PRId64 " streams move\n", n);
    return MR_OK;
}

static const verb verbs[] = {
    {{.name = "status", .help = "shows the state of the dispatcher"}, NULL, NULL},
    {{.name = "jobs", .help = "shows the jobs"}, print_jobs, NULL},
    {{.name = "workers", .help = "shows the workers"}, print_workers, NULL},
    {{.name = "streams", .what = "JOB", .help = "shows the streams of a job"}, print_streams, NULL},
    {{.name = "cancel", .what = "JOB", .help = "ends a job"}, NULL, cancel_job},
    {{.name = "drain", .what = "WORKER", .help = "makes a worker return its streams and exit"},
     NULL,
     drain_worker},
    {{.name = "rebalance", .what = "[JOB]", .help = "moves streams to workers with less load now"},
     NULL,
     rebalance},
    {{.name = "register", .what = "EXPR", .help = "registers a graph and prints its id"},
     NULL,
     NULL}};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

/* A wrong option is a usage error, as is an unreadable token file. */
static int fail(const mr_status *st)
{
    return st->code == MR_INVALID_ARGUMENT ? cli_error(&cli_service, CLI_USAGE, "%s", st->message)
                                           : cli_fail(st, CLI_FAILED);
}

static mr_code show_report(const asked *a, const verb *v, const char *name, mr_status *st)
{
    char *text;
    MR_TRY(mr_service_report(a->dispatcher, v->word.name, name, &a->opts, &text, st));
    json_t *report = json_loads(text, 0, NULL);
    mr_code rc = report ? MR_OK : mr_fail(st, MR_DATA_LOSS, "the report is not JSON: %.100s", text);
    if (rc == MR_OK && a->json)
        puts(text);
    else if (rc == MR_OK)
        v->print(report);
    json_decref(report);
    mr_free(text);
    return rc;
}

static mr_code show_status(asked *a, mr_status *st)
{
    char *text;
    if (a->json)
        return show_report(a, &verbs[0], NULL, st);
    if (a->watch && isatty(STDOUT_FILENO)) {
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &a->terminal) != 0)
            a->terminal = (struct winsize){0};
        fputs("\033[H\033[2J", stdout); /* overwrites the previous output */
    }
    MR_TRY(mr_service_status_text(a->dispatcher, a->terminal.ws_row, a->terminal.ws_col, &a->opts,
                                  &text, st));
    fputs(text, stdout);
    mr_free(text);
    return MR_OK;
}

/* Every second until interrupted; waits for a dispatcher that is temporarily unreachable. */
static int watch(asked *a)
{
    mr_status st;
    struct pollfd p = {.fd = -1, .events = POLLIN};
    mr_code rc = show_status(a, &st);
    if (rc != MR_OK)
        return fail(&st);
    if (mr_cancel_fd(a->opts.cancel, &p.fd, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    while (!cli_interrupted()) {
        int status = cli_flush(CLI_OK);
        if (status != CLI_OK)
            return status;
        poll(&p, 1, 1000);
        if (!cli_interrupted() && show_status(a, &st) != MR_OK && st.code != MR_CANCELLED)
            cli_fail(&st, CLI_FAILED);
    }
    return CLI_OK;
}

static int register_expression(const asked *a, const char *text)
{
    mr_status st;
    mr_dataset *ds;
    void *bytes = NULL;
    char *id;
    size_t size = 0;
    int status = cli_dataset(NULL, text, strlen(text), &ds);
    if (status >= 0)
        return status;
    mr_code rc = mr_dataset_to_proto(ds, &bytes, &size, &st); /* whether it can be serialized */
    mr_free(bytes);
    if (rc != MR_OK) {
        mr_dataset_unref(ds);
        return cli_fail(&st, CLI_USAGE);
    }
    rc = mr_service_register(a->dispatcher, ds, &a->opts, &id, &st);
    mr_dataset_unref(ds);
    if (rc != MR_OK)
        return fail(&st);
    printf(a->json ? "{\"id\": \"%s\"}\n" : "%s\n", id);
    mr_free(id);
    return cli_flush(CLI_OK);
}

static mr_code ask(asked *a, const verb *v, const char *operand, mr_status *st)
{
    if (v == &verbs[0])
        return show_status(a, st);
    if (!v->order)
        return show_report(a, v, operand, st);
    MR_TRY(v->order(a, operand, st));
    if (a->json && v->order != rebalance)
        puts("{}");
    return MR_OK;
}

static int ask_for(asked *a, const verb *v, const char *operand)
{
    mr_status st;
    if (a->watch)
        return watch(a);
    if (strcmp(v->word.name, "register") == 0)
        return register_expression(a, operand);
    return ask(a, v, operand, &st) == MR_OK ? cli_flush(CLI_OK) : fail(&st);
}

static int run_with(int argc, char **argv, const char **rest)
{
    asked a = {.opts.cancel = cli_cancel()};
    cli_flag tls_flags[CLI_TLS_FLAGS];
    a.opts.tls = &a.tls;
    cli_tls_flags(&a.tls, false, true, tls_flags);
    bool has_timeout = false;
    size_t n_rest;
    const cli_flag flags[] = {
        {.name = "dispatcher",
         .kind = CLI_TEXT,
         .value = &a.dispatcher,
         .what = "HOST:PORT",
         .help = "the dispatcher's address"},
        {.name = "json", .kind = CLI_SWITCH, .value = &a.json, .help = "print the report as JSON"},
        {.name = "watch",
         .kind = CLI_SWITCH,
         .value = &a.watch,
         .help = "status: show it again every second until interrupted"},
        {.name = "token-file",
         .kind = CLI_TEXT,
         .value = &a.opts.token_file,
         .what = "FILE",
         .help = "file with the token that the dispatcher requires; default: $MILLRACE_TOKEN_FILE"},
        {.name = "timeout",
         .kind = CLI_FLOAT,
         .value = &a.opts.timeout,
         .given = &has_timeout,
         .what = "SECONDS",
         .help = "how long to try; default: 5; drain: 30"},
        {0}};
    cli_flag requests[N_VERBS + 1] = {0};
    for (size_t i = 0; i < N_VERBS; i++) {
        requests[i] = verbs[i].word;
        requests[i].kind = CLI_COMMAND;
    }
    int rc = cli_parse(&cli_service, (const cli_flag *const[]){requests, flags, tls_flags, NULL},
                       argc, argv, rest, &n_rest);
    if (rc >= 0)
        return rc;
    const verb *v = verbs;
    if (!n_rest)
        return cli_usage(&cli_service, "expected a request");
    while (v < verbs + N_VERBS && strcmp(v->word.name, rest[0]) != 0)
        v++;
    if (v == verbs + N_VERBS)
        return cli_usage(&cli_service, "unknown request '%s'", rest[0]);
    bool is_optional = v->word.what && v->word.what[0] == '[';
    if (n_rest != 1 + (v->word.what != NULL) && !(is_optional && n_rest == 1))
        return cli_usage(&cli_service, "%s takes %s", v->word.name,
                         v->word.what ? v->word.what : "no operand");
    if (a.watch && v != &verbs[0])
        return cli_usage(&cli_service, "--watch works only with status");
    if (!a.dispatcher)
        return cli_usage(&cli_service, "--dispatcher HOST:PORT is needed");
    if ((rc = cli_address(&cli_service, "dispatcher", a.dispatcher, false)) >= 0)
        return rc;
    if (has_timeout && a.opts.timeout <= 0) /* one try; 0 would be the default */
        a.opts.timeout = 1e-9;
    return ask_for(&a, v, n_rest > 1 ? rest[1] : "");
}

static int run(int argc, char **argv)
{
    const char **rest = cli_words(argc);
    int rc = run_with(argc, argv, rest);
    mr_free(rest);
    return rc;
}

const cli_command cli_service = {
    .name = "service",
    .summary = "shows and controls the data service",
    .usage = "status --dispatcher HOST:PORT [--watch] [OPTIONS]\n"
             "jobs | workers | streams JOB --dispatcher HOST:PORT [OPTIONS]\n"
             "cancel JOB | drain WORKER --dispatcher HOST:PORT [OPTIONS]\n"
             "rebalance [JOB] --dispatcher HOST:PORT [OPTIONS]\n"
             "register EXPR --dispatcher HOST:PORT [OPTIONS]",
    .details = "JOB is a job's name, or its number, which `jobs` shows for a job without a name.\n"
               "WORKER is a worker's HOST:PORT. register prints the dataset's id, which\n"
               "distributed_dataset takes.",
    .run = run,
};
