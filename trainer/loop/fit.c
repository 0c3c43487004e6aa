/* SPDX-License-Identifier: Apache-2.0 */
/* The loops over steps. While the devices run one step, this thread submits the next, then pulls
 * and stages a batch; results arrive asynchronously (fit_run.h). */
#include "trainer/loop/fit.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/engine/op_iterator.h"
#include "pipeline/files/glob.h"
#include "pipeline/formats/shards/data_files.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/system/callback_code.h"
#include "pipeline/log.h"
#include "pipeline/memory/alloc.h"
#include "trainer/model/check_replicas.h"
#include "trainer/objectives/class_weights.h"
#include "trainer/loop/fit_loop.h"
#include "trainer/device/timeline_impl.h"
#include "trainer/strategy/strategy_impl.h"

static float mean_loss(const mr__fit_loop *x)
{
    return x->rows > 0 ? (float)(x->loss_sum / (double)x->rows) : 0;
}

/* For all outputs that have a loss: sums / rows. */
static mr_output_losses output_losses(const mr__fit_loop *x, const double *sums, int64_t rows)
{
    mr_output_losses l = {.n = 0};
    for (size_t k = 0; k < x->run.n_outputs && x->run.n_outputs > 1; k++) {
        if (!x->run.terms[k].loss)
            continue;
        l.names[l.n] = mr_model_output_name(x->run.m, k);
        l.values[l.n++] = rows > 0 ? (float)(sums[k] / (double)rows) : 0;
    }
    return l;
}

static mr_output_losses mean_output_losses(const mr__fit_loop *x)
{
    return output_losses(x, x->output_sums, x->rows);
}

static void add_loss(mr__fit_loop *x, const mr__step_result *s)
{
    x->loss_sum += s->loss * (double)s->rows;
    for (size_t k = 0; k < x->run.n_outputs; k++)
        x->output_sums[k] += s->losses[k] * (double)s->rows;
    x->rows += s->rows;
    x->last_loss = (float)s->loss;
    x->last_loss_step = s->step;
    x->last_outputs = output_losses(x, s->losses, 1);
}

static mr_code reset_means(mr__fit_loop *x, mr_status *st)
{
    x->loss_sum = 0;
    memset(x->output_sums, 0, sizeof x->output_sums);
    x->rows = 0;
    for (size_t i = 0; i < x->run.opts->n_metrics; i++)
        MR_TRY(mr_metric_reset(x->run.metrics[i], st));
    return MR_OK;
}

/* Finds "mse" or "val_mse" among the names; its index is *i. */
static bool find_metric(const mr_train_event *e, const char *name, size_t *i)
{
    char known[128];
    for (*i = 0; *i < e->n_metrics; (*i)++) {
        mr_metric_value_name(e->opts->metrics, *i, known, sizeof known);
        if (strcmp(name, known) == 0)
            return true;
    }
    return false;
}

/* Finds "kind_loss"; its index in the list is *i. */
static bool find_output(const mr_output_losses *l, const char *name, size_t *i)
{
    for (*i = 0; *i < l->n; (*i)++) {
        size_t n = strlen(l->names[*i]);
        if (strncmp(name, l->names[*i], n) == 0 && strcmp(name + n, "_loss") == 0)
            return true;
    }
    return false;
}

bool mr_train_value(const mr_train_event *e, const char *name, double *value)
{
    static const char val[] = "val_";
    size_t i;
    bool is_val = strncmp(name, val, sizeof val - 1) == 0;
    const char *rest = is_val ? name + sizeof val - 1 : name;
    if (is_val && !e->validation)
        return false;
    const mr_output_losses *outputs = is_val ? &e->validation->outputs : &e->outputs;
    if (strcmp(rest, "loss") == 0)
        *value = (double)(is_val ? e->validation->loss : e->loss);
    else if (find_output(outputs, rest, &i))
        *value = (double)outputs->values[i];
    else if (find_metric(e, rest, &i))
        *value = is_val ? e->validation->metrics[i] : mr_metric_result(e->metrics[i]);
    else if (strcmp(name, "learning_rate") == 0)
        *value = mr_optimizer_learning_rate(e->optimizer);
    else
        return false;
    return true;
}

