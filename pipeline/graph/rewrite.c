/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/graph/rewrite.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/graph/node.h"

enum { MAX_DECISIONS = 1 << 20 };

/* ---- explanations ---- */

static void free_decision(mr_decision *d)
{
    mr_free(d->what);
    mr_free(d->detail);
    mr_free(d->op);
}

static void forget_from(mr_explanation *e, size_t n)
{
    while (e->n > n)
        free_decision(&e->v[--e->n]);
}

void mr_explanation_reset(mr_explanation *e)
{
    forget_from(e, 0);
    mr_free(e->v);
    *e = (mr_explanation){0};
}

mr_code mr_explain(mr_explanation *e, const char *what, const char *op, mr_status *st,
                   const char *fmt, ...)
{
    if (!e)
        return MR_OK;
    MR_TRY(MR_GROW(e->v, e->capacity, e->n + 1, MAX_DECISIONS, "an explanation", st));
    va_list ap;
    va_start(ap, fmt);
    mr_decision d = {.what = mr_strdup(what), .detail = mr__vformat(fmt, ap)};
    va_end(ap);
    d.op = op ? mr_strdup(op) : NULL;
    if (!d.what || !d.detail || (op && !d.op)) {
        free_decision(&d);
        return mr_fail_memory(st, strlen(fmt), "an explanation");
    }
    e->v[e->n++] = d;
    return MR_OK;
}

/* ---- passes ---- */

static mr_code check_types(const mr_pass *pass, const mr_dataset *before, const mr_dataset *after,
                           mr_status *st)
{
    MR_TRY(mr_dataset_check(after, st));
    if (mr_spec_same_types(mr_dataset_spec(before), mr_dataset_spec(after)))
        return MR_OK;
    char was[160], is[160];
    mr_spec_format(mr_dataset_spec(before), was, sizeof was);
    mr_spec_format(mr_dataset_spec(after), is, sizeof is);
    return mr_fail(st, MR_INTERNAL,
                   "the pass %s changed the type of the elements from %s to %s; report this bug",
                   pass->name, was, is);
}

mr_code mr_pass_run(const mr_pass *pass, void *ctx, mr_dataset *ds, mr_dataset **out,
                    mr_explanation *e, mr_status *st)
{
    size_t decisions = e ? e->n : 0;
    mr_dataset *made = NULL;
    MR_TRY(mr_dataset_check(ds, st));
    mr_code rc = pass->run(ctx, ds, &made, e, st);
    if (rc == MR_OK)
        rc = check_types(pass, ds, made, st);
    if (rc == MR_OK) {
        *out = made;
        return MR_OK;
    }
    mr_dataset_unref(made);
    if (e)
        forget_from(e, decisions);
    return rc;
}

/* ---- rebuilding ---- */

/* node with the results for its inputs as inputs; a reference to node if all are unchanged. */
static mr_dataset *over_results(mr_dataset *node, mr_dataset *const *results, const size_t *inputs)
{
    size_t n = mr_dataset_n_inputs(node);
    bool same = true;
    for (size_t i = 0; i < n; i++)
        same = same && results[inputs[i]] == mr_dataset_input(node, i);
    if (same)
        return mr_dataset_ref(node);
    mr_dataset **now = mr_calloc(n, sizeof(mr_dataset *));
    if (!now) {
        mr_status st;
        mr_fail_memory(&st, n * sizeof *now, "a rewritten graph");
        return mr_dataset_fail(&st);
    }
    for (size_t i = 0; i < n; i++)
        now[i] = mr_dataset_ref(results[inputs[i]]);
    mr_dataset *made = mr_dataset_with_inputs(node, now, n);
    mr_free(now);
    return made;
}

mr_dataset *mr_dataset_transform(mr_dataset *ds, mr_dataset *(*fn)(void *ctx, mr_dataset *node),
                                 void *ctx)
{
    mr_status st;
    mr__nodes nodes;
    if (mr__nodes_of(ds, &nodes, &st) != MR_OK)
        return mr_dataset_fail(&st);
    mr_dataset **results = mr_calloc(nodes.n, sizeof(mr_dataset *));
    const size_t *inputs = nodes.inputs;
    for (size_t i = 0; results && i < nodes.n; i++) {
        mr_dataset *node = over_results(nodes.v[i], results, inputs);
        /* A node that carries an error has no op to rewrite. */
        results[i] = mr_dataset_check(node, NULL) == MR_OK ? fn(ctx, node) : node;
        if (inputs) /* a graph of one source has none */
            inputs += mr_dataset_n_inputs(nodes.v[i]);
    }
    mr_dataset *whole = results ? mr_dataset_ref(results[nodes.n - 1]) : NULL;
    for (size_t i = 0; results && i < nodes.n; i++)
        mr_dataset_unref(results[i]);
    if (!results)
        mr_fail_memory(&st, nodes.n * sizeof(mr_dataset *), "a rewritten graph");
    mr_free(results);
    mr__nodes_reset(&nodes);
    return whole ? whole : mr_dataset_fail(&st);
}
