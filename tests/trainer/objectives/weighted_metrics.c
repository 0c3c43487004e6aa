/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics with sample weights: the values that Keras's update_state(y, p, sample_weight) gives. */
#include <math.h>
#include <stdio.h>
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/parts.h"
#include "trainer/loop/fit.h"
#include "trainer/objectives/metric_desc.h"

static mr_status st;

enum { ROWS = 4 };

typedef struct addition {
    mr_metric *m;
    mr_array x, z, w;
} addition;

static mr_code add(mr_replica *r, void *ctx, mr_status *status)
{
    addition *a = ctx;
    return mr_metric_update_weighted(a->m, r, &a->z, &a->x, a->w.data ? &a->w : NULL, status);
}

static mr_array view(mr_dtype t, int64_t rows, int64_t width, const void *data)
{
    return (mr_array){.dtype = t,
                      .rank = width ? 2 : 1,
                      .rows = 1,
                      .shape = {rows, width},
                      .data = (void *)(uintptr_t)data};
}

static mr_code update(const char *text, mr_array x, mr_array z, mr_array w, double *result)
{
    mr_strategy *s = NULL;
    addition a = {.x = x, .z = z, .w = w};
    const char *const cpu = "cpu:0"; /* the arrays are the host's */
    mr_test_context("%s", text);
    mr_ok(mr_strategy_one_device(&s, cpu, &st), &st);
    mr_ok(mr_metric_parse(&a.m, text, &st), &st);
    mr_code rc = mr_strategy_run(s, add, &a, &st);
    if (rc == MR_OK) /* twice: totals add up */
        rc = mr_strategy_run(s, add, &a, &st);
    *result = mr_metric_result(a.m);
    mr_metric_free(a.m);
    mr_strategy_free(s);
    return rc;
}

static const float p[ROWS] = {0.9f, 0.2f, 0.6f, 0.4f};
static const float scores[ROWS * 3] = {0.7f, 0.2f, 0.1f, 0.3f, 0.4f, 0.3f,
                                       0.1f, 0.3f, 0.6f, 0.5f, 0.3f, 0.2f};
static const float one_hot[ROWS * 3] = {1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0};
static const int64_t truth[ROWS] = {1, 1, 0, 0}, classes[ROWS] = {0, 0, 2, 1};
static const float weights[ROWS] = {0.5f, 3, 2, 0};

MR_TEST(weights_count_like_keras)
{
    const mr_array x = view(MR_FLOAT32, ROWS, 1, p), z = view(MR_INT64, ROWS, 1, truth);
    const mr_array s = view(MR_FLOAT32, ROWS, 3, scores), c = view(MR_INT64, ROWS, 0, classes);
    const mr_array h = view(MR_FLOAT32, ROWS, 3, one_hot), w = view(MR_FLOAT32, ROWS, 0, weights);
    const double sum = 5.5;
    const struct {
        const char *text;
        const mr_array *x, *z;
        double want;
    } cases[] = {
        {"accuracy", &x, &z, 0.5 / sum}, /* right: rows 0 and 3, of weights 0.5 and 0 */
        {"binary_accuracy", &x, &z, 0.5 / sum},
        {"sparse_categorical_accuracy", &s, &c, 2.5 / sum},
        {"categorical_accuracy", &s, &h, 2.5 / sum},
        {"top_k(k=2)", &s, &c, 5.5 / sum - 0.0},
        {"mse", &x, &z, (0.5 * 0.01 + 3 * 0.64 + 2 * 0.36) / sum},
        {"mean", &x, &z, (0.5 * 0.9 + 3 * 0.2 + 2 * 0.6) / sum},
        {"precision", &x, &z, 0.5 / 2.5},
        {"recall", &x, &z, 0.5 / 3.5},
        /* Pairs of positives and negatives in order: row 0 above rows 2 and 3, row 1 above none. */
        {"auc(num_thresholds=1001)", &x, &z, 0.5 * 2 / (3.5 * 2)},
        {"mae", &x, &z, (0.5 * 0.1 + 3 * 0.8 + 2 * 0.6) / sum},
        {"sparse_categorical_crossentropy(from_logits=false)", &s, &c,
         -(0.5 * log(0.7) + 3 * log(0.3) + 2 * log(0.6)) / sum},
    };
    double have;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_ok(update(cases[i].text, *cases[i].x, *cases[i].z, w, &have), &st);
        mr_eq_f64(have, cases[i].want, 1e-6);
    }
    mr_ok(update("precision", x, z, (mr_array){0}, &have), &st);
    mr_eq_f64(have, 0.5, 0);
}

