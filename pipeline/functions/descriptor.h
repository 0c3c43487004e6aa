/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_DESCRIPTOR_H
#define MR_PIPELINE_FUNCTIONS_DESCRIPTOR_H
/* A function of expressions is data, as an op is: one descriptor, at the end of its family's file
 * in pipeline/functions/, and a line in functions.def. Operators are functions too. Typing, the
 * checks of arguments, the reference and the tests of examples come from the descriptor; no other
 * code knows a function by name.
 *
 * A parameter is an input or an option. An input is a tensor that is computed for every element;
 * its row in the table is MR_INPUT(kind, name, doc). An option is a literal of the text, a field of
 * the params struct, as in an op's table (param.h). This is a whole function, hypotenuse(a, b):
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
/* What an input may be. Inputs are tensors that are neither datasets nor ragged. */
typedef struct mr_input_kind {
    mr_param_kind param; /* all zero: nothing is read from the text */
    const char *name;    /* "numbers": what messages and the reference call it */
    uint32_t dtypes;     /* MR_DTYPE_BIT of those it may have */
    bool scalar;         /* it has no axes */
    bool shape;          /* a list of integers, as int64; [] too */
} mr_input_kind;
MR_API extern const mr_input_kind mr_input_tensor, mr_input_numbers, mr_input_integers,
    mr_input_bools, mr_input_strings, mr_input_integer, mr_input_bool, mr_input_shape;

/* Flags of inputs, beside MR_P_OPTIONAL and MR_P_VARIADIC. */
enum {
    MR_P_ALIKE = 1 << 12,        /* has the dtype of the other inputs that say so */
    MR_P_DECIDES_SHAPE = 1 << 13 /* where it differs from row to row, run sees one row at a time */
};
#define MR_INPUT(k, n, d) MR_INPUT_WITH(k, n, 0, d)
#define MR_INPUT_WITH(k, n, more_flags, d)                                                         \
    {                                                                                              \
        .name = (n), .doc = (d), .type = MR_PT_OWN, .kind = &(k).param,                            \
        .flags = MR_P_POSITIONAL | (more_flags)                                                    \
    }

/* Options of these kinds: a dtype, "float32" or float32, in an mr_dtype; an expression as it is
 * written, in a const mr_expr * (borrowed until type returns); any number of them with their names,
 * in an mr_exprs, where the parameter is variadic. */
typedef struct mr_exprs {
    const mr_expr **v;
    const char **names; /* NULL where an argument has none */
    size_t n;
} mr_exprs;
MR_API extern const mr_param_kind mr_option_dtype, mr_option_exprs;

/* ---- typing ---- */

struct mr_function;
/* A call while it is typed: inputs first, then what type finds out. */
typedef struct mr_call {
    const struct mr_function *function;
    const void *params;           /* the options' struct; NULL: there is none */
    size_t n;                     /* inputs that were given, in order of the table */
    const mr_leaf *const *in;     /* borrowed */
    const mr_array *const *known; /* one row where the text says the value, else NULL */
    mr_leaf out;                  /* the result, if it is one tensor */
    mr_spec *spec;                /* the result otherwise; owned by the call */
    void *plan;                   /* what run needs besides; NULL: nothing. See free_plan */
    bool averages;                /* set by type: input 0 is averaged down to out. See shrink */
    const mr_expr *e;             /* for messages: the call, and where the inputs stand */
    const mr_expr *const *at;
} mr_call;
/* MR_INVALID_ARGUMENT with the place of input i; -1: of the call. */
MR_API mr_code mr_call_fail(const mr_call *c, mr_status *st, int i, const char *fmt, ...)
    MR_PRINTF(4, 5);

/* ---- running ---- */

typedef struct mr_row_sink mr_row_sink; /* where run reports the errors of single rows */

typedef struct mr_rows {
    const struct mr_function *function;
    const void *params, *plan; /* as typing left them */
    const mr_array *in;        /* of `rows` rows, never RAGGED: rows of several shapes come alone */
    const bool *constant;      /* MR_FUNCTION_CONSTANTS: in[i] has one row, which stands for all */
    size_t n, rows;
    uint64_t number; /* of MR_FUNCTION_DRAWS: of the call, among those that draw in its function */
    mr_row_sink *errors;
} mr_rows;
/* Row `row` fails; its values are dropped, whatever they are. The message gets the place in the
 * expression. One error a row is kept. */
MR_API void mr_row_fail(const mr_rows *r, size_t row, mr_code code, const char *fmt, ...)
    MR_PRINTF(4, 5);
/* The same because of string `value` of row `row` of input i: with its file and record, where it
 * comes from a file. */
MR_API void mr_row_fail_at(const mr_rows *r, size_t row, size_t i, size_t value, mr_code code,
                           const char *fmt, ...) MR_PRINTF(6, 7);

/* ---- descriptors ---- */

enum {
    MR_FUNCTION_CONSTANTS = 1, /* run knows constant inputs; otherwise they are repeated before */
    MR_FUNCTION_FOLDS = 2, /* literals among themselves are computed when the graph is built, and
                                  stay literals that take the type of what stands beside them */
    MR_FUNCTION_DRAWS = 4  /* random: its result depends on the element also where no input does */
};

typedef struct mr_function {
    uint32_t abi;                     /* MR_ABI_VERSION */
    const char *name, *doc, *example; /* example: a pipeline; printed in the docs, run by tests */
    const char *form;       /* an operator as it is written, "a + b"; NULL: called by its name */
    const mr_param *params; /* ends with name == NULL; variadic inputs are the last ones */
    uint32_t params_size;   /* of the options' struct */
    uint32_t props;         /* MR_FUNCTION_... */
    const void *family;     /* whatever the functions of one file share type and run by */
    mr_code (*type)(mr_call *c, mr_status *st);
    void (*free_plan)(void *plan); /* also of what a failed type left in c->plan */
    /* Fills out, one array for each leaf of the result, with r->rows rows. Fails as a whole for
     * lack of memory only. */
    mr_code (*run)(const mr_rows *r, mr_array *out, mr_status *st);
    /* The call around this one averages its result down to the shape `to`, -1 where that is not
     * known, and nothing else sees it: params may be changed so that a smaller one is made, whose
     * average is about the same. The function's doc says so. NULL: takes no notice. */
    void (*shrink)(void *params, const mr_leaf *to);
} mr_function;

/* The function called name, built in or registered; NULL: none. Not operators. */
MR_API const mr_function *mr_function_find(const char *name);
/* The i-th: operators and functions in order of functions.def, then registered ones; NULL after the
 * last. */
MR_API const mr_function *mr_function_at(size_t i);
/* Adds a function for the whole process; f must stay valid.
 * errors   MR_ALREADY_EXISTS, MR_INVALID_ARGUMENT: another ABI version, a name of the grammar or of
 *          an op, a bad table
 * thread   any */
MR_API mr_code mr_function_register(const mr_function *f, mr_status *st) MR_NODISCARD;
/* The kind of a parameter that is an input; NULL: it is an option. */
MR_API const mr_input_kind *mr_param_input(const mr_param *p);

#ifdef __cplusplus
}
#endif
#endif
