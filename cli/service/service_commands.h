/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_SERVICE_COMMANDS_H
#define MR_CLI_SERVICE_COMMANDS_H
/* The data service's commands, and the common part of its daemons. */
#include "../cli.h"

extern const cli_command cli_dispatcher, cli_service, cli_worker;

/* Checks that text, the value of --flag (NULL: not given), is an address; listens: port 0 is
 * allowed. Returns -1, or an exit status after printing the error. */
int cli_address(const cli_command *cmd, const char *flag, const char *text, bool listens);
/* Logs messages from INFO on to standard error, as text or as one JSON object per line. */
void cli_daemon_log(bool json);
/* Handler of SIGHUP: the certificates are read again. */
void cli_daemon_reload(int signal);
/* Raises the limit of open files to the maximum. */
void cli_daemon_files(void);
/* Reports "READY=1" or "STOPPING=1" to systemd or another supervisor (sd_notify(3)). */
void cli_notify(const char *state);
/* Starts the drain: reports it to systemd; the program exits if it takes longer than 5 s. */
void cli_daemon_drains(void);
/* The exit status of a daemon that ended with `status`: draining on SIGTERM is a success. */
int cli_daemon_status(int status);
#endif
