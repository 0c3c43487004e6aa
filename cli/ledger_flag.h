/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_LEDGER_FLAG_H
#define MR_CLI_LEDGER_FLAG_H
/* --ledger FILE of the commands that run a graph. */
#include <millrace/pipeline/formats/ledger/ledger.h>
#include "cli.h"

/* The flag, whose value goes to *path. */
cli_flag cli_ledger_flag(const char **path);
/* path NULL: *out is NULL. Returns -1 to continue, or an exit status after printing the error. */
int cli_ledger_open(const char *path, bool steps, mr_ledger **out);
/* Closes the ledger (NULL: no-op); returns status, or that of a failure. */
int cli_ledger_close(mr_ledger *l, int status);
#endif
