/* SPDX-License-Identifier: Apache-2.0 */
/* millrace dispatcher: assigns the work of the data service, and keeps its account. */
#include <string.h>

#include <millrace/pipeline/log.h>
#include <millrace/pipeline/memory/alloc.h>
#include <millrace/transport/service/dispatcher/dispatcher_service.h>
#include "service_commands.h"

enum { MOST_WORKERS = 65536 };

static void draining(void *ctx)
{
    (void)ctx;
    cli_daemon_drains();
}

/* *words = the addresses, or names, of a comma-separated list; one owned block of memory. */
static int split(const char *list, bool of_addresses, const char ***words, size_t *n)
{
    size_t most = 1;
    for (const char *s = list; *s; s++)
        most += *s == ',';
    const char **w = mr_malloc(most * sizeof *w + strlen(list) + 1);
    if (!w)
        return cli_error(&cli_dispatcher, CLI_FAILED, "out of memory");
    char *text = strcpy((char *)(w + most), list);
    *n = 0;
    for (char *at = text, *end; at; at = end) {
        end = strchr(at, ',');
        if (end)
            *end++ = '\0';
        if (of_addresses && !strrchr(at, ':')) {
            int rc = cli_usage(&cli_dispatcher, "--workers needs HOST:PORT,HOST:PORT,..., not '%s'",
                               list);
            mr_free(w);
            return rc;
        }
        w[(*n)++] = at;
    }
    *words = w;
    return -1;
}

