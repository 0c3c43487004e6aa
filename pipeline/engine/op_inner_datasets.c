/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/op_inner_datasets.h"

#include "pipeline/engine/op_source.h"
#include "pipeline/engine/run.h"
#include "pipeline/graph/fn.h"

/* A function of parent reads the files of a source, one at a time: in parent's graph their names
 * are elements, but they were given to the source. */
static bool reads_given(const mr_iter *parent)
{
    const char *params = parent->params;
    for (const mr_param *p = parent->op->params; p && p->name; p++) {
        const mr_fn *fn =
            p->type == MR_PT_FN ? *(mr_fn *const *)(const void *)(params + p->at) : NULL;
        if (fn && fn->reads_given)
            return true;
    }
    return false;
}

/* Where the names come from in a dataset that a function of parent returned. */
static mr__names names_below(const mr_iter *parent)
{
    mr__names above = parent->priv->names;
    bool stands_for_source = parent->priv->stands_for_source || reads_given(parent);
    bool given = above == MR__NAMES_REPLACED || (above == MR__NAMES_GIVEN && stands_for_source);
    return given ? MR__NAMES_REPLACED : MR__NAMES_OF_VALUES;
}

static mr_code open_value(mr_iter *parent, mr_dataset *ds, mr__scope *scope, mr__names names,
                          mr_iter **out, mr_status *st)
{
    const mr__place place = {.parent = parent,
                             .input = SIZE_MAX,
                             .in_graph =
                                 mr__place_of_values(parent->priv->in_graph, parent->op->name),
                             .scope = scope,
                             .owns_scope = scope != NULL,
                             .names = names};
    return mr__iter_open(parent->run, &place, ds, out, st);
}

mr_code mr_iter_open_dataset(mr_iter *parent, mr_dataset *ds, const mr_identities *outer,
                             mr_iter **out, mr_status *st)
{
    mr__scope *scope = NULL;
    if (parent->priv->scope) {
        scope = mr_calloc(1, sizeof *scope);
        if (!scope)
            return mr_fail_memory(st, sizeof *scope, "the sources of a dataset");
        mr__scope_start(scope, parent, outer);
    }
    return open_value(parent, ds, scope, names_below(parent), out, st);
}

mr_code mr_iter_open_replacement(mr_iter *it, mr_dataset *ds, mr_iter **out, mr_status *st)
{
    mr__scope *scope = NULL;
    if (it->priv->scope) {
        scope = mr_calloc(1, sizeof *scope);
        if (!scope)
            return mr_fail_memory(st, sizeof *scope, "the sources of a dataset");
        *scope = (mr__scope){.inner = true,
                             .replaced = true,
                             .outer = {.source = it->source, .epoch = it->priv->epoch}};
    }
    return open_value(it, ds, scope,
                      mr_iter_names_given(it) ? MR__NAMES_REPLACED : MR__NAMES_OF_VALUES, out, st);
}

void mr_iter_set_stands_for_source(mr_iter *it)
{
    it->priv->stands_for_source = true;
}

void mr_iter_set_takes(mr_iter *it, size_t n)
{
    it->priv->takes = n;
}
