/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_FUNCTION_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_FUNCTION_H
/* Functions of elements, for map, filter, flat_map and similar ops: expressions in text, or C
 * callbacks.
 *
 *     mr_map(ds, mr_fn_text("x => x * 2"), NULL)
 *
 * An expression is typed when the graph is built and runs vectorised over columns. The op that
 * receives a function takes it over. A function whose constructor failed carries the error, as
 * datasets do, and the op's dataset reports it.
 *
 * thread   any
 * since    0.1 */
#include "../../graph/dataset.h"
#include "../../memory/block.h"
#include "../../wait/cancel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Expression text as in docs/grammar.md: "x => x * 2", "(a, b) => (b, a + 1)", "tfrecord". A syntax
 * error is carried, and the dataset made with the function reports it. */
MR_API mr_fn *mr_fn_text(const char *text);

/* A function in C. The callback receives 1 or more rows in `in` and must fill `out` with the same
 * number of rows (mr_block_prepare, then columns). An error fails the whole call: for mr_fn_element
 * (`in` has one row) it is the element's error; for mr_fn_block the rows are then tried one at a
 * time to find the elements that fail. If the op is parallel, it calls the callback from several
 * threads at once. */
typedef struct mr_fn_opts {
    mr_spec *out;     /* spec of the results (borrowed); NULL: the input's spec */
    bool may_block;   /* may wait for a long time: runs on a separate thread */
    const char *name; /* also register it under this name, so that the graph can be sent and saved;
                         NULL: do not */
    void (*release)(void *ctx); /* called when the function is freed; NULL: nothing */
} mr_fn_opts;
typedef mr_code (*mr_fn_call)(void *ctx, const mr_block *in, mr_block *out, mr_status *st);
MR_API mr_fn *mr_fn_block(mr_fn_call f, void *ctx, const mr_fn_opts *opts);
MR_API mr_fn *mr_fn_element(mr_fn_call f, void *ctx, const mr_fn_opts *opts);

/* A function in C over blocks that says which rows failed, for runtimes of other languages: a call
 * is never repeated for single rows, unless memory is lacking. */
typedef struct mr_row_errors mr_row_errors; /* program.h */
struct mr_rows;
/* What a call knows besides its rows; borrowed during the call. */
typedef struct mr_rows_call {
    const mr_spec *in;          /* of the rows */
    void *run;                  /* from begin; NULL for a call from an expression */
    mr_cancel *cancel;          /* ends the waits of the call (cancel.h); NULL: nothing does */
    const struct mr_rows *rows; /* for mr_rows_key */
} mr_rows_call;
typedef struct mr_rows_fn {
    void *ctx;
    /* Puts the results of the rows that succeed into out, in order, and an error for each of the
     * others into errors (mr_row_errors_add, in ascending order of rows). Returns MR_OK even if all
     * fail. An error of the environment is returned instead: it ends the pipeline, and the message
     * is the caller's. thread any: an op that is parallel calls it from several threads at once */
    mr_code (*call)(void *ctx, const mr_rows_call *c, const mr_block *in, mr_block *out,
                    mr_row_errors *errors, mr_status *st);
    /* Called before the first call and after the last one of each iterator that runs the function;
     * when the iterator rests, also. NULL: nothing */
    mr_code (*begin)(void *ctx, void **run, mr_status *st);
    void (*end)(void *ctx, void *run);
    void (*release)(void *ctx); /* as in mr_fn_opts, with the next three */
    mr_spec *out;
    const char *name;
    bool may_block;
    double seconds;    /* calls get more rows while one takes less, up to a block; 0: 0.0005 */
    bool draws;        /* it calls mr_rows_key: iterators keep identities */
    const char *alias; /* a registered name of the same function: text and messages have it */
    const char *label; /* without a name, text shows the function as callback("label"), which
                             cannot be parsed; NULL: it has no text */
} mr_rows_fn;
/* since 0.2 */
MR_API mr_fn *mr_fn_rows(const mr_rows_fn *f);
/* A random word for the row. It depends on `seed`, the job's seed and the identity of the element
 * alone, as the random functions of expressions do. Without identities all rows have the same one.
 * since 0.2 */
MR_API uint64_t mr_rows_key(const mr_rows_call *c, size_t row, int64_t seed);

/* Makes fn (a reference is kept) callable by name from text and from received graphs, in the whole
 * process. errors MR_ALREADY_EXISTS, MR_INVALID_ARGUMENT: not a name, or reserved by the grammar */
MR_API mr_code mr_fn_register(const char *name, mr_fn *fn, mr_status *st) MR_NODISCARD;

/* Parses text as an argument of an op: "0", "[1, 2]", "(0, zeros([3]))". *out is owned:
 * mr_value_reset.
 * errors   MR_INVALID_ARGUMENT: syntax errors and unknown names, with their place */
MR_API mr_code mr_value_from_text(const char *text, size_t size, mr_value *out,
                                  mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
