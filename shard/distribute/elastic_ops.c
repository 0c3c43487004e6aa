/* SPDX-License-Identifier: Apache-2.0 */
/* The two ops that rewriting an elastic job inserts. They have no text form, since they run only
 * with a host. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/engine/iterator_internal.h"
#include "pipeline/engine/op_iterator.h"
#include "shard/distribute/dist_impl.h"
#include "shard/distribute/elastic_impl.h"

static mr__elastic_host *host_of(const mr_iter *it)
{
    return mr__iterator_internal_of(mr_iter_opts(it))->elastic;
}

/* ---- elastic_rows ---- */

struct params {
    int64_t streams;
};

static mr_code open_rows(mr_iter *it, mr_status *st)
{
    (void)st;
    mr__iter_set_goes_on(it); /* with the next step */
    return MR_OK;
}

static mr_code next_rows(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    return mr__elastic_take(host_of(it), want, out, st);
}

/* The rows are the host's. */
static mr_code save_rows(mr_iter *it, mr_state_w *w, mr_status *st)
{
    (void)it;
    (void)w;
    (void)st;
    return MR_OK;
}

static mr_code restore_rows(mr_iter *it, mr_state_r *r, mr_status *st)
{
    (void)it;
    (void)r;
    (void)st;
    return MR_OK;
}

/* The streams run in the host. */
static void needs_nothing(const mr_dataset *self, const void *p, int64_t *copies, int64_t *blocks)
{
    (void)self;
    (void)p;
    (void)blocks;
    *copies = 0;
}

static const mr_param table[] = {MR_PARAM_WITH(struct params, streams, MR_P_POSITIONAL, .min.i = 1,
                                               .max.i = INT32_MAX,
                                               .doc = "Streams that the input is cut into."),
                                 {0}};

static const mr_op elastic_rows = {
    .abi = MR_ABI_VERSION,
    .name = "elastic_rows",
    .doc = "The rows that the streams of an elastic job give to a step.",
    .params = table,
    .params_size = sizeof(struct params),
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .props = MR_OP_OPENS_INPUTS,
    .needs = needs_nothing,
    .open = open_rows,
    .next = next_rows,
    .save = save_rows,
    .restore = restore_rows,
};

mr_dataset *mr__elastic_rows(mr_dataset *rows, int64_t streams)
{
    return mr_dataset_new(&elastic_rows, &(struct params){streams}, &rows, 1);
}

/* ---- elastic_steps ---- */

static mr_code open_steps(mr_iter *it, mr_status *st)
{
    return mr__elastic_begin_pass(host_of(it), st);
}

/* Takes what is left of a step that failed. */
static void drain(mr_iter *it)
{
    mr_block rest = MR_BLOCK_EMPTY;
    mr_code rc;
    do
        rc = mr_iter_pull(it, 0, SIZE_MAX, &rest, NULL);
    while (rc == MR_OK);
    mr_block_reset(&rest);
}

/* A batch without rows, whose other dimensions are those of rows where a stream has one. */
static mr_code empty_step(mr_iter *it, mr_block *out, mr_status *st)
{
    bool any = false;
    mr_block one = MR_BLOCK_EMPTY;
    MR_TRY(mr__elastic_show_sample(host_of(it), &any, st));
    if (!any)
        return mr__zero_size_batch(it->spec, out, st);
    mr_code rc = mr_iter_pull(it, 0, 1, &one, st);
    if (rc == MR_OK)
        rc = mr__elastic_cut(out, &one, 0, 0, st);
    mr_block_reset(&one);
    return rc;
}

static mr_code next_step(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    mr__elastic_host *h = host_of(it);
    size_t rows = 0;
    (void)want;
    MR_TRY(mr__elastic_gather(h, &rows, st));
    mr_code rc = rows ? mr_iter_pull(it, 0, 1, out, st) : empty_step(it, out, st);
    if (rc == MR_CANCELLED)
        return rc;
    if (rc != MR_OK) {
        if (st)
            mr_status_prefix(st, "step %" PRId64, h->schedule.step);
        drain(it);
    }
    mr__elastic_step_over(h);
    return rc;
}

static mr_code save_steps(mr_iter *it, mr_state_w *w, mr_status *st)
{
    return mr_state_put_i64(w, host_of(it)->schedule.step, st);
}

static mr_code restore_steps(mr_iter *it, mr_state_r *r, mr_status *st)
{
    MR_TRY(mr_state_get_i64(r, &host_of(it)->schedule.step, st));
    return host_of(it)->schedule.step < 0 ? mr_state_damaged(st, "a negative number of steps")
                                          : MR_OK;
}

static const mr_op elastic_steps = {
    .abi = MR_ABI_VERSION,
    .name = "elastic_steps",
    .doc = "The steps of an elastic job, as far as the streams of this process give to them.",
    .min_inputs = 1,
    .max_inputs = 1,
    .role = MR_ROLE_BARRIER,
    .open = open_steps,
    .next = next_step,
    .save = save_steps,
    .restore = restore_steps,
};

void mr__elastic_hide_ops(mr_status *st)
{
    const char *const own[] = {elastic_steps.name, elastic_rows.name};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        char *at = strstr(st->op, own[i]);
        size_t n = strlen(own[i]);
        if (!at)
            continue;
        if (at[n] == '/')
            n++;
        else if (at > st->op) /* the last one: with the slash before it */
            at--, n++;
        memmove(at, at + n, strlen(at + n) + 1);
    }
}

mr_dataset *mr__elastic_steps(mr_dataset *batches)
{
    return mr_dataset_new(&elastic_steps, NULL, &batches, 1);
}
