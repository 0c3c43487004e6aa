/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/trainer/kit/pass.h"
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/batches.h"

static mr_status st;

static float *room(size_t n)
{
    return malloc((n ? n : 1) * sizeof(float));
}

static size_t width_of(const mr_array *x)
{
    return mr_array_row_values(x) / PASS_ROWS;
}

pass pass_open(const char *model, mr_strategy *s, const mr_model_opts *opts)
{
    pass p = {0};
    int rank;
    const int64_t *shape;
    mr_ok(mr_model_parse(&p.m, model, &st), &st);
    mr_model_input_shape(p.m, &rank, &shape);
    mr_ok(mr_model_build(p.m, s, rank, shape, opts ? opts : &(mr_model_opts){.seed = 3}, &st), &st);
    p.n_inputs = mr_model_n_inputs(p.m);
    p.n_outputs = mr_model_n_outputs(p.m);
    mr_check(p.n_inputs <= PASS_MOST && p.n_outputs <= PASS_MOST);
    mr_check(mr_model_n_variables(p.m) <= PASS_MOST_VARIABLES);
    for (size_t i = 0; i < p.n_inputs; i++) {
        mr_model_input_shape_of(p.m, i, &rank, &shape);
        p.x[i] = (mr_array){
            .dtype = MR_FLOAT32, .rank = (int8_t)(rank + 1), .rows = 1, .shape = {PASS_ROWS}};
        memcpy(p.x[i].shape + 1, shape, (size_t)rank * sizeof *shape);
        size_t n = mr_array_row_values(&p.x[i]);
        p.x[i].data = room(n);
        p.dx[i] = room(n);
        test_fill(p.x[i].data, n, 5 + i);
    }
    for (size_t k = 0; k < p.n_outputs; k++) {
        mr_model_output_shape_of(p.m, k, &rank, &shape);
        p.width[k] = 1;
        for (int i = 0; i < rank; i++)
            p.width[k] *= (size_t)shape[i];
        p.dy[k] = room(PASS_ROWS * p.width[k]);
        p.y[k] = room(PASS_ROWS * p.width[k]);
        test_fill(p.dy[k], PASS_ROWS * p.width[k], 9 + k);
    }
    for (size_t v = 0; v < mr_model_n_variables(p.m); v++)
        p.grads[v] = room(mr_variable_size(mr_model_variable(p.m, v)));
    return p;
}

void pass_close(pass *p)
{
    for (size_t i = 0; i < PASS_MOST; i++) {
        free(p->x[i].data);
        free(p->dx[i]);
        free(p->dy[i]);
        free(p->y[i]);
    }
    for (size_t v = 0; v < PASS_MOST_VARIABLES; v++)
        free(p->grads[v]);
    mr_model_free(p->m);
}

static mr_code take_gradients(pass *p, mr_replica *r, mr_status *status)
{
    const float *g;
    for (size_t v = 0; v < mr_model_n_variables(p->m); v++) {
        mr_variable *of = mr_model_variable(p->m, v);
        if (mr_variable_role_of(of) != MR_LEARNED)
            continue;
        MR_TRY(mr_model_gradient(p->m, r, v, &g, status));
        if (mr_replica_id(r) == 0)
            MR_TRY(mr_stream_copy(mr_replica_stream(r), p->grads[v], g,
                                  mr_variable_size(of) * sizeof *g, status));
    }
    return MR_OK;
}

