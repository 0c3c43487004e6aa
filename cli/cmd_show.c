/* SPDX-License-Identifier: Apache-2.0 */
/* millrace show: runs a graph and prints its elements, one JSON value a line. */
#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/ledger_flag.h"
#include "cli/show.h"
#include "pipeline/files/atomic_file.h"
#include "pipeline/files/whole_file.h"
#include "pipeline/formats/crc32c.h"
#include "pipeline/memory/alloc.h"

/* Rows asked for at once: enough to run in blocks, few enough that the first line comes soon. */
enum { WANT = 1024 };

/* A position after the first pass has its pass in front of it:
 *
 *   offset  size  meaning
 *   0       4     "MRE1"
 *   4       4     masked CRC-32C of the next field, little-endian
 *   8       8     passes ended before it, at least 1, little-endian
 *   16            the position */
enum { PASS_BYTES = 16 };

static void put_pass(unsigned char *out, int64_t epoch)
{
    uint64_t passes = htole64((uint64_t)epoch);
    memcpy(out, "MRE1", 4);
    memcpy(out + 8, &passes, 8);
    uint32_t crc = htole32(mr_crc32c_mask(mr_crc32c(out + 8, 8)));
    memcpy(out + 4, &crc, 4);
}

/* The pass of a state file, which is removed from it; 0 if it has none, or a damaged one. */
static int64_t take_pass(unsigned char *bytes, size_t *size)
{
    unsigned char good[PASS_BYTES];
    uint64_t passes;
    if (*size < PASS_BYTES)
        return 0;
    memcpy(&passes, bytes + 8, 8);
    int64_t epoch = (int64_t)le64toh(passes);
    put_pass(good, epoch);
    if (epoch < 0 || memcmp(bytes, good, PASS_BYTES) != 0)
        return 0;
    *size -= PASS_BYTES;
    memmove(bytes, bytes + PASS_BYTES, *size);
    return epoch;
}

/* Positions begin with these: of a plain pipeline, of one distributed over replicas. */
static bool is_of_the_other_kind(const show_opts *o, const char *bytes, size_t size)
{
    return size >= 3 && memcmp(bytes, o->distribution.has_replicas ? "MRP" : "MRD", 3) == 0;
}

int cli_load_state(const show_opts *o, void **bytes, size_t *size, int64_t *epoch)
{
    mr_status st;
    void *all;
    size_t n;
    mr_file_read_opts opts = {.most = INT32_MAX, .cancel = cli_cancel()};
    if (mr_file_read(o->restore, &opts, &all, &n, &st) != MR_OK)
        return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
    *epoch = take_pass(all, &n);
    if (is_of_the_other_kind(o, all, n)) {
        mr_free(all);
        return cli_error(&cli_show, CLI_FAILED,
                         "%s: the position was saved %s --replicas; restore it in the same way",
                         o->restore, o->distribution.has_replicas ? "without" : "with");
    }
    *bytes = all;
    *size = n;
    return CLI_OK;
}

int cli_store_state(const char *path, mr_code rc, void *bytes, size_t size, int64_t epoch,
                    mr_status *st)
{
    if (rc != MR_OK)
        return cli_fail(st, CLI_FAILED);
    size_t head = epoch ? PASS_BYTES : 0;
    unsigned char *all = mr_malloc(head + size);
    if (!all)
        rc = mr_fail_memory(st, head + size, "a position");
    else {
        if (epoch)
            put_pass(all, epoch);
        memcpy(all + head, bytes, size);
        rc = mr_file_replace(path, all, head + size, st);
    }
    mr_free(all);
    mr_free(bytes);
    return rc == MR_OK ? CLI_OK : cli_fail(st, CLI_FAILED);
}

void cli_warn_of_end(const show_opts *o, int64_t left)
{
    if (left > 0)
        fprintf(stderr,
                "millrace: warning: the data end after %" PRId64 " %s, before the %" PRId64
                " of --save-after; the position saved is the end\n",
                o->save_after - left, o->distribution.has_replicas ? "steps" : "elements",
                o->save_after);
}

/* Prints up to `left` elements (negative: all) of the pass that it stands in. */
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
        status = cli_store_state(o->state, rc, bytes, size, epoch, &st);
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

int cli_show_spec(const mr_spec *spec)
{
    size_t size = mr_spec_format(spec, NULL, 0) + 1;
    char *text = mr_malloc(size);
    if (!text)
        return cli_error(&cli_show, CLI_FAILED, "out of memory for the type of an element");
    mr_spec_format(spec, text, size);
    puts(text);
    mr_free(text);
    return cli_flush(CLI_OK);
}

static int check_flags(show_opts *o)
{
    if (o->spec && (o->has_save_after || o->restore || o->has_limit || o->ledger))
        return cli_usage(&cli_show, "--spec runs nothing: leave out the other options of a run");
    if (o->has_save_after != (o->state != NULL))
        return cli_usage(&cli_show, "--save-after N and --state FILE go together");
    if (o->has_save_after && o->has_limit)
        return cli_usage(&cli_show, "--save-after and --limit do not go together");
    cli_distribution *d = &o->distribution;
    if (!d->has_replicas && (d->has_workers || d->has_worker || d->policy || d->from_function))
        return cli_usage(&cli_show,
                         "--workers, --worker, --auto-shard and --from-function need --replicas");
    return d->has_replicas ? cli_distribution_check(&cli_show, d) : -1;
}

static int run(int argc, char **argv)
{
    show_opts o = {.epochs = 1};
    cli_flag run_flags[CLI_RUN_FLAGS], distribution_flags[CLI_DISTRIBUTION_FLAGS];
    cli_run_flags(&o.run, run_flags, true);
    cli_distribution_flags(&o.distribution, distribution_flags);
    const cli_flag flags[] = {{.name = "limit",
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
                               .help = "go through the data N times"},
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
                              {.name = "spec",
                               .kind = CLI_SWITCH,
                               .value = &o.spec,
                               .help = "print what an element looks like, and run nothing"},
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
        if (o.distribution.has_replicas)
            status = cli_show_replicas(&o, text, size);
        else if ((status = cli_dataset(o.run.file, text, size, &ds)) < 0) {
            cli_warn_of_cluster(&cli_show);
            status = o.spec ? cli_show_spec(mr_dataset_spec(ds)) : show_elements(&o, ds);
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
    .usage = "EXPR [--limit N] [--epochs N]\n"
             "EXPR --save-after N --state FILE\n"
             "EXPR --restore FILE\n"
             "EXPR --spec\n"
             "--replicas R [--workers W [--worker I]] [--auto-shard POLICY] EXPR",
    .details = "One element per line; with --replicas, one step per line:\n"
               "  {\"step\": 0, \"replicas\": [[0, 1], [2, 3]]}",
    .run = run,
};
