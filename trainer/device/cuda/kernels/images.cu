/* SPDX-License-Identifier: Apache-2.0 */
/* Direct convolutions, a thread per result, for shapes that cuDNN does not support and systems
 * without it; conversions to cuDNN's layouts; pools. */
#include "trainer/device/cuda/kernels/activation.h"
#include "trainer/device/cuda/kernels/kernel.h"

/* The position of index i in [n, height, width, channels]. */
typedef struct place {
    int64_t b, i, j, c;
} place;

MR_HD place place_of(int64_t at, size_t height, size_t width, size_t channels)
{
    place p;
    int64_t rest;
    p.c = mr_split(at, channels, &rest);
    p.j = mr_split(rest, width, &rest);
    p.i = mr_split(rest, height, &p.b);
    return p;
}

MR_HD void conv2d_at(const mr_math_conv2d &p, int64_t at)
{
    const mr_math_conv2d_shape &s = p.s;
    place y = place_of(at, s.out_h, s.out_w, s.filters);
    int64_t depth = (int64_t)(s.channels / s.groups);
    int64_t first = y.c / (int64_t)(s.filters / s.groups) * depth;
    double sum = p.bias ? (double)p.bias[y.c] : 0;
    for (size_t u = 0; u < s.kernel_h; u++) {
        int64_t h = y.i * (int64_t)s.stride_h + (int64_t)(u * s.dilation_h) - (int64_t)s.pad_top;
        if (h < 0 || h >= (int64_t)s.height)
            continue;
        for (size_t v = 0; v < s.kernel_w; v++) {
            int64_t w =
                y.j * (int64_t)s.stride_w + (int64_t)(v * s.dilation_w) - (int64_t)s.pad_left;
            if (w < 0 || w >= (int64_t)s.width)
                continue;
            const float *x = p.x + ((y.b * (int64_t)s.height + h) * (int64_t)s.width + w) *
                                       (int64_t)s.channels +
                             first;
            const float *k = p.kernel + (int64_t)(u * s.kernel_w + v) * depth * (int64_t)s.filters +
                             y.c;
            for (int64_t c = 0; c < depth; c++)
                sum += (double)x[c] * (double)k[c * (int64_t)s.filters];
        }
    }
    p.y[at] = mr_activation(p.f, (float)sum);
}
MR_KERNEL(conv2d, mr_math_conv2d, p.s.n *p.s.out_h *p.s.out_w *p.s.filters)

/* *out = the output row (or column) that reads input `at` through element u of the kernel. */
MR_HD bool reader_of(int64_t at, size_t u, size_t dilation, size_t stride, size_t pad, size_t n,
                     int64_t *out)
{
    int64_t i = at + (int64_t)pad - (int64_t)(u * dilation);
    *out = i / (int64_t)stride;
    return i >= 0 && i % (int64_t)stride == 0 && *out < (int64_t)n;
}

MR_HD void conv2d_backward_data_at(const mr_math_conv2d_backward_data &p, int64_t at)
{
    const mr_math_conv2d_shape &s = p.s;
    place x = place_of(at, s.height, s.width, s.channels);
    int64_t depth = (int64_t)(s.channels / s.groups), n = (int64_t)(s.filters / s.groups);
    int64_t c = x.c % depth, first = x.c / depth * n, i, j;
    double sum = 0;
    for (size_t u = 0; u < s.kernel_h; u++) {
        if (!reader_of(x.i, u, s.dilation_h, s.stride_h, s.pad_top, s.out_h, &i))
            continue;
        for (size_t v = 0; v < s.kernel_w; v++) {
            if (!reader_of(x.j, v, s.dilation_w, s.stride_w, s.pad_left, s.out_w, &j))
                continue;
            const float *dy = p.dy + ((x.b * (int64_t)s.out_h + i) * (int64_t)s.out_w + j) *
                                         (int64_t)s.filters +
                              first;
            const float *k =
                p.kernel +
                ((int64_t)(u * s.kernel_w + v) * depth + c) * (int64_t)s.filters + first;
            for (int64_t o = 0; o < n; o++)
                sum += (double)dy[o] * (double)k[o];
        }
    }
    p.dx[at] = (float)sum;
}
MR_KERNEL(conv2d_backward_data, mr_math_conv2d_backward_data,
          p.s.n *p.s.height *p.s.width *p.s.channels)

