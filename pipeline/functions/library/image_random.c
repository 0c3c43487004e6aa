/* SPDX-License-Identifier: Apache-2.0 */
/* random_crop, random_flip: the draws for an image do not depend on batching. */
#include <inttypes.h>
#include <string.h>

#include "pipeline/functions/compiler/draws.h"
#include "pipeline/functions/library/images.h"
#include "pipeline/functions/compiler/typed_tree.h"

struct params {
    int64_t seed;
};

static mr_code type_crop(mr_call *c, mr_status *st)
{
    const mr_leaf *x = c->in[0];
    MR_TRY(mr__images_type(c, st));
    MR_TRY(mr__images_call_size(c, 1, &c->out, st));
    for (int d = 0; d < 2 && x->rank >= 3; d++) {
        int64_t from = x->shape[x->rank - 3 + d], to = c->out.shape[x->rank - 3 + d];
        if (from >= 0 && to > from)
            return mr_call_fail(c, st, 1,
                                "random_crop: the image has %" PRId64 " %s, fewer than %" PRId64
                                "; pad or resize it",
                                from, d ? "columns" : "rows", to);
    }
    return MR_OK;
}

static mr_code run_crop(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct params *p = r->params;
    mr__images x;
    mr__image_move m = {.right = 1};
    if (!mr__images_of(r, &x) || !mr__images_rows_size(r, 1, &m.height, &m.width))
        return mr__images_none(r, r->in[0].dtype, out, st);
    if (m.height > x.height || m.width > x.width) {
        mr__fail_all(r,
                     "random_crop: an image of %" PRId64 " x %" PRId64 " is smaller than %" PRId64
                     " x %" PRId64 "; pad or resize it",
                     x.height, x.width, m.height, m.width);
        return mr__images_none(r, r->in[0].dtype, out, st);
    }
    MR_TRY(mr__images_alloc(r, r->in[0].dtype, m.height, m.width, x.channels, out, st));
    size_t bytes = (size_t)(m.height * m.width) * x.pixel;
    m.down = x.width;
    for (size_t row = 0; row < r->rows; row++)
        for (size_t i = 0; i < x.per_row; i++) {
            mr__draws d = mr__draws_of_part(r, row, i, x.per_row, p->seed);
            int64_t top = (int64_t)mr__draw_below(&d, (uint64_t)(x.height - m.height + 1));
            int64_t left = (int64_t)mr__draw_below(&d, (uint64_t)(x.width - m.width + 1));
            m.first = top * x.width + left;
            mr__image_moved(&m, mr__images_at(r, &x, row, i), x.pixel,
                            (char *)out->data + (row * x.per_row + i) * bytes);
        }
    return MR_OK;
}

static mr_code run_flip(const mr_rows *r, mr_array *out, mr_status *st)
{
    const struct params *p = r->params;
    mr__images x;
    if (!mr__images_of(r, &x))
        return mr__images_none(r, r->in[0].dtype, out, st);
    MR_TRY(mr__images_alloc(r, r->in[0].dtype, x.height, x.width, x.channels, out, st));
    const mr__image_move m = {x.height, x.width, x.width - 1, x.width, -1};
    for (size_t row = 0; row < r->rows && x.bytes; row++)
        for (size_t i = 0; i < x.per_row; i++) {
            mr__draws d = mr__draws_of_part(r, row, i, x.per_row, p->seed);
            char *to = (char *)out->data + (row * x.per_row + i) * x.bytes;
            const char *from = mr__images_at(r, &x, row, i);
            if (mr__draw_below(&d, 2))
                mr__image_moved(&m, from, x.pixel, to);
            else
                memcpy(to, from, x.bytes);
        }
    return MR_OK;
}

#define IMAGE MR_INPUT(mr__input_image, "x", "Images; each is drawn for separately.")
#define SEED                                                                                       \
    MR_PARAM(struct params, seed, .doc = "Calls with different seeds draw different values.")
static const mr_param crop_table[] = {
    IMAGE,
    MR_INPUT_WITH(mr_input_shape, "size", MR_P_DECIDES_SHAPE, "[height, width] of the result."),
    SEED,
    {0}};
static const mr_param flip_table[] = {IMAGE, SEED, {0}};

const mr_function mr_function_random_crop = {
    .abi = MR_ABI_VERSION,
    .name = "random_crop",
    .doc = "A random part of the image; all positions are equally likely.",
    .example = "range(3).map(x => random_crop([[[1], [2], [3], [4]]], [1, 2], seed=7))",
    .params = crop_table,
    .params_size = sizeof(struct params),
    .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_DRAWS,
    .type = type_crop,
    .run = run_crop,
};
const mr_function mr_function_random_flip = {
    .abi = MR_ABI_VERSION,
    .name = "random_flip",
    .doc = "The image, with its columns in reverse order with probability 1/2.",
    .example = "range(3).map(x => random_flip([[[1], [2]]], seed=7))",
    .params = flip_table,
    .params_size = sizeof(struct params),
    .props = MR_FUNCTION_CONSTANTS | MR_FUNCTION_DRAWS,
    .type = mr__images_type,
    .run = run_flip,
};
