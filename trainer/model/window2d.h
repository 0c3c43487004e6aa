/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_WINDOW2D_H
#define MR_TRAINER_WINDOW2D_H
/* Where the windows of convolutions and pools lie in an image [height, width, channels]: what their
 * layers share. */
#include "trainer/model/layer.h"
#include "trainer/model/onnx.h"

/* One axis: windows of `size` values, `dilation` apart, every `stride`, the first of them `before`
 * values before the image. */
typedef struct mr__window_axis {
    size_t size, stride, dilation, before, out;
} mr__window_axis;

typedef struct mr__window2d {
    size_t height, width, channels; /* of the image */
    mr__window_axis h, w;
} mr__window2d;

/* The parameters as layers have them. Lists are one number or two, for height and width. */
typedef struct mr__window2d_params {
    const mr_ints *size;               /* empty: 2 */
    const mr_ints *strides, *dilation; /* NULL or empty: 1 */
    const char *padding; /* "valid": windows lie in the image; "same": out = ceil(in / stride) */
} mr__window2d_params;

/* errors   MR_INVALID_ARGUMENT, which begins with the layer's name: examples of another rank, lists
 *          of another length, an image smaller than a window */
mr_code mr__window2d_check(const mr_layer *l, const mr__window2d_params *p,
                           mr_status *st) MR_NODISCARD;
/* The windows over l->in, which were checked. */
mr__window2d mr__window2d_place(const mr_layer *l, const mr__window2d_params *p);

/* In ONNX: kernel_shape, strides and pads into how[0..3), whose number it returns; images with
 * channels first, as its windows want them, and last again. */
size_t mr__window2d_onnx(const mr__window2d *w, mr_onnx_attribute *how);
mr_code mr__channels_first_onnx(mr_onnx *g, mr_status *st) MR_NODISCARD;
mr_code mr__channels_last_onnx(mr_onnx *g, mr_status *st) MR_NODISCARD;

/* "valid" and "same". */
extern const char *const mr__paddings[];
#endif
