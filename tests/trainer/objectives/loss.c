/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/objectives/loss.h"
#include <math.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "trainer/objectives/metric.h"
#include "trainer/objectives/optimizer.h"

static mr_status st;

static mr_array view(mr_dtype t, int rank, const int64_t *shape, const void *data)
{
    mr_array a = {.dtype = t, .rank = (int8_t)rank, .rows = 1, .data = (void *)(uintptr_t)data};
    if (rank > 0)
        memcpy(a.shape, shape, (size_t)rank * sizeof *shape);
    return a;
}

/* A call of a loss in a step of one replica; everything of it is in the host's memory. */
typedef struct call {
    const mr_loss *l;
    const mr_array *labels, *x, *weights;
    int64_t first;
    double scale, sum;
    float *out, *gradient;
} call;

static mr_code compute_loss(mr_replica *r, void *ctx, mr_status *status)
{
    call *c = ctx;
    mr_array labels, x, weights;
    mr_stream *s = mr_replica_stream(r);
    void *sum;
    MR_TRY(mr_replica_scratch(r, sizeof c->sum, &sum, status));
    MR_TRY(mr_replica_to_device(r, c->labels, &labels, status));
    MR_TRY(mr_replica_to_device(r, c->x, &x, status));
    if (c->weights)
        MR_TRY(mr_replica_to_device(r, c->weights, &weights, status));
    const mr_loss_opts o = {.first_row = c->first,
                            .scale = c->scale,
                            .sample_weight = c->weights ? &weights : NULL,
                            .sum = sum};
    size_t out_bytes = (size_t)x.shape[0] * sizeof(float), bytes = mr_array_row_bytes(&x);
    void *out, *gradient = NULL;
    MR_TRY(mr_replica_scratch(r, out_bytes, &out, status));
    if (c->gradient)
        MR_TRY(mr_replica_scratch(r, bytes, &gradient, status));
    MR_TRY(mr_loss_compute(c->l, r, &labels, &x, &o, out, gradient, status));
    MR_TRY(mr_stream_copy(s, c->out, out, out_bytes, status));
    MR_TRY(mr_stream_copy(s, &c->sum, sum, sizeof c->sum, status));
    return c->gradient ? mr_stream_copy(s, c->gradient, gradient, bytes, status) : MR_OK;
}

static mr_code run_loss(call *c)
{
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 1}, &st), &st);
    mr_code rc = mr_strategy_run(s, compute_loss, c, &st);
    mr_strategy_free(s);
    return rc;
}

static mr_code loss_compute(const mr_loss *l, const mr_array *labels, const mr_array *x,
                            int64_t first, double scale, float *out, float *gradient)
{
    return run_loss(&(call){l, labels, x, NULL, first, scale, 0, out, gradient});
}

