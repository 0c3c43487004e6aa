/* SPDX-License-Identifier: Apache-2.0 */
/* Dense layers: oneDNN's products, and loops around them; for bfloat16 those of conv2d_cpu.c. */
#include <string.h>
#include "trainer/device/cpu/matmul.h"
#include "trainer/device/cpu/operations.h"

static void check(mr_code rc, const mr_status *st)
{
    if (rc != MR_OK)
        mr__cpu_fail(rc, "%s", st->message);
}

static void run_dense(void *args)
{
    const mr_math_dense *p = args;
    mr_status st;
    for (size_t i = 0; p->bias && i < p->rows; i++)
        memcpy(p->y + i * p->out, p->bias, p->out * sizeof(float));
    check(mr__matmul(false, false, p->rows, p->out, p->in, p->x, p->w, p->bias != NULL, p->y, &st),
          &st);
    mr__cpu_apply(p->f, p->y, p->rows, p->out);
}

static void run_dense_backward_data(void *args)
{
    const mr_math_dense_backward_data *p = args;
    mr_status st;
    check(mr__matmul(false, true, p->rows, p->in, p->out, p->dy, p->w, false, p->dx, &st), &st);
}

static void run_dense_backward_weights(void *args)
{
    const mr_math_dense_backward_weights *p = args;
    mr_status st;
    check(mr__matmul(true, false, p->in, p->out, p->rows, p->x, p->dy, false, p->dw, &st), &st);
    if (p->dbias)
        mr__cpu_column_sums(p->rows, p->out, p->dy, p->dbias);
}

static bool by_bfloat(bool bfloat, size_t rows, size_t in, size_t out)
{
    return bfloat && rows > 0 && in > 0 && out > 0 && mr__cpu_multiplies_bfloat();
}

mr_code mr__cpu_dense(mr_stream *s, const mr_math_dense *p, mr_status *st)
{
    if (by_bfloat(p->bfloat, p->rows, p->in, p->out))
        return mr__cpu_dense_bfloat(s, p, st);
    return mr__cpu_launch(s, run_dense, p, sizeof *p, st);
}

mr_code mr__cpu_dense_backward_data(mr_stream *s, const mr_math_dense_backward_data *p,
                                    mr_status *st)
{
    if (by_bfloat(p->bfloat, p->rows, p->in, p->out))
        return mr__cpu_dense_bfloat_backward_data(s, p, st);
    return mr__cpu_launch(s, run_dense_backward_data, p, sizeof *p, st);
}

static void run_dense_backward_bias(void *args)
{
    const mr_math_dense_backward_weights *p = args;
    mr__cpu_column_sums(p->rows, p->out, p->dy, p->dbias);
}

mr_code mr__cpu_dense_backward_weights(mr_stream *s, const mr_math_dense_backward_weights *p,
                                       mr_status *st)
{
    if (!by_bfloat(p->bfloat, p->rows, p->in, p->out))
        return mr__cpu_launch(s, run_dense_backward_weights, p, sizeof *p, st);
    MR_TRY(mr__cpu_dense_bfloat_backward_weights(s, p, st));
    return p->dbias ? mr__cpu_launch(s, run_dense_backward_bias, p, sizeof *p, st) : MR_OK;
}
