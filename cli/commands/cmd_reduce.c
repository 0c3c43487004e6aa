/* SPDX-License-Identifier: Apache-2.0 */
/* millrace reduce: reduces a pipeline to one JSON value. */
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/pipeline/streams/reduce_dataset.h>
#include "../cli.h"
#include "distributed.h"

static int reduce(const cli_run *r, mr_dataset *ds, const char *init_text, const char *fn_text)
{
    mr_status st;
    mr_value init = {0};
    mr_spec *spec = NULL;
    mr_block last = MR_BLOCK_EMPTY;
    mr_fn *fn = mr_fn_text(fn_text);
    int status = CLI_OK;
    mr_code rc = mr_value_from_text(init_text, strlen(init_text), &init, &st);
    if (rc == MR_OK)
        rc = mr_reduce_spec(ds, &init, fn, &spec, &st);
    if (rc != MR_OK)
        status = cli_fail(&st, CLI_USAGE);
    else if (mr_reduce(ds, &init, fn, &r->opts, &last, &st) != MR_OK ||
             cli_print_line(stdout, spec, &last, 0, &r->opts, &st) != MR_OK)
        status = cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
    mr_block_reset(&last);
    mr_spec_unref(spec);
    mr_fn_unref(fn);
    mr_value_reset(&init);
    return cli_flush(status);
}

static int run(int argc, char **argv)
{
    cli_run r = {0};
    const char *init = NULL, *fn = NULL;
    cli_flag run_flags[CLI_RUN_FLAGS];
    cli_run_flags(&r, run_flags, true);
    const cli_flag flags[] = {{.name = "init",
                               .kind = CLI_TEXT,
                               .value = &init,
                               .what = "VALUE",
                               .help = "the initial state, such as 0 or '(0, 0.0)'"},
                              {.name = "fn",
                               .kind = CLI_TEXT,
                               .value = &fn,
                               .what = "FN",
                               .help = "computes the next state from the state and an element"},
                              {0}};
    const cli_flag *const tables[] = {flags, run_flags, NULL};
    const char **rest = cli_words(argc);
    size_t n, size = 0;
    char *text = NULL;
    mr_dataset *ds = NULL;
    int status = cli_parse(&cli_reduce, tables, argc, argv, rest, &n);
    if (status < 0 && (!init || !fn))
        status = cli_usage(&cli_reduce, "--init VALUE and --fn FN are both needed");
    if (status < 0)
        status = cli_expression(&cli_reduce, &r, rest, n, &text, &size);
    if (status < 0) {
        cli_run_start(&r);
        status = cli_dataset(r.file, text, size, &ds);
    }
    if (status < 0) {
        cli_warn_of_cluster(&cli_reduce);
        status = reduce(&r, ds, init, fn);
    }
    mr_dataset_unref(ds);
    mr_free(text);
    mr_free(rest);
    return status;
}

const cli_command cli_reduce = {
    .name = "reduce",
    .summary = "reduces a pipeline to one value, and prints it as JSON",
    .usage = "EXPR --init VALUE --fn FN [OPTIONS]",
    .details =
        "The state starts as VALUE; FN computes the next one from the state and each element:\n"
        "  millrace reduce 'range(5)' --init 0 --fn '(s, x) => s + x'      prints 10",
    .run = run,
};
