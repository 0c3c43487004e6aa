/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient by a model's features, against finite differences, and two models that train against
 * each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/batches.h"
#include "trainer/model.h"

enum { ROWS = 5 };
static mr_status st;

typedef struct pass {
    mr_model *m;
    mr_array x;      /* of all rows */
    const float *dy; /* as y */
    float *y, *dx;   /* out */
    size_t out;      /* values of y in one row */
    bool backward, frozen, applies;
    mr_optimizer *o;
} pass;

/* The rows of this replica: as many as any, but for the last ones. */
static mr_code run(mr_replica *r, void *ctx, mr_status *status)
{
    pass *p = ctx;
    size_t n = mr_strategy_num_replicas_in_sync(mr_replica_strategy(r)), id = mr_replica_id(r);
    size_t most = (ROWS + n - 1) / n, from = id * most < ROWS ? id * most : ROWS;
    size_t rows = ROWS - from < most ? ROWS - from : most;
    size_t width = mr_array_row_values(&p->x) / ROWS;
    mr_array x = p->x, y;
    const float *dx = NULL;
    mr_stream *s = mr_replica_stream(r);
    x.shape[0] = (int64_t)rows;
    x.data = (float *)p->x.data + from * width;
    MR_TRY(mr_model_forward(p->m, r, &x, &(mr_forward_opts){.training = true}, &y, status));
    size_t bytes = rows * p->out * sizeof(float);
    MR_TRY(mr_stream_copy(s, p->y + from * p->out, y.data, bytes, status));
    if (!p->backward)
        return MR_OK;
    MR_TRY(
        mr_stream_copy(s, mr_model_output_gradient(p->m, r), p->dy + from * p->out, bytes, status));
    const mr_backward_opts how = {.input_gradient = true, .frozen = p->frozen};
    MR_TRY(mr_model_backward_with(p->m, r, &how, &dx, status));
    MR_TRY(mr_stream_copy(s, p->dx + from * width, dx, rows * width * sizeof(float), status));
    return p->applies ? mr_model_apply_gradients(p->m, r, p->o, status) : MR_OK;
}

static double objective(const pass *p, mr_strategy *s)
{
    pass q = *p;
    double sum = 0;
    q.backward = false;
    mr_ok(mr_strategy_run(s, run, &q, &st), &st);
    for (size_t i = 0; i < ROWS * p->out; i++)
        sum += (double)p->y[i] * (double)p->dy[i];
    return sum;
}

static void check(const char *model, int rank, const int64_t *shape, size_t replicas, bool frozen)
{
    mr_strategy *s = open_strategy(replicas);
    pass p = {.backward = true, .frozen = frozen};
    size_t width = 1;
    int given;
    const int64_t *out;
    mr_test_context("%s on %zu replicas", model, replicas);
    mr_ok(mr_model_parse(&p.m, model, &st), &st);
    mr_ok(mr_model_build(p.m, s, rank, shape, &(mr_model_opts){.seed = 3}, &st), &st);
    mr_model_output_shape(p.m, &given, &out);
    p.out = 1;
    for (int i = 0; i < given; i++)
        p.out *= (size_t)out[i];
    p.x = (mr_array){.dtype = MR_FLOAT32, .rank = (int8_t)(rank + 1), .rows = 1, .shape = {ROWS}};
    for (int i = 0; i < rank; i++)
        width *= (size_t)(p.x.shape[i + 1] = shape[i]);
    float *x = malloc(ROWS * width * sizeof *x), *dy = malloc(ROWS * p.out * sizeof *dy);
    p.y = malloc(ROWS * p.out * sizeof *p.y);
    p.dx = malloc(ROWS * width * sizeof *p.dx);
    test_fill(x, ROWS * width, 5);
    test_fill(dy, ROWS * p.out, 6);
    p.x.data = x;
    p.dy = dy;
    mr_ok(mr_strategy_run(s, run, &p, &st), &st);
    for (size_t i = 0; i < ROWS * width; i += width / 7 + 1) {
        const float was = x[i];
        x[i] = was + 0.004f;
        double up = (double)x[i], above = objective(&p, s);
        x[i] = was - 0.004f;
        double down = (double)x[i], below = objective(&p, s);
        x[i] = was;
        mr_eq_f64(p.dx[i], (above - below) / (up - down), 0.02);
    }
    free(x);
    free(dy);
    free(p.y);
    free(p.dx);
    mr_model_free(p.m);
    mr_strategy_free(s);
}

