/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizing layers: values that Keras gives, gradients, running means over replicas. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/layer_rig.h"

static mr_status st;

static const float rows[] = {1, -2, 3, 0.5f, 4, -1, 2, 2, 2, -1, 0.25f, 6};
static const float gammas[] = {1, 2, -0.5f}, betas[] = {0, 1, 0.5f};

static void check_rows(const rig *r, const double *want)
{
    for (size_t i = 0; i < 12; i++)
        mr_eq_f64(r->y[i], want[i], 1e-5);
}

static rig open_rows(bench *b, const char *text)
{
    rig r = rig_open(b, text, 1, (int64_t[]){3}, 4);
    memcpy(r.x, rows, sizeof rows);
    memcpy(r.w[0], gammas, sizeof gammas);
    memcpy(r.w[1], betas, sizeof betas);
    return r;
}

ON_DEVICES(norms_have_the_values_of_keras)
{
    static const double training[] = {0.344942, -1.76792, 0.40008, -0.11498,  3.654944, 1.199441,
                                      1.264786, 1.847322, 0.59992, -1.494747, 0.265654, -0.199441};
    static const double inference[] = {0.92501,   -2.561902, -0.60981, 0.431671,
                                       7.584763,  1.004459,  1.911687, 4.202542,
                                       -0.206243, -1.048345, 1.243097, -1.820511};
    static const double by_row[] = {0.162202, -1.595235, -0.067708, -0.318187, 3.704587, 1.017053,
                                    0,        1,         0.5,       -0.902116, 0.015873, -0.19709};
    static const float moving[] = {0.0625f, 0.10625f, 0.25f, 1.017188f, 1.388672f, 1.525f};
    rig r = open_rows(b, "batch_norm(momentum=0.9, epsilon=0.01)");
    rig_run(&r, true);
    check_rows(&r, training);
    for (size_t j = 0; j < 3; j++) { /* what the running means move to, a tenth of the way */
        mr_eq_f64(0.1 * r.dw[2][j], moving[j], 1e-5);
        mr_eq_f64(0.9 + 0.1 * r.dw[3][j], moving[3 + j], 1e-5);
    }
    memcpy(r.w[2], moving, 3 * sizeof *moving);
    memcpy(r.w[3], moving + 3, 3 * sizeof *moving);
    r.training = false;
    rig_run(&r, false);
    check_rows(&r, inference);
    rig_close(&r);
    r = open_rows(b, "layer_norm()");
    rig_run(&r, false);
    check_rows(&r, by_row);
    rig_close(&r);
}

ON_DEVICES(norms_agree_with_finite_differences)
{
    static const char *const texts[] = {"batch_norm(epsilon=0.1)",
                                        "batch_norm(0.9, 0.1, false)",
                                        "batch_norm(epsilon=0.1, center=false, scale=false)",
                                        "layer_norm(0.1)",
                                        "layer_norm(0.1, center=false)",
                                        "layer_norm(epsilon=0.1, scale=false)"};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
        for (size_t n = 1; n <= 5; n += 4) {
            rig r = rig_open(b, texts[t], 3, (int64_t[]){3, 2, 5}, n);
            rig_check_gradients(&r, 1e-2, 1e-2);
            rig_close(&r);
            r = rig_open(b, texts[t], 1, (int64_t[]){7}, n);
            rig_check_gradients(&r, 1e-2, 1e-2);
            rig_close(&r);
        }
}

/* One step of a model that is a batch_norm alone, on n replicas, and what it left. */
typedef struct one_step {
    mr_model *m;
    mr_optimizer *o;
    size_t counts[3]; /* rows of each replica */
    float x[8 * 3], y[8 * 3];
    const float *dy;
} one_step;

static mr_code take_step(mr_replica *r, void *ctx, mr_status *status)
{
    one_step *p = ctx;
    size_t id = mr_replica_id(r), from = 0;
    for (size_t i = 0; i < id; i++)
        from += p->counts[i];
    mr_array y, x = {.dtype = MR_FLOAT32,
                     .rank = 2,
                     .rows = 1,
                     .shape = {(int64_t)p->counts[id], 3},
                     .data = p->x + from * 3};
    size_t bytes = p->counts[id] * 3 * sizeof(float);
    MR_TRY(mr_model_forward(p->m, r, &x, &(mr_forward_opts){.training = true}, &y, status));
    MR_TRY(mr_stream_copy(mr_replica_stream(r), p->y + from * 3, y.data, bytes, status));
    MR_TRY(mr_stream_copy(mr_replica_stream(r), mr_model_output_gradient(p->m, r), p->dy + from * 3,
                          bytes, status));
    MR_TRY(mr_model_backward(p->m, r, status));
    return mr_model_apply_gradients(p->m, r, p->o, status);
}

