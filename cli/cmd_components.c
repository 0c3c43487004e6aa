/* SPDX-License-Identifier: Apache-2.0 */
/* millrace components: executes millrace-train, which has the trainer linked in. */
#include "cli/cli.h"

static int run(int argc, char **argv)
{
    (void)argc;
    return cli_exec_train("components", argv);
}

const cli_command cli_components = {
    .name = "components",
    .summary = "lists the layers, losses, optimizers, metrics and callbacks of train",
    .usage = "", /* millrace-train has the flags */
    .run = run,
};
