/* SPDX-License-Identifier: Apache-2.0 */
/* matmul(a, b): products of small matrices, as in numpy: the last two axes are the matrix, a
 * vector is a row on the left and a column on the right, and preceding axes broadcast. */
#include <string.h>

#include "pipeline/functions/library/elementwise.h"

/* The layout of the products of all rows: `count` products of m x k by k x n, contiguous. */
typedef struct products {
    size_t count, m, k, n, a_step, b_step; /* steps from one matrix to the next; 0: all the same */
} products;

#define PRODUCTS(S, T, ADD)                                                                        \
    static void products_##S(const void *left, const void *right, void *to, products p)            \
    {                                                                                              \
        const T *a = left, *b = right;                                                             \
        T *restrict z = to;                                                                        \
        for (size_t c = 0; c < p.count; c++, a += p.a_step, b += p.b_step)                         \
            for (size_t i = 0; i < p.m; i++, z += p.n) {                                           \
                for (size_t j = 0; j < p.n; j++)                                                   \
                    z[j] = 0;                                                                      \
                for (size_t l = 0; l < p.k; l++) {                                                 \
                    const T x = a[i * p.k + l];                                                    \
                    for (size_t j = 0; j < p.n; j++)                                               \
                        z[j] = ADD(T, z[j], x, b[l * p.n + j]);                                    \
                }                                                                                  \
            }                                                                                      \
    }
#define WRAP(T, z, x, y)  (T)((uint64_t)(z) + (uint64_t)(x) * (uint64_t)(y))
#define PLAIN(T, z, x, y) ((z) + (x) * (y))
#define INTEGERS(S, T, U) PRODUCTS(S, T, WRAP)
#define FLOATS(S, T)      PRODUCTS(S, T, PLAIN)
MR__EACH_INTEGER(INTEGERS)
MR__EACH_FLOAT(FLOATS)

typedef void (*multiply)(const void *a, const void *b, void *z, products p);
static const multiply loops[MR_N_DTYPES] = {MR__NUMBERS(products)};

/* The axes of a product. Dimensions may be -1. */
typedef struct fit {
    int rank;
    int64_t shape[MR_MAX_RANK];
    int batch_rank; /* axes before the matrix */
    int64_t m, k, n;
} fit;

static bool fit_matrices(int ra, const int64_t *a, int rb, const int64_t *b, fit *f)
{
    if (ra == 0 || rb == 0)
        return false;
    f->m = ra == 1 ? 1 : a[ra - 2];
    f->k = a[ra - 1];
    f->n = rb == 1 ? 1 : b[rb - 1];
    int64_t k = rb == 1 ? b[0] : b[rb - 2];
    if (k >= 0 && f->k >= 0 && k != f->k)
        return false;
    f->k = f->k < 0 ? k : f->k;
    int na = ra > 2 ? ra - 2 : 0, nb = rb > 2 ? rb - 2 : 0;
    f->rank = f->batch_rank = na > nb ? na : nb;
    for (int d = 0; d < f->batch_rank; d++) {
        int da = d - (f->batch_rank - na), db = d - (f->batch_rank - nb);
        int64_t x = da < 0 ? 1 : a[da], y = db < 0 ? 1 : b[db];
        if (x >= 0 && y >= 0 && x != 1 && y != 1 && x != y)
            return false;
        f->shape[d] = x == 1 ? y : y == 1 ? x : x == -1 ? y : x;
    }
    if (ra > 1)
        f->shape[f->rank++] = f->m;
    if (rb > 1)
        f->shape[f->rank++] = f->n;
    return true;
}

static mr_code type(mr_call *c, mr_status *st)
{
    const mr_leaf *a = c->in[0], *b = c->in[1];
    fit f;
    c->out = (mr_leaf){.dtype = a->dtype, .rank = -1};
    if (a->rank < 0 || b->rank < 0)
        return MR_OK;
    if (!fit_matrices(a->rank, a->shape, b->rank, b->shape, &f)) {
        char left[96], right[96];
        mr_shape_format(a->rank, a->shape, left, sizeof left);
        mr_shape_format(b->rank, b->shape, right, sizeof right);
        return mr_call_fail(c, st, -1, "matmul: shapes %s and %s are not compatible", left, right);
    }
    c->out.rank = (int8_t)f.rank;
    memcpy(c->out.shape, f.shape, (size_t)f.rank * sizeof *f.shape);
    return MR_OK;
}

