/* SPDX-License-Identifier: Apache-2.0 */
/* RANGE: divides the records of all files of a reader, by the files' indexes. */
#include <inttypes.h>
#include <stdio.h>

#include "pipeline/functions/compiler/function.h"
#include "shard/passes/graph_branches.h"

enum { DIVIDE = MR__OWN_MARK };

static mr_code not_found(const char *op, const char *why, const char *path, mr_status *st)
{
    mr_code rc = mr_fail(st, MR_NOT_FOUND,
                         "the walk to the records stopped at '%s', %s; use auto_shard_policy FILE, "
                         "DATA or OFF (--auto-shard file, data or off)",
                         op, why);
    mr_status_set_op(st, path);
    return rc;
}

static mr_code look(mr__branches *k, mr_dataset *ds, const char *path, bool *ends, mr_status *st)
{
    const mr_op *op = mr_dataset_op(ds);
    bool reads = false;
    if (mr__reads_range(ds))
        return not_found(op->name, "which reads a part of its records already", path, st);
    *ends = op->role == MR_ROLE_FILES && mr__param_with(ds, MR_P_RANGE);
    if (*ends)
        return mr__branches_mark(k, ds, DIVIDE, st);
    if (op->role == MR_ROLE_FILES)
        return not_found(op->name, "which cannot seek to an arbitrary record of its files", path,
                         st);
    if (op->role == MR_ROLE_SOURCE)
        return not_found(op->name, "a source that reads no list of files", path, st);
    MR_TRY(mr_dataset_functions_have_role(ds, MR_ROLE_FILES, &reads, st));
    if (reads)
        return not_found(op->name, "whose function reads one file per element", path, st);
    bool passes =
        op->role == MR_ROLE_PASS || op->role == MR_ROLE_FUNCTION || (op->props & MR_OP_SEEKS_INPUT);
    if (op->role != MR_ROLE_PARALLEL && (!passes || mr_dataset_n_inputs(ds) == 0))
        return not_found(op->name, "below which records cannot be divided", path, st);
    return MR_OK;
}

/* The reader, restricted to this worker's records. */
static mr_dataset *act(mr__branches *k, mr_dataset *old, mr_dataset *now, uintptr_t mark,
                       const char *path)
{
    (void)mark;
    char text[64];
    mr_value v = {0}, unset = {0};
    const mr_param *reads = mr__param_with(old, MR_P_READS);
    mr_dataset *made = NULL;
    int n = snprintf(text, sizeof text, "[%" PRId64 ", %" PRId64 "]", k->opts->index,
                     k->opts->num_workers);
    mr_code rc =
        mr_explain(k->e, "sharding", path, &k->status,
                   "the records of %s are divided by their indexes: this worker reads part "
                   "%" PRId64 " of %" PRId64 ", file after file",
                   mr_dataset_op(old)->name, k->opts->index, k->opts->num_workers);
    if (rc == MR_OK)
        rc = mr_value_from_text(text, (size_t)n, &v, &k->status);
    if (rc == MR_OK) {
        mr_dataset *alone =
            reads ? mr_dataset_with_param(now, reads->name, &unset) : mr_dataset_ref(now);
        made = mr_dataset_with_param(alone, mr__param_with(old, MR_P_RANGE)->name, &v);
        mr_dataset_unref(alone);
    } else {
        made = mr_dataset_fail(&k->status);
    }
    mr_value_reset(&v);
    mr_dataset_unref(now);
    return made;
}

static mr_code run(void *ctx, mr_dataset *ds, mr_dataset **out, mr_explanation *e, mr_status *st)
{
    mr__branches k = {.opts = ctx, .look = look, .act = act};
    return mr__branches_run(&k, ds, out, e, st);
}

const mr_pass mr__shard_ranges_pass = {
    "shard_ranges", "assigns each worker its part of the records that the graph reads", run};
