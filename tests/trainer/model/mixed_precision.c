/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision: what is rounded to bfloat16 and what is not, against plain loops. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "tests/trainer/kit/parts.h"
#include "tests/trainer/kit/pass.h"
#include "trainer/loop/fit.h"
#include "trainer/model/model.h"
#include "trainer/exchange/saved_model.h"

enum { ROWS = PASS_ROWS, IN = 4, MID = 3, OUT = 2 };
static mr_status st;

static float rounded(float v)
{
    return mr_bfloat_to_float(mr_float_to_bfloat(v));
}

/* Numbers that bfloat16 has not, but whose products and sums float32 has: multiples of 1/512. */
static void fill(float *v, size_t n, uint64_t seed)
{
    test_fill(v, n, seed);
    for (size_t i = 0; i < n; i++)
        v[i] = roundf(v[i] * 800) / 512;
}

/* Two dense layers: w1 [IN, MID], relu or tanh, w2 [MID, OUT]. */
static void plain(const pass *p, bool is_tanh, const float *w1, const float *w2, double *y,
                  double *g1, double *g2)
{
    const float *x = p->x[0].data;
    for (size_t i = 0; i < ROWS; i++) {
        float h[MID], dh[MID];
        for (size_t j = 0; j < MID; j++) {
            float sum = 0;
            for (size_t k = 0; k < IN; k++)
                sum += rounded(x[i * IN + k]) * rounded(w1[k * MID + j]);
            h[j] = rounded(is_tanh ? tanhf(sum) : sum > 0 ? sum : 0);
            dh[j] = 0;
        }
        for (size_t j = 0; j < MID; j++)
            for (size_t c = 0; c < OUT; c++) {
                float dy = rounded(p->dy[0][i * OUT + c]);
                y[i * OUT + c] += (double)h[j] * (double)rounded(w2[j * OUT + c]);
                g2[j * OUT + c] += (double)h[j] * (double)dy;
                dh[j] += dy * rounded(w2[j * OUT + c]);
            }
        for (size_t j = 0; j < MID; j++) { /* what comes from above is rounded, and what it makes */
            float slope = is_tanh ? 1 - h[j] * h[j] : h[j] > 0;
            for (size_t k = 0; k < IN; k++)
                g1[k * MID + j] +=
                    (double)rounded(x[i * IN + k]) * (double)rounded(rounded(dh[j]) * slope);
        }
    }
}

MR_TEST(products_are_of_rounded_numbers_forward_and_backward)
{
    for (size_t t = 2; t <= 7; t++) {
        const size_t n = t / 2;
        const bool is_tanh = t % 2;
        float w1[IN * MID], w2[MID * OUT];
        double y[ROWS * OUT] = {0}, g1[IN * MID] = {0}, g2[MID * OUT] = {0};
        mr_test_context("%zu replicas, %s", n, is_tanh ? "tanh" : "relu");
        mr_strategy *s = open_strategy(n);
        pass p = pass_open(is_tanh ? "input(4).dense(3, activation=\"tanh\", use_bias=false)"
                                     ".dense(2, use_bias=false)"
                                   : "input(4).dense(3, activation=\"relu\", use_bias=false)"
                                     ".dense(2, use_bias=false)",
                           s, &(mr_model_opts){.mixed_precision = true});
        fill(p.x[0].data, ROWS * IN, 1);
        fill(p.dy[0], ROWS * OUT, 2);
        fill(w1, IN * MID, 3);
        fill(w2, MID * OUT, 4);
        mr_ok(mr_variable_assign(mr_model_variable(p.m, 0), w1, &st), &st);
        mr_ok(mr_variable_assign(mr_model_variable(p.m, 1), w2, &st), &st);
        mr_ok(mr_strategy_run(s, pass_run, &p, &st), &st);
        plain(&p, is_tanh, w1, w2, y, g1, g2);
        for (size_t i = 0; i < ROWS * OUT; i++)
            mr_eq_f64((double)p.y[0][i], y[i], 1e-5);
        for (size_t i = 0; i < IN * MID; i++)
            mr_eq_f64((double)p.grads[0][i], g1[i], 1e-5);
        for (size_t i = 0; i < MID * OUT; i++)
            mr_eq_f64((double)p.grads[1][i], g2[i], 1e-5);
        pass_close(&p);
        mr_strategy_free(s);
    }
}