bool mr_train_value_name(const mr_train_event *e, size_t i, char *name, size_t size)
{
    size_t first = 1 + e->outputs.n, n = first + e->n_metrics;
    bool is_val = e->validation && i >= n && i < 2 * n;
    size_t k = is_val ? i - n : i;
    char metric[128];
    if (i == (e->validation ? 2 * n : n))
        snprintf(name, size, "learning_rate");
    else if (k >= n)
        return false;
    else if (k >= first) {
        mr_metric_value_name(e->opts->metrics, k - first, metric, sizeof metric);
        snprintf(name, size, "%s%s", is_val ? "val_" : "", metric);
    } else
        snprintf(name, size, "%s%s%s", is_val ? "val_" : "", k ? e->outputs.names[k - 1] : "",
                 k ? "_loss" : "loss");
    return true;
}

mr_iterator *mr_train_input(const mr_train_event *e)
{
    return mr_dist_iterator_worker(e->loop->run.feed.it, 0);
}

/* When a callback is called. */
typedef enum moment {
    TRAIN_BEGIN,
    EPOCH_BEGIN,
    BATCH_BEGIN,
    BATCH_END,
    EPOCH_END,
    BATCH_RESULT,
    TRAIN_END,
    N_MOMENTS
} moment;

typedef mr_code (*callback_fn)(void *ctx, const mr_train_event *e, mr_status *st);

static callback_fn callback_at(const mr_callback *c, moment m)
{
    const callback_fn fns[N_MOMENTS] = {
        [TRAIN_BEGIN] = c->train_begin, [EPOCH_BEGIN] = c->epoch_begin,
        [BATCH_BEGIN] = c->batch_begin, [BATCH_END] = c->batch_end,
        [EPOCH_END] = c->epoch_end,     [BATCH_RESULT] = c->batch_result,
        [TRAIN_END] = c->train_end};
    return fns[m];
}

/* Callbacks that save follow the others: a checkpoint contains their state after the epoch. */
enum { SAVES_NOT, SAVES, BACKS_UP, N_TURNS };

static int turn_of(const mr_callback *c, moment m)
{
    if (m == TRAIN_BEGIN)
        return SAVES_NOT;
    return c->backs_up ? BACKS_UP : c->saves ? SAVES : SAVES_NOT;
}

static mr_code call_one(const mr_callback *c, moment m, const mr_train_event *e, mr_status *st)
{
    static const char *const names[N_MOMENTS] = {
        [TRAIN_BEGIN] = "train_begin", [EPOCH_BEGIN] = "epoch_begin",
        [BATCH_BEGIN] = "batch_begin", [BATCH_END] = "batch_end",
        [EPOCH_END] = "epoch_end",     [BATCH_RESULT] = "batch_result",
        [TRAIN_END] = "train_end"};
    mr__span *span = mr__span_begin(MR_SPAN_WORK, names[m]);
    if (span) {
        span->callback = c->name;
        span->step = e->step;
    }
    mr_status why;
    mr_status_init(&why);
    mr_code rc = callback_at(c, m)(c->ctx, e, &why);
    mr__span_end(span);
    return rc == MR_END ? rc : mr__callback_passed(rc, names[m], &why, st);
}

/* Calls every callback; one that returns MR_END stops training after all have been called. */
static mr_code call(mr__fit_loop *x, moment m, const mr_train_event *e, mr_status *st)
{
    const mr_fit_opts *o = x->run.opts;
    for (size_t k = 0; k < N_TURNS * o->n_callbacks; k++) {
        const mr_callback *c = &o->callbacks[k % o->n_callbacks];
        if (!callback_at(c, m) || turn_of(c, m) != (int)(k / o->n_callbacks))
            continue;
        mr_code rc = call_one(c, m, e, st);
        if (rc == MR_END)
            x->stop = true;
        else if (rc != MR_OK)
            return rc;
    }
    return MR_OK;
}

/* After a checkpoint was restored. */
static mr_code recall(mr__fit_loop *x, mr_status *st)
{
    mr_code rc = mr__recall(&x->recalled, x->run.opts, st);
    x->stop = x->stop || rc == MR_END;
    return rc == MR_END ? MR_OK : rc;
}

static void warn_of_nan(mr__fit_loop *x, const mr__step_result *s)
{
    if (x->saw_nan || !isnan(x->last_loss))
        return;
    x->saw_nan = true;
    mr_log(MR_LOG_WARNING,
           "the loss is NaN from step %" PRId64 " of epoch %" PRId64
           " on; lower the learning rate, or look for values in the data that are not numbers",
           s->step, s->epoch);
}

