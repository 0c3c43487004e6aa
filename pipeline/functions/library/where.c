/* SPDX-License-Identifier: Apache-2.0 */
/* where(condition, x, y): values of x or y, broadcast as in numpy; where(condition): the indices
 * of true values, one vector per axis. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/library/elementwise.h"

/* The shape to which the shapes of all three broadcast; false: they do not. */
static bool join_shapes(int *rank, int64_t *shape, int other_rank, const int64_t *other)
{
    int64_t joined[MR_MAX_RANK];
    int most = *rank > other_rank ? *rank : other_rank;
    for (int d = 0; d < most; d++) {
        int dx = d - (most - *rank), dy = d - (most - other_rank);
        int64_t m = dx < 0 ? 1 : shape[dx], n = dy < 0 ? 1 : other[dy];
        if (m >= 0 && n >= 0 && m != 1 && n != 1 && m != n)
            return false;
        joined[d] = m == 1 ? n : n == 1 ? m : m == -1 ? n : m;
    }
    *rank = most;
    memcpy(shape, joined, (size_t)most * sizeof *shape);
    return true;
}

static mr_code type_indices(mr_call *c, mr_status *st)
{
    const mr_leaf index = {.dtype = MR_INT64, .rank = 1, .shape = {-1}};
    mr_spec *parts[MR_MAX_RANK];
    int rank = c->in[0]->rank;
    if (rank <= 0)
        return mr_call_fail(c, st, 0,
                            rank ? "where: the number of axes is not known here"
                                 : "where of a single condition; give the two values too");
    for (int d = 0; d < rank; d++)
        parts[d] = mr_spec_of_leaf(&index);
    c->spec = mr_spec_tuple(parts, (size_t)rank);
    return c->spec ? MR_OK : mr_fail_memory(st, sizeof index, "an expression");
}

static mr_code type(mr_call *c, mr_status *st)
{
    if (c->n == 1)
        return type_indices(c, st);
    if (c->n == 2)
        return mr_call_fail(c, st, -1, "where takes a condition alone, or with x and y");
    c->out = *c->in[0];
    c->out.dtype = c->in[1]->dtype;
    for (size_t i = 1; i < 3; i++) {
        int rank = c->out.rank;
        if (rank < 0 || c->in[i]->rank < 0) {
            c->out.rank = -1;
            return MR_OK;
        }
        if (!join_shapes(&rank, c->out.shape, c->in[i]->rank, c->in[i]->shape)) {
            char first[96], other[96];
            mr_shape_format(c->out.rank, c->out.shape, first, sizeof first);
            mr_shape_format(c->in[i]->rank, c->in[i]->shape, other, sizeof other);
            return mr_call_fail(c, st, (int)i, "shapes %s and %s are not compatible", first, other);
        }
        c->out.rank = (int8_t)rank;
    }
    return MR_OK;
}

/* ---- where(condition) ---- */

static void count_true(const mr_array *x, int64_t *lengths)
{
    size_t n = mr_array_row_values(x);
    const uint8_t *v = x->data;
    for (size_t row = 0; row < x->rows; row++, v += n) {
        int64_t found = 0;
        for (size_t i = 0; i < n; i++)
            found += v[i] != 0;
        lengths[row] = found;
    }
}

/* The index along axis d of each true value of all rows. */
static void put_indices(const mr_array *x, int d, int64_t *z)
{
    size_t n = x->rows * mr_array_row_values(x), inner = 1;
    for (int k = d + 1; k < x->rank; k++)
        inner *= (size_t)x->shape[k];
    const uint8_t *v = x->data;
    for (size_t i = 0; i < n; i++)
        if (v[i])
            *z++ = (int64_t)(i / inner) % x->shape[d];
}

static mr_code run_indices(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    mr_array c = {0};
    mr_array_slice(&c, x, 0, x->rows);
    mr_code rc = r->constant[0] ? mr__repeat_row(&c, r->rows, st) : MR_OK;
    mr_buffer *lengths = NULL;
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&lengths, r->rows * sizeof(int64_t), st);
    if (rc == MR_OK)
        count_true(&c, mr_buffer_data(lengths));
    for (int d = 0; d < c.rank && rc == MR_OK; d++) {
        void *values;
        rc = mr__vectors(MR_INT64, mr_buffer_data(lengths), r->rows, &out[d], &values, st);
        if (rc == MR_OK)
            put_indices(&c, d, values);
    }
    for (int d = 0; d < c.rank && rc != MR_OK; d++)
        mr_array_reset(&out[d]);
    mr_buffer_unref(lengths);
    mr_array_reset(&c);
    return rc;
}

