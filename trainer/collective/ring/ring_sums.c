/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective/ring/ring_sums.h"
#include "pipeline/system/clones.h"

static float half(uint16_t v)
{
    return mr_half_to_float(v);
}

static float bfloat(uint16_t v)
{
    return mr_bfloat_to_float(v);
}

/* A comparison with NaN is false: a NaN in either operand is the result. */
#define LARGER(a, b)  ((a) > (b) || (a) != (a) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define ADD(a, b)     ((a) + (b))

#define FOLD(name, type, calculation)                                                              \
    MR__CLONES static void name(void *own_, const void *in_, size_t n)                             \
    {                                                                                              \
        type *restrict own = own_;                                                                 \
        const type *restrict in = in_;                                                             \
        for (size_t i = 0; i < n; i++)                                                             \
            own[i] = (type)(calculation);                                                          \
    }
#define FOLDS(suffix, type)                                                                        \
    FOLD(max_##suffix, type, LARGER(in[i], own[i]))                                                \
    FOLD(min_##suffix, type, SMALLER(in[i], own[i]))
#define FOLDS_16(suffix, load, round)                                                              \
    FOLD(sum_##suffix, uint16_t, round(ADD(load(in[i]), load(own[i]))))                            \
    FOLD(max_##suffix, uint16_t, round(LARGER(load(in[i]), load(own[i]))))                         \
    FOLD(min_##suffix, uint16_t, round(SMALLER(load(in[i]), load(own[i]))))

FOLD(sum_f32, float, ADD(in[i], own[i]))
FOLD(sum_f64, double, ADD(in[i], own[i]))
FOLD(sum_i32, uint32_t, ADD(in[i], own[i]))
FOLD(sum_i64, uint64_t, ADD(in[i], own[i]))
FOLDS(f32, float)
FOLDS(f64, double)
FOLDS(i32, int32_t)
FOLDS(i64, int64_t)
FOLDS_16(f16, half, mr_float_to_half)
FOLDS_16(bf16, bfloat, mr_float_to_bfloat)

mr__fold_fn mr__ring_fold(mr__ring_op op, mr_dtype dtype)
{
    size_t k = op == MR__RING_MAX ? 1 : op == MR__RING_MIN ? 2 : 0;
    switch (dtype) {
    case MR_FLOAT16:
        return (mr__fold_fn[]){sum_f16, max_f16, min_f16}[k];
    case MR_BFLOAT16:
        return (mr__fold_fn[]){sum_bf16, max_bf16, min_bf16}[k];
    case MR_FLOAT32:
        return (mr__fold_fn[]){sum_f32, max_f32, min_f32}[k];
    case MR_FLOAT64:
        return (mr__fold_fn[]){sum_f64, max_f64, min_f64}[k];
    case MR_INT32:
        return (mr__fold_fn[]){sum_i32, max_i32, min_i32}[k];
    case MR_INT64:
        return (mr__fold_fn[]){sum_i64, max_i64, min_i64}[k];
    default:
        return NULL;
    }
}

void mr__ring_divide(mr_dtype dtype, void *values, size_t n, uint32_t by)
{
    switch (dtype) {
    case MR_FLOAT16:
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)values)[i] = mr_float_to_half(half(((uint16_t *)values)[i]) / (float)by);
        break;
    case MR_BFLOAT16:
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)values)[i] =
                mr_float_to_bfloat(bfloat(((uint16_t *)values)[i]) / (float)by);
        break;
    case MR_FLOAT32:
        for (size_t i = 0; i < n; i++)
            ((float *)values)[i] /= (float)by;
        break;
    case MR_FLOAT64:
        for (size_t i = 0; i < n; i++)
            ((double *)values)[i] /= (double)by;
        break;
    default:
        break;
    }
}