/* Processes the results of the earliest pending step. */
static mr_code take_result(mr__fit_loop *x, const mr_train_event *now, mr_status *st)
{
    const mr__step_result *s;
    mr_train_event e = *now;
    MR_TRY(mr__run_collect(&x->run, &s, st));
    add_loss(x, s);
    warn_of_nan(x, s);
    e.step = e.loss_step = s->step;
    e.epoch = s->epoch;
    e.rows = s->rows;
    e.loss = x->last_loss;
    e.outputs = x->last_outputs;
    return call(x, BATCH_RESULT, &e, st);
}

/* Processes the results that have arrived, and waits until at most n steps are pending. */
static mr_code take_results(mr__fit_loop *x, const mr_train_event *now, size_t n, mr_status *st)
{
    while (mr__run_under_way(&x->run) > n || mr__run_is_ready(&x->run))
        MR_TRY(take_result(x, now, st));
    return MR_OK;
}

/* Whether the step is the first, or the last, of its execution. */
static bool begins_execution(const mr__fit_loop *x, const mr_train_event *e)
{
    int64_t n = x->run.opts->steps_per_execution;
    return n < 2 || (e->epoch_step - 1) % n == 0;
}

static bool ends_execution(const mr__fit_loop *x, const mr_train_event *e, bool last)
{
    int64_t n = x->run.opts->steps_per_execution;
    return n < 2 || last || e->epoch_step % n == 0;
}

static bool is_saved(const mr__fit_loop *x, const mr_train_event *e)
{
    bool saved = false;
    for (size_t i = 0; i < x->run.opts->n_callbacks; i++) {
        const mr_callback *c = &x->run.opts->callbacks[i];
        saved = saved || (c->saves && c->saves(c->ctx, e));
    }
    return saved;
}

static mr_code check_form(mr__fit_loop *x, mr_dataset *ds, const char *what, mr_status *st)
{
    mr_code rc = ds ? mr__run_check_form(&x->run, ds, st) : MR_OK;
    if (rc != MR_OK)
        mr_status_prefix(st, "%s", what);
    return rc;
}

/* The files of initial weights may differ between machines. */
static mr_code check_weights(const mr__run *x, mr_status *st)
{
    return mr_strategy_num_workers(x->s) > 1 && mr_model_is_built(x->m)
               ? mr__check_replicas(x->m, 0, st)
               : MR_OK;
}

/* Before the first step: checks data that are read later, so that their errors do not end
 * training. */
static mr_code check_start(mr__fit_loop *x, mr_status *st)
{
    if (x->checked)
        return MR_OK;
    x->checked = true;
    MR_TRY(mr__run_build(&x->run, st));
    MR_TRY(check_weights(&x->run, st));
    MR_TRY(check_form(x, x->run.opts->validation, "validation", st));
    return check_form(x, x->run.opts->evaluation, "evaluation", st);
}

/* Submits the batch taken. fetches: another follows in this epoch. */
static mr_code submit(mr__fit_loop *x, mr_train_event *e, bool fetches, mr_status *st)
{
    mr_code rc = check_start(x, st);
    if (rc == MR_OK)
        rc = mr__run_submit(&x->run, e->step, e->epoch, fetches, st);
    if (rc == MR_OK)
        return MR_OK;
    mr_status first; /* unless an earlier step had failed */
    mr_status_init(&first);
    mr_code before = take_results(x, e, 0, &first);
    if (before != MR_OK && st)
        *st = first;
    return before == MR_OK ? rc : before;
}

static void set_times(const mr__fit_loop *x, mr_train_event *e)
{
    e->seconds = mr_iter_now() - x->began;
    e->waited_seconds = x->run.waited;
}

