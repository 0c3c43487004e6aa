/* SPDX-License-Identifier: Apache-2.0 */
/* millrace train: executes millrace-train, which lies beside this program and has the trainer
 * and its libraries linked in, so that the other commands start without them. */
#include "cli/cli.h"

static int run(int argc, char **argv)
{
    (void)argc;
    return cli_exec_train("train", argv);
}

const cli_command cli_train = {
    .name = "train",
    .summary = "trains a model on mirrored replicas",
    .usage = "", /* millrace-train has the flags */
    .run = run,
};
