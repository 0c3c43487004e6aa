/* SPDX-License-Identifier: Apache-2.0 */
/* Class numbers among the features. The lanes of a warp share a number, or its row of a table. */
#include "trainer/device/cuda/kernels/kernel.h"

MR_HD bool id_of(mr_dtype t, const void *ids, size_t i, size_t classes, size_t *id)
{
    double v = mr_number<double>(t, ids, (int64_t)i);
    if (!(v >= 0 && v < (double)classes))
        return false;
    *id = (size_t)v;
    return true;
}

MR_HD void gather_at(const mr_k_gather &p, int64_t at)
{
    const mr_math_gather &g = p.g;
    size_t lane = (size_t)at % MR_LANES, i = (size_t)at / MR_LANES, id = 0;
    bool good = id_of(g.id_dtype, g.ids, i, g.classes, &id);
    for (size_t j = lane; j < g.width; j += MR_LANES)
        g.y[i * g.width + j] = good ? g.table[id * g.width + j] : 0;
    if (!good && lane == 0)
        mr_count_bad(p.bad, g.first_row + i / g.ids_per_row);
}
MR_KERNEL(gather, mr_k_gather, p.g.n *MR_LANES)

/* Adds the counts to the fault, and resets the words. */
MR_HD void id_fault_at(const mr_k_id_fault &p, int64_t)
{
    if (p.bad->count == 0)
        return;
    p.fault->count += p.bad->count;
    if (p.bad->row < p.fault->row) {
        size_t i = (size_t)(p.bad->row - p.first_row) * p.ids_per_row, id;
        while (id_of(p.id_dtype, p.ids, i, p.classes, &id))
            i++;
        p.fault->row = p.bad->row;
        p.fault->label = mr_number<double>(p.id_dtype, p.ids, (int64_t)i);
        p.fault->classes = p.classes;
        p.fault->is_feature = 1;
    }
    p.bad->count = 0;
    p.bad->row = UINT64_MAX;
}
MR_KERNEL(id_fault, mr_k_id_fault, 1)

/* Into zeros. The warp of the first occurrence of a number sums over all occurrences, in their
 * order; the other warps do nothing. */
MR_HD void gather_backward_at(const mr_math_gather_backward &p, int64_t at)
{
    size_t lane = (size_t)at % MR_LANES, i = (size_t)at / MR_LANES, id = 0, other = 0;
    float earlier = 0;
    if (!id_of(p.id_dtype, p.ids, i, p.classes, &id))
        return;
    for (size_t k = lane; k < i; k += MR_LANES)
        earlier += id_of(p.id_dtype, p.ids, k, p.classes, &other) && other == id ? 1.0f : 0.0f;
    if (mr_lanes_sum(earlier) > 0)
        return;
    for (size_t k = i; k < p.n; k++)
        if (id_of(p.id_dtype, p.ids, k, p.classes, &other) && other == id)
            for (size_t j = lane; j < p.width; j += MR_LANES)
                p.dtable[id * p.width + j] += p.dy[k * p.width + j];
}
MR_KERNEL(gather_backward, mr_math_gather_backward, p.n *MR_LANES)

MR_HD void encode_at(const mr_k_encode &p, int64_t at)
{
    const mr_math_encode &e = p.e;
    int64_t r, c = mr_split(at, e.classes, &r);
    float count = 0;
    for (size_t k = 0; k < e.ids_per_row; k++) {
        size_t id = 0;
        bool good = id_of(e.id_dtype, e.ids, (size_t)r * e.ids_per_row + k, e.classes, &id);
        if (!good && c == 0)
            mr_count_bad(p.bad, e.first_row + (size_t)r / e.per_row);
        count += good && id == (size_t)c ? 1.0f : 0.0f;
    }
    e.y[at] = e.once && count > 1 ? 1 : count;
}
MR_KERNEL(encode, mr_k_encode, p.e.rows *p.e.classes)
