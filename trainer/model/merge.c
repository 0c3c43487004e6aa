/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/model/merge.h"
#include <string.h>
#include "trainer/device/tensor.h"

mr_code mr__merge_build(mr_layer *l, mr_status *st)
{
    char first[128], other[128];
    for (size_t k = 1; k < l->n_inputs; k++) {
        const mr_dims *d = &l->ins[k];
        if (d->rank == l->in.rank &&
            memcmp(d->shape, l->in.shape, (size_t)d->rank * sizeof *d->shape) == 0)
            continue;
        mr__shape_text(l->in.rank, l->in.shape, first, sizeof first);
        mr__shape_text(d->rank, d->shape, other, sizeof other);
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "%s: its inputs must have the same shape, but the first has %s and number %zu has %s",
            l->name, first, k + 1, other);
    }
    l->out = l->in;
    return MR_OK;
}

mr_code mr__merge_linear(const mr_layer_pass *p, float first, float rest, mr_status *st)
{
    size_t n = p->rows * mr_dims_values(&p->layer->out);
    for (size_t k = 0; k < p->layer->n_inputs; k++) {
        const mr_math_combine add = {n, k > 0 ? rest : first, k > 0 ? 1 : 0, p->xs[k], p->y};
        MR_TRY(p->math->combine(p->stream, &add, st));
    }
    return MR_OK;
}

mr_code mr__merge_linear_backward(const mr_layer_pass *p, float first, float rest, mr_status *st)
{
    size_t n = p->rows * mr_dims_values(&p->layer->out);
    for (size_t k = 0; k < p->layer->n_inputs; k++) {
        const mr_math_combine scale = {n, k > 0 ? rest : first, 0, p->dy, p->dxs[k]};
        if (p->dxs[k])
            MR_TRY(p->math->combine(p->stream, &scale, st));
    }
    return MR_OK;
}
