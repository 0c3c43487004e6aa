/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/fit.h"
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/log.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/device_doubles.h"

static mr_status st;

enum { ROWS = 53, WIDTH = 6, CLASSES = 3, MAX_STEPS = 64 };
static float features[ROWS * WIDTH];
static int64_t labels[ROWS];

/* Rows of three classes that a line can tell apart. */
static batches three_classes(size_t batch)
{
    test_fill(features, ROWS * WIDTH, 77);
    for (size_t i = 0; i < ROWS; i++) {
        labels[i] = (int64_t)(i % CLASSES);
        features[i * WIDTH + (size_t)labels[i]] += 2;
    }
    return (batches){
        .rows = ROWS,
        .batch = batch,
        .n_columns = 2,
        .columns = {{.dtype = MR_FLOAT32,
                     .rows = 1,
                     .rank = 3,
                     .shape = {ROWS, 2, WIDTH / 2},
                     .data = features},
                    {.dtype = MR_INT64, .rows = 1, .rank = 1, .shape = {ROWS}, .data = labels}}};
}

typedef struct trainer {
    mr_strategy *s;
    mr_model *m;
    mr_loss *l;
    mr_optimizer *o;
    mr_dataset *ds;
} trainer;

static const char model_text[] = "flatten().dense(8, activation=\"relu\", kernel_regularizer="
                                 "l2(0.001)).dropout(0.2).dense(3)";

static trainer open_trainer_on(const char *kind, size_t replicas, const char *model,
                               const batches *b)
{
    trainer t = {0};
    char names[4][32];
    const char *devices[4];
    for (size_t i = 0; i < replicas; i++) {
        snprintf(names[i], sizeof names[i], "%s:%zu", kind, i);
        devices[i] = names[i];
    }
    mr_strategy_opts o = {.devices = devices, .n_devices = replicas};
    mr_ok(mr_strategy_mirrored(&t.s, &o, &st), &st);
    mr_ok(mr_model_parse(&t.m, model, &st), &st);
    mr_ok(mr_loss_parse(&t.l, "sparse_categorical_crossentropy(from_logits=true)", &st), &st);
    mr_ok(mr_optimizer_parse(&t.o, "adam(learning_rate=0.02)", &st), &st);
    t.ds = test_batches(b);
    return t;
}

static trainer open_trainer(size_t replicas, const char *model, const batches *b)
{
    return open_trainer_on("cpu", replicas, model, b);
}

static void close_trainer(trainer *t)
{
    mr_dataset_unref(t->ds);
    mr_optimizer_free(t->o);
    mr_loss_free(t->l);
    mr_model_free(t->m);
    mr_strategy_free(t->s);
}

typedef struct record {
    float loss[MAX_STEPS];
    int64_t n;
    char calls[1024];
    double set_rate_at_3;
    int64_t stop_at;
    mr_code error; /* that training ended with */
} record;

static void add(record *r, const char *what)
{
    strncat(r->calls, what, sizeof r->calls - strlen(r->calls) - 1);
}

static mr_code on_train_begin(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)e;
    (void)status;
    add(ctx, "T");
    return MR_OK;
}

static mr_code on_epoch_begin(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)e;
    (void)status;
    add(ctx, "E");
    return MR_OK;
}

static mr_code on_batch_begin(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)e;
    (void)status;
    add(ctx, "(");
    return MR_OK;
}

static mr_code on_batch_end(void *ctx, const mr_train_event *e, mr_status *status)
{
    record *r = ctx;
    (void)status;
    add(r, ")");
    r->loss[r->n++] = e->loss;
    if (r->set_rate_at_3 >= 0 && e->step == 3)
        mr_optimizer_set_learning_rate(e->optimizer, r->set_rate_at_3);
    return r->stop_at == e->step ? MR_END : MR_OK;
}

static mr_code on_epoch_end(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)status;
    add(ctx, "e");
    return e->rows > 0 && e->loss > 0 ? MR_OK : mr_fail(status, MR_INTERNAL, "no rows");
}

static mr_code on_train_end(void *ctx, const mr_train_event *e, mr_status *status)
{
    record *r = ctx;
    (void)status;
    add(r, "t");
    r->error = e->error;
    return MR_OK;
}

