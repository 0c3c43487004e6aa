/* SPDX-License-Identifier: Apache-2.0 */
/* The zero-size batch of a replica without data. */
#include "shard/distribute/dist_impl.h"

#include <string.h>

/* The data of a zero-size value are never used, but vector code may load them: the pointer must be
 * valid. */
static const max_align_t nothing[8];

/* Unknown dimensions become 0; if the shape is fully known, dimension 0 does. */
static void zero_shape(const mr_leaf *leaf, int64_t *shape)
{
    bool known = true;
    for (int d = 0; d < leaf->rank; d++) {
        shape[d] = leaf->shape[d] < 0 ? 0 : leaf->shape[d];
        known = known && leaf->shape[d] >= 0;
    }
    if (known && leaf->rank > 0)
        shape[0] = 0;
}

static mr_code zero_ragged(const mr_leaf *leaf, mr_array *a, mr_status *st)
{
    static const int64_t no_splits[1] = {0};
    MR_TRY(mr_array_alloc_ragged(a, leaf->dtype, leaf->rank, 1, st));
    int64_t *shape = mr_array_shape_slot(a, 0);
    zero_shape(leaf, shape);
    shape[0] = 0;
    shape[1] = -1;
    *(mr_row *)a->data = (mr_row){nothing, shape, no_splits};
    return MR_OK;
}

static mr_code zero_column(const mr_leaf *leaf, mr_array *a, mr_status *st)
{
    if (leaf->dtype == MR_DATASET)
        return mr_fail(
            st, MR_UNIMPLEMENTED,
            "a replica without data would need an empty dataset; flatten the datasets, so "
            "that every element is a tensor");
    if (leaf->ragged && leaf->rank > 1)
        return zero_ragged(leaf, a, st);
    int64_t shape[MR_MAX_RANK] = {0};
    int rank = leaf->rank < 0 ? 0 : leaf->rank;
    zero_shape(leaf, shape);
    MR_TRY(mr_array_alloc(a, leaf->dtype, rank, shape, 1, st));
    size_t bytes = mr_array_row_bytes(a);
    if (bytes)
        memset(a->data, 0, bytes);
    return MR_OK;
}

mr_code mr__zero_size_batch(const mr_spec *spec, mr_block *b, mr_status *st)
{
    size_t n = mr_spec_n_leaves(spec);
    MR_TRY(mr_block_prepare(b, n, st));
    b->rows = 1;
    for (size_t i = 0; i < n; i++) {
        mr_code rc = zero_column(mr_spec_leaf(spec, i), &b->columns[i], st);
        if (rc != MR_OK) {
            mr_block_reset(b);
            return rc;
        }
    }
    return MR_OK;
}
