/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_ELEMENTWISE_LOOPS_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_ELEMENTWISE_LOOPS_H
/* The loops of elementwise functions of two operands, which evaluation may call on parts of a
 * block. Private to functions/.
 *
 * thread   any */
#include "pipeline/functions/compiler/typed_tree.h"

/* z = f(x, y) of n contiguous values; xs, ys: of one value for all. */
typedef void (*mr__binary_loop)(const void *x, bool xs, const void *y, bool ys, void *z, size_t n);

/* A function of two operands of one dtype. */
typedef struct mr__elementwise {
    mr__binary_loop loops[MR_N_DTYPES]; /* NULL: not supported; half floats use float32 */
    mr_code (*strings)(const mr_bytes *x, bool xs, const mr_bytes *y, bool ys, mr_array *out,
                       size_t n, mr_status *st); /* NULL: not supported */
    bool comparison;                             /* returns bools */
    bool quotient;                               /* returns float64 for integers */
    bool (*refuses)(int64_t right, mr_dtype t);  /* invalid integer operands; may be NULL */
    const char *refusal;
} mr__elementwise;

/* A flag of mr_function.props, of built-in functions only: .family is an mr__elementwise, which
 * does all that .run does. */
enum { MR__FUNCTION_LOOPS = 1 << 16 };

/* The most steps of a call in tiles. */
enum { MR__TILE_STEPS = 8 };

/* Operands of nested calls that were evaluated; those taken have no column. */
struct operands {
    const typed *of[MR__TILE_STEPS + 1];
    column_set values[MR__TILE_STEPS + 1];
    size_t n;
};

/* For typed.steps of the call t: the loops that evaluate it in tiles; 0: it cannot be. */
size_t mr__tile_steps(const typed *t);
/* Evaluates t of more than one step. *done = false: some rows are not plain values of one shape, so
 * that it must be evaluated call by call, with the operands in *made. */
mr_code mr__eval_in_tiles(const typed *t, const frame *f, operands *made, mr_array *out, bool *done,
                          mr_status *st) MR_NODISCARD;
#endif
