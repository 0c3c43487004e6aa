/* SPDX-License-Identifier: Apache-2.0 */
/* misuse NAME does one thing to the double that is wrong, or nearly wrong; double.sh knows what
 * must come of it. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "trainer/device/math.h"

enum { N = 1000, BYTES = N * 4 };

static cudaStream_t a, b; /* of cuda:0 */
static float *x, *y;      /* of a, filled */

static void need(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorName(e));
    exit(3);
}
#define NEED(call) need(call, #call)

static void set_up(void)
{
    NEED(cudaSetDevice(0));
    NEED(cudaStreamCreateWithPriority(&a, cudaStreamNonBlocking, 0));
    NEED(cudaStreamCreateWithPriority(&b, cudaStreamNonBlocking, 0));
    NEED(cudaMallocAsync((void **)&x, BYTES, a));
    NEED(cudaMallocAsync((void **)&y, BYTES, a));
    NEED(cudaMemsetAsync(x, 0, BYTES, a));
    NEED(cudaMemsetAsync(y, 0, BYTES, a));
    NEED(cudaStreamSynchronize(a));
}

static void tear_down(void)
{
    NEED(cudaStreamSynchronize(a));
    NEED(cudaStreamSynchronize(b));
    NEED(cudaFreeAsync(x, a));
    NEED(cudaFreeAsync(y, a));
    NEED(cudaStreamDestroy(a));
    NEED(cudaStreamDestroy(b));
}

static void nothing(void)
{
}

static void missing_wait(void)
{
    NEED(cudaMemsetAsync(x, 1, BYTES, a));
    NEED(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDefault, b));
}

static cudaEvent_t event(void)
{
    cudaEvent_t e;
    NEED(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    return e;
}

static void with_wait(void)
{
    cudaEvent_t e = event();
    NEED(cudaMemsetAsync(x, 1, BYTES, a));
    NEED(cudaEventRecord(e, a));
    NEED(cudaStreamWaitEvent(b, e, 0));
    NEED(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDefault, b));
    NEED(cudaEventDestroy(e));
}

/* A wait is for the record before it. */
static void wait_before_record(void)
{
    cudaEvent_t e = event();
    NEED(cudaMemsetAsync(x, 1, BYTES, a));
    NEED(cudaStreamWaitEvent(b, e, 0));
    NEED(cudaEventRecord(e, a));
    NEED(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDefault, b));
    NEED(cudaEventDestroy(e));
}

static void wait_of_the_host(void)
{
    NEED(cudaMemsetAsync(x, 1, BYTES, a));
    NEED(cudaStreamSynchronize(a));
    NEED(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDefault, b));
}

static void two_readers(void)
{
    float *z;
    NEED(cudaMallocAsync((void **)&z, BYTES, b));
    NEED(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDefault, a));
    NEED(cudaMemcpyAsync(z, x, BYTES, cudaMemcpyDefault, b));
    NEED(cudaFreeAsync(z, b));
}

static void write_after_read(void)
{
    NEED(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDefault, a));
    NEED(cudaMemsetAsync(x, 1, BYTES, b));
}

static void freed_too_early(void)
{
    NEED(cudaMemcpyAsync(y, x, BYTES, cudaMemcpyDefault, a));
    NEED(cudaFreeAsync(x, b));
    NEED(cudaStreamSynchronize(a));
}

static void use_after_free(void)
{
    NEED(cudaFreeAsync(x, a));
    NEED(cudaMemsetAsync(x, 0, BYTES, a));
}

static void freed_twice(void)
{
    NEED(cudaFreeAsync(x, a));
    NEED(cudaFreeAsync(x, a));
}

static void not_allocated_yet(void)
{
    float *z;
    NEED(cudaMallocAsync((void **)&z, BYTES, b));
    NEED(cudaMemsetAsync(z, 0, BYTES, a));
}

static void out_of_bounds(void)
{
    NEED(cudaMemsetAsync(x, 0, BYTES + 4, a));
}