static mr_code train_step(mr__fit_loop *x, mr_train_event *e, mr_status *st)
{
    const mr_fit_opts *o = x->run.opts;
    x->interrupted = x->run.feed.stopping;
    bool last = ++e->step == o->steps || x->interrupted;
    bool last_of_epoch = ++e->epoch_step == o->steps_per_epoch;
    mr__timeline_here.step = e->step;
    e->loss = 0;
    e->outputs = (mr_output_losses){.n = 0};
    e->loss_step = 0;
    e->rows = (int64_t)mr__run_rows(&x->run);
    e->stopping = x->interrupted;
    if (begins_execution(x, e))
        MR_TRY(call(x, BATCH_BEGIN, e, st));
    bool ends = ends_execution(x, e, last || last_of_epoch);
    x->saving = ends && is_saved(x, e);
    MR_TRY(submit(x, e, !last && !last_of_epoch && !x->saving, st));
    x->stop = x->stop || last;
    bool waits = (x->waits && ends) || o->check_replicas || x->saving;
    MR_TRY(take_results(x, e, waits ? 0 : mr__run_most(&x->run), st));
    if (x->saving)
        MR_TRY(mr__run_settle(&x->run, st));
    if (o->check_replicas)
        MR_TRY(mr__check_replicas(x->run.m, e->step, st));
    e->loss = x->last_loss;
    e->outputs = x->last_outputs;
    e->loss_step = x->last_loss_step;
    set_times(x, e);
    return ends ? call(x, BATCH_END, e, st) : MR_OK;
}

/* Ends the other workers' wait for one that failed. */
static void abandon(mr_strategy *s, mr_code rc, const mr_status *st)
{
    mr_status why;
    if (rc == MR_OK)
        return;
    mr_fail(&why, rc, "%s", mr_code_text(rc));
    mr_strategy_abandon(s, st ? st : &why);
}

/* Adds up the results that have arrived; waits until at most n steps are pending. */
static mr_code add_losses(mr__fit_loop *x, size_t n, mr_status *st)
{
    while (mr__run_under_way(&x->run) > n || mr__run_is_ready(&x->run)) {
        const mr__step_result *s;
        MR_TRY(mr__run_collect(&x->run, &s, st));
        add_loss(x, s);
    }
    return MR_OK;
}

static mr_code evaluate_steps(mr__fit_loop *x, mr_fit_result *result, mr_status *st)
{
    mr_code rc;
    if (!x->checked)
        MR_TRY(check_weights(&x->run, st));
    int64_t limit = x->run.opts->steps, steps = 0;
    while ((limit == 0 || steps < limit) && (rc = mr__run_take(&x->run, st)) != MR_END) {
        MR_TRY(rc);
        steps++;
        MR_TRY(mr__run_submit(&x->run, steps, 1, steps != limit, st));
        MR_TRY(add_losses(x, MR__RUN_SLOTS - 1, st));
    }
    MR_TRY(add_losses(x, 0, st));
    if (steps == 0)
        return mr_fail(st, MR_FAILED_PRECONDITION, "the data have no batch; nothing to evaluate");
    *result = (mr_fit_result){.steps = steps,
                              .epochs = 1,
                              .rows = x->rows,
                              .loss = mean_loss(x),
                              .outputs = mean_output_losses(x)};
    for (size_t i = 0; i < x->run.opts->n_metrics; i++)
        result->metrics[i] = mr_metric_result(x->run.metrics[i]);
    return MR_OK;
}

/* checked: the weights are the same on all workers. */
static mr_code evaluate(mr__fit_loop *x, mr_dataset *ds, mr_fit_result *result, mr_status *st)
{
    mr_code rc = mr__run_open(&x->run, ds, st);
    if (rc == MR_OK)
        rc = evaluate_steps(x, result, st);
    abandon(x->run.s, rc, st);
    mr__run_close(&x->run);
    return rc;
}

static mr_code validate(mr__fit_loop *x, mr_fit_result *made, mr_status *st)
{
    const mr_fit_opts *o = x->run.opts;
    mr_iterator_opts run = o->iterator ? *o->iterator : (mr_iterator_opts){0};
    run.ledger = NULL;   /* it belongs to the training data, */
    run.trace_spans = 0; /* like a trace */
    mr_fit_opts how = {.steps = o->validation_steps,
                       .metrics = o->metrics,
                       .n_metrics = o->n_metrics,
                       .seed = o->seed,
                       .iterator = o->iterator ? &run : NULL,
                       .has_auto_shard = o->has_auto_shard,
                       .auto_shard = o->auto_shard,
                       .staging_depth = o->staging_depth,
                       .no_cuda_graph = o->no_cuda_graph};
    mr__fit_loop v = {.run = {.s = x->run.s, .m = x->run.m, .loss = x->run.loss, .opts = &how},
                      .checked = true};
    mr__span *span = mr__span_begin(MR_SPAN_WORK, "validation");
    mr__timeline_place was = mr__timeline_enter((mr__timeline_place){.t = NULL});
    mr_code rc = evaluate(&v, o->validation, made, st);
    mr__timeline_enter(was);
    mr__span_end(span);
    if (rc != MR_OK)
        mr_status_prefix(st, "validation");
    return rc;
}

