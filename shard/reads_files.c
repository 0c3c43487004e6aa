/* SPDX-License-Identifier: Apache-2.0 */
/* Looking into functions for ops that read files: by the ops' role, never by their names. */
#include "pipeline/graph/fn.h"
#include "shard/shard_passes.h"

#include <string.h>

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

static bool names_reader(const mr_expr *e, const scope *s)
{
    if (e->kind != MR_EX_NAME && e->kind != MR_EX_CALL && e->kind != MR_EX_METHOD)
        return false;
    if (e->kind == MR_EX_NAME && is_bound(s, e->text))
        return false;
    const mr_op *op = mr_op_find(e->text, strlen(e->text));
    return op && op->role == MR_ROLE_FILES;
}

/* Trees are at most MR_EXPR_MAX_DEPTH levels deep. */
static bool expr_reads(const mr_expr *e, const scope *s)
{
    if (names_reader(e, s))
        return true;
    scope inner = {s, e};
    for (size_t i = 0; i < e->n; i++)
        if (expr_reads(e->children[i], e->kind == MR_EX_LAMBDA ? &inner : s))
            return true;
    return false;
}

typedef struct graph_reads {
    bool found;
} graph_reads;

static mr_dataset *look_at_node(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    (void)w;
    if (mr_dataset_op(old)->role == MR_ROLE_FILES)
        ((graph_reads *)ctx)->found = true;
    return now;
}

/* Values nest as deep as the text they came from. */
static mr_code value_reads(const mr_value *v, bool *out, mr_status *st)
{
    if (v->kind == MR_V_DATASET) {
        graph_reads g = {false};
        mr_dataset *same = NULL;
        MR_TRY(mr__walk_graph(v->dataset, look_at_node, &g, &same, st));
        mr_dataset_unref(same);
        *out |= g.found;
    } else if (v->kind == MR_V_FN) {
        if (v->fn->kind == MR_FN_EXPR && v->fn->expr)
            *out |= expr_reads(v->fn->expr, NULL);
        for (size_t i = 0; i < v->fn->n_captures && !*out; i++)
            MR_TRY(value_reads(&v->fn->captures[i], out, st));
    }
    for (size_t i = 0; i < v->n && !*out; i++)
        MR_TRY(value_reads(&v->items[i], out, st));
    return MR_OK;
}

mr_code mr__function_reads_files(const mr_dataset *ds, bool *out, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    *out = false;
    for (size_t i = 0; op->params && op->params[i].name && !*out; i++) {
        if (op->params[i].type != MR_PT_FN)
            continue;
        mr_value v = {0};
        MR_TRY(mr_dataset_param(ds, i, &v, st));
        mr_code rc = value_reads(&v, out, st);
        mr_value_reset(&v);
        MR_TRY(rc);
    }
    return MR_OK;
}