static mr_callback recorder(record *r)
{
    r->set_rate_at_3 = -1;
    return (mr_callback){.ctx = r,
                         .train_begin = on_train_begin,
                         .epoch_begin = on_epoch_begin,
                         .batch_begin = on_batch_begin,
                         .batch_end = on_batch_end,
                         .epoch_end = on_epoch_end,
                         .train_end = on_train_end,
                         .wants_loss = true};
}

static void run_fit(size_t replicas, const batches *b, record *r, mr_fit_result *result)
{
    trainer t = open_trainer(replicas, model_text, b);
    mr_callback c = recorder(r);
    mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o,
                 &(mr_fit_opts){.epochs = 3,
                                .seed = 5,
                                .callbacks = &c,
                                .n_callbacks = 1,
                                .metrics = (const char *[]){"accuracy"},
                                .n_metrics = 1},
                 result, &st),
          &st);
    for (size_t v = 0; v < mr_model_n_variables(t.m); v++)
        for (size_t i = 1; i < replicas; i++)
            mr_eq_mem(mr_variable_copy(mr_model_variable(t.m, v), 0),
                      mr_variable_copy(mr_model_variable(t.m, v), i),
                      mr_variable_size(mr_model_variable(t.m, v)) * sizeof(float));
    close_trainer(&t);
}

MR_TEST(any_number_of_replicas_gives_the_same_losses)
{
    /* 53 = 4 * 13 + 1 = 6 * 8 + 5: last batches with empty and with short slices. */
    for (size_t batch = 8; batch <= 13; batch += 5) {
        batches b = three_classes(batch);
        record one = {0};
        mr_fit_result want;
        run_fit(1, &b, &one, &want);
        mr_eq_i64(want.steps, 3 * (int64_t)((ROWS + batch - 1) / batch));
        mr_eq_i64(want.epochs, 3);
        mr_eq_i64(want.rows, 3 * ROWS);
        mr_check(want.loss < one.loss[0]); /* it learns */
        for (size_t n = 2; n <= 4; n++)
            for (int copies = 0; copies < 2; copies++) {
                record other = {0};
                mr_fit_result got;
                mr_test_context("batch %zu, %zu replicas, %s", batch, n,
                                copies ? "copied" : "placed");
                b.never_place = copies;
                run_fit(n, &b, &other, &got);
                mr_eq_i64(other.n, one.n);
                for (int64_t i = 0; i < one.n; i++)
                    mr_eq_f64(other.loss[i], one.loss[i], 3e-6 * (1 + one.loss[i]));
                mr_eq_f64(got.loss, want.loss, 1e-5);
                mr_eq_f64(got.metrics[0], want.metrics[0], 1e-12);
            }
    }
}

MR_TEST(callbacks_come_in_order_and_can_stop)
{
    batches b = three_classes(32); /* two steps an epoch */
    trainer t = open_trainer(2, model_text, &b);
    record r = {0};
    mr_callback c = recorder(&r);
    mr_fit_opts o = {.epochs = 2, .callbacks = &c, .n_callbacks = 1};
    mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &o, NULL, &st), &st);
    mr_eq_str(r.calls, "TE()()eE()()et");
    r = (record){.set_rate_at_3 = -1, .stop_at = 3};
    o.epochs = 9;
    mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &o, NULL, &st), &st);
    mr_eq_str(r.calls, "TE()()eE()et");
    close_trainer(&t);
}

static mr_code cancel_at_once(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)e;
    (void)status;
    mr_cancel_trigger(ctx);
    return MR_OK;
}

MR_TEST(a_cancelled_fit_ends)
{
    batches b = three_classes(8);
    trainer t = open_trainer(2, model_text, &b);
    mr_cancel *cancel = NULL;
    mr_ok(mr_cancel_new(NULL, &cancel, &st), &st);
    mr_callback c = {.ctx = cancel, .epoch_begin = cancel_at_once};
    mr_iterator_opts run = {.cancel = cancel};
    mr_fit_opts o = {.epochs = 9, .callbacks = &c, .n_callbacks = 1, .iterator = &run};
    mr_code_is(mr_fit(t.s, t.m, t.ds, t.l, t.o, &o, NULL, &st), MR_CANCELLED, &st);
    mr_cancel_unref(cancel);
    close_trainer(&t);
}

