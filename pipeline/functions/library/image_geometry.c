/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that move the pixels of images: crop, central_crop, pad_to, flip_left_right,
 * flip_up_down, rotate90. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/library/images.h"
#include "pipeline/functions/compiler/typed_tree.h"

/* Applies m to every image of r; out has the resulting size. */
static void move_all(const mr_rows *r, const mr__images *x, const mr__image_move *m, mr_array *out)
{
    size_t bytes = (size_t)(m->height * m->width) * x->pixel;
    for (size_t row = 0; row < r->rows; row++)
        for (size_t i = 0; i < x->per_row; i++)
            mr__image_moved(m, mr__images_at(r, x, row, i), x->pixel,
                            (char *)out->data + (row * x->per_row + i) * bytes);
}

static mr_code moved(const mr_rows *r, const mr__images *x, const mr__image_move *m, mr_array *out,
                     mr_status *st)
{
    MR_TRY(mr__images_alloc(r, r->in[0].dtype, m->height, m->width, x->channels, out, st));
    move_all(r, x, m, out);
    return MR_OK;
}

/* ---- flip_left_right, flip_up_down ---- */

static mr_code run_left_right(const mr_rows *r, mr_array *out, mr_status *st)
{
    mr__images x;
    if (!mr__images_of(r, &x))
        return mr__images_none(r, r->in[0].dtype, out, st);
    const mr__image_move m = {x.height, x.width, x.width - 1, x.width, -1};
    return moved(r, &x, &m, out, st);
}

static mr_code run_up_down(const mr_rows *r, mr_array *out, mr_status *st)
{
    mr__images x;
    if (!mr__images_of(r, &x))
        return mr__images_none(r, r->in[0].dtype, out, st);
    const mr__image_move m = {x.height, x.width, (x.height - 1) * x.width, -x.width, 1};
    return moved(r, &x, &m, out, st);
}

/* ---- rotate90 ---- */

struct turns {
    int64_t k;
};

/* Quarter turns to the left, 0 to 3. */
static int turns_of(const void *params)
{
    return (int)((((const struct turns *)params)->k % 4 + 4) % 4);
}

static mr_code type_rotate(mr_call *c, mr_status *st)
{
    MR_TRY(mr__images_type(c, st));
    if (c->out.rank >= 3 && turns_of(c->params) % 2) {
        const int64_t *size = c->in[0]->shape + c->out.rank - 3;
        mr__images_resize_leaf(&c->out, size[1], size[0]);
    }
    return MR_OK;
}

static mr_code run_rotate(const mr_rows *r, mr_array *out, mr_status *st)
{
    mr__images x;
    if (!mr__images_of(r, &x))
        return mr__images_none(r, r->in[0].dtype, out, st);
    int64_t h = x.height, w = x.width;
    const mr__image_move moves[4] = {{h, w, 0, w, 1},
                                     {w, h, w - 1, -1, w},
                                     {h, w, h * w - 1, -w, -1},
                                     {w, h, (h - 1) * w, 1, -w}};
    return moved(r, &x, &moves[turns_of(r->params)], out, st);
}

/* ---- crop, central_crop ---- */

static mr_code type_crop(mr_call *c, mr_status *st)
{
    int64_t v[4];
    for (size_t i = 0; i < 4; i++) {
        v[i] = c->known[i + 1] ? mr__int_at(c->known[i + 1], 0) : -1;
        if (c->known[i + 1] && v[i] < 0)
            return mr_call_fail(c, st, (int)i + 1, "crop: %" PRId64 " is negative", v[i]);
    }
    MR_TRY(mr__images_type(c, st));
    for (int d = 0; d < 2 && c->out.rank >= 3; d++) {
        int64_t size = c->out.shape[c->out.rank - 3 + d], end;
        if (size >= 0 && v[d] >= 0 && v[d + 2] >= 0 &&
            (__builtin_add_overflow(v[d], v[d + 2], &end) || end > size))
            return mr_call_fail(c, st, d + 1,
                                "crop: %s from %" PRId64 " on exceed the image's %" PRId64,
                                d ? "columns" : "rows", v[d], size);
    }
    mr__images_resize_leaf(&c->out, v[2], v[3]);
    return MR_OK;
}

static int64_t int_of_row(const mr_rows *r, size_t i, size_t row)
{
    return mr__int_at(&r->in[i], r->constant[i] ? 0 : row);
}