static void nobody_wrote(void)
{
    float *z;
    ncclUniqueId id;
    ncclComm_t c;
    NEED(cudaMallocAsync((void **)&z, BYTES, a));
    if (ncclGetUniqueId(&id) || ncclCommInitRankConfig(&c, 1, id, 0, NULL) ||
        ncclAllReduce(z, z, N, ncclFloat32, ncclSum, c, a))
        exit(3);
}

static void host_reads(void)
{
    printf("%f\n", (double)*(volatile float *)x);
}

static void host_call_calls(void *e)
{
    (void)cudaEventQuery(e);
}

static void call_in_host_call(void)
{
    NEED(cudaLaunchHostFunc(a, host_call_calls, event()));
}

static void event_of_another_device(void)
{
    NEED(cudaSetDevice(1));
    NEED(cudaEventRecord(event(), a));
}

static void pinned_freed_too_early(void)
{
    void *pinned;
    NEED(cudaHostAlloc(&pinned, BYTES, cudaHostAllocPortable));
    NEED(cudaMemcpyAsync(pinned, x, BYTES, cudaMemcpyDefault, a));
    NEED(cudaFreeHost(pinned));
}

/* ---- what sanitizers see: the host and its memory */

static float *pinned_zeros(void)
{
    float *pinned;
    NEED(cudaHostAlloc((void **)&pinned, BYTES, cudaHostAllocPortable));
    memset(pinned, 0, BYTES);
    return pinned;
}

static volatile float seen;

static void host_reads_too_early(void)
{
    float *pinned = pinned_zeros();
    NEED(cudaMemcpyAsync(pinned, x, BYTES, cudaMemcpyDefault, a));
    seen = pinned[N - 1];
    NEED(cudaStreamSynchronize(a));
    NEED(cudaFreeHost(pinned));
}

static void host_writes_too_early(void)
{
    float *pinned = pinned_zeros();
    NEED(cudaMemcpyAsync(x, pinned, BYTES, cudaMemcpyDefault, a));
    pinned[0] = 1;
    NEED(cudaStreamSynchronize(a));
    NEED(cudaFreeHost(pinned));
}

/* For what came before, and for another stream. */
static void host_waits_for_another(void)
{
    float *pinned = pinned_zeros();
    cudaEvent_t e = event();
    NEED(cudaEventRecord(e, a));
    NEED(cudaMemcpyAsync(pinned, x, BYTES, cudaMemcpyDefault, a));
    NEED(cudaEventSynchronize(e));
    NEED(cudaStreamSynchronize(b));
    seen = pinned[0];
    NEED(cudaStreamSynchronize(a));
    NEED(cudaEventDestroy(e));
    NEED(cudaFreeHost(pinned));
}

static void kernel_fills(float *p);

static void host_reads_what_a_kernel_writes(void)
{
    float *pinned = pinned_zeros();
    kernel_fills(pinned);
    seen = pinned[N - 1];
    NEED(cudaStreamSynchronize(a));
    NEED(cudaFreeHost(pinned));
}

static sem_t goes_on;

static void host_call_waits(void *unused)
{
    (void)unused;
    sem_wait(&goes_on);
}

static void host_frees_too_early(void)
{
    float *own = malloc(BYTES);
    sem_init(&goes_on, 0, 0);
    memset(own, 0, BYTES);
    NEED(cudaLaunchHostFunc(a, host_call_waits, NULL));
    NEED(cudaMemcpyAsync(x, own, BYTES, cudaMemcpyDefault, a));
    free(own);
    sem_post(&goes_on);
    NEED(cudaStreamSynchronize(a));
}

static void host_reads_freed(void)
{
    float *pinned = pinned_zeros();
    NEED(cudaFreeHost(pinned));
    seen = *(volatile float *)pinned;
}

static void host_writes_past_the_end(void)
{
    float *pinned = pinned_zeros();
    ((volatile char *)pinned)[BYTES] = 1;
    NEED(cudaFreeHost(pinned));
}

static int called;

static void host_call_counts(void *p)
{
    called += *(float *)p == 0;
}

