/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/params/float_digits.h"
#include "tests/harness.h"

MR_ONE_THREAD;

/* The value of t that digits * 10^exponent reads as. */
static double read_back(mr_dtype t, const char *digits, size_t n, int exponent)
{
    char text[64];
    snprintf(text, sizeof text, "%.*se%d", (int)n, digits, exponent - (int)n + 1);
    switch (t) {
    case MR_FLOAT16:
        return (double)mr_half_to_float(mr_float_to_half(strtof(text, NULL)));
    case MR_BFLOAT16:
        return (double)mr_bfloat_to_float(mr_float_to_bfloat(strtof(text, NULL)));
    case MR_FLOAT32:
        return (double)strtof(text, NULL);
    default:
        return strtod(text, NULL);
    }
}

/* The digits read back; no decimal with a digit less does; printf's digits, the nearest of that
 * many, are the same wherever they read back. */
static void check(mr_dtype t, double v)
{
    char digits[MR_FLOAT_DIGITS], nearest[40];
    int exponent;
    if (!isfinite(v))
        return;
    mr_test_context("%s %a", mr_dtype_name(t), v);
    v = fabs(v);
    size_t n = mr_float_digits(t, v, digits, &exponent);
    mr_check(n >= 1 && n <= MR_FLOAT_DIGITS);
    mr_check(read_back(t, digits, n, exponent) == v);
    if (v == 0)
        return;
    mr_check(digits[0] != '0' && (n == 1 || digits[n - 1] != '0'));
    if (n > 1) {
        /* The neighbours with a digit less: cut off, and one more in the last place. */
        char shorter[MR_FLOAT_DIGITS + 1];
        snprintf(shorter, sizeof shorter, "%.*s", (int)n - 1, digits);
        mr_check(read_back(t, shorter, n - 1, exponent) != v);
        snprintf(shorter, sizeof shorter, "%llu", strtoull(shorter, NULL, 10) + 1);
        int carried = (int)(strlen(shorter) - (n - 1));
        mr_check(read_back(t, shorter, strlen(shorter), exponent + carried) != v);
    }
    snprintf(nearest, sizeof nearest, "%.*e", (int)n - 1, v);
    if (n > 1)
        memmove(nearest + 1, nearest + 2, strlen(nearest + 1)); /* the point */
    int printed = atoi(nearest + n + 1);
    if (read_back(t, nearest, n, printed) == v) {
        mr_eq_i64(exponent, printed);
        mr_check(memcmp(nearest, digits, n) == 0);
    }
}

static double double_of(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static double float_of(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return (double)v;
}

MR_TEST(every_float_of_16_bits_is_shortest)
{
    for (unsigned i = 0; i < 0x8000; i++) {
        check(MR_FLOAT16, (double)mr_half_to_float((uint16_t)i));
        check(MR_BFLOAT16, (double)mr_bfloat_to_float((uint16_t)i));
    }
}

MR_TEST(random_bits_are_shortest)
{
    uint64_t state = mr_test_seed();
    for (int i = mr_test_long() ? 1000000 : 100000; i > 0; i--) {
        uint64_t bits = mr_test_random(&state);
        check(MR_FLOAT64, double_of(bits));
        check(MR_FLOAT32, float_of((uint32_t)bits));
        check(MR_FLOAT64, (double)(bits >> 40) / 1000);
        check(MR_FLOAT64, (double)(bits >> (bits & 63)));
    }
}

MR_TEST(powers_and_their_neighbours_are_shortest)
{
    for (int e = -1074; e < 1024; e++)
        for (int step = -1; step <= 1; step++)
            check(MR_FLOAT64, step ? nextafter(ldexp(1, e), step * HUGE_VAL) : ldexp(1, e));
    for (int e = -149; e < 128; e++)
        for (int step = -1; step <= 1; step++)
            check(MR_FLOAT32, (double)(step ? nextafterf(ldexpf(1, e), (float)step * HUGE_VALF)
                                            : ldexpf(1, e)));
    for (int e = -323; e <= 308; e++) {
        char text[16];
        snprintf(text, sizeof text, "1e%d", e);
        double v = strtod(text, NULL);
        check(MR_FLOAT64, v);
        check(MR_FLOAT64, nextafter(v, 0));
        check(MR_FLOAT64, nextafter(v, HUGE_VAL));
    }
}

MR_TEST(known_values_have_known_digits)
{
    static const struct {
        mr_dtype t;
        double v;
        const char *digits;
        int exponent;
    } cases[] = {{MR_FLOAT64, 0, "0", 0},
                 {MR_FLOAT64, 0.1, "1", -1},
                 {MR_FLOAT32, (double)0.1F, "1", -1},
                 {MR_FLOAT64, (double)0.1F, "10000000149011612", -1},
                 {MR_FLOAT64, 5e-324, "5", -324},
                 {MR_FLOAT64, 0x1p-1022, "22250738585072014", -308},
                 {MR_FLOAT64, 0x1.fffffffffffffp1023, "17976931348623157", 308},
                 {MR_FLOAT32, 0x1p-149, "1", -45},
                 {MR_FLOAT32, 0x1.fffffep127, "34028235", 38},
                 {MR_FLOAT64, 9007199254740993.0, "9007199254740992", 15},
                 {MR_FLOAT64, 1e23, "1", 23},
                 {MR_FLOAT64, 0x1p-44, "5684341886080802", -14},
                 {MR_FLOAT16, 65504, "655", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char digits[MR_FLOAT_DIGITS + 1] = "";
        int exponent;
        mr_test_context("%s %a", mr_dtype_name(cases[i].t), cases[i].v);
        size_t n = mr_float_digits(cases[i].t, -cases[i].v, digits, &exponent);
        digits[n < MR_FLOAT_DIGITS ? n : MR_FLOAT_DIGITS] = '\0';
        mr_eq_str(digits, cases[i].digits);
        mr_eq_i64(exponent, cases[i].exponent);
    }
}