/* The first j >= 0 with j * stride >= at. */
MR_HD int64_t first_inside(int64_t at, size_t stride)
{
    return at <= 0 ? 0 : (at + (int64_t)stride - 1) / (int64_t)stride;
}

/* A part is every `parts`-th row of the result. */
MR_HD void conv2d_backward_weights_at(const mr_k_conv2d_weights &p, int64_t at)
{
    const mr_math_conv2d_shape &s = p.c.s;
    size_t depth = s.channels / s.groups;
    int64_t part, rest, c, u, o;
    int64_t weight = mr_split(at, s.kernel_h * s.kernel_w * depth * s.filters, &part);
    o = mr_split(weight, s.filters, &rest);
    c = mr_split(rest, depth, &rest) + o / (int64_t)(s.filters / s.groups) * (int64_t)depth;
    int64_t v = mr_split(rest, s.kernel_w, &u);
    double sum = 0;
    int64_t j0 = first_inside((int64_t)s.pad_left - v * (int64_t)s.dilation_w, s.stride_w);
    int64_t j1 = first_inside((int64_t)(s.width + s.pad_left) - v * (int64_t)s.dilation_w,
                              s.stride_w);
    j1 = j1 < (int64_t)s.out_w ? j1 : (int64_t)s.out_w;
    for (size_t k = (size_t)part; k < s.n * s.out_h; k += p.parts) {
        int64_t b, i = mr_split((int64_t)k, s.out_h, &b);
        int64_t h = i * (int64_t)s.stride_h + u * (int64_t)s.dilation_h - (int64_t)s.pad_top;
        int64_t w = j0 * (int64_t)s.stride_w + v * (int64_t)s.dilation_w - (int64_t)s.pad_left;
        if (h < 0 || h >= (int64_t)s.height)
            continue;
        const float *x =
            p.c.x + ((b * (int64_t)s.height + h) * (int64_t)s.width + w) * (int64_t)s.channels + c;
        const float *dy = p.c.dy + ((int64_t)k * (int64_t)s.out_w + j0) * (int64_t)s.filters + o;
        for (int64_t j = j0; j < j1; j++) {
            sum += (double)*x * (double)*dy;
            x += s.stride_w * s.channels;
            dy += s.filters;
        }
    }
    p.out[at] = (float)sum;
}
MR_KERNEL(conv2d_backward_weights, mr_k_conv2d_weights,
          p.parts *p.c.s.kernel_h *p.c.s.kernel_w *(p.c.s.channels / p.c.s.groups) * p.c.s.filters)

/* ---- few terms per result: in float32, with 32-bit indices */

MR_HD void add_quad(quad *sum, float x, const quad &values)
{
    for (int i = 0; i < MR_QUAD; i++)
        sum->v[i] = fmaf(x, values.v[i], sum->v[i]);
}

