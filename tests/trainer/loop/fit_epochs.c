/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of fit: their length, validation, what they leave in the history, and how they end. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/parts.h"

static mr_status st;
static const char ten[] =
    "range(10).map(i => ([cast(i, \"float32\") / 8.0, 1.0], [cast(i, \"float32\")])).batch(2)";

static parts make(const char *text)
{
    return parts_make(2, "dense(3, activation=\"tanh\").dense(1)", "mse", "sgd(0.01)",
                      mr_test_graph(text));
}

static mr_code fit(parts *p, const mr_fit_opts *o, mr_fit_result *r)
{
    return parts_fit(p, o, r, &st);
}

typedef struct trace {
    char calls[256];
    int64_t step;
} trace;

static void note(trace *t, const char *format, int64_t n)
{
    size_t at = strlen(t->calls);
    snprintf(t->calls + at, sizeof t->calls - at, format, (int)n);
}

static mr_code batch_begin(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)status;
    note(ctx, "(%d", e->step);
    return MR_OK;
}

static mr_code batch_end(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)status;
    ((trace *)ctx)->step = e->step;
    note(ctx, " %d)", e->step);
    return MR_OK;
}

static mr_code epoch_end(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)status;
    note(ctx, "e%d ", e->epoch_step);
    return MR_OK;
}

static mr_callback tracing(trace *t)
{
    return (mr_callback){
        .ctx = t, .batch_begin = batch_begin, .batch_end = batch_end, .epoch_end = epoch_end};
}

MR_TEST(history_has_every_value_of_every_epoch)
{
    parts p = make(ten);
    mr_history *h;
    mr_dataset *validation = mr_test_graph(
        "range(4).map(i => ([cast(i, \"float32\"), 1.0], [cast(i, \"float32\")])).batch(3)");
    const char *const metrics[] = {"mse", "mean"};
    mr_fit_result r, evaluated;
    mr_ok(mr_history_new(&h, &st), &st);
    mr_fit_opts o = {
        .epochs = 3, .metrics = metrics, .n_metrics = 2, .validation = validation, .history = h};
    mr_ok(fit(&p, &o, &r), &st);
    static const char *const names[] = {"loss",    "mse",      "mean",         "val_loss",
                                        "val_mse", "val_mean", "learning_rate"};
    mr_eq_u64(mr_history_epochs(h), 3);
    mr_eq_i64(mr_history_epoch_numbers(h)[2], 3);
    mr_eq_u64(mr_history_n_names(h), 7);
    for (size_t i = 0; i < 7; i++)
        mr_eq_str(mr_history_name(h, i), names[i]);
    mr_eq_f64(mr_history_values(h, "loss")[2], r.loss, 0);
    mr_eq_f64(mr_history_values(h, "mse")[2], r.metrics[0], 0);
    mr_eq_f64(mr_history_values(h, "learning_rate")[0], 0.01, 0);
    mr_check(mr_history_values(h, "loss")[2] < mr_history_values(h, "loss")[0]);
    mr_check(mr_history_values(h, "accuracy") == NULL);
    o.epochs = 0;
    mr_ok(mr_evaluate(p.s, p.m, validation, p.loss, &o, &evaluated, &st), &st);
    mr_eq_f64(mr_history_values(h, "val_loss")[2], evaluated.loss, 0);
    mr_eq_f64(mr_history_values(h, "val_mean")[2], evaluated.metrics[1], 0);
    mr_history_free(h);
    mr_dataset_unref(validation);
    parts_drop(&p);
}

MR_TEST(a_value_that_comes_late_is_nan_before)
{
    mr_history *h;
    mr_ok(mr_history_new(&h, &st), &st);
    mr_code_is(mr_history_add(h, "loss", 1, &st), MR_FAILED_PRECONDITION, &st);
    mr_ok(mr_history_add_epoch(h, 4, &st), &st);
    mr_ok(mr_history_add(h, "loss", 1, &st), &st);
    mr_ok(mr_history_add_epoch(h, 5, &st), &st);
    mr_ok(mr_history_add(h, "val_loss", 2, &st), &st);
    mr_check(isnan(mr_history_values(h, "val_loss")[0]));
    mr_check(isnan(mr_history_values(h, "loss")[1]));
    mr_eq_f64(mr_history_values(h, "val_loss")[1], 2, 0);
    mr_history_free(h);
}

