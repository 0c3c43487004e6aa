/* SPDX-License-Identifier: Apache-2.0 */
/* Layers and models: values against plain loops, gradients against finite differences, and the same
 * results on any number of replicas. */
#include "trainer/model/model.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"
#include "trainer/objectives/loss.h"
#include "trainer/model/model_impl.h"

static mr_status st;

/* One step of a model on x [rows, ...] with given derivatives of the output. */
typedef struct probe {
    mr_model *m;
    mr_array x;
    const float *dy; /* [all rows, out] */
    float *y;        /* out: [all rows, out] */
    float **grads;   /* out: one a variable, summed */
    mr_optimizer *o; /* NULL: no update */
    bool inference;
} probe;

static mr_code probe_step(mr_replica *r, void *ctx, mr_status *status)
{
    probe *p = ctx;
    size_t n = mr_strategy_num_replicas_in_sync(mr_replica_strategy(r)), id = mr_replica_id(r);
    size_t rows = (size_t)p->x.shape[0], w = (rows + n - 1) / n;
    size_t from = id * w < rows ? id * w : rows, mine = rows - from < w ? rows - from : w;
    mr_array x = p->x, y;
    x.shape[0] = (int64_t)mine;
    size_t width = rows ? mr_array_row_values(&p->x) / rows : 0;
    x.data = (float *)p->x.data + from * width;
    MR_TRY(mr_replica_to_device(r, &x, &x, status));
    MR_TRY(mr_model_forward(
        p->m, r, &x, &(mr_forward_opts){.training = !p->inference, .first_row = (int64_t)from}, &y,
        status));
    size_t out = mine ? mr_array_row_values(&y) / mine : 0;
    size_t bytes = mine * out * sizeof(float);
    mr_stream *s = mr_replica_stream(r);
    MR_TRY(mr_stream_copy(s, p->y + from * out, y.data, bytes, status));
    if (p->inference)
        return MR_OK;
    MR_TRY(mr_stream_copy(s, mr_model_output_gradient(p->m, r), p->dy + from * out, bytes, status));
    MR_TRY(mr_model_backward(p->m, r, status));
    for (size_t v = 0; v < mr_model_n_variables(p->m); v++) {
        const float *g;
        MR_TRY(mr_model_gradient(p->m, r, v, &g, status));
        bytes = mr_variable_size(mr_model_variable(p->m, v)) * sizeof *g;
        if (id == 0 && p->grads)
            MR_TRY(mr_stream_copy(s, p->grads[v], g, bytes, status));
    }
    return p->o ? mr_model_apply_gradients(p->m, r, p->o, status) : MR_OK;
}

static double objective(probe *p, mr_strategy *s, size_t n)
{
    mr__model_set_steps(p->m, 7); /* dropout's masks are the same each time */
    mr_ok(mr_strategy_run(s, probe_step, p, &st), &st);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)p->y[i] * p->dy[i];
    for (size_t v = 0; v < p->m->n_variables; v++) {
        const mr_regularizer *k = mr_variable_regularizer(p->m->variables[v]);
        float *w = malloc(mr_variable_size(p->m->variables[v]) * sizeof *w);
        mr_ok(mr_variable_read(p->m->variables[v], w, &st), &st);
        for (size_t i = 0; i < mr_variable_size(p->m->variables[v]); i++)
            sum += k->l1 * fabs((double)w[i]) + k->l2 * w[i] * w[i];
        free(w);
    }
    return sum;
}

