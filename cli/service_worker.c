/* SPDX-License-Identifier: Apache-2.0 */
/* millrace worker: runs the data service's streams. */
#include <sched.h>
#include <string.h>

#include "cli/service_commands.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "transport/service/worker/file_roots.h"
#include "transport/service/worker/worker_run.h"

typedef struct worker_opts {
    mr__worker_run_opts run;
    const char *log, *token_file;
    cli_texts roots, tags;
    int64_t threads;
    bool has_threads;
} worker_opts;

static void draining(void *ctx)
{
    (void)ctx;
    cli_daemon_drains();
}

static int usable_cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int serve(const worker_opts *o)
{
    mr_status st;
    mr__worker_run *r;
    mr_code rc = mr__worker_run_open(&r, &o->run, &st);
    if (rc != MR_OK)
        return cli_fail(&st, rc == MR_INVALID_ARGUMENT ? CLI_USAGE : CLI_FAILED);
    int status = -1;
    if (!o->roots.n && !mr__worker_run_is_loopback(r))
        status = cli_usage(&cli_worker,
                           "%s is open to other hosts: name the directories that files may be "
                           "opened below, by --root",
                           mr__worker_run_address(r));
    else if (!o->run.token.data && !mr__worker_run_is_loopback(r))
        mr_log(MR_LOG_WARNING,
               "%s is open to other hosts and needs no token; give --token-file to ask for one",
               mr__worker_run_address(r));
    if (status < 0) {
        printf("ready %s\n", mr__worker_run_address(r));
        if (o->run.status)
            printf("status %s\n", mr__worker_run_status_address(r));
        status = cli_flush(CLI_OK);
    }
    if (status == CLI_OK) {
        cli_notify("READY=1");
        rc = mr__worker_run_serve(r, &st);
        if (rc != MR_OK)
            status = cli_fail(&st, CLI_FAILED);
    }
    mr__worker_run_close(r);
    return status;
}

static int start(worker_opts *o)
{
    mr_status st;
    int rc;
    if ((rc = cli_token(&cli_worker, o->token_file, &o->run.token)) >= 0 ||
        (rc = cli_address(&cli_worker, "dispatcher", o->run.dispatcher, false)) >= 0 ||
        (rc = cli_address(&cli_worker, "listen", o->run.listen, true)) >= 0 ||
        (rc = cli_address(&cli_worker, "status", o->run.status, true)) >= 0)
        return rc;
    cli_daemon_log(strcmp(o->log, "json") == 0);
    cli_daemon_files();
    const mr__system *below;
    if (mr__roots_set(o->roots.v, o->roots.n, &below, &st) != MR_OK)
        return cli_fail(&st, CLI_USAGE);
    mr__system_set(below);
    cli_catch_termination();
    if (mr_executor_new(o->has_threads ? (int)o->threads : usable_cpus(), &o->run.executor, &st) !=
        MR_OK)
        return cli_fail(&st, CLI_FAILED);
    rc = serve(o);
    mr_executor_free(o->run.executor);
    return cli_daemon_status(rc);
}

static int run_with(int argc, char **argv, const char **rest, const char **roots, const char **tags)
{
    static const char *const forms[] = {"text", "json", NULL};
    worker_opts o = {.run = {.listen = "127.0.0.1:0",
                             .cancel = cli_cancel(),
                             .draining = draining,
                             .watch = true},
                     .log = "text",
                     .roots.v = roots,
                     .tags.v = tags};
    size_t n_rest;
    bool no_uring = false;
    const cli_flag flags[] = {
        {.name = "dispatcher",
         .kind = CLI_TEXT,
         .value = &o.run.dispatcher,
         .what = "HOST:PORT",
         .help = "the dispatcher; if it is not there yet, it is waited for"},
        {.name = "listen",
         .kind = CLI_TEXT,
         .value = &o.run.listen,
         .what = "HOST:PORT",
         .help = "where clients connect, port 0: a free one; default: 127.0.0.1:0"},
        {.name = "root",
         .kind = CLI_TEXTS,
         .value = &o.roots,
         .what = "DIR",
         .help = "open files only below DIR, more than one may be named; default: anywhere, as "
                 "long as only this host can connect"},
        {.name = "threads",
         .kind = CLI_INT,
         .value = &o.threads,
         .given = &o.has_threads,
         .what = "N",
         .max = 1024,
         .help = "threads of the pool, besides one for each stream; default: one per usable CPU"},
        {.name = "memory-limit",
         .kind = CLI_SIZE,
         .value = &o.run.memory_limit,
         .what = "SIZE",
         .help = "resident memory at most, as in 512M or 2G: at the limit less is made ahead; a "
                 "stream that does not fit beside the others is refused"},
        {.name = "tag",
         .kind = CLI_TEXTS,
         .value = &o.tags,
         .what = "T",
         .help = "a name for this worker, beside its address"},
        {.name = "status",
         .kind = CLI_TEXT,
         .value = &o.run.status,
         .what = "HOST:PORT",
         .help = "serve the status page there: /, /healthz, /metrics, /status.json; port 0: a "
                 "free one; default: no page"},
        {.name = "token-file",
         .kind = CLI_TEXT,
         .value = &o.token_file,
         .what = "FILE",
         .help = "the service's token is in FILE; default: $MILLRACE_TOKEN_FILE"},
        {.name = "no-uring",
         .kind = CLI_SWITCH,
         .value = &no_uring,
         .help = "wait for connections without io_uring"},
        {.name = "log",
         .kind = CLI_TEXT,
         .value = &o.log,
         .what = "FORM",
         .words = forms,
         .help = "form of the log on standard error: text or json; default: text"},
        {0}};
    int rc =
        cli_parse(&cli_worker, (const cli_flag *const[]){flags, NULL}, argc, argv, rest, &n_rest);
    if (rc >= 0)
        return rc;
    if (n_rest)
        return cli_usage(&cli_worker, "unexpected '%s'; it takes options only", rest[0]);
    if (!o.run.dispatcher)
        return cli_usage(&cli_worker, "--dispatcher HOST:PORT is needed");
    if (o.run.memory_limit && o.run.memory_limit < 16 << 20)
        return cli_usage(&cli_worker, "--memory-limit must be at least 16M");
    o.run.loop = no_uring ? MR__LOOP_EPOLL : MR__LOOP_AUTO;
    o.run.tags = o.tags.v;
    o.run.n_tags = o.tags.n;
    return start(&o);
}

static int run(int argc, char **argv)
{
    const char **rest = cli_words(argc), **roots = cli_words(argc), **tags = cli_words(argc);
    int rc = run_with(argc, argv, rest, roots, tags);
    mr_free(tags);
    mr_free(roots);
    mr_free(rest);
    return rc;
}

const cli_command cli_worker = {
    .name = "worker",
    .summary = "runs the data service's streams",
    .usage = "--dispatcher HOST:PORT [OPTIONS]",
    .details =
        "Prints 'ready HOST:PORT' once it serves; the dispatcher may come later. SIGTERM gives "
        "its\n"
        "streams back and ends it within 5 s with exit status 0; a second SIGTERM ends it at once.",
    .run = run,
};