/* MR_RUN neighbours in a row of the result, so that a weight is read once for all of them. */
MR_HD void conv2d_narrow_at(const mr_math_conv2d &p, int64_t at)
{
    const mr_math_conv2d_shape &s = p.s;
    uint32_t filters = (uint32_t)s.filters, quads = filters / MR_QUAD,
             channels = (uint32_t)s.channels, width = (uint32_t)s.width,
             out_w = (uint32_t)s.out_w, out_h = (uint32_t)s.out_h, runs = mr_runs(s.out_w);
    uint32_t run = (uint32_t)at / quads, o = ((uint32_t)at - run * quads) * MR_QUAD;
    uint32_t row = run / runs, j = (run - row * runs) * MR_RUN, b = row / out_h,
             i = row - b * out_h;
    quad sum[MR_RUN];
    for (uint32_t r = 0; r < MR_RUN; r++)
        for (int k = 0; k < MR_QUAD; k++)
            sum[r].v[k] = p.bias ? p.bias[o + (uint32_t)k] : 0;
    for (uint32_t u = 0; u < (uint32_t)s.kernel_h; u++) {
        uint32_t h = i * (uint32_t)s.stride_h + u * (uint32_t)s.dilation_h - (uint32_t)s.pad_top;
        if (h >= (uint32_t)s.height) /* below 0 too */
            continue;
        const float *x = p.x + (b * (uint32_t)s.height + h) * width * channels;
        const float *k = p.kernel + u * (uint32_t)s.kernel_w * channels * filters + o;
        for (uint32_t v = 0; v < (uint32_t)s.kernel_w; v++) {
            uint32_t w =
                j * (uint32_t)s.stride_w + v * (uint32_t)s.dilation_w - (uint32_t)s.pad_left;
            for (uint32_t c = 0; c < channels; c++, k += filters) {
                quad weights = *(const quad *)k;
                for (uint32_t r = 0; r < MR_RUN; r++) {
                    uint32_t from = w + r * (uint32_t)s.stride_w;
                    if (from < width)
                        add_quad(&sum[r], x[from * channels + c], weights);
                }
            }
        }
    }
    for (uint32_t r = 0; r < MR_RUN && j + r < out_w; r++) {
        for (int k = 0; k < MR_QUAD; k++)
            sum[r].v[k] = mr_activation(p.f, sum[r].v[k]);
        *(quad *)(p.y + (row * out_w + j + r) * filters + o) = sum[r];
    }
}
MR_KERNEL(conv2d_narrow, mr_math_conv2d,
          p.s.n *p.s.out_h *mr_runs(p.s.out_w) * (p.s.filters / MR_QUAD))

/* Element t of the kernel [kernel_h, kernel_w, channels], of at most 32: 5 bits per index. */
MR_HD uint32_t tap_of(const mr_math_conv2d_shape &s, uint32_t t)
{
    uint32_t channels = (uint32_t)s.channels, kernel_w = (uint32_t)s.kernel_w;
    uint32_t place = t / channels, u = place / kernel_w;
    return u << 10 | (place - u * kernel_w) << 5 | (t - place * channels);
}

/* A part, MR_TAPS elements of the kernel and MR_QUAD filters: a gradient is read once for all these
 * elements. Parts are short, because they are added up in float32. */
