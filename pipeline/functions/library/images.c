/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/functions/library/images.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/compiler/typed_tree.h"

#define NUMBERS                                                                                    \
    (((1u << MR_N_DTYPES) - 1) &                                                                   \
     ~(MR_DTYPE_BIT(MR_STRING) | MR_DTYPE_BIT(MR_DATASET) | MR_DTYPE_BIT(MR_BOOL)))
const mr_input_kind mr__input_image = {.name = "an image: numbers or bools",
                                       .dtypes = NUMBERS | MR_DTYPE_BIT(MR_BOOL)};
const mr_input_kind mr__input_image_numbers = {.name = "an image: numbers", .dtypes = NUMBERS};

mr_code mr__images_type(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    c->out = *x;
    if (x->rank < 0 || x->rank >= 3)
        return MR_OK;
    char shape[96];
    mr_shape_format(x->rank, x->shape, shape, sizeof shape);
    return mr_call_fail(c, st, 0,
                        "%s expects an image, of height, width and channels; the shape is %s",
                        c->function->name, shape);
}

void mr__images_resize_leaf(mr_leaf *leaf, int64_t height, int64_t width)
{
    if (leaf->rank < 3)
        return;
    leaf->shape[leaf->rank - 3] = height;
    leaf->shape[leaf->rank - 2] = width;
}

bool mr__images_of(const mr_rows *r, mr__images *x)
{
    const mr_array *a = &r->in[0];
    if (a->rank < 3) {
        char shape[96];
        mr_shape_format(a->rank, a->shape, shape, sizeof shape);
        mr__fail_all(r, "%s expects an image, of height, width and channels; the shape is %s",
                     r->function->name, shape);
        return false;
    }
    const int64_t *last = a->shape + a->rank - 3;
    *x = (mr__images){.per_row = 1, .height = last[0], .width = last[1], .channels = last[2]};
    for (int d = 0; d < a->rank - 3; d++)
        x->per_row *= (size_t)a->shape[d];
    x->pixel = (size_t)last[2] * mr_dtype_size(a->dtype);
    x->bytes = (size_t)last[0] * (size_t)last[1] * x->pixel;
    return true;
}

const char *mr__images_at(const mr_rows *r, const mr__images *x, size_t row, size_t i)
{
    return (const char *)r->in[0].data + ((r->constant[0] ? 0 : row) * x->per_row + i) * x->bytes;
}

mr_code mr__images_alloc(const mr_rows *r, mr_dtype t, int64_t height, int64_t width,
                         int64_t channels, mr_array *out, mr_status *st)
{
    const mr_array *a = &r->in[0];
    int64_t shape[MR_MAX_RANK];
    memcpy(shape, a->shape, (size_t)a->rank * sizeof *shape);
    shape[a->rank - 3] = height;
    shape[a->rank - 2] = width;
    shape[a->rank - 1] = channels;
    return mr_array_alloc(out, t, a->rank, shape, r->rows, st);
}

mr_code mr__images_none(const mr_rows *r, mr_dtype t, mr_array *out, mr_status *st)
{
    static const int64_t empty[MR_MAX_RANK];
    int rank = r->in[0].rank < 3 ? 3 : r->in[0].rank;
    return mr_array_alloc(out, t, rank, empty, r->rows, st);
}

mr_code mr__images_call_size(mr_call *c, size_t i, mr_leaf *leaf, mr_status *st)
{
    mr_leaf size = {0};
    MR_TRY(mr__call_shape(c, i, false, &size, st));
    if (size.rank >= 0 && size.rank != 2)
        return mr_call_fail(c, st, (int)i, "%s expects [height, width], not %d numbers",
                            c->function->name, size.rank);
    mr__images_resize_leaf(leaf, size.rank < 0 ? -1 : size.shape[0],
                           size.rank < 0 ? -1 : size.shape[1]);
    return MR_OK;
}

bool mr__images_rows_size(const mr_rows *r, size_t i, int64_t *height, int64_t *width)
{
    int rank;
    int64_t shape[MR_MAX_RANK];
    if (!mr__rows_shape(r, i, false, &rank, shape))
        return false;
    if (rank != 2) {
        mr__fail_all(r, "%s expects [height, width], not %d numbers", r->function->name, rank);
        return false;
    }
    *height = shape[0];
    *width = shape[1];
    return true;
}

/* ---- moving pixels ---- */

static void move_pixels(const char *from, int64_t right, int64_t n, size_t pixel, char *to)
{
    int64_t step = right * (int64_t)pixel;
    switch (pixel) { /* with a constant size, memcpy becomes plain moves */
    case 1:
        for (int64_t x = 0; x < n; x++)
            to[x] = from[x * step];
        return;
    case 3:
        for (int64_t x = 0; x < n; x++)
            memcpy(to + 3 * x, from + x * step, 3);
        return;
    case 4:
        for (int64_t x = 0; x < n; x++)
            memcpy(to + 4 * x, from + x * step, 4);
        return;
    case 12:
        for (int64_t x = 0; x < n; x++)
            memcpy(to + 12 * x, from + x * step, 12);
        return;
    default:
        for (int64_t x = 0; x < n; x++)
            memcpy(to + (size_t)x * pixel, from + x * step, pixel);
    }
}

void mr__image_moved(const mr__image_move *m, const char *from, size_t pixel, char *to)
{
    size_t row = (size_t)m->width * pixel;
    if (row == 0)
        return;
    for (int64_t y = 0; y < m->height; y++, to += row) {
        const char *at = from + (m->first + y * m->down) * (int64_t)pixel;
        if (m->right == 1)
            memcpy(to, at, row);
        else
            move_pixels(at, m->right, m->width, pixel, to);
    }
}