static mr_code remember_epoch(mr__fit_loop *x, const mr_train_event *e, mr_status *st)
{
    mr_history *h = x->run.opts->history;
    char name[128];
    double v;
    if (!h)
        return MR_OK;
    MR_TRY(mr_history_add_epoch(h, e->epoch, st));
    for (size_t i = 0; mr_train_value_name(e, i, name, sizeof name); i++)
        if (mr_train_value(e, name, &v))
            MR_TRY(mr_history_add(h, name, v, st));
    return MR_OK;
}

static mr_code end_epoch(mr__fit_loop *x, mr_train_event *e, mr_status *st)
{
    mr_fit_result validation;
    x->between = true;
    MR_TRY(mr__run_settle(&x->run, st));
    e->loss = mean_loss(x);
    e->outputs = mean_output_losses(x);
    e->loss_step = 0;
    e->rows = x->rows;
    if (x->run.opts->validation) {
        MR_TRY(validate(x, &validation, st));
        e->validation = &validation;
    }
    set_times(x, e);
    mr_code rc = remember_epoch(x, e, st);
    if (rc == MR_OK)
        rc = call(x, EPOCH_END, e, st);
    e->validation = NULL;
    return rc;
}

/* Takes the next batch; MR_END: the epoch is over. */
static mr_code take(mr__fit_loop *x, const mr_train_event *e, mr_status *st)
{
    const mr_fit_opts *o = x->run.opts;
    if (x->stop || (o->steps_per_epoch && e->epoch_step >= o->steps_per_epoch))
        return MR_END;
    mr_code rc = mr__run_take(&x->run, st);
    if (rc == MR_END) {
        x->pass_over = true;
        if (o->steps_per_epoch) {
            mr_log(MR_LOG_WARNING,
                   "the data ran out at step %" PRId64 " of epoch %" PRId64
                   ", which should have %" PRId64 "; training ends: add repeat() to the data",
                   e->epoch_step, e->epoch, o->steps_per_epoch);
            x->stop = true;
        }
    }
    if (rc == MR_OK || rc == MR_END)
        return rc;
    mr_status first; /* reported after the batches before it */
    mr_status_init(&first);
    mr_code earlier = take_results(x, e, 0, &first);
    if (earlier != MR_OK && st)
        *st = first;
    return earlier == MR_OK ? rc : earlier;
}

static mr_code begin_epoch(mr__fit_loop *x, mr_train_event *e, mr_status *st)
{
    x->between = false;
    if (x->resumed)
        x->resumed = false;
    else {
        if (x->pass_over)
            MR_TRY(mr__run_rewind(&x->run, st));
        x->pass_over = false;
        e->epoch++;
        e->epoch_step = 0;
        MR_TRY(reset_means(x, st));
    }
    e->loss = 0;
    e->outputs = (mr_output_losses){.n = 0};
    e->loss_step = 0;
    e->rows = 0;
    return call(x, EPOCH_BEGIN, e, st);
}

/* One pass over the data, or steps_per_epoch, or the rest of it up to the limit on steps. An epoch
 * that is interrupted is not ended, even after its last step: the resumed run ends it. */
static mr_code train_epoch(mr__fit_loop *x, mr_train_event *e, mr_status *st)
{
    mr_code rc;
    MR_TRY(begin_epoch(x, e, st));
    while ((rc = take(x, e, st)) == MR_OK)
        MR_TRY(train_step(x, e, st));
    if (rc != MR_END)
        return rc;
    MR_TRY(take_results(x, e, 0, st));
    if (!x->run.stepper->reads_apart && x->run.opts->steps_per_epoch &&
        x->run.opts->steps_per_epoch == e->epoch_step && x->run.steps_in_pass == e->epoch_step)
        x->pass_over = true;
    if (x->rows == 0 && !x->stop)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "epoch %" PRId64 " of the data has no %s; nothing to train on", e->epoch,
                       e->epoch_step == 0 ? "batch" : "example, only empty batches");
    if (x->interrupted) {
        x->saving = true; /* train_end may save */
        return mr__run_settle(&x->run, st);
    }
    return x->rows > 0 ? end_epoch(x, e, st) : MR_OK;
}

