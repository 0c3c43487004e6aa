/* SPDX-License-Identifier: Apache-2.0 */
/* Models of every kind of layer: their names, and training that is the same on any number of
 * replicas, also where some have no rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/parts.h"
#include "trainer/loop/fit.h"

static mr_status st;

enum { ROWS = 13, BATCH = 5, EPOCHS = 4, MOST = 64 };

typedef struct losses {
    size_t n;
    float of[MOST];
} losses;

static mr_code note(void *ctx, const mr_train_event *e, mr_status *status)
{
    losses *l = ctx;
    (void)status;
    l->of[l->n++] = e->loss;
    return MR_OK;
}

typedef struct job {
    const char *model, *loss, *optimizer;
    int rank; /* of an example */
    int64_t shape[3];
    size_t ids;     /* features are numbers below this; 0: values between -1 and 1 */
    size_t classes; /* 0: labels are numbers as wide as `width` */
    size_t width;
} job;

/* Trains on batches of 5, 5 and 3 rows. Fewer rows than replicas leave some without. */
static losses train(const job *j, size_t replicas)
{
    losses out = {0};
    size_t values = 1, width = j->classes ? 1 : j->width;
    for (int i = 0; i < j->rank; i++)
        values *= (size_t)j->shape[i];
    float *x = malloc(ROWS * values * sizeof *x), *y = malloc(ROWS * width * sizeof *y);
    int64_t labels[ROWS];
    test_fill(x, ROWS * values, 5);
    test_fill(y, ROWS * width, 6);
    uint16_t *ids = malloc(ROWS * values * sizeof *ids);
    for (size_t i = 0; i < ROWS * values; i++)
        ids[i] = (uint16_t)(j->ids ? i * 7 % j->ids : 0);
    for (size_t i = 0; i < ROWS; i++)
        labels[i] = (int64_t)(j->classes ? i * 7 % j->classes : 0);
    batches b = {.rows = ROWS,
                 .batch = BATCH,
                 .n_columns = 2,
                 .columns = {{.dtype = MR_FLOAT32, .rows = 1, .rank = (int8_t)(j->rank + 1)},
                             {.dtype = j->classes ? MR_INT64 : MR_FLOAT32,
                              .rows = 1,
                              .rank = j->classes ? 1 : 2,
                              .shape = {ROWS, (int64_t)width}}}};
    b.columns[0].shape[0] = ROWS;
    memcpy(b.columns[0].shape + 1, j->shape, sizeof j->shape);
    b.columns[0].data = x;
    if (j->ids) {
        b.columns[0].dtype = MR_UINT16;
        b.columns[0].data = ids;
    }
    b.columns[1].data = j->classes ? (void *)labels : y;
    mr_callback c = {.ctx = &out, .batch_result = note};
    mr_fit_opts opts = {
        .epochs = EPOCHS, .callbacks = &c, .n_callbacks = 1, .seed = 4, .check_replicas = true};
    parts p = parts_make(replicas, j->model, j->loss, j->optimizer, test_batches(&b));
    mr_ok(parts_fit(&p, &opts, NULL, &st), &st);
    parts_drop(&p);
    free(x);
    free(y);
    free(ids);
    return out;
}

static const char sparse[] = "sparse_categorical_crossentropy(from_logits=true)";

/* Trains on one replica and on more; the loss falls, and is the same on all. */
static void check_job(const job *j, double tolerance)
{
    losses one = train(j, 1);
    mr_test_context("%s", j->model);
    mr_eq_u64(one.n, 3 * EPOCHS);
    mr_check(one.of[3 * EPOCHS - 3] < one.of[0]);
    for (size_t n = 2; n <= 4; n += 2) {
        losses other = train(j, n);
        mr_test_context("%s on %zu replicas", j->model, n);
        mr_eq_u64(other.n, one.n);
        for (size_t i = 0; i < one.n; i++)
            mr_eq_f64(other.of[i], one.of[i], tolerance);
    }
}

MR_TEST(convolutional_models_train_alike_on_any_number_of_replicas)
{
    check_job(&(job){.model = "conv2d(4, 3, activation=\"relu\").max_pool(2).flatten().dense(8, "
                              "activation=\"relu\").dense(3)",
                     .loss = sparse,
                     .optimizer = "adam(learning_rate=0.01)",
                     .rank = 3,
                     .shape = {9, 7, 2},
                     .classes = 3},
              2e-5);
    check_job(&(job){.model = "conv2d(4, 3, strides=2, padding=\"same\").depthwise_conv2d(3, "
                              "activation=\"tanh\").average_pool(2).conv2d(6, "
                              "1).global_average_pool().dense(3)",
                     .loss = sparse,
                     .optimizer = "sgd(learning_rate=0.1, momentum=0.9)",
                     .rank = 3,
                     .shape = {15, 13, 1},
                     .classes = 3},
              2e-5);
}

MR_TEST(normalized_models_train_alike_on_any_number_of_replicas)
{
    check_job(&(job){.model = "conv2d(4, 3, use_bias=false).batch_norm(synchronized=true)."
                              "activation(\"relu\").flatten().dense(6).layer_norm().dense(3)",
                     .loss = sparse,
                     .optimizer = "adam(learning_rate=0.01)",
                     .rank = 3,
                     .shape = {5, 6, 2},
                     .classes = 3},
              5e-5);
}

