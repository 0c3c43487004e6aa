/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRAINER_MATH_BENCH_H
#define MR_TESTS_TRAINER_MATH_BENCH_H
/* What the tests of a device's operations share: they run on the devices that MR_TEST_DEVICES names
 * ("cuda:0,cpu:0"; default cpu:0), and touch device memory by copies alone. */
#include "tests/harness.h"
#include "trainer/device/math.h"

enum { MAX_BLOCKS = 64 };

/* A device, a stream, and what a test has allocated; every block ends in a guard. */
typedef struct bench {
    mr_device *d;
    mr_stream *s;
    const mr_math_table *m;
    size_t n_blocks;
    void *blocks[MAX_BLOCKS];
    size_t bytes[MAX_BLOCKS];
    uint64_t seed;
} bench;

/* Device memory with bytes of src in it, or the pattern of a NaN where src is NULL. */
void *put(bench *b, const void *src, size_t bytes);
float *put_floats(bench *b, const float *x, size_t n);
/* A copy on the host, to be freed. */
void *get(bench *b, const void *p, size_t bytes);
/* Frees all blocks; nothing may have been written beyond one. */
void drop_blocks(bench *b);
/* n values between -2 and 2, some of them 0; to be freed. */
float *draw(bench *b, size_t n);
/* Rounds to values that bfloat16 has. */
void round_where(bool bfloat, float *x, size_t n);
double *doubles(size_t n); /* zeros, to be freed */
/* Checks device values against expected ones, which it frees. */
void expect(bench *b, const float *p, double *want, size_t n, double tolerance);

void on_devices(void (*test)(bench *b));
#define ON_DEVICES(name)                                                                           \
    static void name##_on(bench *b);                                                               \
    MR_TEST(name)                                                                                  \
    {                                                                                              \
        on_devices(name##_on);                                                                     \
    }                                                                                              \
    static void name##_on(bench *b)
#endif
