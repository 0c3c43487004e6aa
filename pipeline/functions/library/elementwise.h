/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_LIBRARY_ELEMENTWISE_H
#define MR_PIPELINE_FUNCTIONS_LIBRARY_ELEMENTWISE_H
/* For elementwise functions. Each is a table of loops by dtype; broadcasting, half floats and the
 * errors of integers are handled here. A loop runs over contiguous values, in three forms (two
 * vectors, a scalar on the right, a scalar on the left), compiled for several instruction sets.
 * Broader broadcasting first expands the smaller operand into a copy. Private to functions/.
 *
 * thread   any */
#include "pipeline/system/clones.h"
#include "pipeline/functions/compiler/elementwise_loops.h"

typedef void (*mr__unary_loop)(const void *x, void *z, size_t n);

/* Defines NAME: z = EXPR of a and b of type T; z has type R. */
#define MR__BINARY(NAME, T, R, EXPR)                                                               \
    MR__CLONES static void NAME##_vv(const T *restrict x, const T *restrict y, R *restrict z,      \
                                     size_t n)                                                     \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            T a = x[i], b = y[i];                                                                  \
            z[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }                                                                                              \
    MR__CLONES static void NAME##_vs(const T *restrict x, T b, R *restrict z, size_t n)            \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            T a = x[i];                                                                            \
            z[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }                                                                                              \
    MR__CLONES static void NAME##_sv(T a, const T *restrict y, R *restrict z, size_t n)            \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            T b = y[i];                                                                            \
            z[i] = (R)(EXPR);                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void NAME(const void *x, bool xs, const void *y, bool ys, void *z, size_t n)            \
    {                                                                                              \
        if (xs)                                                                                    \
            NAME##_sv(*(const T *)x, y, z, n);                                                     \
        else if (ys)                                                                               \
            NAME##_vs(x, *(const T *)y, z, n);                                                     \
        else                                                                                       \
            NAME##_vv(x, y, z, n);                                                                 \
    }
/* Defines NAME: z = EXPR of a, both of type T. */
#define MR__UNARY(NAME, T, EXPR)                                                                   \
    static void NAME(const void *from, void *to, size_t n)                                         \
    {                                                                                              \
        const T *restrict x = from;                                                                \
        T *restrict z = to;                                                                        \
        for (size_t i = 0; i < n; i++) {                                                           \
            T a = x[i];                                                                            \
            z[i] = (T)(EXPR);                                                                      \
        }                                                                                          \
    }
/* F(suffix, type, unsigned type) for each integer type, F(suffix, type) for each floating one. */
#define MR__EACH_INTEGER(F)                                                                        \
    F(i8, int8_t, uint8_t)                                                                         \
    F(i16, int16_t, uint16_t)                                                                      \
    F(i32, int32_t, uint32_t)                                                                      \
    F(i64, int64_t, uint64_t)                                                                      \
    F(u8, uint8_t, uint8_t)                                                                        \
    F(u16, uint16_t, uint16_t)                                                                     \
    F(u32, uint32_t, uint32_t)                                                                     \
    F(u64, uint64_t, uint64_t)
#define MR__EACH_FLOAT(F)                                                                          \
    F(f32, float)                                                                                  \
    F(f64, double)
/* The loops NAME_i8 to NAME_f64 in a table by dtype. */
#define MR__NUMBERS(NAME)                                                                          \
    [MR_INT8] = NAME##_i8, [MR_INT16] = NAME##_i16, [MR_INT32] = NAME##_i32,                       \
    [MR_INT64] = NAME##_i64, [MR_UINT8] = NAME##_u8, [MR_UINT16] = NAME##_u16,                     \
    [MR_UINT32] = NAME##_u32, [MR_UINT64] = NAME##_u64, [MR_FLOAT32] = NAME##_f32,                 \
    [MR_FLOAT64] = NAME##_f64

/* Types a and b of c as operands of rule. */
mr_code mr__elementwise_type(mr_call *c, const mr__elementwise *rule, const mr_leaf *a,
                             const mr_leaf *b, mr_status *st) MR_NODISCARD;
/* Applies rule to a and b (constant: one row), with numpy's broadcasting within a row. */
mr_code mr__elementwise_run(const mr_rows *r, const mr__elementwise *rule, const mr_array *a,
                            bool a_const, const mr_array *b, bool b_const, mr_array *out,
                            mr_status *st) MR_NODISCARD;
/* out = a (constant: its one row repeated) broadcast to `rows` rows of the given shape. */
mr_code mr__broadcast_to(const mr_array *a, bool constant, size_t rows, int rank,
                         const int64_t *shape, mr_array *out, mr_status *st) MR_NODISCARD;
/* mr_function.type and run of functions whose family is an mr__elementwise. */
mr_code mr__binary_type(mr_call *c, mr_status *st) MR_NODISCARD;
mr_code mr__binary_run(const mr_rows *r, mr_array *out, mr_status *st) MR_NODISCARD;
/* The same for functions whose family is an mr__unary_loop[MR_N_DTYPES]. */
mr_code mr__unary_type(mr_call *c, mr_status *st) MR_NODISCARD;
mr_code mr__unary_run(const mr_rows *r, mr_array *out, mr_status *st) MR_NODISCARD;
#endif
