/* SPDX-License-Identifier: Apache-2.0 */
/* millrace service: asks a dispatcher how it is, and what to do. */
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/service_commands.h"
#include "pipeline/memory/alloc.h"
#include "transport/service/request.h"
#include "transport/service/dispatcher/dispatcher.h"
#include "transport/service/status/status_render.h"

typedef struct asked {
    mr__ask_opts opts;
    double timeout;
    bool json, watch;
    struct winsize terminal; /* 0 by 0: output is not cut */
} asked;

typedef struct verb {
    cli_flag word;                                       /* what: its operand; NULL: none */
    void (*print)(const asked *a, const json_t *report); /* NULL: nothing */
} verb;

/* ---- for people ---- */

typedef struct column {
    const char *key, *title;
} column;
enum { MOST_COLUMNS = 5, MOST_CELL = 256 };

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

static long long number(const json_t *report, const char *key)
{
    return (long long)json_integer_value(json_object_get(report, key));
}

static void print_status(const asked *a, const json_t *report)
{
    const char *state = json_string_value(json_object_get(report, "state"));
    bool memory = state && strcmp(state, "memory") == 0;
    printf("dispatcher %s: up %.0f s, account in %s%s\n", a->opts.dispatcher,
           floor(json_number_value(json_object_get(report, "uptime_seconds"))),
           memory ? "memory" : "", memory || !state ? "" : state);
    printf("jobs %lld, workers %lld, streams %lld\n", number(report, "jobs"),
           number(report, "workers"), number(report, "streams"));
    if (json_is_true(json_object_get(report, "disk_full")))
        puts("the account cannot be written: no new jobs are taken; free space under its --state");
}

/* What the status page shows. */
static void print_page(const asked *a, const json_t *report)
{
    enum { HEAD = 4 };
    mr__text t = {0};
    size_t lines = a->terminal.ws_row;
    const json_t *status = json_object_get(report, "status");
    print_status(a, status);
    mr__put_value(&t, &(mr__status_field){.key = "elements", .kind = MR__STATUS_NUMBER}, status, 0,
                  false);
    mr__put(&t, " elements acknowledged, ");
    mr__put_value(&t, &(mr__status_field){.key = "elements_per_second", .kind = MR__STATUS_RATE},
                  status, 0, false);
    mr__put(&t, "\n");
    mr__status_text(&t, mr__dispatcher_view, report, lines > HEAD ? lines - HEAD : lines,
                    a->terminal.ws_col, time(NULL));
    fputs(t.failed ? "out of memory\n" : t.data, stdout);
    mr_free(t.data);
}

/* A job without a name goes by its number. */
static void print_jobs(const asked *a, const json_t *report)
{
    static const column columns[] = {{"job", "JOB"},           {"mode", "MODE"},
                                     {"streams", "STREAMS"},   {"elements", "ELEMENTS"},
                                     {"finished", "FINISHED"}, {NULL, NULL}};
    size_t i;
    json_t *row;
    (void)a;
    json_array_foreach(report, i, row) if (json_string_length(json_object_get(row, "job")) == 0)
        json_object_set(row, "job", json_object_get(row, "id"));
    print_table(report, columns);
}

static void print_workers(const asked *a, const json_t *report)
{
    static const column columns[] = {
        {"worker", "WORKER"}, {"streams", "STREAMS"}, {"state", "STATE"}, {NULL, NULL}};
    (void)a;
    print_table(report, columns);
}

static void print_streams(const asked *a, const json_t *report)
{
    static const column columns[] = {{"stream", "STREAM"},
                                     {"worker", "WORKER"},
                                     {"generation", "GENERATION"},
                                     {"acknowledged", "ACKNOWLEDGED"},
                                     {"end", "END"},
                                     {NULL, NULL}};
    (void)a;
    print_table(report, columns);
}

static void print_id(const asked *a, const json_t *report)
{
    (void)a;
    printf("%s\n", json_string_value(json_object_get(report, "id")));
}

static const verb page = {{.name = "page"}, print_page};
static const verb verbs[] = {
    {{.name = "status", .help = "shows how the dispatcher is, with what it has"}, print_status},
    {{.name = "jobs", .help = "shows the jobs"}, print_jobs},
    {{.name = "workers", .help = "shows the workers"}, print_workers},
    {{.name = "streams", .what = "JOB", .help = "shows the streams of a job"}, print_streams},
    {{.name = "cancel", .what = "JOB", .help = "ends a job"}, NULL},
    {{.name = "drain", .what = "WORKER", .help = "has a worker give its streams back and end"},
     NULL},
    {{.name = "register", .what = "EXPR", .help = "makes a graph known by an id"}, print_id}};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

/* ---- asking ---- */

static mr_code ask_and_print(const asked *a, const verb *v, const char *name,
                             const ProtobufCBinaryData *graph, mr_status *st)
{
    Mr__Wire__Ask ask = MR__WIRE__ASK__INIT;
    mr__message *m;
    ask.request = 1;
    ask.what = (char *)(uintptr_t)v->word.name;
    ask.name = (char *)(uintptr_t)name;
    if (graph)
        ask.graph = *graph;
    MR_TRY(mr__ask(&a->opts, &ask, &m, st));
    const char *text = m->report->json[0] ? m->report->json : "{}";
    json_t *report = json_loads(text, 0, NULL);
    mr_code rc = report ? MR_OK : mr_fail(st, MR_DATA_LOSS, "the report is not JSON: %.100s", text);
    if (rc == MR_OK && a->json)
        puts(text);
    else if (rc == MR_OK && v->print)
        v->print(a, report);
    json_decref(report);
    mr__message_free(m);
    return rc;
}

