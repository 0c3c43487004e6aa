/* SPDX-License-Identifier: Apache-2.0 */
/* millrace server: executes millrace-train, see cmd_train.c. */
#include "cli/cli.h"

static int run(int argc, char **argv)
{
    (void)argc;
    return cli_exec_train("server", argv);
}

const cli_command cli_server = {
    .name = "server",
    .summary = "is a worker or parameter server of training",
    .usage = "", /* millrace-train has the flags */
    .run = run,
};
