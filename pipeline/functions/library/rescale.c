/* SPDX-License-Identifier: Apache-2.0 */
/* rescaling and normalization: the formulas of the layers of the same names, so that either the
 * pipeline or the model may apply them. */
#include <math.h>

#include "pipeline/functions/compiler/deferred_file.h"
#include "pipeline/functions/library/learned_lists.h"

struct rescaling {
    double scale, offset;
};
struct normalization {
    mr_floats mean, variance;
    char *adapted;
};

/* The means to subtract, and the variances, by whose roots to divide. */
struct moments {
    mr__deferred_file late; /* with `adapted`: guards the lists, which come from the file */
    mr_floats mean, variance;
};

/* Floats of x's values, float64 of float64, in *out, and room for the result. */
static mr_code floats_of(const mr_array *x, mr_array *values, mr_array *out, mr_status *st)
{
    mr_dtype t = x->dtype == MR_FLOAT64 ? MR_FLOAT64 : MR_FLOAT32;
    MR_TRY(mr__kernel_cast(x, t, values, st));
    mr_code rc = mr_array_alloc(out, t, x->rank, x->shape, x->rows, st);
    if (rc != MR_OK)
        mr_array_reset(values);
    return rc;
}

static mr_code type_floats(mr_call *c, mr_status *st)
{
    (void)st;
    c->out = *c->in[0];
    if (c->out.dtype != MR_FLOAT64)
        c->out.dtype = MR_FLOAT32;
    return MR_OK;
}

#define RESCALE(NAME, T)                                                                           \
    static void NAME(const T *x, size_t n, const struct rescaling *p, T *z)                        \
    {                                                                                              \
        T scale = (T)p->scale, offset = (T)p->offset;                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            z[i] = x[i] * scale + offset;                                                          \
    }
RESCALE(rescale_f32, float)
RESCALE(rescale_f64, double)

static mr_code run_rescaling(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    mr_array v = {0};
    MR_TRY(floats_of(x, &v, out, st));
    size_t n = x->rows * mr_array_row_values(x);
    if (v.dtype == MR_FLOAT64)
        rescale_f64(v.data, n, r->params, out->data);
    else
        rescale_f32(v.data, n, r->params, out->data);
    mr_array_reset(&v);
    return MR_OK;
}

/* ---- normalization ---- */

static mr_code type_normalization(mr_call *c, mr_status *st)
{
    const struct normalization *p = c->params;
    const mr_leaf *x = c->in[0];
    const mr_floats *lists[] = {&p->mean, &p->variance};
    struct moments *m = c->plan = mr_calloc(1, sizeof *m);
    if (!m)
        return mr_fail_memory(st, sizeof *m, "moments");
    mr__deferred_file_init(&m->late);
    if (p->adapted ? p->mean.n || p->variance.n : !p->mean.n || !p->variance.n)
        return mr_call_fail(c, st, -1, "normalization expects mean and variance, or adapted alone");
    if (p->adapted)
        return *p->adapted
                   ? type_floats(c, st)
                   : mr_call_fail(
                         c, st, -1,
                         "normalization: adapted must name a file or directory, but is empty");
    int64_t width = x->rank < 0 ? -1 : x->rank == 0 ? 1 : x->shape[x->rank - 1];
    for (size_t i = 0; i < 2; i++)
        if (width >= 0 && lists[i]->n != 1 && (int64_t)lists[i]->n != width)
            return mr_call_fail(c, st, -1,
                                "normalization: %s has %zu values; expected one, or one for each "
                                "position along the last axis",
                                i ? "variance" : "mean", lists[i]->n);
    for (size_t i = 0; i < p->variance.n; i++)
        if (!(p->variance.v[i] >= 0))
            return mr_call_fail(c, st, -1, "normalization: a variance is %g; it must be at least 0",
                                p->variance.v[i]);
    return type_floats(c, st);
}

static double along(const mr_floats *list, size_t i)
{
    return list->v[list->n == 1 ? 0 : i];
}

#define NORMALIZE(NAME, T, SQRT)                                                                   \
    static void NAME(const T *x, size_t n, size_t width, const mr_floats *const m[2], T *z)        \
    {                                                                                              \
        for (size_t k = 0; k < width; k++) {                                                       \
            T mean = (T)along(m[0], k);                                                            \
            T deviation = SQRT((T)along(m[1], k) + MR_NORMALIZATION_EPSILON);                      \
            for (size_t i = k; i < n; i += width)                                                  \
                z[i] = (x[i] - mean) / deviation;                                                  \
        }                                                                                          \
    }
