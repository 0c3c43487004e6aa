/* SPDX-License-Identifier: Apache-2.0 */
/* millrace adapt: learns the state of preprocessing layers from data. */
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/shard/cluster/cluster.h>
#include <millrace/trainer/loop/adapt.h>
#include <millrace/trainer/strategy/strategy.h>
#include "train.h"

static int adapt(int argc, char **argv);

const cli_command cli_adapt = {
    .name = "adapt",
    .summary = "learns a vocabulary, moments or boundaries from data",
    .usage = "--data EXPR --layer LAYER --out DIR [OPTIONS]",
    .details =
        "LAYER   lookup(max_tokens=none, oov=1)   writes vocabulary.txt, the most frequent first\n"
        "        text_vectorization(max_tokens=none)   the same for the words of texts\n"
        "        normalization(axis=\"last\")       writes normalization.json\n"
        "        discretization(num_bins)         writes boundaries.json\n"
        "\n"
        "--data yields features, or tuples that begin with them. Models name the directory:\n"
        "lookup(\"DIR\"), normalization(adapted=\"DIR\"), discretization(\"DIR\"). In a cluster "
        "the\n"
        "workers share the data, and the chief writes what all have learned.",
    .run = adapt,
};

/* In a cluster each process is a worker, which reads its part of the data. */
static mr_code adapt_in_cluster(const cli_run *run, mr_dataset *ds, const char *data,
                                const char *layer, const char *out, mr_status *st)
{
    static const char *const device = "cpu:0";
    const mr_strategy_opts devices = {.devices = &device, .n_devices = 1};
    mr_cluster cluster = {0};
    mr_strategy *s = NULL;
    const mr_job_fact facts[] = {{"data", data}, {"layer", layer}};
    const mr_workers_opts workers = {.cluster = &cluster,
                                     .facts = facts,
                                     .n_facts = sizeof facts / sizeof *facts,
                                     .cancel = cli_cancel()};
    int64_t rank;
    mr_code rc = mr_cluster_from_launcher(&cluster, st);
    if (rc == MR_OK)
        rc = mr_cluster_worker(&cluster, &rank, st);
    if (rc == MR_OK && mr_cluster_num_workers(&cluster) > 1)
        rc = mr_strategy_by_name(&s, NULL, &devices, &workers, st);
    if (rc == MR_OK)
        rc = mr_adapt_on(s, ds, layer, out, &run->opts, st);
    mr_strategy_free(s);
    mr_cluster_reset(&cluster);
    return rc;
}

static int adapt(int argc, char **argv)
{
    cli_run run = {0};
    const char *data = NULL, *layer = NULL, *out = NULL;
    const cli_flag flags[] = {
        {.name = "data", .kind = CLI_TEXT, .value = &data, .what = "EXPR", .help = "the data"},
        {.name = "layer",
         .kind = CLI_TEXT,
         .value = &layer,
         .what = "LAYER",
         .help = "the layer to adapt"},
        {.name = "out",
         .kind = CLI_TEXT,
         .value = &out,
         .what = "DIR",
         .help = "the directory to write the file to"},
        {0}};
    cli_flag run_flags[CLI_RUN_FLAGS], cluster_flags[CLI_CLUSTER_FLAGS];
    cli_run_flags(&run, run_flags, false);
    cli_cluster_flags(&run, cluster_flags);
    const cli_flag *const tables[] = {flags, cluster_flags, run_flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    mr_status st;
    mr_dataset *ds = NULL;
    int status = cli_parse(&cli_adapt, tables, argc, argv, rest, &n);
    if (status < 0 && n)
        status = cli_usage(&cli_adapt, "unexpected '%s'", rest[0]);
    if (status < 0 && (!data || !layer || !out))
        status = cli_usage(&cli_adapt, "%s is missing",
                           !data    ? "--data EXPR"
                           : !layer ? "--layer LAYER"
                                    : "--out DIR");
    mr_free(rest);
    if (status >= 0)
        return status;
    if (mr_adapt_check(layer, &st) != MR_OK) {
        mr_status_prefix(&st, "--layer");
        return cli_fail(&st, CLI_USAGE);
    }
    cli_run_start(&run);
    if (mr_dataset_from_text(data, strlen(data), NULL, &ds, &st) != MR_OK)
        return cli_fail(&st, CLI_USAGE);
    mr_code rc = adapt_in_cluster(&run, ds, data, layer, out, &st);
    mr_dataset_unref(ds);
    if (rc == MR_OK)
        return cli_flush(CLI_OK);
    return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
}