typedef struct applied {
    mr_model *m;
    float x[ROWS * 32], y[ROWS * 64];
} applied;

static mr_code apply(mr_replica *r, void *ctx, mr_status *status)
{
    applied *a = ctx;
    mr_array y,
        x = {.dtype = MR_FLOAT32, .rank = 4, .rows = 1, .shape = {ROWS, 4, 4, 2}, .data = a->x};
    MR_TRY(mr_replica_to_device(r, &x, &x, status));
    MR_TRY(mr_model_forward(a->m, r, &x, NULL, &y, status));
    mr_check(mr_array_row_bytes(&y) <= sizeof a->y);
    return mr_stream_copy(mr_replica_stream(r), a->y, y.data, mr_array_row_bytes(&y), status);
}

/* Also where the next layer takes it as it is. */
MR_TEST(what_a_layer_that_multiplies_gives_is_rounded)
{
    static applied a;
    for (int mixed = 0; mixed < 2; mixed++) {
        size_t others = 0;
        mr_strategy *s = open_strategy(1);
        mr_ok(mr_model_parse(&a.m, "conv2d(2, 1, use_bias=false).rescaling(1.0)", &st), &st);
        mr_ok(mr_model_build(a.m, s, 3, (int64_t[]){4, 4, 2},
                             &(mr_model_opts){.seed = 1, .mixed_precision = mixed}, &st),
              &st);
        test_fill(a.x, ROWS * 32, 7);
        mr_ok(mr_strategy_run(s, apply, &a, &st), &st);
        for (size_t i = 0; i < ROWS * 32; i++)
            others += memcmp(&a.y[i], &(float){rounded(a.y[i])}, sizeof *a.y) != 0;
        mr_check(mixed ? others == 0 : others > 100);
        mr_model_free(a.m);
        mr_strategy_free(s);
    }
}

MR_TEST(layers_that_multiply_nothing_round_nothing)
{
    static applied a;
    float y[2][ROWS * 32];
    for (int mixed = 0; mixed < 2; mixed++) {
        mr_strategy *s = open_strategy(1);
        mr_ok(mr_model_parse(&a.m, "rescaling(0.3).activation(\"tanh\").layer_norm()", &st), &st);
        mr_ok(mr_model_build(a.m, s, 3, (int64_t[]){4, 4, 2},
                             &(mr_model_opts){.mixed_precision = mixed}, &st),
              &st);
        test_fill(a.x, ROWS * 32, 7);
        mr_ok(mr_strategy_run(s, apply, &a, &st), &st);
        memcpy(y[mixed], a.y, sizeof y[mixed]);
        mr_model_free(a.m);
        mr_strategy_free(s);
    }
    mr_eq_mem(y[0], y[1], sizeof y[0]);
}

/* What a model with one kernel gives; all_rounded: its numbers are rounded beforehand. */
static void give(const char *text, bool mixed, bool all_rounded, applied *a)
{
    float w[64];
    mr_strategy *s = open_strategy(1);
    mr_ok(mr_model_parse(&a->m, text, &st), &st);
    mr_ok(mr_model_build(a->m, s, 3, (int64_t[]){4, 4, 2},
                         &(mr_model_opts){.mixed_precision = mixed}, &st),
          &st);
    mr_variable *v = mr_model_variable(a->m, 0);
    memset(a->y, 0, sizeof a->y);
    mr_check(mr_variable_size(v) <= 64);
    test_fill(a->x, ROWS * 32, 5);
    test_fill(w, mr_variable_size(v), 6);
    for (size_t i = 0; i < ROWS * 32 && all_rounded; i++)
        a->x[i] = rounded(a->x[i]);
    for (size_t i = 0; i < mr_variable_size(v) && all_rounded; i++)
        w[i] = rounded(w[i]);
    mr_ok(mr_variable_assign(v, w, &st), &st);
    mr_ok(mr_strategy_run(s, apply, a, &st), &st);
    mr_model_free(a->m);
    mr_strategy_free(s);
}