MR_HD void conv2d_narrow_weights_at(const mr_k_conv2d_weights &p, int64_t at)
{
    const mr_math_conv2d_shape &s = p.c.s;
    enum { NOWHERE = INT32_MIN }; /* below 0 with any column added */
    int32_t channels = (int32_t)s.channels, step = (int32_t)s.stride_w;
    uint32_t filters = (uint32_t)s.filters, quads = filters / MR_QUAD,
             all = (uint32_t)(s.kernel_h * s.kernel_w * s.channels),
             groups = mr_tap_groups(s.kernel_h * s.kernel_w * s.channels);
    uint32_t item = (uint32_t)at / quads, o = ((uint32_t)at - item * quads) * MR_QUAD;
    uint32_t part = item / groups, first = (item - part * groups) * MR_TAPS;
    uint32_t taps[MR_TAPS];
    quad sum[MR_TAPS];
    for (uint32_t t = 0; t < MR_TAPS; t++) {
        taps[t] = tap_of(s, first + t < all ? first + t : 0);
        for (int f = 0; f < MR_QUAD; f++)
            sum[t].v[f] = 0;
    }
    for (uint32_t k = part; k < (uint32_t)(s.n * s.out_h); k += (uint32_t)p.parts) {
        uint32_t b = k / (uint32_t)s.out_h, i = k - b * (uint32_t)s.out_h;
        int32_t left[MR_TAPS], x[MR_TAPS]; /* columns read for j = 0, and their offsets in x */
        for (uint32_t t = 0; t < MR_TAPS; t++) {
            uint32_t h = i * (uint32_t)s.stride_h + (taps[t] >> 10) * (uint32_t)s.dilation_h -
                         (uint32_t)s.pad_top;
            bool inside = first + t < all && h < (uint32_t)s.height;
            int32_t column = (int32_t)((taps[t] >> 5 & 31) * (uint32_t)s.dilation_w) -
                             (int32_t)s.pad_left;
            left[t] = inside ? column : NOWHERE;
            x[t] = inside ? (int32_t)((b * (uint32_t)s.height + h) * (uint32_t)s.width) * channels +
                                column * channels + (int32_t)(taps[t] & 31)
                          : 0;
        }
        const float *dy = p.c.dy + k * (uint32_t)s.out_w * filters + o;
#pragma unroll 2
        for (int32_t j = 0; j < (int32_t)s.out_w; j++, dy += filters) {
            quad slope = *(const quad *)dy;
            for (uint32_t t = 0; t < MR_TAPS; t++)
                if ((uint32_t)(left[t] + j * step) < (uint32_t)s.width)
                    add_quad(&sum[t], p.c.x[x[t] + j * step * channels], slope);
        }
    }
    for (uint32_t t = 0; t < MR_TAPS && first + t < all; t++)
        *(quad *)(p.out + ((size_t)part * all + first + t) * filters + o) = sum[t];
}
MR_KERNEL(conv2d_narrow_weights, mr_k_conv2d_weights,
          p.parts *mr_tap_groups(p.c.s.kernel_h * p.c.s.kernel_w * p.c.s.channels) *
              (p.c.s.filters / MR_QUAD))

MR_HD void kernel_to_filters_at(const mr_k_filters &p, int64_t i)
{
    int64_t rest, o, u = mr_split(i, p.spatial, &rest), c = mr_split(rest, p.channels, &o);
    p.to[i] = p.from[(u * (int64_t)p.channels + c) * (int64_t)p.filters + o];
}
MR_KERNEL(kernel_to_filters, mr_k_filters, p.spatial *p.channels *p.filters)

MR_HD void filters_to_kernel_at(const mr_k_filters &p, int64_t i)
{
    int64_t rest, u, o = mr_split(i, p.filters, &rest), c = mr_split(rest, p.channels, &u);
    p.to[i] = p.from[(o * (int64_t)p.channels + c) * (int64_t)p.spatial + u];
}
MR_KERNEL(filters_to_kernel, mr_k_filters, p.spatial *p.channels *p.filters)

/* Channels of a pixel, read or written at once if they are aligned. */
typedef struct alignas(16) part {
    float v[MR_PLANES];
} part;

/* Neighbours in a warp process neighbouring pixels: whole lines of a plane on one side, whole
 * sectors of a pixel on the other. */
MR_HD void planes_at(const mr_k_planes &p, int64_t i, bool back)
{
    int64_t rest, b, pixel = mr_split(i, p.pixels, &rest);
    int64_t c = mr_split(rest, (p.channels + MR_PLANES - 1) / MR_PLANES, &b) * MR_PLANES;
    int64_t at = (b * (int64_t)p.pixels + pixel) * (int64_t)p.channels + c;
    int64_t plane = (b * (int64_t)p.channels + c) * (int64_t)p.pixels + pixel;
    const float *from = p.from + (back ? plane : at);
    float *to = p.to + (back ? at : plane);
    int64_t step = (int64_t)p.pixels, most = (int64_t)p.channels - c;
    if (most >= MR_PLANES && ((uintptr_t)(back ? to : from) % alignof(part)) == 0) {
        part whole;
        if (!back)
            whole = *(const part *)from;
        for (int k = 0; k < MR_PLANES; k++)
            if (back)
                whole.v[k] = from[k * step];
            else
                to[k * step] = whole.v[k];
        if (back)
            *(part *)to = whole;
    } else {
        for (int k = 0; k < MR_PLANES && k < most; k++)
            to[back ? k : k * step] = from[back ? k * step : k];
    }
}

