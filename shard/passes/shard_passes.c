/* SPDX-License-Identifier: Apache-2.0 */
#include "shard/passes/shard_passes.h"

#include <stdio.h>
#include <string.h>

#include "pipeline/ops/sequence.h"
#include "pipeline/warn_once.h"

bool mr__param_is(const mr_dataset *ds, const char *name, int64_t v)
{
    mr_value value = {0};
    if (mr_dataset_param_named(ds, name, &value, NULL) != MR_OK)
        return false;
    bool is = (value.kind == MR_V_INT || value.kind == MR_V_BOOL) && value.i == v;
    mr_value_reset(&value);
    return is;
}

const mr_param *mr__param_with(const mr_dataset *ds, uint16_t flag)
{
    for (const mr_param *p = mr_dataset_op(ds)->params; p && p->name; p++)
        if (p->flags & flag)
            return p;
    return NULL;
}

bool mr__reads_range(const mr_dataset *ds)
{
    const mr_param *p = mr__param_with(ds, MR_P_RANGE);
    mr_value v = {0};
    bool set = p && mr_dataset_param_named(ds, p->name, &v, NULL) == MR_OK && v.kind != MR_V_UNSET;
    mr_value_reset(&v);
    return set;
}

const mr_param *mr__shuffle_switch(const mr_dataset *ds)
{
    return mr__param_with(ds, MR_P_SHUFFLES);
}

bool mr__shuffles(const mr_dataset *ds, uint32_t trait)
{
    const mr_param *p = mr__shuffle_switch(ds);
    return (mr_dataset_op(ds)->props & trait) && (!p || mr__param_is(ds, p->name, 1));
}

bool mr__wants_seed(const mr_dataset *ds)
{
    mr_value seed = {0};
    if (!mr__shuffles(ds, MR_OP_RANDOM) || mr_dataset_param_named(ds, "seed", &seed, NULL) != MR_OK)
        return false;
    bool given = seed.kind != MR_V_UNSET && seed.kind != MR_V_NONE;
    mr_value_reset(&seed);
    return !given;
}

static mr_dataset *find_wanting(void *ctx, mr_dataset *node)
{
    if (mr__wants_seed(node))
        *(bool *)ctx = true;
    return node;
}

bool mr__any_wants_seed(mr_dataset *ds)
{
    bool any = false;
    mr_dataset_unref(mr_dataset_transform(ds, find_wanting, &any));
    return any;
}

mr_code mr__warn(mr_explanation *e, const char *op, mr_status *st, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    /* Without an explanation, this is the rewrite for a further worker: it was reported before. */
    if (e)
        mr__warn_once("%s", text);
    return mr_explain(e, "warning", op, st, "%s", text);
}

mr_dataset *mr__insert_shard(mr_dataset *input, const mr_auto_shard_opts *o)
{
    return mr_shard(input, o->num_workers, o->index,
                    &(mr_shard_opts){.require_non_empty = true, .own_errors = true});
}
