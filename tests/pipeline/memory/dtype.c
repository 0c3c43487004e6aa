/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/dtype.h"

#include <math.h>
#include <string.h>

#include "tests/harness.h"

MR_ONE_THREAD;

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

MR_TEST(names_and_sizes_go_both_ways)
{
    for (int t = 0; t < MR_N_DTYPES; t++) {
        mr_dtype found = MR_N_DTYPES;
        const char *name = mr_dtype_name((mr_dtype)t);
        mr_check(mr_dtype_find(name, strlen(name), &found));
        mr_eq_i64(found, t);
        mr_check(mr_dtype_size((mr_dtype)t) > 0);
    }
    mr_dtype found = MR_INT8;
    mr_check(mr_dtype_find("bytes", 5, &found));
    mr_eq_i64(found, MR_STRING);
    mr_check(!mr_dtype_find("int6", 4, &found));
    mr_check(!mr_dtype_find("int64x", 6, &found));
    mr_check(mr_dtype_find("int64x", 5, &found));
    mr_eq_i64(found, MR_INT64);
    mr_eq_str(mr_dtype_name(MR_N_DTYPES), "unknown");
}

MR_TEST(kinds_split_the_dtypes)
{
    int n_integer = 0, n_floating = 0;
    for (int t = 0; t < MR_N_DTYPES; t++) {
        mr_check(!(mr_dtype_is_integer((mr_dtype)t) && mr_dtype_is_floating((mr_dtype)t)));
        n_integer += mr_dtype_is_integer((mr_dtype)t);
        n_floating += mr_dtype_is_floating((mr_dtype)t);
    }
    mr_eq_i64(n_integer, 8);
    mr_eq_i64(n_floating, 4);
}

/* What the bits of a half mean, by the definition of the format. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    double magnitude = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -magnitude : magnitude;
}

MR_TEST(every_half_has_its_value_and_comes_back)
{
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        float f = mr_half_to_float(h);
        if ((h & 0x7fff) > 0x7c00) {
            mr_check(isnan(f));
            mr_eq_u64(mr_float_to_half(f), h | 0x200); /* quiet */
            continue;
        }
        if ((h & 0x7fff) == 0x7c00)
            mr_check(isinf(f) && !signbit(f) == !(h & 0x8000));
        else
            mr_check((double)f == half_value(h) && !signbit(f) == !(h & 0x8000));
        mr_eq_u64(mr_float_to_half(f), h);
    }
}

MR_TEST(floats_between_two_halves_round_to_nearest_even)
{
    for (uint32_t i = 0; i < 0x7bff; i++) { /* all neighbours below the largest */
        uint16_t low = (uint16_t)i, high = (uint16_t)(i + 1);
        float middle = (float)((half_value(low) + half_value(high)) / 2); /* exact */
        mr_eq_u64(mr_float_to_half(middle), i % 2 ? high : low);
        mr_eq_u64(mr_float_to_half(nextafterf(middle, 0)), low);
        mr_eq_u64(mr_float_to_half(nextafterf(middle, INFINITY)), high);
        mr_eq_u64(mr_float_to_half(-nextafterf(middle, 0)), low | 0x8000);
    }
    for (uint32_t i = 0; i < 0x7bff; i++) { /* float would round to the middle */
        uint16_t low = (uint16_t)i, high = (uint16_t)(i + 1);
        double middle = (half_value(low) + half_value(high)) / 2;
        mr_eq_u64(mr_double_to_half(middle), i % 2 ? high : low);
        mr_eq_u64(mr_double_to_half(nextafter(middle, 0)), low);
        mr_eq_u64(mr_double_to_half(nextafter(middle, INFINITY)), high);
        mr_eq_u64(mr_double_to_half(-nextafter(middle, INFINITY)), high | 0x8000);
    }
    mr_eq_u64(mr_double_to_half(nextafter(65520, 0)), 0x7bff);
    mr_eq_u64(mr_double_to_half(1e300), 0x7c00);
    mr_eq_u64(mr_double_to_half(-INFINITY), 0xfc00);
    mr_eq_u64(mr_double_to_half(1e-320), 0);
    mr_eq_u64(mr_double_to_half(-1e-320), 0x8000);
    mr_eq_u64(mr_double_to_half((double)NAN) & 0x7e00, 0x7e00);
    mr_eq_u64(mr_double_to_bfloat(0x1.01p0), 0x3f80);
    mr_eq_u64(mr_double_to_bfloat(nextafter(0x1.01p0, 2)), 0x3f81);
    mr_eq_u64(mr_double_to_bfloat(0x1p-134), 0);
    mr_eq_u64(mr_double_to_bfloat(nextafter(0x1p-134, 1)), 1);
    mr_eq_u64(mr_double_to_bfloat(1e300), 0x7f80);
    mr_eq_u64(mr_float_to_half(65519.996F), 0x7bff);
    mr_eq_u64(mr_float_to_half(65520.0F), 0x7c00);
    mr_eq_u64(mr_float_to_half(1e30F), 0x7c00);
    mr_eq_u64(mr_float_to_half(-INFINITY), 0xfc00);
    mr_eq_u64(mr_float_to_half(1e-30F), 0);
}

MR_TEST(every_bfloat_comes_back_and_middles_round_to_even)
{
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t h = (uint16_t)i;
        float f = mr_bfloat_to_float(h);
        mr_eq_u64(bits_of(f), i << 16);
        if (isnan(f)) {
            mr_check(isnan(mr_bfloat_to_float(mr_float_to_bfloat(f))));
            continue;
        }
        mr_eq_u64(mr_float_to_bfloat(f), h);
        if ((h & 0x7fff) == 0x7f80)
            continue;
        float middle, below, above;
        uint32_t bits = i << 16 | 0x8000;
        memcpy(&middle, &bits, 4);
        bits--;
        memcpy(&below, &bits, 4);
        bits += 2;
        memcpy(&above, &bits, 4);
        mr_eq_u64(mr_float_to_bfloat(middle), i + i % 2);
        mr_eq_u64(mr_float_to_bfloat(below), i);
        mr_eq_u64(mr_float_to_bfloat(above), i + 1);
    }
    uint32_t bits = 0x7f800001; /* a NaN whose upper bits are infinity's */
    float f;
    memcpy(&f, &bits, 4);
    mr_eq_u64(mr_float_to_bfloat(f), 0x7fc0);
}