MR_TEST(a_learning_rate_of_zero_set_by_a_callback_freezes_the_weights)
{
    batches b = three_classes(ROWS);
    trainer t = open_trainer(2, "flatten().dense(3)", &b);
    record r = {0};
    mr_callback c = recorder(&r);
    r.set_rate_at_3 = 0;
    mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o,
                 &(mr_fit_opts){.epochs = 6, .callbacks = &c, .n_callbacks = 1}, NULL, &st),
          &st);
    mr_check(r.loss[2] < r.loss[1] && r.loss[3] < r.loss[2]);
    mr_eq_f64(r.loss[4], r.loss[3], 0);
    mr_eq_f64(r.loss[5], r.loss[3], 0);
    close_trainer(&t);
}

MR_TEST(steps_and_epochs_end_training_whichever_comes_first)
{
    static const struct {
        int64_t epochs, steps, want_steps, want_epochs;
    } cases[] = {{0, 0, 2, 1}, {3, 0, 6, 3}, {0, 5, 5, 3},
                 {0, 4, 4, 2}, {2, 9, 4, 2}, {3, 3, 3, 2}};
    batches b = three_classes(32);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_fit_result got;
        trainer t = open_trainer(2, model_text, &b);
        mr_test_context("epochs %d steps %d", (int)cases[i].epochs, (int)cases[i].steps);
        mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o,
                     &(mr_fit_opts){.epochs = cases[i].epochs, .steps = cases[i].steps}, &got, &st),
              &st);
        mr_eq_i64(got.steps, cases[i].want_steps);
        mr_eq_i64(got.epochs, cases[i].want_epochs);
        close_trainer(&t);
    }
}

MR_TEST(an_error_in_the_data_comes_behind_the_batches_before_it)
{
    batches b = three_classes(10);
    b.fail_at = 4;
    trainer t = open_trainer(2, model_text, &b);
    record r = {0};
    mr_callback c = recorder(&r);
    mr_code_is(mr_fit(t.s, t.m, t.ds, t.l, t.o, &(mr_fit_opts){.callbacks = &c, .n_callbacks = 1},
                      NULL, &st),
               MR_DATA_LOSS, &st);
    mr_has_str(st.message, "batch 4 is broken");
    mr_eq_str(r.calls, "TE()()()t");        /* training ends for callbacks too, */
    mr_code_is(r.error, MR_DATA_LOSS, &st); /* which learn of what */
    close_trainer(&t);
}

MR_TEST(evaluation_is_the_mean_over_rows_and_predictions_keep_their_order)
{
    batches b = three_classes(10);
    float want_loss = 0;
    double want_accuracy = 0;
    for (size_t n = 1; n <= 4; n++) {
        mr_fit_result got;
        trainer t = open_trainer(n, model_text, &b);
        mr_test_context("%zu replicas", n);
        mr_ok(mr_evaluate(t.s, t.m, t.ds, t.l,
                          &(mr_fit_opts){.metrics = (const char *[]){"accuracy"}, .n_metrics = 1},
                          &got, &st),
              &st);
        mr_eq_i64(got.rows, ROWS);
        if (n == 1) {
            want_loss = got.loss;
            want_accuracy = got.metrics[0];
        }
        mr_eq_f64(got.loss, want_loss, 1e-6);
        mr_eq_f64(got.metrics[0], want_accuracy, 1e-12);
        close_trainer(&t);
    }
}

typedef struct rows_seen {
    size_t n;
    float first[ROWS];
} rows_seen;

static mr_code keep_first(void *ctx, const mr_array *p, mr_status *status)
{
    rows_seen *x = ctx;
    (void)status;
    for (int64_t i = 0; i < p->shape[0]; i++)
        x->first[x->n++] = ((const float *)p->data)[i * p->shape[1] * p->shape[2]];
    return MR_OK;
}

