/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/initializer.h"
#include <math.h>
#include "trainer/random_bits.h"

static const char *const names[MR_N_INITS] = {
    [MR_INIT_ZEROS] = "zeros",
    [MR_INIT_ONES] = "ones",
    [MR_INIT_CONSTANT] = "constant",
    [MR_INIT_GLOROT_UNIFORM] = "glorot_uniform",
    [MR_INIT_GLOROT_NORMAL] = "glorot_normal",
    [MR_INIT_HE_UNIFORM] = "he_uniform",
    [MR_INIT_HE_NORMAL] = "he_normal",
    [MR_INIT_LECUN_UNIFORM] = "lecun_uniform",
    [MR_INIT_LECUN_NORMAL] = "lecun_normal",
    [MR_INIT_RANDOM_UNIFORM] = "random_uniform",
    [MR_INIT_RANDOM_NORMAL] = "random_normal",
};

const char *mr_initializer_name(mr_initializer_kind k)
{
    return names[k];
}

static double unit(uint64_t key, uint64_t i)
{
    return (double)(mr__mix_in(key, i) >> 11) * 0x1p-53;
}

/* Box and Muller's transform; draw `i` is a pure function of key. */
static double normal(uint64_t key, uint64_t i)
{
    double radius = sqrt(-2 * log(1 - unit(key, 2 * i)));
    return radius * cos(2 * 3.14159265358979323846 * unit(key, 2 * i + 1));
}

static void fill_uniform(uint64_t key, double low, double high, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(low + (high - low) * unit(key, i));
}

/* Values beyond two deviations are drawn again; dividing by the deviation of what is left of the
 * normal distribution makes that of the values the one asked for. */
static void fill_truncated(uint64_t key, double deviation, float *out, size_t n)
{
    double scale = deviation / 0.87962566103423978;
    for (size_t i = 0; i < n; i++) {
        double x;
        uint64_t draw = mr__mix_in(key, i);
        for (uint64_t k = 0; fabs(x = normal(draw, k)) > 2; k++)
            ;
        out[i] = (float)(scale * x);
    }
}

void mr_initialize(const mr_initializer *k, uint64_t seed, uint64_t stream, size_t fan_in,
                   size_t fan_out, float *out, size_t n)
{
    uint64_t key = mr__mix_in(mr__mix_in(0, seed), stream);
    double in = fan_in ? (double)fan_in : 1,
           both = fan_in + fan_out ? (double)(fan_in + fan_out) : 1;
    switch (k->kind) {
    case MR_INIT_ZEROS:
    case MR_INIT_ONES:
    case MR_INIT_CONSTANT:
    case MR_N_INITS:
        for (size_t i = 0; i < n; i++)
            out[i] = k->kind == MR_INIT_CONSTANT ? (float)k->a : k->kind == MR_INIT_ONES;
        break;
    case MR_INIT_GLOROT_UNIFORM:
        fill_uniform(key, -sqrt(6 / both), sqrt(6 / both), out, n);
        break;
    case MR_INIT_GLOROT_NORMAL:
        fill_truncated(key, sqrt(2 / both), out, n);
        break;
    case MR_INIT_HE_UNIFORM:
        fill_uniform(key, -sqrt(6 / in), sqrt(6 / in), out, n);
        break;
    case MR_INIT_HE_NORMAL:
        fill_truncated(key, sqrt(2 / in), out, n);
        break;
    case MR_INIT_LECUN_UNIFORM:
        fill_uniform(key, -sqrt(3 / in), sqrt(3 / in), out, n);
        break;
    case MR_INIT_LECUN_NORMAL:
        fill_truncated(key, sqrt(1 / in), out, n);
        break;
    case MR_INIT_RANDOM_UNIFORM:
        fill_uniform(key, k->a, k->b, out, n);
        break;
    case MR_INIT_RANDOM_NORMAL:
        for (size_t i = 0; i < n; i++)
            out[i] = (float)(k->a + k->b * normal(key, i));
        break;
    }
}
