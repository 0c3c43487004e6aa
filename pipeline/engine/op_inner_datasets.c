/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/op_inner_datasets.h"

#include "pipeline/engine/run.h"

static mr_code open_value(mr_iter *parent, mr_dataset *ds, mr__scope *scope, mr_iter **out,
                          mr_status *st)
{
    const mr__place place = {.parent = parent,
                             .input = SIZE_MAX,
                             .seed = mr__mix_text(parent->priv->seed, parent->op->name),
                             .scope = scope,
                             .owns_scope = scope != NULL};
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
    return open_value(parent, ds, scope, out, st);
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
    return open_value(it, ds, scope, out, st);
}

void mr_iter_set_takes(mr_iter *it, size_t n)
{
    it->priv->takes = n;
}
