/* SPDX-License-Identifier: Apache-2.0 */
/* From a node that reads a list of files to the function that reads one of them. */
#include <string.h>

#include "pipeline/graph/fn.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/params/expr_tree.h"

enum { MAX_PARAMS = 32 };

/* A parameter that is set becomes an argument that names what it captures: the parameter's name
 * serves for both. One that is an expression decides the type of the elements, and is written
 * out. */
typedef struct captures {
    size_t n;
    const char *names[MAX_PARAMS];
    bool positional[MAX_PARAMS], literal[MAX_PARAMS];
    mr_value values[MAX_PARAMS];
} captures;

static mr_code capture(const mr_dataset *ds, captures *c, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    for (size_t i = 0; op->params[i].name; i++) {
        if (op->params[i].flags & (MR_P_PATTERN | MR_P_READS))
            continue;
        if (c->n == MAX_PARAMS)
            return mr_fail(st, MR_UNIMPLEMENTED, "more than %d parameters", MAX_PARAMS);
        mr_value *v = &c->values[c->n];
        MR_TRY(mr_dataset_param(ds, i, v, st));
        if (v->kind == MR_V_UNSET)
            continue;
        c->names[c->n] = op->params[i].name;
        c->literal[c->n] = (op->params[i].flags & MR_P_EXPRESSION) && v->kind == MR_V_STRING;
        c->positional[c->n++] = op->params[i].flags & MR_P_POSITIONAL;
    }
    return MR_OK;
}

static mr_expr *node(mr__expr_tree *t, mr_expr_kind kind, const char *text, size_t n_children)
{
    mr_expr *e = mr__expr_alloc(t, sizeof *e);
    if (!e)
        return NULL;
    e->tree = t;
    e->kind = kind;
    e->depth = 1;
    e->n = n_children;
    e->children = mr__expr_alloc(t, n_children * sizeof *e->children);
    e->keys = mr__expr_alloc(t, n_children * sizeof *e->keys);
    if (!text)
        return e->children && e->keys ? e : NULL;
    e->text_size = strlen(text);
    e->text = mr__expr_alloc(t, e->text_size + 1);
    if (!e->text || !e->children || !e->keys)
        return NULL;
    memcpy(e->text, text, e->text_size);
    return e;
}

/* f => op(f, a, b=b) */
static mr_expr *lambda_of(mr__expr_tree *t, const char *op, const captures *c)
{
    mr_expr *lambda = node(t, MR_EX_LAMBDA, NULL, 1), *call = node(t, MR_EX_CALL, op, c->n + 1);
    char **params = mr__expr_alloc(t, sizeof *params);
    mr_expr *file = node(t, MR_EX_NAME, "f", 0);
    if (!lambda || !call || !params || !file)
        return NULL;
    call->children[0] = file;
    for (size_t i = 0; i < c->n; i++) {
        mr_expr *argument = c->literal[i] ? node(t, MR_EX_STRING, c->values[i].s, 0)
                                          : node(t, MR_EX_NAME, c->names[i], 0);
        if (!argument)
            return NULL;
        call->children[i + 1] = argument;
        call->keys[i + 1] = c->positional[i] ? NULL : argument->text;
    }
    call->depth = 2;
    lambda->depth = 3;
    lambda->n_params = 1;
    lambda->params = params;
    params[0] = file->text;
    lambda->children[0] = call;
    return lambda;
}

mr_code mr_dataset_read_function(const mr_dataset *ds, mr_fn **out, mr_status *st)
{
    captures c = {.n = 0};
    mr__expr_tree *t = mr__expr_tree_new("", 0);
    mr_code rc = capture(ds, &c, st);
    if (rc == MR_OK) {
        mr_expr *e = t ? lambda_of(t, mr_dataset_op(ds)->name, &c) : NULL;
        rc = e ? mr__fn_of_expr(e, c.names, c.values, c.n, out, st)
               : mr_fail_memory(st, sizeof *e, "a function");
    }
    for (size_t i = 0; i < MAX_PARAMS; i++)
        mr_value_reset(&c.values[i]);
    mr__expr_tree_unref(t);
    return rc;
}
