/* SPDX-License-Identifier: Apache-2.0 */
/* millrace show: runs a graph and prints its elements, one JSON value per line. */

#include <millrace/pipeline/memory/alloc.h>
#include "../cli.h"
#include "../ledger_flag.h"
#include "show.h"

/* Rows per call: enough to run in blocks, few enough to print the first line early. */
enum { WANT = 1024 };

/* Prints up to *left elements (negative: all) of the current pass. */
static int print_pass(mr_iterator *it, const show_opts *o, int64_t *left)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    while (*left != 0) {
        size_t want = *left > 0 && *left < WANT ? (size_t)*left : WANT;
        if ((rc = mr_iterator_next(it, want, &b, &st)) != MR_OK)
            break;
        for (size_t i = 0; i < b.rows && rc == MR_OK; i++)
            rc = cli_print_line(stdout, mr_iterator_spec(it), &b, i, &o->run.opts, &st);
        if (rc != MR_OK)
            break;
        if (fflush(stdout) != 0) {
            mr_block_reset(&b);
            return cli_flush(CLI_OK);
        }
        if (*left > 0)
            *left -= (int64_t)b.rows;
    }
    mr_block_reset(&b);
    if (rc < 0)
        return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
    return CLI_OK;
}

static int show_with(const show_opts *o, mr_dataset *ds, mr_ledger *ledger)
{
    mr_iterator_opts opts = o->run.opts;
    mr_status st;
    mr_iterator *it = NULL;
    int64_t epoch = 0;
    int status = CLI_OK;
    opts.ledger = ledger;
    if (mr_iterator_open(&it, ds, &opts, &st) != MR_OK)
        return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
    if (o->restore) {
        void *bytes = NULL;
        size_t size = 0;
        status = cli_load_state(o, &bytes, &size, &epoch);
        if (status == CLI_OK && mr_iterator_restore(it, bytes, size, &st) != MR_OK) {
            mr_status_at(&st, o->restore, -1, -1);
            status = cli_fail(&st, CLI_FAILED);
        }
        mr_free(bytes);
    }
    int64_t left = o->has_save_after ? o->save_after : o->has_limit ? o->limit : -1;
    if (status == CLI_OK)
        status = print_pass(it, o, &left);
    while (status == CLI_OK && epoch + 1 < o->epochs && left != 0) {
        epoch++;
        if (mr_iterator_rewind(it, &st) != MR_OK)
            status = cli_fail(&st, CLI_FAILED);
        else
            status = print_pass(it, o, &left);
    }
    if (status == CLI_OK && o->has_save_after) {
        cli_warn_of_end(o, left);
        void *bytes = NULL;
        size_t size = 0;
        mr_code rc = mr_iterator_save(it, &bytes, &size, &st);
        status = cli_store_state(o, rc, bytes, size, epoch, &st);
    }
    mr_iterator_close(it);
    return cli_flush(status);
}

static int show_elements(const show_opts *o, mr_dataset *ds)
{
    mr_ledger *ledger;
    int status = cli_ledger_open(o->ledger, false, &ledger);
    if (status < 0)
        status = cli_ledger_close(ledger, show_with(o, ds, ledger));
    return status;
}

static int check_flags(show_opts *o)
{
    if (o->spec && (o->has_save_after || o->restore || o->has_limit || o->ledger))
        return cli_usage(&cli_show, "--spec runs nothing: omit the other options of a run");
    if (o->at && (o->spec || o->has_save_after || o->restore || o->has_limit || o->epochs != 1 ||
                  o->ledger || o->distribution.has_replicas))
        return cli_usage(&cli_show,
                         "--at looks up elements, without a pass over the data: omit the "
                         "other options of a pass");
    if (o->has_save_after != (o->state != NULL))
        return cli_usage(&cli_show, "--save-after N and --state FILE must be given together");
    if (o->by_name && !o->restore)
        return cli_usage(&cli_show, "--restore-by-name needs --restore FILE");
    if (o->has_save_after && o->has_limit)
        return cli_usage(&cli_show, "--save-after and --limit cannot be combined");
    cli_distribution *d = &o->distribution;
    if (!d->has_replicas &&
        (d->has_workers || d->has_worker || d->policy || d->from_function || d->elastic))
        return cli_usage(&cli_show, "--workers, --worker, --auto-shard, --elastic and "
                                    "--from-function need --replicas");
    return d->has_replicas ? cli_distribution_check(&cli_show, d) : -1;
}

