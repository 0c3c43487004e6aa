/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of millrace-train. That program is installed next to this one and is linked with
 * the trainer and its libraries, so that the other commands start without them. It parses their
 * flags. */
#include "../cli.h"

#define COMMAND(variable, command, text)                                                           \
    const cli_command variable = {                                                                 \
        .name = command, .summary = text, .usage = "", .run = cli_exec_train}

COMMAND(cli_adapt, "adapt", "learns a vocabulary, moments or boundaries from data");
COMMAND(cli_train, "train", "trains a model on one or more replicas and processes");
COMMAND(cli_evaluate, "evaluate", "computes loss and metrics of a saved model over data");
COMMAND(cli_predict, "predict", "prints the predictions of a saved model");
COMMAND(cli_summary, "summary", "lists the layers of a model, their shapes and parameters");
COMMAND(cli_checkpoints, "checkpoints",
        "lists the checkpoints of a directory and checks that they are intact");
COMMAND(cli_export, "export", "writes a saved model as ONNX, for other programs");
COMMAND(cli_devices, "devices", "lists the devices that train can use, and why others are missing");
COMMAND(cli_components, "components",
        "lists the layers, losses, optimizers, metrics and callbacks of train");
COMMAND(cli_server, "server", "runs a parameter server or one of its workers");
