/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loss.h"
#include <math.h>
#include <string.h>
#include "tests/harness.h"
#include "trainer/metric.h"
#include "trainer/optimizer.h"

static mr_status st;

static mr_array view(mr_dtype t, int rank, const int64_t *shape, const void *data)
{
    mr_array a = {.dtype = t, .rank = (int8_t)rank, .rows = 1, .data = (void *)(uintptr_t)data};
    memcpy(a.shape, shape, (size_t)rank * sizeof *shape);
    return a;
}

/* Two examples of width three against values worked out by hand in double precision. */
static void check_loss(const char *text, const mr_array *labels, const float *x, const double *want)
{
    mr_loss *l = NULL;
    float out[2], grad[6];
    mr_array p = view(MR_FLOAT32, 2, (int64_t[]){2, 3}, x);
    mr_test_context("%s", text);
    mr_ok(mr_loss_parse(&l, text, &st), &st);
    mr_ok(mr_loss_compute(l, labels, &p, 0, 0.5, out, grad, &st), &st);
    for (int i = 0; i < 2; i++)
        mr_eq_f64(out[i], want[i], 1e-6 * (1 + fabs(want[i])));
    for (int i = 0; i < 6; i++) {
        float moved[6], up[2], down[2];
        memcpy(moved, x, sizeof moved);
        mr_array q = view(MR_FLOAT32, 2, (int64_t[]){2, 3}, moved);
        moved[i] = x[i] + 1e-3f;
        mr_ok(mr_loss_compute(l, labels, &q, 0, 1, up, NULL, &st), &st);
        moved[i] = x[i] - 1e-3f;
        mr_ok(mr_loss_compute(l, labels, &q, 0, 1, down, NULL, &st), &st);
        double slope = ((double)up[0] + up[1] - down[0] - down[1]) / 2e-3;
        mr_eq_f64(grad[i], 0.5 * slope, 2e-3);
    }
    mr_loss_free(l);
}

MR_TEST(losses_and_their_gradients_have_known_values)
{
    float x[] = {0.5f, -1, 2, 0.25f, 0, -3}, p[] = {0.2f, 0.7f, 0.1f, 0.6f, 0.3f, 0.1f};
    int64_t classes[] = {2, 0};
    float bits[] = {1, 0, 1, 0, 0, 1};
    mr_array sparse = view(MR_INT64, 1, (int64_t[]){2}, classes);
    mr_array column = view(MR_INT64, 2, (int64_t[]){2, 1}, classes);
    mr_array many = view(MR_FLOAT32, 2, (int64_t[]){2, 3}, bits);
    double logits[2], probabilities[] = {-log(0.1), -log(0.6)}, mse[] = {0, 0}, bce[] = {0, 0};
    double of_p[] = {0, 0};
    for (int i = 0; i < 2; i++) {
        double sum = 0;
        for (int j = 0; j < 3; j++) {
            double v = x[i * 3 + j], z = bits[i * 3 + j], q = 1 / (1 + exp(-v)), r = p[i * 3 + j];
            sum += exp(v);
            mse[i] += (v - z) * (v - z) / 3;
            bce[i] -= (z * log(q) + (1 - z) * log(1 - q)) / 3;
            of_p[i] -= (z * log(r) + (1 - z) * log(1 - r)) / 3;
        }
        logits[i] = log(sum) - x[i * 3 + classes[i]];
    }
    check_loss("sparse_categorical_crossentropy(from_logits=true)", &sparse, x, logits);
    check_loss("sparse_categorical_crossentropy", &column, x, logits);
    check_loss("sparse_categorical_crossentropy(from_logits=false)", &sparse, p, probabilities);
    check_loss("mse", &many, x, mse);
    check_loss("binary_crossentropy(from_logits=true)", &many, x, bce);
    check_loss("binary_crossentropy(from_logits=false)", &many, p, of_p);
}