MR_TEST(steps_per_epoch_go_on_where_the_last_epoch_ended)
{
    /* Epochs of 3 of the 5 batches of a pass, which repeat. */
    char text[200];
    snprintf(text, sizeof text, "%s.repeat()", ten);
    parts p = make(text), q = make(text);
    mr_history *three, *fifteen;
    mr_fit_result r;
    trace t = {0};
    mr_callback c = tracing(&t);
    mr_ok(mr_history_new(&three, &st), &st);
    mr_ok(mr_history_new(&fifteen, &st), &st);
    mr_ok(fit(&p,
              &(mr_fit_opts){.epochs = 5,
                             .steps_per_epoch = 3,
                             .history = three,
                             .callbacks = &c,
                             .n_callbacks = 1},
              &r),
          &st);
    mr_eq_i64(r.steps, 15);
    mr_has_str(t.calls, "3)e3 (4");
    mr_ok(fit(&q, &(mr_fit_opts){.epochs = 1, .steps_per_epoch = 15, .history = fifteen}, NULL),
          &st);
    double mean = 0;
    for (size_t i = 0; i < 5; i++)
        mean += mr_history_values(three, "loss")[i] / 5;
    mr_eq_f64(mean, mr_history_values(fifteen, "loss")[0], 1e-5);
    mr_history_free(three);
    mr_history_free(fifteen);
    parts_drop(&p);
    parts_drop(&q);
}

MR_TEST(an_epoch_of_exactly_a_pass_starts_the_data_again)
{
    parts p = make(ten), q = make(ten);
    mr_fit_result a, b;
    mr_ok(fit(&p, &(mr_fit_opts){.epochs = 3, .steps_per_epoch = 5}, &a), &st);
    mr_ok(fit(&q, &(mr_fit_opts){.epochs = 3}, &b), &st);
    mr_eq_i64(a.steps, 15);
    mr_eq_mem(&a.loss, &b.loss, sizeof a.loss);
    parts_drop(&p);
    parts_drop(&q);
}

MR_TEST(data_that_run_out_end_training)
{
    parts p = make(ten);
    mr_fit_result r;
    mr_ok(fit(&p, &(mr_fit_opts){.epochs = 4, .steps_per_epoch = 3}, &r), &st);
    mr_eq_i64(r.steps, 5);
    parts_drop(&p);
}

MR_TEST(endless_data_need_a_length)
{
    char text[200];
    snprintf(text, sizeof text, "%s.repeat()", ten);
    parts p = make(text);
    mr_code_is(fit(&p, &(mr_fit_opts){.epochs = 4}, NULL), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "never end");
    mr_code_is(fit(&p, &(mr_fit_opts){.steps = 1, .validation = p.ds}, NULL), MR_INVALID_ARGUMENT,
               &st);
    mr_has_str(st.message, "validation");
    mr_ok(fit(&p, &(mr_fit_opts){.steps = 1, .validation = p.ds, .validation_steps = 2}, NULL),
          &st);
    mr_code_is(fit(&p, &(mr_fit_opts){.steps_per_epoch = -1}, NULL), MR_INVALID_ARGUMENT, &st);
    parts_drop(&p);
}

MR_TEST(executions_of_several_steps_call_back_once)
{
    parts p = make(ten);
    trace t = {0};
    mr_callback c = tracing(&t);
    mr_ok(fit(&p,
              &(mr_fit_opts){
                  .epochs = 2, .steps_per_execution = 2, .callbacks = &c, .n_callbacks = 1},
              NULL),
          &st);
    mr_eq_str(t.calls, "(1 2)(3 4)(5e5 (6 7)(8 9)(10e5 ");
    t = (trace){0};
    mr_ok(fit(&p,
              &(mr_fit_opts){.epochs = 1,
                             .steps_per_epoch = 3,
                             .steps_per_execution = 2,
                             .callbacks = &c,
                             .n_callbacks = 1},
              NULL),
          &st);
    mr_eq_str(t.calls, "(1 2)(3 3)e3 "); /* the epoch ends with the third */
    parts_drop(&p);
}

static char order[8];

static mr_code note_turn(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)e;
    (void)status;
    strcat(order, ctx);
    return MR_OK;
}

