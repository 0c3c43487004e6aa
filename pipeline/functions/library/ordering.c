/* SPDX-License-Identifier: Apache-2.0 */
/* sort and topk, along an axis: a merge sort for each type, which starts from short runs sorted
 * by insertion. It is stable, so equal values keep their order and topk returns the lower index
 * first. A NaN is greater than all other values, as in numpy. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/library/along_axis.h"
#include "pipeline/functions/library/elementwise.h"

enum { RUN = 12 };

/* Sorts v[0..n) by BEFORE(a, b), true if a must precede b; w has room for n values. */
#define SORTER(NAME, T, BEFORE)                                                                    \
    static void NAME(T *v, T *w, size_t n)                                                         \
    {                                                                                              \
        for (size_t begin = 0; begin < n; begin += RUN)                                            \
            for (size_t i = begin + 1; i < n && i < begin + RUN; i++) {                            \
                const T b = v[i];                                                                  \
                size_t k = i;                                                                      \
                for (; k > begin && BEFORE(b, v[k - 1]); k--)                                      \
                    v[k] = v[k - 1];                                                               \
                v[k] = b;                                                                          \
            }                                                                                      \
        T *from = v, *to = w;                                                                      \
        for (size_t width = RUN; width < n; width *= 2) {                                          \
            for (size_t begin = 0; begin < n; begin += 2 * width) {                                \
                size_t middle = n - begin < width ? n : begin + width;                             \
                size_t end = n - begin < 2 * width ? n : begin + 2 * width;                        \
                size_t i = begin, k = middle;                                                      \
                for (size_t at = begin; at < end; at++)                                            \
                    to[at] = i < middle && (k >= end || !BEFORE(from[k], from[i])) ? from[i++]     \
                                                                                   : from[k++];    \
            }                                                                                      \
            T *other = from;                                                                       \
            from = to;                                                                             \
            to = other;                                                                            \
        }                                                                                          \
        if (from != v)                                                                             \
            memcpy(v, from, n * sizeof *v);                                                        \
    }
#define LESS(a, b)        ((a) < (b))
#define LESS_FLOAT(a, b)  ((a) < (b) || ((b) != (b) && (a) == (a)))
#define LESS_STRING(a, b) is_less(&(a), &(b))

static bool is_less(const mr_bytes *a, const mr_bytes *b)
{
    size_t n = a->size < b->size ? a->size : b->size;
    int order = n ? memcmp(a->data, b->data, n) : 0;
    return order < 0 || (order == 0 && a->size < b->size);
}

