/* SPDX-License-Identifier: Apache-2.0 */
/* millrace adapt: executes millrace-train, which has the trainer linked in. */
#include "cli/cli.h"

static int run(int argc, char **argv)
{
    (void)argc;
    return cli_exec_train("adapt", argv);
}

const cli_command cli_adapt = {
    .name = "adapt",
    .summary = "learns a vocabulary, moments or boundaries from data",
    .usage = "", /* millrace-train has the flags */
    .run = run,
};
