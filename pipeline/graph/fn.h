/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_FN_H
#define MR_PIPELINE_GRAPH_FN_H
/* A function of elements in a graph: an expression or a C callback. functions/ compiles and runs
 * it; graph/ only copies, prints and serializes it. Private to pipeline/.
 *
 * An expression within another function may use names of the outer one, which it captures. In the
 * template, which is checked when the graph is built, the captures are UNKNOWN values; in the
 * instance that a call makes they are known.
 *
 * thread   any: immutable, except for `cache`, which has a lock */
#include "../memory/block.h"
#include "../memory/object.h"
#include "dataset.h"
#include "../params/expr.h"
#include "../system/fork.h"

typedef enum mr__fn_kind { MR_FN_EXPR, MR_FN_BLOCK, MR_FN_ELEMENT, MR_FN_ROWS } mr__fn_kind;
struct mr_rows_fn;

/* The first two kinds of callback have the same C type; that of an element gets blocks of one
 * row. */
typedef mr_code (*mr_fn_callback)(void *ctx, const mr_block *in, mr_block *out, mr_status *st);

struct mr_fn {
    mr__object obj;
    mr__fn_kind kind;
    /* MR_FN_EXPR: a LAMBDA, or the NAME of an op or function to apply to the element */
    const mr_expr *expr;
    size_t n_captures;
    char **capture_names;
    mr_value *captures;
    mr_spec **capture_specs; /* specs that the template had for them; a NULL entry, or NULL: the
                                spec of the value */
    /* MR_FN_BLOCK, MR_FN_ELEMENT */
    char *name; /* registered name; NULL: cannot be serialized */
    mr_fn_callback callback;
    struct mr_rows_fn *rows; /* MR_FN_ROWS, instead of callback; its strings are not kept */
    char *label;             /* shown by text if there is no name; may be NULL */
    void *ctx;
    void (*release)(void *ctx); /* called when the function is freed; may be NULL */
    mr_spec *out;               /* spec of the result; NULL: that of the input */
    bool may_block;
    bool
        reads_given; /* made by mr_dataset_read_function: the names that it is called with are those
                         of the source */
    bool instance;   /* made by a call from a template, which was typed with less information */
    /* The error of a failed constructor, which sets nothing else; a dataset with this function
     * carries it too. Otherwise NULL */
    mr_status *error;
    /* The program that functions/ compiled for the last requested input spec; shared by all
     * instances of a template. */
    struct mr_fn_cache *cache;
};

/* New function with only its kind and an empty cache set; NULL if out of memory. */
mr_fn *mr__fn_new(mr__fn_kind kind);
/* New function of an expression, to which it takes a reference; captures are copied. */
mr_code mr__fn_of_expr(const mr_expr *expr, const char *const *names, const mr_value *values,
                       size_t n, mr_fn **out, mr_status *st) MR_NODISCARD;
/* New instance of the template fn, with values for the captures; shares the cache. */
mr_code mr__fn_with_captures(const mr_fn *fn, const mr_value *values, mr_fn **out,
                             mr_status *st) MR_NODISCARD;

/* The spec of a value as an element. Owned.
 * errors   MR_INVALID_ARGUMENT: v cannot be an element */
mr_code mr__value_spec(const mr_value *v, mr_spec **out, mr_status *st) MR_NODISCARD;

/* True if a function in the graph ds, or the expression e, calls a function for which `is` returns
 * true. */
mr_code mr__dataset_calls(const mr_dataset *ds, bool (*is)(const char *function), bool *out,
                          mr_status *st) MR_NODISCARD;
/* True if `is` returns true for a function that is a parameter in ds. */
mr_code mr__dataset_has_fn(const mr_dataset *ds, bool (*is)(const mr_fn *fn), bool *out,
                           mr_status *st) MR_NODISCARD;
bool mr__expr_calls(const mr_expr *e, bool (*is)(const char *function));

/* The compiled form for one input spec; program is an owned reference. */
struct mr_fn_cache {
    mr__object obj;
    mr__lock lock; /* guards the fields below */
    mr_spec *in;
    mr__object *program;
};
#endif