/* ---- where(condition, x, y) ---- */

#define PICK(T)                                                                                    \
    for (size_t i = 0; i < n; i++)                                                                 \
    memcpy((char *)to + i * sizeof(T), (const char *)(c[i] ? x : y) + i * sizeof(T), sizeof(T))

static void pick(const uint8_t *c, const void *x, const void *y, void *to, size_t n, size_t size)
{
    switch (size) {
    case 1:
        PICK(uint8_t);
        break;
    case 2:
        PICK(uint16_t);
        break;
    case 4:
        PICK(uint32_t);
        break;
    case 8:
        PICK(uint64_t);
        break;
    default:
        PICK(mr_bytes);
    }
}

/* Input i expanded to all rows and the full shape. */
static mr_code widen(const mr_rows *r, size_t i, int rank, const int64_t *shape, mr_array *out,
                     mr_status *st)
{
    const mr_array *a = &r->in[i];
    bool fits = !r->constant[i] && a->rank == rank;
    for (int d = 0; d < rank && fits; d++)
        fits = a->shape[d] == shape[d];
    if (!fits)
        return mr__broadcast_to(a, r->constant[i], r->rows, rank, shape, out, st);
    mr_array_slice(out, a, 0, a->rows);
    return MR_OK;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    if (r->n == 1)
        return run_indices(r, out, st);
    int rank = r->in[0].rank;
    int64_t shape[MR_MAX_RANK];
    mr_array v[3] = {{0}, {0}, {0}};
    mr_dtype t = r->in[1].dtype;
    memcpy(shape, r->in[0].shape, sizeof shape);
    for (size_t i = 1; i < 3; i++)
        if (!join_shapes(&rank, shape, r->in[i].rank, r->in[i].shape)) {
            char first[96], other[96];
            mr_shape_format(rank, shape, first, sizeof first);
            mr_shape_format(r->in[i].rank, r->in[i].shape, other, sizeof other);
            mr__fail_all(r, "shapes %s and %s are not compatible", first, other);
            return mr__any_value(t, r->rows, out, st);
        }
    mr_code rc = MR_OK;
    for (size_t i = 0; i < 3 && rc == MR_OK; i++)
        rc = widen(r, i, rank, shape, &v[i], st);
    if (rc == MR_OK)
        rc = mr_array_alloc(out, t, rank, shape, r->rows, st);
    if (rc == MR_OK) {
        pick(v[0].data, v[1].data, v[2].data, out->data, r->rows * mr_array_row_values(out),
             mr_dtype_size(t));
        rc = mr__hold_strings(out, r, 3, st);
    }
    for (size_t i = 0; i < 3; i++)
        mr_array_reset(&v[i]);
    return rc;
}

static const mr_param table[] = {MR_INPUT(mr_input_bools, "condition", "Bools."),
                                 {.name = "x",
                                  .doc = "The values where the condition is true.",
                                  .type = MR_PT_OWN,
                                  .kind = &mr_input_tensor.param,
                                  .flags = MR_P_OPTIONAL | MR_P_ALIKE},
                                 {.name = "y",
                                  .doc = "The values elsewhere, of the type of x.",
                                  .type = MR_PT_OWN,
                                  .kind = &mr_input_tensor.param,
                                  .flags = MR_P_OPTIONAL | MR_P_ALIKE},
                                 {0}};
const mr_function mr_function_where = {
    .abi = MR_ABI_VERSION,
    .name = "where",
    .doc = "Values of x where the condition is true, else of y; shapes broadcast. With the "
           "condition alone, the indices of true values: a vector for each axis, in a tuple if "
           "there are several.",
    .example = "range(3).map(x => where([x, 1] > 0, [x, 1], -1))",
    .params = table,
    .props = MR_FUNCTION_CONSTANTS,
    .type = type,
    .run = run,
};