MR_HD void to_planes_at(const mr_k_planes &p, int64_t i)
{
    planes_at(p, i, false);
}
MR_KERNEL(to_planes, mr_k_planes, p.n *p.pixels *((p.channels + MR_PLANES - 1) / MR_PLANES))

MR_HD void from_planes_at(const mr_k_planes &p, int64_t i)
{
    planes_at(p, i, true);
}
MR_KERNEL(from_planes, mr_k_planes, p.n *p.pixels *((p.channels + MR_PLANES - 1) / MR_PLANES))

MR_HD void pad_at(const mr_k_pad &p, int64_t at)
{
    place y = place_of(at, p.to_h, p.to_w, p.channels);
    int64_t h = y.i - (int64_t)p.top, w = y.j - (int64_t)p.left;
    bool inside = h >= 0 && h < (int64_t)p.from_h && w >= 0 && w < (int64_t)p.from_w;
    p.to[at] = inside ? p.from[((y.b * (int64_t)p.from_h + h) * (int64_t)p.from_w + w) *
                                   (int64_t)p.channels +
                               y.c]
                      : 0;
}
MR_KERNEL(pad, mr_k_pad, p.n *p.to_h *p.to_w *p.channels)

MR_HD void crop_at(const mr_k_pad &p, int64_t at)
{
    place y = place_of(at, p.to_h, p.to_w, p.channels);
    int64_t h = y.i + (int64_t)p.top, w = y.j + (int64_t)p.left;
    /* Pixels that no window reaches are missing, and have no gradient. */
    bool inside = h < (int64_t)p.from_h && w < (int64_t)p.from_w;
    p.to[at] = inside ? p.from[((y.b * (int64_t)p.from_h + h) * (int64_t)p.from_w + w) *
                                   (int64_t)p.channels +
                               y.c]
                      : 0;
}
MR_KERNEL(crop, mr_k_pad, p.n *p.to_h *p.to_w *p.channels)

/* The part of a window that is inside the image: rows [h0, h1), columns [w0, w1). */
typedef struct window {
    int64_t h0, h1, w0, w1;
} window;

MR_HD window window_of(const mr_math_pool2d_shape &s, int64_t i, int64_t j)
{
    window w;
    w.h0 = i * (int64_t)s.stride_h - (int64_t)s.pad_top;
    w.w0 = j * (int64_t)s.stride_w - (int64_t)s.pad_left;
    w.h1 = w.h0 + (int64_t)s.pool_h;
    w.w1 = w.w0 + (int64_t)s.pool_w;
    w.h0 = w.h0 < 0 ? 0 : w.h0;
    w.w0 = w.w0 < 0 ? 0 : w.w0;
    w.h1 = w.h1 > (int64_t)s.height ? (int64_t)s.height : w.h1;
    w.w1 = w.w1 > (int64_t)s.width ? (int64_t)s.width : w.w1;
    return w;
}

MR_HD float pixel(const mr_math_pool2d_shape &s, const float *x, int64_t b, int64_t h, int64_t w,
                  int64_t c)
{
    return x[((b * (int64_t)s.height + h) * (int64_t)s.width + w) * (int64_t)s.channels + c];
}