/* In every way to wait. */
static void host_waits(void)
{
    float *pinned = pinned_zeros();
    cudaEvent_t e = event();
    for (int way = 0; way < 4; way++) {
        NEED(cudaMemcpyAsync(pinned, x, BYTES, cudaMemcpyDefault, a));
        NEED(cudaLaunchHostFunc(a, host_call_counts, pinned));
        NEED(cudaEventRecord(e, a));
        NEED(cudaStreamWaitEvent(b, e, 0));
        NEED(cudaMemcpyAsync(pinned, y, BYTES, cudaMemcpyDefault, b));
        NEED(cudaEventRecord(e, b));
        if (way == 0)
            NEED(cudaStreamSynchronize(b));
        if (way == 1)
            NEED(cudaEventSynchronize(e));
        while (way == 2 && cudaStreamQuery(b) == cudaErrorNotReady)
            ;
        while (way == 3 && cudaEventQuery(e) == cudaErrorNotReady)
            ;
        pinned[0] = 0;
        if (called != way + 1)
            exit(4);
        NEED(cudaEventRecord(e, b));
        NEED(cudaStreamWaitEvent(a, e, 0));
    }
    NEED(cudaEventDestroy(e));
    NEED(cudaFreeHost(pinned));
}

/* dst[i] = src[i], by as many threads, where src is dst + apart. */
static void cast_within(size_t apart)
{
    static const unsigned image = 0xba55ed50;
    cudaLibrary_t library;
    cudaKernel_t kernel;
    mr_math_cast p = {.n = N - apart, .from = MR_FLOAT32, .scale = 1, .src = x + apart, .dst = x};
    void *args[] = {&p};
    NEED(cudaLibraryLoadData(&library, &image, NULL, NULL, 0, NULL, NULL, 0));
    NEED(cudaLibraryGetKernel(&kernel, library, "mr_cast"));
    NEED(cudaLaunchKernel(kernel, (dim3){4, 1, 1}, (dim3){256, 1, 1}, args, 0, a));
}

static void threads_apart(void)
{
    cast_within(0);
}

static void threads_race(void)
{
    cast_within(1);
}

static void leak(void)
{
    void *z;
    (void)event();
    NEED(cudaMallocAsync(&z, 64, a));
}

static void sums(size_t n0, size_t n1, ncclRedOp_t op1)
{
    ncclUniqueId id;
    ncclComm_t c[2];
    cudaStream_t s;
    float *z;
    NEED(cudaSetDevice(1));
    NEED(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, 0));
    NEED(cudaMallocAsync((void **)&z, BYTES, s));
    NEED(cudaMemsetAsync(z, 0, BYTES, s));
    if (ncclGetUniqueId(&id) || ncclGroupStart())
        exit(3);
    for (int i = 0; i < 2; i++) {
        NEED(cudaSetDevice(i));
        if (ncclCommInitRankConfig(&c[i], 2, id, i, NULL))
            exit(3);
    }
    if (ncclGroupEnd() || ncclGroupStart() ||
        ncclAllReduce(x, x, n0, ncclFloat32, ncclSum, c[0], a) ||
        ncclAllReduce(z, z, n1, ncclFloat32, op1, c[1], s) || ncclGroupEnd())
        exit(3);
    NEED(cudaStreamSynchronize(s));
    NEED(cudaStreamSynchronize(a));
    NEED(cudaFreeAsync(z, s));
    NEED(cudaStreamDestroy(s));
    if (ncclCommDestroy(c[0]) || ncclCommDestroy(c[1]))
        exit(3);
}

static void sums_agree(void)
{
    sums(N, N, ncclSum);
}

static void sums_of_other_lengths(void)
{
    sums(N, N - 1, ncclSum);
}

static void sums_of_other_kinds(void)
{
    sums(N, N, ncclMax);
}

/* Returns when the last call to c is done, as one must ask. */
static void ask(ncclComm_t c)
{
    ncclResult_t e = ncclInProgress;
    while (e == ncclInProgress)
        if (ncclCommGetAsyncError(c, &e))
            exit(3);
    if (e)
        exit(3);
}

