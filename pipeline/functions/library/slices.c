/* SPDX-License-Identifier: Apache-2.0 */
/* x[1:5, :, ::2]: ranges and indices of several axes, as in Python. The syntax tree contains the
 * expression in the brackets; the numbers given there are inputs, in the order of the text. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/compiler/type_check.h"

enum { START = 1, STOP = 2, STEP = 4 };

struct plan {
    int n;
    uint8_t given[MR_MAX_RANK]; /* START | STOP | STEP; 0xff: an index, which removes the axis */
};
enum { INDEX = 0xff };

static uint8_t given_in(const mr_expr *e)
{
    uint8_t given = 0;
    if (e->kind != MR_EX_SLICE)
        return INDEX;
    for (size_t i = 0; i < 3; i++)
        if (e->children[i]->kind != MR_EX_NONE)
            given |= (uint8_t)(1 << i);
    return given;
}

/* A range over an axis of n values: the first, how many, and how far apart. */
typedef struct range {
    int64_t first, count, step;
} range;

static range python_range(uint8_t given, int64_t start, int64_t stop, int64_t step, int64_t n)
{
    step = given & STEP ? step : 1;
    int64_t least = step < 0 ? -1 : 0, most = step < 0 ? n - 1 : n;
    if (!(given & START))
        start = step < 0 ? most : least;
    else
        start = start < 0 ? (start + n < least ? least : start + n) : start > most ? most : start;
    if (!(given & STOP))
        stop = step < 0 ? least : most;
    else
        stop = stop < 0 ? (stop + n < least ? least : stop + n) : stop > most ? most : stop;
    int64_t span = step < 0 ? start - stop : stop - start;
    /* -(step + 1) + 1: the least integer has no positive counterpart. */
    uint64_t width = step < 0 ? (uint64_t)(-(step + 1)) + 1 : (uint64_t)step;
    return (range){start, span <= 0 ? 0 : (int64_t)(((uint64_t)span - 1) / width + 1), step};
}

static mr_code type(mr_call *c, mr_status *st)
{
    const mr_expr *brackets = c->e->children[1];
    bool several = brackets->kind == MR_EX_TUPLE;
    size_t n = several ? brackets->n : 1, in = 1;
    const mr_leaf *x = c->in[0];
    struct plan *p = c->plan = mr_calloc(1, sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "an expression");
    if (n > (size_t)(x->rank < 0 ? MR_MAX_RANK : x->rank))
        return mr_call_fail(c, st, -1, "%zu indices or ranges into a tensor of %d axes", n,
                            x->rank < 0 ? MR_MAX_RANK : x->rank);
    p->n = (int)n;
    c->out = (mr_leaf){.dtype = x->dtype, .rank = x->rank < 0 ? -1 : 0};
    for (int d = 0; d < p->n || d < x->rank; d++) {
        int64_t length = x->rank < 0 ? -1 : x->shape[d], v[3] = {0};
        bool known = length >= 0;
        uint8_t given = 0;
        if (d < p->n) {
            given = p->given[d] = given_in(several ? brackets->children[d] : brackets);
            for (int i = 0; i < (given == INDEX ? 1 : 3); i++)
                if (given & 1 << i) {
                    known = known && c->known[in];
                    v[i] = c->known[in] ? mr__int_at(c->known[in], 0) : 1;
                    in++;
                }
            if (given != INDEX && (given & STEP) && v[2] == 0)
                return mr_call_fail(c, st, (int)in - 1, "the step of a range must not be 0");
        }
        if (given == INDEX && known && (v[0] < -length || v[0] >= length))
            return mr_call_fail(c, st, (int)in - 1,
                                "index %" PRId64 " is out of range: axis %d has length %" PRId64,
                                v[0], d, length);
        if (given != INDEX && x->rank >= 0)
            c->out.shape[c->out.rank++] = d >= p->n ? length
                                          : known
                                              ? python_range(given, v[0], v[1], v[2], length).count
                                              : -1;
    }
    return MR_OK;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct plan *p = r->plan;
    const mr_array *x = &r->in[0];
    int64_t shape[MR_MAX_RANK], strides[MR_MAX_RANK], of_x[MR_MAX_RANK], step = 1, first = 0;
    size_t in = 1, size = mr_dtype_size(x->dtype);
    int rank = 0;
    if (p->n > x->rank) {
        mr__fail_all(r, "%d indices or ranges into a tensor of %d axes", p->n, x->rank);
        return mr__any_value(x->dtype, r->rows, out, st);
    }
    for (int d = x->rank - 1; d >= 0; d--) {
        of_x[d] = step;
        step *= x->shape[d];
    }
    for (int d = 0; d < x->rank; d++) {
        uint8_t given = d < p->n ? p->given[d] : 0;
        int64_t v[3] = {0}, n = x->shape[d];
        for (int i = 0; i < (given == INDEX ? 1 : 3); i++)
            if (given & 1 << i)
                v[i] = mr__int_at(&r->in[in++], 0);
        bool bad_index = given == INDEX && (v[0] < -n || v[0] >= n);
        if (bad_index || (given != INDEX && (given & STEP) && v[2] == 0)) {
            mr__fail_all(r,
                         bad_index ? "index %" PRId64
                                     " is out of range: axis %d has length %" PRId64
                                   : "the step of a range must not be 0",
                         v[0], d, n);
            return mr__any_value(x->dtype, r->rows, out, st);
        }
        if (given == INDEX) {
            first += (v[0] < 0 ? v[0] + n : v[0]) * of_x[d];
            continue;
        }
        range a = python_range(given, v[0], v[1], v[2], n);
        if (a.count > 0)
            first += a.first * of_x[d];
        shape[rank] = a.count;
        strides[rank++] = a.count > 1 ? a.step * of_x[d] : 1;
    }
    MR_TRY(mr_array_alloc(out, x->dtype, rank, shape, r->rows, st));
    for (size_t row = 0; row < r->rows && mr_array_row_values(out); row++)
        mr__copy_strided(mr_array_at(out, row),
                         (const char *)mr__row_at(r, 0, row) + first * (int64_t)size, size, rank,
                         shape, strides);
    return mr__hold_strings(out, r, 1, st);
}

static const mr_param table[] = {
    MR_INPUT(mr_input_tensor, "x", "Any tensor."),
    MR_INPUT_WITH(mr_input_integer, "i", MR_P_VARIADIC | MR_P_DECIDES_SHAPE,
                  "An index, or start, stop and step of a range, each of which may be left out; "
                  "negative ones count from the end."),
    {0}};
const mr_function mr_function_slice = {
    .abi = MR_ABI_VERSION,
    .name = "[:]",
    .form = "x[i:j:k, ...]",
    .doc = "A part of a tensor, as in Python: a range keeps its axis, an index does not.",
    .example = "range(3).map(x => [[x, 1, 2], [3, 4, 5]][:, 1:])",
    .params = table,
    .props = MR_FUNCTION_CONSTANTS,
    .type = type,
    .free_plan = mr_free,
    .run = run,
};