NORMALIZE(normalize_f32, float, sqrtf)
NORMALIZE(normalize_f64, double, sqrt)

static void free_moments(void *plan)
{
    struct moments *m = plan;
    mr__deferred_file_reset(&m->late);
    mr_free(m->mean.v);
    mr_free(m->variance.v);
    mr_free(m);
}

static mr_code open_moments(const mr_rows *r, mr_status *st)
{
    struct moments *m = (struct moments *)(uintptr_t)r->plan;
    const struct normalization *p = r->params;
    mr_buffer *bytes = NULL;
    char *path = NULL;
    size_t size;
    mr_code rc = mr__deferred_file_read(r, &m->late, p->adapted, "normalization.json",
                                        MR_LEARNED_LIST_MOST, &path, &bytes, &size, st);
    if (rc == MR_OK) {
        rc = mr_learned_moments(mr_buffer_data(bytes), size, &m->mean, &m->variance, st);
        if (rc != MR_OK)
            mr_status_prefix(st, "normalization: %s", path);
    }
    mr_buffer_unref(bytes);
    mr_free(path);
    return rc;
}

static mr_code run_normalization(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct normalization *p = r->params;
    struct moments *m = (struct moments *)(uintptr_t)r->plan;
    const mr_floats *const lists[] = {p->adapted ? &m->mean : &p->mean,
                                      p->adapted ? &m->variance : &p->variance};
    const mr_array *x = &r->in[0];
    mr_array v = {0};
    if (p->adapted)
        MR_TRY(mr__deferred_file_get(r, &m->late, open_moments, st));
    MR_TRY(floats_of(x, &v, out, st));
    size_t n = x->rows * mr_array_row_values(x);
    size_t width = x->rank ? (size_t)x->shape[x->rank - 1] : 1;
    bool fits =
        (lists[0]->n == 1 || lists[0]->n == width) && (lists[1]->n == 1 || lists[1]->n == width);
    if (!fits)
        mr__fail_all(r, "normalization: %zu means and %zu variances do not match an axis of %zu",
                     lists[0]->n, lists[1]->n, width);
    else if (v.dtype == MR_FLOAT64)
        normalize_f64(v.data, n, width, lists, out->data);
    else
        normalize_f32(v.data, n, width, lists, out->data);
    mr_array_reset(&v);
    return MR_OK;
}

/* ---- descriptors ---- */

static const mr_param rescaling_table[] = {
    MR_INPUT(mr_input_numbers, "x", "Numbers."),
    MR_ARG(struct rescaling, scale, .doc = "The factor."),
    MR_PARAM(struct rescaling, offset, .doc = "Added after scaling."),
    {0}};
static const mr_param normalization_table[] = {
    MR_INPUT(mr_input_numbers, "x", "Numbers."),
    MR_PARAM(struct normalization, mean, .doc = "The means along the last axis, or one for all."),
    MR_PARAM(struct normalization, variance, .doc = "The variances, likewise."),
    MR_PARAM(struct normalization, adapted,
             .doc = "Instead of both: the directory that adapt wrote, or its "
                    "normalization.json."),
    {0}};

const mr_function mr_function_rescaling = {
    .abi = MR_ABI_VERSION,
    .name = "rescaling",
    .doc = "x * scale + offset: float64 for float64, else float32.",
    .example = "range(3).map(x => rescaling(x, 0.5, offset=-1.0))",
    .params = rescaling_table,
    .params_size = sizeof(struct rescaling),
    .props = MR_FUNCTION_ELEMENTWISE,
    .type = type_floats,
    .run = run_rescaling,
};
const mr_function mr_function_normalization = {
    .abi = MR_ABI_VERSION,
    .name = "normalization",
    .doc = "(x - mean) / sqrt(variance) for each position along the last axis, as the layer: "
           "float64 for float64, else float32.",
    .example = "range(3).map(x => normalization([x, 4], mean=[1, 2], variance=[4, 1]))",
    .params = normalization_table,
    .params_size = sizeof(struct normalization),
    .props = MR_FUNCTION_READS,
    .type = type_normalization,
    .free_plan = free_moments,
    .run = run_normalization,
};
