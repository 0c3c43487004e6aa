/* SPDX-License-Identifier: Apache-2.0 */
/* --load FILE, which every command takes, and MILLRACE_PLUGINS. */
#include <stdlib.h>
#include <string.h>

#include <millrace/pipeline/graph/plugin.h>
#include <millrace/pipeline/memory/alloc.h>
#include "cli.h"

#define VARIABLE "MILLRACE_PLUGINS"

/* Adds a path to the environment variable from which plugins are loaded, also by a program that
 * this one executes. */
static void add(const char *path)
{
    const char *before = getenv(VARIABLE);
    bool more = before && *before;
    char *all = mr_strf("%s%s%s", more ? before : "", more ? ":" : "", path);
    if (!all) {
        fputs("millrace: out of memory\n", stderr);
        exit(CLI_FAILED);
    }
    setenv(VARIABLE, all, 1);
    mr_free(all);
}

/* Removes the option from the arguments; returns the number left. */
static int take_options(int argc, char **argv)
{
    int n = 0;
    bool flags = true;
    for (int i = 0; i < argc; i++) {
        flags = flags && strcmp(argv[i], "--") != 0;
        if (flags && strncmp(argv[i], "--load=", 7) == 0) {
            add(argv[i] + 7);
        } else if (flags && strcmp(argv[i], "--load") == 0) {
            if (i + 1 == argc)
                exit(cli_error(NULL, CLI_USAGE, "--load needs FILE"));
            add(argv[++i]);
        } else {
            argv[n++] = argv[i];
        }
    }
    argv[n] = NULL;
    return n;
}

int cli_load_plugins(int argc, char **argv)
{
    argc = take_options(argc, argv);
    const char *all = getenv(VARIABLE);
    char *paths = all ? mr_strdup(all) : NULL;
    for (char *path = paths, *next; path; path = next) {
        mr_status st;
        next = strchr(path, ':');
        if (next)
            *next++ = '\0';
        if (*path && mr_plugin_load(path, &st) != MR_OK)
            exit(cli_fail(&st, CLI_FAILED));
    }
    mr_free(paths);
    return argc;
}
