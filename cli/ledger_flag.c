/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger_flag.h"

cli_flag cli_ledger_flag(const char **path)
{
    return (cli_flag){
        .name = "ledger",
        .kind = CLI_TEXT,
        .value = path,
        .what = "FILE",
        .help =
            "write the records that each element or step was made of to FILE, for 'millrace why'"};
}

int cli_ledger_open(const char *path, bool steps, mr_ledger **out)
{
    mr_status st;
    *out = NULL;
    if (!path || mr_ledger_create(path, steps, out, &st) == MR_OK)
        return -1;
    return cli_fail(&st, CLI_FAILED);
}

int cli_ledger_close(mr_ledger *l, int status)
{
    mr_status st;
    if (mr_ledger_close(l, &st) == MR_OK)
        return status;
    /* A failed run has already reported its error, which may be this one. */
    return status == CLI_OK ? cli_fail(&st, CLI_FAILED) : status;
}
