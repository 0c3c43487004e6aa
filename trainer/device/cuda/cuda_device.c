/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs through the CUDA runtime: memory, streams, events, copies.
 *
 * Each GPU's default memory pool keeps its memory, so that the driver is not called in steady
 * state. Memory without a stream is allocated on a stream of the device, which is then awaited. */
#include "trainer/device/cuda/cuda_device.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/device/cuda/cuda_graph.h"
#include "trainer/device/cuda/cuda_kernels.h"
#include "trainer/device/cuda/cuda_math.h"
#include "trainer/device/cuda/cuda_module.h"

enum { ALIGNMENT = 64, BLOCKS_A_PROCESSOR = 8 };

/* The minimum driver version for the runtime of a CUDA release, according to its release notes. */
static int driver_needed(int cuda_major)
{
    return cuda_major >= 13 ? 580 : cuda_major == 12 ? 525 : 450;
}

static bool probe_failed(cudaError_t e, char *why, size_t size)
{
    char driver[96] = "";
    if (e == cudaSuccess)
        return false;
    mr__cu.cudaGetLastError();
    if (e == cudaErrorNoDevice)
        snprintf(why, size, "no GPU is visible to the driver (CUDA_VISIBLE_DEVICES hides them?)");
    else if (e == cudaErrorInsufficientDriver) {
        mr__cuda_driver_version(driver, sizeof driver);
        snprintf(why, size, "driver %.*s is older than CUDA %d.%d needs (%d)",
                 driver[0] ? (int)strcspn(driver, ".") : 10, driver[0] ? driver : "of unknown",
                 CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
                 driver_needed(CUDART_VERSION / 1000));
    } else
        snprintf(why, size, "%s (%s)", mr__cu.cudaGetErrorString(e), mr__cu.cudaGetErrorName(e));
    return true;
}

static void cuda_probe(size_t *count, char *why, size_t size)
{
    mr_status st;
    int n = 0;
    *count = 0;
    why[0] = '\0';
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) {
        snprintf(why, size, "no NVIDIA driver (libcuda.so.1 not found)");
        return;
    }
    dlclose(driver);
    if (mr__cuda_need(MR__CUDA_RUNTIME, &st) != MR_OK ||
        mr__cuda_need(MR__CUDA_BLAS, &st) != MR_OK) {
        snprintf(why, size, "%s", st.message);
        return;
    }
    if (!probe_failed(mr__cu.cudaGetDeviceCount(&n), why, size))
        *count = (size_t)n;
    if (n == 0 && !why[0])
        snprintf(why, size, "no GPU is visible to the driver (CUDA_VISIBLE_DEVICES hides them?)");
}

/* Enables access to the memory of peers, including their pools, for devices that support it. */
static void open_to_peers(int index)
{
    int n = 0;
    cudaMemPool_t pool;
    mr__cu.cudaGetDeviceCount(&n);
    for (int other = 0; other < n; other++) {
        int can = 0;
        if (other == index || mr__cu.cudaDeviceCanAccessPeer(&can, other, index) != cudaSuccess ||
            !can)
            continue;
        struct cudaMemAccessDesc access = {
            .location = {.type = cudaMemLocationTypeDevice, .id = other},
            .flags = cudaMemAccessFlagsProtReadWrite};
        if (mr__cu.cudaDeviceGetDefaultMemPool(&pool, index) == cudaSuccess)
            mr__cu.cudaMemPoolSetAccess(pool, &access, 1);
    }
    mr__cu.cudaGetLastError(); /* others copy through the host instead */
}

static mr_code fill_device(mr__cuda_device *d, mr_status *st)
{
    struct cudaDeviceProp *p = mr_calloc(1, sizeof *p);
    if (!p)
        return mr_fail_memory(st, sizeof *p, "the properties of a device");
    cudaError_t e = mr__cu.cudaGetDeviceProperties(p, d->index);
    d->max_blocks = BLOCKS_A_PROCESSOR * (unsigned)p->multiProcessorCount;
    mr_free(p);
    if (e != cudaSuccess)
        return mr__cuda_fail(st, e, "read the properties of a device");
    cudaMemPool_t pool;
    uint64_t keep = UINT64_MAX;
    MR_CUDA_TRY(mr__cu.cudaSetDevice(d->index), "open the device");
    MR_CUDA_TRY(mr__cu.cudaDeviceGetDefaultMemPool(&pool, d->index), "find the memory pool");
    MR_CUDA_TRY(mr__cu.cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
                "set up the memory pool");
    open_to_peers(d->index);
    MR_CUDA_TRY(mr__cu.cudaStreamCreateWithPriority(&d->home, cudaStreamNonBlocking, 0),
                "create a stream");
    cublasStatus_t b = mr__cu.cublasLtCreate(&d->blas);
    if (b != CUBLAS_STATUS_SUCCESS) {
        d->blas = NULL;
        return mr__cublas_fail(st, b, "start");
    }
    return mr__cuda_kernels_load(st);
}

