/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the policy and runs its pass. */
#include "shard/passes/auto_shard.h"
#include "shard/passes/shard_passes.h"
#include "pipeline/warn_once.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

static const char *const policy_names[MR_N_SHARD_POLICIES] = {"AUTO", "FILE", "DATA",
                                                              "OFF",  "HINT", "RANGE"};

const char *mr_shard_policy_name(mr_shard_policy policy)
{
    return (unsigned)policy < MR_N_SHARD_POLICIES ? policy_names[policy] : "unknown";
}

mr_code mr_shard_policy_parse(const char *name, mr_shard_policy *out, mr_status *st)
{
    for (int i = 0; i < MR_N_SHARD_POLICIES; i++)
        if (strcasecmp(name, policy_names[i]) == 0) {
            *out = (mr_shard_policy)i;
            return MR_OK;
        }
    return mr_fail(
        st, MR_INVALID_ARGUMENT,
        "unknown auto-shard policy '%.64s'; expected AUTO, FILE, DATA, OFF, HINT or RANGE", name);
}

/* ---- the options of a graph ---- */

/* The walk visits inputs before their users, and earlier inputs before later ones: the last value
 * wins. */
static mr_code read_policy(void *ctx, mr_dataset *node, const mr__walk *w, mr_status *st)
{
    (void)w;
    if (!(mr_dataset_op(node)->props & MR_OP_HOLDS_OPTIONS))
        return MR_OK;
    mr_value v = {0};
    mr_code rc = mr_dataset_param_named(node, "auto_shard_policy", &v, st);
    if (rc == MR_OK && v.kind == MR_V_STRING)
        rc = mr_shard_policy_parse(v.s, ctx, st);
    mr_value_reset(&v);
    return rc;
}

mr_code mr_shard_policy_of(mr_dataset *ds, mr_shard_policy *out, mr_status *st)
{
    mr_shard_policy policy = MR_SHARD_AUTO;
    MR_TRY(mr__visit_graph(ds, read_policy, &policy, st));
    *out = policy;
    return MR_OK;
}

/* ---- the policies ---- */