static mr_code train_epochs(mr__fit_loop *x, mr_train_event *e, mr_fit_result *result,
                            mr_status *st)
{
    const mr_fit_opts *o = x->run.opts;
    int64_t epochs = o->epochs > 0 ? o->epochs : o->steps > 0 ? INT64_MAX : 1;
    MR_TRY(call(x, TRAIN_BEGIN, e, st));
    MR_TRY(recall(x, st));
    if (x->run.records)
        MR_TRY(mr__step_records_begin(x->run.records, o->ledger, x->job, e->step,
                                      mr__feed_is_of_one_batch(&x->run.feed), st));
    int64_t steps = e->step, before = e->epoch - x->resumed;
    mr__timeline_here.step = steps;
    x->stop = x->stop || (o->steps > 0 && e->step >= o->steps);
    while (x->resumed || (!x->stop && e->epoch < epochs)) {
        MR_TRY(train_epoch(x, e, st));
        result->rows += x->rows - x->resumed_rows;
        x->resumed_rows = 0;
    }
    set_times(x, e);
    *result = (mr_fit_result){.steps = e->step - steps,
                              .epochs = e->epoch - before - x->interrupted,
                              .rows = result->rows,
                              .loss = mean_loss(x),
                              .outputs = mean_output_losses(x),
                              .seconds = e->seconds,
                              .waited_seconds = e->waited_seconds,
                              .stopped = x->interrupted};
    for (size_t i = 0; i < o->n_metrics; i++)
        result->metrics[i] = mr_metric_result(x->run.metrics[i]);
    return MR_OK;
}

static mr_code train(mr__fit_loop *x, mr_fit_result *result, mr_status *st)
{
    const mr_fit_opts *o = x->run.opts;
    mr_train_event e = {.n_metrics = o->n_metrics,
                        .metrics = x->run.metrics,
                        .model = x->run.m,
                        .optimizer = x->run.o,
                        .loss_function = x->run.loss,
                        .strategy = x->run.s,
                        .opts = o,
                        .loop = x};
    mr_status last;
    mr_status_init(&last);
    x->now = &e;
    x->began = mr_iter_now();
    for (size_t i = 0; i < o->n_callbacks; i++)
        x->waits = x->waits || o->callbacks[i].wants_loss;
    mr_code rc = train_epochs(x, &e, result, st);
    e.error = rc;
    e.stopping = x->interrupted;
    mr_code end = call(x, TRAIN_END, &e, rc == MR_OK ? st : &last);
    return rc == MR_OK ? end : rc; /* the error that ended training is reported */
}

/* The timeline begins with training, and includes the work of this thread from here on. */
static mr_code train_timed(mr__fit_loop *x, mr_fit_result *result, mr_status *st)
{
    mr_timeline *t = x->run.opts->timeline;
    if (t)
        mr__timeline_set_first(t, mr_strategy_first_replica_id(x->run.s));
    mr__timeline_place was = mr__timeline_enter((mr__timeline_place){.t = t, .row = MR_ROW_LOOP});
    mr_code rc = train(x, result, st);
    mr__timeline_enter(was);
    return rc;
}

/* Rejects training that would never end an epoch. */
static mr_code check_end(const mr__fit_loop *x, mr_status *st)
{
    const mr_fit_opts *o = x->run.opts;
    if (x->run.stepper->reads_apart && !mr__run_has_remote_streams(&x->run) && !o->steps &&
        !o->steps_per_epoch)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "each worker of parameter servers reads the data by itself, so epochs have "
                       "no common end: set the number of steps per epoch (steps_per_epoch, "
                       "--steps-per-epoch) or in total (steps, --steps), or make the job elastic "
                       "(elastic_streams, --elastic)");
    if (x->run.steps_in_pass == MR_INFINITE && !o->steps && !o->steps_per_epoch)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the data never end, so no epoch does: set the number of steps per epoch "
                       "(steps_per_epoch, --steps-per-epoch) or in total (steps, --steps)");
    if (o->validation && !o->validation_steps &&
        mr_dataset_cardinality(o->validation) == MR_INFINITE)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the validation data never end: add take(n) after batch");
    if (o->evaluation && mr_dataset_cardinality(o->evaluation) == MR_INFINITE)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the evaluation data never end: add take(n) after batch");
    return MR_OK;
}

/* An epoch is lost if its validation cannot begin: before the first step, the known properties of
 * its examples must match those of training. */