/* d(sum of y * dy + penalties) / dw by moving each weight a little, against backward. */
static void check_gradients(const char *text, int rank, const int64_t *shape, size_t rows)
{
    mr_model *m = NULL;
    mr_strategy *s = open_strategy(1);
    uint64_t seed = 11;
    int out_rank;
    const int64_t *out_shape;
    mr_test_context("%s", text);
    mr_ok(mr_model_parse(&m, text, &st), &st);
    mr_ok(mr_model_build(m, s, rank, shape, &(mr_model_opts){.seed = 3}, &st), &st);
    mr_model_output_shape(m, &out_rank, &out_shape);
    int64_t full[MR_MAX_RANK] = {(int64_t)rows};
    memcpy(full + 1, shape, (size_t)rank * sizeof *shape);
    probe p = {.m = m}, quiet;
    mr_ok(mr_tensor_alloc(&p.x, MR_FLOAT32, rank + 1, full, &st), &st);
    for (size_t i = 0; i < mr_array_row_values(&p.x); i++)
        ((float *)p.x.data)[i] = (float)(mr_test_random(&seed) % 2001) / 1000 - 1;
    size_t n = rows;
    for (int i = 0; i < out_rank; i++)
        n *= (size_t)out_shape[i];
    float *dy = malloc(n * sizeof *dy), *grads[8];
    for (size_t i = 0; i < n; i++)
        dy[i] = (float)(mr_test_random(&seed) % 2001) / 1000 - 1;
    p.y = malloc(n * sizeof *p.y);
    p.dy = dy;
    for (size_t v = 0; v < m->n_variables; v++)
        grads[v] = malloc(mr_variable_size(m->variables[v]) * sizeof(float));
    quiet = p;
    p.grads = grads;
    objective(&p, s, n);
    for (size_t v = 0; v < m->n_variables; v++) {
        size_t size = mr_variable_size(m->variables[v]);
        float *w = malloc(size * sizeof *w);
        mr_ok(mr_variable_read(m->variables[v], w, &st), &st);
        for (size_t i = 0; i < size; i += 3) {
            const float h = 2e-3f, was = w[i];
            w[i] = was + h;
            mr_ok(mr_variable_assign(m->variables[v], w, &st), &st);
            double up = objective(&quiet, s, n);
            w[i] = was - h;
            mr_ok(mr_variable_assign(m->variables[v], w, &st), &st);
            double down = objective(&quiet, s, n);
            w[i] = was;
            mr_ok(mr_variable_assign(m->variables[v], w, &st), &st);
            double slope = (up - down) / (2 * h);
            if (fabs(slope - grads[v][i]) > 2e-2 * (1 + fabs(slope)))
                mr_fail_test("%s[%zu]: backward gave %g, differences %g",
                             mr_variable_name(m->variables[v]), i, (double)grads[v][i], slope);
        }
        free(w);
    }
    for (size_t v = 0; v < m->n_variables; v++)
        free(grads[v]);
    mr_array_reset(&p.x);
    free(dy);
    free(p.y);
    mr_model_free(m);
    mr_strategy_free(s);
}

MR_TEST(backward_agrees_with_finite_differences)
{
    int64_t six[] = {6}, square[] = {2, 3};
    check_gradients("dense(4)", 1, six, 3);
    check_gradients("dense(4, use_bias=false, kernel_initializer=\"he_normal\")", 1, six, 3);
    check_gradients("dense(5).dense(3)", 2, square, 2); /* over the last axis */
    check_gradients("flatten().dense(4, activation=\"tanh\").dense(2)", 2, square, 3);
    check_gradients("dense(4, kernel_regularizer=l2(0.1), bias_regularizer=l1(0.2))", 1, six, 2);
    check_gradients("dense(8).dropout(0.5).dense(2)", 1, six, 5);
    check_gradients("dropout(0.3).reshape(3, -1).flatten().dense(2)", 1, six, 5);
    const char *functions[] = {"linear", "sigmoid",  "tanh",     "softmax",    "elu",
                               "selu",   "softplus", "softsign", "exponential"};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        char text[128];
        snprintf(text, sizeof text, "dense(4, activation=\"%s\").dense(3).activation(\"%s\")",
                 functions[i], functions[i]);
        check_gradients(text, 1, six, 3);
    }
}

MR_TEST(gradients_go_through_residuals_and_around_them)
{
    int64_t five[] = {5}, image[] = {4, 3, 2};
    check_gradients("dense(5).residual(dense(5, activation=\"tanh\")).dense(2)", 1, five, 3);
    check_gradients("residual(dense(5, activation=\"tanh\")).activation(\"tanh\").dense(2)", 1,
                    five, 3);
    check_gradients("dense(4).residual(dense(3, activation=\"tanh\"), projection=true).dense(2)", 1,
                    five, 3);
    check_gradients("dense(5).residual(residual(dense(5, activation=\"tanh\")).dense(5))", 1, five,
                    3);
    check_gradients(
        "dense(5).residual(activation(\"tanh\").residual(dense(4, activation=\"tanh\"), "
        "projection=true), projection=true)",
        1, five, 3);
    check_gradients("dense(5).residual(activation(\"tanh\")).reshape(5).residual(flatten())", 1,
                    five, 3);
    check_gradients("conv2d(3, 3, padding=\"same\").residual(conv2d(4, 3, strides=2, "
                    "padding=\"same\", activation=\"tanh\"), projection=true).flatten().dense(2)",
                    3, image, 2);
}

