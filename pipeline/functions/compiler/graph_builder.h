/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_COMPILER_GRAPH_BUILDER_H
#define MR_PIPELINE_FUNCTIONS_COMPILER_GRAPH_BUILDER_H
/* Shared by build.c (nodes) and build_values.c (arguments). Private to functions/.
 *
 * thread   a builder is one thread's; a body is immutable once typed */
#include "pipeline/functions/compiler/typed_tree.h"

struct typed_argument {
    const mr_expr *e;
    typed *tree;
};
struct template_fn {
    const mr_expr *e;
    mr_fn *fn;
    size_t *captured; /* indexes into the scope */
    size_t n_captured;
};

struct template_node {
    const mr_expr *e;
    mr_spec *spec;
    bool is_literal; /* its first argument does not depend on the element */
};

/* Results of typing a body, for its instances: the trees of its arguments, its functions, and the
 * specs of its nodes' elements. An instance knows more, because the values it was made with have
 * shapes. But an error that the graph does not reveal must be reported at the element that it
 * affects: it must not fail a whole call, nor make x[1] an error in a branch that is not taken. */
struct dataset_body {
    const mr_expr *e;
    int64_t count; /* elements of each dataset that it makes; MR_UNKNOWN_COUNT: they may differ */
    scope s;
    char **own_names;
    mr_spec **own_specs;
    struct typed_argument *arguments;
    size_t n_arguments, arguments_capacity;
    struct template_fn *fns;
    size_t n_fns, fns_capacity;
    struct template_node *nodes;
    size_t n_nodes, nodes_capacity;
};

/* What the template knows of e, a call of an op; NULL: nothing. */
const struct template_node *mr__template_node(const dataset_body *b, const mr_expr *e);
/* Sorts the tables so that instances can search them; called once, when the body is typed. */
void mr__dataset_body_sort(dataset_body *b);

typedef struct builder {
    const scope *s;
    const frame *values;      /* the scope's values, one row; NULL: a template */
    dataset_body *record;     /* a template being typed */
    const dataset_body *body; /* an instance being made */
    const mr_env *env;        /* NULL inside functions */
} builder;

/* Fails; when a graph is built, the message shows the place, inside a call it does not. */
mr_code mr__build_fail(const builder *b, mr_status *st, const mr_expr *e, const char *fmt, ...)
    MR_PRINTF(4, 5);
/* A dataset from a call, a name, a component or an if. Owned. */
mr_code mr__build_dataset(const builder *b, const mr_expr *e, mr_dataset **out,
                          mr_status *st) MR_NODISCARD;
/* An argument; UNKNOWN in a template if it depends on the element. */
mr_code mr__build_value(const builder *b, const mr_expr *e, mr_value *out,
                        mr_status *st) MR_NODISCARD;
mr_code mr__build_fn(const builder *b, const mr_expr *e, mr_value *out, mr_status *st) MR_NODISCARD;
/* An argument that is an arithmetic expression. */
mr_code mr__build_computed(const builder *b, const mr_expr *e, mr_value *out,
                           mr_status *st) MR_NODISCARD;
/* The value of name i of the scope. */
mr_code mr__build_name(const builder *b, size_t i, mr_value *out, mr_status *st) MR_NODISCARD;
/* Marks the names of s that are free in e. */
void mr__mark_names(const mr_expr *e, const scope *s, bool *used);
#endif
