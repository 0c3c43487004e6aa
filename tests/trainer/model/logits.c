/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropies of models that end with a softmax or sigmoid are computed from the values before
 * it, as in Keras: where the output saturates, the loss is finite and has a gradient. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/parts.h"
#include "trainer/loop/fit.h"
#include "trainer/model/model.h"

static mr_status st;

typedef struct losses {
    float v[12];
} losses;

static mr_code note(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)status;
    ((losses *)ctx)->v[e->step - 1] = e->loss;
    return MR_OK;
}

static losses train(const char *model, const char *loss, const char *optimizer, const char *label,
                    size_t replicas)
{
    char text[200];
    losses l = {{0}};
    snprintf(text, sizeof text, "range(24).map(i => ([1.0], %s)).batch(2)", label);
    parts p = parts_make(replicas, model, loss, optimizer, mr_test_graph(text));
    const mr_callback c = {.ctx = &l, .batch_result = note};
    mr_test_context("%s, %s", model, loss);
    mr_ok(parts_fit(&p, &(mr_fit_opts){.callbacks = &c, .n_callbacks = 1}, NULL, &st), &st);
    parts_drop(&p);
    return l;
}

/* What Keras 3 gives for these: 40, 24, 8, 0.0003. */
static void expect_keras(losses l)
{
    mr_eq_f64(l.v[0], 40, 1e-4);
    mr_eq_f64(l.v[1], 24, 1e-4);
    mr_eq_f64(l.v[2], 8.000335, 1e-4);
    mr_eq_f64(l.v[3], 0.000338, 2e-5);
    mr_check(l.v[11] < l.v[3]);
}

MR_TEST(a_saturated_sigmoid_learns)
{
    static const char *const models[] = {
        "dense(1, activation=\"sigmoid\", use_bias=false, kernel_initializer=constant(40.0))",
        "dense(1, use_bias=false, kernel_initializer=constant(40.0)).activation(\"sigmoid\")",
        "dense(1, activation=\"sigmoid\", use_bias=false, "
        "kernel_initializer=constant(40.0)).reshape([1, 1]).flatten()",
        "reshape([1, 1, 1]).conv2d(1, 1, activation=\"sigmoid\", use_bias=false, "
        "kernel_initializer=constant(40.0)).flatten()"};
    static const char *const loss[] = {"binary_crossentropy",
                                       "binary_crossentropy(from_logits=false)",
                                       "binary_crossentropy(from_logits=true)"};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 3; k++)
            for (size_t replicas = 1; replicas <= 3; replicas++)
                expect_keras(train(models[i], loss[k], "sgd(16.0)", "[0.0]", replicas));
}

/* The first step makes the logits (20, -20), for the other class than all later ones. */
MR_TEST(a_saturated_softmax_learns)
{
    static const char *const losses_of[] = {"sparse_categorical_crossentropy",
                                            "categorical_crossentropy"};
    static const char *const labels[] = {"0 if i < 2 else 1",
                                         "[1.0, 0.0] if i < 2 else [0.0, 1.0]"};
    static const char *const models[] = {
        "dense(2, activation=\"softmax\", kernel_initializer=zeros)",
        "dense(2, kernel_initializer=zeros).activation(\"softmax\")"};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 2; k++) {
            losses l = train(models[i], losses_of[k],
                             "sgd(piecewise_constant_decay([0], [20.0, 4.0]))", labels[k], 1);
            mr_eq_f64(l.v[0], log(2), 1e-6);
            mr_eq_f64(l.v[1], 40, 1e-4);
            mr_eq_f64(l.v[2], 24, 1e-4);
            mr_eq_f64(l.v[3], 8.000335, 1e-4);
            mr_eq_f64(l.v[4], 0.000338, 2e-5);
        }
}

/* Evaluation, metrics and predictions: the loss is that of the logits everywhere, the predictions
 * are probabilities. */
