/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: loops whose innermost goes over the channels. */
#include <string.h>
#include "trainer/cpu/operations.h"

typedef mr_math_pool2d_shape shape;

/* A window's rows or columns that lie in the image: [*from, *to). */
static void cut(size_t at, size_t stride, size_t pad, size_t pool, size_t size, size_t *from,
                size_t *to)
{
    size_t start = at * stride, end = start + pool;
    *from = start > pad ? start - pad : 0;
    *to = end > pad ? end - pad : 0;
    *to = *to < size ? *to : size;
}

/* NaN is larger than anything, and stays. */
MR__CPU_CLONES static void keep_larger(size_t n, const float *restrict x, float *restrict y)
{
    for (size_t c = 0; c < n; c++)
        y[c] = x[c] > y[c] || x[c] != x[c] ? x[c] : y[c];
}

MR__CPU_CLONES static void add_scaled(size_t n, float a, const float *restrict x, float *restrict y)
{
    for (size_t c = 0; c < n; c++)
        y[c] += a * x[c];
}

static void pool_window(const shape *s, const float *image, size_t i, size_t j, float *y)
{
    size_t top, bottom, left, right;
    cut(i, s->stride_h, s->pad_top, s->pool_h, s->height, &top, &bottom);
    cut(j, s->stride_w, s->pad_left, s->pool_w, s->width, &left, &right);
    float share = 1 / (float)((bottom - top) * (right - left));
    if (s->average)
        memset(y, 0, s->channels * sizeof *y);
    else
        memcpy(y, image + (top * s->width + left) * s->channels, s->channels * sizeof *y);
    for (size_t u = top; u < bottom; u++)
        for (size_t v = left; v < right; v++) {
            const float *x = image + (u * s->width + v) * s->channels;
            if (s->average)
                add_scaled(s->channels, share, x, y);
            else
                keep_larger(s->channels, x, y);
        }
}

static void run_pool2d(void *args)
{
    const mr_math_pool2d *p = args;
    const shape *s = &p->s;
    float *y = p->y;
    for (size_t b = 0; b < s->n; b++)
        for (size_t i = 0; i < s->out_h; i++)
            for (size_t j = 0; j < s->out_w; j++, y += s->channels)
                pool_window(s, p->x + b * s->height * s->width * s->channels, i, j, y);
}

/* To the first of the window that is y, which is where the forward pass found it. */
static void give_to_largest(const shape *s, const float *image, const float *y, const float *dy,
                            size_t c, const size_t window[4], float *dx)
{
    for (size_t u = window[0]; u < window[1]; u++)
        for (size_t v = window[2]; v < window[3]; v++) {
            size_t at = (u * s->width + v) * s->channels + c;
            if (image[at] == y[c] || (image[at] != image[at] && y[c] != y[c])) {
                dx[at] += dy[c];
                return;
            }
        }
}

static void pool_window_backward(const shape *s, const float *image, const float *y,
                                 const float *dy, size_t i, size_t j, float *dx)
{
    size_t w[4];
    cut(i, s->stride_h, s->pad_top, s->pool_h, s->height, &w[0], &w[1]);
    cut(j, s->stride_w, s->pad_left, s->pool_w, s->width, &w[2], &w[3]);
    float share = 1 / (float)((w[1] - w[0]) * (w[3] - w[2]));
    if (!s->average) {
        for (size_t c = 0; c < s->channels; c++)
            give_to_largest(s, image, y, dy, c, w, dx);
        return;
    }
    for (size_t u = w[0]; u < w[1]; u++)
        for (size_t v = w[2]; v < w[3]; v++)
            add_scaled(s->channels, share, dy, dx + (u * s->width + v) * s->channels);
}

static void run_pool2d_backward(void *args)
{
    const mr_math_pool2d_backward *p = args;
    const shape *s = &p->s;
    size_t image = s->height * s->width * s->channels, at = 0;
    if (s->n * image > 0)
        memset(p->dx, 0, s->n * image * sizeof(float));
    for (size_t b = 0; b < s->n; b++)
        for (size_t i = 0; i < s->out_h; i++)
            for (size_t j = 0; j < s->out_w; j++, at += s->channels)
                pool_window_backward(s, p->x + b * image, p->y + at, p->dy + at, i, j,
                                     p->dx + b * image);
}

MR__CPU_SUBMIT(pool2d)
MR__CPU_SUBMIT(pool2d_backward)