/* A weight for each example, also where it has several values; in any shape and dtype. */
MR_TEST(weights_have_the_shapes_that_losses_take)
{
    static const float two[ROWS * 2] = {0, 1, 1, 3, 2, 0, 5, 5}, zero[ROWS * 2];
    static const int32_t whole[ROWS] = {1, 0, 2, 1};
    static const bool on[ROWS] = {true, false, true, false};
    static const float three[3] = {1, 2, 3};
    const mr_array x = view(MR_FLOAT32, ROWS, 2, two), z = view(MR_FLOAT32, ROWS, 2, zero);
    mr_array scalar = {.dtype = MR_FLOAT32, .rank = 0, .rows = 1, .data = (void *)(uintptr_t)three};
    double have;
    mr_ok(update("mse", x, z, view(MR_INT32, ROWS, 0, whole), &have), &st);
    mr_eq_f64(have, (1 * 0.5 + 2 * 2.0 + 1 * 25.0) / 4, 1e-6);
    mr_ok(update("mse", x, z, view(MR_INT32, ROWS, 1, whole), &have), &st);
    mr_eq_f64(have, (1 * 0.5 + 2 * 2.0 + 1 * 25.0) / 4, 1e-6);
    mr_ok(update("mse", x, z, view(MR_BOOL, ROWS, 0, on), &have), &st);
    mr_eq_f64(have, (0.5 + 2.0) / 2, 1e-6);
    mr_ok(update("mse", x, z, scalar, &have), &st);
    mr_eq_f64(have, (0.5 + 5.0 + 2.0 + 25.0) / 4, 1e-6);
    mr_ok(update("mse", x, z, view(MR_FLOAT32, ROWS, 0, zero), &have), &st);
    mr_eq_f64(have, 0, 0); /* no weight at all */
    mr_code_is(update("mse", x, z, view(MR_FLOAT32, 3, 0, three), &have), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "mse: sample weights");
    mr_ok(update("mse", view(MR_FLOAT32, 0, 2, two), view(MR_FLOAT32, 0, 2, zero),
                 view(MR_FLOAT32, 0, 0, three), &have),
          &st);
    mr_eq_f64(have, 0, 0);
}

static mr_code count_all(const mr_metric_pass *m, mr_status *status)
{
    const mr_math_metric o = mr_metric_operation(m, MR_METRIC_ONE, 1, 1);
    return m->math->metric(m->stream, &o, status);
}

static const mr_metric_desc counts = {
    .is = {.abi = MR_ABI_VERSION, .name = "counts", .doc = "Counts.", .example = "counts"},
    .update = count_all};

MR_TEST(a_metric_that_takes_no_weights_refuses_them)
{
    const mr_array x = view(MR_FLOAT32, ROWS, 1, p), z = view(MR_INT64, ROWS, 1, truth);
    double have;
    mr_ok(mr_metric_register(&counts, &st), &st);
    mr_ok(update("counts", x, z, (mr_array){0}, &have), &st);
    mr_code_is(update("counts", x, z, view(MR_FLOAT32, ROWS, 0, weights), &have),
               MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "counts does not take sample weights");
}

MR_TEST(names_of_values_are_keras_names)
{
    static const char *const metrics[] = {
        "accuracy", "weighted(accuracy)", "weighted( mse )",           "weighted(mse)",
        "mse",      "weighted(accuracy)", "weighted(kind.top_k(k=2))", "weighted(kind.top_k)"};
    static const char *const want[] = {
        "accuracy", "weighted_accuracy",   "mse",        "weighted_mse",
        "mse_2",    "weighted_accuracy_1", "kind_top_k", "kind_weighted_top_k"};
    char name[64];
    mr_metric *m = NULL;
    for (size_t i = 0; i < 8; i++) {
        mr_metric_value_name(metrics, i, name, sizeof name);
        mr_eq_str(name, want[i]);
        mr_ok(mr_metric_parse(&m, metrics[i], &st), &st);
        mr_metric_free(m);
    }
    static const char *const bad[] = {"weighted()", "weighted(accuracy", "weighted(weighted(mse))",
                                      "weighted(nothing)", "weighted"};
    for (size_t i = 0; i < 5; i++) {
        mr_test_context("%s", bad[i]);
        mr_code_is(mr_metric_parse(&m, bad[i], &st), MR_INVALID_ARGUMENT, &st);
    }
}

/* In fit: sample weights, and in training class weights too. */
MR_TEST(fit_gives_weights_to_the_metrics_that_ask)
{
    const char *const metrics[] = {"accuracy", "weighted(accuracy)"};
    static const double of_class[] = {1, 4};
    mr_fit_result r;
    for (size_t replicas = 1; replicas <= 3; replicas++) {
        parts t = parts_make(
            replicas, "dense(2, kernel_initializer=zeros)", "sparse_categorical_crossentropy",
            "sgd(0.0)",
            mr_test_graph("range(6).map(i => ([1.0], i % 2, 1.0 if i < 2 else 0.5)).batch(4)"));
        mr_fit_opts o = {.metrics = metrics, .n_metrics = 2};
        mr_test_context("%zu replicas", replicas);
        mr_ok(parts_fit(&t, &o, &r, &st), &st);
        mr_eq_f64(r.metrics[0], 0.5, 1e-9);
        mr_eq_f64(r.metrics[1], 2.0 / 4, 1e-9);
        o.class_weights = of_class;
        o.n_class_weights = 2;
        mr_ok(parts_fit(&t, &o, &r, &st), &st);
        mr_eq_f64(r.metrics[0], 0.5, 1e-9);
        mr_eq_f64(r.metrics[1], 2.0 / 10, 1e-9);
        mr_ok(mr_evaluate(t.s, t.m, t.ds, t.loss, &o, &r, &st), &st);
        mr_eq_f64(r.metrics[1], 2.0 / 4, 1e-9);
        parts_drop(&t);
    }
}
