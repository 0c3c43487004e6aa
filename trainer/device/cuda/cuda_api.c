/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/cuda/cuda_api.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

mr__cuda_api mr__cu;

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

typedef struct entry {
    const char *name;
    size_t at; /* of the pointer in mr__cu */
} entry;

/* The name goes through TEXT so that the look-up uses a header's macro for it too. */
#define ENTRY(name) {TEXT(name), offsetof(mr__cuda_api, name)},
static const entry runtime_entries[] = {MR_CUDA_RUNTIME(ENTRY){NULL, 0}};
static const entry blas_entries[] = {MR_CUDA_BLAS(ENTRY){NULL, 0}};
static const entry dnn_entries[] = {MR_CUDA_DNN(ENTRY){NULL, 0}};
static const entry nccl_entries[] = {MR_CUDA_NCCL(ENTRY){NULL, 0}};

#define CUDA_MAJOR (CUDART_VERSION / 1000)

typedef struct library {
    const char *soname;
    const entry *entries;
    bool open;
} library;

static library libraries[MR__CUDA_N_LIBRARIES];
static pthread_mutex_t libraries_lock = PTHREAD_MUTEX_INITIALIZER;

static void name_libraries(void)
{
    static char runtime[32], blas[32], dnn[32];
    snprintf(runtime, sizeof runtime, "libcudart.so.%d", CUDA_MAJOR);
    snprintf(blas, sizeof blas, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    snprintf(dnn, sizeof dnn, "libcudnn.so.%d", CUDNN_MAJOR);
    libraries[MR__CUDA_RUNTIME] = (library){runtime, runtime_entries, false};
    libraries[MR__CUDA_BLAS] = (library){blas, blas_entries, false};
    libraries[MR__CUDA_DNN] = (library){dnn, dnn_entries, false};
    libraries[MR__CUDA_NCCL] = (library){"libnccl.so.2", nccl_entries, false};
}

static mr_code open_library(library *l, mr_status *st)
{
    void *so = dlopen(l->soname, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return mr_fail(st, MR_NOT_FOUND, "%s not found; put its folder into LD_LIBRARY_PATH",
                       l->soname);
    for (const entry *e = l->entries; e->name; e++) {
        void *p = dlsym(so, e->name);
        if (!p) {
            mr_code rc =
                mr_fail(st, MR_FAILED_PRECONDITION,
                        "%s has no function %s; install a newer release of it", l->soname, e->name);
            dlclose(so);
            return rc;
        }
        memcpy((char *)&mr__cu + e->at, &p, sizeof p);
    }
    l->open = true;
    return MR_OK;
}

mr_code mr__cuda_need(mr__cuda_library which, mr_status *st)
{
    pthread_mutex_lock(&libraries_lock);
    if (!libraries[which].soname)
        name_libraries();
    mr_code rc = libraries[which].open ? MR_OK : open_library(&libraries[which], st);
    pthread_mutex_unlock(&libraries_lock);
    return rc;
}

void mr__cuda_driver_version(char *out, size_t size)
{
    struct {
        MR_CUDA_NVML(MR_CUDA_MEMBER)
    } nvml;
    out[0] = '\0';
    void *so = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return;
    bool all = true;
#define LOOK_UP(name)                                                                              \
    do {                                                                                           \
        void *p = dlsym(so, #name);                                                                \
        memcpy(&nvml.name, &p, sizeof p);                                                          \
        all = all && p;                                                                            \
    } while (0);
    MR_CUDA_NVML(LOOK_UP)
    if (all && nvml.nvmlInit_v2() == 0) {
        if (nvml.nvmlSystemGetDriverVersion(out, (unsigned)size) != 0)
            out[0] = '\0';
        nvml.nvmlShutdown();
    }
    dlclose(so);
}

mr_code mr__cuda_fail(mr_status *st, cudaError_t e, const char *what)
{
    mr_code code = MR_INTERNAL;
    /* Most errors stay with the calling thread until they are queried. */
    mr__cu.cudaGetLastError();
    if (e == cudaErrorMemoryAllocation)
        code = MR_RESOURCE_EXHAUSTED;
    else if (e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver ||
             e == cudaErrorDevicesUnavailable || e == cudaErrorSystemNotReady)
        code = MR_UNAVAILABLE;
    else if (e == cudaErrorNoKernelImageForDevice)
        code = MR_FAILED_PRECONDITION;
    return mr_fail(st, code, "CUDA could not %s: %s (%s)", what, mr__cu.cudaGetErrorString(e),
                   mr__cu.cudaGetErrorName(e));
}

mr_code mr__cublas_fail(mr_status *st, cublasStatus_t e, const char *what)
{
    mr_code code = e == CUBLAS_STATUS_ALLOC_FAILED ? MR_RESOURCE_EXHAUSTED : MR_INTERNAL;
    return mr_fail(st, code, "cuBLASLt could not %s (status %d)", what, (int)e);
}

mr_code mr__cudnn_fail(mr_status *st, cudnnStatus_t e, const char *what)
{
    mr_code code = MR_INTERNAL;
    if (CUDNN_STATUS_CATEGORY(e) == CUDNN_STATUS_NOT_SUPPORTED)
        code = MR_UNIMPLEMENTED;
    else if (e == CUDNN_STATUS_ALLOC_FAILED)
        code = MR_RESOURCE_EXHAUSTED;
    return mr_fail(st, code, "cuDNN could not %s: %s", what, mr__cu.cudnnGetErrorString(e));
}

mr_code mr__nccl_fail(mr_status *st, ncclResult_t e, const char *what)
{
    mr_code code = e == ncclRemoteError ? MR_UNAVAILABLE : MR_INTERNAL;
    return mr_fail(st, code, "NCCL could not %s: %s", what, mr__cu.ncclGetErrorString(e));
}