/* variables: what the step left in gamma, beta and the running means of the first replica, which is
 * what it left in all of them. */
static void run_step(const char *text, const size_t *counts, size_t n, float *y,
                     float variables[8][16])
{
    mr_strategy *s = NULL;
    one_step p = {.m = NULL};
    float dy[24];
    memcpy(p.counts, counts, n * sizeof *counts);
    test_fill(p.x, 24, 9);
    test_fill(dy, 24, 10);
    p.dy = dy;
    /* take_step() gives pointers of the host to the devices. */
    static const char *const devices[] = {"cpu:0", "cpu:1", "cpu:2"};
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.devices = devices, .n_devices = n}, &st),
          &st);
    mr_ok(mr_model_parse(&p.m, text, &st), &st);
    mr_ok(mr_optimizer_parse(&p.o, "sgd(learning_rate=0.1)", &st), &st);
    mr_ok(mr_model_build(p.m, s, 1, (int64_t[]){3}, NULL, &st), &st);
    mr_ok(mr_strategy_run(s, take_step, &p, &st), &st);
    for (size_t v = 0; v < mr_model_n_variables(p.m); v++) {
        mr_variable *w = mr_model_variable(p.m, v);
        mr_ok(mr_variable_read(w, variables[v], &st), &st);
        for (size_t i = 1; i < n; i++)
            mr_eq_mem(mr_variable_copy(w, i), mr_variable_copy(w, 0),
                      mr_variable_size(w) * sizeof(float));
    }
    memcpy(y, p.y, sizeof p.y);
    mr_optimizer_free(p.o);
    mr_model_free(p.m);
    mr_strategy_free(s);
}

MR_TEST(running_means_are_the_mean_over_replicas_with_rows)
{
    static const size_t split[] = {5, 0, 3};
    float y[24], v[8][16], x[24];
    run_step("batch_norm(momentum=0.9)", split, 3, y, v);
    test_fill(x, 24, 9);
    for (int j = 0; j < 3; j++) {
        double mean[2] = {0}, variance[2] = {0};
        for (int i = 0; i < 8; i++)
            mean[i > 4] += x[3 * i + j] / (i > 4 ? 3.0 : 5);
        for (int i = 0; i < 8; i++)
            variance[i > 4] += pow(x[3 * i + j] - mean[i > 4], 2) / (i > 4 ? 3.0 : 5);
        mr_eq_f64(v[2][j], 0.1 * (mean[0] + mean[1]) / 2, 1e-6);
        mr_eq_f64(v[3][j], 0.9 + 0.1 * (variance[0] + variance[1]) / 2, 1e-6);
    }
}

MR_TEST(synchronized_moments_are_those_of_one_replica_with_all_rows)
{
    static const size_t all[] = {8}, splits[][3] = {{5, 0, 3}, {0, 8, 0}, {1, 3, 4}};
    static const char *const texts[] = {
        "batch_norm(synchronized=true)", "dense(3, use_bias=false).batch_norm(synchronized=true)",
        "dense(3).batch_norm(synchronized=true, scale=false).dense(3, activation=\"tanh\")"};
    for (size_t t = 0; t < 3; t++)
        for (size_t k = 0; k < 3; k++) {
            float want_y[24], y[24], want[8][16] = {{0}}, v[8][16] = {{0}};
            mr_test_context("%s, split %zu", texts[t], k);
            run_step(texts[t], all, 1, want_y, want);
            run_step(texts[t], splits[k], 3, y, v);
            for (size_t i = 0; i < 24; i++)
                mr_eq_f64(y[i], want_y[i], 1e-5);
            for (size_t i = 0; i < 8 * 16; i++)
                mr_eq_f64(v[i / 16][i % 16], want[i / 16][i % 16], 1e-5);
        }
}