static mr_code check_validation(mr_dataset *ds, mr_dataset *validation, mr_status *st)
{
    const mr_spec *a = mr_dataset_spec(ds), *b = mr_dataset_spec(validation);
    size_t n = mr_spec_n_leaves(b);
    if (n < 2)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "validation: the data have %zu component%s; expected (features, labels)", n,
                       n == 1 ? "" : "s");
    for (size_t i = 0; i < 2 && i < mr_spec_n_leaves(a); i++) {
        const mr_leaf *x = mr_spec_leaf(a, i), *y = mr_spec_leaf(b, i);
        if (x->rank >= 0 && y->rank >= 0 && x->rank != y->rank)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "validation: component %zu has %d axes where that of the training data "
                           "has %d",
                           i, y->rank, x->rank);
        for (int d = 1; d < x->rank && d < y->rank; d++)
            if (x->shape[d] >= 0 && y->shape[d] >= 0 && x->shape[d] != y->shape[d])
                return mr_fail(st, MR_INVALID_ARGUMENT,
                               "validation: axis %d of component %zu is %" PRId64
                               " where that of the training data is %" PRId64,
                               d, i, y->shape[d], x->shape[d]);
    }
    return MR_OK;
}

static mr_code check_given(const void *part, const char *name, mr_status *st)
{
    return part ? MR_OK : mr_fail(st, MR_INVALID_ARGUMENT, "the %s is NULL", name);
}

static mr_code check_opts(const mr_fit_opts *o, mr_status *st)
{
    if (o->epochs < 0 || o->steps < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "epochs and steps must be positive, found %" PRId64 " and %" PRId64,
                       o->epochs, o->steps);
    if (o->steps_per_epoch < 0 || o->validation_steps < 0 || o->steps_per_execution < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT, "numbers of steps must be positive");
    return MR_OK;
}

mr_code mr_fit(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss, mr_optimizer *o,
               const mr_fit_opts *opts, mr_fit_result *result, mr_status *st)
{
    static const mr_fit_opts none;
    mr__fit_loop x = {.run = {.s = s, .m = m, .loss = loss, .o = o, .opts = opts ? opts : &none}};
    mr_fit_result made = {0};
    mr_status ignored;
    mr_dataset *own, *weighed = NULL;
    MR_TRY(check_given(s, "strategy", st));
    MR_TRY(check_given(m, "model", st));
    MR_TRY(check_given(loss, "loss", st));
    MR_TRY(check_given(o, "optimizer", st));
    MR_TRY(check_opts(x.run.opts, st));
    MR_TRY(mr__strategy_ready(s, st));
    if (x.run.opts->n_class_weights > 0 && mr_model_n_outputs(m) > 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "class weights are for models with one output; use sample weights");
    MR_TRY(mr__fit_data(s, ds, x.run.opts, &own, st));
    mr_code rc = MR_OK;
    if (x.run.opts->validation)
        rc = check_validation(own, x.run.opts->validation, st);
    if (rc == MR_OK && ds)
        rc = mr__weigh_classes(ds, x.run.opts->class_weights, x.run.opts->n_class_weights, &weighed,
                               st);
    if (rc == MR_OK)
        rc = mr__run_open(&x.run, weighed, st);
    mr_dataset_unref(weighed);
    mr_dataset_unref(own);
    if (rc == MR_OK)
        rc = check_end(&x, st);
    if (rc == MR_OK)
        rc = train_timed(&x, &made, st);
    abandon(s, rc, st);
    if (made.stopped)
        mr__strategy_pause(s);
    mr__run_close(&x.run);
    mr_code closed = mr__step_records_close(x.run.records, rc == MR_OK ? st : &ignored);
    rc = rc == MR_OK ? closed : rc;
    mr__recalled_drop(&x.recalled);
    if (rc == MR_OK && result)
        *result = made;
    return rc;
}

mr_code mr_evaluate(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss,
                    const mr_fit_opts *opts, mr_fit_result *result, mr_status *st)
{
    static const mr_fit_opts none;
    mr__fit_loop x = {.run = {.s = s, .m = m, .loss = loss, .opts = opts ? opts : &none}};
    mr_fit_result made = {0};
    MR_TRY(check_given(s, "strategy", st));
    MR_TRY(check_given(m, "model", st));
    MR_TRY(check_given(loss, "loss", st));
    MR_TRY(check_opts(x.run.opts, st));
    MR_TRY(mr__strategy_ready(s, st));
    mr_code rc = evaluate(&x, ds, &made, st);
    if (rc == MR_OK && result)
        *result = made;
    return rc;
}

