/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CUDA_CUDA_API_H
#define MR_TRAINER_CUDA_CUDA_API_H
/* NVIDIA's libraries, opened at run time, and their errors as ours. The functions are members of
 * one struct under their own names: mr__cu.cudaMallocAsync(...).
 *
 * The runtime and cuBLASLt are needed for any device; cuDNN and NCCL are opened when something
 * needs them, and what needs them fails without.
 *
 * thread   any */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>
#include "pipeline/status.h"
#include "trainer/device/cuda/cuda_entries.h"

/* Their header comes with the driver's development files only. */
int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char *version, unsigned length);

#define MR_CUDA_MEMBER(name) __typeof__(name) *name;
typedef struct mr__cuda_api {
    MR_CUDA_RUNTIME(MR_CUDA_MEMBER)
    MR_CUDA_BLAS(MR_CUDA_MEMBER)
    MR_CUDA_DNN(MR_CUDA_MEMBER)
    MR_CUDA_NCCL(MR_CUDA_MEMBER)
} mr__cuda_api;
extern mr__cuda_api mr__cu;

typedef enum mr__cuda_library {
    MR__CUDA_RUNTIME,
    MR__CUDA_BLAS,
    MR__CUDA_DNN,
    MR__CUDA_NCCL,
    MR__CUDA_N_LIBRARIES
} mr__cuda_library;

/* Makes the members of a library callable; does nothing where they are. They stay until the
 * process ends.
 * errors   MR_NOT_FOUND: no such library · MR_FAILED_PRECONDITION: it lacks a function */
mr_code mr__cuda_need(mr__cuda_library which, mr_status *st) MR_NODISCARD;

/* What the driver calls itself, "580.65.06"; "" where it does not say. */
void mr__cuda_driver_version(char *out, size_t size);

/* A failure of a library as ours; `what` is what could not be done: "copy to the device". */
mr_code mr__cuda_fail(mr_status *st, cudaError_t e, const char *what);
mr_code mr__cublas_fail(mr_status *st, cublasStatus_t e, const char *what);
mr_code mr__cudnn_fail(mr_status *st, cudnnStatus_t e, const char *what);
mr_code mr__nccl_fail(mr_status *st, ncclResult_t e, const char *what);

#define MR_CUDA_TRY(call, what)                                                                    \
    do {                                                                                           \
        cudaError_t mr_cuda_e_ = (call);                                                           \
        if (mr_cuda_e_ != cudaSuccess)                                                             \
            return mr__cuda_fail(st, mr_cuda_e_, what);                                            \
    } while (0)
#endif
