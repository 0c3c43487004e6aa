/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FUNCTIONS_LIBRARY_IMAGES_H
#define MR_PIPELINE_FUNCTIONS_LIBRARY_IMAGES_H
/* Shared by functions of images. An image is a tensor whose last three axes are height, width and
 * channels; preceding axes count images. Private to functions/. */
#include "pipeline/functions/descriptor.h"

/* Numbers or bools, with at least three axes as far as the rank is known. */
extern const mr_input_kind mr__input_image, mr__input_image_numbers;

/* c->out = input 0, which has the axes of an image. */
mr_code mr__images_type(mr_call *c, mr_status *st);
/* Sets the height and width of a leaf whose rank is known; -1: not known. */
void mr__images_resize_leaf(mr_leaf *leaf, int64_t height, int64_t width);

typedef struct mr__images {
    size_t per_row; /* images in a row */
    int64_t height, width, channels;
    size_t pixel, bytes; /* of one pixel, of one image */
} mr__images;
/* Describes input 0. false: fewer than three axes, and all rows have failed. */
bool mr__images_of(const mr_rows *r, mr__images *x);
/* Image i of row `row` of input 0. */
const char *mr__images_at(const mr_rows *r, const mr__images *x, size_t row, size_t i);
/* Allocates out: r->rows rows with the number of images of input 0, of dtype t and the given
 * size. */
mr_code mr__images_alloc(const mr_rows *r, mr_dtype t, int64_t height, int64_t width,
                         int64_t channels, mr_array *out, mr_status *st) MR_NODISCARD;
/* The result of run after mr__images_of or a check of arguments failed: all rows have failed. */
mr_code mr__images_none(const mr_rows *r, mr_dtype t, mr_array *out, mr_status *st) MR_NODISCARD;

/* Height and width in input i, a list of two: when typed, set in leaf; or when run. */
mr_code mr__images_call_size(mr_call *c, size_t i, mr_leaf *leaf, mr_status *st);
bool mr__images_rows_size(const mr_rows *r, size_t i, int64_t *height, int64_t *width);

/* A mapping of pixels: pixel (y, x) of the result is pixel first + y * down + x * right of the
 * source, counted row by row. */
typedef struct mr__image_move {
    int64_t height, width; /* of the result */
    int64_t first, down, right;
} mr__image_move;
void mr__image_moved(const mr__image_move *m, const char *from, size_t pixel, char *to);
#endif
