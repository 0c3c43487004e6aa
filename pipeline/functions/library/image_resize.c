/* SPDX-License-Identifier: Apache-2.0 */
/* resize(x, [h, w], method, antialias): scales images, as tf.image.resize.
 *
 * Every method but nearest is a weighted sum: pixel i of the result along an axis is made of the
 * pixels start, start + 1, ... of the source with weights that are computed once for the axis.
 * `scale` is source pixels for one of the result.
 *
 *   bilinear             the two pixels around (i + 0.5) * scale - 0.5
 *   ... with antialias   a triangle around (i + 0.5) * scale, `scale` wide to each side where the
 *                        image becomes smaller; weights add up to 1
 *   area                 the part of each pixel that lies in [i * scale, (i + 1) * scale)
 *   nearest              the pixel that (i + 0.5) * scale lies in
 *
 * Sums run over the rows first and then along them, in float32. */
#include <math.h>
#include <string.h>

#include "pipeline/functions/library/images.h"
#include "pipeline/functions/compiler/typed_tree.h"

struct params {
    char *method;
    bool antialias;
};
static const char *const methods[] = {"bilinear", "nearest", "area", NULL};

static bool is(const struct params *p, const char *method)
{
    return strcmp(p->method, method) == 0;
}

static mr_code type(mr_call *c, mr_status *st)
{
    const struct params *p = c->params;
    MR_TRY(mr__images_type(c, st));
    MR_TRY(mr__images_call_size(c, 1, &c->out, st));
    if (!is(p, "nearest"))
        c->out.dtype = MR_FLOAT32;
    c->averages = is(p, "bilinear") && p->antialias;
    return MR_OK;
}

/* ---- weights of an axis ---- */

typedef struct axis {
    int64_t n, most; /* pixels of the result; maximum number of weights per pixel */
    int64_t *start, *count;
    float *weights; /* `most` for each pixel */
} axis;

static void reset_axis(axis *a)
{
    mr_free(a->start);
    mr_free(a->count);
    mr_free(a->weights);
}

