/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/distributed.h"

#include <inttypes.h>
#include <string.h>

void cli_distribution_flags(cli_distribution *d, cli_flag *table)
{
    static const char *const policies[] = {"auto", "file", "data", "off", "hint", NULL};
    d->replicas = d->workers = 1;
    const cli_flag flags[CLI_DISTRIBUTION_FLAGS] = {
        {.name = "replicas",
         .kind = CLI_INT,
         .value = &d->replicas,
         .given = &d->has_replicas,
         .what = "R",
         .min = 1,
         .max = 65536,
         .help = "replicas on each worker; the batch is the global one"},
        {.name = "workers",
         .kind = CLI_INT,
         .value = &d->workers,
         .given = &d->has_workers,
         .what = "W",
         .min = 1,
         .max = 65536,
         .help = "number of workers (default 1)"},
        {.name = "worker",
         .kind = CLI_INT,
         .value = &d->worker,
         .given = &d->has_worker,
         .what = "I",
         .max = INT64_MAX,
         .help = "worker I alone, from 0"},
        {.name = "auto-shard",
         .kind = CLI_TEXT,
         .value = &d->policy,
         .what = "POLICY",
         .words = policies,
         .help = "auto, file, data, off or hint"},
        {.name = "from-function",
         .kind = CLI_SWITCH,
         .value = &d->from_function,
         .help = "EXPR is an input function: it shards and batches by its context"},
        {0}};
    memcpy(table, flags, sizeof flags);
}

int cli_distribution_check(const cli_command *cmd, const cli_distribution *d)
{
    if (d->has_worker && d->worker >= d->workers)
        return cli_usage(cmd, "--worker must be less than --workers (%" PRId64 "), not %" PRId64,
                         d->workers, d->worker);
    return -1;
}

int cli_distribute(const cli_distribution *d, const cli_run *run, const char *text, size_t size,
                   mr_dataset **ds, mr_dist_dataset **out)
{
    mr_status st;
    mr_distribute_opts opts = {.num_workers = d->workers,
                               .worker = d->worker,
                               .num_local_workers = d->has_worker ? 1 : d->workers,
                               .replicas = d->replicas,
                               .seed = run->opts.seed,
                               .has_seed = run->opts.has_seed};
    mr_dataset *graph = NULL;
    mr_code rc = MR_OK;
    if (d->policy) {
        opts.has_policy = true;
        rc = mr_shard_policy_parse(d->policy, &opts.policy, &st);
    }
    if (rc == MR_OK && d->from_function)
        rc = mr_distribute_from_text(text, size, &opts, out, &st);
    else if (rc == MR_OK) {
        rc = mr_dataset_from_text(text, size, NULL, &graph, &st);
        if (rc == MR_OK)
            rc = mr_distribute_dataset(graph, &opts, out, &st);
    }
    if (rc == MR_OK && ds)
        *ds = graph;
    else
        mr_dataset_unref(graph);
    return rc == MR_OK ? -1 : cli_fail(&st, rc == MR_INVALID_ARGUMENT ? CLI_USAGE : CLI_FAILED);
}
