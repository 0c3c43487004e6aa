/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/cuda/cuda_kernels.h"
#include <string.h>

/* The families as nvcc made them: images for several architectures in one piece of data. */
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

mr_code mr__cuda_launch(mr__cuda_stream *s, mr__cuda_kernel k, const void *params, size_t n,
                        mr_status *st)
{
    if (n == 0)
        return MR_OK;
    size_t blocks = (n - 1) / MR_CUDA_BLOCK + 1;
    dim3 grid = {blocks < s->d->max_blocks ? (unsigned)blocks : s->d->max_blocks, 1, 1};
    dim3 block = {MR_CUDA_BLOCK, 1, 1};
    void *args[] = {(void *)(uintptr_t)params};
    MR_CUDA_TRY(mr__cu.cudaSetDevice(s->d->index), "choose the device");
    cudaError_t e =
        mr__cu.cudaLaunchKernel((const void *)kernels[k], grid, block, args, 0, s->stream);
    if (e != cudaSuccess)
        return mr__cuda_fail(st, e, names[k].name);
    return MR_OK;
}
