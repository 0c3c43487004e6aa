/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_TYPED_H
#define MR_PIPELINE_FUNCTIONS_TYPED_H
/* Expressions after typing, and how they run. Private to functions/.
 *
 *     text --parse--> mr_expr --expression_type.c--> typed tree --expression_eval.c--> columns
 *
 * A typed tree is evaluated bottom-up, each node over all rows of a block at once. A node whose
 * value does not depend on the block is constant: it has one row, and kernels broadcast it.
 *
 * thread   trees are immutable once typed */
#include "pipeline/functions/builtin.h"
#include "pipeline/functions/program.h"
#include "pipeline/graph/dataset.h"

typedef enum typed_kind {
    TYPED_CONST,  /* .value: one row */
    TYPED_COLUMN, /* the block's columns from .first on */
    TYPED_GROUP,  /* a tuple or record of the children, in the order of the spec */
    TYPED_PART,   /* child 0's leaves from .first on */
    TYPED_UNARY,  /* .op: '-' 'n' */
    TYPED_BINARY, /* .op as in mr_expr; not a, o */
    TYPED_AND,
    TYPED_OR,
    TYPED_IF,   /* condition, value, other */
    TYPED_ROW,  /* child 0 [ child 1 ] */
    TYPED_CAST, /* .to */
    TYPED_ABS,
    TYPED_REDUCE,  /* .op: 's' sum, 'm' mean, '<' min, '>' max */
    TYPED_EXTREME, /* .op: '<' '>' elementwise over the children */
    TYPED_SIZE,
    TYPED_LENGTH,
    TYPED_CONCAT,
    TYPED_STACK,
    TYPED_RESHAPE,  /* child 1: the shape */
    TYPED_ONE_HOT,  /* child 1: the depth */
    TYPED_FILL,     /* .op: 0 or 1; child 0: the shape; .to */
    TYPED_BUILTIN,  /* .builtin, .plan */
    TYPED_FUNCTION, /* .program over a group of the children */
    TYPED_DATASET   /* .body */
} typed_kind;

typedef struct typed typed;
struct typed {
    typed_kind kind;
    mr_spec *spec;
    bool constant;
    char weak; /* CONST: a literal that takes its neighbour's type: 'i' integer, 'f' float, 'd' a
                  quotient of integers */
    char op;
    mr_dtype to;
    size_t first;
    mr_array value;
    const mr_builtin *builtin;
    void *plan;
    const mr_program *program;
    struct dataset_body *body;
    size_t n;
    typed *children[];
};

/* Names in scope: each stands for the columns [first[i], ...) of what the tree runs over. Inner
 * names come last and hide outer ones. */
typedef struct scope {
    size_t n;
    const char **names;
    const mr_spec **specs;
    size_t *first;
    bool *constant; /* a captured value: one row */
} scope;

int64_t mr__scope_find(const scope *s, const char *name); /* -1: not there */

mr_code mr__type(const mr_expr *e, const scope *s, typed **out, mr_status *st) MR_NODISCARD;
void mr__typed_free(typed *t);
/* A message with the place of e in its source. */
mr_code mr__type_fail(mr_status *st, const mr_expr *e, const char *fmt, ...) MR_PRINTF(3, 4);

/* A weak literal alone: int64, float32, or float64 for a quotient of integers. */
mr_code mr__type_settle_default(typed *t, const mr_expr *e, mr_status *st) MR_NODISCARD;

/* ---- values as columns ---- */

/* Spec of a value (owned), and its leaves as arrays of one row. */
mr_code mr__value_spec(const mr_value *v, mr_spec **out, mr_status *st) MR_NODISCARD;
mr_code mr__value_columns(const mr_value *v, mr_array *columns, mr_status *st) MR_NODISCARD;
/* The opposite: the element of `spec` in row 0 (columns that are constant) or `row`. */
mr_code mr__value_of_columns(const mr_spec *spec, const mr_array *columns, const bool *constant,
                             size_t row, mr_value *out, mr_status *st) MR_NODISCARD;

/* ---- running ---- */

struct mr_row_sink {
    size_t base;          /* of the rows that run sees: row r is rows[base + r] */
    const uint32_t *rows; /* NULL: the block's own rows */
    size_t n_rows;        /* of the whole block */
    mr_row_errors errors; /* in any order, at most one a row */
    bool *bad;            /* made with the first error */
    bool out_of_memory;
};

typedef struct column_set {
    mr_array *v;
    size_t n;
    bool constant; /* one row for all */
} column_set;
void mr__columns_free(column_set *c);

/* What a tree runs over: `rows` rows of columns; constant columns have one. */
typedef struct frame {
    const mr_array *v;
    const bool *constant; /* NULL: none is */
    size_t n, rows;
    mr_row_sink *sink;
} frame;
mr_code mr__eval(const typed *t, const frame *f, column_set *out, mr_status *st) MR_NODISCARD;
/* Constant c as `rows` rows. */
mr_code mr__columns_expand(column_set *c, size_t rows, mr_status *st) MR_NODISCARD;

/* ---- kernels: dense columns of one row shape ---- */

/* rows of a and b (constant: one row) with numpy's broadcasting within a row. op as in mr_expr. */
mr_code mr__kernel_binary(char op, const mr_array *a, bool a_const, const mr_array *b, bool b_const,
                          size_t rows, mr_array *out, mr_row_sink *sink,
                          mr_status *st) MR_NODISCARD;
mr_code mr__kernel_unary(char op, const mr_array *a, mr_array *out, mr_status *st) MR_NODISCARD;
mr_code mr__kernel_reduce(char op, const mr_array *a, mr_array *out, mr_row_sink *sink,
                          mr_status *st) MR_NODISCARD;
mr_code mr__kernel_cast(const mr_array *a, mr_dtype to, mr_array *out, mr_status *st) MR_NODISCARD;
/* Integer at value i of an integer array. */
int64_t mr__int_at(const mr_array *a, size_t i);

/* ---- dataset-valued bodies and arguments: build.c ---- */

/* A body that is a dataset: typed once, instantiated for every row. */
typedef struct dataset_body dataset_body;
mr_code mr__dataset_body(const mr_expr *e, const scope *s, dataset_body **out, mr_spec **element,
                         mr_status *st) MR_NODISCARD;
void mr__dataset_body_free(dataset_body *b);
/* Marks the columns that instantiating b reads. */
void mr__dataset_body_used(const dataset_body *b, bool *used);
/* The dataset for row `row` of f; an error is that row's. */
mr_code mr__dataset_body_make(const dataset_body *b, const frame *f, size_t row, mr_dataset **out,
                              mr_status *st) MR_NODISCARD;
/* true if e is a dataset: a call or method of an op, or a name that stands for one. */
bool mr__is_dataset(const mr_expr *e, const scope *s);
/* Names of s that e uses freely (indexes into s, ascending, each once); *n of them, owned. */
mr_code mr__free_names(const mr_expr *e, const scope *s, size_t **out, size_t *n,
                       mr_status *st) MR_NODISCARD;

/* The function registered as name (a new reference), or NULL. */
mr_fn *mr__fn_registered(const char *name);
#endif
