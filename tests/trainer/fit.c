/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/fit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/batches.h"
#include "trainer/staging.h"

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

static trainer open_trainer(size_t replicas, const char *model, const batches *b)
{
    trainer t = {0};
    mr_ok(mr_strategy_mirrored(&t.s, &(mr_strategy_opts){.num_replicas = replicas}, &st), &st);
    mr_ok(mr_model_parse(&t.m, model, &st), &st);
    mr_ok(mr_loss_parse(&t.l, "sparse_categorical_crossentropy(from_logits=true)", &st), &st);
    mr_ok(mr_optimizer_parse(&t.o, "adam(learning_rate=0.02)", &st), &st);
    t.ds = test_batches(b);
    return t;
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
    (void)e;
    (void)status;
    add(ctx, "t");
    return MR_OK;
}

static mr_callback recorder(record *r)
{
    r->set_rate_at_3 = -1;
    return (mr_callback){
        r,           on_train_begin, on_epoch_begin, on_batch_begin, on_batch_end, on_epoch_end,
        on_train_end};
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

typedef struct watcher {
    mr_iterator *it;
    int opened, closed;
} watcher;

static void watch(void *ctx, mr_iterator *it)
{
    watcher *w = ctx;
    w->it = it;
    *(it ? &w->opened : &w->closed) += 1;
}

static mr_code cancel_at_once(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)e;
    (void)status;
    mr_iterator_cancel(((watcher *)ctx)->it);
    return MR_OK;
}

MR_TEST(whoever_watches_the_data_can_cancel_them)
{
    batches b = three_classes(8);
    trainer t = open_trainer(2, model_text, &b);
    watcher w = {0};
    mr_callback c = {.ctx = &w, .epoch_begin = cancel_at_once};
    mr_fit_opts o = {
        .epochs = 9, .callbacks = &c, .n_callbacks = 1, .watch = watch, .watch_ctx = &w};
    mr_code_is(mr_fit(t.s, t.m, t.ds, t.l, t.o, &o, NULL, &st), MR_CANCELLED, &st);
    mr_eq_i64(w.opened, 1);
    mr_eq_i64(w.closed, 1);
    mr_check(w.it == NULL);
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
    mr_eq_str(r.calls, "TE()()()");
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

MR_TEST(nan_is_not_an_error)
{
    batches b = three_classes(ROWS);
    features[3] = NAN;
    trainer t = open_trainer(2, "flatten().dense(3)", &b);
    mr_fit_result got;
    mr_ok(mr_fit(t.s, t.m, t.ds, t.l, t.o, NULL, &got, &st), &st);
    mr_check(isnan(got.loss));
    close_trainer(&t);
}

static mr_code do_nothing(mr_replica *r, void *ctx, mr_status *status)
{
    (void)r;
    (void)ctx;
    (void)status;
    return MR_OK;
}

MR_TEST(full_batches_are_written_in_place_by_the_pipeline)
{
    batches b = three_classes(10);
    mr_strategy *s = NULL;
    mr__staging *g = NULL;
    mr_iterator *it = NULL;
    mr_block block = MR_BLOCK_EMPTY;
    mr_dataset *ds = test_batches(&b);
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 3}, &st), &st);
    mr_ok(mr__staging_new(&g, s, 2, &st), &st);
    mr_ok(mr_iterator_open(&it, ds, NULL, &st), &st);
    for (size_t number = 0; number < 6; number++) {
        size_t slot, row = number * 10;
        mr_ok(mr__staging_reserve(g, &block.into, &st), &st);
        mr_check((block.into != NULL) == (number >= 2)); /* each slot's first batch is copied */
        mr_ok(mr_iterator_next(it, 1, &block, &st), &st);
        mr_ok(mr__staging_put(g, &block, &slot, &st), &st);
        mr_eq_u64(mr__staging_rows(g, slot), number < 5 ? 10 : 3);
        mr__staging_hand_over(g, slot);
        mr_ok(mr_strategy_run(s, do_nothing, NULL, &st), &st); /* behind the copies */
        mr__staging_give_back(g, slot);
        for (size_t r = 0; r < 3; r++) {
            mr_array x, y;
            mr__staging_tensor(g, slot, r, 0, &x);
            mr__staging_tensor(g, slot, r, 1, &y);
            mr_eq_mem(x.data, features + row * WIDTH, (size_t)x.shape[0] * WIDTH * sizeof(float));
            mr_eq_mem(y.data, labels + row, (size_t)y.shape[0] * sizeof(int64_t));
            row += (size_t)x.shape[0];
        }
    }
    mr_eq_u64(mr__staging_placed_bytes(g), 33 * (WIDTH * sizeof(float) + sizeof(int64_t)));
    block.into = NULL;
    mr_block_reset(&block);
    mr_iterator_close(it);
    mr__staging_free(g);
    mr_strategy_free(s);
    mr_dataset_unref(ds);
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
