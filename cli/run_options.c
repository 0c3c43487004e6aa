/* SPDX-License-Identifier: Apache-2.0 */
/* The options of every command that runs a graph. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include <millrace/pipeline/log.h>

void cli_run_flags(cli_run *r, cli_flag *table, bool with_file)
{
    const char *limit = getenv("MILLRACE_MEMORY_LIMIT");
    if (limit && *limit && !(r->opts.memory_limit = cli_size(limit)))
        exit(cli_error(
            NULL, CLI_USAGE,
            "MILLRACE_MEMORY_LIMIT is '%s', which is not a size in bytes such as 512M or 2G",
            limit));
    const cli_flag flags[] = {
        {.name = "threads",
         .kind = CLI_INT,
         .value = &r->opts.threads,
         .given = &r->opts.has_threads,
         .what = "N",
         .max = 1024,
         .help = "number of threads; 0: only the calling thread; default: one per usable CPU"},
        {.name = "block-rows",
         .kind = CLI_INT,
         .value = &r->opts.block_rows,
         .what = "N",
         .min = 1,
         .max = INT64_MAX,
         .help = "maximum number of rows in a block; default: chosen by their size"},
        {.name = "memory-limit",
         .kind = CLI_SIZE,
         .value = &r->opts.memory_limit,
         .what = "SIZE",
         .help = "limit of resident memory, such as 512M or 2G: at the limit less is read ahead; "
                 "default: $MILLRACE_MEMORY_LIMIT"},
        {.name = "no-uring",
         .kind = CLI_SWITCH,
         .value = &r->opts.no_uring,
         .help = "read files without io_uring"},
        {.name = "connections",
         .kind = CLI_INT,
         .value = &r->opts.remote_connections,
         .what = "N",
         .min = 1,
         .max = MR_REMOTE_CONNECTIONS,
         .help =
             "connections to each host of URLs, and ranges of a file read at once (at most 64); "
             "default: up to 64 connections and 16 ranges, chosen while reading"},
        {.name = "read-ahead",
         .kind = CLI_SIZE,
         .value = &r->opts.remote_read_ahead,
         .what = "SIZE",
         .help = "bytes of each URL's file that are requested before they are needed; default: "
                 "chosen while reading"},
        {.name = "seed",
         .kind = CLI_INT,
         .value = &r->seed,
         .given = &r->opts.has_seed,
         .what = "N",
         .help = "seed for random operations without one"},
        {.name = "token-file",
         .kind = CLI_TEXT,
         .value = &r->token_file,
         .what = "FILE",
         .help = "file with the data service's token; default: $MILLRACE_TOKEN_FILE"},
        {.name = "v", .kind = CLI_SWITCH, .value = &r->verbose, .help = "log to standard error"},
    };
    const cli_flag of_file = {.name = "f",
                              .kind = CLI_TEXT,
                              .value = &r->file,
                              .what = "FILE",
                              .help = "read the expression from FILE; - is standard input"};
    size_t n = sizeof flags / sizeof *flags;
    memcpy(table, flags, sizeof flags);
    if (with_file)
        table[n++] = of_file;
    cli_cache_flags(r, table + n);
    cli_tls_flags(&r->tls, false, true, table + n + CLI_CACHE_FLAGS - 1);
}

void cli_cluster_flags(cli_run *r, cli_flag *table)
{
    const cli_flag flags[CLI_CLUSTER_FLAGS] = {
        {.name = "cluster-token-file",
         .kind = CLI_TEXT,
         .value = &r->cluster_token_file,
         .what = "FILE",
         .help = "file with the token that all processes of the job must know; default: "
                 "$MILLRACE_CLUSTER_TOKEN_FILE"},
        {.name = "tls-client-ca",
         .kind = CLI_TEXT,
         .value = &r->tls.client_ca,
         .what = "FILE",
         .help = "accept processes with a certificate of the CA in FILE, instead of that of "
                 "--tls-ca; default: $MILLRACE_TLS_CLIENT_CA"},
        {0}};
    memcpy(table, flags, sizeof flags);
}

void cli_cache_flags(cli_run *r, cli_flag *table)
{
    const cli_flag flags[CLI_CACHE_FLAGS] = {
        {.name = "cache-dir",
         .kind = CLI_TEXT,
         .value = &r->cache_dir,
         .what = "DIR",
         .help = "keep what is read from URLs in DIR; default: $MILLRACE_CACHE_DIR, or nowhere"},
        {.name = "cache-limit",
         .kind = CLI_SIZE,
         .value = &r->cache_limit,
         .what = "SIZE",
         .help =
             "maximum size of DIR; it is remembered in DIR for later processes; default: a fifth "
             "of the free space when DIR is created"},
        {.name = "offline",
         .kind = CLI_SWITCH,
         .value = &r->offline,
         .help = "make no requests: read URLs from the cache only"},
        {0}};
    memcpy(table, flags, sizeof flags);
}

void cli_cache_start(const cli_run *r)
{
    char bytes[32];
    if (r->cache_dir)
        setenv("MILLRACE_CACHE_DIR", r->cache_dir, 1);
    snprintf(bytes, sizeof bytes, "%" PRId64, r->cache_limit);
    if (r->cache_limit)
        setenv("MILLRACE_CACHE_LIMIT", bytes, 1);
    if (r->offline)
        setenv("MILLRACE_OFFLINE", "1", 1);
}

static void log_line(void *ctx, mr_log_level level, const char *message)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    (void)ctx;
    fprintf(stderr, "millrace: %s: %s\n", names[level], message);
}

void cli_run_start(cli_run *r)
{
    r->opts.seed = (uint64_t)r->seed;
    r->opts.cancel = cli_cancel();
    r->opts.watch = true;
    if (r->token_file)
        setenv("MILLRACE_TOKEN_FILE", r->token_file, 1);
    if (r->cluster_token_file)
        setenv("MILLRACE_CLUSTER_TOKEN_FILE", r->cluster_token_file, 1);
    cli_cache_start(r);
    cli_tls_export(&r->tls);
    mr_log_set(log_line, NULL, r->verbose ? MR_LOG_DEBUG : MR_LOG_WARNING);
}
