/* SPDX-License-Identifier: Apache-2.0 */
/* Steps are those of mr_fit (remote_steps.h), in the order in which they were scheduled. */
#include "trainer/servers/coordinator.h"
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/utf8.h"
#include "trainer/loop/fit_run.h"
#include "trainer/servers/remote_steps.h"

enum { MOST_TEXT = 1 << 20 };

struct mr_coordinator {
    mr_fit_opts opts;
    mr__run run;
    bool is_open;
    int64_t step;    /* the latest scheduled */
    double **values; /* of the steps in flight, in order: step i of the run at i modulo capacity */
    size_t capacity;
    mr_status failed; /* code MR_OK: no failure */
};

/* An error is permanent, and the servers keep running for another start. */
static mr_code settle(mr_coordinator *c, mr_code rc, mr_status *st)
{
    if (rc == MR_OK || c->failed.code != MR_OK)
        return rc;
    if (st)
        c->failed = *st;
    else
        mr_fail(&c->failed, rc, "%s", mr_code_text(rc));
    mr_strategy_abandon(c->run.s, &c->failed);
    return rc;
}

static mr_code check(const mr_coordinator *c, mr_status *st)
{
    if (c->failed.code != MR_OK && st)
        *st = c->failed;
    return c->failed.code;
}

mr_code mr_coordinator_open(mr_coordinator **out, mr_strategy *s, mr_model *m, mr_loss *loss,
                            mr_optimizer *o, const mr_fit_opts *opts, mr_status *st)
{
    if (!mr__strategy_servers(s))
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "a coordinator needs the strategy parameter_server, not %s",
                       mr_strategy_name(s));
    mr_coordinator *c = mr_calloc(1, sizeof *c);
    if (!c)
        return mr_fail_memory(st, sizeof *c, "a coordinator");
    if (opts)
        c->opts = (mr_fit_opts){.seed = opts->seed,
                                .mixed_precision = opts->mixed_precision,
                                .iterator = opts->iterator};
    c->run = (mr__run){.s = s, .m = m, .loss = loss, .o = o, .opts = &c->opts};
    mr_status_init(&c->failed);
    *out = c;
    return MR_OK;
}

static void close_run(mr_coordinator *c)
{
    mr__run *x = &c->run;
    if (c->is_open)
        mr__run_close(x);
    *x = (mr__run){.s = x->s, .m = x->m, .loss = x->loss, .o = x->o, .opts = x->opts};
    c->is_open = false;
}

void mr_coordinator_close(mr_coordinator *c)
{
    if (!c)
        return;
    mr_code rc = mr_coordinator_join(c, NULL);
    (void)rc; /* callers that need the error join first */
    close_run(c);
    mr_free(c->values);
    mr_free(c);
}

/* Stores the result of the earliest step in flight. */
static mr_code collect(mr_coordinator *c, mr_status *st)
{
    const mr__step_result *s;
    double *value = c->values[c->run.head % c->capacity];
    MR_TRY(settle(c, mr__run_collect(&c->run, &s, st), st));
    if (value)
        *value = s->loss;
    return MR_OK;
}

static mr_code collect_all(mr_coordinator *c, size_t but, mr_status *st)
{
    MR_TRY(check(c, st));
    while (mr__run_under_way(&c->run) > but)
        MR_TRY(collect(c, st));
    return MR_OK;
}

mr_code mr_coordinator_join(mr_coordinator *c, mr_status *st)
{
    MR_TRY(collect_all(c, 0, st));
    return c->is_open ? settle(c, mr__run_settle(&c->run, st), st) : MR_OK;
}

mr_code mr_coordinator_create_per_worker_dataset(mr_coordinator *c, mr_input_fn fn, void *ctx,
                                                 mr_status *st)
{
    MR_TRY(mr_coordinator_join(c, st));
    close_run(c);
    c->opts.input = fn;
    c->opts.input_ctx = ctx;
    mr_code rc = mr__run_open(&c->run, NULL, st);
    c->is_open = true; /* to be closed even after a failure */
    MR_TRY(settle(c, rc, st));
    mr_free(c->values);
    c->capacity = mr__run_most(&c->run);
    c->values = mr_calloc(c->capacity, sizeof *c->values);
    return c->values ? MR_OK
                     : settle(c, mr_fail_memory(st, c->capacity, "the values of steps"), st);
}

/* Rejects text that cannot be sent, before anything is done. */
static mr_code check_text(const char *what, const char *text, mr_status *st)
{
    int32_t point;
    size_t size = text ? strlen(text) : 0, n;
    if (size > MOST_TEXT)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the %s of a step has %zu bytes; at most %d can be sent", what, size,
                       MOST_TEXT);
    for (size_t i = 0; i < size; i += n)
        if (!(n = mr__utf8_at(text + i, text + size, &point)))
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "the %s of a step must be UTF-8, but byte %zu is not", what, i);
    return MR_OK;
}

static mr_code schedule(mr_coordinator *c, const char *step, const char *ctx, double *value,
                        mr_status *st)
{
    mr__run *x = &c->run;
    mr_code rc = mr__run_take(x, st); /* a batch, if the model has to be built from it */
    if (rc == MR_END)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the data have no batch; there is no step");
    MR_TRY(rc);
    MR_TRY(mr__run_build(x, st));
    c->values[x->tail % c->capacity] = value;
    return mr__remote_submit(x, ++c->step, 1, step, ctx, st);
}

mr_code mr_coordinator_schedule(mr_coordinator *c, const char *step, const char *ctx, double *value,
                                mr_status *st)
{
    MR_TRY(check(c, st));
    MR_TRY(check_text("name", step, st));
    MR_TRY(check_text("ctx", ctx, st));
    if (!c->is_open)
        return mr_fail(
            st, MR_FAILED_PRECONDITION,
            "no dataset for the workers: call mr_coordinator_create_per_worker_dataset first");
    MR_TRY(collect_all(c, c->capacity - 1, st));
    return settle(c, schedule(c, step, ctx, value, st), st);
}

mr_code mr_coordinator_done(mr_coordinator *c, bool *done, mr_status *st)
{
    MR_TRY(check(c, st));
    if (mr__run_under_way(&c->run) > 0)
        MR_TRY(settle(c, mr__remote_look(&c->run, st), st));
    while (mr__run_under_way(&c->run) > 0 && mr__run_is_ready(&c->run))
        MR_TRY(collect(c, st));
    *done = mr__run_under_way(&c->run) == 0;
    return MR_OK;
}

mr_code mr_coordinator_fetch(mr_coordinator *c, const double *value, mr_status *st)
{
    size_t last = c->run.head; /* the step after the last one that writes to value */
    for (size_t i = c->run.head; i < c->run.tail; i++)
        if (c->values[i % c->capacity] == value)
            last = i + 1;
    return collect_all(c, c->run.tail - last, st);
}