MR_TEST(predictions_come_in_input_order)
{
    batches b = three_classes(10);
    for (size_t n = 1; n <= 4; n++)
        for (int columns = 1; columns <= 2; columns++) { /* with and without labels */
            rows_seen x = {0};
            b.n_columns = columns;
            trainer t = open_trainer(n, "activation(\"linear\")", &b);
            mr_ok(mr_predict(t.s, t.m, t.ds, keep_first, &x, NULL, &st), &st);
            mr_eq_u64(x.n, ROWS);
            for (size_t i = 0; i < ROWS; i++)
                mr_eq_f64(x.first[i], features[i * WIDTH], 0);
            close_trainer(&t);
        }
}

static void fit_fails(batches *b, const char *model, mr_code code, const char *says)
{
    trainer t = open_trainer(2, model, b);
    mr_test_context("%s", says);
    mr_code_is(mr_fit(t.s, t.m, t.ds, t.l, t.o, NULL, NULL, &st), code, &st);
    mr_has_str(st.message, says);
    close_trainer(&t);
}

MR_TEST(data_that_do_not_fit_the_model_are_refused_with_advice)
{
    batches b = three_classes(10);
    b.columns[0].dtype = MR_INT32; /* as wide as the floats that lie there */
    fit_fails(&b, model_text, MR_INVALID_ARGUMENT, "cast(x, \"float32\")");
    b = three_classes(10);
    fit_fails(&b, "input(7).dense(3)", MR_INVALID_ARGUMENT, "[2, 3]");
    labels[52] = 9;
    b.batch = 51;
    fit_fails(&b, model_text, MR_INVALID_ARGUMENT, "label 9 of row 1");
    b = three_classes(10);
    b.n_columns = 1;
    fit_fails(&b, model_text, MR_INVALID_ARGUMENT, "(features, labels)");
    b = three_classes(10);
    fit_fails(&b, "flatten().dense(2)", MR_INVALID_ARGUMENT, "2 classes");
    b.rows = 0;
    fit_fails(&b, model_text, MR_FAILED_PRECONDITION, "no batch");
}

