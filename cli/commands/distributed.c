/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed.h"

#include <inttypes.h>
#include <string.h>

#include <millrace/pipeline/log.h>

void cli_distribution_flags(cli_distribution *d, cli_flag *table)
{
    static const char *const policies[] = {"auto", "file", "data", "off", "hint", "range", NULL};
    d->replicas = d->workers = 1;
    const cli_flag flags[CLI_DISTRIBUTION_FLAGS] = {
        {.name = "replicas",
         .kind = CLI_INT,
         .value = &d->replicas,
         .given = &d->has_replicas,
         .what = "R",
         .min = 1,
         .max = 65536,
         .help = "replicas on each worker; EXPR has the global batch size"},
        {.name = "workers",
         .kind = CLI_INT,
         .value = &d->workers,
         .given = &d->has_workers,
         .what = "W",
         .min = 1,
         .max = 65536,
         .help = "number of workers; default: those of the cluster in TF_CONFIG, or 1"},
        {.name = "worker",
         .kind = CLI_INT,
         .value = &d->worker,
         .given = &d->has_worker,
         .what = "I",
         .max = INT64_MAX,
         .help = "only worker I, counted from 0; default: the one TF_CONFIG names, or all"},
        {.name = "auto-shard",
         .kind = CLI_TEXT,
         .value = &d->policy,
         .what = "POLICY",
         .words = policies,
         .help = "how workers share the data: auto, file, data, off, hint or range"},
        {.name = "elastic",
         .kind = CLI_INT,
         .value = &d->elastic,
         .what = "S",
         .min = 1,
         .max = 65536,
         .help = "cut the data into S streams, which any number of replicas up to S may share"},
        {.name = "from-function",
         .kind = CLI_SWITCH,
         .value = &d->from_function,
         .help = "EXPR is an input function, which does its own sharding and batching"},
        {0}};
    memcpy(table, flags, sizeof flags);
}

/* Without --workers, TF_CONFIG defines the number of workers and the index of this one. */
static int read_cluster(cli_distribution *d)
{
    mr_status st;
    mr_cluster c = {0};
    int64_t worker = 0;
    mr_code rc = mr_cluster_from_env(&c, &st);
    bool found = rc == MR_OK && c.has_task;
    if (found && !d->has_worker)
        rc = mr_cluster_worker(&c, &worker, &st);
    if (found && rc == MR_OK) {
        d->workers = mr_cluster_num_workers(&c);
        d->worker = d->has_worker ? d->worker : worker;
        d->has_worker = true;
    }
    mr_cluster_reset(&c);
    return rc == MR_OK ? -1 : cli_fail(&st, rc == MR_INVALID_ARGUMENT ? CLI_USAGE : CLI_FAILED);
}

int cli_distribution_check(const cli_command *cmd, cli_distribution *d)
{
    int status = d->has_workers ? -1 : read_cluster(d);
    if (status >= 0)
        return status;
    if (d->elastic && d->from_function)
        return cli_usage(cmd, "--elastic and --from-function cannot be combined: an input function "
                              "shards by itself");
    if (d->has_worker && d->worker >= d->workers)
        return cli_usage(
            cmd, "--worker must be less than the number of workers (%" PRId64 "), not %" PRId64,
            d->workers, d->worker);
    return -1;
}

void cli_warn_of_cluster(const cli_command *cmd)
{
    mr_cluster c = {0};
    if (mr_cluster_from_env(&c, NULL) == MR_OK && mr_cluster_num_workers(&c) > 1)
        mr_log(MR_LOG_WARNING,
               "TF_CONFIG describes a job of %" PRId64
               " workers; %s takes no part in it and runs on all of the data",
               mr_cluster_num_workers(&c), cmd->name);
    mr_cluster_reset(&c);
}

int cli_distribute(const cli_distribution *d, const cli_run *run, const char *text, size_t size,
                   mr_dataset **ds, mr_dist_dataset **out)
{
    mr_status st;
    mr_distribute_opts opts = {.num_workers = d->workers,
                               .worker = d->worker,
                               .num_local_workers = d->has_worker ? 1 : d->workers,
                               .replicas = d->replicas,
                               .elastic_streams = d->elastic,
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
    if (rc == MR_INVALID_ARGUMENT && !st.file[0]) /* as in cli_dataset */
        cli_try_service(run->file, text, size);
    return rc == MR_OK ? -1 : cli_fail(&st, rc == MR_INVALID_ARGUMENT ? CLI_USAGE : CLI_FAILED);
}
