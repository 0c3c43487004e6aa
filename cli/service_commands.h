/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_SERVICE_COMMANDS_H
#define MR_CLI_SERVICE_COMMANDS_H
/* The data service's commands, and the common part of its daemons. */
#include "cli.h"

extern const cli_command cli_dispatcher, cli_service, cli_worker;

/* Whether text, the value of --flag (NULL: it was not given), is an address; listens: where port 0
 * is right. -1, or an exit status after the error was printed. */
int cli_address(const cli_command *cmd, const char *flag, const char *text, bool listens);
/* The log goes to standard error from INFO on, as text or as a JSON object a line. */
void cli_daemon_log(bool json);
/* As many files and connections as the system allows. */
void cli_daemon_files(void);
/* Reports "READY=1" or "STOPPING=1" to systemd, or to who else started this (sd_notify(3)). */
void cli_notify(const char *state);
/* The drain begins: it is reported to systemd, and what takes longer than 5 s ends the program. */
void cli_daemon_drains(void);
/* The exit status of a daemon whose end was `status`: draining on SIGTERM is no failure. */
int cli_daemon_status(int status);
#endif