static int run(int argc, char **argv)
{
    show_opts o = {.cmd = &cli_show, .epochs = 1};
    cli_flag run_flags[CLI_RUN_FLAGS], distribution_flags[CLI_DISTRIBUTION_FLAGS];
    cli_run_flags(&o.run, run_flags, true);
    cli_distribution_flags(&o.distribution, distribution_flags);
    const cli_flag flags[] = {
        {.name = "limit",
         .kind = CLI_INT,
         .value = &o.limit,
         .given = &o.has_limit,
         .what = "N",
         .max = INT64_MAX,
         .help = "stop after N elements (with --replicas: steps)"},
        {.name = "epochs",
         .kind = CLI_INT,
         .value = &o.epochs,
         .what = "N",
         .min = 1,
         .max = INT64_MAX,
         .help = "pass over the data N times"},
        {.name = "save-after",
         .kind = CLI_INT,
         .value = &o.save_after,
         .given = &o.has_save_after,
         .what = "N",
         .max = INT64_MAX,
         .help = "print N elements, then save the position after them"},
        {.name = "state",
         .kind = CLI_TEXT,
         .value = &o.state,
         .what = "FILE",
         .help = "the file that --save-after writes"},
        {.name = "restore",
         .kind = CLI_TEXT,
         .value = &o.restore,
         .what = "FILE",
         .help = "continue at a saved position of the same expression"},
        {.name = "restore-by-name",
         .kind = CLI_SWITCH,
         .value = &o.by_name,
         .help = "with --restore: mix may have other sources and weights than "
                 "in the position"},
        {.name = "at",
         .kind = CLI_TEXT,
         .value = &o.at,
         .what = "I[,J...]",
         .help = "print only the elements with these numbers, from 0; -1 is the "
                 "last. The pipeline must be indexed"},
        {.name = "spec",
         .kind = CLI_SWITCH,
         .value = &o.spec,
         .help = "print the type of the elements, and run nothing"},
        cli_ledger_flag(&o.ledger),
        {0}};
    const cli_flag *const tables[] = {flags, distribution_flags, run_flags, NULL};
    const char **rest = cli_words(argc);
    size_t n, size = 0;
    char *text = NULL;
    mr_dataset *ds = NULL;
    int status = cli_parse(&cli_show, tables, argc, argv, rest, &n);
    if (status < 0)
        status = check_flags(&o);
    if (status < 0)
        status = cli_expression(&cli_show, &o.run, rest, n, &text, &size);
    if (status < 0) {
        cli_run_start(&o.run);
        o.run.opts.positions = o.has_save_after;
        o.run.opts.on_mismatch = o.by_name ? MR_RESTORE_BY_NAME : MR_REFUSE_MISMATCH;
        if (o.distribution.has_replicas)
            status = cli_show_replicas(&o, text, size);
        else if ((status = cli_dataset(o.run.file, text, size, &ds)) < 0) {
            cli_warn_of_cluster(&cli_show);
            status = o.spec ? cli_show_spec(&o, mr_dataset_spec(ds))
                     : o.at ? cli_show_at(&o, ds)
                            : show_elements(&o, ds);
        }
    }
    mr_dataset_unref(ds);
    mr_free(text);
    mr_free(rest);
    return status;
}

const cli_command cli_show = {
    .name = "show",
    .summary = "runs a pipeline and prints its elements as JSON lines",
    .usage = "EXPR [--limit N] [--epochs N] [OPTIONS]\n"
             "EXPR --save-after N --state FILE [OPTIONS]\n"
             "EXPR --restore FILE [--restore-by-name] [OPTIONS]\n"
             "EXPR --at I[,J...] [OPTIONS]\n"
             "EXPR --spec\n"
             "EXPR --replicas R [--workers W [--worker I]] [OPTIONS]\n"
             "    [--auto-shard POLICY | --elastic S]",
    .details = "One element per line; with --replicas, one step per line:\n"
               "  {\"step\": 0, \"replicas\": [[0, 1], [2, 3]]}",
    .run = run,
};
