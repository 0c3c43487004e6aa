/* SPDX-License-Identifier: Apache-2.0 */
/* Losses, optimizers and schedules against what Keras 3.15 gave for the same numbers. */
#include <math.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "trainer/objectives/loss.h"
#include "trainer/model/model.h"

static mr_status st;

static const float logits[] = {0.5f, -1, 2, 0.25f, 0, -3},
                   shares[] = {0.2f, 0.7f, 0.1f, 0.6f, 0.3f, 0.1f},
                   doubled[] = {0.4f, 1.4f, 0.2f, 1.2f, 0.6f, 0.2f},
                   labels[] = {1, 0, 0.5f, 0, 0.25f, 0.75f};

typedef struct call {
    const mr_loss *l;
    const float *x;
    float out[2];
} call;

static mr_array tensor(int64_t rows, int64_t width, const float *data)
{
    return (mr_array){.dtype = MR_FLOAT32,
                      .rank = 2,
                      .rows = 1,
                      .shape = {rows, width},
                      .data = (void *)(uintptr_t)data};
}

static mr_code compute(mr_replica *r, void *ctx, mr_status *status)
{
    call *c = ctx;
    enum { GRADIENT = 6 * sizeof(float) };
    mr_array x = tensor(2, 3, c->x), z = tensor(2, 3, labels);
    void *out, *gradient;
    MR_TRY(mr_replica_to_device(r, &x, &x, status));
    MR_TRY(mr_replica_to_device(r, &z, &z, status));
    MR_TRY(mr_replica_scratch(r, sizeof c->out, &out, status));
    MR_TRY(mr_replica_scratch(r, GRADIENT, &gradient, status));
    MR_TRY(mr_loss_compute(c->l, r, &z, &x, NULL, out, gradient, status));
    return mr_stream_copy(mr_replica_stream(r), c->out, out, sizeof c->out, status);
}

MR_TEST(losses_have_the_values_of_keras)
{
    static const struct {
        const char *text;
        const float *x;
        double want[2];
    } cases[] = {
        {"mae", logits, {1.0, 1.416667}},
        {"mean_absolute_error()", logits, {1.0, 1.416667}},
        {"huber", logits, {0.5416667, 1.104167}},
        {"huber(delta=0.5)", logits, {0.375, 0.6041667}},
        {"kl_divergence", shares, {2.414155, 1.465595}},
        {"kld", shares, {2.414155, 1.465595}},
        {"categorical_crossentropy", logits, {1.861967, 3.097503}},
        {"categorical_crossentropy(from_logits=true, label_smoothing=0.2)",
         logits,
         {1.837836, 2.830837}},
        {"categorical_crossentropy(from_logits=false, label_smoothing=0.2)",
         doubled,
         {2.493164, 1.890171}},
        {"binary_crossentropy(from_logits=true, label_smoothing=0.2)",
         logits,
         {0.6880889, 1.214225}},
        {"binary_crossentropy(from_logits=false, label_smoothing=0.2)",
         shares,
         {1.264675, 1.043342}},
    };
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 1}, &st), &st);
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++) {
        mr_loss *l = NULL;
        mr_test_context("%s", cases[t].text);
        mr_ok(mr_loss_parse(&l, cases[t].text, &st), &st);
        call c = {.l = l, .x = cases[t].x};
        mr_ok(mr_strategy_run(s, compute, &c, &st), &st);
        for (int i = 0; i < 2; i++)
            mr_eq_f64(c.out[i], cases[t].want[i], 2e-6);
        mr_loss_free(l);
    }
    mr_strategy_free(s);
}

/* Four updates of [1, -2, 3], the gradients shared out over two replicas. */
enum { STEPS = 4 };
static const float gradients[STEPS][3] = {
    {0.5f, -2, 0.1f}, {0.25f, 3, -4}, {-1, 0.5f, 0.75f}, {0.1f, 0.1f, 0.1f}};