/* By a communicator that does not block. */
static void sum_of_one(int asks, int finalizes)
{
    ncclUniqueId id;
    ncclComm_t c;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (ncclGetUniqueId(&id) || ncclGroupStart() ||
        ncclCommInitRankConfig(&c, 1, id, 0, &config) != ncclInProgress ||
        ncclGroupEnd() != ncclInProgress)
        exit(3);
    ask(c);
    if (ncclGroupStart() || ncclAllReduce(x, x, N, ncclFloat32, ncclSum, c, a) ||
        ncclGroupEnd() != ncclInProgress)
        exit(3);
    if (asks)
        ask(c);
    NEED(cudaStreamSynchronize(a));
    if (finalizes && ncclCommFinalize(c) != ncclInProgress)
        exit(3);
    if (finalizes)
        ask(c);
    if (ncclCommDestroy(c))
        exit(3);
}

static void sum_asked_for(void)
{
    sum_of_one(1, 1);
}

static void sum_not_asked_for(void)
{
    sum_of_one(0, 0);
}

static void sum_not_finalized(void)
{
    sum_of_one(1, 0);
}

/* A kernel that does *p, as a node. */
static struct cudaKernelNodeParams fill(mr_math_fill *p, void **params)
{
    static const unsigned image = 0xba55ed50;
    cudaLibrary_t library;
    cudaKernel_t kernel;
    NEED(cudaLibraryLoadData(&library, &image, NULL, NULL, 0, NULL, NULL, 0));
    NEED(cudaLibraryGetKernel(&kernel, library, "mr_fill"));
    *params = p;
    return (struct cudaKernelNodeParams){.func = (void *)kernel,
                                         .gridDim = {4, 1, 1},
                                         .blockDim = {256, 1, 1},
                                         .kernelParams = params};
}

static void kernel_fills(float *p)
{
    mr_math_fill one = {N, 1, p};
    void *params;
    struct cudaKernelNodeParams k = fill(&one, &params);
    NEED(cudaLaunchKernel(k.func, k.gridDim, k.blockDim, k.kernelParams, 0, a));
}

static cudaGraph_t graph;
static cudaGraphNode_t node;
static cudaGraphExec_t exec;

