/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: loops whose innermost is over the channels. */
#include <string.h>
#include "trainer/device/cpu/operations.h"

enum { CHUNK = 256 };

typedef mr_math_pool2d_shape shape;

/* The rows or columns of a window that are inside the image: [*from, *to). */
static void cut(size_t at, size_t stride, size_t pad, size_t pool, size_t size, size_t *from,
                size_t *to)
{
    size_t start = at * stride, end = start + pool;
    *from = start > pad ? start - pad : 0;
    *to = end > pad ? end - pad : 0;
    *to = *to < size ? *to : size;
}

/* NaN counts as the largest value, and propagates. */
static inline float larger(float x, float y)
{
    return x > y || x != x ? x : y;
}

/* A window of 2 x 2, rows `row` values apart. */
static inline void largest_of_four(const float *restrict x, size_t row, size_t channels,
                                   float *restrict y)
{
    for (size_t c = 0; c < channels; c++)
        y[c] = larger(x[row + channels + c], larger(x[row + c], larger(x[channels + c], x[c])));
}

static inline void pool_window(const shape *s, const float *restrict image, const size_t w[4],
                               float *restrict y)
{
    float share = 1 / (float)((w[1] - w[0]) * (w[3] - w[2]));
    for (size_t u = w[0]; u < w[1]; u++)
        for (size_t v = w[2]; v < w[3]; v++) {
            const float *x = image + (u * s->width + v) * s->channels;
            bool first = u == w[0] && v == w[2];
            if (s->average)
                for (size_t c = 0; c < s->channels; c++)
                    y[c] = (first ? 0 : y[c]) + share * x[c];
            else
                for (size_t c = 0; c < s->channels; c++)
                    y[c] = first ? x[c] : larger(x[c], y[c]);
        }
}

MR__CLONES static void pool_image(const shape *s, const float *image, float *y)
{
    size_t w[4];
    for (size_t i = 0; i < s->out_h; i++) {
        cut(i, s->stride_h, s->pad_top, s->pool_h, s->height, &w[0], &w[1]);
        for (size_t j = 0; j < s->out_w; j++, y += s->channels) {
            cut(j, s->stride_w, s->pad_left, s->pool_w, s->width, &w[2], &w[3]);
            if (!s->average && w[1] - w[0] == 2 && w[3] - w[2] == 2)
                largest_of_four(image + (w[0] * s->width + w[2]) * s->channels,
                                s->width * s->channels, s->channels, y);
            else
                pool_window(s, image, w, y);
        }
    }
}

static void run_pool2d(void *args)
{
    const mr_math_pool2d *p = args;
    const shape *s = &p->s;
    for (size_t b = 0; b < s->n; b++)
        pool_image(s, p->x + b * s->height * s->width * s->channels,
                   p->y + b * s->out_h * s->out_w * s->channels);
}

/* All ones if x equals y bit for bit, as for the value that the forward pass selected; else 0. Uses
 * bit masks: branches and bools would prevent vectorisation of these loops. */
static inline uint32_t same(float x, float y)
{
    uint32_t a, b;
    memcpy(&a, &x, sizeof a);
    memcpy(&b, &y, sizeof b);
    return a == b ? UINT32_MAX : 0;
}

static inline float masked(float x, uint32_t mask)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= mask;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* If every value of an image is in exactly one window, the gradient overwrites the image: the first
 * value of a window that equals y becomes dy, the others 0. */
static inline void replace_four(size_t n, const float *restrict y, const float *restrict dy,
                                float *restrict a, float *restrict b, float *restrict c,
                                float *restrict d)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t first = same(a[i], y[i]), second = same(b[i], y[i]) & ~first,
                 third = same(c[i], y[i]) & ~(first | second);
        a[i] = masked(dy[i], first);
        b[i] = masked(dy[i], second);
        c[i] = masked(dy[i], third);
        d[i] = masked(dy[i], ~(first | second | third));
    }
}