static mr_code run_crop(const mr_rows *r, mr_array *out, mr_status *st)
{
    mr__images x;
    mr_dtype t = r->in[0].dtype;
    if (!mr__images_of(r, &x))
        return mr__images_none(r, t, out, st);
    mr__image_move m = {int_of_row(r, 3, 0), int_of_row(r, 4, 0), 0, x.width, 1};
    if (m.height < 0 || m.width < 0 || m.height > x.height || m.width > x.width) {
        mr__fail_all(r, "crop of %" PRId64 " x %" PRId64 " from an image of %" PRId64 " x %" PRId64,
                     m.height, m.width, x.height, x.width);
        return mr__images_none(r, t, out, st);
    }
    MR_TRY(mr__images_alloc(r, t, m.height, m.width, x.channels, out, st));
    size_t bytes = (size_t)(m.height * m.width) * x.pixel;
    for (size_t row = 0; row < r->rows; row++) {
        int64_t top = int_of_row(r, 1, row), left = int_of_row(r, 2, row);
        char *to = mr_array_at(out, row);
        if (top < 0 || left < 0 || top > x.height - m.height || left > x.width - m.width) {
            mr_row_fail(r, row, MR_OUT_OF_RANGE,
                        "crop of %" PRId64 " x %" PRId64 " at row %" PRId64 ", column %" PRId64
                        " leaves an image of %" PRId64 " x %" PRId64,
                        m.height, m.width, top, left, x.height, x.width);
            memset(to, 0, x.per_row * bytes);
            continue;
        }
        m.first = top * x.width + left;
        for (size_t i = 0; i < x.per_row; i++)
            mr__image_moved(&m, mr__images_at(r, &x, row, i), x.pixel, to + i * bytes);
    }
    return MR_OK;
}

struct part {
    double fraction;
};

/* The start of the central part, rounded as in tf.image.central_crop. */
static int64_t margin(int64_t size, double fraction)
{
    return (int64_t)(((double)size - (double)size * fraction) / 2);
}

static mr_code type_central(mr_call *c, mr_status *st)
{
    const struct part *p = c->params;
    if (!(p->fraction > 0 && p->fraction <= 1))
        return mr_call_fail(c, st, -1,
                            "central_crop: fraction must be more than 0 and at most 1, not %g",
                            p->fraction);
    MR_TRY(mr__images_type(c, st));
    if (c->out.rank < 3)
        return MR_OK;
    int64_t *size = c->out.shape + c->out.rank - 3;
    for (int d = 0; d < 2; d++)
        size[d] = size[d] < 0 ? -1 : size[d] - 2 * margin(size[d], p->fraction);
    return MR_OK;
}

static mr_code run_central(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct part *p = r->params;
    mr__images x;
    if (!mr__images_of(r, &x))
        return mr__images_none(r, r->in[0].dtype, out, st);
    int64_t top = margin(x.height, p->fraction), left = margin(x.width, p->fraction);
    const mr__image_move m = {x.height - 2 * top, x.width - 2 * left, top * x.width + left, x.width,
                              1};
    return moved(r, &x, &m, out, st);
}

/* ---- pad_to ---- */

struct padding {
    double value;
};

static mr_code type_pad(mr_call *c, mr_status *st)
{
    const struct padding *p = c->params;
    const mr_leaf *x = c->in[0];
    MR_TRY(mr__images_type(c, st));
    MR_TRY(mr__images_call_size(c, 1, &c->out, st));
    mr_dtype t = x->dtype;
    int bits = (int)mr_dtype_size(t) * 8;
    bool positive = t == MR_BOOL || (t >= MR_UINT8 && t <= MR_UINT64);
    double most = t == MR_BOOL ? 1 : (double)(UINT64_MAX >> (64 - bits + !positive));
    if (!mr_dtype_is_floating(t) && ((double)(int64_t)p->value != p->value || p->value > most ||
                                     p->value < (positive ? 0 : -most - 1)))
        return mr_call_fail(c, st, -1, "pad_to: %g is not a valid %s", p->value, mr_dtype_name(t));
    for (int d = 0; d < 2 && x->rank >= 3; d++) {
        int64_t from = x->shape[x->rank - 3 + d], to = c->out.shape[x->rank - 3 + d];
        if (from >= 0 && to >= 0 && from > to)
            return mr_call_fail(c, st, 1,
                                "pad_to: the image has %" PRId64 " %s, more than %" PRId64
                                "; crop or resize it",
                                from, d ? "columns" : "rows", to);
    }
    return MR_OK;
}

/* Fills out with value, converted to its dtype. */
static mr_code fill(const mr_array *out, double value, mr_status *st)
{
    mr_array wide, one = {0};
    MR_TRY(mr_array_alloc(&wide, MR_FLOAT64, 0, NULL, 1, st));
    *(double *)wide.data = value;
    mr_code rc = mr__kernel_cast(&wide, out->dtype, &one, st);
    size_t size = mr_dtype_size(out->dtype), n = out->rows * mr_array_row_values(out);
    bool zero = true;
    for (size_t i = 0; rc == MR_OK && i < size; i++)
        zero = zero && ((const char *)one.data)[i] == 0;
    if (rc == MR_OK && (zero || size == 1))
        memset(out->data, *(const unsigned char *)one.data, n * size);
    else if (rc == MR_OK)
        for (size_t i = 0; i < n; i++)
            memcpy((char *)out->data + i * size, one.data, size);
    mr_array_reset(&wide);
    mr_array_reset(&one);
    return rc;
}