MR_TEST(a_backup_has_what_the_other_callbacks_did)
{
    parts p = make(ten);
    char backs_up[] = "b", saves[] = "s", plain[] = "p";
    const mr_callback list[] = {
        {.ctx = backs_up, .epoch_end = note_turn, .saves = parts_never, .backs_up = true},
        {.ctx = saves, .epoch_end = note_turn, .saves = parts_never},
        {.ctx = plain, .epoch_end = note_turn}};
    mr_ok(fit(&p, &(mr_fit_opts){.callbacks = list, .n_callbacks = 3}, NULL), &st);
    mr_eq_str(order, "psb");
    parts_drop(&p);
}

MR_TEST(the_loss_of_an_output_with_axes_is_their_mean)
{
    parts p = make("range(4).map(i => (zeros([3, 2]), ones([3, 1]))).batch(2)");
    mr_fit_result r;
    mr_ok(mr_evaluate(p.s, p.m, p.ds, p.loss, NULL, &r, &st), &st);
    mr_eq_f64((double)r.loss, 1, 0); /* it predicts 0 */
    parts_drop(&p);
}

static bool after_three(void *ctx)
{
    return ((trace *)ctx)->step >= 3;
}

MR_TEST(stopping_ends_training_after_the_batch_fetched_next)
{
    parts p = make(ten);
    trace t = {0};
    mr_callback c = tracing(&t);
    mr_fit_result r;
    mr_ok(fit(&p,
              &(mr_fit_opts){.epochs = 2,
                             .callbacks = &c,
                             .n_callbacks = 1,
                             .stopping = after_three,
                             .stopping_ctx = &t},
              &r),
          &st);
    mr_check(r.stopped);
    mr_check(r.steps >= 4 && r.steps <= 5);
    parts_drop(&p);
}

MR_TEST(a_validation_that_fails_says_so)
{
    parts p = make(ten);
    mr_dataset *bad = mr_test_graph("range(4).map(i => ([1.0], [1.0])).batch(2)");
    mr_code_is(fit(&p, &(mr_fit_opts){.validation = bad}, NULL), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "validation: ");
    mr_dataset_unref(bad);
    parts_drop(&p);
}

MR_TEST(memory_may_run_out)
{
    const char *const metrics[] = {"mse"};
    mr_fault_exact(60);
    mr_fault_each_allocation(n)
    {
        mr_history *h = NULL;
        mr_code rc = mr_fault_expect(mr_history_new(&h, &st), &st);
        if (rc == MR_OK)
            rc = mr_fault_expect(mr_history_add_epoch(h, 1, &st), &st);
        if (rc == MR_OK)
            rc = mr_fault_expect(mr_history_add(h, metrics[0], 1, &st), &st);
        mr_history_free(h);
    }
}

static const char classes[] = "range(9).map(i => ([cast(i, \"float32\") / 8.0], i % 3)).batch(4)";

MR_TEST(class_weights_are_sample_weights_of_the_labels)
{
    static const double weights[] = {0.5, 0, 2};
    char text[400];
    mr_fit_result r;
    mr_fit_opts o = {.epochs = 2, .class_weights = weights, .n_class_weights = 3};
    for (int kind = 0; kind < 4; kind++) {
        bool weighted = kind & 1, fewer = kind & 2; /* a class without a weight counts 1 */
        float loss[2];
        o.n_class_weights = fewer ? 2 : 3;
        for (int own = 0; own < 2; own++) {
            snprintf(text, sizeof text,
                     weighted ? "%s.map((x, y) => (x, y, %s))"
                     : own    ? "%s.map((x, y) => (x, y, %s))"
                              : "%s",
                     classes,
                     !own                ? "gather([2.0, 2.0, 2.0], y)"
                     : weighted && fewer ? "gather([1.0, 0.0, 2.0], y)"
                     : weighted          ? "gather([1.0, 0.0, 4.0], y)"
                     : fewer             ? "gather([0.5, 0.0, 1.0], y)"
                                         : "gather([0.5, 0.0, 2.0], y)");
            parts p = make(text);
            mr_loss_free(p.loss);
            mr_model_free(p.m);
            mr_ok(mr_model_parse(&p.m, "dense(3)", &st), &st);
            mr_ok(mr_loss_parse(&p.loss, "sparse_categorical_crossentropy", &st), &st);
            mr_ok(fit(&p, own ? &(mr_fit_opts){.epochs = 2} : &o, &r), &st);
            loss[own] = r.loss;
            parts_drop(&p);
        }
        mr_eq_f64(loss[0], loss[1], 1e-6);
    }
}

