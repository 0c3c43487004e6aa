/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of the CUDA runtime: devices, memory, copies, kernels; of the driver what is asked. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda_double/double.h"

enum { PROCESSORS = 4, MAX_THREADS = 1024, FATBIN = (int)0xba55ed50 };

#define ENTER_(call, device_, failure)                                                             \
    do {                                                                                           \
        if (cd_fails(call))                                                                        \
            return cd_keep_error(failure);                                                         \
        if (cd_device_error(device_))                                                              \
            return cd_keep_error(cd_device_error(device_));                                        \
    } while (0)
#define ENTER(call, device_) ENTER_(call, device_, cudaErrorUnknown)

/* ---- devices */

cudaError_t cudaRuntimeGetVersion(int *v)
{
    *v = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *v)
{
    *v = CUDART_VERSION;
    return cudaSuccess;
}

static const struct {
    cudaError_t e;
    const char *name, *text;
} error_names[] = {{cudaSuccess, "cudaSuccess", "no error"},
                   {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
                   {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
                   {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
                   {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
                    "an illegal memory access was encountered"},
                   {cudaErrorNoDevice, "cudaErrorNoDevice", "no device was found"},
                   {cudaErrorUnknown, "cudaErrorUnknown", "unknown error of the double"}};
enum { N_ERRORS = sizeof error_names / sizeof *error_names };

const char *cudaGetErrorString(cudaError_t e)
{
    for (int i = 0; i < N_ERRORS; i++)
        if (error_names[i].e == e)
            return error_names[i].text;
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t e)
{
    for (int i = 0; i < N_ERRORS; i++)
        if (error_names[i].e == e)
            return error_names[i].name;
    return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 0;
    if (cd_fails("cudaGetDeviceCount"))
        return cd_keep_error(cudaErrorUnknown);
    if (getenv("MR_DOUBLE_DRIVER"))
        return cd_keep_error(cudaErrorInsufficientDriver);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *n = visible && !*visible ? 0 : cd_set()->devices;
    return *n ? cudaSuccess : cd_keep_error(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    if (cd_fails("cudaGetDeviceProperties"))
        return cd_keep_error(cudaErrorUnknown);
    if (device < 0 || device >= cd_set()->devices)
        return cd_keep_error(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "double");
    p->totalGlobalMem = cd_set()->memory;
    p->multiProcessorCount = PROCESSORS;
    p->major = 9;
    p->pciBusID = device + 1;
    memset(p->uuid.bytes, cd_set()->first + device + 1, sizeof p->uuid.bytes);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    ENTER("cudaDeviceCanAccessPeer", device);
    *can = device != peer && cd_set()->peers;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    ENTER("cudaDeviceGetDefaultMemPool", device);
    *pool = (cudaMemPool_t)(uintptr_t)(device + 1);
    return cudaSuccess;
}

static int device_of(cudaMemPool_t pool, const char *call)
{
    uintptr_t i = (uintptr_t)pool;
    if (i < 1 || i > (uintptr_t)cd_set()->devices)
        cd_misuse("%s: %p is no pool", call, (void *)pool);
    return (int)i - 1;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr what, void *value)
{
    ENTER("cudaMemPoolSetAttribute", device_of(pool, "cudaMemPoolSetAttribute"));
    (void)value;
    if (what != cudaMemPoolAttrReleaseThreshold)
        cd_misuse("cudaMemPoolSetAttribute: attribute %d is not known to the double", (int)what);
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t n)
{
    int owner = device_of(pool, "cudaMemPoolSetAccess");
    ENTER("cudaMemPoolSetAccess", owner);
    for (size_t i = 0; i < n; i++) {
        if (list[i].location.type != cudaMemLocationTypeDevice || list[i].location.id < 0 ||
            list[i].location.id >= cd_set()->devices || !cd_set()->peers)
            return cd_keep_error(cudaErrorInvalidDevice);
        cd_allow_peer(owner, list[i].location.id);
    }
    return cudaSuccess;
}

/* ---- memory */

typedef struct memory_op {
    void *to;
    const void *from;
    size_t bytes;
    int value;
} memory_op;

static void run_nothing(cd_op *op)
{
    (void)op;
}

static void run_free(cd_op *op)
{
    cd_free(((memory_op *)op->payload)->to, op);
}

static cd_op *memory_op_new(cudaStream_t s, const char *name, cd_run *run, memory_op m)
{
    cd_op *op = cd_op_new(s, name, run, sizeof m);
    *(memory_op *)op->payload = m;
    return op;
}

/* Submits op, which ends the life of `freed` or begins that of `born`. */
static void submit_life(cd_op *op, void *born, void *freed)
{
    pthread_mutex_lock(&cd_lock);
    uint32_t epoch = cd_submit_locked(op);
    if (born)
        cd_born(born, epoch);
    else
        cd_freed(freed, epoch);
    pthread_mutex_unlock(&cd_lock);
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t s)
{
    int device = cd_stream_device(s, "cudaMallocAsync");
    ENTER_("cudaMallocAsync", device, cudaErrorMemoryAllocation);
    if (bytes == 0)
        cd_misuse("cudaMallocAsync of no bytes");
    void *p = cd_alloc(device, bytes);
    if (!p)
        return cd_keep_error(cudaErrorMemoryAllocation);
    submit_life(memory_op_new(s, "cudaMallocAsync", run_nothing, (memory_op){0}), p, NULL);
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t s)
{
    int device = cd_stream_device(s, "cudaFreeAsync");
    bool fails = cd_fails("cudaFreeAsync");
    int arena = cd_arena_of(p);
    if (arena < 0 || arena >= CD_DEVICES)
        cd_misuse("cudaFreeAsync: %p is not memory of a device", p);
    cd_check_block(arena, p, "cudaFreeAsync");
    cd_op *op = memory_op_new(s, "cudaFreeAsync", run_nothing, (memory_op){.to = p});
    op->drop = run_free; /* also after an error */
    submit_life(op, NULL, p);
    return cd_keep_error(fails ? cudaErrorUnknown : cd_device_error(device));
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    ENTER_("cudaHostAlloc", cd_current_device(), cudaErrorMemoryAllocation);
    if (bytes == 0 || flags != cudaHostAllocPortable)
        cd_misuse("cudaHostAlloc of %zu bytes, flags %u", bytes, flags);
    *out = cd_alloc(CD_PINNED, bytes);
    return *out ? cudaSuccess : cd_keep_error(cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *p)
{
    bool fails = cd_fails("cudaFreeHost");
    cd_check_block(CD_PINNED, p, "cudaFreeHost");
    cd_free(p, NULL);
    return cd_keep_error(fails ? cudaErrorUnknown : cudaSuccess);
}

static void run_copy(cd_op *op)
{
    const memory_op *m = (const memory_op *)op->payload;
    cd_copy(op, m->to, m->from, m->bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    ENTER("cudaMemcpyAsync", cd_stream_device(s, "cudaMemcpyAsync"));
    if (kind != cudaMemcpyDefault)
        cd_misuse("cudaMemcpyAsync: kind %d", (int)kind);
    cd_submit(memory_op_new(s, "cudaMemcpyAsync", run_copy, (memory_op){to, from, bytes, 0}));
    return cudaSuccess;
}

static void run_set(cd_op *op)
{
    const memory_op *m = (const memory_op *)op->payload;
    memset(cd_writes(op, m->to, m->bytes), m->value, m->bytes);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t s)
{
    ENTER("cudaMemsetAsync", cd_stream_device(s, "cudaMemsetAsync"));
    if (cd_arena_of(to) < 0)
        cd_misuse("cudaMemsetAsync: %p is neither of a device nor pinned", to);
    cd_submit(memory_op_new(s, "cudaMemsetAsync", run_set, (memory_op){to, NULL, bytes, value}));
    return cudaSuccess;
}

/* ---- kernels */

cudaError_t cudaLibraryLoadData(cudaLibrary_t *out, const void *image,
                                enum cudaJitOption *jit_options, void **jit_values, unsigned n_jit,
                                enum cudaLibraryOption *options, void **values, unsigned n)
{
    ENTER("cudaLibraryLoadData", cd_current_device());
    uint32_t magic;
    (void)jit_options, (void)jit_values, (void)options, (void)values;
    memcpy(&magic, image, sizeof magic);
    if (n_jit || n || magic != (uint32_t)FATBIN)
        cd_misuse("cudaLibraryLoadData: %#x does not begin code of nvcc's", magic);
    *out = (cudaLibrary_t)(uintptr_t)image;
    return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *out, cudaLibrary_t library, const char *name)
{
    ENTER("cudaLibraryGetKernel", cd_current_device());
    (void)library;
    int k = cd_kernel_find(name);
    if (k < 0)
        cd_misuse("cudaLibraryGetKernel: there is no kernel %s", name);
    *out = (cudaKernel_t)(uintptr_t)(k + 1);
    return cudaSuccess;
}

typedef struct kernel_op {
    int kernel;
    unsigned blocks, threads;
    uint64_t words[]; /* the parameters */
} kernel_op;

void cd_fault(void)
{
    cd_set_device_error(cd_running->device, cudaErrorIllegalAddress);
}

static void run_kernel(cd_op *op)
{
    kernel_op *k = (kernel_op *)op->payload;
    size_t n = (cd_kernel_params(k->kernel) + 7) / 8;
    if (cd_kernel_fails()) {
        cd_set_device_error(op->device, cudaErrorLaunchFailure);
        return;
    }
    for (size_t i = 0; i < n; i++)
        k->words[i] = cd_translate(k->words[i]);
    cd_kernel_run(k->kernel, k->words, k->blocks, k->threads, cd_set()->seed + op->epoch);
}

cd_op *cd_kernel_op(cudaStream_t s, const void *kernel, dim3 grid, dim3 block, void **args,
                    size_t shared)
{
    int device = s ? cd_stream_device(s, "cudaLaunchKernel") : cd_current_device();
    uintptr_t k = (uintptr_t)kernel;
    if (k < 1 || k > INT_MAX || !cd_kernel_name((int)k - 1))
        cd_misuse("cudaLaunchKernel: %p is no kernel", kernel);
    if (device != cd_current_device())
        cd_misuse("%s: a stream of cuda:%d while cuda:%d is current", cd_kernel_name((int)k - 1),
                  device, cd_current_device());
    if (grid.x == 0 || grid.y != 1 || grid.z != 1 || block.x == 0 || block.x > MAX_THREADS ||
        block.x % 32 || block.y != 1 || block.z != 1 || shared)
        cd_misuse("%s: %u blocks of %u threads", cd_kernel_name((int)k - 1), grid.x, block.x);
    size_t bytes = cd_kernel_params((int)k - 1);
    cd_op *op = cd_op_new(s, cd_kernel_name((int)k - 1), run_kernel,
                          sizeof(kernel_op) + (bytes + 7) / 8 * 8);
    kernel_op *x = (kernel_op *)op->payload;
    x->kernel = (int)k - 1;
    x->blocks = grid.x;
    x->threads = block.x;
    memcpy(x->words, args[0], bytes);
    return op;
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t s)
{
    ENTER("cudaLaunchKernel", cd_stream_device(s, "cudaLaunchKernel"));
    cd_submit(cd_kernel_op(s, kernel, grid, block, args, shared));
    return cudaSuccess;
}

/* ---- the driver's own library of numbers */

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *version, unsigned length);

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    const char *old = getenv("MR_DOUBLE_DRIVER");
    snprintf(version, length, "%s", old ? old : "double");
    return 0;
}
