/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_DESCRIPTOR_H
#define MR_PIPELINE_FUNCTIONS_DESCRIPTOR_H
/* A function of expressions is data, like an op: one descriptor, at the end of its family's file in
 * pipeline/functions/, and a line in functions.def. Operators are functions too. Typing, argument
 * checks, the reference and the tests of examples come from the descriptor; no other code refers to
 * a function by name.
 *
 * A parameter is an input or an option. An input is a tensor that is computed for every element;
 * its row in the table is MR_INPUT(kind, name, doc). An option is a literal in the text and a field
 * of the params struct, as in an op's table (param.h). This is a complete function,
 * hypotenuse(a, b):
 *
 *     static mr_code type(mr_call *c, mr_status *st)
 *     {
 *         c->out = (mr_leaf){.dtype = c->in[0]->dtype};
 *         return MR_OK;
 *     }
 *     static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
 *     {
 *         MR_TRY(mr_array_alloc(out, MR_FLOAT64, 0, NULL, r->rows, st));
 *         for (size_t i = 0; i < r->rows; i++)
 *             ((double *)out->data)[i] =
 *                 hypot(((double *)r->in[0].data)[i], ((double *)r->in[1].data)[i]);
 *         return MR_OK;
 *     }
 *     static const mr_param table[] = {MR_INPUT(doubles, "a", "One side."),
 *                                      MR_INPUT(doubles, "b", "The other."), {0}};
 *     static const mr_function hypotenuse = {.abi = MR_ABI_VERSION, .name = "hypotenuse",
 *         .doc = "The length of the longest side.", .params = table, .type = type, .run = run,
 *         .example = "range(3).map(x => hypotenuse(x / 1, 2 / 1))"};
 *     mr_function_register(&hypotenuse, &st);
 *
 * thread   descriptors are static and immutable; type and run may be called from several threads
 * since    0.1 */
#include "../graph/op.h"
#include "../params/param.h"
#include "../params/spec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- parameters ---- */

#define MR_DTYPE_BIT(t) (1u << (t))
/* The tensors that an input accepts. Inputs are never datasets or ragged. */
typedef struct mr_input_kind {
    mr_param_kind param; /* all zero: nothing is read from the text */
    const char *name;    /* "numbers": its name in messages and in the reference */
    uint32_t dtypes;     /* MR_DTYPE_BIT of each accepted dtype */
    bool scalar;         /* it has no axes */
    bool shape;          /* a list of integers, as int64; may be [] */
} mr_input_kind;
MR_API extern const mr_input_kind mr_input_tensor, mr_input_numbers, mr_input_integers,
    mr_input_bools, mr_input_strings, mr_input_integer, mr_input_bool, mr_input_shape;

/* Flags of inputs, in addition to MR_P_OPTIONAL and MR_P_VARIADIC. */
enum {
    MR_P_ALIKE = 1 << 12,        /* has the same dtype as the other inputs with this flag */
    MR_P_DECIDES_SHAPE = 1 << 13 /* if its value differs between rows, run gets one row at a time */
};
#ifndef __cplusplus /* in C++: <millrace/millrace.hpp> */
#define MR_INPUT(k, n, d) MR_INPUT_WITH(k, n, 0, d)
#define MR_INPUT_WITH(k, n, more_flags, d)                                                         \
    {                                                                                              \
        .name = (n), .doc = (d), .type = MR_PT_OWN, .kind = &(k).param,                            \
        .flags = MR_P_POSITIONAL | (more_flags)                                                    \
    }
#endif

/* Kinds of options. mr_option_dtype: "float32" or float32, stored as an mr_dtype. mr_option_exprs:
 * an unevaluated expression, stored as a const mr_expr * (borrowed until type returns); if the
 * parameter is variadic, any number of them with their names, stored as an mr_exprs. */
typedef struct mr_exprs {
    const mr_expr **v;
    const char **names; /* NULL for arguments without a name */
    size_t n;
} mr_exprs;
MR_API extern const mr_param_kind mr_option_dtype, mr_option_exprs;

/* ---- typing ---- */

