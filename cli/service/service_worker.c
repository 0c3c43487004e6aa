/* SPDX-License-Identifier: Apache-2.0 */
/* millrace worker: runs streams of the data service. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/transport/service/worker/worker_service.h>
#include "service_commands.h"

typedef struct worker_opts {
    mr_service_worker_opts run;
    mr_service_worker *worker;
    int status; /* of this program */
    const char *log, *python;
    mr_tls_opts tls;
    cli_texts roots, writes, tags;
    int64_t threads;
    bool has_threads, has_weight;
    cli_run cache; /* of remote objects */
} worker_opts;

static void draining(void *ctx)
{
    (void)ctx;
    cli_daemon_drains();
}

static void ready(void *ctx)
{
    worker_opts *o = ctx;
    printf("ready %s\n", mr_service_worker_address(o->worker));
    if (o->run.status)
        printf("status %s\n", mr_service_worker_status_address(o->worker));
    o->status = cli_flush(CLI_OK);
    if (o->status != CLI_OK)
        mr_service_worker_stop(o->worker);
}

static int serve(worker_opts *o)
{
    mr_status st;
    o->run.ctx = o;
    mr_code rc = mr_service_worker_open(&o->worker, &o->run, &st);
    if (rc == MR_INVALID_ARGUMENT || (rc == MR_FAILED_PRECONDITION && !o->roots.n))
        return cli_error(&cli_worker, CLI_USAGE, "%s", st.message);
    if (rc != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    /* A supervisor's limit for starting is not meant for the wait for a dispatcher. */
    cli_notify("READY=1");
    rc = mr_service_worker_run(o->worker, &st);
    if (rc != MR_OK)
        o->status = cli_fail(&st, CLI_FAILED);
    mr_service_worker_close(o->worker);
    return o->status;
}

static int start(worker_opts *o)
{
    mr_status st;
    int rc;
    if ((rc = cli_address(&cli_worker, "dispatcher", o->run.dispatcher, false)) >= 0 ||
        (rc = cli_address(&cli_worker, "listen", o->run.listen, true)) >= 0 ||
        (rc = cli_address(&cli_worker, "status", o->run.status, true)) >= 0)
        return rc;
    cli_daemon_log(strcmp(o->log, "json") == 0);
    cli_daemon_files();
    if (mr_service_restrict_files(o->roots.v, o->roots.n, &st) != MR_OK)
        return cli_error(&cli_worker, CLI_USAGE, "--root: %s", st.message);
    if (mr_service_allow_writes(o->writes.v, o->writes.n, &st) != MR_OK)
        return cli_error(&cli_worker, CLI_USAGE, "--allow-writes: %s", st.message);
    cli_catch_termination();
    cli_tls_heed_hangup(&o->tls, cli_daemon_reload);
    if (o->has_threads && mr_executor_new((int)o->threads, &o->run.executor, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    rc = serve(o);
    mr_executor_free(o->run.executor);
    return cli_daemon_status(rc);
}

/* ---- --python: the same worker in an interpreter ---- */

/* Adds NAME=VALUE. false: out of memory. */
static bool pass(char **words, size_t *n, const char *name, const char *value)
{
    if (value)
        words[*n] = mr_strf("%s=%s", name, value);
    return !value || words[(*n)++];
}

/* Executes Python, whose package reads the options again from NAME=VALUE. */
static int start_python(worker_opts *o)
{
    static char module[] = "millrace._service_program", dash_m[] = "-m";
    const char *python = getenv("MILLRACE_PYTHON");
    char number[3][32], interpreter[] = "python3";
    size_t n = 0;
    cli_tls_export(&o->tls);
    char **words = mr_calloc(20 + o->roots.n + o->writes.n + o->tags.n, sizeof *words);
    bool good = words;
    if (good) {
        words[n++] = python ? (char *)(uintptr_t)python : interpreter;
        words[n++] = dash_m;
        words[n++] = module;
        words[n++] = (char *)(uintptr_t)o->python;
        snprintf(number[0], sizeof number[0], "%" PRId64, o->threads);
        snprintf(number[1], sizeof number[1], "%" PRId64, o->run.memory_limit);
        snprintf(number[2], sizeof number[2], "%.17g", o->run.weight);
        good = pass(words, &n, "dispatcher", o->run.dispatcher) &&
               pass(words, &n, "listen", o->run.listen) &&
               pass(words, &n, "status", o->run.status) &&
               pass(words, &n, "token_file", o->run.token_file) &&
               pass(words, &n, "threads", o->has_threads ? number[0] : NULL) &&
               pass(words, &n, "memory_limit", o->run.memory_limit ? number[1] : NULL) &&
               pass(words, &n, "status_token_file", o->run.status_token_file) &&
               pass(words, &n, "tls_client_ca", o->tls.client_ca) &&
               pass(words, &n, "insecure", o->run.insecure ? "1" : NULL) &&
               pass(words, &n, "weight", o->has_weight ? number[2] : NULL) &&
               pass(words, &n, "any_user", o->run.any_user ? "1" : NULL) &&
               pass(words, &n, "no_uring", o->run.no_uring ? "1" : NULL);
        for (size_t i = 0; i < o->roots.n && good; i++)
            good = pass(words, &n, "root", o->roots.v[i]);
        for (size_t i = 0; i < o->writes.n && good; i++)
            good = pass(words, &n, "allow_writes", o->writes.v[i]);
        for (size_t i = 0; i < o->tags.n && good; i++)
            good = pass(words, &n, "tag", o->tags.v[i]);
    }
    if (!good)
        return cli_error(&cli_worker, CLI_FAILED, "out of memory");
    execvp(words[0], words);
    return cli_error(&cli_worker, CLI_FAILED, "cannot start %s: %s; MILLRACE_PYTHON names another",
                     words[0], strerror(errno));
}

static int run_with(int argc, char **argv, const char **rest, const char **roots,
                    const char **writes, const char **tags)
{
    static const char *const forms[] = {"text", "json", NULL};
    worker_opts o = {.run = {.listen = "127.0.0.1:0",
                             .cancel = cli_cancel(),
                             .draining = draining,
                             .ready = ready,
                             .watch = true},
                     .log = "text",
                     .roots.v = roots,
                     .writes.v = writes,
                     .tags.v = tags};
    size_t n_rest;
    const cli_flag flags[] = {
        {.name = "dispatcher",
         .kind = CLI_TEXT,
         .value = &o.run.dispatcher,
         .what = "HOST:PORT",
         .help = "the dispatcher; the worker waits until it is up"},
        {.name = "listen",
         .kind = CLI_TEXT,
         .value = &o.run.listen,
         .what = "HOST:PORT",
         .help = "where clients connect, port 0: a free one; default: 127.0.0.1:0"},
        {.name = "root",
         .kind = CLI_TEXTS,
         .value = &o.roots,
         .what = "DIR",
         .help = "open files only below DIR, or URLs with this prefix; several may be named; "
                 "required if other hosts can connect; default: all local files and no URLs"},
        {.name = "allow-writes",
         .kind = CLI_TEXTS,
         .value = &o.writes,
         .what = "DIR",
         .help = "let graphs of clients write files below DIR, and read them; several may be "
                 "named; default: graphs that write are refused"},
        {.name = "threads",
         .kind = CLI_INT,
         .value = &o.threads,
         .given = &o.has_threads,
         .what = "N",
         .max = 1024,
         .help = "threads of the pool, in addition to one for each stream; default: one per usable "
                 "CPU"},
        {.name = "memory-limit",
         .kind = CLI_SIZE,
         .value = &o.run.memory_limit,
         .what = "SIZE",
         .help =
             "limit of resident memory, such as 512M or 2G: at the limit less is read ahead, and a "
             "stream that does not fit is refused"},
        {.name = "weight",
         .kind = CLI_FLOAT,
         .value = &o.run.weight,
         .given = &o.has_weight,
         .what = "X",
         .help = "its share of the streams, compared with other workers; default: the number of "
                 "usable CPUs"},
        {.name = "tag",
         .kind = CLI_TEXTS,
         .value = &o.tags,
         .what = "T",
         .help = "a name for this worker, in addition to its address; may be repeated"},
        {.name = "status",
         .kind = CLI_TEXT,
         .value = &o.run.status,
         .what = "HOST:PORT",
         .help = "serve the status page there: /, /healthz, /metrics, /status.json; port 0: a "
                 "free one; default: no page"},
        {.name = "status-token-file",
         .kind = CLI_TEXT,
         .value = &o.run.status_token_file,
         .what = "FILE",
         .help = "file with the token that the status page requires, except for /healthz; default: "
                 "none"},
        {.name = "token-file",
         .kind = CLI_TEXT,
         .value = &o.run.token_file,
         .what = "FILE",
         .help = "file with the service's token; default: $MILLRACE_TOKEN_FILE"},
        {.name = "insecure",
         .kind = CLI_SWITCH,
         .value = &o.run.insecure,
         .help =
             "let other hosts connect without TLS: anyone who controls the network can read and "
             "alter graphs and data"},
        {.name = "any-user",
         .kind = CLI_SWITCH,
         .value = &o.run.any_user,
         .help = "without a token, serve every user that can connect; default: only your own "
                 "processes on this host"},
        {.name = "python",
         .kind = CLI_TEXT,
         .value = &o.python,
         .what = "MODULE",
         .help = "run in Python, with the functions that this module registers; "
                 "MILLRACE_PYTHON names the interpreter, default: python3"},
        {.name = "no-uring",
         .kind = CLI_SWITCH,
         .value = &o.run.no_uring,
         .help = "wait for connections without io_uring"},
        {.name = "log",
         .kind = CLI_TEXT,
         .value = &o.log,
         .what = "FORM",
         .words = forms,
         .help = "log format on standard error: text or json; default: text"},
        {0}};
    cli_flag cache_flags[CLI_CACHE_FLAGS], tls_flags[CLI_TLS_FLAGS];
    cli_cache_flags(&o.cache, cache_flags);
    cli_tls_flags(&o.tls, true, true, tls_flags);
    const cli_flag *const tables[] = {flags, cache_flags, tls_flags, NULL};
    int rc = cli_parse(&cli_worker, tables, argc, argv, rest, &n_rest);
    if (rc >= 0)
        return rc;
    if (n_rest)
        return cli_usage(&cli_worker, "unexpected '%s'; it takes options only", rest[0]);
    if (!o.run.dispatcher)
        return cli_usage(&cli_worker, "--dispatcher HOST:PORT is needed");
    if (o.run.memory_limit && o.run.memory_limit < 16 << 20)
        return cli_usage(&cli_worker, "--memory-limit must be at least 16M");
    cli_cache_start(&o.cache);
    if (o.has_weight && !(o.run.weight >= 1e-3 && o.run.weight <= 1e6))
        return cli_usage(&cli_worker, "--weight must be between 0.001 and 1000000");
    o.run.tags = o.tags.v;
    o.run.n_tags = o.tags.n;
    o.run.tls = &o.tls;
    if (o.python && strcmp(o.log, "text") != 0)
        return cli_usage(&cli_worker, "--log json cannot be used with --python");
    return o.python ? start_python(&o) : start(&o);
}

static int run(int argc, char **argv)
{
    const char **rest = cli_words(argc), **roots = cli_words(argc), **writes = cli_words(argc),
               **tags = cli_words(argc);
    int rc = run_with(argc, argv, rest, roots, writes, tags);
    mr_free(tags);
    mr_free(writes);
    mr_free(roots);
    mr_free(rest);
    return rc;
}

const cli_command cli_worker = {
    .name = "worker",
    .summary = "runs the data service's streams",
    .usage = "--dispatcher HOST:PORT [OPTIONS]",
    .details = "Prints 'ready HOST:PORT' once the dispatcher has accepted it, then 'status "
               "HOST:PORT' with\n"
               "--status. The dispatcher may come later: the log says that the worker waits for "
               "it. SIGTERM\n"
               "returns its streams and ends it within 5 s with exit status 0; a second SIGTERM "
               "ends it at\n"
               "once.",
    .run = run,
};