MR_TEST(a_part_that_is_missing_is_named)
{
    batches b = three_classes(10);
    trainer t = open_trainer(1, model_text, &b);
    mr_code_is(mr_fit(NULL, t.m, t.ds, t.l, t.o, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "the strategy is NULL");
    mr_code_is(mr_fit(t.s, NULL, t.ds, t.l, t.o, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "the model is NULL");
    mr_code_is(mr_fit(t.s, t.m, t.ds, NULL, t.o, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "the loss is NULL");
    mr_code_is(mr_fit(t.s, t.m, t.ds, t.l, NULL, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "the optimizer is NULL");
    mr_code_is(mr_evaluate(t.s, t.m, t.ds, NULL, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "the loss is NULL");
    mr_code_is(mr_predict(t.s, NULL, t.ds, NULL, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_strategy_run(NULL, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_strategy_run(t.s, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_model *m;
    mr_loss *l;
    mr_optimizer *o;
    mr_metric *metric;
    mr_code_is(mr_model_parse(&m, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_loss_parse(&l, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_optimizer_parse(&o, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_metric_parse(&metric, NULL, &st), MR_INVALID_ARGUMENT, &st);
    close_trainer(&t);
}

static mr_code give_code(void *ctx, const mr_train_event *e, mr_status *why)
{
    (void)e;
    (void)why;
    return *(mr_code *)ctx;
}

MR_TEST(a_code_of_a_callback_that_is_not_an_error_is_one)
{
    static mr_code given[] = {(mr_code)5, MR_DATA_LOSS};
    static const char *const why[] = {"batch_end returned 5", "batch_end failed without"};
    for (size_t i = 0; i < 2; i++) {
        batches b = three_classes(10);
        trainer t = open_trainer(1, model_text, &b);
        const mr_callback c = {.name = "mine", .ctx = &given[i], .batch_end = give_code};
        const mr_fit_opts opts = {.callbacks = &c, .n_callbacks = 1};
        mr_code_is(mr_fit(t.s, t.m, t.ds, t.l, t.o, &opts, NULL, &st),
                   given[i] < 0 ? given[i] : MR_INTERNAL, &st);
        mr_has_str(st.message, why[i]);
        close_trainer(&t);
    }
}

MR_TEST(an_epoch_without_rows_has_no_end)
{
    batches b = three_classes(10);
    b.rows = 0;
    trainer t = open_trainer(2, model_text, &b);
    record r = {0};
    mr_callback c = recorder(&r);
    mr_code_is(mr_fit(t.s, t.m, t.ds, t.l, t.o, &(mr_fit_opts){.callbacks = &c, .n_callbacks = 1},
                      NULL, &st),
               MR_FAILED_PRECONDITION, &st);
    mr_eq_str(r.calls, "TEt");
    close_trainer(&t);
}

static char warnings[512];

static void keep_warning(void *ctx, mr_log_level level, const char *message)
{
    (void)ctx;
    (void)level;
    snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", message);
}

MR_TEST(nan_is_not_an_error_but_the_first_is_warned_of)
{
    batches b = three_classes(20);
    features[21 * WIDTH] = NAN;
    trainer t = open_trainer(2, "flatten().dense(3)", &b);
    mr_fit_result got;
    mr_log_set(keep_warning, NULL, MR_LOG_WARNING);
    mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &(mr_fit_opts){.epochs = 2}, &got, &st), &st);
    mr_log_set(NULL, NULL, MR_LOG_WARNING);
    mr_check(isnan(got.loss));
    mr_has_str(warnings, "NaN from step 2 of epoch 1");
    mr_check(strchr(warnings, '\n') == strrchr(warnings, '\n')); /* once */
    close_trainer(&t);
}

MR_TEST(no_batch_beyond_the_last_step_is_fetched)
{
    for (size_t n = 1; n <= 3; n++) {
        size_t read = 0;
        batches b = three_classes(10);
        b.read = &read;
        trainer t = open_trainer(n, model_text, &b);
        mr_test_context("%zu replicas", n);
        mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &(mr_fit_opts){.steps = 3}, NULL, &st), &st);
        mr_eq_u64(read, 3);
        read = 0;
        mr_ok(mr_evaluate(t.s, t.m, t.ds, t.l, &(mr_fit_opts){.steps = 2}, NULL, &st), &st);
        mr_eq_u64(read, 2);
        close_trainer(&t);
    }
}

/* What a callback without wants_loss sees. */
typedef struct follower {
    int64_t results, latest; /* steps whose results came; the largest distance to batch_end */
    float loss[MAX_STEPS];
    unsigned waits_at_first, waits_at_end, allocations_at_fifth, allocations_at_end;
} follower;

static mr_code follow_result(void *ctx, const mr_train_event *e, mr_status *status)
{
    follower *f = ctx;
    if (e->step != f->results + 1 || e->loss_step != e->step || e->epoch != (e->step - 1) / 6 + 1 ||
        e->rows != (e->step % 6 ? 10 : 3))
        return mr_fail(status, MR_INTERNAL, "step %d of epoch %d comes after %d", (int)e->step,
                       (int)e->epoch, (int)f->results);
    f->loss[f->results++] = e->loss;
    return MR_OK;
}

static mr_code follow_end(void *ctx, const mr_train_event *e, mr_status *status)
{
    follower *f = ctx;
    int64_t ahead = e->step - f->results;
    f->latest = ahead > f->latest ? ahead : f->latest;
    f->waits_at_end = test_host_waits();
    f->allocations_at_end = test_allocations();
    if (e->step == 1)
        f->waits_at_first = f->waits_at_end;
    if (e->step == 5)
        f->allocations_at_fifth = f->allocations_at_end;
    if (e->loss_step != f->results ||
        (f->results > 0 && memcmp(&e->loss, &f->loss[f->results - 1], sizeof e->loss) != 0))
        return mr_fail(status, MR_INTERNAL, "the loss is not the last that came");
    return MR_OK;
}

static mr_code follow_epoch(void *ctx, const mr_train_event *e, mr_status *status)
{
    const follower *f = ctx;
    return f->results == e->step ? MR_OK : mr_fail(status, MR_INTERNAL, "a result is missing");
}

static follower run_on(const char *kind, size_t replicas, mr_fit_result *result)
{
    batches b = three_classes(10);
    trainer t = open_trainer_on(kind, replicas, model_text, &b);
    follower f = {0};
    mr_callback c = {.ctx = &f,
                     .batch_end = follow_end,
                     .epoch_end = follow_epoch,
                     .batch_result = follow_result};
    mr_fit_opts o = {.epochs = 3,
                     .seed = 5,
                     .callbacks = &c,
                     .n_callbacks = 1,
                     .metrics = (const char *[]){"accuracy", "mean"},
                     .n_metrics = 2};
    mr_test_context("%s, %zu replicas", kind, replicas);
    mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &o, result, &st), &st);
    mr_ok(mr_evaluate(t.s, t.m, t.ds, t.l, &o, NULL, &st), &st);
    close_trainer(&t);
    mr_eq_i64(f.results, 18);
    mr_check(f.latest <= 2);
    return f;
}

MR_TEST(nothing_in_the_loop_waits_for_a_device)
{
    mr_fit_result result;
    test_register_doubles();
    for (size_t n = 1; n <= 3; n++) {
        follower f = run_on("counting", n, &result);
        mr_eq_u64(f.waits_at_end, f.waits_at_first);
        mr_eq_u64(f.allocations_at_end, f.allocations_at_fifth); /* nor asks it for memory */
    }
    mr_check(test_host_waits() > 0); /* but before and after it waits, which is counted */
}

MR_TEST(no_host_code_touches_device_memory)
{
    mr_fit_result want, got;
    test_register_doubles();
    for (size_t n = 1; n <= 3; n++) {
        follower cpu = run_on("cpu", n, &want), strict = run_on("strict", n, &got);
        mr_eq_mem(strict.loss, cpu.loss, sizeof cpu.loss);
        mr_eq_f64(got.loss, want.loss, 0);
        mr_eq_f64(got.metrics[0], want.metrics[0], 0);
        mr_eq_f64(got.metrics[1], want.metrics[1], 0);
    }
    batches b = three_classes(10);
    rows_seen x = {0};
    b.n_columns = 1;
    trainer t = open_trainer_on("strict", 2, "activation(\"linear\")", &b);
    mr_ok(mr_predict(t.s, t.m, t.ds, keep_first, &x, NULL, &st), &st);
    mr_eq_u64(x.n, ROWS);
    mr_eq_f64(x.first[52], features[52 * WIDTH], 0);
    close_trainer(&t);
}

/* The weights, which are the same on all replicas; returns how many. */
static size_t weights_of(trainer *t, float *out)
{
    size_t n = 0;
    for (size_t v = 0; v < mr_model_n_variables(t->m); v++) {
        mr_variable *x = mr_model_variable(t->m, v);
        for (size_t r = 1; r < mr_strategy_num_replicas_in_sync(t->s); r++)
            mr_eq_mem(mr_variable_copy(x, 0), mr_variable_copy(x, r),
                      mr_variable_size(x) * sizeof(float));
        mr_ok(mr_variable_read(x, out + n, &st), &st);
        n += mr_variable_size(x);
    }
    return n;
}

MR_TEST(a_bad_label_leaves_the_weights_before_its_step_on_all_replicas)
{
    float good[512], bad[512];
    batches b = three_classes(10);
    for (size_t n = 1; n <= 3; n++) {
        mr_fit_opts first = {.steps = 3, .seed = 5}, all = {.seed = 5};
        mr_test_context("%zu replicas", n);
        labels[37] = 37 % CLASSES;
        trainer t = open_trainer(n, model_text, &b);
        mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &first, NULL, &st), &st);
        size_t size = weights_of(&t, good);
        close_trainer(&t);
        labels[37] = 17; /* in the fourth batch */
        t = open_trainer(n, model_text, &b);
        mr_code_is(mr_fit(t.s, t.m, t.ds, t.l, t.o, &all, NULL, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, "label 17 of row 7 of the batch is not one of the 3 classes");
        mr_eq_u64(weights_of(&t, bad), size);
        mr_eq_mem(bad, good, size * sizeof *good);
        mr_eq_i64(mr_optimizer_iterations(t.o), 3);
        mr_code_is(mr_evaluate(t.s, t.m, t.ds, t.l, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
        /* Training continues from there as if nothing had happened. */
        labels[37] = 37 % CLASSES;
        mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &first, NULL, &st), &st);
        weights_of(&t, bad);
        close_trainer(&t);
        t = open_trainer(n, model_text, &b);
        mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &first, NULL, &st), &st);
        mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &first, NULL, &st), &st);
        weights_of(&t, good);
        mr_eq_mem(bad, good, size * sizeof *good);
        close_trainer(&t);
    }
}

MR_TEST(a_cancelled_first_step_leaves_the_optimizer_as_it_was)
{
    float want[512], got[512];
    const mr_fit_opts three = {.steps = 3, .seed = 5};
    batches b = three_classes(10);
    mallopt(M_PERTURB, 0xff ^ 0x42); /* allocated floats are 48.6 */
    for (size_t n = 1; n <= 2; n++) {
        trainer t = open_trainer(n, model_text, &b);
        mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &three, NULL, &st), &st);
        size_t size = weights_of(&t, want);
        close_trainer(&t);
        mr_test_context("%zu replicas", n);
        t = open_trainer(n, model_text, &b);
        mr_cancel *cancel = NULL;
        mr_ok(mr_cancel_new(NULL, &cancel, &st), &st);
        mr_callback c = {.ctx = cancel, .batch_begin = cancel_at_once};
        const mr_iterator_opts run = {.cancel = cancel};
        const mr_fit_opts o = {.callbacks = &c, .n_callbacks = 1, .iterator = &run, .seed = 5};
        mr_code_is(mr_fit(t.s, t.m, t.ds, t.l, t.o, &o, NULL, &st), MR_CANCELLED, &st);
        mr_eq_i64(mr_optimizer_iterations(t.o), 0);
        mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &three, NULL, &st), &st);
        mr_eq_u64(weights_of(&t, got), size);
        mr_eq_mem(got, want, size * sizeof *got);
        mr_cancel_unref(cancel);
        close_trainer(&t);
    }
}