static inline void replace_window(const shape *s, const float *restrict y, const float *restrict dy,
                                  float *restrict x)
{
    for (size_t from = 0; from < s->channels; from += CHUNK) {
        size_t n = s->channels - from < CHUNK ? s->channels - from : CHUNK;
        uint32_t given[CHUNK] = {0};
        for (size_t u = 0; u < s->pool_h; u++)
            for (size_t v = 0; v < s->pool_w; v++) {
                float *at = x + (u * s->width + v) * s->channels + from;
                for (size_t c = 0; c < n; c++) {
                    uint32_t here = same(at[c], y[from + c]) & ~given[c];
                    at[c] = masked(dy[from + c], here);
                    given[c] |= here;
                }
            }
    }
}

MR__CLONES static void replace_image(const shape *s, const float *y, const float *dy, float *x)
{
    size_t row = s->width * s->channels, n = s->channels;
    for (size_t i = 0; i < s->out_h; i++)
        for (size_t j = 0; j < s->out_w; j++, y += n, dy += n) {
            float *at = x + i * s->pool_h * row + j * s->pool_w * n;
            if (s->pool_h == 2 && s->pool_w == 2)
                replace_four(n, y, dy, at, at + n, at + row, at + row + n);
            else
                replace_window(s, y, dy, at);
        }
}

/* Adds to the first value of the window that equals y. */
static inline void give_to_largest(const shape *s, const float *restrict image,
                                   const float *restrict y, const float *restrict dy,
                                   const size_t w[4], float *restrict dx)
{
    for (size_t from = 0; from < s->channels; from += CHUNK) {
        size_t n = s->channels - from < CHUNK ? s->channels - from : CHUNK;
        uint32_t given[CHUNK] = {0};
        for (size_t u = w[0]; u < w[1]; u++)
            for (size_t v = w[2]; v < w[3]; v++) {
                size_t at = (u * s->width + v) * s->channels + from;
                for (size_t c = 0; c < n; c++) {
                    uint32_t here = same(image[at + c], y[from + c]) & ~given[c];
                    dx[at + c] += masked(dy[from + c], here);
                    given[c] |= here;
                }
            }
    }
}

MR__CLONES static void pool_image_backward(const shape *s, const float *image, const float *y,
                                           const float *dy, float *dx)
{
    size_t w[4];
    for (size_t i = 0; i < s->out_h; i++) {
        cut(i, s->stride_h, s->pad_top, s->pool_h, s->height, &w[0], &w[1]);
        for (size_t j = 0; j < s->out_w; j++, y += s->channels, dy += s->channels) {
            cut(j, s->stride_w, s->pad_left, s->pool_w, s->width, &w[2], &w[3]);
            float share = 1 / (float)((w[1] - w[0]) * (w[3] - w[2]));
            if (!s->average) {
                give_to_largest(s, image, y, dy, w, dx);
                continue;
            }
            for (size_t u = w[0]; u < w[1]; u++)
                for (size_t v = w[2]; v < w[3]; v++)
                    for (size_t c = 0; c < s->channels; c++)
                        dx[(u * s->width + v) * s->channels + c] += share * dy[c];
        }
    }
}

static bool in_one_window_each(const shape *s)
{
    return s->stride_h == s->pool_h && s->stride_w == s->pool_w && s->pad_top == 0 &&
           s->pad_left == 0 && s->height == s->out_h * s->pool_h &&
           s->width == s->out_w * s->pool_w;
}

static void run_pool2d_backward(void *args)
{
    const mr_math_pool2d_backward *p = args;
    const shape *s = &p->s;
    size_t image = s->height * s->width * s->channels, result = s->out_h * s->out_w * s->channels;
    bool replace = !s->average && in_one_window_each(s);
    /* Last to first: the forward pass ended with the last, which is still in the cache; and the
     * next operation, a convolution's gradient with respect to its weights, begins with the
     * first. */
    for (size_t b = image > 0 ? s->n : 0; b-- > 0;) {
        const float *x = p->x + b * image, *y = p->y + b * result, *dy = p->dy + b * result;
        float *dx = p->dx + b * image;
        if (replace && dx != x)
            memcpy(dx, x, image * sizeof *dx);
        if (replace) {
            replace_image(s, y, dy, dx);
        } else {
            memset(dx, 0, image * sizeof *dx);
            pool_image_backward(s, x, y, dy, dx);
        }
    }
}

MR__CPU_SUBMIT(pool2d)
MR__CPU_SUBMIT(pool2d_backward)
