/* SPDX-License-Identifier: Apache-2.0 */
/* Batch and layer normalization. Values are visited in memory order; columns in blocks, with an
 * accumulator for each. */
#include <math.h>
#include "trainer/device/cpu/operations.h"

enum { BLOCK = 64 };

static size_t block_end(size_t from, size_t width)
{
    return width - from < BLOCK ? width : from + BLOCK;
}

static void column_moments(const mr_math_moments *p, size_t from)
{
    double sum[BLOCK] = {0}, squares[BLOCK] = {0};
    size_t end = block_end(from, p->width), n = end - from;
    double rows = p->rows ? (double)p->rows : 1;
    for (size_t r = 0; r < p->rows; r++)
        for (size_t j = 0; j < n; j++)
            sum[j] += p->x[r * p->width + from + j];
    for (size_t j = 0; j < n; j++)
        sum[j] /= rows;
    for (size_t r = 0; r < p->rows; r++)
        for (size_t j = 0; j < n; j++) {
            double d = p->x[r * p->width + from + j] - sum[j];
            squares[j] += d * d;
        }
    for (size_t j = 0; j < n; j++) {
        p->mean[from + j] = (float)sum[j];
        p->variance[from + j] = (float)(squares[j] / rows);
    }
}

static void row_moments(const mr_math_moments *p, size_t r)
{
    const float *x = p->x + r * p->width;
    double sum = 0, squares = 0, n = p->width ? (double)p->width : 1;
    for (size_t j = 0; j < p->width; j++)
        sum += x[j];
    sum /= n;
    for (size_t j = 0; j < p->width; j++)
        squares += (x[j] - sum) * (x[j] - sum);
    p->mean[r] = (float)sum;
    p->variance[r] = (float)(squares / n);
}

static void run_moments(void *args)
{
    const mr_math_moments *p = args;
    if (p->by_row)
        for (size_t r = 0; r < p->rows; r++)
            row_moments(p, r);
    else
        for (size_t from = 0; from < p->width; from += BLOCK)
            column_moments(p, from);
}

static void run_normalize(void *args)
{
    const mr_math_normalize *p = args;
    for (size_t r = 0; r < p->rows; r++)
        for (size_t j = 0; j < p->width; j++) {
            size_t i = r * p->width + j, k = p->by_row ? r : j;
            float y = (p->x[i] - p->mean[k]) / sqrtf(p->variance[k] + p->epsilon);
            p->y[i] = y * (p->gamma ? p->gamma[j] : 1) + (p->beta ? p->beta[j] : 0);
        }
}

typedef mr_math_normalize_backward backward;

static float inverse(const backward *p, size_t k)
{
    return 1 / sqrtf(p->variance[k] + p->epsilon);
}

/* With h = (x - mean) / deviation and e = dy gamma, over the group that shares the moments:
 *     dx = (e - mean(e) - h mean(e h)) / deviation */
static void column_backward(const backward *p, size_t from)
{
    double sum[BLOCK] = {0}, product[BLOCK] = {0};
    float inv[BLOCK];
    size_t end = block_end(from, p->width), n = end - from;
    for (size_t j = 0; j < n; j++)
        inv[j] = inverse(p, from + j);
    for (size_t r = 0; r < p->rows; r++)
        for (size_t j = 0; j < n; j++) {
            size_t i = r * p->width + from + j;
            sum[j] += p->dy[i];
            product[j] += p->dy[i] * ((p->x[i] - p->mean[from + j]) * inv[j]);
        }
    for (size_t j = 0; j < n; j++) {
        if (p->dgamma)
            p->dgamma[from + j] = (float)product[j];
        if (p->dbeta)
            p->dbeta[from + j] = (float)sum[j];
    }
    for (size_t r = 0; p->dx && r < p->rows; r++)
        for (size_t j = 0; j < n; j++) {
            size_t i = r * p->width + from + j;
            float h = (p->x[i] - p->mean[from + j]) * inv[j];
            float gamma = p->gamma ? p->gamma[from + j] : 1;
            double mean = sum[j] / (double)p->rows, mean_h = product[j] / (double)p->rows;
            p->dx[i] = (float)((p->dy[i] - mean - h * mean_h) * gamma * inv[j]);
        }
}

