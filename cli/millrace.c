/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the command, and ends as a Unix tool should. */
#include <string.h>

#include "cli/cli.h"

#ifndef MR_VERSION
#define MR_VERSION "0.1.0"
#endif

static const cli_command *const commands[] = {&cli_show,  &cli_explain, &cli_ops,  &cli_inspect,
                                              &cli_write, &cli_train,   &cli_bench};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

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
    cli_start();
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