MR_TEST(class_weights_need_labels_that_are_classes)
{
    static const double bad[][2] = {{1, -1}, {1, NAN}, {1, INFINITY}, {1, 1e39}}, two[] = {1, 1};
    static const double many[MR_MAX_CLASS_WEIGHTS + 1] = {1};
    parts p = make(classes), q = make("range(4).map(i => [1.0]).batch(2)");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mr_code_is(fit(&p, &(mr_fit_opts){.class_weights = bad[i], .n_class_weights = 2}, NULL),
                   MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, "class 1");
    }
    mr_code_is(
        fit(&p, &(mr_fit_opts){.class_weights = many, .n_class_weights = MR_MAX_CLASS_WEIGHTS + 1},
            NULL),
        MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "at most 65536 class weights");
    parts f = make("range(4).map(i => ([1.0], [cast(i, \"float32\")])).batch(2)");
    mr_code_is(fit(&f, &(mr_fit_opts){.class_weights = two, .n_class_weights = 2}, NULL),
               MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "class numbers");
    parts_drop(&f);
    mr_code_is(fit(&q, &(mr_fit_opts){.class_weights = two, .n_class_weights = 2}, NULL),
               MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "features, labels");
    parts_drop(&p);
    parts_drop(&q);
}

typedef struct maker {
    const char *text; /* NULL: it makes no dataset */
    mr_code rc;
    mr_input_context last;
} maker;

static mr_code make_input(void *ctx, const mr_input_context *c, mr_dataset **out, mr_status *status)
{
    maker *k = ctx;
    k->last = *c;
    if (k->rc != MR_OK)
        return mr_fail(status, k->rc, "no input today");
    *out = k->text ? mr_test_graph(k->text) : NULL;
    return MR_OK;
}

/* Of two replicas each takes an element: the batch of a step is that of a dataset of twice as many
 * rows. */
MR_TEST(data_may_come_from_an_input_function)
{
    static const char each[] = "range(9).map(i => ([cast(i, \"float32\") / 8.0], i % 3)).batch(2)";
    static const double weights[] = {0.5, 0, 2};
    for (int weighted = 0; weighted < 2; weighted++) {
        maker k = {.text = each};
        mr_fit_opts o = {.epochs = 2, .seed = 5};
        float loss[2];
        if (weighted) {
            o.class_weights = weights;
            o.n_class_weights = 3;
        }
        for (int function = 0; function < 2; function++) {
            mr_fit_result r;
            parts p = make(classes);
            mr_loss_free(p.loss);
            mr_model_free(p.m);
            mr_ok(mr_model_parse(&p.m, "dense(3)", &st), &st);
            mr_ok(mr_loss_parse(&p.loss, "sparse_categorical_crossentropy", &st), &st);
            if (function) {
                o.input = make_input;
                o.input_ctx = &k;
                mr_dataset_unref(p.ds);
                p.ds = NULL;
                mr_ok(mr_check_data(p.s, NULL, &o, &st), &st);
            }
            mr_ok(fit(&p, &o, &r), &st);
            loss[function] = r.loss;
            parts_drop(&p);
        }
        mr_eq_f64((double)loss[0], (double)loss[1], 0);
        mr_eq_i64(k.last.num_input_pipelines, 1);
        mr_eq_i64(k.last.input_pipeline_id, 0);
        mr_eq_i64(k.last.num_replicas_in_sync, 2);
    }
}

MR_TEST(an_input_function_must_make_a_dataset)
{
    maker k = {.rc = MR_NOT_FOUND};
    mr_fit_opts o = {.input_ctx = &k};
    parts p = make(ten);
    mr_dataset *ds = p.ds;
    p.ds = NULL;
    mr_code_is(fit(&p, &o, NULL), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "pass a dataset or an input function");
    o.input = make_input;
    mr_code_is(fit(&p, &o, NULL), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "no input today");
    mr_code_is(mr_check_data(p.s, NULL, &o, &st), MR_NOT_FOUND, &st);
    k.rc = MR_OK;
    mr_code_is(fit(&p, &o, NULL), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "returned no dataset");
    p.ds = ds;
    mr_ok(fit(&p, &o, NULL), &st); /* the dataset counts where there is one */
    parts_drop(&p);
}
