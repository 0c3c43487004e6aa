/* SPDX-License-Identifier: Apache-2.0 */
/* Updates of the variables. A failed step leaves them unchanged: *skip is the same word for all
 * threads and stays in the cache. */
#include "trainer/device/cuda/kernels/kernel.h"

MR_HD void sgd_at(const mr_math_sgd &p, int64_t i)
{
    if (p.skip && *p.skip != 0)
        return;
    if (!p.m) {
        p.w[i] -= p.rate * p.g[i];
        return;
    }
    float m = p.momentum * p.m[i] - p.rate * p.g[i];
    p.m[i] = m;
    p.w[i] += p.nesterov ? p.momentum * m - p.rate * p.g[i] : m;
}
MR_KERNEL(sgd, mr_math_sgd, p.n)

MR_HD void adam_at(const mr_math_adam &p, int64_t i)
{
    if (p.skip && *p.skip != 0)
        return;
    float g = p.g[i], m = p.m[i], v = p.v[i];
    m += (g - m) * p.keep_1;
    v += (g * g - v) * p.keep_2;
    p.m[i] = m;
    p.v[i] = v;
    p.w[i] -= m * p.rate / (sqrtf(v) + p.epsilon);
}
MR_KERNEL(adam, mr_math_adam, p.n)

MR_HD void average_at(const mr_math_average &p, int64_t i)
{
    if ((p.skip && *p.skip != 0) || *p.count == 0)
        return;
    p.w[i] += (1 - p.momentum) * (p.sum[i] / *p.count - p.w[i]);
}
MR_KERNEL(average, mr_math_average, p.n)

MR_HD void rmsprop_at(const mr_math_rmsprop &p, int64_t i)
{
    if (p.skip && *p.skip != 0)
        return;
    float g = p.g[i], v = p.v[i], u;
    v += (g * g - v) * p.keep;
    p.v[i] = u = v;
    if (p.a) {
        float a = p.a[i];
        a += (g - a) * p.keep;
        p.a[i] = a;
        u -= a * a;
    }
    float step = p.rate * g / sqrtf(u + p.epsilon);
    if (p.m)
        p.m[i] = step = p.momentum * p.m[i] + step;
    p.w[i] -= step;
}
MR_KERNEL(rmsprop, mr_math_rmsprop, p.n)

MR_HD void adagrad_at(const mr_math_adagrad &p, int64_t i)
{
    if (p.skip && *p.skip != 0)
        return;
    float g = p.g[i], v = p.v[i] + g * g;
    p.v[i] = v;
    p.w[i] -= p.rate * g / sqrtf(v + p.epsilon);
}
MR_KERNEL(adagrad, mr_math_adagrad, p.n)

MR_HD void decay_at(const mr_math_decay &p, int64_t i)
{
    if (!p.skip || *p.skip == 0)
        p.w[i] *= p.factor;
}
MR_KERNEL(decay, mr_math_decay, p.n)

MR_HD void clip_at(const mr_math_clip &p, int64_t i)
{
    float g = p.g[i];
    if (p.value > 0)
        g = g > p.value ? p.value : g < -p.value ? -p.value : g;
    if (p.norm > 0 && !(*p.squares <= (double)p.norm * p.norm))
        g *= (float)(p.norm / sqrt(*p.squares));
    p.g[i] = g;
}
MR_KERNEL(clip, mr_math_clip, p.n)