static mr_code check_opts(const mr_auto_shard_opts *o, mr_status *st)
{
    if ((unsigned)o->policy >= MR_N_SHARD_POLICIES)
        return mr_fail(st, MR_INVALID_ARGUMENT, "invalid auto-shard policy %d", (int)o->policy);
    if (o->num_workers < 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the number of workers must be at least 1, not %" PRId64, o->num_workers);
    if (o->index < 0 || o->index >= o->num_workers)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the worker's index must be 0 to %" PRId64 ", not %" PRId64,
                       o->num_workers - 1, o->index);
    if (o->num_replicas < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the number of replicas must not be negative, is %" PRId64, o->num_replicas);
    return MR_OK;
}

static mr_code unchanged(mr_dataset *ds, mr_dataset **out)
{
    *out = mr_dataset_ref(ds);
    return MR_OK;
}

static mr_code shard_data(mr_dataset *ds, mr_auto_shard_opts *o, mr_dataset **out,
                          mr_explanation *e, mr_status *st)
{
    if (o->num_workers == 1)
        return unchanged(ds, out);
    MR_TRY(
        mr_explain(e, "guarantee", NULL, st,
                   "every worker reads all data and keeps its slices of every global batch: each "
                   "example is used exactly once, and each global batch is one step"));
    MR_TRY(mr__warn_of_disorder(ds, e, st));
    return mr_pass_run(&mr__shard_data_pass, o, ds, out, e, st);
}

static mr_code shard_files(mr_dataset *ds, mr_auto_shard_opts *o, mr_dataset **out,
                           mr_explanation *e, mr_status *st)
{
    mr_code rc = mr_pass_run(&mr__shard_files_pass, o, ds, out, e, st);
    if (rc == MR_OK && o->num_workers > 1 &&
        mr_explain(e, "guarantee", NULL, st,
                   "every file is read by one worker: each record is used exactly once; a worker "
                   "that ends early takes its last steps without data") != MR_OK) {
        mr_dataset_unref(*out);
        *out = NULL;
        rc = MR_RESOURCE_EXHAUSTED;
    }
    return rc;
}

static mr_code shard_ranges(mr_dataset *ds, mr_auto_shard_opts *o, mr_dataset **out,
                            mr_explanation *e, mr_status *st)
{
    MR_TRY(mr_explain(e, "guarantee", NULL, st,
                      "every record is read by one worker: each is used exactly once; the workers' "
                      "numbers of records differ by one at most"));
    return mr_pass_run(&mr__shard_ranges_pass, o, ds, out, e, st);
}

static mr_code choose(mr_dataset *ds, mr_auto_shard_opts *o, mr_dataset **out,
                      mr_shard_policy *chosen, mr_explanation *e, mr_status *st)
{
    mr_status why;
    mr_explanation tried = {0};
    mr_status_init(&why);
    /* The decisions of a failed walk would be wrong: they are only added after it has succeeded. */
    mr_code rc = shard_files(ds, o, out, e ? &tried : NULL, &why);
    *chosen = rc == MR_OK ? MR_SHARD_FILE : MR_SHARD_DATA;
    if (rc == MR_OK) {
        rc = mr_explain(e, "policy", NULL, st, "AUTO chose FILE: all sources are files");
        for (size_t i = 0; i < tried.n && rc == MR_OK; i++)
            rc = mr_explain(e, tried.v[i].what, tried.v[i].op, st, "%s", tried.v[i].detail);
        if (rc != MR_OK) {
            mr_dataset_unref(*out);
            *out = NULL;
        }
    } else if (rc == MR_NOT_FOUND) {
        rc = mr_explain(e, "policy", why.op[0] ? why.op : NULL, st,
                        "AUTO chose DATA, because FILE cannot be applied: %s", why.message);
        /* With one worker nothing is sharded, and the choice makes no difference. */
        if (e && o->num_workers > 1)
            mr__warn_once("auto-shard policy AUTO chose DATA, because FILE cannot be applied: %s",
                          why.message);
        if (rc == MR_OK)
            rc = shard_data(ds, o, out, e, st);
    } else if (st)
        *st = why;
    mr_explanation_reset(&tried);
    return rc;
}

mr_code mr_auto_shard(mr_dataset *ds, const mr_auto_shard_opts *opts, mr_dataset **out,
                      mr_shard_policy *chosen, mr_explanation *e, mr_status *st)
{
    mr_auto_shard_opts o = *opts;
    mr_shard_policy policy = o.policy;
    MR_TRY(check_opts(&o, st));
    MR_TRY(mr_dataset_check(ds, st));
    mr_dataset *made = NULL;
    if (policy == MR_SHARD_AUTO) {
        MR_TRY(choose(ds, &o, &made, &policy, e, st));
    } else {
        MR_TRY(mr_explain(e, "policy", NULL, st, "%s, as requested", policy_names[policy]));
        if (policy == MR_SHARD_FILE && o.num_workers > 1)
            MR_TRY(shard_files(ds, &o, &made, e, st));
        else if (policy == MR_SHARD_DATA)
            MR_TRY(shard_data(ds, &o, &made, e, st));
        else if (policy == MR_SHARD_RANGE && o.num_workers > 1)
            MR_TRY(shard_ranges(ds, &o, &made, e, st));
        else if (policy == MR_SHARD_HINT)
            MR_TRY(mr_pass_run(&mr__shard_hint_pass, &o, ds, &made, e, st));
        else {
            if (policy == MR_SHARD_OFF && o.num_workers > 1)
                MR_TRY(mr_explain(e, "guarantee", NULL, st,
                                  "every worker uses every example: each is used %" PRId64
                                  " times in all",
                                  o.num_workers));
            MR_TRY(unchanged(ds, &made));
        }
    }
    if (chosen)
        *chosen = policy;
    *out = made;
    return MR_OK;
}
