/* SPDX-License-Identifier: Apache-2.0 */
/* millrace server: a worker or parameter server task of training. */
#include <signal.h>
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/shard/cluster/cluster.h>
#include <millrace/trainer/servers/parameter_server.h>
#include "../cli.h"

static void ready(void *ctx, const char *address)
{
    (void)ctx;
    printf("ready %s\n", address);
    fflush(stdout);
}

static void reload(int signal)
{
    (void)signal;
    mr_server_reload_certificates();
}

static int serve(mr_server_opts *o, mr_cluster *cluster)
{
    mr_status st;
    if (mr_cluster_from_env(cluster, &st) != MR_OK)
        return cli_fail(&st, CLI_USAGE);
    o->cluster = cluster;
    cli_catch_termination();
    mr_code rc = mr_server_run(o, &st);
    if (rc == MR_OK)
        return cli_flush(CLI_OK);
    if (cli_interrupted())
        return cli_interrupt_status();
    return cli_fail(&st, rc == MR_INVALID_ARGUMENT ? CLI_USAGE : CLI_FAILED);
}

static int run(int argc, char **argv)
{
    mr_server_opts o = {.cancel = cli_cancel(), .ready = ready};
    mr_cluster cluster = {0};
    int64_t gone = 60;
    const cli_flag flags[] = {
        {.name = "listen",
         .kind = CLI_TEXT,
         .value = &o.listen,
         .what = "HOST:PORT",
         .help = "listen there instead of at the task's address, e.g. if only other hosts resolve "
                 "that name"},
        {.name = "cluster-token-file",
         .kind = CLI_TEXT,
         .value = &o.cluster_token_file,
         .what = "FILE",
         .help = "file with the token that callers must present; default: "
                 "$MILLRACE_CLUSTER_TOKEN_FILE"},
        {.name = "token-file",
         .kind = CLI_TEXT,
         .value = &o.token_file,
         .what = "FILE",
         .help = "token file if --cluster-token-file is not set; default: $MILLRACE_TOKEN_FILE"},
        {.name = "insecure",
         .kind = CLI_SWITCH,
         .value = &o.insecure,
         .help =
             "let other hosts connect without TLS: anyone who controls the network can read and "
             "alter parameters and data"},
        {.name = "any-user",
         .kind = CLI_SWITCH,
         .value = &o.any_user,
         .help = "without a token, serve every user that can connect; default: only your own "
                 "processes on this host"},
        {.name = "gone",
         .kind = CLI_INT,
         .value = &gone,
         .what = "S",
         .min = 1,
         .max = 86400,
         .help = "exit S seconds after the coordinator was lost (default 60)"},
        {0}};
    mr_tls_opts tls = {0};
    cli_flag tls_flags[CLI_TLS_FLAGS];
    cli_tls_flags(&tls, true, true, tls_flags);
    o.tls = &tls;
    const cli_flag *const tables[] = {flags, tls_flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    int status = cli_parse(&cli_server, tables, argc, argv, rest, &n);
    if (status < 0 && n)
        status = cli_usage(&cli_server, "unexpected '%s'", rest[0]);
    if (status < 0) {
        o.gone_s = (double)gone;
        cli_tls_heed_hangup(&tls, reload);
        status = serve(&o, &cluster);
    }
    mr_cluster_reset(&cluster);
    mr_free(rest);
    return status;
}

const cli_command cli_server = {
    .name = "server",
    .summary = "runs a parameter server or one of its workers",
    .usage = "[OPTIONS]",
    .details =
        "TF_CONFIG says which task it is, of type worker or ps:\n"
        "  {\"cluster\": {\"chief\": [\"a:1\"], \"ps\": [\"a:2\"], \"worker\": [\"a:3\", "
        "\"b:3\"]},\n"
        "   \"task\": {\"type\": \"ps\", \"index\": 0}}\n"
        "Prints 'ready HOST:PORT' once it serves. The chief, or a process whose TF_CONFIG has no\n"
        "task, runs millrace train --strategy parameter_server, which ends the servers when it\n"
        "finishes. Any caller can make a server read any file, so without a token it listens on\n"
        "this host only, and serves its own user only.",
    .run = run,
};
