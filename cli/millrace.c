/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the command, and ends as a Unix tool should. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "cli/cli.h"

#ifndef MR_VERSION
#define MR_VERSION "0.1.0"
#endif

static const cli_command *const commands[] = {&cli_show,  &cli_explain, &cli_ops,  &cli_inspect,
                                              &cli_write, &cli_train,   &cli_bench};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static _Atomic(mr_iterator *) watched;
static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    interrupted = 1;
    mr_iterator *it = atomic_load(&watched);
    if (it)
        mr_iterator_cancel(it); /* one atomic store */
    /* A second one ends the program at once, whatever it waits for. */
    signal(sig, SIG_DFL);
}

void cli_watch(mr_iterator *it)
{
    atomic_store(&watched, it);
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

static int help(FILE *f)
{
    fputs("Millrace: input pipelines for training on many devices.\n\n"
          "usage: millrace COMMAND [ARGUMENTS]\n       millrace COMMAND --help\n\ncommands:\n",
          f);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(f, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\nexample:\n"
          "  millrace show 'range(10).shuffle(10, seed=42).map(x => x * 2).batch(4)'\n\n"
          "exit status: 0 fine, 1 an error while running, 2 a graph that can't be built or bad "
          "usage,\n             130 interrupted\n",
          f);
    return CLI_OK;
}

int main(int argc, char **argv)
{
    /* A reader that has seen enough (head) ends us quietly, whatever our parent chose. A file that
     * reaches its size limit is an error that can be told. */
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN);
    struct sigaction act = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &act, NULL);
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("millrace " MR_VERSION);
        return cli_flush(CLI_OK);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return cli_flush(help(stdout));
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i]->name) == 0) {
            if (argc > 2 && strcmp(argv[2], "--version") == 0) {
                puts("millrace " MR_VERSION);
                return cli_flush(CLI_OK);
            }
            int status = commands[i]->run(argc - 1, argv + 1);
            return cli_interrupted() ? CLI_INTERRUPTED : status;
        }
    fprintf(stderr, "millrace: unknown command '%s'; see 'millrace --help'\n", argv[1]);
    return CLI_USAGE;
}
