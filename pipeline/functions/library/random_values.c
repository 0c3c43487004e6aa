/* SPDX-License-Identifier: Apache-2.0 */
/* random_uniform, random_normal, random_int, random_choice, shuffle_rows: the values depend only
 * on a seed and the origin of the element (draws.h), not on threads, blocks, batches and
 * workers. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "pipeline/functions/compiler/draws.h"
#include "pipeline/functions/compiler/typed_tree.h"

/* The shape in input i; a scalar if the input is missing. false: the rows have failed. */
static bool shape_of(const mr_rows *r, size_t i, int *rank, int64_t *shape)
{
    *rank = 0;
    return r->n <= i || mr__rows_shape(r, i, false, rank, shape);
}

static mr_code type_shape(mr_call *c, size_t i, mr_dtype t, mr_status *st)
{
    c->out = (mr_leaf){.dtype = t};
    if (c->n > i)
        MR_TRY(mr__call_shape(c, i, false, &c->out, st));
    c->out.dtype = t;
    return MR_OK;
}

/* ---- random_uniform ---- */

struct uniform {
    double low, high;
    mr_dtype dtype;
    int64_t seed;
};

static mr_code type_uniform(mr_call *c, mr_status *st)
{
    const struct uniform *p = c->params;
    if (p->dtype != MR_FLOAT32 && p->dtype != MR_FLOAT64)
        return mr_call_fail(c, st, -1, "random_uniform makes float32 and float64; cast them to %s",
                            mr_dtype_name(p->dtype));
    if (!(p->low < p->high) || !isfinite(p->high - p->low))
        return mr_call_fail(c, st, -1, "random_uniform: low must be less than high");
    return type_shape(c, 0, p->dtype, st);
}

static mr_code run_uniform(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct uniform *p = r->params;
    int rank;
    int64_t shape[MR_MAX_RANK];
    if (!shape_of(r, 0, &rank, shape))
        return mr__any_value(p->dtype, r->rows, out, st);
    MR_TRY(mr_array_alloc(out, p->dtype, rank, shape, r->rows, st));
    size_t n = mr_array_row_values(out);
    float highest = nextafterf((float)p->high, (float)p->low);
    for (size_t row = 0; row < r->rows; row++) {
        float *f = mr_array_at(out, row);
        double *g = mr_array_at(out, row);
        mr__draws d = mr__draws_of(r, row, p->seed);
        for (size_t i = 0; i < n; i++) {
            double v = p->low + mr__draw_uniform(&d) * (p->high - p->low);
            /* Rounding must not make it `high`. */
            if (p->dtype == MR_FLOAT64)
                g[i] = v < p->high ? v : nextafter(p->high, p->low);
            else
                f[i] = (float)v < (float)p->high ? (float)v : highest;
        }
    }
    return MR_OK;
}

/* ---- random_normal ---- */

struct normal {
    double mean, stddev;
    int64_t seed;
};

static mr_code type_normal(mr_call *c, mr_status *st)
{
    return type_shape(c, 0, MR_FLOAT32, st);
}

/* Two at a time (Box-Muller). */
static void put_normal(mr__draws *d, const struct normal *p, float *z, size_t n)
{
    const double turn = 6.283185307179586476925;
    for (size_t i = 0; i < n; i += 2) {
        double radius = sqrt(-2 * log(1 - mr__draw_uniform(d))), angle = turn * mr__draw_uniform(d);
        z[i] = (float)(p->mean + p->stddev * radius * cos(angle));
        if (i + 1 < n)
            z[i + 1] = (float)(p->mean + p->stddev * radius * sin(angle));
    }
}

static mr_code run_normal(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct normal *p = r->params;
    int rank;
    int64_t shape[MR_MAX_RANK];
    if (!shape_of(r, 0, &rank, shape))
        return mr__any_value(MR_FLOAT32, r->rows, out, st);
    MR_TRY(mr_array_alloc(out, MR_FLOAT32, rank, shape, r->rows, st));
    size_t n = mr_array_row_values(out);
    for (size_t row = 0; row < r->rows && n; row++) {
        mr__draws d = mr__draws_of(r, row, p->seed);
        put_normal(&d, p, mr_array_at(out, row), n);
    }
    return MR_OK;
}

/* ---- random_int ---- */

struct seed {
    int64_t seed;
};

static mr_code type_int(mr_call *c, mr_status *st)
{
    if (c->known[0] && c->known[1] && mr__int_at(c->known[0], 0) >= mr__int_at(c->known[1], 0))
        return mr_call_fail(c, st, 1, "random_int: low must be less than high");
    return type_shape(c, 2, MR_INT64, st);
}

