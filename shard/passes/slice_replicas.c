/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts global batches into slices for the replicas, and adds a prefetch. */
#include "pipeline/ops/batch.h"
#include "pipeline/ops/apply.h"
#include "shard/passes/shard_passes.h"

#include <inttypes.h>
#include <stdio.h>

static mr_code check_batched(const mr_dataset *ds, mr_status *st)
{
    const mr_spec *spec = mr_dataset_spec(ds);
    for (size_t i = 0; i < mr_spec_n_leaves(spec); i++) {
        const mr_leaf *leaf = mr_spec_leaf(spec, i);
        const char *const *names = mr_spec_leaf_names(spec); /* NULL: no memory for them */
        const char *name = names && names[i][0] ? names[i] : "0";
        if (leaf->dtype == MR_DATASET)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "component '%s' is a dataset, which cannot be cut for the replicas; "
                           "flatten and batch the dataset first",
                           name);
        if (leaf->rank == 0)
            return mr_fail(
                st, MR_FAILED_PRECONDITION,
                "component '%s' is a scalar, which cannot be cut for the replicas; batch "
                "the dataset first, by the global batch size",
                name[0] ? name : "0");
    }
    return MR_OK;
}

static mr_code run(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    int64_t n = *(const int64_t *)ctx;
    MR_TRY(check_batched(ds, st));
    MR_TRY(mr_explain(e, "slices", NULL, st,
                      "each global batch is cut into %" PRId64
                      " equal slices of its rows, one for each replica; late ones may be short or "
                      "empty",
                      n));
    MR_TRY(mr_explain(e, "prefetching", NULL, st,
                      "%" PRId64 " slices are made ahead, one for each replica in sync", n));
    *out = mr_prefetch(mr_replica_slices(mr_dataset_ref(ds), n), n);
    return MR_OK;
}

static const mr_pass slice_pass = {"slice_replicas", "cuts each global batch for the replicas",
                                   run};

mr_code mr_slice_for_replicas(mr_dataset *ds, int64_t num_replicas, mr_dataset **out,
                              mr_explanation *e, mr_status *st)
{
    if (num_replicas < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the number of replicas must be at least 1, not %" PRId64, num_replicas);
    MR_TRY(mr_dataset_check(ds, st));
    if (num_replicas == 1) {
        MR_TRY(mr_explain(e, "slices", NULL, st,
                          "there is one replica: it takes every element whole"));
        *out = mr_dataset_ref(ds);
        return MR_OK;
    }
    return mr_pass_run(&slice_pass, &num_replicas, ds, out, e, st);
}

/* ---- a consumer that owns slots ---- */

typedef struct trailing {
    const mr_dataset *end; /* first node below the trailing ones */
    bool above;            /* the walk is past it */
    int64_t elements;
} trailing;

static mr_dataset *drop_prefetch(void *ctx, mr_dataset *old, mr_dataset *now, const mr__walk *w)
{
    (void)w;
    trailing *t = ctx;
    if (old == t->end)
        t->above = true;
    else if (t->above && (mr_dataset_op(old)->props & MR_OP_READS_AHEAD)) {
        mr_value depth = {0};
        if (mr_dataset_param_named(old, "buffer_size", &depth, NULL) == MR_OK &&
            depth.kind == MR_V_INT && t->elements != MR_AUTO && depth.i >= 0)
            t->elements = depth.i > INT64_MAX - t->elements ? INT64_MAX : t->elements + depth.i;
        else
            t->elements = MR_AUTO;
        mr_value_reset(&depth);
        mr_dataset *input = mr_dataset_ref(mr_dataset_input(now, 0));
        mr_dataset_unref(now);
        return input;
    }
    return now;
}

mr_code mr__absorb_prefetch(mr_dataset *ds, mr_dataset **out, int64_t *elements, mr_explanation *e,
                            mr_status *st)
{
    trailing t = {.end = mr__below_trailing(ds)};
    mr_dataset *made = NULL;
    MR_TRY(mr__walk_graph(ds, drop_prefetch, &t, &made, st));
    mr_code rc = MR_OK;
    char depth[32] = "auto";
    if (t.elements != MR_AUTO)
        snprintf(depth, sizeof depth, "%" PRId64, t.elements);
    if (made != ds)
        rc = mr_explain(e, "prefetching", NULL, st,
                        "the trailing prefetch (%s elements) becomes slots of the consumer, which "
                        "are filled in place",
                        depth);
    if (rc != MR_OK) {
        mr_dataset_unref(made);
        return rc;
    }
    *elements = t.elements;
    *out = made;
    return MR_OK;
}