MR_TEST(dense_is_the_plain_loop)
{
    mr_model *m = NULL;
    mr_strategy *s = open_strategy(1);
    float x[] = {1, -2, 3, 0.5f, 0, -1}, w[] = {1, 2, 3, 4, 5, 6}, b[] = {0.5f, -40}, y[4] = {0};
    mr_ok(mr_model_parse(&m, "input(3).dense(2, activation=\"relu\")", &st), &st);
    mr_ok(mr_model_build(m, s, 1, (int64_t[]){3}, NULL, &st), &st);
    mr_eq_u64(mr_model_n_variables(m), 2);
    mr_eq_str(mr_variable_name(mr_model_variable(m, 0)), "dense/kernel");
    mr_ok(mr_variable_assign(mr_model_variable(m, 0), w, &st), &st);
    mr_ok(mr_variable_assign(mr_model_variable(m, 1), b, &st), &st);
    probe p = {.m = m,
               .y = y,
               .inference = true,
               .x = {.dtype = MR_FLOAT32, .rank = 2, .rows = 1, .shape = {2, 3}, .data = x}};
    mr_ok(mr_strategy_run(s, probe_step, &p, &st), &st);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) {
            float want = b[j];
            for (int k = 0; k < 3; k++)
                want += x[i * 3 + k] * w[k * 2 + j];
            mr_eq_f64(y[i * 2 + j], want > 0 ? want : 0, 1e-5);
        }
    mr_model_free(m);
    mr_strategy_free(s);
}

MR_TEST(initial_values_follow_keras_and_the_seed)
{
    float a[20000], b[20000];
    mr_initializer glorot = {.kind = MR_INIT_GLOROT_UNIFORM}, he = {.kind = MR_INIT_HE_NORMAL};
    double limit = sqrt(6.0 / (100 + 200)), most = 0, sum = 0, squares = 0;
    mr_initialize(&glorot, 1, 0, 100, 200, a, 20000);
    for (int i = 0; i < 20000; i++)
        most = fabs((double)a[i]) > most ? fabs((double)a[i]) : most;
    mr_check(most <= limit && most > 0.99 * limit);
    mr_initialize(&he, 1, 0, 50, 200, a, 20000);
    most = 0;
    for (int i = 0; i < 20000; i++) {
        sum += a[i];
        squares += (double)a[i] * a[i];
        most = fabs((double)a[i]) > most ? fabs((double)a[i]) : most;
    }
    mr_eq_f64(sum / 20000, 0, 0.006);
    mr_eq_f64(sqrt(squares / 20000), 0.2, 0.004);
    mr_check(most <= 2 * 0.2 / 0.8796256610 + 1e-6);
    mr_initialize(&he, 1, 0, 50, 200, b, 20000);
    mr_eq_mem(a, b, sizeof a);
    mr_initialize(&he, 2, 0, 50, 200, b, 20000);
    mr_check(memcmp(a, b, sizeof a) != 0);
    mr_initialize(&(mr_initializer){.kind = MR_INIT_CONSTANT, .a = 1.5}, 0, 0, 0, 0, a, 2);
    mr_eq_f64(a[1], 1.5, 0);
}

/* Ten steps of a small net, rows as given, on n replicas. */
static void train_steps(size_t n, size_t rows, const char *text, float *weights, float *outputs)
{
    mr_model *m = NULL;
    mr_optimizer *o = NULL;
    mr_strategy *s = open_strategy(n);
    uint64_t seed = 21;
    float x[16 * 5], dy[16 * 3];
    mr_ok(mr_model_parse(&m, text, &st), &st);
    mr_ok(mr_optimizer_parse(&o, "adam(learning_rate=0.01)", &st), &st);
    mr_ok(mr_model_build(m, s, 1, (int64_t[]){5}, &(mr_model_opts){.seed = 9, .bucket_bytes = 4},
                         &st),
          &st);
    for (int i = 0; i < 10; i++) {
        for (size_t k = 0; k < 16 * 5; k++)
            x[k] = (float)(mr_test_random(&seed) % 2001) / 1000 - 1;
        for (size_t k = 0; k < 16 * 3; k++)
            dy[k] = (float)(mr_test_random(&seed) % 2001) / 1000 - 1;
        probe p = {
            .m = m,
            .y = outputs,
            .dy = dy,
            .o = o,
            .x = {
                .dtype = MR_FLOAT32, .rank = 2, .rows = 1, .shape = {(int64_t)rows, 5}, .data = x}};
        mr_ok(mr_strategy_run(s, probe_step, &p, &st), &st);
    }
    for (size_t v = 0; v < m->n_variables; v++) {
        float first[64], other[64];
        mr_check(mr_variable_size(m->variables[v]) <= 64);
        test_read_copy(s, m->variables[v], 0, first);
        for (size_t r = 1; r < n; r++) {
            test_read_copy(s, m->variables[v], r, other);
            mr_eq_mem(first, other, mr_variable_size(m->variables[v]) * sizeof(float));
        }
    }
    mr_eq_i64(mr_optimizer_iterations(o), 10);
    mr_ok(mr_variable_read(m->variables[0], weights, &st), &st);
    mr_optimizer_free(o);
    mr_model_free(m);
    mr_strategy_free(s);
}