static mr_code run_int(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct seed *p = r->params;
    int rank;
    int64_t shape[MR_MAX_RANK];
    if (!shape_of(r, 2, &rank, shape))
        return mr__any_value(MR_INT64, r->rows, out, st);
    MR_TRY(mr_array_alloc(out, MR_INT64, rank, shape, r->rows, st));
    size_t n = mr_array_row_values(out);
    for (size_t row = 0; row < r->rows; row++) {
        int64_t *z = mr_array_at(out, row);
        int64_t low = mr__int_at(&r->in[0], r->constant[0] ? 0 : row);
        int64_t high = mr__int_at(&r->in[1], r->constant[1] ? 0 : row);
        bool good = low < high;
        if (!good)
            mr_row_fail(r, row, MR_INVALID_ARGUMENT,
                        "random_int: low, %" PRId64 ", is not less than high, %" PRId64, low, high);
        mr__draws d = mr__draws_of(r, row, p->seed);
        for (size_t i = 0; i < n; i++)
            z[i] =
                good ? (int64_t)((uint64_t)low + mr__draw_below(&d, (uint64_t)high - (uint64_t)low))
                     : 0;
    }
    return MR_OK;
}

/* ---- random_choice, shuffle_rows ---- */

static mr_code type_choice(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    int64_t n = c->n > 1 && c->known[1] ? mr__int_at(c->known[1], 0) : -1;
    if (x->rank == 0)
        return mr_call_fail(c, st, 0, "random_choice from a scalar; it has no axis 0");
    if (c->n > 1 && c->known[1] && n < 0)
        return mr_call_fail(c, st, 1, "random_choice: size is negative");
    if (x->rank > 0 && x->shape[0] == 0 && n != 0)
        return mr_call_fail(c, st, 0, "random_choice from no values");
    c->out = *x;
    if (x->rank > 0 && c->n > 1)
        c->out.shape[0] = n;
    else if (x->rank > 0) {
        c->out.rank--;
        memmove(c->out.shape, x->shape + 1, (size_t)c->out.rank * sizeof *x->shape);
    }
    return MR_OK;
}

static mr_code run_choice(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct seed *p = r->params;
    const mr_array *x = &r->in[0];
    int64_t shape[MR_MAX_RANK], n = r->n > 1 ? mr__int_at(&r->in[1], 0) : 1;
    bool one = r->n == 1;
    if (x->rank == 0 || n < 0 || (x->shape[0] == 0 && n > 0)) {
        mr__fail_all(r, x->rank == 0 ? "random_choice from a scalar; it has no axis 0"
                        : n < 0      ? "random_choice: size is negative"
                                     : "random_choice from no values");
        return mr__any_value(x->dtype, r->rows, out, st);
    }
    memcpy(shape, x->shape, (size_t)x->rank * sizeof *shape);
    shape[0] = n;
    MR_TRY(mr_array_alloc(out, x->dtype, x->rank - one, shape + one, r->rows, st));
    size_t bytes = mr_array_row_bytes(out) / (size_t)(n ? n : 1);
    for (size_t row = 0; row < r->rows && bytes && n; row++) {
        char *z = mr_array_at(out, row);
        mr__draws d = mr__draws_of(r, row, p->seed);
        for (int64_t i = 0; i < n; i++, z += bytes) {
            size_t at = (size_t)mr__draw_below(&d, (uint64_t)x->shape[0]);
            memcpy(z, (const char *)mr__row_at(r, 0, row) + at * bytes, bytes);
        }
    }
    return mr__hold_strings(out, r, 1, st);
}

static mr_code type_shuffle(mr_call *c, mr_status *st)
{
    c->out = *c->in[0];
    if (c->out.rank == 0)
        return mr_call_fail(c, st, 0, "shuffle_rows of a scalar; it has no axis 0");
    return MR_OK;
}

/* The indices of n rows in random order (Fisher-Yates). */
static void permute(mr__draws *d, uint32_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t k = (size_t)mr__draw_below(d, i + 1);
        order[i] = order[k];
        order[k] = (uint32_t)i;
    }
}