MR_HD void pool2d_at(const mr_math_pool2d &p, int64_t at)
{
    const mr_math_pool2d_shape &s = p.s;
    place y = place_of(at, s.out_h, s.out_w, s.channels);
    window in = window_of(s, y.i, y.j);
    float sum = 0, most = -INFINITY;
    for (int64_t h = in.h0; h < in.h1; h++)
        for (int64_t w = in.w0; w < in.w1; w++) {
            float x = pixel(s, p.x, y.b, h, w, y.c);
            sum += x;
            most = x > most || x != x ? x : most;
        }
    p.y[at] = s.average ? sum / (float)((in.h1 - in.h0) * (in.w1 - in.w0)) : most;
}
MR_KERNEL(pool2d, mr_math_pool2d, p.s.n *p.s.out_h *p.s.out_w *p.s.channels)

/* MR_QUAD channels of a window's result at once, with 32-bit indices. */
typedef struct quad_place {
    uint32_t b, row, j, c;
    window in;
} quad_place;

MR_HD quad_place quad_of(const mr_math_pool2d_shape &s, int64_t at)
{
    uint32_t quads = (uint32_t)s.channels / MR_QUAD, pixel = (uint32_t)at / quads;
    quad_place q;
    q.c = ((uint32_t)at - pixel * quads) * MR_QUAD;
    q.row = pixel / (uint32_t)s.out_w;
    q.j = pixel - q.row * (uint32_t)s.out_w;
    q.b = q.row / (uint32_t)s.out_h;
    q.in = window_of(s, (int64_t)(q.row - q.b * (uint32_t)s.out_h), (int64_t)q.j);
    return q;
}

/* The offset of these channels of pixel (h, w) in x. */
MR_HD uint32_t pixel_of(const mr_math_pool2d_shape &s, const quad_place &q, uint32_t h, uint32_t w)
{
    return ((q.b * (uint32_t)s.height + h) * (uint32_t)s.width + w) * (uint32_t)s.channels + q.c;
}

MR_HD void pool2d_quads_at(const mr_math_pool2d &p, int64_t at)
{
    const mr_math_pool2d_shape &s = p.s;
    quad_place q = quad_of(s, at);
    quad sum = {{0, 0, 0, 0}}, most = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    for (uint32_t h = (uint32_t)q.in.h0; h < (uint32_t)q.in.h1; h++)
        for (uint32_t w = (uint32_t)q.in.w0; w < (uint32_t)q.in.w1; w++) {
            quad x = *(const quad *)(p.x + pixel_of(s, q, h, w));
            for (int k = 0; k < MR_QUAD; k++) {
                sum.v[k] += x.v[k];
                most.v[k] = x.v[k] > most.v[k] || x.v[k] != x.v[k] ? x.v[k] : most.v[k];
            }
        }
    float size = (float)((q.in.h1 - q.in.h0) * (q.in.w1 - q.in.w0));
    for (int k = 0; k < MR_QUAD && s.average; k++)
        most.v[k] = sum.v[k] / size;
    *(quad *)(p.y + at * MR_QUAD) = most;
}
MR_KERNEL(pool2d_quads, mr_math_pool2d, p.s.n *p.s.out_h *p.s.out_w *(p.s.channels / MR_QUAD))

/* Whether (h, w) is the first pixel of the window with the largest value y. */
MR_HD bool holds_largest(const mr_math_pool2d_backward &p, const window &in, const place &x,
                         float y)
{
    for (int64_t h = in.h0; h <= x.i; h++)
        for (int64_t w = in.w0; w < in.w1; w++) {
            float v = pixel(p.s, p.x, x.b, h, w, x.c);
            if (v == y || (v != v && y != y))
                return h == x.i && w == x.j;
        }
    return false;
}