static mr_code run_pad(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct padding *p = r->params;
    mr__images x;
    int64_t height, width;
    if (!mr__images_of(r, &x) || !mr__images_rows_size(r, 1, &height, &width))
        return mr__images_none(r, r->in[0].dtype, out, st);
    if (height < x.height || width < x.width) {
        mr__fail_all(r,
                     "pad_to: an image of %" PRId64 " x %" PRId64 " is larger than %" PRId64
                     " x %" PRId64 "; crop or resize it",
                     x.height, x.width, height, width);
        return mr__images_none(r, r->in[0].dtype, out, st);
    }
    MR_TRY(mr__images_alloc(r, r->in[0].dtype, height, width, x.channels, out, st));
    mr_code rc = fill(out, p->value, st);
    if (rc != MR_OK) {
        mr_array_reset(out);
        return rc;
    }
    size_t bytes = (size_t)(height * width) * x.pixel, row_bytes = (size_t)x.width * x.pixel;
    size_t first = (size_t)((height - x.height) / 2 * width + (width - x.width) / 2) * x.pixel;
    for (size_t row = 0; row < r->rows && row_bytes; row++)
        for (size_t i = 0; i < x.per_row; i++) {
            char *to = (char *)out->data + (row * x.per_row + i) * bytes + first;
            const char *from = mr__images_at(r, &x, row, i);
            for (int64_t y = 0; y < x.height; y++)
                memcpy(to + (size_t)(y * width) * x.pixel, from + (size_t)y * row_bytes, row_bytes);
        }
    return MR_OK;
}

/* ---- descriptors ---- */

#define IMAGE MR_INPUT(mr__input_image, "x", "Images.")
static const mr_param plain[] = {IMAGE, {0}};
static const mr_param turned[] = {
    IMAGE,
    MR_PARAM(struct turns, k, .def.i = 1,
             .doc = "Quarter turns to the left; negative: to the right."),
    {0}};
static const mr_param cropped[] = {
    IMAGE,
    MR_INPUT(mr_input_integer, "top", "The first row."),
    MR_INPUT(mr_input_integer, "left", "The first column."),
    MR_INPUT_WITH(mr_input_integer, "height", MR_P_DECIDES_SHAPE, "Rows."),
    MR_INPUT_WITH(mr_input_integer, "width", MR_P_DECIDES_SHAPE, "Columns."),
    {0}};
static const mr_param central[] = {
    IMAGE,
    MR_ARG(struct part, fraction,
           .doc = "The fraction of height and width, more than 0 and at most 1."),
    {0}};
static const mr_param padded[] = {
    IMAGE,
    MR_INPUT_WITH(mr_input_shape, "size", MR_P_DECIDES_SHAPE, "[height, width] of the result."),
    MR_PARAM(struct padding, value, .def.f = 0, .doc = "The value of the new pixels."),
    {0}};

const mr_function mr_function_central_crop = {
    .abi = MR_ABI_VERSION,
    .name = "central_crop",
    .doc = "The central part of images, as tf.image.central_crop.",
    .example = "range(1).map(x => central_crop(zeros([4, 4, 1]), 0.5))",
    .params = central,
    .params_size = sizeof(struct part),
    .props = MR_FUNCTION_CONSTANTS,
    .type = type_central,
    .run = run_central,
};
const mr_function mr_function_crop = {
    .abi = MR_ABI_VERSION,
    .name = "crop",
    .doc = "A rectangle cut out of images.",
    .example = "range(2).map(x => crop([[[1], [2]], [[3], [4]]], x, 0, 1, 2))",
    .params = cropped,
    .props = MR_FUNCTION_CONSTANTS,
    .type = type_crop,
    .run = run_crop,
};
const mr_function mr_function_flip_left_right = {
    .abi = MR_ABI_VERSION,
    .name = "flip_left_right",
    .doc = "Images with their columns in reverse order.",
    .example = "range(1).map(x => flip_left_right([[[1], [2]], [[3], [4]]]))",
    .params = plain,
    .props = MR_FUNCTION_CONSTANTS,
    .type = mr__images_type,
    .run = run_left_right,
};
const mr_function mr_function_flip_up_down = {
    .abi = MR_ABI_VERSION,
    .name = "flip_up_down",
    .doc = "Images with their rows in reverse order.",
    .example = "range(1).map(x => flip_up_down([[[1], [2]], [[3], [4]]]))",
    .params = plain,
    .props = MR_FUNCTION_CONSTANTS,
    .type = mr__images_type,
    .run = run_up_down,
};
const mr_function mr_function_pad_to = {
    .abi = MR_ABI_VERSION,
    .name = "pad_to",
    .doc = "Images centered in larger ones; if the difference is odd, the extra row or column is "
           "below or on the right.",
    .example = "range(1).map(x => pad_to([[[1], [2]]], [2, 4], value=7))",
    .params = padded,
    .params_size = sizeof(struct padding),
    .props = MR_FUNCTION_CONSTANTS,
    .type = type_pad,
    .run = run_pad,
};
const mr_function mr_function_rotate90 = {
    .abi = MR_ABI_VERSION,
    .name = "rotate90",
    .doc = "Images rotated to the left by 90 degrees, k times.",
    .example = "range(1).map(x => rotate90([[[1], [2]], [[3], [4]]]))",
    .params = turned,
    .params_size = sizeof(struct turns),
    .props = MR_FUNCTION_CONSTANTS,
    .type = type_rotate,
    .run = run_rotate,
};