/* The rows of this replica are as many as any's, but for the last ones. */
mr_code pass_run(mr_replica *r, void *ctx, mr_status *status)
{
    pass *p = ctx;
    size_t n = mr_strategy_num_replicas_in_sync(mr_replica_strategy(r)), id = mr_replica_id(r);
    size_t most = (PASS_ROWS + n - 1) / n, from = id * most < PASS_ROWS ? id * most : PASS_ROWS;
    size_t rows = PASS_ROWS - from < most ? PASS_ROWS - from : most;
    const float *dx[MR_MAX_INPUTS] = {NULL};
    mr_array x[PASS_MOST], y[MR_MAX_OUTPUTS];
    mr_stream *s = mr_replica_stream(r);
    for (size_t i = 0; i < p->n_inputs; i++) {
        x[i] = p->x[i];
        x[i].shape[0] = (int64_t)rows;
        x[i].data = (float *)p->x[i].data + from * width_of(&p->x[i]);
        MR_TRY(mr_replica_to_device(r, &x[i], &x[i], status));
    }
    MR_TRY(mr_model_forward(p->m, r, x, &(mr_forward_opts){.training = true}, y, status));
    for (size_t k = 0; k < p->n_outputs; k++) {
        size_t at = from * p->width[k], bytes = rows * p->width[k] * sizeof(float);
        MR_TRY(mr_stream_copy(s, p->y[k] + at, y[k].data, bytes, status));
        if (!p->forward_only)
            MR_TRY(mr_stream_copy(s, mr_model_output_gradient_of(p->m, r, k), p->dy[k] + at, bytes,
                                  status));
    }
    if (p->forward_only)
        return MR_OK;
    const mr_backward_opts how = {.input_gradient = !p->no_dx, .frozen = p->frozen};
    MR_TRY(mr_model_backward_with(p->m, r, &how, p->no_dx ? NULL : dx, status));
    for (size_t i = 0; i < p->n_inputs && !p->no_dx; i++) {
        size_t width = width_of(&p->x[i]);
        MR_TRY(mr_stream_copy(s, p->dx[i] + from * width, dx[i], rows * width * sizeof(float),
                              status));
    }
    if (!p->frozen)
        MR_TRY(take_gradients(p, r, status));
    return p->o ? mr_model_apply_gradients(p->m, r, p->o, status) : MR_OK;
}

/* The sum of all y * dy, of which backward gives the derivatives. */
static double objective(const pass *p, mr_strategy *s)
{
    pass q = *p;
    double sum = 0;
    q.forward_only = true;
    mr_ok(mr_strategy_run(s, pass_run, &q, &st), &st);
    for (size_t k = 0; k < p->n_outputs; k++)
        for (size_t i = 0; i < PASS_ROWS * p->width[k]; i++)
            sum += (double)p->y[k][i] * (double)p->dy[k][i];
    return sum;
}

/* Some of n values, which are a variable's or, `of` NULL, all rows of an input. */
static void check(const pass *p, mr_strategy *s, float *values, size_t n, mr_variable *of,
                  const float *gradient)
{
    for (size_t i = 0; i < n; i += n / (of ? 5 : 35) + 1) {
        const float was = values[i];
        double at[2], sum[2];
        for (int k = 0; k < 2; k++) {
            values[i] = was + (k ? 0.004f : -0.004f);
            at[k] = (double)values[i];
            if (of)
                mr_ok(mr_variable_assign(of, values, &st), &st);
            sum[k] = objective(p, s);
        }
        values[i] = was;
        if (of)
            mr_ok(mr_variable_assign(of, values, &st), &st);
        mr_eq_f64(gradient[i], (sum[1] - sum[0]) / (at[1] - at[0]), 0.02);
    }
}

void pass_check_gradients(const char *model, size_t replicas, bool frozen)
{
    mr_test_context("%s on %zu replicas%s", model, replicas, frozen ? ", frozen" : "");
    mr_strategy *s = open_strategy(replicas);
    pass p = pass_open(model, s, NULL);
    p.frozen = frozen;
    mr_ok(mr_strategy_run(s, pass_run, &p, &st), &st);
    for (size_t i = 0; i < p.n_inputs; i++)
        check(&p, s, p.x[i].data, mr_array_row_values(&p.x[i]), NULL, p.dx[i]);
    for (size_t v = 0; v < mr_model_n_variables(p.m) && !frozen; v++) {
        mr_variable *of = mr_model_variable(p.m, v);
        if (mr_variable_role_of(of) != MR_LEARNED)
            continue;
        float *w = room(mr_variable_size(of));
        mr_ok(mr_variable_read(of, w, &st), &st);
        check(&p, s, w, mr_variable_size(of), of, p.grads[v]);
        free(w);
    }
    pass_close(&p);
    mr_strategy_free(s);
}
