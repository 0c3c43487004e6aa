/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of pixel values: grayscale, normalize. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/library/images.h"
#include "pipeline/functions/compiler/typed_tree.h"

/* ---- grayscale: as tf.image.rgb_to_grayscale ---- */

static mr_code type_gray(mr_call *c, mr_status *st)
{
    MR_TRY(mr__images_type(c, st));
    if (c->out.rank < 0)
        return MR_OK;
    int64_t *channels = &c->out.shape[c->out.rank - 1];
    if (*channels >= 0 && *channels != 3)
        return mr_call_fail(c, st, 0, "grayscale expects 3 channels, not %" PRId64, *channels);
    *channels = 1;
    return MR_OK;
}

/* Integers are weighed as fractions of their greatest value, and so much of it is kept. */
static void weigh(const float *rgb, size_t n, float most, float *gray)
{
    for (size_t i = 0; i < n; i++, rgb += 3)
        if (most > 0) {
            float light =
                0.2989f * (rgb[0] / most) + 0.5870f * (rgb[1] / most) + 0.1140f * (rgb[2] / most);
            gray[i] = light * (most + 0.5f);
        } else
            gray[i] = 0.2989f * rgb[0] + 0.5870f * rgb[1] + 0.1140f * rgb[2];
}

static mr_code run_gray(const mr_rows *r, mr_array *out, mr_status *st)
{
    const mr_array *x = &r->in[0];
    mr_dtype t = x->dtype;
    mr__images images;
    if (!mr__images_of(r, &images))
        return mr__images_none(r, t, out, st);
    if (images.channels != 3) {
        mr__fail_all(r, "grayscale expects 3 channels, not %" PRId64, images.channels);
        return mr__images_none(r, t, out, st);
    }
    float most = 0;
    if (mr_dtype_is_integer(t)) {
        bool is_signed = t < MR_UINT8;
        most = (float)(UINT64_MAX >> (64 - 8 * mr_dtype_size(t) + is_signed));
    }
    mr_array rgb = {0}, gray = {0};
    mr_code rc = mr__kernel_cast(x, MR_FLOAT32, &rgb, st);
    if (rc == MR_OK)
        rc = mr__images_alloc(r, MR_FLOAT32, images.height, images.width, 1, &gray, st);
    if (rc == MR_OK) {
        weigh(rgb.data, r->rows * mr_array_row_values(&gray), most, gray.data);
        rc = mr__kernel_cast(&gray, t, out, st);
    }
    mr_array_reset(&rgb);
    mr_array_reset(&gray);
    return rc;
}

/* ---- normalize ---- */

struct scale {
    mr_floats mean, stddev;
};

static mr_code type_normalize(mr_call *c, mr_status *st)
{
    const struct scale *p = c->params;
    MR_TRY(mr__images_type(c, st));
    mr_leaf *leaf = &c->out;
    int64_t channels = leaf->rank < 0 ? -1 : leaf->shape[leaf->rank - 1];
    const mr_floats *lists[] = {&p->mean, &p->stddev};
    for (int i = 0; i < 2; i++)
        if (lists[i]->n == 0 ||
            (channels >= 0 && lists[i]->n != 1 && (int64_t)lists[i]->n != channels))
            return mr_call_fail(
                c, st, -1, "normalize: %s has %zu numbers; expected one, or one for each channel%s",
                i ? "stddev" : "mean", lists[i]->n, channels == 3 ? " (3)" : "");
    for (size_t i = 0; i < p->stddev.n; i++)
        if (p->stddev.v[i] == 0)
            return mr_call_fail(c, st, -1, "normalize divides by stddev, but one is 0");
    if (leaf->dtype != MR_FLOAT64)
        leaf->dtype = MR_FLOAT32;
    return MR_OK;
}

static double channel(const mr_floats *list, size_t c)
{
    return list->v[list->n == 1 ? 0 : c];
}

#define NORMALIZE(NAME, T)                                                                         \
    static void NAME(const T *x, size_t n, size_t channels, const struct scale *p, T *z)           \
    {                                                                                              \
        for (size_t c = 0; c < channels; c++) {                                                    \
            T mean = (T)channel(&p->mean, c), stddev = (T)channel(&p->stddev, c);                  \
            for (size_t i = c; i < n; i += channels)                                               \
                z[i] = (x[i] - mean) / stddev;                                                     \
        }                                                                                          \
    }
NORMALIZE(normalize_floats, float)
NORMALIZE(normalize_doubles, double)

static mr_code run_normalize(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct scale *p = r->params;
    const mr_array *x = &r->in[0];
    mr_dtype t = x->dtype == MR_FLOAT64 ? MR_FLOAT64 : MR_FLOAT32;
    mr__images images;
    if (!mr__images_of(r, &images))
        return mr__images_none(r, t, out, st);
    size_t channels = (size_t)images.channels, n = x->rows * mr_array_row_values(x);
    if ((p->mean.n != 1 && p->mean.n != channels) ||
        (p->stddev.n != 1 && p->stddev.n != channels)) {
        mr__fail_all(
            r, "normalize: %zu means and %zu deviations do not match an image of %zu channels",
            p->mean.n, p->stddev.n, channels);
        return mr__images_none(r, t, out, st);
    }
    mr_array values = {0};
    MR_TRY(mr__kernel_cast(x, t, &values, st));
    mr_code rc = mr__images_alloc(r, t, images.height, images.width, images.channels, out, st);
    if (rc == MR_OK && t == MR_FLOAT64)
        normalize_doubles(values.data, n, channels, p, out->data);
    else if (rc == MR_OK)
        normalize_floats(values.data, n, channels, p, out->data);
    mr_array_reset(&values);
    return rc;
}

/* ---- descriptors ---- */

static const mr_param gray_table[] = {
    MR_INPUT(mr__input_image_numbers, "x", "Images of three channels, RGB."), {0}};
static const mr_param normalize_table[] = {
    MR_INPUT(mr__input_image_numbers, "x", "Images."),
    MR_ARG(struct scale, mean, .doc = "A number for each channel, in the scale of x, or one."),
    MR_ARG(struct scale, stddev, .doc = "Likewise; not 0."),
    {0}};

const mr_function mr_function_grayscale = {
    .abi = MR_ABI_VERSION,
    .name = "grayscale",
    .doc = "RGB images converted to gray ones of one channel, as tf.image.rgb_to_grayscale.",
    .example = "range(1).map(x => grayscale(cast([[[255, 128, 0]]], \"uint8\")))",
    .params = gray_table,
    .type = type_gray,
    .run = run_gray,
};
const mr_function mr_function_normalize = {
    .abi = MR_ABI_VERSION,
    .name = "normalize",
    .doc = "(x - mean) / stddev for each channel: float64 for float64, else float32.",
    .example = "range(1).map(x => normalize(ones([2, 2, 3]), mean=[0.5, 0.4, 0.3], stddev=[2]))",
    .params = normalize_table,
    .params_size = sizeof(struct scale),
    .type = type_normalize,
    .run = run_normalize,
};
