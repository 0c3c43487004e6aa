/* SPDX-License-Identifier: Apache-2.0 */
/* millrace devices: executes millrace-train, which has the devices' back ends. */
#include "cli/cli.h"

static int run(int argc, char **argv)
{
    (void)argc;
    return cli_exec_train("devices", argv);
}

const cli_command cli_devices = {
    .name = "devices",
    .summary = "lists the devices that train can use, and why others are missing",
    .usage = "", /* millrace-train has the flags */
    .run = run,
};
