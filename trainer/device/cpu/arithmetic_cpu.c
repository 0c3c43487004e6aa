/* SPDX-License-Identifier: Apache-2.0 */
/* Fill, linear combinations, products, copies of rows, casts, rounding, sums. */
#include <string.h>
#include "trainer/device/cpu/operations.h"

enum { CHUNK = 1024 }; /* values that fit in L1 */

static void run_fill(void *args)
{
    const mr_math_fill *p = args;
    for (size_t i = 0; i < p->n; i++)
        p->dst[i] = p->value;
}

MR__CLONES static void combine(size_t n, float a, const float *x, float b, float *y)
{
    if (b == 0)
        for (size_t i = 0; i < n; i++)
            y[i] = a * x[i];
    else
        for (size_t i = 0; i < n; i++)
            y[i] = a * x[i] + b * y[i];
}

static void run_combine(void *args)
{
    const mr_math_combine *p = args;
    if (p->a != 0)
        combine(p->n, p->a, p->x, p->b, p->y);
    else if (p->b != 0)
        combine(p->n, p->b, p->y, 0, p->y);
    else if (p->n > 0)
        memset(p->y, 0, p->n * sizeof *p->y);
}

/* Like mr_float_to_bfloat, in a loop that vectorises. */
MR__CLONES static void round_to_bfloat(size_t n, const float *x, float *y)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        uint32_t nearest = bits + 0x7fff + (bits >> 16 & 1);
        bits = ((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : nearest) & 0xffff0000;
        memcpy(&y[i], &bits, sizeof bits);
    }
}

MR__CLONES static void multiply(size_t n, const float *x, const float *z, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * z[i];
}

static void run_product(void *args)
{
    const mr_math_product *p = args;
    multiply(p->n, p->x, p->z, p->y);
}

static void run_round_bfloat(void *args)
{
    const mr_math_round_bfloat *p = args;
    round_to_bfloat(p->n, p->x, p->y);
}

static void run_place(void *args)
{
    const mr_math_place *p = args;
    for (size_t i = 0; i < p->rows && p->width > 0; i++)
        memcpy(p->y + i * p->y_stride, p->x + i * p->x_stride, p->width * sizeof *p->y);
}

#define CAST(name, type, value)                                                                    \
    MR__CLONES static void cast_##name(const mr_math_cast *p)                                      \
    {                                                                                              \
        const type *x = p->src;                                                                    \
        float scale = p->scale, offset = p->offset, *y = p->dst;                                   \
        for (size_t i = 0; i < p->n; i++)                                                          \
            y[i] = (value)*scale + offset;                                                         \
    }
CAST(bool, unsigned char, x[i] != 0 ? 1.0f : 0.0f)
CAST(int8, int8_t, (float)x[i])
CAST(int16, int16_t, (float)x[i])
CAST(int32, int32_t, (float)x[i])
CAST(int64, int64_t, (float)x[i])
CAST(uint8, uint8_t, (float)x[i])
CAST(uint16, uint16_t, (float)x[i])
CAST(uint32, uint32_t, (float)x[i])
CAST(uint64, uint64_t, (float)x[i])
CAST(float16, uint16_t, mr_half_to_float(x[i]))
CAST(bfloat16, uint16_t, mr_bfloat_to_float(x[i]))
CAST(float32, float, x[i])
CAST(float64, double, (float)x[i])

static void run_cast(void *args)
{
    static void (*const casts[MR_N_DTYPES])(const mr_math_cast *) = {
        [MR_BOOL] = cast_bool,       [MR_INT8] = cast_int8,         [MR_INT16] = cast_int16,
        [MR_INT32] = cast_int32,     [MR_INT64] = cast_int64,       [MR_UINT8] = cast_uint8,
        [MR_UINT16] = cast_uint16,   [MR_UINT32] = cast_uint32,     [MR_UINT64] = cast_uint64,
        [MR_FLOAT16] = cast_float16, [MR_BFLOAT16] = cast_bfloat16, [MR_FLOAT32] = cast_float32,
        [MR_FLOAT64] = cast_float64};
    const mr_math_cast *p = args;
    casts[p->from](p);
}

static void run_sum(void *args)
{
    const mr_math_sum *p = args;
    double sum = 0;
    for (size_t i = 0; i < p->n; i++)
        sum += p->x[i];
    *p->out = p->add ? *p->out + sum : sum;
}

MR__CLONES static void add_to(float *restrict sum, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += x[i];
}

/* Two replicas, in place: copying to memory that another core wrote last takes longer. */
MR__CLONES static void sum_both(float *restrict a, float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] = a[i] + b[i];
}

static void run_reduce(void *args)
{
    const mr_math_reduce *p = args;
    float sum[CHUNK];
    if (p->n_in == 2 && p->n_out == 2 && p->in[0] == p->out[0] && p->in[1] == p->out[1]) {
        sum_both(p->out[0], p->out[1], p->n);
        return;
    }
    for (size_t at = 0; at < p->n; at += CHUNK) {
        size_t n = p->n - at < CHUNK ? p->n - at : CHUNK;
        memcpy(sum, p->in[0] + at, n * sizeof *sum);
        for (size_t k = 1; k < p->n_in; k++)
            add_to(sum, p->in[k] + at, n);
        for (size_t k = 0; k < p->n_out; k++)
            memcpy(p->out[k] + at, sum, n * sizeof *sum);
    }
}

MR__CLONES static void column_sums(size_t rows, size_t width, const float *restrict x,
                                   float *restrict out)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < width; j++)
            out[j] += x[i * width + j];
}

/* The clones themselves are static: others would be exported regardless of their visibility. */
void mr__cpu_column_sums(size_t rows, size_t width, const float *x, float *out)
{
    if (width > 0)
        memset(out, 0, width * sizeof *out);
    column_sums(rows, width, x, out);
}

MR__CPU_SUBMIT(fill)
MR__CPU_SUBMIT(combine)
MR__CPU_SUBMIT(product)
MR__CPU_SUBMIT(place)
MR__CPU_SUBMIT(round_bfloat)
MR__CPU_SUBMIT(sum)
MR__CPU_SUBMIT(reduce)

mr_code mr__cpu_cast(mr_stream *s, const mr_math_cast *p, mr_status *st)
{
    if (p->from >= MR_STRING)
        return mr_fail(st, MR_UNIMPLEMENTED, "%s cannot be cast to float32",
                       mr_dtype_name(p->from));
    return mr__cpu_launch(s, run_cast, p, sizeof *p, st);
}
