/* SPDX-License-Identifier: Apache-2.0 */
/* Ending as a Unix tool should: SIGINT, SIGPIPE, a standard output that cannot be written. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "cli/cli.h"

/* Read by the handler: `cancel` is set last and cleared first. */
static void *volatile watched;
static void (*volatile watched_cancel)(void *);
static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    interrupted = 1;
    void (*cancel)(void *) = watched_cancel;
    if (cancel)
        cancel(watched); /* one atomic store */
    /* A second one ends the program at once, whatever it waits for. */
    signal(sig, SIG_DFL);
}

void cli_start(void)
{
    /* A reader that has seen enough (head) ends us quietly, whatever our parent chose. A file that
     * reaches its size limit is an error that can be told. */
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN);
    struct sigaction act = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &act, NULL);
}

void cli_watch(void (*cancel)(void *), void *object)
{
    watched_cancel = NULL;
    watched = object;
    watched_cancel = cancel;
    if (interrupted && cancel) /* it came when there was nothing to cancel */
        cancel(object);
}

static void cancel_iterator(void *it)
{
    mr_iterator_cancel(it);
}

void cli_watch_iterator(mr_iterator *it)
{
    cli_watch(it ? cancel_iterator : NULL, it);
}

bool cli_interrupted(void)
{
    return interrupted;
}

int cli_flush(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "millrace: standard output: %s\n", strerror(errno));
    return status == CLI_OK ? CLI_FAILED : status;
}
