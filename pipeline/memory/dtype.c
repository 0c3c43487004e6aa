/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/dtype.h"

#include <string.h>

#include "pipeline/memory/array.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[MR_N_DTYPES] = {
    [MR_BOOL] = {"bool", 1},
    [MR_INT8] = {"int8", 1},
    [MR_INT16] = {"int16", 2},
    [MR_INT32] = {"int32", 4},
    [MR_INT64] = {"int64", 8},
    [MR_UINT8] = {"uint8", 1},
    [MR_UINT16] = {"uint16", 2},
    [MR_UINT32] = {"uint32", 4},
    [MR_UINT64] = {"uint64", 8},
    [MR_FLOAT16] = {"float16", 2},
    [MR_BFLOAT16] = {"bfloat16", 2},
    [MR_FLOAT32] = {"float32", 4},
    [MR_FLOAT64] = {"float64", 8},
    [MR_STRING] = {"string", sizeof(mr_bytes)},
    [MR_DATASET] = {"dataset", sizeof(void *)},
};

size_t mr_dtype_size(mr_dtype t)
{
    return dtypes[t].size;
}

const char *mr_dtype_name(mr_dtype t)
{
    return (unsigned)t < MR_N_DTYPES ? dtypes[t].name : "unknown";
}

static bool is(const char *name, const char *s, size_t n)
{
    return strlen(name) == n && memcmp(name, s, n) == 0;
}

bool mr_dtype_find(const char *name, size_t n, mr_dtype *out)
{
    for (unsigned i = 0; i < MR_N_DTYPES; i++) {
        if (is(dtypes[i].name, name, n)) {
            *out = (mr_dtype)i;
            return true;
        }
    }
    if (!is("bytes", name, n))
        return false;
    *out = MR_STRING;
    return true;
}

bool mr_dtype_is_integer(mr_dtype t)
{
    return t >= MR_INT8 && t <= MR_UINT64;
}

bool mr_dtype_is_floating(mr_dtype t)
{
    return t >= MR_FLOAT16 && t <= MR_FLOAT64;
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Drops the low n bits of x, rounding to nearest, ties to even. 0 < n < 32 */
static uint32_t round_off(uint32_t x, unsigned n)
{
    uint32_t odd = (x >> n) & 1;
    return (x + (1U << (n - 1)) - 1 + odd) >> n;
}

float mr_half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    if (exponent == 31) /* infinity or NaN */
        return float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24, exact */
        float f = (float)mantissa * 0x1p-24F;
        return float_of(sign | bits_of(f));
    }
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t mr_float_to_half(float f)
{
    uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000, x = bits & 0x7fffffff, h;
    if (x > 0x7f800000) /* NaN: made quiet, keeps the upper bits of the payload */
        h = 0x7e00 | (x >> 13 & 0x3ff);
    else if (x >= 0x47800000) /* 65536 and up */
        h = 0x7c00;
    else if (x >= 0x38800000) /* normal; may round up to infinity, whose bits follow the largest */
        h = round_off(x - (112U << 23), 13);
    else if (x >= 0x33000000) /* subnormal: in units of 2^-24 */
        h = round_off((x & 0x7fffff) | 0x800000, 126 - (x >> 23));
    else
        h = 0;
    return (uint16_t)(sign | h);
}

float mr_bfloat_to_float(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t mr_float_to_bfloat(float f)
{
    uint32_t bits = bits_of(f);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40); /* NaN: the upper bits alone may mean infinity */
    return (uint16_t)round_off(bits, 16);
}

/* d as a float whose last bit is set unless it is exact: rounding that further is rounding d. */
static float to_odd(double d)
{
    float f = (float)d;
    if ((double)f == d || d != d)
        return f;
    bool away = d > 0 ? (double)f > d : (double)f < d;
    return float_of((bits_of(f) - away) | 1);
}

uint16_t mr_double_to_half(double d)
{
    return mr_float_to_half(to_odd(d));
}

uint16_t mr_double_to_bfloat(double d)
{
    return mr_float_to_bfloat(to_odd(d));
}