static void cuda_close(void *self)
{
    mr__cuda_device *d = self;
    mr__cu.cudaSetDevice(d->index);
    mr__cuda_plans_free(d);
    if (d->blas)
        mr__cu.cublasLtDestroy(d->blas);
    if (d->home)
        mr__cu.cudaStreamDestroy(d->home);
    pthread_mutex_destroy(&d->plans_lock);
    mr_free(d);
}

static mr_code cuda_open(size_t index, void **self, mr_status *st)
{
    mr__cuda_device *d = mr_calloc(1, sizeof *d);
    if (!d)
        return mr_fail_memory(st, sizeof *d, "a device");
    d->index = (int)index;
    pthread_mutex_init(&d->plans_lock, NULL);
    mr_code rc = fill_device(d, st);
    if (rc != MR_OK) {
        cuda_close(d);
        return rc;
    }
    *self = d;
    return MR_OK;
}

static void cuda_properties(void *self, mr_device_properties *out)
{
    const mr__cuda_device *d = self;
    struct cudaDeviceProp *p = mr_calloc(1, sizeof *p);
    *out = (mr_device_properties){0};
    if (p && mr__cu.cudaGetDeviceProperties(p, d->index) == cudaSuccess) {
        const unsigned char *u = (const unsigned char *)p->uuid.bytes;
        snprintf(out->model, sizeof out->model, "%.*s", (int)sizeof out->model - 1, p->name);
        snprintf(out->uuid, sizeof out->uuid,
                 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
                 u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
                 u[14], u[15]);
        snprintf(out->pci, sizeof out->pci, "%08x:%02x:%02x.0", (unsigned)p->pciDomainID,
                 (unsigned)p->pciBusID, (unsigned)p->pciDeviceID);
        out->memory_bytes = p->totalGlobalMem;
        out->major = p->major;
        out->minor = p->minor;
    }
    mr_free(p);
}

static void add_version(mr_device_library *out, size_t room, size_t *n, const char *name, int a,
                        int b, int c)
{
    if (*n >= room)
        return;
    snprintf(out[*n].name, sizeof out[*n].name, "%s", name);
    snprintf(out[*n].version, sizeof out[*n].version, "%d.%d.%d", a, b, c);
    (*n)++;
}

static size_t cuda_libraries(mr_device_library *out, size_t room)
{
    size_t n = 0;
    int v;
    if (mr__cuda_need(MR__CUDA_RUNTIME, NULL) == MR_OK &&
        mr__cu.cudaRuntimeGetVersion(&v) == cudaSuccess)
        add_version(out, room, &n, "cudart", v / 1000, v % 1000 / 10, v % 10);
    if (mr__cuda_need(MR__CUDA_BLAS, NULL) == MR_OK) {
        v = (int)mr__cu.cublasLtGetVersion();
        add_version(out, room, &n, "cublasLt", v / 10000, v % 10000 / 100, v % 100);
    }
    if (mr__cuda_need(MR__CUDA_DNN, NULL) == MR_OK) {
        v = (int)mr__cu.cudnnGetVersion();
        add_version(out, room, &n, "cudnn", v / 10000, v % 10000 / 100, v % 100);
    }
    if (mr__cuda_need(MR__CUDA_NCCL, NULL) == MR_OK && mr__cu.ncclGetVersion(&v) == ncclSuccess)
        add_version(out, room, &n, "nccl", v / 10000, v % 10000 / 100, v % 100);
    return n;
}

static mr_code alloc_device(mr__cuda_device *d, size_t bytes, mr__cuda_stream *s, void **out,
                            mr_status *st)
{
    void *p;
    cudaStream_t on = s ? s->stream : d->home;
    MR_CUDA_TRY(mr__cu.cudaSetDevice(d->index), "choose the device");
    cudaError_t e = mr__cu.cudaMallocAsync(&p, bytes ? bytes : 1, on);
    if (e == cudaSuccess && !s) {
        e = mr__cu.cudaStreamSynchronize(on);
        if (e != cudaSuccess)
            mr__cu.cudaFreeAsync(p, on);
    }
    if (e == cudaErrorMemoryAllocation) {
        mr__cu.cudaGetLastError();
        return mr_fail(
            st, MR_RESOURCE_EXHAUSTED,
            "out of memory on cuda:%d: cannot allocate %zu bytes; use a smaller batch or model",
            d->index, bytes);
    }
    MR_CUDA_TRY(e, "allocate memory");
    *out = p;
    return MR_OK;
}