static mr_code show_all(asked *a, mr_status *st)
{
    if (a->watch && !a->json && isatty(STDOUT_FILENO)) {
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &a->terminal) != 0)
            a->terminal = (struct winsize){0};
        fputs("\033[H\033[2J", stdout); /* over what was there */
    }
    return ask_and_print(a, a->json ? &verbs[0] : &page, "", NULL, st);
}

/* Once a second until it is interrupted; a dispatcher that is away for a while is waited for. */
static int watch(asked *a)
{
    mr_status st;
    struct pollfd p = {.fd = -1, .events = POLLIN};
    mr_code rc = show_all(a, &st);
    if (rc != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    if (mr_cancel_fd(a->opts.cancel, &p.fd, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    while (!cli_interrupted()) {
        int status = cli_flush(CLI_OK);
        if (status != CLI_OK)
            return status;
        poll(&p, 1, 1000);
        if (!cli_interrupted() && show_all(a, &st) != MR_OK && st.code != MR_CANCELLED)
            cli_fail(&st, CLI_FAILED);
    }
    return CLI_OK;
}

static int register_expression(const asked *a, const verb *v, const char *text)
{
    mr_status st;
    mr_dataset *ds;
    void *bytes = NULL;
    size_t size = 0;
    int status = cli_dataset(NULL, text, strlen(text), &ds);
    if (status >= 0)
        return status;
    mr_code rc = mr_dataset_to_proto(ds, &bytes, &size, &st);
    mr_dataset_unref(ds);
    if (rc != MR_OK)
        return cli_fail(&st, CLI_USAGE);
    rc = ask_and_print(a, v, "", &(ProtobufCBinaryData){size, bytes}, &st);
    mr_free(bytes);
    return rc == MR_OK ? cli_flush(CLI_OK) : cli_fail(&st, CLI_FAILED);
}

static int ask_for(asked *a, const verb *v, const char *operand)
{
    mr_status st;
    if (a->watch)
        return watch(a);
    if (v == &verbs[0])
        return show_all(a, &st) == MR_OK ? cli_flush(CLI_OK) : cli_fail(&st, CLI_FAILED);
    if (strcmp(v->word.name, "register") == 0)
        return register_expression(a, v, operand);
    if (ask_and_print(a, v, operand, NULL, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    return cli_flush(CLI_OK);
}

static int run_with(int argc, char **argv, const char **rest)
{
    asked a = {.timeout = NAN};
    const char *token_file = NULL;
    size_t n_rest;
    const cli_flag flags[] = {
        {.name = "dispatcher",
         .kind = CLI_TEXT,
         .value = &a.opts.dispatcher,
         .what = "HOST:PORT",
         .help = "whom to ask"},
        {.name = "json", .kind = CLI_SWITCH, .value = &a.json, .help = "print the report as JSON"},
        {.name = "watch",
         .kind = CLI_SWITCH,
         .value = &a.watch,
         .help = "status: show it again every second until interrupted"},
        {.name = "token-file",
         .kind = CLI_TEXT,
         .value = &token_file,
         .what = "FILE",
         .help = "the token that the dispatcher asks for; default: $MILLRACE_TOKEN_FILE"},
        {.name = "timeout",
         .kind = CLI_FLOAT,
         .value = &a.timeout,
         .what = "SECONDS",
         .help = "how long to try; default: 5; drain: 30"},
        {0}};
    cli_flag requests[N_VERBS + 1] = {0};
    for (size_t i = 0; i < N_VERBS; i++) {
        requests[i] = verbs[i].word;
        requests[i].kind = CLI_COMMAND;
    }
    int rc = cli_parse(&cli_service, (const cli_flag *const[]){requests, flags, NULL}, argc, argv,
                       rest, &n_rest);
    if (rc >= 0)
        return rc;
    const verb *v = verbs;
    if (!n_rest)
        return cli_usage(&cli_service, "a request is wanted");
    while (v < verbs + N_VERBS && strcmp(v->word.name, rest[0]) != 0)
        v++;
    if (v == verbs + N_VERBS)
        return cli_usage(&cli_service, "unknown request '%s'", rest[0]);
    if (n_rest != 1 + (v->word.what != NULL))
        return cli_usage(&cli_service, "%s takes %s", v->word.name,
                         v->word.what ? v->word.what : "no operand");
    if (a.watch && v != &verbs[0])
        return cli_usage(&cli_service, "--watch is for status");
    if (!a.opts.dispatcher)
        return cli_usage(&cli_service, "--dispatcher HOST:PORT is wanted");
    if ((rc = cli_address(&cli_service, "dispatcher", a.opts.dispatcher, false)) >= 0 ||
        (rc = cli_token(&cli_service, token_file, &a.opts.token)) >= 0)
        return rc;
    if (isnan(a.timeout)) /* a worker takes up to 5 s to end */
        a.timeout = strcmp(v->word.name, "drain") == 0 ? 30 : 5;
    a.opts.timeout_ns = (int64_t)(fmin(a.timeout, 1e6) * 1e9);
    a.opts.cancel = cli_cancel();
    return ask_for(&a, v, v->word.what ? rest[1] : "");
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
    .summary = "shows what the data service does, and gives it orders",
    .usage = "status --dispatcher HOST:PORT [--watch] [OPTIONS]\n"
             "jobs | workers | streams JOB --dispatcher HOST:PORT [OPTIONS]\n"
             "cancel JOB | drain WORKER --dispatcher HOST:PORT [OPTIONS]\n"
             "register EXPR --dispatcher HOST:PORT [OPTIONS]",
    .details = "JOB is a job's name, or its number, which `jobs` shows where it has no name.\n"
               "WORKER is a worker's HOST:PORT. register prints the dataset's id, by which\n"
               "distributed_dataset reads it.",
    .run = run,
};