typedef struct update {
    mr_optimizer *o;
    mr_variable *v[2];
    size_t n;
    float g[2][2][3];
} update;

static mr_code apply(mr_replica *r, void *ctx, mr_status *status)
{
    update *u = ctx;
    float *g[2];
    for (size_t v = 0; v < u->n; v++)
        MR_TRY(test_to_device(r, u->g[mr_replica_id(r)][v], sizeof u->g[0][0], (void **)&g[v],
                              status));
    return mr_optimizer_apply_gradients(u->o, r, u->v, g, u->n, status);
}

static update open_update(mr_strategy *s, const char *text, size_t n)
{
    static const float first[2][3] = {{1, -2, 3}, {4, 5, 0}};
    update u = {.n = n};
    mr_test_context("%s", text);
    mr_ok(mr_optimizer_parse(&u.o, text, &st), &st);
    for (size_t v = 0; v < n; v++) {
        mr_ok(mr_variable_new(&u.v[v], s, 1, (int64_t[]){3 - (int64_t)v}, NULL, &st), &st);
        mr_ok(mr_variable_assign(u.v[v], first[v], &st), &st);
    }
    return u;
}

static void close_update(update *u)
{
    mr_optimizer_free(u->o);
    for (size_t v = 0; v < u->n; v++)
        mr_variable_free(u->v[v]);
}

MR_TEST(optimizers_have_the_values_of_keras)
{
    static const struct {
        const char *text;
        double want[3];
    } cases[] = {
        {"sgd(0.1, momentum=0.9, nesterov=true)", {0.96127, -2.36718, 4.112399}},
        {"sgd(0.1, weight_decay=0.1)", {0.9765787, -2.080662, 3.179875}},
        {"adam(0.1)", {0.8392027, -1.976833, 3.050362}},
        {"adam(0.1, weight_decay=0.01)", {0.8356741, -1.969068, 3.038491}},
        {"adamw(0.1)", {0.83779, -1.973724, 3.04561}},
        {"adamw(0.1, weight_decay=0.05, beta_1=0.8)", {0.8375024, -1.949414, 2.989626}},
        {"rmsprop(0.1)", {0.7886088, -2.007264, 2.930017}},
        {"rmsprop(0.1, rho=0.8, momentum=0.5, centered=true)", {0.5874724, -1.93543, 2.887496}},
        {"rmsprop(0.1, momentum=0.5)", {0.5422577, -1.954233, 2.859788}},
        {"rmsprop(0.1, centered=true)", {0.7585392, -1.992318, 2.927363}},
        {"adagrad(0.1)", {0.9523158, -2.000534, 3.048691}},
        {"adagrad(0.1, initial_accumulator_value=0.0, epsilon=0.01)",
         {0.9362129, -1.999774, 3.008354}},
        {"sgd(0.1, clipvalue=0.5)", {0.965, -2.06, 2.98}},
        {"sgd(0.1, clipnorm=1.0)", {1.035059, -2.010164, 3.009347}},
        {"sgd(0.1, global_clipnorm=1.0)", {1.035059, -2.010164, 3.009347}},
        {"sgd(exponential_decay(0.1, 2, 0.5))", {0.9787868, -2.040668, 3.231807}},
        {"sgd(exponential_decay(0.1, decay_steps=2, decay_rate=0.5, staircase=true))",
         {0.97, -2.13, 3.3475}},
        {"sgd(cosine_decay(0.1, 3, alpha=0.1))", {0.9621249, -2.04975, 3.274625}},
        {"sgd(cosine_decay(0.0, 4, warmup_target=0.2, warmup_steps=2))",
         {1.157929, -2.417071, 3.232929}},
        {"sgd(piecewise_constant_decay([1, 2], [0.1, 0.05, 0.01]))", {0.974, -2.126, 3.3515}},
    };
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++) {
        update u = open_update(s, cases[t].text, 1);
        for (int k = 0; k < STEPS; k++) {
            for (int i = 0; i < 3; i++) {
                u.g[0][0][i] = 0.75f * gradients[k][i];
                u.g[1][0][i] = 0.25f * gradients[k][i];
            }
            mr_ok(mr_strategy_run(s, apply, &u, &st), &st);
        }
        float first[3], other[3];
        test_read_copy(s, u.v[0], 0, first);
        test_read_copy(s, u.v[0], 1, other);
        for (int i = 0; i < 3; i++) {
            mr_eq_f64(first[i], cases[t].want[i], 5e-6);
            mr_eq_f64(other[i], first[i], 0);
        }
        close_update(&u);
    }
    mr_strategy_free(s);
}

