/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_DISTRIBUTED_H
#define MR_CLI_DISTRIBUTED_H
/* Flags of the commands that distribute a pipeline over workers and replicas. */
#include <millrace/shard/distribute/distribute.h>
#include "../cli.h"

typedef struct cli_distribution {
    int64_t replicas, workers, worker, elastic; /* elastic: streams; 0: not given */
    bool has_replicas, has_workers, has_worker, from_function;
    const char *policy;
} cli_distribution;

enum { CLI_DISTRIBUTION_FLAGS = 7 };
void cli_distribution_flags(cli_distribution *d, cli_flag *table);
/* Before cli_distribute: checks the flags, and completes them from the environment variable
 * TF_CONFIG. Returns -1, or an exit status. */
int cli_distribution_check(const cli_command *cmd, cli_distribution *d);
/* If TF_CONFIG describes several workers, warns that this command is not one of them. Called
 * when the graph has been built: until then another program may be executed (cli_try_service). */
void cli_warn_of_cluster(const cli_command *cmd);
/* Makes the distributed dataset of an expression: -1 and *out, or an exit status. *ds (NULL: not
 * asked for) = the graph as it was written, owned; NULL for an input function. */
int cli_distribute(const cli_distribution *d, const cli_run *run, const char *text, size_t size,
                   mr_dataset **ds, mr_dist_dataset **out);
#endif