MR_TEST(evaluation_agrees_and_predictions_are_probabilities)
{
    parts p = parts_make(
        2, "dense(1, activation=\"sigmoid\", use_bias=false, kernel_initializer=constant(40.0))",
        "binary_crossentropy", "sgd(0.0)",
        mr_test_graph("range(4).map(i => ([1.0], [0.0])).batch(2)"));
    const char *const metrics[] = {"binary_crossentropy", "accuracy", "mse", "auc"};
    mr_fit_result r;
    predicted y = {.n = 0};
    mr_fit_opts o = {.metrics = metrics, .n_metrics = 4};
    mr_ok(parts_fit(&p, &o, &r, &st), &st);
    mr_eq_f64(r.loss, 40, 1e-5);
    mr_eq_f64(r.metrics[0], 40, 1e-5);
    mr_ok(mr_evaluate(p.s, p.m, p.ds, p.loss, &o, &r, &st), &st);
    mr_eq_f64(r.loss, 40, 1e-5);
    mr_eq_f64(r.metrics[0], 40, 1e-5);
    mr_eq_f64(r.metrics[1], 0, 0);
    mr_eq_f64(r.metrics[2], 1, 1e-6);
    mr_ok(mr_predict(p.s, p.m, p.ds, test_take, &y, NULL, &st), &st);
    mr_eq_u64(y.n, 4);
    mr_eq_f64(y.values[3], 1, 0);
    parts_drop(&p);
}

/* ---- outputs of one layer ---- */

enum { ROWS = 5, MOST = 8 };

typedef struct pair {
    mr_model *m;
    mr_loss *kind, *size;
    bool by_model;
    float *grads[MOST];
    double sum[2];
} pair;

static float x[ROWS * 3], z[ROWS * 3]; /* read after the step was submitted */
static int64_t classes[ROWS];

static mr_code both(mr_replica *r, void *ctx, mr_status *status)
{
    pair *p = ctx;
    const float *g;
    mr_array in = {.dtype = MR_FLOAT32, .rank = 2, .rows = 1, .shape = {ROWS, 3}, .data = x};
    mr_array kinds = {.dtype = MR_INT64, .rank = 1, .rows = 1, .shape = {ROWS}, .data = classes};
    mr_array sizes = {.dtype = MR_FLOAT32, .rank = 2, .rows = 1, .shape = {ROWS, 3}, .data = z};
    mr_array y[2];
    void *sum;
    MR_TRY(mr_replica_to_device(r, &in, &in, status));
    MR_TRY(mr_replica_to_device(r, &kinds, &kinds, status));
    MR_TRY(mr_replica_to_device(r, &sizes, &sizes, status));
    MR_TRY(mr_replica_scratch(r, sizeof(double), &sum, status));
    MR_TRY(mr_model_forward(p->m, r, &in, &(mr_forward_opts){.training = true}, y, status));
    for (size_t k = 0; k < 2; k++) {
        bool is_kind = strcmp(mr_model_output_name(p->m, k), "kind") == 0;
        const mr_loss *l = is_kind ? p->kind : p->size;
        const mr_array *labels = is_kind ? &kinds : &sizes;
        mr_loss_opts how = {.scale = 0.25, .sum = sum};
        MR_TRY(p->by_model ? mr_model_loss(p->m, r, k, l, labels, &how, NULL, status)
                           : mr_loss_compute(l, r, labels, &y[k], &how, NULL,
                                             mr_model_output_gradient_of(p->m, r, k), status));
        MR_TRY(mr_stream_copy(mr_replica_stream(r), &p->sum[k], sum, sizeof(double), status));
    }
    MR_TRY(mr_model_backward(p->m, r, status));
    for (size_t v = 0; v < mr_model_n_variables(p->m); v++) {
        MR_TRY(mr_model_gradient(p->m, r, v, &g, status));
        MR_TRY(mr_stream_copy(mr_replica_stream(r), p->grads[v], g,
                              mr_variable_size(mr_model_variable(p->m, v)) * sizeof *g, status));
    }
    return MR_OK;
}