/* a broadcast to the batch axes; the axes of its matrix are kept. */
static mr_code spread(const mr_array *a, bool constant, size_t rows, const fit *f, mr_array *out,
                      mr_status *st)
{
    int64_t shape[MR_MAX_RANK];
    int own = a->rank > 1 ? 2 : 1;
    memcpy(shape, f->shape, (size_t)f->batch_rank * sizeof *shape);
    memcpy(shape + f->batch_rank, a->shape + a->rank - own, (size_t)own * sizeof *shape);
    bool same = a->rank == f->batch_rank + own &&
                memcmp(a->shape, shape, (size_t)a->rank * sizeof *shape) == 0;
    if (same) {
        mr_array_slice(out, a, 0, a->rows);
        return MR_OK;
    }
    /* A vector must become a matrix before it can broadcast. */
    mr_array whole = *a;
    if (own == 1 && f->batch_rank) {
        whole.rank = 2;
        whole.shape[0] = 1;
        whole.shape[1] = a->shape[0];
        shape[f->batch_rank] = 1;
        shape[f->batch_rank + 1] = a->shape[0];
        own = 2;
    }
    return mr__broadcast_to(&whole, constant, constant ? 1 : rows, f->batch_rank + own, shape, out,
                            st);
}

static mr_code multiply_rows(const mr_rows *r, const mr_array *in, const fit *f, mr_array *out,
                             mr_status *st)
{
    mr_array a = {0}, b = {0};
    mr_code rc = spread(&in[0], r->constant[0], r->rows, f, &a, st);
    if (rc == MR_OK)
        rc = spread(&in[1], r->constant[1], r->rows, f, &b, st);
    if (rc == MR_OK)
        rc = mr_array_alloc(out, in[0].dtype, f->rank, f->shape, r->rows, st);
    if (rc == MR_OK) {
        products p = {.m = (size_t)f->m, .k = (size_t)f->k, .n = (size_t)f->n, .count = 1};
        size_t each = 1;
        for (int d = 0; d < f->batch_rank; d++)
            each *= (size_t)f->shape[d];
        p.a_step = p.m * p.k;
        p.b_step = p.k * p.n;
        bool lone = each == 1; /* one constant matrix then serves all rows of a call */
        size_t calls = lone || (!r->constant[0] && !r->constant[1]) ? 1 : r->rows;
        p.count = calls == 1 ? each * r->rows : each;
        if (lone && r->constant[0])
            p.a_step = 0;
        if (lone && r->constant[1])
            p.b_step = 0;
        for (size_t i = 0; i < calls; i++)
            loops[a.dtype](mr_array_at(&a, r->constant[0] ? 0 : i),
                           mr_array_at(&b, r->constant[1] ? 0 : i), mr_array_at(out, i), p);
    }
    mr_array_reset(&a);
    mr_array_reset(&b);
    return rc;
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *a = &r->in[0], *b = &r->in[1];
    fit f;
    if (!fit_matrices(a->rank, a->shape, b->rank, b->shape, &f)) {
        char left[96], right[96];
        mr_shape_format(a->rank, a->shape, left, sizeof left);
        mr_shape_format(b->rank, b->shape, right, sizeof right);
        mr__fail_all(r, "matmul: shapes %s and %s are not compatible", left, right);
        return mr__any_value(a->dtype, r->rows, out, st);
    }
    if (!mr__is_half(a->dtype))
        return multiply_rows(r, r->in, &f, out, st);
    mr_array wide[2] = {{0}, {0}}, z = {0};
    mr_code rc = mr__kernel_cast(a, MR_FLOAT32, &wide[0], st);
    if (rc == MR_OK)
        rc = mr__kernel_cast(b, MR_FLOAT32, &wide[1], st);
    if (rc == MR_OK)
        rc = multiply_rows(r, wide, &f, &z, st);
    if (rc == MR_OK)
        rc = mr__kernel_cast(&z, a->dtype, out, st);
    mr_array_reset(&wide[0]);
    mr_array_reset(&wide[1]);
    mr_array_reset(&z);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT_WITH(mr_input_numbers, "a", MR_P_ALIKE, "A matrix, a vector, or several of them."),
    MR_INPUT_WITH(mr_input_numbers, "b", MR_P_ALIKE, "The right factor, of the same type."),
    {0}};
const mr_function mr_function_matmul = {
    .abi = MR_ABI_VERSION,
    .name = "matmul",
    .doc = "The product of two matrices, or of a matrix and a vector; axes before those of the "
           "matrices broadcast.",
    .example = "range(3).map(x => matmul([[1, x], [0, 1]], [x, 1]))",
    .params = table,
    .props = MR_FUNCTION_CONSTANTS,
    .type = type,
    .run = run,
};
