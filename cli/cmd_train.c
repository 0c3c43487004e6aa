/* SPDX-License-Identifier: Apache-2.0 */
/* millrace train: hands over to millrace-train, which lies beside this program and has the trainer
 * and its libraries linked in, so that the other commands start without them. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static int run(int argc, char **argv)
{
    char path[PATH_MAX];
    (void)argc;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof "-train");
    if (n > 0) {
        memcpy(path + n, "-train", sizeof "-train");
        execv(path, argv);
    }
    fprintf(stderr, "millrace train: %s: %s; build it with oneDNN (libdnnl-dev) installed\n",
            n > 0 ? path : "millrace-train", strerror(errno));
    return CLI_FAILED;
}

const cli_command cli_train = {
    .name = "train",
    .summary = "trains a model on mirrored replicas",
    .usage = "", /* millrace-train has the flags */
    .run = run,
};
