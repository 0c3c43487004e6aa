/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the expression of a command from its arguments or a file. */
#include <errno.h>
#include <string.h>

#include "cli.h"
#include <millrace/pipeline/memory/alloc.h>

static int read_all(const cli_command *cmd, const char *path, char **text, size_t *size)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (!f && cli_interrupted())
        return CLI_INTERRUPTED;
    if (!f)
        return cli_error(cmd, CLI_USAGE, "%s: %s", path, strerror(errno));
    char *buf = NULL;
    size_t room = 0, n = 0, got;
    do {
        if (mr_grow((void **)&buf, &room, n + 65536, 1, (size_t)1 << 27, "an expression", NULL) !=
            MR_OK)
            break;
        got = fread(buf + n, 1, 65536, f);
        n += got;
    } while (got);
    bool bad = ferror(f) || !feof(f);
    if (f != stdin)
        fclose(f);
    if (bad) {
        mr_free(buf);
        if (cli_interrupted())
            return CLI_INTERRUPTED;
        return cli_error(cmd, CLI_USAGE, "%s: it could not be read", path);
    }
    *text = buf;
    *size = n;
    return -1;
}

int cli_expression(const cli_command *cmd, const cli_run *r, const char *const *rest, size_t n_rest,
                   char **text, size_t *size)
{
    if (n_rest + (r->file != NULL) != 1)
        return n_rest ? cli_usage(cmd, "one expression is wanted, not %zu; quote it for the shell",
                                  n_rest + (r->file != NULL))
                      : cli_usage(cmd, "an expression is wanted");
    if (r->file)
        return read_all(cmd, r->file, text, size);
    *size = strlen(rest[0]);
    *text = mr_strdup(rest[0]);
    return *text ? -1 : cli_usage(cmd, "out of memory");
}
