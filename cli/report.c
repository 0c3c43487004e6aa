/* SPDX-License-Identifier: Apache-2.0 */
/* Reports errors on standard error, including failed writes to standard output. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "cli.h"

int cli_error(const cli_command *cmd, int status, const char *fmt, ...)
{
    char text[1024], clean[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    mr_text_drop_secrets(text); /* of a URL in a wrong place */
    mr_text_visible(text, false, clean, sizeof clean);
    fflush(stdout);
    fprintf(stderr, "millrace%s%s: %s\n", cmd ? " " : "", cmd ? cmd->name : "", clean);
    return status;
}

int cli_usage(const cli_command *cmd, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return cli_error(cmd, CLI_USAGE, "%s; see 'millrace %s --help'", text, cmd->name);
}

int cli_fail(const mr_status *st, int status)
{
    char text[2048];
    mr_status_format(st, text, sizeof text);
    fflush(stdout);
    fprintf(stderr, "millrace: %s\n", text);
    return status;
}

void cli_print_whole_lines(void)
{
    static char line[1 << 16]; /* a longer line is written in parts */
    setvbuf(stdout, line, _IOLBF, sizeof line);
}

int cli_flush(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "millrace: standard output: %s\n", strerror(errno));
    return status == CLI_OK ? CLI_FAILED : status;
}
