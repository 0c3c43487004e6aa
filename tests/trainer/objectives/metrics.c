/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics against what Keras 3.15 gave, over several updates and replicas, one without rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "trainer/loop/fit.h"

static mr_status st;

typedef struct addition {
    mr_metric *m;
    const float *x;
    const void *z;
    mr_dtype dtype;
    size_t width, label_width;
    size_t counts[3]; /* rows of each replica */
} addition;

static mr_code add(mr_replica *r, void *ctx, mr_status *status)
{
    const addition *a = ctx;
    size_t id = mr_replica_id(r), from = 0;
    for (size_t i = 0; i < id; i++)
        from += a->counts[i];
    mr_array x = {.dtype = MR_FLOAT32,
                  .rank = 2,
                  .rows = 1,
                  .shape = {(int64_t)a->counts[id], (int64_t)a->width},
                  .data = (float *)(uintptr_t)a->x + from * a->width};
    mr_array z = {.dtype = a->dtype,
                  .rank = a->label_width == 1 && a->width > 1 ? 1 : 2,
                  .rows = 1,
                  .shape = {(int64_t)a->counts[id], (int64_t)a->label_width},
                  .data =
                      (char *)(uintptr_t)a->z + from * a->label_width * mr_dtype_size(a->dtype)};
    return mr_metric_update(a->m, r, &z, &x, status);
}

static double metric_of(addition *a, const char *text)
{
    mr_strategy *s = NULL;
    const char *const devices[] = {"cpu:0", "cpu:1", "cpu:2"};
    mr_test_context("%s", text);
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.devices = devices, .n_devices = 3}, &st),
          &st);
    mr_ok(mr_metric_parse(&a->m, text, &st), &st);
    mr_eq_f64(mr_metric_result(a->m), 0, 0);
    for (int turn = 0; turn < 3; turn++) { /* what was added before a reset does not count */
        mr_ok(mr_strategy_run(s, add, a, &st), &st);
        if (turn == 0)
            mr_ok(mr_metric_reset(a->m, &st), &st);
    }
    double result = mr_metric_result(a->m);
    mr_metric_free(a->m);
    mr_strategy_free(s);
    return result;
}

static const float shares[] = {0.1f, 0.9f, 0.35f, 0.8f, 0.5f, 0.65f, 0.2f, 0.999f, 0, 1},
                   yes[] = {0, 1, 1, 1, 0, 0, 0, 1, 0, 0};

MR_TEST(metrics_of_yes_and_no_have_the_values_of_keras)
{
    static const struct {
        const char *text;
        double want;
    } cases[] = {{"auc", 0.77083331},
                 {"auc(num_thresholds=5)", 0.83333331},
                 {"auc(curve=\"PR\")", 0.58610022},
                 {"auc(20, \"PR\")", 0.58610022},
                 {"precision", 0.6},
                 {"recall", 0.75},
                 {"precision(thresholds=0.7)", 0.75},
                 {"recall(0.3)", 1},
                 {"mae", 0.34009999},
                 {"mse", 0.21950011},
                 {"binary_crossentropy(from_logits=false)", 1.9393184}};
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++) {
        addition a = {.x = shares,
                      .z = yes,
                      .dtype = MR_FLOAT32,
                      .width = 1,
                      .label_width = 1,
                      .counts = {6, 0, 4}};
        mr_eq_f64(metric_of(&a, cases[t].text), cases[t].want, 2e-6);
    }
}

MR_TEST(auc_of_logits_is_that_of_their_probabilities)
{
    static const float logits[] = {-2.197225f, 2.197224f,  -0.6190392f, 1.386294f,  0,
                                   0.6190391f, -1.386294f, 6.906768f,   -6.906755f, 6.906768f};
    addition a = {.x = logits,
                  .z = yes,
                  .dtype = MR_FLOAT32,
                  .width = 1,
                  .label_width = 1,
                  .counts = {3, 7, 0}};
    mr_eq_f64(metric_of(&a, "auc(from_logits=true)"), 0.7708333, 2e-6);
}

