/* SPDX-License-Identifier: Apache-2.0 */
/* From a node that reads a list of files to the function that reads one of them. */
#include <string.h>

#include "pipeline/graph/fn.h"
#include "pipeline/graph/rewrite.h"
#include "pipeline/params/expr_tree.h"
#include "pipeline/params/spec_text.h"

enum { MAX_PARAMS = 32 };

/* A parameter that is set becomes an argument that names what it captures: the parameter's name
 * serves for both. What decides the type of the elements is written out: an expression, and the
 * names of the components, whether they were given or found in the first file. */
typedef struct captures {
    size_t n;
    const char *names[MAX_PARAMS];
    bool positional[MAX_PARAMS], literal[MAX_PARAMS];
    mr_value values[MAX_PARAMS];
    const char *of_spec; /* the parameter of the components' names; NULL: there is none */
    char *types;         /* its text where it takes their types too; NULL: it does not */
} captures;

static mr_code capture(const mr_dataset *ds, captures *c, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    for (size_t i = 0; op->params[i].name; i++) {
        if (op->params[i].flags & (MR_P_PATTERN | MR_P_READS))
            continue;
        if (c->n == MAX_PARAMS)
            return mr_fail(st, MR_UNIMPLEMENTED, "more than %d parameters", MAX_PARAMS);
        if (op->params[i].flags & MR_P_OF_SPEC) {
            bool types = op->params[i].type == MR_PT_STR; /* which say the names too */
            if (types || !c->types)
                c->of_spec = op->params[i].name;
            if (types)
                MR_TRY(mr__spec_text(mr_dataset_spec(ds), &c->types, st));
            continue;
        }
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

/* Adds name={"a": int64}, the types of the components, as the call's last argument. */
static bool add_types(mr__expr_tree *t, mr_expr *call, const char *name, const char *types)
{
    size_t last = call->n - 1;
    mr_expr *key = node(t, MR_EX_NAME, name, 0), *text = node(t, MR_EX_STRING, types, 0);
    if (!key || !text)
        return false;
    call->children[last] = text;
    call->keys[last] = key->text;
    return true;
}

/* Adds name=["a", "b"], the names of the components. */
static bool add_names(mr__expr_tree *t, mr_expr *call, const char *name, const mr_spec *spec)
{
    size_t n = mr_spec_n_leaves(spec), last = call->n - 1;
    const char *const *names = mr_spec_leaf_names(spec);
    mr_expr *key = node(t, MR_EX_NAME, name, 0), *list = node(t, MR_EX_LIST, NULL, n);
    if (!names || !key || !list)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!(list->children[i] = node(t, MR_EX_STRING, names[i], 0)))
            return false;
    list->depth = 2;
    call->children[last] = list;
    call->keys[last] = key->text;
    return true;
}

/* f => op(f, a, b=b) */
static mr_expr *lambda_of(mr__expr_tree *t, const mr_dataset *ds, const captures *c)
{
    size_t n = c->n + (c->of_spec ? 2 : 1);
    mr_expr *lambda = node(t, MR_EX_LAMBDA, NULL, 1);
    mr_expr *call = node(t, MR_EX_CALL, mr_dataset_op(ds)->name, n);
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
    if (c->of_spec && !(c->types ? add_types(t, call, c->of_spec, c->types)
                                 : add_names(t, call, c->of_spec, mr_dataset_spec(ds))))
        return NULL;
    call->depth = c->of_spec ? 3 : 2;
    lambda->depth = call->depth + 1;
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
        mr_expr *e = t ? lambda_of(t, ds, &c) : NULL;
        rc = e ? mr__fn_of_expr(e, c.names, c.values, c.n, out, st)
               : mr_fail_memory(st, sizeof *e, "a function");
    }
    for (size_t i = 0; i < MAX_PARAMS; i++)
        mr_value_reset(&c.values[i]);
    mr_free(c.types);
    mr__expr_tree_unref(t);
    return rc;
}