/* Two examples of width three against values worked out by hand in double precision. */
static void check_loss(const char *text, const mr_array *labels, const float *x, const double *want)
{
    mr_loss *l = NULL;
    float out[2], grad[6];
    mr_array p = view(MR_FLOAT32, 2, (int64_t[]){2, 3}, x);
    mr_test_context("%s", text);
    mr_ok(mr_loss_parse(&l, text, &st), &st);
    mr_ok(loss_compute(l, labels, &p, 0, 0.5, out, grad), &st);
    for (int i = 0; i < 2; i++)
        mr_eq_f64(out[i], want[i], 1e-6 * (1 + fabs(want[i])));
    for (int i = 0; i < 6; i++) {
        float moved[6], up[2], down[2];
        memcpy(moved, x, sizeof moved);
        mr_array q = view(MR_FLOAT32, 2, (int64_t[]){2, 3}, moved);
        moved[i] = x[i] + 1e-3f;
        mr_ok(loss_compute(l, labels, &q, 0, 1, up, NULL), &st);
        moved[i] = x[i] - 1e-3f;
        mr_ok(loss_compute(l, labels, &q, 0, 1, down, NULL), &st);
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
    mr_ok(loss_compute(l, &y, &p, 0, 1, out, NULL), &st);
    mr_eq_f64(out[0], 2e4, 0);
    mr_loss_free(l);
    p = view(MR_FLOAT32, 2, (int64_t[]){2, 1}, x);
    y = view(MR_FLOAT32, 1, (int64_t[]){2}, bits);
    mr_ok(mr_loss_parse(&l, "binary_crossentropy(from_logits=true)", &st), &st);
    mr_ok(loss_compute(l, &y, &p, 0, 1, out, NULL), &st);
    mr_eq_f64(out[0], 1e4, 0);
    mr_eq_f64(out[1], 0, 0);
    mr_loss_free(l);
}

/* Probabilities are kept 1e-7 away from 0 and 1; one that was moved no longer decides the loss. */
MR_TEST(the_gradient_of_a_clipped_probability_is_zero)
{
    float x[3] = {0, 1, 0.25f}, targets[3] = {0, 1, 1}, loss[1], g[3];
    int64_t class = 2;
    const double eps = 1e-7, sum = eps + (1 - eps) + 0.25;
    mr_loss *l = NULL;
    mr_array p = view(MR_FLOAT32, 2, (int64_t[]){1, 3}, x),
             sparse = view(MR_INT64, 1, (int64_t[]){1}, &class),
             binary = view(MR_FLOAT32, 2, (int64_t[]){1, 3}, targets);
    mr_ok(mr_loss_parse(&l, "sparse_categorical_crossentropy(from_logits=false)", &st), &st);
    mr_ok(loss_compute(l, &sparse, &p, 0, 2, loss, g), &st);
    mr_eq_f64(loss[0], log(sum) - log(0.25), 1e-6);
    mr_check(g[0] == 0 && g[1] == 0);
    mr_eq_f64(g[2], 2 * (1 / sum - 1 / 0.25), 1e-5);
    class = 0; /* the labelled one is the one that was moved */
    mr_ok(loss_compute(l, &sparse, &p, 0, 2, loss, g), &st);
    mr_eq_f64(loss[0], log(sum) - log(eps), 1e-4);
    mr_check(g[0] == 0 && g[1] == 0);
    mr_eq_f64(g[2], 2 / sum, 1e-5);
    mr_loss_free(l);
    mr_ok(mr_loss_parse(&l, "binary_crossentropy(from_logits=false)", &st), &st);
    mr_ok(loss_compute(l, &binary, &p, 0, 2, loss, g), &st);
    mr_eq_f64(loss[0], -log(0.25) / 3, 1e-6);
    mr_check(g[0] == 0 && g[1] == 0);
    mr_eq_f64(g[2], -2 / 0.25 / 3, 1e-5);
    mr_loss_free(l);
}

MR_TEST(bad_labels_are_named)
{
    mr_loss *l = NULL;
    float x[6] = {0}, out[2];
    int64_t classes[4] = {2, 3};
    float floats[] = {1, 2};
    mr_array p = view(MR_FLOAT32, 2, (int64_t[]){2, 3}, x),
             y = view(MR_INT64, 1, (int64_t[]){2}, classes);
    mr_ok(mr_loss_parse(&l, "sparse_categorical_crossentropy", &st), &st);
    mr_code_is(loss_compute(l, &y, &p, 64, 1, out, NULL), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "label 3 of row 65");
    classes[1] = -1;
    mr_code_is(loss_compute(l, &y, &p, 0, 1, out, NULL), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "label -1 of row 1");
    y = view(MR_FLOAT32, 1, (int64_t[]){2}, floats);
    mr_code_is(loss_compute(l, &y, &p, 0, 1, out, NULL), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "cast");
    y = view(MR_INT64, 2, (int64_t[]){2, 2}, classes);
    mr_code_is(loss_compute(l, &y, &p, 0, 1, out, NULL), MR_INVALID_ARGUMENT, &st);
    y = view(MR_INT64, 1, (int64_t[]){2}, classes);
    mr_array maps = view(MR_FLOAT32, 3, (int64_t[]){2, 3, 1}, x);
    mr_code_is(loss_compute(l, &y, &maps, 0, 1, out, NULL), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "flatten()");
    mr_loss_free(l);
    mr_ok(mr_loss_parse(&l, "categorical_crossentropy", &st), &st);
    mr_code_is(loss_compute(l, &y, &p, 0, 1, out, NULL), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "sparse_categorical_crossentropy");
    mr_loss_free(l);
    mr_code_is(mr_loss_parse(&l, "hinge", &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "there is no loss 'hinge'");
    mr_code_is(mr_loss_parse(&l, "SparseCategoricalCrossentropy", &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "did you mean 'sparse_categorical_crossentropy'?");
}

MR_TEST(sample_weights_multiply_losses_and_gradients)
{
    static const float x[] = {0.5f, -1, 2, 0.25f, 0, -3};
    const int64_t classes[] = {2, 0};
    const float halves[] = {0.5f, 3};
    const int32_t whole[] = {2, 3};
    const bool on[] = {true, false};
    mr_array p = view(MR_FLOAT32, 2, (int64_t[]){2, 3}, x),
             y = view(MR_INT64, 1, (int64_t[]){2}, classes);
    const mr_array weights[] = {
        view(MR_FLOAT32, 1, (int64_t[]){2}, halves), view(MR_FLOAT32, 2, (int64_t[]){2, 1}, halves),
        view(MR_INT32, 1, (int64_t[]){2}, whole), view(MR_BOOL, 1, (int64_t[]){2}, on),
        view(MR_FLOAT32, 0, NULL, halves)};
    const float values[][2] = {{0.5f, 3}, {0.5f, 3}, {2, 3}, {1, 0}, {0.5f, 0.5f}};
    float plain[2], out[2], slopes[6], g[6];
    mr_loss *l = NULL;
    mr_ok(mr_loss_parse(&l, "sparse_categorical_crossentropy", &st), &st);
    mr_ok(loss_compute(l, &y, &p, 0, 0.25, plain, slopes), &st);
    for (size_t k = 0; k < 5; k++) {
        call c = {l, &y, &p, &weights[k], 0, 0.25, 0, out, g};
        mr_test_context("weights %zu", k);
        mr_ok(run_loss(&c), &st);
        for (int i = 0; i < 2; i++)
            mr_eq_f64(out[i], values[k][i] * plain[i], 1e-6);
        for (int i = 0; i < 6; i++)
            mr_eq_f64(g[i], values[k][i / 3] * slopes[i], 1e-6);
        mr_eq_f64(c.sum, (double)out[0] + out[1], 1e-12);
    }
    mr_array three = view(MR_FLOAT32, 1, (int64_t[]){3}, x);
    call c = {l, &y, &p, &three, 0, 1, 0, out, g};
    mr_code_is(run_loss(&c), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "a number for each of the 2 examples");
    mr_loss_free(l);
}

typedef struct update {
    mr_optimizer *o;
    mr_variable *v;
    float gradient[2][2];
} update;

static mr_code apply(mr_replica *r, void *ctx, mr_status *status)
{
    update *u = ctx;
    float *host = u->gradient[mr_replica_id(r)], *g;
    MR_TRY(test_to_device(r, host, sizeof u->gradient[0], (void **)&g, status));
    return mr_optimizer_apply_gradients(u->o, r, &u->v, &g, 1, status);
}

/* Three updates with the gradients 0.25 and -1 shared out over two replicas. */
static void check_optimizer(const char *text, const double *want)
{
    mr_strategy *s = NULL;
    update u = {0};
    float w[2] = {1, 2}, other[2];
    mr_test_context("%s", text);
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    mr_ok(mr_optimizer_parse(&u.o, text, &st), &st);
    mr_ok(mr_variable_new(&u.v, s, 1, (int64_t[]){2}, NULL, &st), &st);
    mr_ok(mr_variable_assign(u.v, w, &st), &st);
    for (int i = 0; i < 3; i++) {
        memcpy(u.gradient, ((float[2][2]){{0.125f, -3}, {0.125f, 2}}), sizeof u.gradient);
        mr_ok(mr_strategy_run(s, apply, &u, &st), &st);
    }
    test_read_copy(s, u.v, 0, w);
    test_read_copy(s, u.v, 1, other);
    for (int i = 0; i < 2; i++) {
        mr_eq_f64(w[i], want[i], 1e-6);
        mr_eq_f64(other[i], w[i], 0);
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
    mr_code_is(mr_optimizer_parse(&o, "adagard", &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_optimizer_parse(&o, "sgd(learning_rate=-1)", &st), MR_INVALID_ARGUMENT, &st);
}

typedef struct addition {
    mr_metric *m;
    const mr_array *y, *x;
} addition;

static mr_code add_to_metric(mr_replica *r, void *ctx, mr_status *status)
{
    addition *a = ctx;
    mr_array y, x;
    if (a->y)
        MR_TRY(mr_replica_to_device(r, a->y, &y, status));
    MR_TRY(mr_replica_to_device(r, a->x, &x, status));
    return mr_metric_update(a->m, r, a->y ? &y : NULL, &x, status);
}

static double metric_of(const char *name, double threshold, const mr_array *y, const mr_array *x)
{
    mr_metric *m = NULL;
    mr_strategy *s = NULL;
    mr_test_context("%s", name);
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 1}, &st), &st);
    mr_ok(mr_metric_parse(&m, name, &st), &st);
    addition a = {m, y, x};
    if (threshold >= 0)
        mr_metric_set_threshold(m, threshold);
    mr_eq_f64(mr_metric_result(m), 0, 0);
    mr_ok(mr_strategy_run(s, add_to_metric, &a, &st), &st);
    mr_ok(mr_metric_reset(m, &st), &st);
    mr_ok(mr_strategy_run(s, add_to_metric, &a, &st), &st);
    mr_ok(mr_strategy_run(s, add_to_metric, &a, &st), &st);
    double result = mr_metric_result(m);
    mr_metric_free(m);
    mr_strategy_free(s);
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
    /* The first of equal values is the largest; the threshold itself is not above it. */
    float equal[] = {0.5f, 0.5f, 0.1f, 0.2f, 0.4f, 0.4f};
    mr_array ties = view(MR_FLOAT32, 2, (int64_t[]){2, 3}, equal);
    mr_array tie = view(MR_FLOAT32, 2, (int64_t[]){6, 1}, equal);
    int64_t firsts[] = {0, 1}, none[] = {0, 0, 0, 0, 0, 0};
    mr_array first = view(MR_INT64, 1, (int64_t[]){2}, firsts);
    mr_array below = view(MR_INT64, 1, (int64_t[]){6}, none);
    mr_eq_f64(metric_of("accuracy", -1, &first, &ties), 1, 1e-12);
    mr_eq_f64(metric_of("binary_accuracy", 0.5, &below, &tie), 1, 1e-12);
    mr_eq_f64(metric_of("mean", -1, NULL, &p), 2.0 / 6, 1e-7);
    mr_eq_f64(metric_of("mse", -1, &full, &p), (0.01 + 0.09 + 0.04 + 0.36 + 0.09 + 0.81) / 6, 1e-7);
}
