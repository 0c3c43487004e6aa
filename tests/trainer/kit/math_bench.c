/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/trainer/kit/math_bench.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static mr_status st;

enum { GUARD = 16 };

void *put(bench *b, const void *src, size_t bytes)
{
    unsigned char *host = malloc(bytes + GUARD);
    memset(host, 0xff, bytes + GUARD);
    if (src)
        memcpy(host, src, bytes);
    mr_check(b->n_blocks < MAX_BLOCKS);
    void **p = &b->blocks[b->n_blocks];
    b->bytes[b->n_blocks++] = bytes;
    mr_ok(mr_device_alloc(b->d, MR_MEMORY_DEVICE, bytes + GUARD, p, &st), &st);
    mr_ok(mr_stream_copy(b->s, *p, host, bytes + GUARD, &st), &st);
    mr_ok(mr_stream_synchronize(b->s, &st), &st);
    free(host);
    return *p;
}

void *get(bench *b, const void *p, size_t bytes)
{
    void *host = malloc(bytes ? bytes : 1);
    mr_ok(mr_stream_copy(b->s, host, p, bytes, &st), &st);
    mr_ok(mr_stream_synchronize(b->s, &st), &st);
    return host;
}

void drop_blocks(bench *b)
{
    unsigned char guard[GUARD];
    memset(guard, 0xff, sizeof guard);
    for (size_t i = 0; i < b->n_blocks; i++) {
        void *end = get(b, (char *)b->blocks[i] + b->bytes[i], GUARD);
        mr_eq_mem(end, guard, GUARD);
        free(end);
        mr_device_free(b->d, MR_MEMORY_DEVICE, b->blocks[i]);
    }
    b->n_blocks = 0;
}

void on_devices(void (*test)(bench *b))
{
    const char *names = getenv("MR_TEST_DEVICES");
    char text[256];
    strncpy(text, names && *names ? names : "cpu:0", sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (char *at = text, *name; (name = strtok_r(at, ",", &at));) {
        bench b = {.seed = 41};
        mr_test_context("%s", name);
        mr_ok(mr_device_open(&b.d, name, &st), &st);
        mr_ok(mr_stream_new(&b.s, b.d, MR_STREAM_COMPUTE, &st), &st);
        b.m = mr_device_math(b.d);
        test(&b);
        drop_blocks(&b);
        mr_stream_free(b.s);
        mr_device_close(b.d);
    }
}
float *draw(bench *b, size_t n)
{
    float *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = mr_test_random(&b->seed) % 11 == 0
                   ? 0
                   : (float)(mr_test_random(&b->seed) % 4001) / 1000 - 2;
    return x;
}

void round_where(bool bfloat, float *x, size_t n)
{
    for (size_t i = 0; i < n && bfloat; i++)
        x[i] = mr_bfloat_to_float(mr_float_to_bfloat(x[i]));
}

float *put_floats(bench *b, const float *x, size_t n)
{
    return put(b, x, n * sizeof *x);
}

void expect(bench *b, const float *p, double *want, size_t n, double tolerance)
{
    float *got = get(b, p, n * sizeof *got);
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance * (1 + fabs(want[i]))) &&
            !(isnan(got[i]) && isnan(want[i])))
            mr_fail_test("value %zu of %zu: got %.9g, want %.9g", i, n, (double)got[i], want[i]);
    free(got);
    free(want);
}

double *doubles(size_t n)
{
    return calloc(n + 1, sizeof(double));
}
