/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/trainer/kit/layer_rig.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"

static mr_status st;

rig rig_open(bench *b, const char *text, int rank, const int64_t *shape, size_t rows)
{
    rig r = {.b = b, .rows = rows, .training = true};
    mr_test_context("%s, %zu rows", text, rows);
    mr_ok(mr_model_parse(&r.m, text, &st), &st);
    mr_eq_u64(r.m->n_layers, 1);
    mr_layer *l = &r.m->layers[0];
    l->in = (mr_dims){.rank = rank};
    memcpy(l->in.shape, shape, (size_t)rank * sizeof *shape);
    l->out = l->in;
    if (l->desc->build)
        mr_ok(l->desc->build(l, &st), &st);
    r.l = l;
    r.in = mr_dims_values(&l->in);
    r.out = mr_dims_values(&l->out);
    r.x = draw(b, rows * r.in);
    r.dy = draw(b, rows * r.out);
    for (size_t v = 0; v < l->n_wanted; v++) {
        r.size[v] = 1;
        for (int i = 0; i < l->wanted[v].rank; i++)
            r.size[v] *= (size_t)l->wanted[v].shape[i];
        r.w[v] = draw(b, r.size[v]);
        r.dw[v] = doubles(r.size[v]);
    }
    r.y = doubles(rows * r.out);
    r.dx = doubles(rows * r.in);
    return r;
}

static void take(rig *r, const float *device, size_t n, double *out)
{
    float *x = get(r->b, device, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        out[i] = x[i];
    free(x);
}

void rig_run(rig *r, bool backward)
{
    const float *w[MR_MAX_LAYER_VARIABLES] = {NULL};
    float *dw[MR_MAX_LAYER_VARIABLES] = {NULL};
    for (size_t v = 0; v < r->l->n_wanted; v++) {
        w[v] = put_floats(r->b, r->w[v], r->size[v]);
        dw[v] = put_floats(r->b, NULL, r->size[v]);
    }
    mr_layer_pass p = {.layer = r->l,
                       .stream = r->b->s,
                       .math = r->b->m,
                       .rows = r->rows,
                       .training = r->training,
                       .key = 77,
                       .x_dtype = MR_FLOAT32,
                       .w = w,
                       .x = put_floats(r->b, r->x, r->rows * r->in),
                       .y = put_floats(r->b, NULL, r->rows * r->out),
                       .kept = put_floats(r->b, NULL, r->l->keep + r->rows * r->l->keep_per_row),
                       .dy = put_floats(r->b, r->dy, r->rows * r->out),
                       .dx = put_floats(r->b, NULL, r->rows * r->in),
                       .dw = dw};
    mr_ok(r->l->desc->forward(&p, &st), &st);
    take(r, p.y, r->rows * r->out, r->y);
    if (backward) {
        mr_ok(r->l->desc->backward(&p, &st), &st);
        take(r, p.dx, r->rows * r->in, r->dx);
        for (size_t v = 0; v < r->l->n_wanted; v++)
            take(r, dw[v], r->size[v], r->dw[v]);
    }
    drop_blocks(r->b);
}

/* sum(y dy), which the gradients are of. */
static double objective(rig *r)
{
    double sum = 0;
    rig_run(r, false);
    for (size_t i = 0; i < r->rows * r->out; i++)
        sum += r->y[i] * r->dy[i];
    return sum;
}

static void check(rig *r, const char *what, float *values, const double *gradient, size_t n,
                  double step, double tolerance)
{
    size_t skip = n / 40 + 1; /* about forty of them */
    for (size_t i = 0; i < n; i += skip) {
        float was = values[i];
        values[i] = (float)(was + step);
        double up = values[i], above = objective(r);
        values[i] = (float)(was - step);
        double down = values[i], below = objective(r);
        values[i] = was;
        double slope = (above - below) / (up - down);
        if (!(fabs(slope - gradient[i]) <= tolerance * (1 + fabs(slope))))
            mr_fail_test("%s[%zu]: backward gave %g, differences %g", what, i, gradient[i], slope);
    }
}

void rig_check_gradients(rig *r, double step, double tolerance)
{
    rig_run(r, true);
    check(r, "x", r->x, r->dx, r->rows * r->in, step, tolerance);
    for (size_t v = 0; v < r->l->n_wanted; v++)
        if (r->l->wanted[v].role == MR_LEARNED)
            check(r, r->l->wanted[v].name, r->w[v], r->dw[v], r->size[v], step, tolerance);
}

void rig_close(rig *r)
{
    for (size_t v = 0; v < r->l->n_wanted; v++) {
        free(r->w[v]);
        free(r->dw[v]);
    }
    free(r->x);
    free(r->dy);
    free(r->y);
    free(r->dx);
    mr_model_free(r->m);
}
