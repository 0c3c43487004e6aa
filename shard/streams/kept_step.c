/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of a zip that read the same files and keep step. */
#include <string.h>

#include "pipeline/memory/alloc.h"
#include "shard/streams/stream_cut_impl.h"

/* Element i of ds is made of element i of its input, and of nothing else. */
static mr_code keeps_place(const mr_dataset *ds, bool *out, mr_status *st)
{
    const uint32_t needed = MR_OP_KEEPS_COUNT | MR_OP_KEEPS_SHARDS;
    const uint32_t refused = MR_OP_REORDERS | MR_OP_REMEMBERS;
    uint32_t props = mr_dataset_op(ds)->props;
    bool reads = false;
    *out = false;
    if (mr_dataset_n_inputs(ds) != 1 || (props & needed) != needed || (props & refused))
        return MR_OK;
    MR_TRY(mr__stream_reads_files(ds, &reads, st));
    *out = !reads;
    return MR_OK;
}

/* *out = the source of files of an input that keeps step; NULL: it
 * does not. */
static mr_code source_of(mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    bool keeps = true;
    *out = NULL;
    for (;; ds = mr_dataset_input(ds, 0)) {
        if (mr_dataset_n_inputs(ds) == 0)
            break;
        MR_TRY(keeps_place(ds, &keeps, st));
        if (!keeps)
            return MR_OK;
    }
    const mr_op *op = mr_dataset_op(ds);
    if (op->role == MR_ROLE_FILES || (op->props & MR_OP_FILE_ELEMENTS))
        *out = ds;
    return MR_OK;
}

static mr_code is_same(const mr_dataset *a, const mr_dataset *b, bool *out, mr_status *st)
{
    char *x = NULL, *y = NULL;
    *out = a == b;
    if (a == b)
        return MR_OK;
    mr_code rc = mr_dataset_to_text(a, &x, st);
    if (rc == MR_OK)
        rc = mr_dataset_to_text(b, &y, st);
    if (rc == MR_OK)
        *out = strcmp(x, y) == 0;
    mr_free(x);
    mr_free(y);
    return rc;
}

mr_code mr__stream_keeps_step(const mr_dataset *ds, bool *out, mr_status *st)
{
    mr_dataset *first = NULL, *other = NULL;
    *out = false;
    for (size_t i = 0; i < mr_dataset_n_inputs(ds); i++) {
        bool same = true;
        MR_TRY(source_of(mr_dataset_input(ds, i), &other, st));
        if (!other)
            return MR_OK;
        if (first)
            MR_TRY(is_same(first, other, &same, st));
        else
            first = other;
        if (!same)
            return MR_OK;
    }
    *out = first != NULL;
    return MR_OK;
}