MR_TEST(large_logits_do_not_overflow)
{
    mr_loss *l = NULL;
    float x[] = {1e4f, -1e4f}, out[2], bits[] = {0, 0};
    int32_t classes[] = {1};
    mr_array p = view(MR_FLOAT32, 2, (int64_t[]){1, 2}, x),
             y = view(MR_INT32, 1, (int64_t[]){1}, classes);
    mr_ok(mr_loss_parse(&l, "sparse_categorical_crossentropy(from_logits=true)", &st), &st);
    mr_ok(mr_loss_compute(l, &y, &p, 0, 1, out, NULL, &st), &st);
    mr_eq_f64(out[0], 2e4, 0);
    mr_loss_free(l);
    p = view(MR_FLOAT32, 2, (int64_t[]){2, 1}, x);
    y = view(MR_FLOAT32, 1, (int64_t[]){2}, bits);
    mr_ok(mr_loss_parse(&l, "binary_crossentropy(from_logits=true)", &st), &st);
    mr_ok(mr_loss_compute(l, &y, &p, 0, 1, out, NULL, &st), &st);
    mr_eq_f64(out[0], 1e4, 0);
    mr_eq_f64(out[1], 0, 0);
    mr_loss_free(l);
}

MR_TEST(bad_labels_are_named)
{
    mr_loss *l = NULL;
    float x[6] = {0}, out[2];
    int64_t classes[] = {2, 3};
    float floats[] = {1, 2};
    mr_array p = view(MR_FLOAT32, 2, (int64_t[]){2, 3}, x),
             y = view(MR_INT64, 1, (int64_t[]){2}, classes);
    mr_ok(mr_loss_parse(&l, "sparse_categorical_crossentropy", &st), &st);
    mr_code_is(mr_loss_compute(l, &y, &p, 64, 1, out, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "label 3 of row 65");
    classes[1] = -1;
    mr_code_is(mr_loss_compute(l, &y, &p, 0, 1, out, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "label -1 of row 1");
    y = view(MR_FLOAT32, 1, (int64_t[]){2}, floats);
    mr_code_is(mr_loss_compute(l, &y, &p, 0, 1, out, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "cast");
    y = view(MR_INT64, 2, (int64_t[]){2, 2}, classes);
    mr_code_is(mr_loss_compute(l, &y, &p, 0, 1, out, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_loss_free(l);
    mr_code_is(mr_loss_parse(&l, "hinge", &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "there is no loss 'hinge'");
}

typedef struct update {
    mr_optimizer *o;
    mr_variable *v;
    float gradient[2][2];
} update;

static mr_code apply(mr_replica *r, void *ctx, mr_status *status)
{
    update *u = ctx;
    float *g = u->gradient[mr_replica_id(r)];
    return mr_optimizer_apply_gradients(u->o, r, &u->v, &g, 1, status);
}

/* Three updates with the gradients 0.25 and -1 shared out over two replicas. */
static void check_optimizer(const char *text, const double *want)
{
    mr_strategy *s = NULL;
    update u = {0};
    float w[2] = {1, 2};
    mr_test_context("%s", text);
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    mr_ok(mr_optimizer_parse(&u.o, text, &st), &st);
    mr_ok(mr_variable_new(&u.v, s, 1, (int64_t[]){2}, NULL, &st), &st);
    mr_variable_assign(u.v, w);
    for (int i = 0; i < 3; i++) {
        memcpy(u.gradient, ((float[2][2]){{0.125f, -3}, {0.125f, 2}}), sizeof u.gradient);
        mr_ok(mr_strategy_run(s, apply, &u, &st), &st);
    }
    for (int i = 0; i < 2; i++) {
        mr_eq_f64(mr_variable_copy(u.v, 0)[i], want[i], 1e-6);
        mr_eq_f64(mr_variable_copy(u.v, 1)[i], mr_variable_copy(u.v, 0)[i], 0);
    }
    mr_optimizer_free(u.o);
    mr_variable_free(u.v);
    mr_strategy_free(s);
}

MR_TEST(optimizers_follow_their_formulas)
{
    double g[] = {0.25, -1}, sgd[2], momentum[2], nesterov[2], adam[2];
    for (int i = 0; i < 2; i++) {
        double w = i + 1, m = 0, v = 0;
        sgd[i] = w - 3 * 0.01 * g[i];
        for (int t = 0; t < 3; t++)
            w += m = 0.9 * m - 0.1 * g[i];
        momentum[i] = w;
        w = i + 1, m = 0;
        for (int t = 0; t < 3; t++) {
            m = 0.9 * m - 0.1 * g[i];
            w += 0.9 * m - 0.1 * g[i];
        }
        nesterov[i] = w;
        w = i + 1, m = 0;
        for (int t = 1; t <= 3; t++) {
            m = 0.9 * m + 0.1 * g[i];
            v = 0.999 * v + 0.001 * g[i] * g[i];
            w -= 0.001 * sqrt(1 - pow(0.999, t)) / (1 - pow(0.9, t)) * m / (sqrt(v) + 1e-7);
        }
        adam[i] = w;
    }
    check_optimizer("sgd", sgd);
    check_optimizer("sgd(0.1, momentum=0.9)", momentum);
    check_optimizer("sgd(learning_rate=0.1, momentum=0.9, nesterov=true)", nesterov);
    check_optimizer("adam", adam);
}

MR_TEST(the_learning_rate_can_be_read_and_set)
{
    mr_optimizer *o = NULL;
    mr_ok(mr_optimizer_parse(&o, "adam(learning_rate=1e-2)", &st), &st);
    mr_eq_f64(mr_optimizer_learning_rate(o), 1e-2, 1e-9);
    mr_optimizer_set_learning_rate(o, 0.5);
    mr_eq_f64(mr_optimizer_learning_rate(o), 0.5, 0);
    mr_optimizer_free(o);
    mr_code_is(mr_optimizer_parse(&o, "adagrad", &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_optimizer_parse(&o, "sgd(learning_rate=-1)", &st), MR_INVALID_ARGUMENT, &st);
}

static double metric_of(const char *name, double threshold, const mr_array *y, const mr_array *x)
{
    mr_metric *m = NULL;
    mr_test_context("%s", name);
    mr_ok(mr_metric_parse(&m, name, &st), &st);
    if (threshold >= 0)
        mr_metric_set_threshold(m, threshold);
    mr_eq_f64(mr_metric_result(m), 0, 0);
    mr_ok(mr_metric_update(m, NULL, y, x, &st), &st);
    mr_metric_reset(m);
    mr_ok(mr_metric_update(m, NULL, y, x, &st), &st);
    mr_ok(mr_metric_update(m, NULL, y, x, &st), &st);
    double result = mr_metric_result(m);
    mr_metric_free(m);
    return result;
}

MR_TEST(metrics_average_over_all_that_was_added)
{
    float x[] = {0.1f, 0.7f, 0.2f, 0.6f, 0.3f, 0.1f}, one_hot[] = {0, 1, 0, 0, 0, 1};
    int64_t classes[] = {1, 2}, bits[] = {0, 1, 0, 1, 0, 1};
    mr_array p = view(MR_FLOAT32, 2, (int64_t[]){2, 3}, x);
    mr_array sparse = view(MR_INT64, 1, (int64_t[]){2}, classes);
    mr_array full = view(MR_FLOAT32, 2, (int64_t[]){2, 3}, one_hot);
    mr_array single = view(MR_FLOAT32, 2, (int64_t[]){6, 1}, x),
             binary = view(MR_INT64, 1, (int64_t[]){6}, bits);
    mr_eq_f64(metric_of("accuracy", -1, &sparse, &p), 0.5, 1e-12);
    mr_eq_f64(metric_of("accuracy", -1, &full, &p), 0.5, 1e-12);
    mr_eq_f64(metric_of("accuracy", -1, &binary, &single), 5.0 / 6, 1e-12);
    mr_eq_f64(metric_of("binary_accuracy", 0, &binary, &single), 0.5, 1e-12);
    mr_eq_f64(metric_of("mean", -1, NULL, &p), 2.0 / 6, 1e-7);
    mr_eq_f64(metric_of("mse", -1, &full, &p), (0.01 + 0.09 + 0.04 + 0.36 + 0.09 + 0.81) / 6, 1e-7);
}
