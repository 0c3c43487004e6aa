/* SPDX-License-Identifier: Apache-2.0 */
/* x // d and x % d by a constant, which multiply and shift, against division in 128 bits, and
 * x * d, which shifts by powers of two: all integer types; constants around 0, powers of two and
 * the ends of each type; blocks of 1 to many values. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/ops/sources.h"
#include "pipeline/ops/apply.h"
#include "tests/harness.h"

MR_ONE_THREAD;

enum { VALUES = 1200 };

typedef struct type {
    mr_dtype dtype;
    int bits;
    bool is_signed;
} type;

static const type types[] = {{MR_INT8, 8, true},     {MR_INT16, 16, true},  {MR_INT32, 32, true},
                             {MR_INT64, 64, true},   {MR_UINT8, 8, false},  {MR_UINT16, 16, false},
                             {MR_UINT32, 32, false}, {MR_UINT64, 64, false}};

__extension__ typedef __int128 wide;

static wide lowest(type t)
{
    return t.is_signed ? -((wide)1 << (t.bits - 1)) : 0;
}

static wide highest(type t)
{
    return ((wide)1 << (t.bits - t.is_signed)) - 1;
}

static wide get(type t, const void *p, size_t i)
{
    switch (t.dtype) {
    case MR_INT8:
        return ((const int8_t *)p)[i];
    case MR_INT16:
        return ((const int16_t *)p)[i];
    case MR_INT32:
        return ((const int32_t *)p)[i];
    case MR_INT64:
        return ((const int64_t *)p)[i];
    case MR_UINT8:
        return ((const uint8_t *)p)[i];
    case MR_UINT16:
        return ((const uint16_t *)p)[i];
    case MR_UINT32:
        return ((const uint32_t *)p)[i];
    default:
        return ((const uint64_t *)p)[i];
    }
}

/* Values at both ends, around 0 and around multiples of d; the rest are random. */
static void fill(type t, wide d, void *to)
{
    static uint64_t state;
    state = state ? state : mr_test_seed();
    for (int i = 0; i < VALUES; i++) {
        uint64_t random = mr_test_random(&state);
        wide x = i < 20    ? lowest(t) + i
                 : i < 40  ? highest(t) - (i - 20)
                 : i < 60  ? i - 50
                 : i < 300 ? d * (wide)(i - 180) + (int)(random % 3) - 1
                           : (wide)(random >> (random % 64));
        uint64_t low = (uint64_t)x;
        memcpy((char *)to + (size_t)i * (size_t)(t.bits / 8), &low, (size_t)t.bits / 8);
    }
}

static void check(type t, wide d, const char *op, int64_t block)
{
    static uint64_t memory[VALUES];
    char text[300], number[128];
    mr_status st;
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    fill(t, d, memory);
    mr_array a = {.dtype = t.dtype, .rows = VALUES, .data = memory};
    mr_ok(mr_buffer_wrap(&a.owner, memory, sizeof memory, true, NULL, NULL, &st), &st);
    /* INT64_MIN has no literal. */
    if (d == INT64_MIN)
        snprintf(number, sizeof number, "(%" PRId64 " - 1)", INT64_MIN + 1);
    else if (d > INT64_MAX)
        snprintf(number, sizeof number, "(cast(%" PRId64 ", \"uint64\") * 2 + %d)",
                 (int64_t)(d / 2), (int)(d % 2));
    else
        snprintf(number, sizeof number, "%" PRId64, (int64_t)d);
    bool left = *op == '*' && block % 2; /* the constant on the left, every other time */
    snprintf(text, sizeof text, "x => %s %s %s", left ? number : "x", op, left ? "x" : number);
    mr_dataset *ds = mr_map(mr_from_arrays(&a, NULL, 1), mr_fn_text(text), NULL);
    const mr_iterator_opts opts = {.block_rows = block, .has_threads = true};
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    size_t at = 0;
    mr_code rc;
    while ((rc = mr_iterator_next(it, VALUES, &b, &st)) == MR_OK)
        for (size_t i = 0; i < b.rows; i++, at++) {
            wide x = get(t, memory, at), q = 0;
            if (*op != '*')
                q = x / d - (x % d != 0 && (x < 0) != (d < 0));
            uint64_t expected = *op == '*'   ? (uint64_t)x * (uint64_t)d
                                : *op == '%' ? (uint64_t)(x - q * d)
                                             : (uint64_t)q;
            uint64_t found = (uint64_t)get(t, mr_array_at(&b.columns[0], i), 0);
            uint64_t bits = t.bits == 64 ? UINT64_MAX : ((uint64_t)1 << t.bits) - 1;
            if ((found & bits) != (expected & bits))
                mr_fail_test("%s of %s: value %zu, %" PRId64 ", is %" PRIu64 ", not %" PRIu64, text,
                             mr_dtype_name(t.dtype), at, (int64_t)x, found & bits, expected & bits);
        }
    mr_check(rc == MR_END && at == VALUES);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_buffer_unref(a.owner);
}

static void check_all(int64_t block)
{
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        type t = types[k];
        wide divisors[64];
        size_t n = 0;
        for (int d = -12; d <= 12; d++)
            divisors[n++] = d;
        for (int i = 0; i < 3; i++) {
            divisors[n++] = lowest(t) + i;
            divisors[n++] = highest(t) - i;
            divisors[n++] = ((wide)1 << (t.bits / 2)) + i - 1;
            divisors[n++] = -((wide)1 << (t.bits / 2)) + i - 1;
            divisors[n++] = ((wide)1 << (t.bits - 2)) + i - 1;
        }
        divisors[n++] = 100;
        divisors[n++] = highest(t) / 3;
        for (size_t i = 0; i < n; i++)
            if (divisors[i] >= lowest(t) && divisors[i] <= highest(t)) {
                check(t, divisors[i], "*", block);
                if (divisors[i] == 0)
                    continue;
                check(t, divisors[i], "//", block);
                check(t, divisors[i], "%", block);
            }
    }
}

MR_TEST(constant_divisors_divide_as_others)
{
    check_all(0); /* the default */
}

MR_TEST(constants_on_the_left_multiply_as_others)
{
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        for (int d = -3; d <= 65; d++)
            if (d >= 0 || types[k].is_signed)
                check(types[k], d, "*", 1001);
}

/* Fewer values than a multiplier is made for, and a few more. */
MR_TEST_SLOW(constant_divisors_in_small_blocks)
{
    check_all(7);
    check_all(17);
}
