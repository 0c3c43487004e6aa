/* SPDX-License-Identifier: Apache-2.0 */
/* millrace predict: executes millrace-train, which has the trainer linked in. */
#include "cli/cli.h"

static int run(int argc, char **argv)
{
    (void)argc;
    return cli_exec_train("predict", argv);
}

const cli_command cli_predict = {
    .name = "predict",
    .summary = "prints the predictions of a saved model",
    .usage = "", /* millrace-train has the flags */
    .run = run,
};