MR_TEST(a_global_norm_is_of_all_variables)
{
    static const double want[2][3] = {{0.9867593, -1.9470373, 2.997352}, {3.9205558, 5.026481, 0}};
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    update u = open_update(s, "sgd(0.1, global_clipnorm=1.0)", 2);
    memcpy(u.g[0], (float[2][3]){{0.5f, -2, 0.1f}, {1, 0, 0}}, sizeof u.g[0]);
    memcpy(u.g[1], (float[2][3]){{0, 0, 0}, {2, -1, 0}}, sizeof u.g[1]);
    mr_ok(mr_strategy_run(s, apply, &u, &st), &st);
    for (size_t v = 0; v < 2; v++)
        for (size_t r = 0; r < 2; r++) {
            float got[3];
            test_read_copy(s, u.v[v], r, got);
            for (size_t i = 0; i < mr_variable_size(u.v[v]); i++)
                mr_eq_f64(got[i], want[v][i], 1e-6);
        }
    close_update(&u);
    mr_strategy_free(s);
}

MR_TEST(schedules_go_by_updates_and_end_when_a_rate_is_set)
{
    mr_strategy *s = NULL;
    mr_ok(mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st), &st);
    update u = open_update(s, "adam(piecewise_constant_decay([1, 2], [0.1, 0.05, 0.01]))", 1);
    static const double want[] = {0.1, 0.1, 0.05, 0.01, 0.01};
    for (int k = 0; k < 5; k++) {
        mr_eq_f64(mr_optimizer_learning_rate(u.o), want[k], 1e-12);
        mr_ok(mr_strategy_run(s, apply, &u, &st), &st);
    }
    mr_optimizer_set_learning_rate(u.o, 0.5);
    mr_eq_f64(mr_optimizer_learning_rate(u.o), 0.5, 0);
    mr_ok(mr_strategy_run(s, apply, &u, &st), &st);
    mr_eq_f64(mr_optimizer_learning_rate(u.o), 0.5, 0);
    close_update(&u);
    mr_strategy_free(s);
}

MR_TEST(bad_optimizers_say_what_is_wrong)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"sgd(learning_rate=-1)", "must be a number from 0"},
        {"sgd(learning_rate=\"fast\")", "exponential_decay"},
        {"sgd(linear_decay(1))", "exponential_decay"},
        {"sgd(exponential_decay(0.1))", "decay_steps"},
        {"sgd(exponential_decay(0.1, 0, 0.5))", "decay_steps must be at least"},
        {"sgd(piecewise_constant_decay([1, 2], [0.1, 0.2]))",
         "2 boundaries need 3 values, found 2"},
        {"sgd(piecewise_constant_decay([2, 1], [0.1, 0.2, 0.3]))", "boundaries must increase"},
        {"adam(clipnorm=1.0, clipvalue=1.0)", "only one of"},
        {"adam(clipnorm=-1.0)", "clipnorm must be at least 0"},
        {"adagrad(color=1)", "no parameter 'color'"},
        {"7", "name of an optimizer"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_optimizer *o = NULL;
        mr_test_context("%s", cases[i].text);
        mr_code_is(mr_optimizer_parse(&o, cases[i].text, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].says);
        mr_check(o == NULL);
    }
}
