/* SPDX-License-Identifier: Apache-2.0 */
/* Shortest decimal digits of floats: Raffaello Giulietti, "The Schubfach way to render doubles"
 * (2020). A float is c * 2^q. Of the decimals that round to it, at most one has the spacing
 * 10^(k+1), where 10^k is the largest power of ten below the width of the rounding interval;
 * otherwise the nearest of spacing 10^k is taken. Three products with a 126-bit power of ten,
 * rounded to odd, decide all comparisons exactly.
 *
 * The paper's table of 617 powers is not stored but computed when the first float is printed (about
 * 50 microseconds). */
#include "pipeline/params/float_digits.h"

#include <pthread.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

enum { MIN_POWER = -292, MAX_POWER = 324, LIMBS = 40 };
#define LOW_63 (UINT64_MAX >> 1)

/* Entry i: floor(b) + 1 in two halves of 63 bits, where 10^(i + MIN_POWER) = b * 2^r and
 * 2^125 <= b < 2^126. */
static struct power {
    uint64_t high, low;
} powers[MAX_POWER - MIN_POWER + 1];

/* x is a number of LIMBS 32-bit limbs, the lowest first; its top 126 bits are used. */
static void set_power(int exponent, const uint32_t *x)
{
    int top = LIMBS - 1;
    while (!x[top])
        top--;
    int zeros = __builtin_clz(x[top]);
    u128 b = 0;
    for (int i = 0; i < 4; i++)
        b = b << 32 | x[top - i];
    if (zeros)
        b = b << zeros | x[top - 4] >> (32 - zeros);
    b = (b >> 2) + 1;
    powers[exponent - MIN_POWER] = (struct power){(uint64_t)(b >> 63), (uint64_t)b & LOW_63};
}

/* Only the leading bits of a power matter, so each series starts at a power of two that leaves it
 * enough limbs. The rising series is exact. In the falling one, dividing a rounded-down quotient
 * again yields the rounded-down quotient of all divisors. */
static void set_powers(void)
{
    uint32_t x[LIMBS] = {[4] = 1};
    for (int e = 0; e <= MAX_POWER; e++) {
        set_power(e, x);
        uint64_t carry = 0;
        for (int i = 0; i < LIMBS; i++) {
            carry += (uint64_t)x[i] * 10;
            x[i] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    memset(x, 0, sizeof x);
    x[LIMBS - 1] = 1;
    for (int e = -1; e >= MIN_POWER; e--) {
        uint64_t rest = 0;
        for (int i = LIMBS - 1; i >= 0; i--) {
            rest = rest << 32 | x[i];
            x[i] = (uint32_t)(rest / 10);
            rest %= 10;
        }
        set_power(e, x);
    }
}

/* x * power / 2^127, rounded to odd: the last bit is also set if the result is inexact. */
static uint64_t times_power(uint64_t x, struct power p)
{
    uint64_t middle = (uint64_t)((u128)p.low * x >> 64);
    u128 high = (u128)p.high * x;
    middle += (uint64_t)high >> 1;
    uint64_t whole = (uint64_t)(high >> 64) + (middle >> 63);
    return whole | ((middle & LOW_63) != 0);
}

/* floor(log2(10^e)), floor(log10(2^e)) and floor(log10(3/4 * 2^e)) for |e| <= 1233 */
static int log2_of_10(int e)
{
    return (int)((e * INT64_C(913124641741)) >> 38);
}
static int log10_of_2(int e)
{
    return (int)((e * INT64_C(661971961083)) >> 41);
}
static int log10_of_3_quarters(int e)
{
    return (int)((e * INT64_C(661971961083) - INT64_C(274743187321)) >> 41);
}

/* Returns d and *k such that d * 10^k is the shortest decimal that rounds to c * 2^q; among several
 * shortest ones, the nearest. d may end in zeros. closer_below: the next float below is half as far
 * away as the next one above. */
static uint64_t shortest(uint64_t c, int q, bool closer_below, int *k)
{
    uint64_t odd = c & 1; /* ties round to even: the ends of the interval belong to an even c */
    *k = closer_below ? log10_of_3_quarters(q) : log10_of_2(q);
    struct power p = powers[-*k - MIN_POWER];
    int shift = q + log2_of_10(-*k) + 2;
    /* Four times the value and the ends of its interval, in units of 10^k. */
    uint64_t value = times_power((4 * c) << shift, p);
    uint64_t low = times_power((4 * c - (closer_below ? 1 : 2)) << shift, p) + odd;
    uint64_t high = times_power((4 * c + 2) << shift, p) - odd;
    uint64_t s = value >> 2;
    if (s >= 10) {
        uint64_t below = s / 10 * 10;
        bool below_in = low <= 4 * below, above_in = 4 * (below + 10) <= high;
        if (below_in != above_in)
            return below_in ? below : below + 10;
    }
    bool below_in = low <= 4 * s, above_in = 4 * (s + 1) <= high;
    if (below_in != above_in)
        return below_in ? s : s + 1;
    uint64_t middle = 4 * s + 2;
    return value < middle || (value == middle && !(s & 1)) ? s : s + 1;
}

/* Writes the digits of d before `end`; returns the first. */
static char *put_digits(uint64_t d, char *end)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    for (; d >= 100; d /= 100)
        memcpy(end -= 2, pairs + d % 100 * 2, 2);
    if (d >= 10)
        memcpy(end -= 2, pairs + d * 2, 2);
    else
        *--end = (char)('0' + d);
    return end;
}

size_t mr_float_digits(mr_dtype t, double v, char digits[MR_FLOAT_DIGITS], int *exponent)
{
    static const struct {
        int mantissa_bits, least_exponent;
    } formats[] = {[MR_FLOAT16 - MR_FLOAT16] = {10, -24},
                   [MR_BFLOAT16 - MR_FLOAT16] = {7, -133},
                   [MR_FLOAT32 - MR_FLOAT16] = {23, -149},
                   [MR_FLOAT64 - MR_FLOAT16] = {52, -1074}};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_powers);
    digits[0] = '0';
    *exponent = 0;
    if (v == 0)
        return 1;
    int bits = formats[t - MR_FLOAT16].mantissa_bits, k;
    int least_q = formats[t - MR_FLOAT16].least_exponent;
    uint64_t c;
    memcpy(&c, &v, sizeof c);
    int biased = (int)(c >> 52 & 0x7ff);
    c = (c & ((UINT64_C(1) << 52) - 1)) | (uint64_t)(biased > 0) << 52;
    int q = (biased ? biased : 1) - 1023 - bits; /* for a mantissa cut to `bits` */
    int cut = 52 - bits;
    if (q < least_q) {
        cut += least_q - q;
        q = least_q;
    }
    c >>= cut;
    uint64_t d = shortest(c, q, c == UINT64_C(1) << bits && q > least_q, &k);
    for (; d % 10 == 0; d /= 10)
        k++;
    char text[MR_FLOAT_DIGITS];
    const char *first = put_digits(d, text + sizeof text);
    size_t n = (size_t)(text + sizeof text - first);
    memcpy(digits, first, n);
    *exponent = k + (int)n - 1;
    return n;
}