static mr_code cuda_memory_alloc(void *self, mr_memory kind, size_t bytes, void *stream, void **out,
                                 mr_status *st)
{
    mr__cuda_device *d = self;
    void *p;
    if (kind == MR_MEMORY_DEVICE)
        return alloc_device(d, bytes, stream, out, st);
    if (kind == MR_MEMORY_PINNED) {
        MR_CUDA_TRY(mr__cu.cudaSetDevice(d->index), "choose the device");
        MR_CUDA_TRY(mr__cu.cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocPortable),
                    "allocate pinned host memory");
    } else {
        p = bytes <= SIZE_MAX - ALIGNMENT ? mr_aligned_alloc(ALIGNMENT, bytes + ALIGNMENT) : NULL;
        if (!p)
            return mr_fail_memory(st, bytes, "a buffer");
    }
    *out = p;
    return MR_OK;
}

static void cuda_memory_free(void *self, mr_memory kind, void *p, void *stream)
{
    mr__cuda_device *d = self;
    mr__cuda_stream *s = stream;
    if (kind == MR_MEMORY_DEVICE && s)
        mr__cuda_flush_later(s); /* pending uses of it come first */
    if (kind == MR_MEMORY_DEVICE)
        mr__cu.cudaFreeAsync(p, s ? s->stream : d->home);
    else if (kind == MR_MEMORY_PINNED)
        mr__cu.cudaFreeHost(p);
    else
        mr_free(p);
}

static mr_code cuda_stream_new(void *self, mr_stream_kind kind, void **out, mr_status *st)
{
    int least = 0, greatest = 0;
    mr__cuda_stream *s = mr_calloc(1, sizeof *s);
    if (!s)
        return mr_fail_memory(st, sizeof *s, "a stream");
    s->d = self;
    mr__cu.cudaSetDevice(s->d->index);
    mr__cu.cudaDeviceGetStreamPriorityRange(&least, &greatest);
    cudaError_t e = mr__cu.cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking,
                                                        kind == MR_STREAM_COMM ? greatest : least);
    if (e != cudaSuccess) {
        mr_free(s);
        return mr__cuda_fail(st, e, "create a stream");
    }
    *out = s;
    return MR_OK;
}

static void cuda_stream_free(void *stream)
{
    mr__cuda_stream *s = stream;
    void *const rooms[] = {s->scratch.p, s->workspace.p, s->filters.p, s->packed.p, s->bad};
    mr__cu.cudaSetDevice(s->d->index);
    mr__cu.cudaStreamSynchronize(s->stream);
    mr__cuda_graphs_free(s);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        if (rooms[i])
            mr__cu.cudaFreeAsync(rooms[i], s->d->home);
    mr__cuda_convolutions_free(s);
    mr__cu.cudaStreamDestroy(s->stream);
    mr_free(s);
}

mr_code mr__cuda_reserve(mr__cuda_stream *s, mr__cuda_room *r, size_t bytes, mr_status *st)
{
    void *p;
    if (bytes <= r->bytes)
        return MR_OK;
    if (r->p)
        MR_TRY(mr__cuda_flush(s, st));
    MR_TRY(alloc_device(s->d, bytes, s, &p, st));
    if (r->p)
        mr__cu.cudaFreeAsync(r->p, s->stream);
    *r = (mr__cuda_room){p, bytes};
    return MR_OK;
}

static mr_code cuda_event_new(void *self, void **out, mr_status *st)
{
    cudaEvent_t e;
    mr__cuda_device *d = self;
    MR_CUDA_TRY(mr__cu.cudaSetDevice(d->index), "choose the device");
    MR_CUDA_TRY(mr__cu.cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "create an event");
    *out = e;
    return MR_OK;
}

static void cuda_event_free(void *event)
{
    mr__cu.cudaEventDestroy(event);
}

static mr_code cuda_copy(void *stream, void *dst, const void *src, size_t bytes, mr_status *st)
{
    mr__cuda_stream *s = stream;
    MR_TRY(mr__cuda_flush(s, st));
    MR_CUDA_TRY(mr__cu.cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, s->stream), "copy");
    return MR_OK;
}