MR_TEST(agrees_with_finite_differences)
{
    static const struct {
        const char *model;
        int rank;
        int64_t shape[3];
    } cases[] = {
        {"dense(4, activation=\"tanh\").dense(3)", 1, {6}},
        {"rescaling(0.5).activation(\"sigmoid\").flatten()", 2, {2, 3}}, /* no variable at all */
        {"flatten().normalization([0.5], [4.0]).dense(3)", 2, {2, 3}},
        {"conv2d(3, 2, activation=\"tanh\").average_pool(2).flatten().dense(2)", 3, {5, 5, 2}},
        {"residual(dense(6, activation=\"tanh\")).dense(2)", 1, {6}},
        {"residual(dense(4).residual(dense(4), projection=true), projection=true)", 1, {6}},
        {"residual(activation(\"tanh\")).residual(conv2d(3, 3, padding=\"same\", strides=2), "
         "projection=true)",
         3,
         {4, 4, 2}},
        {"layer_norm().dense(3)", 1, {6}},
        /* A pool that fills the image, one that does not, windows that overlap; not the only one to
         * read what the convolution gives. */
        {"conv2d(3, 2, activation=\"tanh\").max_pool(2).flatten().dense(2)", 3, {5, 5, 2}},
        {"conv2d(3, 2, activation=\"sigmoid\").max_pool(2).flatten().dense(2)", 3, {6, 4, 2}},
        {"conv2d(3, 2, activation=\"softmax\").max_pool(2).flatten().dense(2)", 3, {5, 5, 2}},
        {"conv2d(3, 2, activation=\"tanh\").max_pool(3, strides=1).flatten().dense(2)",
         3,
         {5, 5, 2}},
        {"conv2d(3, 2, activation=\"tanh\").max_pool(3).flatten().dense(2)", 3, {7, 7, 2}},
        {"a = input(5, 5, 2); c = a.conv2d(3, 2, activation=\"tanh\"); "
         "concat(c.max_pool(2).flatten(), c.flatten()).dense(2)",
         3,
         {5, 5, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t replicas = 1; replicas <= 4; replicas += 3) /* one of four has no rows */
            check(cases[i].model, cases[i].rank, cases[i].shape, replicas, i % 2 == 1);
}

/* A frozen pass leaves no trace: what is trained before and after it is as without. */
MR_TEST(a_frozen_pass_changes_nothing_and_cannot_be_applied)
{
    float x[ROWS * 2], dy[ROWS], y[ROWS], dx[ROWS * 2], w[2][2][3];
    test_fill(x, ROWS * 2, 5);
    test_fill(dy, ROWS, 6);
    for (int frozen = 0; frozen < 2; frozen++) {
        mr_strategy *s = open_strategy(2);
        mr_model *m = NULL;
        mr_optimizer *o = NULL;
        mr_ok(mr_model_parse(&m, "dense(1)", &st), &st);
        mr_ok(mr_model_build(m, s, 1, (int64_t[]){2}, &(mr_model_opts){.seed = 3}, &st), &st);
        mr_ok(mr_optimizer_parse(&o, "sgd(0.1, momentum=0.9)", &st), &st);
        pass p = {.m = m,
                  .x = {.dtype = MR_FLOAT32, .rank = 2, .rows = 1, .shape = {ROWS, 2}, .data = x},
                  .dy = dy,
                  .y = y,
                  .dx = dx,
                  .out = 1,
                  .o = o,
                  .backward = true};
        for (int step = 0; step < 2; step++) {
            p.applies = true;
            mr_ok(mr_strategy_run(s, run, &p, &st), &st);
            p.applies = false;
            p.frozen = true;
            if (frozen)
                mr_ok(mr_strategy_run(s, run, &p, &st), &st);
            p.frozen = false;
            for (size_t v = 0; v < 2; v++)
                mr_ok(mr_variable_read(mr_model_variable(m, v), w[frozen][v], &st), &st);
        }
        p.frozen = p.applies = true;
        mr_code_is(mr_strategy_run(s, run, &p, &st), MR_FAILED_PRECONDITION, &st);
        mr_has_str(st.message, "frozen");
        p.frozen = false; /* and goes on after that */
        mr_ok(mr_strategy_run(s, run, &p, &st), &st);
        mr_optimizer_free(o);
        mr_model_free(m);
        mr_strategy_free(s);
    }
    mr_eq_mem(w[1][0], w[0][0], 2 * sizeof(float));
    mr_eq_mem(w[1][1], w[0][1], sizeof(float));
}
