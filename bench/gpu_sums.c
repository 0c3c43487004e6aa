/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce of float32 over several GPUs by NCCL, as training sums gradients: in place, 20 in a
 * row. One "name value unit" per line, in bus bandwidth as nccl-tests defines it: bytes of one
 * GPU's values per second, times 2 (n - 1) / n.
 *   gpu_sums [-d DEVICE]... [MIB]...      default all GPUs, of 1, 8 and 64 MiB
 * bench/gpu.sh prints the rates of nccl-tests' all_reduce_perf next to them. */
#include <millrace/trainer/collective/collective.h>
#include <millrace/trainer/device/math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ceiling.h"

enum { REPEATS = 20, WARM = 5, MAX_GPUS = 64, MAX_SIZES = 16 };

static mr_status st;
static size_t n_gpus;
static mr_device *devices[MAX_GPUS];
static mr_stream *streams[MAX_GPUS];
static float *values[MAX_GPUS];
static mr_collective *sums;

static void add_gpu(const char *name)
{
    if (n_gpus == MAX_GPUS)
        bench_die("too many GPUs");
    bench_must(mr_device_open(&devices[n_gpus], name, &st), &st);
    bench_must(mr_stream_new(&streams[n_gpus], devices[n_gpus], MR_STREAM_COMPUTE, &st), &st);
    n_gpus++;
}

static void add_all(void *ctx, const char *kind, size_t n, const char *why)
{
    (void)ctx;
    char name[32];
    if (strcmp(kind, "cuda") != 0)
        return;
    if (n == 0)
        bench_die(why);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "cuda:%zu", i);
        add_gpu(name);
    }
}

/* Submits this number of sums over all GPUs, and waits for them. */
static void sum(size_t n, int times)
{
    uint64_t tickets[MAX_GPUS];
    for (int i = 0; i < times; i++) {
        for (size_t r = 0; r < n_gpus; r++)
            bench_must(mr_collective_start(sums, r, streams[r], values[r], n, &tickets[r], &st),
                       &st);
        for (size_t r = 0; r < n_gpus; r++)
            bench_must(mr_collective_wait(sums, r, streams[r], tickets[r], &st), &st);
    }
    for (size_t r = 0; r < n_gpus; r++)
        bench_must(mr_stream_synchronize(streams[r], &st), &st);
}

static void fill(size_t n, float v)
{
    for (size_t r = 0; r < n_gpus; r++)
        bench_must(
            mr_device_math(devices[r])
                ->fill(streams[r], &(mr_math_fill){.n = n, .value = v, .dst = values[r]}, &st),
            &st);
}

/* A sum of ones is the number of GPUs, at both ends of each GPU's values. */
static void check(size_t n)
{
    fill(n, 1);
    sum(n, 1);
    for (size_t r = 0; r < n_gpus; r++)
        for (int last = 0; last < 2; last++) {
            float got;
            bench_must(
                mr_stream_copy(streams[r], &got, values[r] + (last ? n - 1 : 0), sizeof got, &st),
                &st);
            bench_must(mr_stream_synchronize(streams[r], &st), &st);
            if (got < (float)n_gpus || got > (float)n_gpus)
                bench_die("the sum of ones is not the number of GPUs");
        }
}

static void measure(size_t mib)
{
    size_t bytes = mib << 20, n = bytes / sizeof(float);
    for (size_t r = 0; r < n_gpus; r++) {
        void *p;
        bench_must(mr_device_alloc(devices[r], MR_MEMORY_DEVICE, bytes, &p, &st), &st);
        values[r] = p;
    }
    check(n);
    fill(n, 0);
    sum(n, WARM);
    double began = bench_now();
    sum(n, REPEATS);
    double a_second = REPEATS / (bench_now() - began);
    printf("all_reduce_%zuMiB %.2f GB/s\n", mib,
           1e-9 * (double)bytes * a_second * 2 * (double)(n_gpus - 1) / (double)n_gpus);
    fflush(stdout);
    for (size_t r = 0; r < n_gpus; r++)
        mr_device_free(devices[r], MR_MEMORY_DEVICE, values[r]);
}

int main(int argc, char **argv)
{
    size_t sizes[MAX_SIZES] = {1, 8, 64}, n_sizes = 0;
    int c;
    while ((c = getopt(argc, argv, "d:")) != -1) {
        if (c != 'd')
            return 2;
        add_gpu(optarg);
    }
    for (; optind < argc && n_sizes < MAX_SIZES; optind++)
        if ((sizes[n_sizes++] = strtoul(argv[optind], NULL, 10)) == 0)
            bench_die("usage: gpu_sums [-d DEVICE]... [MIB]...");
    if (n_gpus == 0)
        mr_device_each(add_all, NULL);
    if (n_gpus < 2)
        bench_die("fewer than two GPUs: nothing to sum");
    bench_must(mr_collective_new(&sums, "nccl", devices, n_gpus, &st), &st);
    for (size_t i = 0; i < (n_sizes ? n_sizes : 3); i++)
        measure(sizes[i]);
    mr_collective_free(sums);
    for (size_t r = 0; r < n_gpus; r++) {
        mr_stream_free(streams[r]);
        mr_device_close(devices[r]);
    }
    return 0;
}