static int serve(const mr_service_dispatcher_opts *opts)
{
    mr_status st;
    mr_service_dispatcher *d;
    mr_code rc = mr_service_dispatcher_open(&d, opts, &st);
    if (rc == MR_INVALID_ARGUMENT)
        return cli_error(&cli_dispatcher, CLI_USAGE, "%s", st.message);
    if (rc != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    if (!opts->state)
        mr_log(MR_LOG_INFO, "the account is kept in memory and ends with this process; "
                            "--state DIR keeps it on disk");
    printf("ready %s\n", mr_service_dispatcher_address(d));
    if (opts->status)
        printf("status %s\n", mr_service_dispatcher_status_address(d));
    int status = cli_flush(CLI_OK);
    if (status == CLI_OK) {
        cli_notify("READY=1");
        rc = mr_service_dispatcher_run(d, &st);
        if (rc != MR_OK)
            status = cli_fail(&st, CLI_FAILED);
    }
    mr_service_dispatcher_close(d);
    return status;
}

static int run_with(int argc, char **argv, const char **rest)
{
    static const char *const forms[] = {"text", "json", NULL};
    const char *listen = "127.0.0.1:5050", *state = NULL, *status = NULL, *token_file = NULL,
               *log = "text", *list = NULL, **words = NULL, *operators = NULL, **names = NULL;
    int64_t num_workers = 0, min_workers = 0, max_workers = 0;
    bool no_uring = false, any_user = false, insecure = false, no_balance = false,
         names_only = false;
    const char *status_token_file = NULL;
    mr_tls_opts tls = {0};
    cli_flag tls_flags[CLI_TLS_FLAGS];
    size_t n_rest, n_words = 0, n_names = 0;
    const cli_flag flags[] = {
        {.name = "listen",
         .kind = CLI_TEXT,
         .value = &listen,
         .what = "HOST:PORT",
         .help = "where clients and workers connect, port 0: a free one; default: 127.0.0.1:5050"},
        {.name = "state",
         .kind = CLI_TEXT,
         .value = &state,
         .what = "DIR",
         .help = "keep the account of jobs on disk, to resume after a restart; default: in memory"},
        {.name = "status",
         .kind = CLI_TEXT,
         .value = &status,
         .what = "HOST:PORT",
         .help = "serve the status page there: /, /healthz, /metrics, /status.json; port 0: a "
                 "free one; default: no page"},
        {.name = "status-token-file",
         .kind = CLI_TEXT,
         .value = &status_token_file,
         .what = "FILE",
         .help = "file with the token that the status page requires, except for /healthz; default: "
                 "none"},
        {.name = "token-file",
         .kind = CLI_TEXT,
         .value = &token_file,
         .what = "FILE",
         .help =
             "file with the token that connections must present; default: $MILLRACE_TOKEN_FILE"},
        {.name = "insecure",
         .kind = CLI_SWITCH,
         .value = &insecure,
         .help =
             "let other hosts connect without TLS: anyone who controls the network can read and "
             "alter graphs and data"},
        {.name = "any-user",
         .kind = CLI_SWITCH,
         .value = &any_user,
         .help = "without a token, serve every user that can connect; default: only your own "
                 "processes on this host"},
        {.name = "min-workers",
         .kind = CLI_INT,
         .value = &min_workers,
         .what = "N",
         .max = MOST_WORKERS,
         .help = "minimum number of workers that it recommends; default: 0"},
        {.name = "max-workers",
         .kind = CLI_INT,
         .value = &max_workers,
         .what = "N",
         .min = 1,
         .max = MOST_WORKERS,
         .help = "maximum number of workers that it recommends; default: 65536"},
        {.name = "no-balance",
         .kind = CLI_SWITCH,
         .value = &no_balance,
         .help = "leave streams where they are; default: they move to workers with less load"},
        {.name = "jobs-of-name-only",
         .kind = CLI_SWITCH,
         .value = &names_only,
         .help =
             "tie jobs to the name of the client that begins them, by its token or certificate: "
             "other names can neither read, see nor cancel them"},
        {.name = "operators",
         .kind = CLI_TEXT,
         .value = &operators,
         .what = "NAMES",
         .help = "with --jobs-of-name-only: the names, NAME,..., of workers and of tools that see "
                 "and change everything"},
        {.name = "no-uring",
         .kind = CLI_SWITCH,
         .value = &no_uring,
         .help = "wait for connections without io_uring"},
        {.name = "log",
         .kind = CLI_TEXT,
         .value = &log,
         .what = "FORM",
         .words = forms,
         .help = "log format on standard error: text or json; default: text"},
        {.name = "workers",
         .kind = CLI_TEXT,
         .value = &list,
         .what = "LIST",
         .help = "the workers' addresses, HOST:PORT,...; others are refused"},
        {.name = "num-workers",
         .kind = CLI_INT,
         .value = &num_workers,
         .what = "N",
         .min = 1,
         .max = MOST_WORKERS,
         .help = "for static modes: the first N workers that connect, in that order"},
        {0}};
    cli_tls_flags(&tls, true, false, tls_flags);
    int rc = cli_parse(&cli_dispatcher, (const cli_flag *const[]){flags, tls_flags, NULL}, argc,
                       argv, rest, &n_rest);
    if (rc >= 0)
        return rc;
    if (n_rest)
        return cli_usage(&cli_dispatcher, "unexpected '%s'; it takes options only", rest[0]);
    if (list && num_workers)
        return cli_usage(&cli_dispatcher, "--workers and --num-workers exclude each other");
    if (max_workers && min_workers > max_workers)
        return cli_usage(&cli_dispatcher, "--min-workers is greater than --max-workers");
    if ((rc = cli_address(&cli_dispatcher, "listen", listen, true)) >= 0 ||
        (rc = cli_address(&cli_dispatcher, "status", status, true)) >= 0 ||
        (list && (rc = split(list, true, &words, &n_words)) >= 0))
        return rc;
    if (operators && (rc = split(operators, false, &names, &n_names)) >= 0) {
        mr_free(words);
        return rc;
    }
    cli_daemon_log(strcmp(log, "json") == 0);
    cli_daemon_files();
    cli_catch_termination();
    cli_tls_heed_hangup(&tls, cli_daemon_reload);
    rc = serve(&(mr_service_dispatcher_opts){.listen = listen,
                                             .state = state,
                                             .status = status,
                                             .token_file = token_file,
                                             .status_token_file = status_token_file,
                                             .tls = &tls,
                                             .insecure = insecure,
                                             .any_user = any_user,
                                             .workers = words,
                                             .n_workers = words ? n_words : (size_t)num_workers,
                                             .min_workers = min_workers,
                                             .max_workers = max_workers,
                                             .no_balance = no_balance,
                                             .jobs_of_name_only = names_only,
                                             .operators = names,
                                             .n_operators = n_names,
                                             .no_uring = no_uring,
                                             .cancel = cli_cancel(),
                                             .draining = draining});
    mr_free(words);
    mr_free(names);
    return cli_daemon_status(rc);
}

static int run(int argc, char **argv)
{
    const char **rest = cli_words(argc);
    int rc = run_with(argc, argv, rest);
    mr_free(rest);
    return rc;
}

const cli_command cli_dispatcher = {
    .name = "dispatcher",
    .summary = "distributes the work of the data service",
    .usage = "[OPTIONS]",
    .details =
        "Prints 'ready HOST:PORT' once it serves, then 'status HOST:PORT' with --status. That "
        "page\n"
        "needs a token only with --status-token-file; it may be open to other hosts only where\n"
        "--listen is. SIGTERM makes the account durable and ends it within 5 s with exit status "
        "0;\n"
        "a second SIGTERM ends it at once.",
    .run = run,
};