/* The same for disjoint windows: pixels outside all windows keep their values. */
MR_HD void pool2d_backward_apart_at(const mr_math_pool2d_backward &p, int64_t at)
{
    const mr_math_pool2d_shape &s = p.s;
    place y = place_of(at, s.out_h, s.out_w, s.channels);
    window in = window_of(s, y.i, y.j);
    float dy = p.dy[at], largest = s.average ? 0 : p.y[at];
    float share = dy / (float)((in.h1 - in.h0) * (in.w1 - in.w0));
    bool found = false;
    for (int64_t h = in.h0; h < in.h1; h++) {
        int64_t x = ((y.b * (int64_t)s.height + h) * (int64_t)s.width + in.w0) *
                        (int64_t)s.channels +
                    y.c;
        for (int64_t w = in.w0; w < in.w1; w++, x += (int64_t)s.channels) {
            float v = s.average ? 0 : p.x[x];
            bool here = !found && (v == largest || (v != v && largest != largest));
            found = found || here;
            p.dx[x] = s.average ? share : here ? dy : 0;
        }
    }
}
MR_KERNEL(pool2d_backward_apart, mr_math_pool2d_backward, p.s.n *p.s.out_h *p.s.out_w *p.s.channels)

MR_HD void pool2d_backward_apart_quads_at(const mr_math_pool2d_backward &p, int64_t at)
{
    const mr_math_pool2d_shape &s = p.s;
    quad_place q = quad_of(s, at);
    quad dy = *(const quad *)(p.dy + at * MR_QUAD), largest = dy, x = dy;
    if (!s.average)
        largest = *(const quad *)(p.y + at * MR_QUAD);
    float size = (float)((q.in.h1 - q.in.h0) * (q.in.w1 - q.in.w0));
    bool found[MR_QUAD] = {false, false, false, false};
    for (uint32_t h = (uint32_t)q.in.h0; h < (uint32_t)q.in.h1; h++)
        for (uint32_t w = (uint32_t)q.in.w0; w < (uint32_t)q.in.w1; w++) {
            uint32_t to = pixel_of(s, q, h, w);
            if (!s.average)
                x = *(const quad *)(p.x + to);
            for (int k = 0; k < MR_QUAD; k++) {
                float v = x.v[k], most = largest.v[k];
                bool here = !found[k] && (v == most || (v != v && most != most));
                found[k] = found[k] || here;
                x.v[k] = s.average ? dy.v[k] / size : here ? dy.v[k] : 0;
            }
            *(quad *)(p.dx + to) = x;
        }
}
MR_KERNEL(pool2d_backward_apart_quads, mr_math_pool2d_backward,
          p.s.n *p.s.out_h *p.s.out_w *(p.s.channels / MR_QUAD))

/* First and last window (of n, `size` wide) that contain position `at`. */
MR_HD void windows_with(int64_t at, size_t size, size_t stride, size_t pad, size_t n,
                        int64_t *first, int64_t *last)
{
    int64_t from = at + (int64_t)pad - (int64_t)size + 1, to = (at + (int64_t)pad) / (int64_t)stride;
    *first = first_inside(from, stride);
    *last = to < (int64_t)n ? to : (int64_t)n - 1;
}

MR_HD void pool2d_backward_at(const mr_math_pool2d_backward &p, int64_t at)
{
    const mr_math_pool2d_shape &s = p.s;
    place x = place_of(at, s.height, s.width, s.channels);
    int64_t i0, i1, j0, j1;
    float sum = 0;
    windows_with(x.i, s.pool_h, s.stride_h, s.pad_top, s.out_h, &i0, &i1);
    windows_with(x.j, s.pool_w, s.stride_w, s.pad_left, s.out_w, &j0, &j1);
    for (int64_t i = i0; i <= i1; i++)
        for (int64_t j = j0; j <= j1; j++) {
            int64_t y = ((x.b * (int64_t)s.out_h + i) * (int64_t)s.out_w + j) *
                            (int64_t)s.channels +
                        x.c;
            window in = window_of(s, i, j);
            if (s.average)
                sum += p.dy[y] / (float)((in.h1 - in.h0) * (in.w1 - in.w0));
            else if (holds_largest(p, in, x, p.y[y]))
                sum += p.dy[y];
        }
    p.dx[at] = sum;
}
MR_KERNEL(pool2d_backward, mr_math_pool2d_backward, p.s.n *p.s.height *p.s.width *p.s.channels)