static void row_backward(const backward *p, size_t r)
{
    const float *x = p->x + r * p->width, *dy = p->dy + r * p->width;
    float inv = inverse(p, r), *dx = p->dx + r * p->width;
    double sum = 0, product = 0;
    for (size_t j = 0; j < p->width; j++) {
        float e = dy[j] * (p->gamma ? p->gamma[j] : 1);
        sum += e;
        product += e * ((x[j] - p->mean[r]) * inv);
    }
    sum /= (double)p->width;
    product /= (double)p->width;
    for (size_t j = 0; j < p->width; j++) {
        float e = dy[j] * (p->gamma ? p->gamma[j] : 1), h = (x[j] - p->mean[r]) * inv;
        dx[j] = (float)((e - sum - h * product) * inv);
    }
}

static void row_parameters(const backward *p, size_t from)
{
    double sum[BLOCK] = {0}, product[BLOCK] = {0};
    size_t end = block_end(from, p->width), n = end - from;
    for (size_t r = 0; r < p->rows; r++) {
        float inv = inverse(p, r);
        for (size_t j = 0; j < n; j++) {
            size_t i = r * p->width + from + j;
            sum[j] += p->dy[i];
            product[j] += p->dy[i] * ((p->x[i] - p->mean[r]) * inv);
        }
    }
    for (size_t j = 0; j < n; j++) {
        if (p->dgamma)
            p->dgamma[from + j] = (float)product[j];
        if (p->dbeta)
            p->dbeta[from + j] = (float)sum[j];
    }
}

static void run_normalize_backward(void *args)
{
    const backward *p = args;
    for (size_t from = 0; from < p->width; from += BLOCK)
        if (p->by_row)
            row_parameters(p, from); /* before dx, which may be dy */
        else
            column_backward(p, from);
    for (size_t r = 0; p->by_row && p->dx && r < p->rows; r++)
        row_backward(p, r);
}

static void run_share_moments(void *args)
{
    const mr_math_share_moments *p = args;
    float rows = (float)p->rows;
    for (size_t j = 0; j < p->width; j++) {
        float d = p->mean[j] - p->shift[j];
        p->sums[j] = rows * d;
        p->sums[p->width + j] = rows * (p->variance[j] + d * d);
    }
    p->sums[2 * p->width] = rows;
}

static void run_joint_moments(void *args)
{
    const mr_math_joint_moments *p = args;
    float rows = p->sums[2 * p->width] > 0 ? p->sums[2 * p->width] : 1;
    for (size_t j = 0; j < p->width; j++) {
        float d = p->sums[j] / rows, variance = p->sums[p->width + j] / rows - d * d;
        p->mean[j] = p->shift[j] + d;
        p->variance[j] = variance < 0 ? 0 : variance;
    }
}

static void run_joint_backward(void *args)
{
    const mr_math_joint_backward *p = args;
    float n = *p->n > 0 ? *p->n : 1;
    for (size_t r = 0; r < p->rows; r++)
        for (size_t j = 0; j < p->width; j++) {
            size_t i = r * p->width + j;
            float inv = 1 / sqrtf(p->variance[j] + p->epsilon), h = (p->x[i] - p->mean[j]) * inv;
            float gamma = p->gamma ? p->gamma[j] : 1;
            p->dx[i] = (p->dy[i] - p->dbeta[j] / n - h * p->dgamma[j] / n) * gamma * inv;
        }
}

MR__CPU_SUBMIT(moments)
MR__CPU_SUBMIT(normalize)
MR__CPU_SUBMIT(normalize_backward)
MR__CPU_SUBMIT(share_moments)
MR__CPU_SUBMIT(joint_moments)
MR__CPU_SUBMIT(joint_backward)
