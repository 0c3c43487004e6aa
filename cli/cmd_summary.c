/* SPDX-License-Identifier: Apache-2.0 */
/* millrace summary: executes millrace-train, which has the trainer linked in. */
#include "cli/cli.h"

static int run(int argc, char **argv)
{
    (void)argc;
    return cli_exec_train("summary", argv);
}

const cli_command cli_summary = {
    .name = "summary",
    .summary = "lists the layers of a model, their shapes and parameters",
    .usage = "", /* millrace-train has the flags */
    .run = run,
};