static mr_code run_shuffle(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct seed *p = r->params;
    const mr_array *x = &r->in[0];
    if (x->rank == 0 || x->shape[0] > UINT32_MAX) {
        mr__fail_all(r, x->rank ? "shuffle_rows of over 4294967295 rows"
                                : "shuffle_rows of a scalar; it has no axis 0");
        return mr__any_value(x->dtype, r->rows, out, st);
    }
    size_t n = (size_t)x->shape[0];
    mr_buffer *room = NULL;
    MR_TRY(mr_buffer_alloc(&room, n * sizeof(uint32_t), st));
    mr_code rc = mr_array_alloc(out, x->dtype, x->rank, x->shape, r->rows, st);
    uint32_t *order = mr_buffer_data(room);
    size_t bytes = rc == MR_OK && n ? mr_array_row_bytes(out) / n : 0;
    for (size_t row = 0; row < r->rows && bytes; row++) {
        const char *from = mr__row_at(r, 0, row);
        char *z = mr_array_at(out, row);
        mr__draws d = mr__draws_of(r, row, p->seed);
        permute(&d, order, n);
        for (size_t i = 0; i < n; i++)
            memcpy(z + i * bytes, from + order[i] * bytes, bytes);
    }
    mr_buffer_unref(room);
    return rc == MR_OK ? mr__hold_strings(out, r, 1, st) : rc;
}

/* ---- descriptors ---- */

#define SEED(T)                                                                                    \
    MR_PARAM(T, seed,                                                                              \
             .doc = "Different seeds draw different values; calls with the same seed in "          \
                    "functions of one graph draw the same.")
#define SHAPE                                                                                      \
    {                                                                                              \
        .name = "shape", .doc = "The axes; default: a single value.", .type = MR_PT_OWN,           \
        .kind = &mr_input_shape.param, .flags = MR_P_OPTIONAL | MR_P_DECIDES_SHAPE                 \
    }
static const mr_param uniform[] = {
    SHAPE,
    MR_PARAM(struct uniform, low, .def.f = 0, .doc = "The lower bound, inclusive."),
    MR_PARAM(struct uniform, high, .def.f = 1, .doc = "The upper bound, exclusive."),
    {.name = "dtype",
     .doc = "float32 or float64.",
     .type = MR_PT_OWN,
     .kind = &mr_option_dtype,
     .flags = MR_P_OPTIONAL,
     .def.s = "float32",
     .at = offsetof(struct uniform, dtype)},
    SEED(struct uniform),
    {0}};
static const mr_param normal[] = {
    SHAPE,
    MR_PARAM(struct normal, mean, .def.f = 0, .doc = "Their mean."),
    MR_PARAM(struct normal, stddev, .def.f = 1, .doc = "Their standard deviation."),
    SEED(struct normal),
    {0}};
static const mr_param integers[] = {
    MR_INPUT(mr_input_integer, "low", "The lower bound, inclusive."),
    MR_INPUT(mr_input_integer, "high", "The upper bound, exclusive."),
    SHAPE,
    SEED(struct seed),
    {0}};
static const mr_param choice[] = {
    MR_INPUT(mr_input_tensor, "x", "A tensor of one axis or more."),
    {.name = "size",
     .doc = "How many rows, as a new axis 0; default: one row without that axis.",
     .type = MR_PT_OWN,
     .kind = &mr_input_integer.param,
     .flags = MR_P_OPTIONAL | MR_P_DECIDES_SHAPE},
    SEED(struct seed),
    {0}};
static const mr_param rows[] = {
    MR_INPUT(mr_input_tensor, "x", "A tensor of one axis or more."), SEED(struct seed), {0}};

#define RANDOM(ident, table, T, how, says, shown)                                                  \
    const mr_function mr_function_##ident = {                                                      \
        .abi = MR_ABI_VERSION,                                                                     \
        .name = #ident,                                                                            \
        .doc = says,                                                                               \
        .example = shown,                                                                          \
        .params = table,                                                                           \
        .params_size = sizeof(T),                                                                  \
        .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_DRAWS,                                        \
        .type = type_##how,                                                                        \
        .run = run_##how,                                                                          \
    }
RANDOM(random_uniform, uniform, struct uniform, uniform,
       "Random numbers from low to below high, uniformly distributed. They are determined by the "
       "seed, the job's seed and the element's origin.",
       "range(3).map(x => random_uniform([2], seed=1))");
RANDOM(random_normal, normal, struct normal, normal,
       "Random numbers of the normal distribution, float32. They are determined by the seed, the "
       "job's seed and the element's origin.",
       "range(3).map(x => random_normal(stddev=0.5, seed=1))");
RANDOM(random_int, integers, struct seed, int,
       "Random integers from low to below high, uniformly distributed. They are determined by the "
       "seed, the job's seed and the element's origin.",
       "range(3).map(x => random_int(0, 10, seed=1))");
RANDOM(random_choice, choice, struct seed, choice,
       "A random row of x, or several, drawn with replacement. They are determined by the seed, "
       "the job's seed and the element's origin.",
       "range(3).map(x => random_choice([4, 5, 6], seed=1))");
RANDOM(shuffle_rows, rows, struct seed, shuffle,
       "The rows of x in a random order, determined by the seed, the job's seed and the element's "
       "origin.",
       "range(3).map(x => shuffle_rows([4, 5, 6], seed=1))");
