/* SPDX-License-Identifier: Apache-2.0 */
/* The program: dispatches to the command, and exits as a Unix tool should. */
#include <string.h>

#include <millrace/pipeline/params/guess.h>
#include "../cli.h"

/* In the order of --help. */
static const cli_command *const commands[] = {
    /* pipelines */
    &cli_show, &cli_explain, &cli_ops, &cli_bench, &cli_top, &cli_reduce, &cli_why,
    /* files */
    &cli_write, &cli_inspect, &cli_index, &cli_position, &cli_cache, &cli_uploads,
    /* training */
    &cli_train, &cli_adapt, &cli_evaluate, &cli_predict, &cli_summary, &cli_export,
    &cli_checkpoints, &cli_devices, &cli_components, &cli_server};
enum { N_COMMANDS = sizeof commands / sizeof *commands, MOST_COMMANDS = 32 };

static const cli_command program = {
    .name = "",
    .summary = "input pipelines for training on many devices",
    .usage = "COMMAND [ARGUMENTS]\nCOMMAND --help",
    .details = "example:\n"
               "  millrace show 'range(10).shuffle(10, seed=42).map(x => x * 2).batch(4)'\n"
               "\n"
               "exit status:\n"
               "  0 success, 1 an error while running, 2 wrong usage or a graph that cannot be\n"
               "  built, 130 interrupted, 143 ended by SIGTERM",
};

/* The i-th command; NULL after the last. */
static const cli_command *command_at(size_t i)
{
    if (i < N_COMMANDS)
        return commands[i];
    return cli_this.more ? cli_this.more[i - N_COMMANDS] : NULL;
}

static int help(FILE *f, const char *form)
{
    cli_flag flags[MOST_COMMANDS + 2] = {{0}};
    const cli_command *c;
    size_t n = 0;
    cli_try_service(NULL, NULL, 0);
    for (; n < MOST_COMMANDS && (c = command_at(n)); n++)
        flags[n] = (cli_flag){.name = c->name, .kind = CLI_COMMAND, .help = c->summary};
    flags[n] =
        (cli_flag){.name = "version", .kind = CLI_SWITCH, .help = "print the version and exit"};
    return cli_help(f, &program, (const cli_flag *const[]){flags, NULL}, form);
}

static int version(void)
{
    puts("millrace " MR_VERSION);
    return cli_flush(CLI_OK);
}

int main(int argc, char **argv)
{
    static char help_word[] = "--help";
    cli_start(argv);
    argc = cli_load_plugins(argc, argv);
    if (argc < 2) {
        help(stderr, "--help");
        return CLI_USAGE;
    }
    if (argc > 2 && strcmp(argv[1], "help") == 0) { /* help show: show --help */
        argv[1] = argv[2];
        argv[2] = help_word;
    }
    if (strcmp(argv[1], "--version") == 0)
        return version();
    if (strncmp(argv[1], "--help", 6) == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return help(stdout, argv[1]);
    const cli_command *c;
    for (size_t i = 0; (c = command_at(i)); i++)
        if (strcmp(argv[1], c->name) == 0) {
            if (argc > 2 && strcmp(argv[2], "--version") == 0)
                return version();
            int status = c->run(argc - 1, argv + 1);
            return cli_interrupted() ? cli_interrupt_status() : status;
        }
    cli_try_service(NULL, NULL, 0);
    const char *lack = "; millrace-service, which has more commands, is not next to this program";
    mr_guess g = {.word = argv[1]};
    for (size_t i = 0; (c = command_at(i)); i++)
        mr_guess_try(&g, c->name);
    if (g.best)
        return cli_error(NULL, CLI_USAGE, "unknown command '%s'; did you mean '%s'?", argv[1],
                         g.best);
    return cli_error(NULL, CLI_USAGE, "unknown command '%s'%s; see 'millrace --help'", argv[1],
                     cli_this.next ? lack : "");
}
