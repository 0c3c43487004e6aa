/* SPDX-License-Identifier: Apache-2.0 */
/* Looking into functions for ops of a role, never by their names. */
#include <string.h>

#include "pipeline/graph/fn.h"
#include "pipeline/graph/node.h"
#include "pipeline/graph/rewrite.h"

/* Names that a lambda binds, and those of the lambdas around it. */
typedef struct scope {
    const struct scope *outer;
    const mr_expr *lambda;
} scope;

static bool is_bound(const scope *s, const char *name)
{
    for (; s; s = s->outer)
        for (size_t i = 0; i < s->lambda->n_params; i++)
            if (strcmp(s->lambda->params[i], name) == 0)
                return true;
    return false;
}

static bool names_role(const mr_expr *e, const scope *s, mr_role role)
{
    if (e->kind != MR_EX_NAME && e->kind != MR_EX_CALL && e->kind != MR_EX_METHOD)
        return false;
    if (e->kind == MR_EX_NAME && is_bound(s, e->text))
        return false;
    const mr_op *op = mr_op_find(e->text, strlen(e->text));
    return op && op->role == role;
}

/* Trees are at most MR_EXPR_MAX_DEPTH levels deep. */
static bool expr_has_role(const mr_expr *e, const scope *s, mr_role role)
{
    if (names_role(e, s, role))
        return true;
    scope inner = {s, e};
    for (size_t i = 0; i < e->n; i++)
        if (expr_has_role(e->children[i], e->kind == MR_EX_LAMBDA ? &inner : s, role))
            return true;
    return false;
}

static mr_code graph_has_role(const mr_dataset *ds, mr_role role, bool *out, mr_status *st)
{
    mr__nodes nodes;
    MR_TRY(mr__nodes_of(ds, &nodes, st));
    for (size_t i = 0; i < nodes.n; i++) {
        const mr_op *op = mr_dataset_op(nodes.v[i]);
        *out |= op && op->role == role;
    }
    mr__nodes_reset(&nodes);
    return MR_OK;
}

/* Values nest as deep as the text they came from. */
static mr_code value_has_role(const mr_value *v, mr_role role, bool *out, mr_status *st)
{
    if (v->kind == MR_V_DATASET) {
        MR_TRY(graph_has_role(v->dataset, role, out, st));
    } else if (v->kind == MR_V_FN) {
        if (v->fn->kind == MR_FN_EXPR && v->fn->expr)
            *out |= expr_has_role(v->fn->expr, NULL, role);
        for (size_t i = 0; i < v->fn->n_captures && !*out; i++)
            MR_TRY(value_has_role(&v->fn->captures[i], role, out, st));
    }
    for (size_t i = 0; i < v->n && !*out; i++)
        MR_TRY(value_has_role(&v->items[i], role, out, st));
    return MR_OK;
}

mr_code mr_dataset_functions_have_role(const mr_dataset *ds, mr_role role, bool *out, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    bool found = false;
    for (size_t i = 0; op->params && op->params[i].name && !found; i++) {
        if (op->params[i].type != MR_PT_FN)
            continue;
        mr_value v = {0};
        MR_TRY(mr_dataset_param(ds, i, &v, st));
        mr_code rc = value_has_role(&v, role, &found, st);
        mr_value_reset(&v);
        MR_TRY(rc);
    }
    *out = found;
    return MR_OK;
}