/* Where nothing saturates, the gradient by the logits is the one by the probabilities. */
MR_TEST(a_layer_of_two_outputs_has_the_gradient_of_both)
{
    static const char *const models[] = {
        "x = input(3); kind = x.dense(3, activation=\"softmax\"); size = x.dense(3)",
        "x = input(3); h = x.dense(3, activation=\"softmax\"); kind = h.flatten(); "
        "size = h.reshape(3)",
        "x = input(3); h = x.dense(3).activation(\"softmax\"); size = h.reshape(3); "
        "kind = h.flatten()"};
    test_fill(x, ROWS * 3, 1);
    test_fill(z, ROWS * 3, 2);
    for (int i = 0; i < ROWS; i++)
        classes[i] = i % 3;
    for (size_t i = 0; i < 3; i++) {
        float grads[2][MOST][64];
        double sums[2][2];
        for (int by_model = 0; by_model < 2; by_model++) {
            mr_strategy *s = open_strategy(1);
            pair p = {.by_model = by_model};
            mr_test_context("%s", models[i]);
            mr_ok(mr_model_parse(&p.m, models[i], &st), &st);
            mr_ok(mr_model_build(p.m, s, 1, (int64_t[]){3}, &(mr_model_opts){.seed = 4}, &st), &st);
            mr_ok(mr_loss_parse(&p.kind, "sparse_categorical_crossentropy(from_logits=false)", &st),
                  &st);
            mr_ok(mr_loss_parse(&p.size, "mse", &st), &st);
            mr_check(mr_model_n_variables(p.m) <= MOST);
            for (size_t v = 0; v < MOST; v++)
                p.grads[v] = grads[by_model][v];
            for (int turn = 0; turn < 2; turn++) /* nothing is left from one pass to the next */
                mr_ok(mr_strategy_run(s, both, &p, &st), &st);
            memcpy(sums[by_model], p.sum, sizeof p.sum);
            for (size_t v = 0; v < mr_model_n_variables(p.m) && by_model; v++)
                for (size_t k = 0; k < mr_variable_size(mr_model_variable(p.m, v)); k++)
                    mr_eq_f64(grads[1][v][k], grads[0][v][k], 2e-6);
            mr_loss_free(p.kind);
            mr_loss_free(p.size);
            mr_model_free(p.m);
            mr_strategy_free(s);
        }
        mr_eq_f64(sums[1][0], sums[0][0], 1e-5);
        mr_eq_f64(sums[1][1], sums[0][1], 1e-6);
    }
}

/* A view that moves the classes to another axis: the loss takes what the model returns. */
MR_TEST(classes_on_another_axis_stay_probabilities)
{
    parts p = parts_make(1, "reshape(2, 2).activation(\"softmax\").flatten()",
                         "sparse_categorical_crossentropy", "sgd(0.0)",
                         mr_test_graph("from_tensors([0.0, 1.0, 2.0, 4.0], 1).batch(1)"));
    mr_fit_result r;
    mr_ok(mr_evaluate(p.s, p.m, p.ds, p.loss, NULL, &r, &st), &st);
    /* Two pairs of probabilities, which are made to sum to 1. */
    mr_eq_f64(r.loss, -log(1 / (1 + exp(-1)) / 2), 1e-5);
    parts_drop(&p);
}

static mr_code no_such_output(mr_replica *r, void *ctx, mr_status *status)
{
    pair *p = ctx;
    return mr_model_loss(p->m, r, 2, p->size, NULL, NULL, NULL, status);
}

MR_TEST(a_loss_of_an_output_that_is_not_there_is_refused)
{
    mr_strategy *s = open_strategy(1);
    pair p = {0};
    mr_ok(mr_model_parse(&p.m, "input(3).dense(2)", &st), &st);
    mr_ok(mr_loss_parse(&p.size, "mse", &st), &st);
    mr_code_is(mr_strategy_run(s, no_such_output, &p, &st), MR_INVALID_ARGUMENT, &st);
    mr_ok(mr_model_build(p.m, s, 1, (int64_t[]){3}, NULL, &st), &st);
    mr_code_is(mr_strategy_run(s, no_such_output, &p, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "output 2");
    mr_loss_free(p.size);
    mr_model_free(p.m);
    mr_strategy_free(s);
}
