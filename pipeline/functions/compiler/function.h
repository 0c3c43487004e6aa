/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_FUNCTION_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_FUNCTION_H
/* Functions of elements, for map, filter, flat_map and the like: expressions in text, or C
 * callbacks.
 *
 *     mr_map(ds, mr_fn_text("x => x * 2"), NULL)
 *
 * An expression is typed when the graph is built and runs vectorised over columns. A constructor
 * returns a function that the op it is given to takes over; a bad one carries its error there, as
 * datasets do.
 *
 * thread   any
 * since    0.1 */
#include "../../graph/dataset.h"
#include "../../memory/block.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Expression text as in docs/grammar.md: "x => x * 2", "(a, b) => (b, a + 1)", "tfrecord". A syntax
 * error is carried and surfaces in the dataset made with it. */
MR_API mr_fn *mr_fn_text(const char *text);

/* in: 1 or more rows; out: to be given as many rows (mr_block_prepare, then columns). On error the
 * function fails as a whole: for mr_fn_element (in has one row) that is the element's error; for
 * mr_fn_block the block is split and tried again row by row, so that the error finds its element.
 * Called from several threads at once where the op is parallel. */
typedef struct mr_fn_opts {
    mr_spec *out;     /* what it returns (borrowed); NULL: the input's spec */
    bool may_block;   /* may wait for long: runs in a thread of its own */
    const char *name; /* registered under this name too, so that the graph can travel; NULL: not */
    void (*release)(void *ctx); /* called when the function goes; NULL: nothing */
} mr_fn_opts;
typedef mr_code (*mr_fn_call)(void *ctx, const mr_block *in, mr_block *out, mr_status *st);
MR_API mr_fn *mr_fn_block(mr_fn_call f, void *ctx, const mr_fn_opts *opts);
MR_API mr_fn *mr_fn_element(mr_fn_call f, void *ctx, const mr_fn_opts *opts);

/* Makes fn (a reference is kept) callable by name from text and from graphs that travelled, for the
 * whole process. errors MR_ALREADY_EXISTS, MR_INVALID_ARGUMENT: not a name, or one of the
 * grammar's */
MR_API mr_code mr_fn_register(const char *name, mr_fn *fn, mr_status *st) MR_NODISCARD;

/* *out = the value that text says, as an argument of an op may be: "0", "[1, 2]",
 * "(0, zeros([3]))". Owned: mr_value_reset.
 * errors   MR_INVALID_ARGUMENT: syntax, unknown names; shows the place */
MR_API mr_code mr_value_from_text(const char *text, size_t size, mr_value *out,
                                  mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
