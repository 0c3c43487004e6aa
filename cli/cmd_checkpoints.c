/* SPDX-License-Identifier: Apache-2.0 */
/* millrace checkpoints: executes millrace-train, which has the trainer linked in. */
#include "cli/cli.h"

static int run(int argc, char **argv)
{
    (void)argc;
    return cli_exec_train("checkpoints", argv);
}

const cli_command cli_checkpoints = {
    .name = "checkpoints",
    .summary = "lists the checkpoints of a directory, and whether they are whole",
    .usage = "", /* millrace-train has the flags */
    .run = run,
};
