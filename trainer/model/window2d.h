/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_WINDOW2D_H
#define MR_TRAINER_MODEL_WINDOW2D_H
/* The windows of convolutions and pools in an image [height, width, channels], shared by their
 * layers. */
#include "trainer/model/layer.h"
#include "trainer/model/onnx.h"

/* One axis: windows of `size` values, `dilation` apart, every `stride` values; the first one starts
 * `before` values before the image. */
typedef struct mr__window_axis {
    size_t size, stride, dilation, before, out;
} mr__window_axis;

typedef struct mr__window2d {
    size_t height, width, channels; /* of the image */
    mr__window_axis h, w;
} mr__window2d;

/* The parameters of layers. Lists are one number or two, for height and width. */
typedef struct mr__window2d_params {
    const mr_ints *size;               /* empty: 2 */
    const mr_ints *strides, *dilation; /* NULL or empty: 1 */
    const char *padding; /* "valid": windows are inside the image; "same": out = ceil(in /
                            stride) */
} mr__window2d_params;

/* errors   MR_INVALID_ARGUMENT, which begins with the layer's name: examples of another rank, lists
 *          of another length, an image smaller than a window */
mr_code mr__window2d_check(const mr_layer *l, const mr__window2d_params *p,
                           mr_status *st) MR_NODISCARD;
/* The windows over l->in, which must have been checked. */
mr__window2d mr__window2d_place(const mr_layer *l, const mr__window2d_params *p);

/* For ONNX: writes kernel_shape, strides and pads to how[0..3) and returns their number; converts
 * images to channels first, as ONNX requires, and back to channels last. */
size_t mr__window2d_onnx(const mr__window2d *w, mr_onnx_attribute *how);
mr_code mr__channels_first_onnx(mr_onnx *g, mr_status *st) MR_NODISCARD;
mr_code mr__channels_last_onnx(mr_onnx *g, mr_status *st) MR_NODISCARD;

/* "valid" and "same". */
extern const char *const mr__paddings[];
#endif
