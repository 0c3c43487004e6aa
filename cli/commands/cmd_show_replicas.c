/* SPDX-License-Identifier: Apache-2.0 */
/* millrace show --replicas: a pipeline distributed over replicas, one step per line. */
#include <inttypes.h>

#include <millrace/pipeline/memory/alloc.h>
#include "../ledger_flag.h"
#include "show.h"

/* A zero-size batch prints as [] in each component that is not a scalar, whatever its other
 * dimensions. */
static void flatten_zero_size(mr_block *b)
{
    for (size_t c = 0; c < b->n_columns; c++)
        if (b->columns[c].rank > 0 && b->columns[c].storage != MR_RAGGED)
            b->columns[c].shape[0] = 0;
}

static mr_code print_step(const mr_dist_iterator *it, const mr_step *step,
                          const mr_iterator_opts *opts, mr_status *st)
{
    printf("{\"step\": %" PRId64 ", \"replicas\": [", step->step);
    for (size_t r = 0; r < step->n_replicas; r++) {
        if (r)
            fputs(", ", stdout);
        if (!step->has_data[r])
            flatten_zero_size(&step->replicas[r]);
        MR_TRY(
            cli_print_element(stdout, mr_dist_iterator_spec(it), &step->replicas[r], 0, opts, st));
    }
    puts("]}");
    return MR_OK;
}

static int print_steps(mr_dist_iterator *it, const show_opts *o, int64_t *left)
{
    mr_status st;
    mr_step step;
    mr_code rc = MR_OK;
    while (*left != 0) {
        if ((rc = mr_dist_iterator_next(it, NULL, &step, &st)) != MR_OK ||
            (rc = print_step(it, &step, &o->run.opts, &st)) != MR_OK)
            break;
        if (fflush(stdout) != 0)
            return cli_flush(CLI_OK);
        if (*left > 0)
            --*left;
    }
    if (rc < 0)
        return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
    return CLI_OK;
}

static int run(const show_opts *o, const mr_dist_dataset *dd, mr_ledger *ledger)
{
    mr_status st;
    mr_dist_iterator *it = NULL;
    mr_dist_iterator_opts opts = {.run = o->run.opts};
    opts.run.ledger = ledger;
    if (mr_dist_iterator_open(&it, dd, &opts, &st) != MR_OK)
        return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
    int64_t epoch = 0; /* passes ended */
    int status = CLI_OK;
    void *bytes = NULL;
    size_t size = 0;
    if (o->restore) {
        status = cli_load_state(o, &bytes, &size, &epoch);
        if (status == CLI_OK && mr_dist_iterator_restore(it, bytes, size, &st) != MR_OK) {
            mr_status_at(&st, o->restore, -1, -1);
            status = cli_fail(&st, CLI_FAILED);
        }
        mr_free(bytes);
    }
    int64_t left = o->has_save_after ? o->save_after : o->has_limit ? o->limit : -1;
    if (status == CLI_OK)
        status = print_steps(it, o, &left);
    while (status == CLI_OK && epoch + 1 < o->epochs && left != 0) {
        epoch++;
        if (mr_dist_iterator_rewind(it, &st) != MR_OK)
            status = cli_fail(&st, CLI_FAILED);
        else
            status = print_steps(it, o, &left);
    }
    if (status == CLI_OK && o->has_save_after) {
        cli_warn_of_end(o, left);
        mr_code rc = mr_dist_iterator_save(it, &bytes, &size, &st);
        status = cli_store_state(o, rc, bytes, size, epoch, &st);
    }
    mr_dist_iterator_close(it);
    return cli_flush(status);
}

static int show_steps(const show_opts *o, const mr_dist_dataset *dd)
{
    mr_ledger *ledger;
    int status = cli_ledger_open(o->ledger, true, &ledger);
    if (status < 0)
        status = cli_ledger_close(ledger, run(o, dd, ledger));
    return status;
}

int cli_show_replicas(const show_opts *o, const char *text, size_t size)
{
    mr_dist_dataset *dd = NULL;
    int status = cli_distribute(&o->distribution, &o->run, text, size, NULL, &dd);
    if (status < 0)
        status = o->spec ? cli_show_spec(o, mr_dist_dataset_spec(dd)) : show_steps(o, dd);
    mr_dist_dataset_free(dd);
    return status;
}