MR_TEST(top_k_has_the_values_of_keras)
{
    static const float x[] = {0.1f, 0.5f, 0.4f, 0.2f, 0.9f, 0.3f, 0.9f, 0.1f,
                              0,    0,    0,    0,    0.2f, 0.8f, 0.3f, 0.4f};
    static const float one_hot[] = {0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0};
    static const int64_t classes[] = {2, 1, 3, 0};
    static const char *const texts[] = {"top_k(k=1)", "top_k(2)", "top_k(3)", "top_k"};
    for (int k = 1; k <= 4; k++) {
        addition a = {.x = x,
                      .z = classes,
                      .dtype = MR_INT64,
                      .width = 4,
                      .label_width = 1,
                      .counts = {1, 3, 0}};
        addition full = {.x = x,
                         .z = one_hot,
                         .dtype = MR_FLOAT32,
                         .width = 4,
                         .label_width = 4,
                         .counts = {0, 0, 4}};
        mr_eq_f64(metric_of(&a, texts[k - 1]), 0.25 * k, 1e-12);
        mr_eq_f64(metric_of(&full, texts[k - 1]), 0.25 * k, 1e-12);
    }
}

MR_TEST(bad_metrics_say_what_is_wrong)
{
    static const struct {
        const char *text, *says;
    } cases[] = {{"top_k(0)", "at least 1"},
                 {"auc(1)", "at least 2"},
                 {"auc(curve=\"pr\")", "\"ROC\" or \"PR\""},
                 {"huber(delta=-1.0)", "at least 0"},
                 {"hinge", "there is no metric 'hinge'"},
                 {"hinge", ", auc, mae, huber, binary_crossentropy, "},
                 {"MeanAbsoluteError", "did you mean 'mean_absolute_error'?"},
                 {"SparseCategoricalAccuracy", "did you mean 'sparse_categorical_accuracy'?"},
                 {"7", "name of a metric"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_metric *m = NULL;
        mr_test_context("%s", cases[i].text);
        mr_code_is(mr_metric_parse(&m, cases[i].text, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].says);
        mr_check(m == NULL);
    }
}

/* A model that returns its input: the metrics of an evaluation on any number of replicas. */
MR_TEST(evaluate_sums_all_totals_of_all_metrics)
{
    static const char *const names[] = {"auc", "mean", "precision", "huber", "recall", "accuracy"};
    static const double want[] = {0.77083331, 0.54989999, 0.6, 0.10975006, 0.75, 0.7};
    for (size_t n = 1; n <= 4; n += 3) {
        mr_strategy *s = NULL;
        mr_model *m = NULL;
        mr_loss *l = NULL;
        mr_fit_result result;
        batches b = {.rows = 10,
                     .batch = 3,
                     .n_columns = 2,
                     .columns = {{.dtype = MR_FLOAT32, .rows = 1, .rank = 2, .shape = {10, 1}},
                                 {.dtype = MR_FLOAT32, .rows = 1, .rank = 2, .shape = {10, 1}}}};
        b.columns[0].data = (float *)(uintptr_t)shares;
        b.columns[1].data = (float *)(uintptr_t)yes;
        mr_test_context("%zu replicas", n);
        mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = n}, &st), &st);
        mr_ok(mr_model_parse(&m, "activation(\"linear\")", &st), &st);
        mr_ok(mr_loss_parse(&l, "mse", &st), &st);
        mr_dataset *ds = test_batches(&b);
        mr_ok(mr_evaluate(s, m, ds, l, &(mr_fit_opts){.metrics = names, .n_metrics = 6}, &result,
                          &st),
              &st);
        for (int i = 0; i < 6; i++)
            mr_eq_f64(result.metrics[i], want[i], 2e-6);
        mr_dataset_unref(ds);
        mr_loss_free(l);
        mr_model_free(m);
        mr_strategy_free(s);
    }
}

MR_TEST(a_metric_without_memory_leaves_nothing)
{
    mr_fault_each_allocation(n)
    {
        mr_metric *m = NULL;
        mr_code rc = mr_metric_parse(&m, "auc(20, \"PR\")", &st);
        mr_fault_expect(rc, &st);
        mr_metric_free(rc == MR_OK ? m : NULL);
    }
}
