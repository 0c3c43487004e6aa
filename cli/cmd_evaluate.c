/* SPDX-License-Identifier: Apache-2.0 */
/* millrace evaluate: executes millrace-train, which has the trainer linked in. */
#include "cli/cli.h"

static int run(int argc, char **argv)
{
    (void)argc;
    return cli_exec_train("evaluate", argv);
}

const cli_command cli_evaluate = {
    .name = "evaluate",
    .summary = "loss and metrics of a saved model over data",
    .usage = "", /* millrace-train has the flags */
    .run = run,
};
