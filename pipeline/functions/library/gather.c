/* SPDX-License-Identifier: Apache-2.0 */
/* gather(x, indices, axis=0): parts of x in the order of the indices, like numpy's take. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/library/along_axis.h"

static mr_code type(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0], *i = c->in[1];
    int at;
    MR_TRY(mr__axis_type(c, ((const mr__axis *)c->params)->axis, x->rank, &at, st));
    c->out = (mr_leaf){.dtype = x->dtype, .rank = -1};
    if (x->rank < 0 || i->rank < 0)
        return MR_OK;
    int rank = x->rank - 1 + i->rank;
    if (rank > MR_MAX_RANK)
        return mr_call_fail(c, st, -1, "more than %d axes", MR_MAX_RANK);
    int64_t n = x->shape[at];
    for (size_t k = 0; c->known[1] && n >= 0 && k < mr_array_row_values(c->known[1]); k++) {
        int64_t v = mr__int_at(c->known[1], k);
        if (v < -n || v >= n)
            return mr_call_fail(c, st, 1,
                                "index %" PRId64 " is out of range: axis %d has length %" PRId64, v,
                                at, n);
    }
    c->out.rank = (int8_t)rank;
    for (int d = 0; d < rank; d++)
        c->out.shape[d] = d < at             ? x->shape[d]
                          : d < at + i->rank ? i->shape[d - at]
                                             : x->shape[d - i->rank + 1];
    return MR_OK;
}

/* Copies the parts that the indices of one row select; false: an index is out of range. */
static bool pick(const mr_rows *r, size_t row, int at, mr__lines l, size_t size, char *to)
{
    const mr_array *x = &r->in[0], *index = &r->in[1];
    size_t n_indices = mr_array_row_values(index), bytes = l.inner * size;
    size_t first = r->constant[1] ? 0 : row * n_indices;
    const char *from = mr__row_at(r, 0, row);
    int64_t n = x->shape[at];
    for (size_t o = 0; o < l.outer; o++, from += l.n * bytes)
        for (size_t i = 0; i < n_indices; i++, to += bytes) {
            int64_t v = mr__int_at(index, first + i);
            if (v < -n || v >= n) {
                mr_row_fail(r, row, MR_OUT_OF_RANGE,
                            "index %" PRId64 " is out of range: axis %d has length %" PRId64, v, at,
                            n);
                return false;
            }
            if (bytes)
                memcpy(to, from + (size_t)(v < 0 ? v + n : v) * bytes, bytes);
        }
    return true;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0], *index = &r->in[1];
    int at, rank = x->rank - 1 + index->rank;
    int64_t shape[MR_MAX_RANK];
    if (rank > MR_MAX_RANK)
        mr__fail_all(r, "gather: more than %d axes", MR_MAX_RANK);
    if (rank > MR_MAX_RANK || !mr__axis_run(r, ((const mr__axis *)r->params)->axis, x->rank, &at))
        return mr__any_value(x->dtype, r->rows, out, st);
    for (int d = 0; d < rank; d++)
        shape[d] = d < at                 ? x->shape[d]
                   : d < at + index->rank ? index->shape[d - at]
                                          : x->shape[d - index->rank + 1];
    MR_TRY(mr_array_alloc(out, x->dtype, rank, shape, r->rows, st));
    mr__lines l = mr__lines_of(x, at);
    l.outer = x->rows ? l.outer / x->rows : 0;
    size_t bytes = mr_array_row_bytes(out);
    for (size_t row = 0; row < r->rows; row++)
        if (!pick(r, row, at, l, mr_dtype_size(x->dtype), mr_array_at(out, row)) && bytes)
            memset(mr_array_at(out, row), 0, bytes);
    return mr__hold_strings(out, r, 1, st);
}

static const mr_param table[] = {
    MR_INPUT(mr_input_tensor, "x", "A tensor of one axis or more."),
    MR_INPUT(mr_input_integers, "indices",
             "Positions along the axis; negative ones count from the end."),
    MR_PARAM(mr__axis, axis, .doc = "The axis to gather along; -1 is the last."),
    {0}};
const mr_function mr_function_gather = {
    .abi = MR_ABI_VERSION,
    .name = "gather",
    .doc = "The parts of x at the indices, whose axes replace the axis.",
    .example = "range(3).map(x => gather([4, 5, 6], [x, 0]))",
    .params = table,
    .params_size = sizeof(mr__axis),
    .props = MR_FUNCTION_CONSTANTS,
    .type = type,
    .run = run,
};
