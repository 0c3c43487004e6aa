/* SPDX-License-Identifier: Apache-2.0 */
/* millrace export: executes millrace-train, which has the trainer linked in. */
#include "cli/cli.h"

static int run(int argc, char **argv)
{
    (void)argc;
    return cli_exec_train("export", argv);
}

const cli_command cli_export = {
    .name = "export",
    .summary = "writes a saved model as ONNX, for other programs",
    .usage = "", /* millrace-train has the flags */
    .run = run,
};
