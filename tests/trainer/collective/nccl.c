/* SPDX-License-Identifier: Apache-2.0 */
/* What concerns several devices at a time: all that MR_TEST_DEVICES names. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/harness.h"
#include "tests/trainer/kit/math_bench.h"
#include "trainer/collective/collective.h"

enum { MAX_GPUS = 16, ROUNDS = 5 };

static mr_status st;

typedef struct rank {
    mr_collective *c;
    mr_device *d;
    mr_stream *s;
    size_t id, n;
    float *data, *host;
    mr_code rc;
    mr_status st;
} rank;

/* Of ranks 1, 2, ..: data[i] = id + i, summed, then multiplied by nothing and summed again. */
static mr_code run_rank(rank *r)
{
    uint64_t ticket;
    MR_TRY(mr_stream_copy(r->s, r->data, r->host, r->n * sizeof *r->host, &r->st));
    for (int i = 0; i < ROUNDS; i++) {
        MR_TRY(mr_collective_start(r->c, r->id, r->s, r->data, r->n, &ticket, &r->st));
        MR_TRY(mr_collective_wait(r->c, r->id, r->s, ticket, &r->st));
    }
    MR_TRY(mr_stream_copy(r->s, r->host, r->data, r->n * sizeof *r->host, &r->st));
    return mr_stream_synchronize(r->s, &r->st);
}

static void *rank_main(void *r)
{
    ((rank *)r)->rc = run_rank(r);
    return NULL;
}

/* A back end that has a current device sets it for whatever a stream is given first. */
MR_TEST(one_thread_gives_convolutions_to_all_devices)
{
    enum { N = 2, SIDE = 6, CHANNELS = 16, FILTERS = 5, OUT = N * SIDE * SIDE * FILTERS };
    const char *names = getenv("MR_TEST_DEVICES");
    char text[256], *at = text;
    bench b[MAX_GPUS] = {0};
    float *y[MAX_GPUS], *first = NULL;
    size_t n = 0;
    snprintf(text, sizeof text, "%s", names && *names ? names : "cpu:0,cpu:1");
    for (char *name; n < MAX_GPUS && (name = strtok_r(at, ",", &at)); n++) {
        b[n].seed = 7;
        mr_ok(mr_device_open(&b[n].d, name, &st), &st);
        mr_ok(mr_stream_new(&b[n].s, b[n].d, MR_STREAM_COMPUTE, &st), &st);
        b[n].m = mr_device_math(b[n].d);
    }
    mr_math_conv2d o[MAX_GPUS];
    for (size_t i = 0; i < n; i++) {
        float *x = draw(&b[i], N * SIDE * SIDE * CHANNELS);
        float *kernel = draw(&b[i], 9 * CHANNELS * FILTERS);
        o[i] = (mr_math_conv2d){.s = {.n = N,
                                      .height = SIDE,
                                      .width = SIDE,
                                      .channels = CHANNELS,
                                      .filters = FILTERS,
                                      .groups = 1,
                                      .kernel_h = 3,
                                      .kernel_w = 3,
                                      .stride_h = 1,
                                      .stride_w = 1,
                                      .dilation_h = 1,
                                      .dilation_w = 1,
                                      .pad_top = 1,
                                      .pad_left = 1,
                                      .out_h = SIDE,
                                      .out_w = SIDE},
                                .x = put_floats(&b[i], x, N * SIDE * SIDE * CHANNELS),
                                .kernel = put_floats(&b[i], kernel, 9 * CHANNELS * FILTERS),
                                .y = y[i] = put_floats(&b[i], NULL, OUT)};
        free(x);
        free(kernel);
    }
    for (size_t i = 0; i < n; i++)
        mr_ok(b[i].m->conv2d(b[i].s, &o[i], &st), &st);
    for (size_t i = 0; i < n; i++) {
        float *got = get(&b[i], y[i], OUT * sizeof *got);
        if (i == 0)
            first = got;
        else
            mr_eq_mem(got, first, OUT * sizeof *got);
        if (i > 0)
            free(got);
        drop_blocks(&b[i]);
        mr_stream_free(b[i].s);
    }
    for (size_t i = 0; i < n; i++)
        mr_device_close(b[i].d);
    free(first);
}

MR_TEST(sums_over_all_gpus_are_the_same_everywhere)
{
    static const size_t sizes[] = {1, 1000, 1 << 20};
    const char *names = getenv("MR_TEST_DEVICES");
    if (!names || strncmp(names, "cuda", 4) != 0)
        mr_skip_test("MR_TEST_DEVICES names no GPU");
    char text[256], *at = text;
    mr_device *devices[MAX_GPUS];
    rank ranks[MAX_GPUS];
    pthread_t threads[MAX_GPUS];
    mr_collective *c = NULL;
    size_t n = 0;
    snprintf(text, sizeof text, "%s", names);
    for (char *name; n < MAX_GPUS && (name = strtok_r(at, ",", &at));)
        mr_ok(mr_device_open(&devices[n++], name, &st), &st);
    mr_ok(mr_collective_new(&c, "nccl", devices, n, &st), &st);
    mr_eq_str(mr_collective_engine(c), "nccl");
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t bytes = sizes[k] * sizeof(float);
        mr_test_context("%zu values on %zu GPUs", sizes[k], n);
        for (size_t r = 0; r < n; r++) {
            void *data;
            ranks[r] =
                (rank){.c = c, .d = devices[r], .id = r, .n = sizes[k], .host = malloc(bytes)};
            for (size_t i = 0; i < sizes[k]; i++)
                ranks[r].host[i] = (float)(r + 1 + i % 3);
            mr_ok(mr_stream_new(&ranks[r].s, devices[r], MR_STREAM_COMPUTE, &st), &st);
            mr_ok(mr_device_alloc(devices[r], MR_MEMORY_DEVICE, bytes, &data, &st), &st);
            ranks[r].data = data;
        }
        for (size_t r = 0; r < n; r++)
            mr_check(pthread_create(&threads[r], NULL, rank_main, &ranks[r]) == 0);
        for (size_t r = 0; r < n; r++)
            pthread_join(threads[r], NULL);
        for (size_t r = 0; r < n; r++) {
            mr_ok(ranks[r].rc, &ranks[r].st);
            mr_eq_mem(ranks[r].host, ranks[0].host, bytes);
            for (size_t i = 0; i < sizes[k]; i++) {
                double want = (double)n * (double)(n + 1) / 2 + (double)(i % 3) * (double)n;
                for (int again = 1; again < ROUNDS; again++)
                    want *= (double)n;
                mr_eq_f64(ranks[r].host[i], want, want * 1e-6);
            }
        }
        mr_collective_reset(c);
        for (size_t r = 0; r < n; r++) {
            mr_stream_free(ranks[r].s);
            mr_device_free(devices[r], MR_MEMORY_DEVICE, ranks[r].data);
            free(ranks[r].host);
        }
    }
    mr_collective_free(c);
    for (size_t r = 0; r < n; r++)
        mr_device_close(devices[r]);
}
