/* SPDX-License-Identifier: Apache-2.0 */
/* Updates of weights by optimizers, and penalties on weights. Plain loops: they vectorise. */
#include <math.h>
#include "trainer/device/cpu/operations.h"

static bool skipped(const float *skip)
{
    return skip && *skip != 0;
}

MR__CLONES static void descend(size_t n, float rate, const float *restrict g, float *restrict w)
{
    for (size_t i = 0; i < n; i++)
        w[i] -= rate * g[i];
}

MR__CLONES static void move(size_t n, float rate, float momentum, bool nesterov,
                            const float *restrict g, float *restrict w, float *restrict m)
{
    for (size_t i = 0; i < n; i++)
        m[i] = momentum * m[i] - rate * g[i];
    if (nesterov)
        for (size_t i = 0; i < n; i++)
            w[i] += momentum * m[i] - rate * g[i];
    else
        for (size_t i = 0; i < n; i++)
            w[i] += m[i];
}

static void run_sgd(void *args)
{
    const mr_math_sgd *p = args;
    if (skipped(p->skip))
        return;
    if (p->momentum == 0)
        descend(p->n, p->rate, p->g, p->w);
    else
        move(p->n, p->rate, p->momentum, p->nesterov, p->g, p->w, p->m);
}

MR__CLONES static void adam(size_t n, float rate, float keep_1, float keep_2, float epsilon,
                            const float *restrict g, float *restrict w, float *restrict m,
                            float *restrict v)
{
    for (size_t i = 0; i < n; i++) {
        m[i] += (g[i] - m[i]) * keep_1;
        v[i] += (g[i] * g[i] - v[i]) * keep_2;
        w[i] -= m[i] * rate / (sqrtf(v[i]) + epsilon);
    }
}

static void run_adam(void *args)
{
    const mr_math_adam *p = args;
    if (!skipped(p->skip))
        adam(p->n, p->rate, p->keep_1, p->keep_2, p->epsilon, p->g, p->w, p->m, p->v);
}

static void run_rmsprop(void *args)
{
    const mr_math_rmsprop *p = args;
    for (size_t i = 0; i < p->n && !skipped(p->skip); i++) {
        float g = p->g[i], u = p->v[i] += (g * g - p->v[i]) * p->keep;
        if (p->a) {
            float a = p->a[i] += (g - p->a[i]) * p->keep;
            u -= a * a;
        }
        float step = p->rate * g / sqrtf(u + p->epsilon);
        if (p->m)
            step = p->m[i] = p->momentum * p->m[i] + step;
        p->w[i] -= step;
    }
}

MR__CLONES static void adagrad(size_t n, float rate, float epsilon, const float *restrict g,
                               float *restrict w, float *restrict v)
{
    for (size_t i = 0; i < n; i++) {
        v[i] += g[i] * g[i];
        w[i] -= rate * g[i] / sqrtf(v[i] + epsilon);
    }
}

static void run_adagrad(void *args)
{
    const mr_math_adagrad *p = args;
    if (!skipped(p->skip))
        adagrad(p->n, p->rate, p->epsilon, p->g, p->w, p->v);
}

static void run_decay(void *args)
{
    const mr_math_decay *p = args;
    for (size_t i = 0; i < p->n && !skipped(p->skip); i++)
        p->w[i] *= p->factor;
}

static void run_clip(void *args)
{
    const mr_math_clip *p = args;
    float *g = p->g;
    for (size_t i = 0; i < p->n && p->value > 0; i++)
        g[i] = g[i] > p->value ? p->value : g[i] < -p->value ? -p->value : g[i];
    if (!(p->norm > 0) || *p->squares <= (double)p->norm * p->norm)
        return;
    float factor = (float)(p->norm / sqrt(*p->squares));
    for (size_t i = 0; i < p->n; i++)
        g[i] *= factor;
}

static void run_average(void *args)
{
    const mr_math_average *p = args;
    if (skipped(p->skip) || *p->count == 0)
        return;
    for (size_t i = 0; i < p->n; i++)
        p->w[i] += (1 - p->momentum) * (p->sum[i] / *p->count - p->w[i]);
}

static void run_penalty(void *args)
{
    const mr_math_penalty *p = args;
    double l1 = 0, l2 = 0;
    for (size_t i = 0; i < p->n && p->l1 != 0; i++)
        l1 += p->w[i] < 0 ? -p->w[i] : p->w[i];
    for (size_t i = 0; i < p->n && p->l2 != 0; i++)
        l2 += (double)p->w[i] * p->w[i];
    *p->out += p->l1 * l1 + p->l2 * l2;
}

static void run_penalty_backward(void *args)
{
    const mr_math_penalty_backward *p = args;
    const float *w = p->w;
    float *g = p->g;
    if (p->l1 != 0)
        for (size_t i = 0; i < p->n; i++)
            g[i] += w[i] > 0 ? p->l1 : w[i] < 0 ? -p->l1 : 0;
    if (p->l2 != 0)
        for (size_t i = 0; i < p->n; i++)
            g[i] += p->l2 * w[i];
}

MR__CPU_SUBMIT(sgd)
MR__CPU_SUBMIT(adam)
MR__CPU_SUBMIT(rmsprop)
MR__CPU_SUBMIT(adagrad)
MR__CPU_SUBMIT(decay)
MR__CPU_SUBMIT(clip)
MR__CPU_SUBMIT(average)
MR__CPU_SUBMIT(penalty)
MR__CPU_SUBMIT(penalty_backward)