MR_TEST(replicas_stay_bit_identical_and_agree_with_one)
{
    static const char text[] = "dense(8, activation=\"tanh\", "
                               "kernel_regularizer=l2(0.01)).dropout(0.4).dense(3)";
    for (size_t rows = 0; rows <= 16;
         rows += rows < 5 ? 1 : 11) { /* fewer rows than replicas, too */
        float one[40], other[40], y_one[48] = {0}, y[48] = {0};
        train_steps(1, rows, text, one, y_one);
        for (size_t n = 2; n <= 4; n++) {
            mr_test_context("%zu rows on %zu replicas", rows, n);
            train_steps(n, rows, text, other, y);
            for (size_t i = 0; i < 40; i++)
                mr_eq_f64(other[i], one[i], 2e-5);
            for (size_t i = 0; i < rows * 3; i++)
                mr_eq_f64(y[i], y_one[i], 2e-5);
        }
    }
}

MR_TEST(bad_models_say_what_is_wrong)
{
    static const struct {
        const char *text, *says;
    } cases[] = {{"input(3).dens(4)", "no layer 'dens'"},
                 {"dense()", "expected units"},
                 {"dense(0)", "at least 1"},
                 {"dense(2.5)", "integer"},
                 {"dense(4, 5, 6, 7, 8, 9, 10, 11)", "must be"},
                 {"dense(4, units=3)", "twice"},
                 {"dense(4, activation=\"rleu\")", "one of linear, relu"},
                 {"dense(4, kernel_initializer=\"x\")", "initializer"},
                 {"dense(4, kernel_regularizer=7)", "l1(v)"},
                 {"dense(4, color=3)", "no parameter 'color'"},
                 {"dropout(1.5)", "at most 1"},
                 {"input(3)", "at least one layer"},
                 {"input(0).dense(1)", "shape must be at least 1"},
                 {"residual(7)", "needs a chain of layers"},
                 {"residual(input(3))", "no layer 'input'"},
                 {"residual(dens(3))", "no layer 'dens'"},
                 {"residual()", "layers"},
                 {"7", "chain of layers"},
                 {"dense(4", "expected"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_model *m = NULL;
        mr_test_context("%s", cases[i].text);
        mr_code_is(mr_model_parse(&m, cases[i].text, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].says);
        mr_check(m == NULL);
    }
}

MR_TEST(shapes_that_do_not_fit_are_refused_when_built)
{
    static const struct {
        const char *text, *says;
        int rank;
        int64_t shape[3];
    } cases[] = {{"input(28, 28, 1).dense(2)", "[28, 28, 1]", 2, {28, 28}},
                 {"reshape(4, 5).dense(1)", "12 values", 1, {12}},
                 {"reshape(-1, -1).dense(1)", "at most one", 1, {12}},
                 {"dense(2)", "at least one axis", 0, {0}},
                 {"residual(dense(4))", "its layers output [4] for an input of [12]", 1, {12}},
                 {"residual(flatten(), projection=true)", "no projection", 2, {3, 4}}};
    mr_strategy *s = open_strategy(2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_model *m = NULL;
        mr_test_context("%s", cases[i].text);
        mr_ok(mr_model_parse(&m, cases[i].text, &st), &st);
        mr_code_is(mr_model_build(m, s, cases[i].rank, cases[i].shape, NULL, &st),
                   MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].says);
        mr_check(!mr_model_is_built(m));
        mr_model_free(m);
    }
    mr_strategy_free(s);
}

/* One training step over two rows a replica; replica 1 may give up at either of two places. */
typedef struct training {
    mr_model *m;
    mr_optimizer *o;
    int fail_at; /* 0: never; 1: before the forward pass, 2: after the backward pass */
    float x[2][2 * 4];
} training;