typedef struct set_args {
    void *p;
    size_t bytes;
    int64_t byte;
} set_args;

static mr_code run_set(mr__cuda_stream *s, const void *args, mr_status *st)
{
    const set_args *a = args;
    MR_CUDA_TRY(mr__cu.cudaMemsetAsync(a->p, (int)a->byte, a->bytes, s->stream), "fill memory");
    return MR_OK;
}

mr_code mr__cuda_set(mr__cuda_stream *s, void *p, int byte, size_t bytes, mr_status *st)
{
    const set_args a = {p, bytes, byte};
    return mr__cuda_submit(s, run_set, &a, sizeof a, st);
}

static mr_code cuda_set(void *stream, void *dst, int byte, size_t bytes, mr_status *st)
{
    return mr__cuda_set(stream, dst, byte, bytes, st);
}

static mr_code cuda_host_call(void *stream, mr_stream_fn fn, void *ctx, mr_status *st)
{
    mr__cuda_stream *s = stream;
    MR_TRY(mr__cuda_flush(s, st));
    MR_CUDA_TRY(mr__cu.cudaLaunchHostFunc(s->stream, fn, ctx), "call a host function");
    return MR_OK;
}

static mr_code cuda_record(void *stream, void *event, mr_status *st)
{
    mr__cuda_stream *s = stream;
    MR_TRY(mr__cuda_flush(s, st));
    MR_CUDA_TRY(mr__cu.cudaEventRecord(event, s->stream), "record an event");
    return MR_OK;
}

static mr_code cuda_wait(void *stream, void *event, mr_status *st)
{
    mr__cuda_stream *s = stream;
    MR_TRY(mr__cuda_flush(s, st));
    MR_CUDA_TRY(mr__cu.cudaStreamWaitEvent(s->stream, event, 0), "wait for an event");
    return MR_OK;
}

static mr_code cuda_event_synchronize(void *event, mr_status *st)
{
    MR_CUDA_TRY(mr__cu.cudaEventSynchronize(event), "finish the submitted work");
    return MR_OK;
}

static bool cuda_event_done(void *event)
{
    return mr__cu.cudaEventQuery(event) != cudaErrorNotReady;
}

static mr_code cuda_stream_synchronize(void *stream, mr_status *st)
{
    mr__cuda_stream *s = stream;
    MR_TRY(mr__cuda_flush(s, st));
    MR_CUDA_TRY(mr__cu.cudaStreamSynchronize(s->stream), "finish the submitted work");
    return MR_OK;
}

static mr_code cuda_stream_status(void *stream, mr_status *st)
{
    mr__cuda_stream *s = stream;
    cudaError_t e = mr__cu.cudaStreamQuery(s->stream);
    if (e != cudaErrorNotReady)
        MR_CUDA_TRY(e, "run the submitted work");
    return MR_OK;
}

static void *cuda_native_stream(void *stream)
{
    mr__cuda_flush_later(stream); /* launches on it come after that work */
    return ((mr__cuda_stream *)stream)->stream;
}

static bool cuda_reaches(void *self, void *other)
{
    int from = ((mr__cuda_device *)self)->index, to = ((mr__cuda_device *)other)->index, can = 0;
    if (from == to)
        return true;
    if (mr__cu.cudaDeviceCanAccessPeer(&can, from, to) != cudaSuccess)
        mr__cu.cudaGetLastError();
    return can;
}

const mr_device_backend mr__device_cuda = {
    .abi = MR_DEVICE_ABI,
    .size = sizeof(mr_device_backend),
    .kind = "cuda",
    .probe = cuda_probe,
    .open = cuda_open,
    .close = cuda_close,
    .properties = cuda_properties,
    .libraries = cuda_libraries,
    .memory_alloc = cuda_memory_alloc,
    .memory_free = cuda_memory_free,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .copy = cuda_copy,
    .set = cuda_set,
    .host_call = cuda_host_call,
    .record = cuda_record,
    .wait = cuda_wait,
    .event_synchronize = cuda_event_synchronize,
    .event_done = cuda_event_done,
    .stream_synchronize = cuda_stream_synchronize,
    .stream_status = cuda_stream_status,
    .native_stream = cuda_native_stream,
    .math = &mr__math_cuda,
    .reaches = cuda_reaches,
    .repeat_begin = mr__cuda_repeat_begin,
    .repeat_end = mr__cuda_repeat_end,
};