static int64_t within(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static void put_bilinear(axis *a, int64_t i, float scale, int64_t from)
{
    float at = ((float)i + 0.5f) * scale - 0.5f, low = floorf(at);
    int64_t lower = within((int64_t)low, from), upper = within((int64_t)ceilf(at), from);
    float *w = a->weights + i * a->most;
    a->start[i] = lower;
    a->count[i] = upper - lower + 1;
    w[0] = 1;
    if (upper > lower) {
        w[1] = at - low;
        w[0] = 1 - w[1];
    }
}

static void put_triangle(axis *a, int64_t i, float scale, int64_t from)
{
    float wide = scale > 1 ? scale : 1, at = ((float)i + 0.5f) * scale, sum = 0;
    int64_t first = within((int64_t)ceilf(at - wide - 0.5f), from);
    int64_t last = within((int64_t)floorf(at + wide - 0.5f), from);
    float *w = a->weights + i * a->most;
    a->start[i] = first;
    a->count[i] = last - first + 1;
    for (int64_t k = first; k <= last; k++) {
        float distance = fabsf((float)k + 0.5f - at) * (1 / wide);
        w[k - first] = distance < 1 ? 1 - distance : 0;
        sum += w[k - first];
    }
    for (int64_t k = first; k <= last && sum > 0; k++)
        w[k - first] /= sum;
}

static void put_area(axis *a, int64_t i, float scale, int64_t from)
{
    float begin = (float)i * scale, end = (float)(i + 1) * scale;
    int64_t first = within((int64_t)floorf(begin), from), last = (int64_t)ceilf(end) - 1;
    float *w = a->weights + i * a->most;
    a->start[i] = first;
    a->count[i] = within(last, from) - first + 1;
    memset(w, 0, (size_t)a->count[i] * sizeof *w);
    for (int64_t k = first; k <= last || k == first; k++) {
        float low = (float)k < begin ? begin : (float)k;
        float high = (float)(k + 1) > end ? end : (float)(k + 1);
        w[within(k, from) - first] += (high - low) / scale;
    }
}

static mr_code make_axis(const struct params *p, int64_t from, int64_t to, axis *a, mr_status *st)
{
    float scale = (float)from / (float)to;
    size_t n = (size_t)to;
    a->n = to;
    a->most = scale > 1 ? 2 * (int64_t)ceilf(scale) + 3 : 3;
    a->start = mr_calloc(n, sizeof *a->start);
    a->count = mr_calloc(n, sizeof *a->count);
    a->weights = mr_calloc(n, (size_t)a->most * sizeof *a->weights);
    if (!a->start || !a->count || !a->weights)
        return mr_fail_memory(st, n * (size_t)a->most * sizeof *a->weights, "weights of pixels");
    for (int64_t i = 0; i < to; i++)
        if (is(p, "area"))
            put_area(a, i, scale, from);
        else if (p->antialias)
            put_triangle(a, i, scale, from);
        else
            put_bilinear(a, i, scale, from);
    return MR_OK;
}

/* ---- sums ---- */

/* sum[i] = or += weight * row[i]. */
#define ADD_ROWS(NAME, T)                                                                          \
    static void NAME(const T *row, size_t n, float weight, bool first, float *restrict sum)        \
    {                                                                                              \
        if (first)                                                                                 \
            for (size_t i = 0; i < n; i++)                                                         \
                sum[i] = weight * (float)row[i];                                                   \
        else                                                                                       \
            for (size_t i = 0; i < n; i++)                                                         \
                sum[i] += weight * (float)row[i];                                                  \
    }
ADD_ROWS(add_bytes, uint8_t)
ADD_ROWS(add_floats, float)

/* One row of the result from one row of sums: `channels` values per pixel. */
static inline void narrow(const axis *a, const float *sum, size_t channels, float *to)
{
    for (int64_t x = 0; x < a->n; x++, to += channels) {
        const float *w = a->weights + x * a->most, *from = sum + (size_t)a->start[x] * channels;
        for (size_t c = 0; c < channels; c++)
            to[c] = w[0] * from[c];
        for (int64_t k = 1; k < a->count[x]; k++)
            for (size_t c = 0; c < channels; c++)
                to[c] += w[k] * from[(size_t)k * channels + c];
    }
}

static void narrow_row(const axis *a, const float *sum, size_t channels, float *to)
{
    if (channels == 3)
        narrow(a, sum, 3, to);
    else if (channels == 1)
        narrow(a, sum, 1, to);
    else
        narrow(a, sum, channels, to);
}

static void sum_image(const axis *down, const axis *across, const mr__images *x, bool bytes,
                      const char *from, float *sum, float *to)
{
    size_t n = (size_t)(x->width * x->channels), row = n * (bytes ? 1 : sizeof(float));
    for (int64_t y = 0; y < down->n; y++, to += across->n * x->channels) {
        const float *w = down->weights + y * down->most;
        for (int64_t k = 0; k < down->count[y]; k++) {
            const char *at = from + (size_t)(down->start[y] + k) * row;
            if (bytes)
                add_bytes((const uint8_t *)at, n, w[k], k == 0, sum);
            else
                add_floats((const float *)(const void *)at, n, w[k], k == 0, sum);
        }
        narrow_row(across, sum, (size_t)x->channels, to);
    }
}

/* Other types are converted to float32. */
static mr_code run_sums(const mr_rows *r, const mr__images *x, mr_array *out, mr_status *st)
{
    const struct params *p = r->params;
    const mr_array *in = &r->in[0];
    bool bytes = in->dtype == MR_UINT8;
    axis down = {0}, across = {0};
    mr_array floats = {0};
    float *sum = mr_malloc((size_t)(x->width * x->channels + 1) * sizeof *sum);
    mr_code rc = sum ? MR_OK : mr_fail_memory(st, 0, "a row of pixels");
    if (rc == MR_OK)
        rc = make_axis(p, x->height, out->shape[out->rank - 3], &down, st);
    if (rc == MR_OK)
        rc = make_axis(p, x->width, out->shape[out->rank - 2], &across, st);
    if (rc == MR_OK && !bytes && in->dtype != MR_FLOAT32)
        rc = mr__kernel_cast(in, MR_FLOAT32, &floats, st);
    const char *from = floats.data ? floats.data : in->data;
    size_t source = (size_t)(x->height * x->width * x->channels) * (bytes ? 1 : sizeof(float));
    size_t result = mr_array_row_values(out) / (x->per_row ? x->per_row : 1);
    for (size_t row = 0; row < r->rows && rc == MR_OK; row++)
        for (size_t i = 0; i < x->per_row; i++)
            sum_image(&down, &across, x, bytes,
                      from + ((r->constant[0] ? 0 : row) * x->per_row + i) * source, sum,
                      (float *)out->data + (row * x->per_row + i) * result);
    mr_array_reset(&floats);
    reset_axis(&down);
    reset_axis(&across);
    mr_free(sum);
    return rc;
}

static void nearest_image(const mr__images *x, const char *from, int64_t height, int64_t width,
                          char *to)
{
    float down = (float)x->height / (float)height, across = (float)x->width / (float)width;
    for (int64_t y = 0; y < height; y++) {
        int64_t at = within((int64_t)floorf(((float)y + 0.5f) * down), x->height) * x->width;
        for (int64_t k = 0; k < width; k++, to += x->pixel)
            memcpy(to,
                   from + (size_t)(at +
                                   within((int64_t)floorf(((float)k + 0.5f) * across), x->width)) *
                              x->pixel,
                   x->pixel);
    }
}

static mr_code run(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct params *p = r->params;
    bool nearest = is(p, "nearest");
    mr_dtype t = nearest ? r->in[0].dtype : MR_FLOAT32;
    mr__images x;
    int64_t height, width;
    if (!mr__images_of(r, &x) || !mr__images_rows_size(r, 1, &height, &width))
        return mr__images_none(r, t, out, st);
    MR_TRY(mr__images_alloc(r, t, height, width, x.channels, out, st));
    if (mr_array_row_values(out) == 0)
        return MR_OK;
    if (x.height == 0 || x.width == 0) {
        mr__fail_all(r, "resize of an image without pixels");
        memset(out->data, 0, r->rows * mr_array_row_bytes(out));
        return MR_OK;
    }
    if (nearest) {
        size_t bytes = (size_t)(height * width) * x.pixel;
        for (size_t row = 0; row < r->rows; row++)
            for (size_t i = 0; i < x.per_row; i++)
                nearest_image(&x, mr__images_at(r, &x, row, i), height, width,
                              (char *)out->data + (row * x.per_row + i) * bytes);
        return MR_OK;
    }
    mr_code rc = run_sums(r, &x, out, st);
    if (rc != MR_OK)
        mr_array_reset(out);
    return rc;
}

static const mr_param table[] = {
    MR_INPUT(mr__input_image_numbers, "x", "Images."),
    MR_INPUT_WITH(mr_input_shape, "size", MR_P_DECIDES_SHAPE, "[height, width] of the result."),
    MR_PARAM(struct params, method, .def.s = "bilinear", .names = methods,
             .doc = "Interpolates between pixels, takes the nearest one, or the mean of those that "
                    "a pixel covers."),
    MR_PARAM(struct params, antialias,
             .doc = "Bilinear: smaller images use all pixels instead of a sample of them."),
    {0}};
const mr_function mr_function_resize = {
    .abi = MR_ABI_VERSION,
    .name = "resize",
    .doc = "Images resized, as tf.image.resize: float32, but the type of x for nearest.",
    .example = "range(1).map(x => resize([[[0], [8]], [[8], [16]]], [1, 4]))",
    .params = table,
    .params_size = sizeof(struct params),
    .props = MR_FUNCTION_CONSTANTS,
    .type = type,
    .run = run,
};
