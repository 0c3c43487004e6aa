/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/cuda/cuda_kernels.h"
#include <stddef.h>
#include <string.h>

/* The families as compiled by nvcc: images for several architectures in one object. */
#define FATBIN(family)                                                                             \
    __asm__(".section .rodata\n.balign 64\nmr__fatbin_" #family ":\n.incbin \"" MR_FATBINS         \
            "/" #family ".fatbin\"\n.previous\n");                                                 \
    extern const char mr__fatbin_##family[] __attribute__((visibility("hidden")));
#define FAMILIES(X) X(elementwise) X(ids) X(images) X(normalization) X(optimizers) X(rows) X(sums)
FAMILIES(FATBIN)

static const struct family {
    const char *name;
    const void *image;
} families[] = {
#define FAMILY(family) {#family, mr__fatbin_##family},
    FAMILIES(FAMILY)};
enum { N_FAMILIES = sizeof families / sizeof *families };

static const struct kernel {
    const char *family, *name;
} names[MR__N_KERNELS] = {
#define NAME(family, name, params) {#family, "mr_" #name},
    MR_CUDA_KERNELS(NAME)};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cudaKernel_t kernels[MR__N_KERNELS];
static bool loaded; /* all of them */

static mr_code load_family(const struct family *f, mr_status *st)
{
    cudaLibrary_t library;
    MR_CUDA_TRY(mr__cu.cudaLibraryLoadData(&library, f->image, NULL, NULL, 0, NULL, NULL, 0),
                "load the kernels");
    for (int k = 0; k < MR__N_KERNELS; k++)
        if (strcmp(names[k].family, f->name) == 0)
            MR_CUDA_TRY(mr__cu.cudaLibraryGetKernel(&kernels[k], library, names[k].name),
                        "find a kernel");
    return MR_OK;
}

mr_code mr__cuda_kernels_load(mr_status *st)
{
    mr_code rc = MR_OK;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < N_FAMILIES && rc == MR_OK && !loaded; i++)
        rc = load_family(&families[i], st);
    loaded = rc == MR_OK;
    pthread_mutex_unlock(&lock);
    return rc;
}

/* Arguments of a launch; truncated to the kernel's own parameters. */
typedef struct launch_args {
    int kernel;
    unsigned blocks;
    union {
#define PARAMS(family, name, params) params name;
        MR_CUDA_KERNELS(PARAMS)
    } of;
} launch_args;

static const size_t params_bytes[MR__N_KERNELS] = {
#define PARAMS_BYTES(family, name, params) sizeof(params),
    MR_CUDA_KERNELS(PARAMS_BYTES)};

static mr_code submit(mr__cuda_stream *s, int kernel, unsigned blocks, const void *params,
                      mr_status *st)
{
    void *args[] = {(void *)(uintptr_t)params};
    dim3 grid = {blocks, 1, 1}, block = {MR_CUDA_BLOCK, 1, 1};
    MR_CUDA_TRY(mr__cu.cudaSetDevice(s->d->index), "choose the device");
    cudaError_t e =
        mr__cu.cudaLaunchKernel((const void *)kernels[kernel], grid, block, args, 0, s->stream);
    if (e != cudaSuccess)
        return mr__cuda_fail(st, e, names[kernel].name);
    return MR_OK;
}

static mr_code run_kernel(mr__cuda_stream *s, const void *args, mr_status *st)
{
    const launch_args *a = args;
    return submit(s, a->kernel, a->blocks, &a->of, st);
}

bool mr__cuda_is_kernel(mr__cuda_run *run)
{
    return run == run_kernel;
}

bool mr__cuda_same_launch(const void *args, const void *others)
{
    const launch_args *a = args, *b = others;
    return a->kernel == b->kernel && a->blocks == b->blocks;
}

void mr__cuda_kernel_node(const void *args, struct cudaKernelNodeParams *p, void **params)
{
    const launch_args *a = args;
    *params = (void *)(uintptr_t)&a->of;
    *p = (struct cudaKernelNodeParams){.func = (void *)kernels[a->kernel],
                                       .gridDim = {a->blocks, 1, 1},
                                       .blockDim = {MR_CUDA_BLOCK, 1, 1},
                                       .kernelParams = params};
}

mr_code mr__cuda_launch(mr__cuda_stream *s, mr__cuda_kernel k, const void *params, size_t n,
                        mr_status *st)
{
    if (n == 0)
        return MR_OK;
    size_t blocks = (n - 1) / MR_CUDA_BLOCK + 1;
    blocks = blocks < s->d->max_blocks ? blocks : s->d->max_blocks;
    if (mr__cuda_is_plain(s))
        return submit(s, (int)k, (unsigned)blocks, params, st);
    launch_args a = {.kernel = (int)k, .blocks = (unsigned)blocks};
    memcpy(&a.of, params, params_bytes[k]);
    return mr__cuda_submit(s, run_kernel, &a, offsetof(launch_args, of) + params_bytes[k], st);
}