static mr_code train_or_fail(mr_replica *r, void *ctx, mr_status *status)
{
    training *t = ctx;
    size_t id = mr_replica_id(r);
    mr_array y, x = {.dtype = MR_FLOAT32,
                     .storage = MR_DENSE,
                     .rank = 2,
                     .rows = 1,
                     .shape = {2, 4},
                     .data = t->x[id]};
    if (id == 1 && t->fail_at == 1)
        return mr_fail(status, MR_DATA_LOSS, "gave up");
    MR_TRY(mr_replica_to_device(r, &x, &x, status));
    MR_TRY(mr_model_forward(t->m, r, &x,
                            &(mr_forward_opts){.training = true, .first_row = 2 * (int64_t)id}, &y,
                            status));
    /* dy = y - 1 */
    const mr_math_fill ones = {2 * 3, -1, mr_model_output_gradient(t->m, r)};
    const mr_math_combine add = {2 * 3, 1, 1, y.data, ones.dst};
    MR_TRY(mr_replica_math(r)->fill(mr_replica_stream(r), &ones, status));
    MR_TRY(mr_replica_math(r)->combine(mr_replica_stream(r), &add, status));
    MR_TRY(mr_model_backward(t->m, r, status));
    if (id == 1 && t->fail_at == 2)
        return mr_fail(status, MR_DATA_LOSS, "gave up");
    return mr_model_apply_gradients(t->m, r, t->o, status);
}

/* Trains five steps, with failing ones among them, and leaves the weights of both copies in w. */
static size_t train_with_failures(bool failures, float w[2][256])
{
    mr_strategy *s = open_strategy(2);
    training t = {0};
    size_t n = 0;
    test_fill(t.x[0], 16, 3);
    mr_ok(mr_model_parse(&t.m, "dense(6, activation=\"tanh\").dropout(0.5).dense(3)", &st), &st);
    mr_ok(mr_optimizer_parse(&t.o, "adam(learning_rate=0.1)", &st), &st);
    mr_ok(mr_model_build(t.m, s, 1, (int64_t[]){4}, &(mr_model_opts){.seed = 8}, &st), &st);
    for (int step = 0; step < 5; step++) {
        for (t.fail_at = 1; failures && t.fail_at <= 2; t.fail_at++) {
            mr_code_is(mr_strategy_run(s, train_or_fail, &t, &st), MR_DATA_LOSS, &st);
            mr_eq_i64(mr_optimizer_iterations(t.o), step);
        }
        t.fail_at = 0;
        mr_ok(mr_strategy_run(s, train_or_fail, &t, &st), &st);
    }
    for (size_t v = 0; v < mr_model_n_variables(t.m); v++) {
        size_t size = mr_variable_size(mr_model_variable(t.m, v));
        for (size_t r = 0; r < 2; r++)
            test_read_copy(s, mr_model_variable(t.m, v), r, w[r] + n);
        n += size;
    }
    mr_optimizer_free(t.o);
    mr_model_free(t.m);
    mr_strategy_free(s);
    return n;
}

MR_TEST(a_step_that_fails_on_one_replica_leaves_nothing_on_any)
{
    float good[2][256], bad[2][256];
    size_t n = train_with_failures(false, good);
    mr_eq_u64(n, 4 * 6 + 6 + 6 * 3 + 3);
    mr_eq_u64(train_with_failures(true, bad), n);
    mr_eq_mem(bad[1], bad[0], n * sizeof(float));
    mr_eq_mem(bad[0], good[0], n * sizeof(float)); /* dropout drew the same, too */
}

/* Everything that a model, an optimizer and a step allocate, failing one after the other. */
MR_TEST(running_out_of_memory_leaves_nothing_behind)
{
    mr_fault_each_allocation(n)
    {
        mr_strategy *s = NULL;
        mr_model *m = NULL;
        mr_optimizer *o = NULL;
        float x[10] = {1, 2, 3}, dy[6] = {1}, y[6];
        probe p = {.y = y,
                   .dy = dy,
                   .x = {.dtype = MR_FLOAT32, .rank = 2, .rows = 1, .shape = {2, 5}, .data = x}};
        mr_code rc = mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st);
        if (rc == MR_OK)
            rc = mr_model_parse(&m, "dense(4, activation=\"relu\").dropout(0.1).dense(3)", &st);
        if (rc == MR_OK)
            rc = mr_optimizer_parse(&o, "adam", &st);
        if (rc == MR_OK)
            rc = mr_model_build(m, s, 1, (int64_t[]){5}, NULL, &st);
        p.m = m;
        p.o = o;
        if (rc == MR_OK)
            rc = mr_strategy_run(s, probe_step, &p, &st);
        mr_fault_expect(rc, &st);
        mr_optimizer_free(o);
        mr_model_free(m);
        mr_strategy_free(s);
    }
}