MR_TEST(models_of_numbers_train_alike_on_any_number_of_replicas)
{
    static const char *const models[] = {
        "embedding(11, 4).flatten().dense(6, activation=\"relu\").dense(3)",
        "category_encoding(11, output_mode=\"count\").dense(3)",
        "rescaling(0.1).dense(6, activation=\"tanh\").dense(3)",
        "cast().normalization([5.0], [9.0]).dense(3)"};
    for (size_t t = 0; t < 4; t++)
        check_job(&(job){.model = models[t],
                         .loss = sparse,
                         .optimizer = "adam(learning_rate=0.02)",
                         .rank = 1,
                         .shape = {5},
                         .ids = 11,
                         .classes = 3},
                  2e-5);
}

/* Without synchronized the moments are of fewer rows, so losses differ; copies do not. */
MR_TEST(batch_norm_keeps_replicas_equal)
{
    const job j = {.model = "conv2d(4, 3).batch_norm(momentum=0.5).flatten().dense(3)",
                   .loss = sparse,
                   .optimizer = "sgd(learning_rate=0.05)",
                   .rank = 3,
                   .shape = {5, 6, 2},
                   .classes = 3};
    for (size_t n = 1; n <= 4; n++) {
        losses l = train(&j, n);
        mr_test_context("%zu replicas", n);
        mr_check(l.of[3 * EPOCHS - 3] < l.of[0]);
    }
}

MR_TEST(residual_models_train_alike_on_any_number_of_replicas)
{
    check_job(&(job){.model =
                         "conv2d(4, 3, padding=\"same\", use_bias=false).residual(conv2d(4, 3, "
                         "padding=\"same\").layer_norm().activation(\"relu\"), "
                         "name=\"block\").residual(batch_norm(synchronized=true).conv2d(6, 3, "
                         "strides=2, padding=\"same\"), "
                         "projection=true).global_average_pool().dense(3)",
                     .loss = sparse,
                     .optimizer = "adam(learning_rate=0.01, global_clipnorm=5.0)",
                     .rank = 3,
                     .shape = {6, 5, 2},
                     .classes = 3},
              5e-5);
}

static void check_names(const char *text, int rank, const int64_t *shape, const char *const *want)
{
    mr_strategy *s = NULL;
    mr_model *m = NULL;
    size_t n = 0;
    mr_test_context("%s", text);
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 1}, &st), &st);
    mr_ok(mr_model_parse(&m, text, &st), &st);
    mr_ok(mr_model_build(m, s, rank, shape, NULL, &st), &st);
    for (; want[n]; n++)
        mr_eq_str(mr_variable_name(mr_model_variable(m, n)), want[n]);
    mr_eq_u64(mr_model_n_variables(m), n);
    mr_model_free(m);
    mr_strategy_free(s);
}

MR_TEST(variables_are_called_by_layer_and_number)
{
    static const char *const two[] = {"conv2d/kernel",  "conv2d/bias",  "conv2d_1/kernel",
                                      "conv2d_1/bias",  "dense/kernel", "dense/bias",
                                      "dense_1/kernel", "dense_1/bias", NULL};
    static const char *const named[] = {"dense/kernel",   "head/kernel",  "head/bias",
                                        "dense_1/kernel", "dense_1/bias", NULL};
    check_names("conv2d(2, 3).conv2d(2, 3).flatten().dense(4).dense(2)", 3, (int64_t[]){6, 6, 1},
                two);
    static const char *const norms[] = {"dense/kernel",
                                        "dense/bias",
                                        "batch_norm/gamma",
                                        "batch_norm/beta",
                                        "batch_norm/moving_mean",
                                        "batch_norm/moving_variance",
                                        "layer_norm/gamma",
                                        "layer_norm/beta",
                                        NULL};
    check_names("dense(4).batch_norm().layer_norm()", 1, (int64_t[]){5}, norms);
    static const char *const around[] = {"dense/kernel",
                                         "dense/bias",
                                         "dense_1/kernel",
                                         "dense_1/bias",
                                         "residual_1/kernel",
                                         "residual_1/bias",
                                         "dense_2/kernel",
                                         "dense_2/bias",
                                         "skip/kernel",
                                         "skip/bias",
                                         "dense_3/kernel",
                                         "dense_3/bias",
                                         NULL};
    check_names(
        "dense(4).residual(dense(4)).residual(dense(3), projection=true).residual(dense(2), "
        "projection=true, name=\"skip\")",
        1, (int64_t[]){5}, around);
    check_names("dense(4, use_bias=false).dense(3, name=\"head\").dense(2)", 1, (int64_t[]){5},
                named);
}

MR_TEST(models_without_memory_leave_nothing)
{
    mr_fault_each_allocation(n)
    {
        mr_model *m = NULL;
        mr_code rc = mr_model_parse(&m,
                                    "dense(4).residual(dense(3).residual(dense(3), "
                                    "name=\"inner\"), projection=true).dense(2)",
                                    &st);
        mr_fault_expect(rc, &st);
        mr_model_free(rc == MR_OK ? m : NULL);
    }
}

MR_TEST(bad_names_of_layers_are_refused)
{
    static const struct {
        const char *text, *says;
    } cases[] = {{"dense(4, name=\"a/b\")", "letters, digits"},
                 {"dense(4, name=\"\")", "letters, digits"},
                 {"dense(4, name=\"..\")", "letters, digits"},
                 {"dense(4, name=7)", "name"},
                 {"dense(4, name=\"a\").dense(4, name=\"a\")", "two layers are called \"a\""},
                 {"dense(4).dense(4, name=\"dense\")", "two layers are called \"dense\""},
                 {"dense(4, name=\"01234567890123456789012345678901234567890123456789012345678901"
                  "234\")",
                  "at most 63"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_model *m = NULL;
        mr_test_context("%s", cases[i].text);
        mr_code_is(mr_model_parse(&m, cases[i].text, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].says);
        mr_check(m == NULL);
    }
}
