/* SPDX-License-Identifier: Apache-2.0 */
/* Converts arrays between numeric types. Loops, for each pair of types, compiled for several
 * instruction sets. */
#include "pipeline/functions/compiler/typed_tree.h"
#include "pipeline/system/clones.h"

bool mr__is_half(mr_dtype t)
{
    return t == MR_FLOAT16 || t == MR_BFLOAT16;
}

int64_t mr__int_at(const mr_array *a, size_t i)
{
    switch (a->dtype) {
    case MR_BOOL:
    case MR_UINT8:
        return ((const uint8_t *)a->data)[i];
    case MR_INT8:
        return ((const int8_t *)a->data)[i];
    case MR_INT16:
        return ((const int16_t *)a->data)[i];
    case MR_UINT16:
        return ((const uint16_t *)a->data)[i];
    case MR_INT32:
        return ((const int32_t *)a->data)[i];
    case MR_UINT32:
        return ((const uint32_t *)a->data)[i];
    default:
        return ((const int64_t *)a->data)[i];
    }
}

/* The same code serves signed and unsigned types: "a < 0" is never true for some. */
#pragma GCC diagnostic ignored "-Wtype-limits"

#define CAST_LOOP(S, D, T, F)                                                                      \
    MR__CLONES static void cast_##S##_##D(const F *restrict x, T *restrict z, size_t n)            \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            z[i] = (T)x[i];                                                                        \
    }
/* Converting out-of-range floats is undefined in C: they are clamped first. */
#define CAST_FLOAT_INT(S, D, T, F, LEAST, MOST)                                                    \
    MR__CLONES static void cast_##S##_##D(const F *restrict x, T *restrict z, size_t n)            \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            F v = x[i];                                                                            \
            z[i] = v != v ? 0 : v <= (F)(LEAST) ? (T)(LEAST) : v >= (F)(MOST) ? (T)(MOST) : (T)v;  \
        }                                                                                          \
    }
#define CASTS_FROM_INT(S, F)                                                                       \
    CAST_LOOP(S, i8, int8_t, F)                                                                    \
    CAST_LOOP(S, i16, int16_t, F)                                                                  \
    CAST_LOOP(S, i32, int32_t, F)                                                                  \
    CAST_LOOP(S, i64, int64_t, F)                                                                  \
    CAST_LOOP(S, u8, uint8_t, F)                                                                   \
    CAST_LOOP(S, u16, uint16_t, F)                                                                 \
    CAST_LOOP(S, u32, uint32_t, F)                                                                 \
    CAST_LOOP(S, u64, uint64_t, F)                                                                 \
    CAST_LOOP(S, f32, float, F)                                                                    \
    CAST_LOOP(S, f64, double, F)
#define CASTS_FROM_FLOAT(S, F)                                                                     \
    CAST_FLOAT_INT(S, i8, int8_t, F, INT8_MIN, INT8_MAX)                                           \
    CAST_FLOAT_INT(S, i16, int16_t, F, INT16_MIN, INT16_MAX)                                       \
    CAST_FLOAT_INT(S, i32, int32_t, F, INT32_MIN, INT32_MAX)                                       \
    CAST_FLOAT_INT(S, i64, int64_t, F, INT64_MIN, INT64_MAX)                                       \
    CAST_FLOAT_INT(S, u8, uint8_t, F, 0, UINT8_MAX)                                                \
    CAST_FLOAT_INT(S, u16, uint16_t, F, 0, UINT16_MAX)                                             \
    CAST_FLOAT_INT(S, u32, uint32_t, F, 0, UINT32_MAX)                                             \
    CAST_FLOAT_INT(S, u64, uint64_t, F, 0, UINT64_MAX)                                             \
    CAST_LOOP(S, f32, float, F)                                                                    \
    CAST_LOOP(S, f64, double, F)
CASTS_FROM_INT(i8, int8_t)
CASTS_FROM_INT(i16, int16_t)
CASTS_FROM_INT(i32, int32_t)
CASTS_FROM_INT(i64, int64_t)
CASTS_FROM_INT(u8, uint8_t)
CASTS_FROM_INT(u16, uint16_t)
CASTS_FROM_INT(u32, uint32_t)
CASTS_FROM_INT(u64, uint64_t)
CASTS_FROM_FLOAT(f32, float)
CASTS_FROM_FLOAT(f64, double)