struct mr_function;
/* A call while it is typed: first the inputs, then the results of type. */
typedef struct mr_call {
    const struct mr_function *function;
    const void *params;           /* the struct of options; NULL: no options */
    size_t n;                     /* number of inputs given, in order of the table */
    const mr_leaf *const *in;     /* borrowed */
    const mr_array *const *known; /* per input: one row if the text determines it, else NULL */
    mr_leaf out;                  /* the result, if it is one tensor */
    mr_spec *spec;                /* the result otherwise; owned by the call */
    void *plan;                   /* other data that run needs; may be NULL. See free_plan */
    bool averages;                /* set by type: input 0 is averaged down to out. See shrink */
    const mr_expr *e;             /* for messages: the call */
    const mr_expr *const *at;     /* and its inputs */
} mr_call;
/* Fails with MR_INVALID_ARGUMENT and the place of input i; -1: the place of the call. */
MR_API mr_code mr_call_fail(const mr_call *c, mr_status *st, int i, const char *fmt, ...)
    MR_PRINTF(4, 5);

/* ---- running ---- */

typedef struct mr_row_sink mr_row_sink; /* where run reports the errors of single rows */

typedef struct mr_rows {
    const struct mr_function *function;
    const void *params, *plan; /* as set by typing */
    const mr_array *in;        /* `rows` rows, never RAGGED: if shapes differ, one row at a time */
    const bool *constant;      /* MR_FUNCTION_CONSTANTS: in[i] has one row, valid for all rows */
    size_t n, rows;
    uint64_t number; /* with MR_FUNCTION_DRAWS: index among the calls that draw in its function */
    mr_row_sink *errors;
} mr_rows;
/* Fails row `row`; its values are dropped and may be anything. The message includes the place in
 * the expression. Only one error per row is kept. */
MR_API void mr_row_fail(const mr_rows *r, size_t row, mr_code code, const char *fmt, ...)
    MR_PRINTF(4, 5);
/* The same because of string `value` of row `row` of input i. If the string comes from a file, the
 * error includes its file and record. */
MR_API void mr_row_fail_at(const mr_rows *r, size_t row, size_t i, size_t value, mr_code code,
                           const char *fmt, ...) MR_PRINTF(6, 7);

/* ---- descriptors ---- */

enum {
    MR_FUNCTION_CONSTANTS = 1, /* run handles constant inputs; else they are repeated first */
    MR_FUNCTION_FOLDS = 2, /* applied to literals alone it is computed when the graph is built; the
                                  result is a literal, which takes its neighbour's type */
    MR_FUNCTION_DRAWS = 4, /* random: the result depends on the element even if no input does */
    MR_FUNCTION_READS = 8, /* reads files that its arguments name */
    MR_FUNCTION_ELEMENTWISE = 16 /* each value of the result depends only on the values at its place
                                    in the inputs, which are broadcast as numpy does */
};

typedef struct mr_function {
    uint32_t abi;                     /* MR_ABI_VERSION */
    const char *name, *doc, *example; /* example: a pipeline; printed in the docs, run by tests */
    const char *form;       /* how an operator is written, "a + b"; NULL: called by its name */
    const mr_param *params; /* ends with name == NULL; variadic inputs come last */
    uint32_t params_size;   /* size of the struct of options */
    uint32_t props;         /* MR_FUNCTION_... */
    const void *family;     /* data by which functions of one file share type and run */
    mr_code (*type)(mr_call *c, mr_status *st);
    void (*free_plan)(void *plan); /* also called for a c->plan that a failed type left */
    /* Fills out, one array for each leaf of the result, with r->rows rows. Fails as a whole only
     * for lack of memory. */
    mr_code (*run)(const mr_rows *r, mr_array *out, mr_status *st);
    /* Called if the only consumer of the result averages it down to the shape `to` (-1: unknown).
     * It may change params to produce a smaller result with about the same average; the function's
     * doc must say so. NULL: not supported. */
    void (*shrink)(void *params, const mr_leaf *to);
} mr_function;

/* The function called name, built in or registered; NULL: not found. Does not find operators. */
MR_API const mr_function *mr_function_find(const char *name);
/* The i-th function: operators and functions in order of functions.def, then registered ones; NULL
 * after the last. */
MR_API const mr_function *mr_function_at(size_t i);
/* Adds a function for the whole process; f must stay valid.
 * errors   MR_ALREADY_EXISTS, MR_INVALID_ARGUMENT: another ABI version; a name that the grammar or
 *          an op uses; a malformed table; a bit of props that has no name
 * thread   any */
MR_API mr_code mr_function_register(const mr_function *f, mr_status *st) MR_NODISCARD;
/* The kind of an input parameter; NULL: the parameter is an option. */
MR_API const mr_input_kind *mr_param_input(const mr_param *p);

#ifdef __cplusplus
}
#endif
#endif