/* Of a kernel that fills x with 1, and a copy of the graph of what fills y with zeros. */
static void make_graph(struct cudaKernelNodeParams *p)
{
    cudaGraph_t captured;
    cudaGraphNode_t second;
    NEED(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    NEED(cudaMemsetAsync(y, 0, BYTES, a));
    NEED(cudaStreamEndCapture(a, &captured));
    NEED(cudaGraphCreate(&graph, 0));
    NEED(cudaGraphAddKernelNode(&node, graph, NULL, 0, p));
    NEED(cudaGraphAddChildGraphNode(&second, graph, &node, 1, captured));
    NEED(cudaGraphDestroy(captured));
    NEED(cudaGraphInstantiate(&exec, graph, 0));
}

static float first_of(const float *from)
{
    float *pinned, v;
    NEED(cudaHostAlloc((void **)&pinned, BYTES, cudaHostAllocPortable));
    NEED(cudaMemcpyAsync(pinned, from, BYTES, cudaMemcpyDefault, a));
    NEED(cudaStreamSynchronize(a));
    v = *pinned;
    NEED(cudaFreeHost(pinned));
    return v;
}

static void graph_runs(void)
{
    mr_math_fill one = {N, 1, x}, two = {N, 2, x};
    void *params;
    struct cudaKernelNodeParams p = fill(&one, &params);
    NEED(cudaMemsetAsync(y, 1, BYTES, a));
    make_graph(&p);
    if (first_of(x) != 0 || first_of(y) == 0)
        exit(4); /* it ran when it was made */
    NEED(cudaGraphLaunch(exec, a));
    if (first_of(x) != 1 || first_of(y) != 0)
        exit(5);
    params = &two; /* of launches from now on */
    NEED(cudaGraphLaunch(exec, a));
    NEED(cudaGraphExecKernelNodeSetParams(exec, node, &p));
    if (first_of(x) != 1)
        exit(6);
    NEED(cudaGraphLaunch(exec, a));
    if (first_of(x) != 2)
        exit(7);
    NEED(cudaGraphExecDestroy(exec));
    NEED(cudaGraphDestroy(graph));
}

static void graph_without_wait(void)
{
    mr_math_fill one = {N, 1, x};
    void *params;
    struct cudaKernelNodeParams p = fill(&one, &params);
    make_graph(&p);
    NEED(cudaGraphLaunch(exec, a));
    NEED(cudaMemsetAsync(y, 1, BYTES, b));
}

static void graph_left(void)
{
    mr_math_fill one = {N, 1, x};
    void *params;
    struct cudaKernelNodeParams p = fill(&one, &params);
    make_graph(&p);
    NEED(cudaGraphDestroy(graph));
}

static void node_without_its_graph(void)
{
    mr_math_fill one = {N, 1, x};
    void *params;
    struct cudaKernelNodeParams p = fill(&one, &params);
    make_graph(&p);
    NEED(cudaGraphDestroy(graph));
    NEED(cudaGraphExecKernelNodeSetParams(exec, node, &p));
}

static void nodes_side_by_side(void)
{
    mr_math_fill one = {N, 1, x};
    void *params;
    struct cudaKernelNodeParams p = fill(&one, &params);
    make_graph(&p);
    NEED(cudaGraphAddKernelNode(&node, graph, &node, 1, &p));
}

static void capture(void)
{
    NEED(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    NEED(cudaMemsetAsync(x, 0, BYTES, a));
}

static void waits_in_capture(void)
{
    capture();
    NEED(cudaStreamSynchronize(a));
}

static void allocates_in_capture(void)
{
    void *z;
    capture();
    NEED(cudaMallocAsync(&z, BYTES, a));
}

static void records_in_capture(void)
{
    cudaEvent_t e = event();
    capture();
    NEED(cudaEventRecord(e, a));
}

static void never_ends_capture(void)
{
    capture();
    cudaStreamDestroy(a);
}

static const struct {
    const char *name;
    void (*run)(void);
} all[] = {
#define DO(name)                                                                                   \
    {                                                                                              \
#name, name                                                                                \
    }
    DO(nothing),
    DO(missing_wait),
    DO(with_wait),
    DO(wait_before_record),
    DO(wait_of_the_host),
    DO(two_readers),
    DO(write_after_read),
    DO(freed_too_early),
    DO(use_after_free),
    DO(freed_twice),
    DO(not_allocated_yet),
    DO(out_of_bounds),
    DO(nobody_wrote),
    DO(host_reads),
    DO(call_in_host_call),
    DO(event_of_another_device),
    DO(pinned_freed_too_early),
    DO(host_reads_too_early),
    DO(host_writes_too_early),
    DO(host_waits_for_another),
    DO(host_reads_what_a_kernel_writes),
    DO(host_frees_too_early),
    DO(host_reads_freed),
    DO(host_writes_past_the_end),
    DO(host_waits),
    DO(threads_apart),
    DO(threads_race),
    DO(leak),
    DO(sums_agree),
    DO(sums_of_other_lengths),
    DO(sums_of_other_kinds),
    DO(sum_asked_for),
    DO(sum_not_asked_for),
    DO(sum_not_finalized),
    DO(graph_runs),
    DO(graph_without_wait),
    DO(graph_left),
    DO(node_without_its_graph),
    DO(nodes_side_by_side),
    DO(waits_in_capture),
    DO(allocates_in_capture),
    DO(records_in_capture),
    DO(never_ends_capture)};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof all / sizeof *all; i++)
        if (strcmp(argv[1], all[i].name) == 0) {
            set_up();
            all[i].run();
            tear_down();
            return 0;
        }
    return 2;
}
