/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_TYPED_TREE_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_TYPED_TREE_H
/* Typed expressions and their evaluation. Private to functions/.
 *
 *     text --parse--> mr_expr --expression_type.c--> typed tree --expression_eval.c--> columns
 *
 * A typed tree is evaluated bottom-up, each node over all rows of a block at once. A node whose
 * value does not depend on the block is constant: it has one row, and kernels broadcast it.
 *
 * thread   trees are immutable once typed */
#include "pipeline/functions/descriptor.h"
#include "pipeline/functions/compiler/program.h"
#include "pipeline/graph/dataset.h"
#include "pipeline/graph/fn.h"
#include "pipeline/params/hints.h"
#include "pipeline/wait/cancel.h"

typedef enum typed_kind {
    TYPED_CONST,   /* .value: one row */
    TYPED_COLUMN,  /* the block's columns from .first on */
    TYPED_GROUP,   /* a tuple or record of the children, in the order of the spec */
    TYPED_PART,    /* child 0's leaves from .first on */
    TYPED_CHOICE,  /* child 1 if child 0 is true, else child 2; evaluates only rows that need it */
    TYPED_CALL,    /* .function over the children, with .params and .plan */
    TYPED_PROGRAM, /* .program over a tuple of the children */
    TYPED_DATASET  /* .body */
} typed_kind;

typedef struct typed typed;
struct typed {
    typed_kind kind;
    bool constant;
    char weak; /* CONST: a literal that takes its neighbour's type: 'i' integer, 'f' float, 'd' a
                  quotient of integers */
    mr_spec *spec;
    const mr_expr *e; /* CHOICE, CALL: its place in the text, for messages */
    size_t first;
    mr_array value;
    const mr_function *function;
    void *params, *plan;
    uint64_t number; /* CALL that draws: see mr_rows */
    size_t steps;    /* CALL: see mr__tile_steps */
    const mr_program *program;
    struct dataset_body *body;
    size_t n;
    typed *children[];
};

/* Names in scope. Each refers to columns from first[i] on of the tree's input. Inner names come
 * last and hide outer ones. */
typedef struct scope {
    size_t n;
    const char **names;
    const mr_spec **specs;
    size_t *first;
    bool *constant; /* a captured value: one row */
} scope;

int64_t mr__scope_find(const scope *s, const char *name); /* -1: not found */

mr_code mr__type(const mr_expr *e, const scope *s, typed **out, mr_status *st) MR_NODISCARD;
void mr__typed_free(typed *t);
/* A suggestion for e, as the end of a message; may be "". */
const char *mr__type_hint(const mr_expr *e);

/* Numbers the calls that draw, from *n on, in the order in which they run. */
void mr__type_number_draws(typed *t, uint64_t *n);

/* The tree is of a batch: each row of its value depends on the same row of the batch alone. */
bool mr__is_row_wise(const typed *t);

/* Settles a weak literal without a neighbour: int64, float32, or float64 for a quotient of
 * integers.
 * */
mr_code mr__type_settle_default(typed *t, const mr_expr *e, mr_status *st) MR_NODISCARD;

/* ---- values as columns ---- */

/* The leaves of a value as arrays of one row. */
mr_code mr__value_columns(const mr_value *v, mr_array *columns, mr_status *st) MR_NODISCARD;
/* The inverse: the element of `spec` in row `row` (row 0 of constant columns). */
mr_code mr__value_of_columns(const mr_spec *spec, const mr_array *columns, const bool *constant,
                             size_t row, mr_value *out, mr_status *st) MR_NODISCARD;

/* ---- running ---- */

struct mr_row_sink {
    size_t base;          /* of the rows passed to run: its row r is rows[base + r] */
    const uint32_t *rows; /* NULL: the rows of the block in order */
    size_t n_rows;        /* of the whole block */
    mr_row_errors errors; /* in any order, at most one per row */
    bool *bad;            /* allocated with the first error */
    bool out_of_memory;
    const mr_expr *e;     /* being evaluated; NULL: messages have no place */
    const mr_expr *shown; /* the expression whose text is in `place` */
    char place[96];
    size_t widest;            /* bytes of the largest value of a node, over all rows */
    const mr_row_sink *outer; /* sink whose rows equal the block's; NULL: the rows are elements */
    const mr_identities *ids; /* without outer: of the block's rows */
    uint64_t seed;            /* and the job's seed */
    mr_cancel *cancel;        /* ends waits; may be NULL */
};
void mr__sink_free(mr_row_sink *sink);
/* Fails row `row` of the sink's rows with *e. */
void mr__row_failed(mr_row_sink *sink, size_t row, const mr_status *e);

typedef struct column_set {
    mr_array *v;
    size_t n;
    bool constant; /* one row, valid for all */
} column_set;
void mr__columns_free(column_set *c);

typedef struct operands operands;
/* The input of a tree: `rows` rows of columns; constant columns have one. */
typedef struct frame {
    const mr_array *v;
    const bool *constant; /* NULL: no column is constant */
    size_t n, rows;
    mr_row_sink *sink;
    operands *made; /* nodes that have their value already; may be NULL */
} frame;
mr_code mr__eval(const typed *t, const frame *f, column_set *out, mr_status *st) MR_NODISCARD;
/* Expands the constant c to `rows` rows. */
mr_code mr__columns_expand(column_set *c, size_t rows, mr_status *st) MR_NODISCARD;

