/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the expression of a command from its arguments or a file. */
#include <string.h>

#include "../cli.h"
#include <millrace/pipeline/files/whole_file.h>
#include <millrace/pipeline/memory/alloc.h>

enum { MOST_TEXT = 1 << 27 /* bytes of a file with an expression */ };

int cli_expression(const cli_command *cmd, const cli_run *r, const char *const *rest, size_t n_rest,
                   char **text, size_t *size)
{
    if (n_rest + (r->file != NULL) != 1)
        return n_rest ? cli_usage(cmd, "expected one expression, not %zu; quote it for the shell",
                                  n_rest + (r->file != NULL))
                      : cli_usage(cmd, "expected an expression");
    if (r->file) {
        mr_status st;
        mr_file_read_opts opts = {.most = MOST_TEXT, .cancel = cli_cancel()};
        if (mr_file_read(r->file, &opts, (void **)text, size, &st) == MR_OK)
            return -1;
        return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_USAGE);
    }
    *size = strlen(rest[0]);
    *text = mr_strdup(rest[0]);
    return *text ? -1 : cli_usage(cmd, "out of memory");
}