/* Sorts each line of z; room is for two lines. */
#define SORT(S, T, BEFORE)                                                                         \
    SORTER(merge_##S, T, BEFORE)                                                                   \
    static void sort_##S(void *values, void *room, mr__lines l)                                    \
    {                                                                                              \
        T *line = room, *spare = line + l.n;                                                       \
        for (size_t o = 0; o < l.outer; o++)                                                       \
            for (size_t k = 0; k < l.inner; k++) {                                                 \
                T *z = (T *)values + o * l.n * l.inner + k;                                        \
                if (l.inner == 1) {                                                                \
                    merge_##S(z, spare, l.n);                                                      \
                    continue;                                                                      \
                }                                                                                  \
                for (size_t i = 0; i < l.n; i++)                                                   \
                    line[i] = z[i * l.inner];                                                      \
                merge_##S(line, spare, l.n);                                                       \
                for (size_t i = 0; i < l.n; i++)                                                   \
                    z[i * l.inner] = line[i];                                                      \
            }                                                                                      \
    }
/* The k greatest values of each line of n, in descending order, with their indices; room as for
 * sort. */
#define TOP(S, T, LESSER)                                                                          \
    typedef struct item_##S {                                                                      \
        T v;                                                                                       \
        size_t i;                                                                                  \
    } item_##S;                                                                                    \
    SORTER(rank_##S, item_##S, LESSER##_SWAPPED)                                                   \
    static void top_##S(const void *from, void *to, int64_t *index, void *room, mr__lines l,       \
                        size_t k)                                                                  \
    {                                                                                              \
        const T *x = from;                                                                         \
        T *z = to;                                                                                 \
        item_##S *line = room;                                                                     \
        for (size_t o = 0; o < l.outer; o++, x += l.n, z += k, index += k) {                       \
            for (size_t i = 0; i < l.n; i++)                                                       \
                line[i] = (item_##S){x[i], i};                                                     \
            rank_##S(line, line + l.n, l.n);                                                       \
            for (size_t i = 0; i < k; i++) {                                                       \
                z[i] = line[i].v;                                                                  \
                index[i] = (int64_t)line[i].i;                                                     \
            }                                                                                      \
        }                                                                                          \
    }
#define LESS_SWAPPED(a, b)       LESS((b).v, (a).v)
#define LESS_FLOAT_SWAPPED(a, b) LESS_FLOAT((b).v, (a).v)
#define INTEGERS(S, T, U)                                                                          \
    SORT(S, T, LESS)                                                                               \
    TOP(S, T, LESS)
#define FLOATS(S, T)                                                                               \
    SORT(S, T, LESS_FLOAT)                                                                         \
    TOP(S, T, LESS_FLOAT)
MR__EACH_INTEGER(INTEGERS)
MR__EACH_FLOAT(FLOATS)
SORT(strings, mr_bytes, LESS_STRING)

typedef void (*sorter)(void *values, void *room, mr__lines l);
typedef void (*ranker)(const void *x, void *z, int64_t *index, void *room, mr__lines l, size_t k);
static const sorter sorters[MR_N_DTYPES] = {
    MR__NUMBERS(sort), [MR_BOOL] = sort_u8, [MR_STRING] = sort_strings};
static const ranker rankers[MR_N_DTYPES] = {MR__NUMBERS(top)};

/* ---- sort ---- */

static mr_code type_sort(mr_call *c, mr_status *st)
{
    int at;
    c->out = *c->in[0];
    return mr__axis_type(c, ((const mr__axis *)c->params)->axis, c->out.rank, &at, st);
}

/* A writable copy of x, of a type that can be sorted. */
static mr_code copy_values(const mr_array *x, mr_array *out, mr_status *st)
{
    if (mr__is_half(x->dtype))
        return mr__kernel_cast(x, MR_FLOAT32, out, st);
    MR_TRY(mr_array_alloc(out, x->dtype, x->rank, x->shape, x->rows, st));
    size_t bytes = x->rows * mr_array_row_bytes(x);
    if (bytes)
        memcpy(out->data, x->data, bytes);
    return x->dtype == MR_STRING && x->owner ? mr_buffer_hold_all(out->owner, x->owner, st) : MR_OK;
}

static mr_code run_sort(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    int at;
    if (!mr__axis_run(r, ((const mr__axis *)r->params)->axis, x->rank, &at))
        return mr__any_value(x->dtype, r->rows, out, st);
    mr_array z = {0};
    mr_buffer *room = NULL;
    mr__lines l = mr__lines_of(x, at);
    mr_code rc = copy_values(x, &z, st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&room, 2 * l.n * mr_dtype_size(z.dtype), st);
    if (rc == MR_OK)
        sorters[z.dtype](z.data, mr_buffer_data(room), l);
    if (rc == MR_OK)
        rc = mr__kernel_cast(&z, x->dtype, out, st);
    mr_buffer_unref(room);
    mr_array_reset(&z);
    return rc;
}

/* ---- topk ---- */

static mr_code type_topk(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    mr_leaf values = *x;
    int64_t k = c->known[1] ? mr__int_at(c->known[1], 0) : -1;
    if (x->rank == 0)
        return mr_call_fail(c, st, 0, "topk of a scalar; it has no axis");
    if (c->known[1] &&
        (k < 0 || (x->rank > 0 && x->shape[x->rank - 1] >= 0 && k > x->shape[x->rank - 1])))
        return mr_call_fail(c, st, 1, "topk: k is %" PRId64 ", out of range", k);
    if (x->rank > 0)
        values.shape[x->rank - 1] = k;
    mr_leaf index = values;
    index.dtype = MR_INT64;
    mr_spec *parts[2] = {mr_spec_of_leaf(&values), mr_spec_of_leaf(&index)};
    c->spec = mr_spec_tuple(parts, 2);
    return c->spec ? MR_OK : mr_fail_memory(st, sizeof values, "an expression");
}

static mr_code rank_lines(const mr_array *x, size_t k, mr_array *out, mr_status *st)
{
    int64_t shape[MR_MAX_RANK];
    mr__lines l = mr__lines_of(x, x->rank - 1);
    mr_buffer *room = NULL;
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    shape[x->rank - 1] = (int64_t)k;
    mr_code rc = mr_array_alloc(&out[0], x->dtype, x->rank, shape, x->rows, st);
    if (rc == MR_OK)
        rc = mr_array_alloc(&out[1], MR_INT64, x->rank, shape, x->rows, st);
    if (rc == MR_OK)
        rc = mr_buffer_alloc(&room, 2 * l.n * sizeof(item_i64), st);
    if (rc == MR_OK)
        rankers[x->dtype](x->data, out[0].data, out[1].data, mr_buffer_data(room), l, k);
    mr_buffer_unref(room);
    return rc;
}

static mr_code run_topk(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    int64_t k = mr__int_at(&r->in[1], 0), n = x->rank ? x->shape[x->rank - 1] : 0;
    mr_array wide = {0}, z = {0};
    mr_code rc = MR_OK;
    if (x->rank == 0 || k < 0 || k > n) {
        mr__fail_all(r,
                     x->rank ? "topk: k is %" PRId64 ", out of range for %" PRId64 " values"
                             : "topk of a scalar; it has no axis",
                     k, n);
        rc = mr__any_value(x->dtype, r->rows, &out[0], st);
        if (rc == MR_OK)
            rc = mr__any_value(MR_INT64, r->rows, &out[1], st);
    } else if (mr__is_half(x->dtype)) {
        rc = mr__kernel_cast(x, MR_FLOAT32, &wide, st);
        if (rc == MR_OK)
            rc = rank_lines(&wide, (size_t)k, out, st);
        if (rc == MR_OK)
            rc = mr__kernel_cast(&out[0], x->dtype, &z, st);
        mr_array_reset(&wide);
        mr_array_reset(&out[0]);
        out[0] = z;
    } else
        rc = rank_lines(x, (size_t)k, out, st);
    if (rc != MR_OK) {
        mr_array_reset(&out[0]);
        mr_array_reset(&out[1]);
    }
    return rc;
}

static const mr_param sorted[] = {
    MR_INPUT(mr_input_tensor, "x", "A tensor; strings are ordered bytewise."),
    MR_PARAM(mr__axis, axis, .def.i = -1, .doc = "The axis to sort along; -1 is the last."),
    {0}};
static const mr_param ranked[] = {MR_INPUT(mr_input_numbers, "x", "Numbers."),
                                  MR_INPUT_WITH(mr_input_integer, "k", MR_P_DECIDES_SHAPE,
                                                "How many; at most the length of the last axis."),
                                  {0}};

const mr_function mr_function_sort = {
    .abi = MR_ABI_VERSION,
    .name = "sort",
    .doc = "The values in ascending order, NaN last.",
    .example = "range(3).map(x => sort([x, 1, 0]))",
    .params = sorted,
    .params_size = sizeof(mr__axis),
    .type = type_sort,
    .run = run_sort,
};
const mr_function mr_function_topk = {
    .abi = MR_ABI_VERSION,
    .name = "topk",
    .doc = "The k greatest values of the last axis, greatest first, and their indices (int64): a "
           "tuple. Among equals the lower index comes first.",
    .example = "range(3).map(x => topk([x, 1, 2], 2))",
    .params = ranked,
    .type = type_topk,
    .run = run_topk,
};