/* mr_program_run within a function whose rows are those of `outer`. */
mr_code mr__program_run_within(const mr_program *p, const mr_block *in, const mr_row_sink *outer,
                               mr_block *out, mr_row_errors *errors, mr_status *st) MR_NODISCARD;

/* ---- numbers: array_cast.c ---- */

/* Converts a to dtype `to`. A float outside an integer type's range becomes the nearest value of
 * that type; NaN becomes 0. */
mr_code mr__kernel_cast(const mr_array *a, mr_dtype to, mr_array *out, mr_status *st) MR_NODISCARD;
/* Value i of an integer array. */
int64_t mr__int_at(const mr_array *a, size_t i);
bool mr__is_half(mr_dtype t); /* 16-bit floats, which compute as float32 */

/* ---- helpers of functions ---- */

/* Arbitrary values of dtype t, for rows that failed. */
mr_code mr__any_value(mr_dtype t, size_t rows, mr_array *out, mr_status *st) MR_NODISCARD;
/* Repeats a's single row `rows` times. */
mr_code mr__repeat_row(mr_array *a, size_t rows, mr_status *st) MR_NODISCARD;
/* Fails all rows of r. */
/* Appends to the message of *st where in the text of the function it was: " in 10 // x". */
void mr__rows_name_place(const mr_rows *r, mr_status *st);
void mr__fail_all(const mr_rows *r, const char *fmt, ...) MR_PRINTF(2, 3);
/* The shape that input i contains, when typed: -1 for unknown dimensions. one_free: it may contain
 * one -1. */
mr_code mr__call_shape(const mr_call *c, size_t i, bool one_free, mr_leaf *leaf,
                       mr_status *st) MR_NODISCARD;
/* The same when run. false: not a valid shape; the rows have failed. */
bool mr__rows_shape(const mr_rows *r, size_t i, bool one_free, int *rank, int64_t *shape);
/* out = `rows` vectors of these lengths: DENSE (BYTES) if all are equal, else RAGGED. *values:
 * memory for the values of all rows, contiguous, for the caller to write. */
mr_code mr__vectors(mr_dtype t, const int64_t *lengths, size_t rows, mr_array *out, void **values,
                    mr_status *st) MR_NODISCARD;
/* The same for rows of k vectors each, with k * rows lengths: every row is itself ragged. */
mr_code mr__lists(mr_dtype t, const int64_t *lengths, size_t rows, size_t k, mr_array *out,
                  void **values, mr_status *st) MR_NODISCARD;
/* Copies values of `size` bytes that are strides[d] values apart along axis d, and writes them
 * contiguously in the order of `shape`. */
void mr__copy_strided(char *to, const char *from, size_t size, int rank, const int64_t *shape,
                      const int64_t *strides);
/* Makes out keep the strings of the first n inputs alive, of which its strings are views. On
 * failure out is empty. */
mr_code mr__hold_strings(mr_array *out, const mr_rows *r, size_t n, mr_status *st) MR_NODISCARD;
/* Row `row` of input i, which may be constant. */
const void *mr__row_at(const mr_rows *r, size_t i, size_t row);

/* ---- dataset-valued bodies and arguments: build.c ---- */

/* A function body that is a dataset: typed once, instantiated for every row. */
typedef struct dataset_body dataset_body;
mr_code mr__dataset_body(const mr_expr *e, const scope *s, dataset_body **out, mr_spec **element,
                         mr_status *st) MR_NODISCARD;
void mr__dataset_body_free(dataset_body *b);
/* Elements of each dataset that b makes; MR_UNKNOWN_COUNT: they may differ. */
int64_t mr__dataset_body_count(const dataset_body *b);
/* Marks the columns that instantiating b reads. */
void mr__dataset_body_used(const dataset_body *b, bool *used);
/* The dataset for row `row` of f; an error belongs to that row. */
mr_code mr__dataset_body_make(const dataset_body *b, const frame *f, size_t row, mr_dataset **out,
                              mr_status *st) MR_NODISCARD;
/* true if e is a dataset: a call or method of an op, or a name of a dataset. */
bool mr__is_dataset(const mr_expr *e, const scope *s);
/* Sets text to a hint where a dataset is expected, and e is a record of datasets; else to "". */
void mr__hint_of_place(const mr_expr *e, const scope *s, char text[MR__HINT_ROOM]);

/* The function registered as name (a new reference), or NULL. */
mr_fn *mr__fn_registered(const char *name);
/* Whether `does` is true of the function registered as name, which may call other such functions.
 * The answer is kept, so that functions that several ways lead to are walked once. */
typedef enum mr__deed { MR__DRAWS, MR__MAY_BLOCK, MR__N_DEEDS } mr__deed;
bool mr__registered_does(const char *name, mr__deed deed, bool (*does)(const mr_fn *fn));
/* true if `name` cannot be registered: not a valid name, or an op, a function, a dtype or a word of
 * the grammar. */
bool mr__function_name_taken(const char *name);
bool mr__input_decides_shape(const mr_function *f, size_t i);
void mr__function_params_free(const mr_function *f, void *params);
#endif