typedef struct receiver {
    mr_code (*fn)(void *ctx, const mr_array *predictions, mr_status *st);
    void *ctx;
} receiver;

/* Passes on the predictions that have arrived; waits until at most n steps are pending. */
static mr_code give_predictions(mr__run *x, size_t n, const receiver *to, mr_status *st)
{
    while (mr__run_under_way(x) > n || mr__run_is_ready(x)) {
        const mr__step_result *s;
        mr_array p[MR_MAX_OUTPUTS];
        size_t k = 0;
        MR_TRY(mr__run_collect(x, &s, st));
        mr_code rc = MR_OK;
        while (k < x->n_outputs && rc == MR_OK)
            if ((rc = mr__run_predictions(x, s, k, &p[k], st)) == MR_OK)
                k++;
        if (rc == MR_OK && mr_strategy_worker(x->s) == 0)
            rc = to->fn(to->ctx, p, st);
        while (k > 0)
            mr_array_reset(&p[--k]);
        MR_TRY(rc);
    }
    return MR_OK;
}

static mr_code predict(mr__run *x, const receiver *to, mr_status *st)
{
    mr_code rc;
    MR_TRY(check_weights(x, st));
    int64_t limit = x->opts->steps, steps = 0;
    while ((limit == 0 || steps < limit) && (rc = mr__run_take(x, st)) != MR_END) {
        if (rc != MR_OK) { /* reported after the batches before it */
            mr_status first;
            mr_status_init(&first);
            mr_code earlier = give_predictions(x, 0, to, &first);
            if (earlier != MR_OK && st)
                *st = first;
            return earlier == MR_OK ? rc : earlier;
        }
        steps++;
        MR_TRY(mr__run_submit(x, steps, 1, steps != limit, st));
        MR_TRY(give_predictions(x, MR__RUN_SLOTS - 1, to, st));
    }
    return give_predictions(x, 0, to, st);
}

mr_code mr_predict(mr_strategy *s, mr_model *m, mr_dataset *ds,
                   mr_code (*fn)(void *ctx, const mr_array *predictions, mr_status *st), void *ctx,
                   const mr_fit_opts *opts, mr_status *st)
{
    static const mr_fit_opts none;
    mr_fit_opts all = opts ? *opts : none;
    /* Every worker reads all data and predicts its slices of each batch, whose order is known. */
    all.has_auto_shard = true;
    all.auto_shard = MR_SHARD_DATA;
    mr__run x = {.s = s, .m = m, .opts = &all};
    MR_TRY(check_given(s, "strategy", st));
    MR_TRY(check_given(m, "model", st));
    MR_TRY(check_opts(x.opts, st));
    MR_TRY(mr__strategy_ready(s, st));
    mr_code rc = mr__run_open(&x, ds, st);
    if (rc == MR_OK && mr_dist_dataset_elastic_streams(x.feed.dd))
        rc =
            mr_fail(st, MR_FAILED_PRECONDITION,
                    "predictions are in the order of the data, which an elastic job has in another "
                    "one; leave out elastic_streams");
    if (rc == MR_OK)
        rc = predict(&x, &(receiver){fn, ctx}, st);
    abandon(s, rc, st);
    mr__run_close(&x);
    return rc;
}

static mr_code look_up(void *ctx, const char *name, mr_status *st)
{
    char **paths;
    size_t n;
    (void)ctx;
    if (strcmp(name, "-") == 0) /* standard input */
        return MR_OK;
    MR_TRY(mr_data_files(&name, 1, &paths, &n, st));
    mr_glob_free(paths, n);
    return MR_OK;
}

mr_code mr_check_data(mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts, mr_status *st)
{
    mr__feed feed = {0};
    mr_dataset *own;
    MR_TRY(mr__fit_data(s, ds, opts, &own, st));
    mr_code rc = mr_dataset_check(own, st);
    if (rc == MR_OK)
        rc = mr_dataset_file_names(own, look_up, NULL, st);
    if (rc == MR_OK && mr_dataset_cardinality(own) == 0)
        rc = mr_fail(st, MR_FAILED_PRECONDITION, "the data are empty: there is no batch");
    if (rc == MR_OK)
        rc = mr__feed_open(&feed, s, ds, opts, false, st);
    mr__feed_close(&feed);
    mr_dataset_unref(own);
    return rc;
}