#define CAST_TO(S, F)                                                                              \
    switch (to) {                                                                                  \
    case MR_INT8:                                                                                  \
        cast_##S##_i8(x, z, n);                                                                    \
        break;                                                                                     \
    case MR_INT16:                                                                                 \
        cast_##S##_i16(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_INT32:                                                                                 \
        cast_##S##_i32(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_INT64:                                                                                 \
        cast_##S##_i64(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_UINT8:                                                                                 \
        cast_##S##_u8(x, z, n);                                                                    \
        break;                                                                                     \
    case MR_UINT16:                                                                                \
        cast_##S##_u16(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_UINT32:                                                                                \
        cast_##S##_u32(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_UINT64:                                                                                \
        cast_##S##_u64(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_FLOAT32:                                                                               \
        cast_##S##_f32(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_FLOAT64:                                                                               \
        cast_##S##_f64(x, z, n);                                                                   \
        break;                                                                                     \
    case MR_BOOL:                                                                                  \
        for (size_t i = 0; i < n; i++)                                                             \
            ((uint8_t *)z)[i] = ((const F *)x)[i] != 0;                                            \
        break;                                                                                     \
    default:                                                                                       \
        break;                                                                                     \
    }                                                                                              \
    break

static void cast_values(mr_dtype from, const void *x, mr_dtype to, void *z, size_t n)
{
    switch (from) {
    case MR_BOOL:
    case MR_UINT8:
        CAST_TO(u8, uint8_t);
    case MR_INT8:
        CAST_TO(i8, int8_t);
    case MR_INT16:
        CAST_TO(i16, int16_t);
    case MR_INT32:
        CAST_TO(i32, int32_t);
    case MR_INT64:
        CAST_TO(i64, int64_t);
    case MR_UINT16:
        CAST_TO(u16, uint16_t);
    case MR_UINT32:
        CAST_TO(u32, uint32_t);
    case MR_UINT64:
        CAST_TO(u64, uint64_t);
    case MR_FLOAT32:
        CAST_TO(f32, float);
    case MR_FLOAT64:
        CAST_TO(f64, double);
    default:
        break;
    }
}

/* u with 53 bits at most, the last of which is set if bits after it were. */
static double to_odd(uint64_t u)
{
    return u >> 53 ? (double)(u >> 11 | (u % 2048 != 0)) * 2048 : (double)u;
}

/* Values of any type but float32 and the half floats as a half float: rounded once. */
static mr_code narrow(const mr_array *a, size_t n, mr_dtype to, mr_array *out, mr_status *st)
{
    mr_array wide = {0};
    MR_TRY(mr__kernel_cast(a, MR_FLOAT64, &wide, st));
    mr_code rc = mr_array_alloc(out, to, a->rank, a->shape, a->rows, st);
    const int64_t *v = a->data;
    for (size_t i = 0; i < n && rc == MR_OK; i++) {
        double d = ((const double *)wide.data)[i];
        if (a->dtype == MR_UINT64)
            d = to_odd((uint64_t)v[i]);
        else if (a->dtype == MR_INT64)
            d = v[i] < 0 ? -to_odd(-(uint64_t)v[i]) : to_odd((uint64_t)v[i]);
        ((uint16_t *)out->data)[i] =
            to == MR_FLOAT16 ? mr_double_to_half(d) : mr_double_to_bfloat(d);
    }
    mr_array_reset(&wide);
    return rc;
}

mr_code mr__kernel_cast(const mr_array *a, mr_dtype to, mr_array *out, mr_status *st)
{
    if (a->dtype == to) {
        mr_array_slice(out, a, 0, a->rows);
        return MR_OK;
    }
    size_t n = a->rows * mr_array_row_values(a);
    if (mr__is_half(a->dtype) && to != MR_FLOAT32) {
        mr_array wide = {0};
        MR_TRY(mr__kernel_cast(a, MR_FLOAT32, &wide, st));
        mr_code rc = mr__kernel_cast(&wide, to, out, st);
        mr_array_reset(&wide);
        return rc;
    }
    if (mr__is_half(to) && a->dtype != MR_FLOAT32)
        return narrow(a, n, to, out, st);
    MR_TRY(mr_array_alloc(out, to, a->rank, a->shape, a->rows, st));
    for (size_t i = 0; i < n && mr__is_half(a->dtype); i++)
        ((float *)out->data)[i] = a->dtype == MR_FLOAT16
                                      ? mr_half_to_float(((const uint16_t *)a->data)[i])
                                      : mr_bfloat_to_float(((const uint16_t *)a->data)[i]);
    for (size_t i = 0; i < n && mr__is_half(to); i++)
        ((uint16_t *)out->data)[i] = to == MR_FLOAT16
                                         ? mr_float_to_half(((const float *)a->data)[i])
                                         : mr_float_to_bfloat(((const float *)a->data)[i]);
    if (!mr__is_half(a->dtype) && !mr__is_half(to))
        cast_values(a->dtype, a->data, to, out->data, n);
    return MR_OK;
}