MR_TEST(sample_weights_of_zero_leave_rows_out)
{
    float weights[ROWS], one[512], other[512];
    batches b = three_classes(10);
    b.n_columns = 3;
    b.columns[2] =
        (mr_array){.dtype = MR_FLOAT32, .rows = 1, .rank = 1, .shape = {ROWS}, .data = weights};
    for (int turn = 0; turn < 2; turn++) { /* what weighs nothing may be anything */
        for (size_t i = 0; i < ROWS; i++)
            weights[i] = i % 3 == 1 ? 0 : 1;
        for (size_t i = 1; i < ROWS && turn == 1; i += 3)
            labels[i] = (labels[i] + 1) % CLASSES;
        trainer t = open_trainer(2, "flatten().dense(3)", &b);
        mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, &(mr_fit_opts){.seed = 3}, NULL, &st), &st);
        size_t size = weights_of(&t, turn ? other : one);
        if (turn == 1)
            mr_eq_mem(other, one, size * sizeof *one);
        close_trainer(&t);
    }
}

MR_TEST(fit_without_memory_fails_cleanly_at_every_allocation)
{
    batches b = three_classes(20);
    mr_fault_each_allocation(n)
    {
        trainer t = {0};
        mr_code rc = mr_strategy_mirrored(&t.s, &(mr_strategy_opts){.num_replicas = 2}, &st);
        if (rc == MR_OK)
            rc = mr_model_parse(&t.m, "flatten().dense(3)", &st);
        if (rc == MR_OK)
            rc = mr_loss_parse(&t.l, "sparse_categorical_crossentropy", &st);
        if (rc == MR_OK)
            rc = mr_optimizer_parse(&t.o, "adam", &st);
        t.ds = test_batches(&b);
        if (rc == MR_OK)
            rc = mr_fit(t.s, t.m, t.ds, t.l, t.o,
                        &(mr_fit_opts){.metrics = (const char *[]){"accuracy"}, .n_metrics = 1},
                        NULL, &st);
        mr_fault_expect(rc, &st);
        close_trainer(&t);
    }
}
