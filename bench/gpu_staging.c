/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a device receives its input: batches from a ring of pinned slots, with events in both
 * directions, against plain copies of pinned memory.
 *   gpu_staging [DEVICE [MEGABYTES]]      default cuda:0, batches of 16 MiB
 * Prints, in GB/s: one buffer copied repeatedly (the ceiling); a ring whose slots are already
 * full; a ring that the host fills by memcpy, next to that memcpy alone. */
#include <millrace/trainer/device/device.h>
#include <millrace/trainer/device/math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ceiling.h"

enum { DEPTH = 4, BATCHES = 200 };

typedef struct ring {
    mr_device *d;
    mr_stream *copies, *compute;
    mr_event *arrived[DEPTH], *released[DEPTH];
    void *pinned[DEPTH], *device[DEPTH], *source;
    size_t bytes;
} ring;

static mr_status st;

static void make(ring *g, const char *name)
{
    bench_must(mr_device_open(&g->d, name, &st), &st);
    bench_must(mr_stream_new(&g->copies, g->d, MR_STREAM_COPY, &st), &st);
    bench_must(mr_stream_new(&g->compute, g->d, MR_STREAM_COMPUTE, &st), &st);
    g->source = calloc(1, g->bytes);
    for (int i = 0; i < DEPTH; i++) {
        bench_must(mr_event_new(&g->arrived[i], g->d, &st), &st);
        bench_must(mr_event_new(&g->released[i], g->d, &st), &st);
        bench_must(mr_device_alloc(g->d, MR_MEMORY_PINNED, g->bytes, &g->pinned[i], &st), &st);
        bench_must(mr_device_alloc(g->d, MR_MEMORY_DEVICE, g->bytes, &g->device[i], &st), &st);
        memset(g->pinned[i], i, g->bytes);
    }
}

static void unmake(ring *g)
{
    mr_stream_free(g->copies);
    mr_stream_free(g->compute);
    for (int i = 0; i < DEPTH; i++) {
        mr_event_free(g->arrived[i]);
        mr_event_free(g->released[i]);
        mr_device_free(g->d, MR_MEMORY_PINNED, g->pinned[i]);
        mr_device_free(g->d, MR_MEMORY_DEVICE, g->device[i]);
    }
    free(g->source);
    mr_device_close(g->d);
}

static double rate(const ring *g, double seconds)
{
    return (double)g->bytes * BATCHES / seconds / 1e9;
}

static double bare(ring *g)
{
    double began = bench_now();
    for (int k = 0; k < BATCHES; k++)
        bench_must(mr_stream_copy(g->copies, g->device[0], g->pinned[0], g->bytes, &st), &st);
    bench_must(mr_stream_synchronize(g->copies, &st), &st);
    return rate(g, bench_now() - began);
}

/* Each batch is read by an operation on the compute stream. */
static double staged(ring *g, bool fill)
{
    double began = bench_now();
    for (int k = 0; k < BATCHES; k++) {
        int i = k % DEPTH;
        mr_math_fill mark = {.n = 1, .value = 1, .dst = g->device[i]};
        bench_must(mr_event_synchronize(g->arrived[i], &st), &st);
        if (fill)
            memcpy(g->pinned[i], g->source, g->bytes);
        bench_must(mr_stream_wait(g->copies, g->released[i], &st), &st);
        bench_must(mr_stream_copy(g->copies, g->device[i], g->pinned[i], g->bytes, &st), &st);
        bench_must(mr_stream_record(g->copies, g->arrived[i], &st), &st);
        bench_must(mr_stream_wait(g->compute, g->arrived[i], &st), &st);
        bench_must(mr_device_math(g->d)->fill(g->compute, &mark, &st), &st);
        bench_must(mr_stream_record(g->compute, g->released[i], &st), &st);
    }
    bench_must(mr_stream_synchronize(g->compute, &st), &st);
    return rate(g, bench_now() - began);
}

static double filled(ring *g)
{
    double began = bench_now();
    for (int k = 0; k < BATCHES; k++)
        memcpy(g->pinned[k % DEPTH], g->source, g->bytes);
    return rate(g, bench_now() - began);
}

int main(int argc, char **argv)
{
    ring g = {.bytes = (argc > 2 ? strtoul(argv[2], NULL, 10) : 16) << 20};
    mr_device_properties p;
    make(&g, argc > 1 ? argv[1] : "cuda:0");
    mr_device_describe(g.d, &p);
    bare(&g);
    double ceiling = bare(&g), full = staged(&g, false), memory = filled(&g);
    double all = staged(&g, true), slower = memory < ceiling ? memory : ceiling;
    printf("%s %s, batches of %zu MiB\n", mr_device_name(g.d), p.model, g.bytes >> 20);
    printf("pinned copy alone           %7.2f GB/s\n", ceiling);
    printf("ring of %d slots             %7.2f GB/s  %.0f %% of it\n", DEPTH, full,
           100 * full / ceiling);
    printf("memcpy into the slots alone %7.2f GB/s\n", memory);
    printf("ring that memcpy fills      %7.2f GB/s  %.0f %% of the slower of both\n", all,
           100 * all / slower);
    unmake(&g);
    return 0;
}
