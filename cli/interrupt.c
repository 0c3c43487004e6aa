/* SPDX-License-Identifier: Apache-2.0 */
/* What a Unix tool does when it starts: it opens standard streams that are closed, and handles
 * signals (SIGINT, SIGTERM, SIGHUP, SIGPIPE). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli.h"

static mr_cancel *cancel; /* never freed */
static volatile sig_atomic_t caught;
static char **arguments;

static void on_interrupt(int sig)
{
    caught = sig;
    mr_cancel_trigger(cancel);
    /* A second signal ends the program at once, even during a wait. */
    signal(sig, SIG_DFL);
}

/* A file that is opened gets the lowest free number: it must not take that of a standard stream
 * which the parent closed. */
static void fill_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
            _exit(CLI_FAILED); /* there is nowhere to say why */
}

/* interleave may hold many files open: the limit is what the user may have, not the usual 1,024. */
static void allow_open_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files); /* if it fails, an error names what could not be opened */
}

void cli_start(char **argv)
{
    mr_status st;
    fill_standard_streams();
    arguments = argv;
    /* A reader that has seen enough (head) ends us quietly, whatever our parent chose. A file that
     * reaches its size limit is an error that can be reported. */
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN);
    allow_open_files();
    struct sigaction act = {.sa_handler = on_interrupt};
    if (mr_cancel_new(NULL, &cancel, NULL) == MR_OK)
        sigaction(SIGINT, &act, NULL);
    if (cli_this.add_ops && cli_this.add_ops(&st) != MR_OK)
        exit(cli_fail(&st, CLI_FAILED));
}

char **cli_arguments(void)
{
    return arguments;
}

void cli_catch_termination(void)
{
    struct sigaction act = {.sa_handler = on_interrupt};
    if (cancel)
        sigaction(SIGTERM, &act, NULL);
}

void cli_catch_hangup(void)
{
    struct sigaction act = {.sa_handler = on_interrupt}, before;
    if (cancel && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &act, NULL);
}

int cli_interrupt_status(void)
{
    return 128 + caught;
}

mr_cancel *cli_cancel(void)
{
    return cancel;
}

bool cli_interrupted(void)
{
    return mr_cancel_is_cancelled(cancel);
}