MR_TEST(convolutions_are_of_rounded_numbers)
{
    static const char *const models[] = {"conv2d(3, 3)", "conv2d(4, 1)", "depthwise_conv2d(2)",
                                         "dense(2)"};
    static applied mixed, by_hand, not_mixed;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        double most = 0;
        mr_test_context("%s", models[i]);
        give(models[i], true, false, &mixed);
        give(models[i], false, true, &by_hand);
        give(models[i], false, false, &not_mixed);
        for (size_t k = 0; k < ROWS * 64; k++) {
            mr_eq_f64((double)mixed.y[k], (double)by_hand.y[k], 1e-5);
            most = fmax(most, fabs((double)mixed.y[k] - (double)not_mixed.y[k]));
        }
        mr_check(most > 1e-4);
    }
}

/* Steps that are too small for bfloat16 add up. */
MR_TEST(variables_are_float32)
{
    parts p =
        parts_make(2, "dense(1, use_bias=false, kernel_initializer=\"ones\")", "mse", "sgd(5e-5)",
                   mr_test_graph("from_tensors([1.0], [0.0]).repeat(8).batch(2)"));
    mr_fit_result r;
    float w;
    mr_ok(parts_fit(&p, &(mr_fit_opts){.mixed_precision = true}, &r, &st), &st);
    mr_check(mr_model_is_mixed(p.m));
    mr_ok(mr_variable_read(mr_model_variable(p.m, 0), &w, &st), &st);
    mr_eq_f64((double)r.loss, 1, 0);
    mr_eq_f64((double)w, 1 - 4 * 1e-4, 1e-6);
    parts_drop(&p);
}

static const char shared[] = "a = input(3); t = dense(3, activation=\"tanh\"); "
                             "a.t().t().batch_norm(synchronized=true).dense(1)";

MR_TEST(training_is_the_same_on_all_numbers_of_replicas_and_is_saved)
{
    float first = 0;
    for (size_t n = 1; n <= 4; n++) {
        mr_test_context("%zu replicas", n);
        parts p =
            parts_make(n, shared, "mse", "adam(0.02)",
                       mr_test_graph("range(10).map(i => cast(i, \"float32\") / 10.0)"
                                     ".map(f => ([f, 1.0 - f, f * f], [f * 2.0 - 0.5])).batch(4)"));
        mr_model *same = NULL, *other = NULL;
        mr_saved *saved = NULL;
        mr_fit_result r, before, after, unlike;
        const mr_fit_opts opts = {
            .epochs = 20, .seed = 4, .mixed_precision = true, .check_replicas = true};
        mr_ok(parts_fit(&p, &opts, &r, &st), &st);
        first = n == 1 ? r.loss : first;
        mr_check(r.loss < 0.45f);
        mr_eq_f64((double)r.loss, (double)first, 0.02);
        mr_ok(mr_model_save(p.m, mr_test_path("saved"), NULL, &st), &st);
        mr_ok(mr_saved_open(&saved, mr_test_path("saved"), &st), &st);
        mr_ok(mr_model_parse(&same, mr_saved_model_text(saved), &st), &st);
        mr_ok(mr_model_parse(&other, mr_saved_model_text(saved), &st), &st);
        mr_ok(mr_saved_build(saved, same, p.s, NULL, &st), &st);
        mr_ok(mr_saved_build(saved, other, p.s, &(mr_model_opts){.seed = 1}, &st), &st);
        mr_check(mr_model_is_mixed(same) && !mr_model_is_mixed(other));
        mr_ok(mr_evaluate(p.s, p.m, p.ds, p.loss, NULL, &before, &st), &st);
        mr_ok(mr_evaluate(p.s, same, p.ds, p.loss, NULL, &after, &st), &st);
        mr_ok(mr_evaluate(p.s, other, p.ds, p.loss, NULL, &unlike, &st), &st);
        mr_eq_f64((double)after.loss, (double)before.loss, 0);
        mr_check(unlike.loss != before.loss);
        mr_saved_close(saved);
        mr_model_free(other);
        mr_model_free(same);
        parts_drop(&p);
    }
}

MR_TEST(memory_may_run_out)
{
    mr_fault_each_allocation(n)
    {
        mr_strategy *s = NULL;
        mr_model *m = NULL;
        mr_code rc = mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st);
        if (rc == MR_OK)
            rc = mr_model_parse(&m, shared, &st);
        if (rc == MR_OK)
            rc = mr_model_build(m, s, 1, (int64_t[]){3}, &(mr_model_opts){.mixed_precision = true},
                                &st);
        mr_fault_expect(rc, &st);
        mr_model_free(m);
        mr_strategy_free(s);
    }
}
