/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_FN_H
#define MR_PIPELINE_GRAPH_FN_H
/* A function of elements as a graph carries it: an expression or a C callback. What it means is
 * functions/'s; here it is copied, printed and sent. Private to pipeline/.
 *
 * An expression inside another function may use the outer one's names: they are captured, as
 * UNKNOWN values in the template that is checked at build, as values in what a call makes.
 *
 * thread   any: immutable, but for `cache`, which has its own lock */
#include <pthread.h>
#include "../memory/block.h"
#include "../memory/object.h"
#include "dataset.h"
#include "../params/expr.h"

typedef enum mr__fn_kind { MR_FN_EXPR, MR_FN_BLOCK, MR_FN_ELEMENT } mr__fn_kind;

/* Both callbacks have the same C type; an element function sees blocks of one row. */
typedef mr_code (*mr_fn_callback)(void *ctx, const mr_block *in, mr_block *out, mr_status *st);

struct mr_fn {
    mr__object obj;
    mr__fn_kind kind;
    /* MR_FN_EXPR: a LAMBDA, or the NAME of an op or function to apply to the element */
    const mr_expr *expr;
    size_t n_captures;
    char **capture_names;
    mr_value *captures;
    mr_spec **capture_specs; /* what the template knew of each; NULL: it is as its value says */
    /* MR_FN_BLOCK, MR_FN_ELEMENT */
    char *name; /* registered under; NULL: cannot travel */
    mr_fn_callback callback;
    void *ctx;
    void (*release)(void *ctx); /* called when the function goes; NULL: nothing */
    mr_spec *out;               /* spec of what it returns; NULL: that of its input */
    bool may_block;
    bool instance; /* made for a call, of a template that was typed with less known */
    /* Carried from a constructor that failed, with nothing else set; a dataset made with it carries
     * it on. NULL: none */
    mr_status *error;
    /* What functions/ compiled for the input spec last asked for; the copies that calls make of one
     * template share it. */
    struct mr_fn_cache *cache;
};

/* New function with nothing set but its kind and an empty cache; NULL: no memory. */
mr_fn *mr__fn_new(mr__fn_kind kind);
/* New function of an expression (takes a reference of its own); captures are copied. */
mr_code mr__fn_of_expr(const mr_expr *expr, const char *const *names, const mr_value *values,
                       size_t n, mr_fn **out, mr_status *st) MR_NODISCARD;
/* The template fn with values for the captures; shares the cache. */
mr_code mr__fn_with_captures(const mr_fn *fn, const mr_value *values, mr_fn **out,
                             mr_status *st) MR_NODISCARD;

/* Spec of a value as an element. Owned.
 * errors   MR_INVALID_ARGUMENT: it is none */
mr_code mr__value_spec(const mr_value *v, mr_spec **out, mr_status *st) MR_NODISCARD;

/* Does a function of the graph ds, or e, call one that `is` says yes to? */
mr_code mr__dataset_calls(const mr_dataset *ds, bool (*is)(const char *function), bool *out,
                          mr_status *st) MR_NODISCARD;
bool mr__expr_calls(const mr_expr *e, bool (*is)(const char *function));

/* The compiled form, by input spec. program is kept by mr__object reference. */
struct mr_fn_cache {
    mr__object obj;
    pthread_mutex_t lock; /* guards the two below */
    mr_spec *in;
    mr__object *program;
};
#endif
