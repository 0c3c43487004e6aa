/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CUDA_CUDA_API_H
#define MR_TRAINER_DEVICE_CUDA_CUDA_API_H
/* NVIDIA's libraries, opened at run time, and the conversion of their errors. The functions are
 * members of one struct under their own names: mr__cu.cudaMallocAsync(...).
 *
 * The runtime and cuBLASLt are needed for any device; cuDNN and NCCL are opened on first use, and
 * only that use fails without them.
 *
 * thread   any */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>
#include "pipeline/status.h"

/* Every function of NVIDIA's libraries that the module calls, by library. cuda_api.c looks them up
 * by these lists and nothing is linked: no other function is needed at run time, and a test double
 * of the libraries only has to provide these.
 *
 * Our own kernels are loaded as data (cudaLibraryLoadData) and launched through cudaLaunchKernel:
 * the module contains no host code of nvcc. */

/* libcudart.so, of the major version that the module was built with */
#define MR_CUDA_RUNTIME(X)                                                                         \
    X(cudaRuntimeGetVersion)                                                                       \
    X(cudaDriverGetVersion)                                                                        \
    X(cudaGetErrorString)                                                                          \
    X(cudaGetErrorName)                                                                            \
    X(cudaGetLastError)                                                                            \
    X(cudaGetDeviceCount)                                                                          \
    X(cudaGetDeviceProperties)                                                                     \
    X(cudaSetDevice)                                                                               \
    X(cudaDeviceGetStreamPriorityRange)                                                            \
    X(cudaDeviceCanAccessPeer)                                                                     \
    X(cudaDeviceGetDefaultMemPool)                                                                 \
    X(cudaMemPoolSetAttribute)                                                                     \
    X(cudaMemPoolSetAccess)                                                                        \
    X(cudaMallocAsync)                                                                             \
    X(cudaFreeAsync)                                                                               \
    X(cudaHostAlloc)                                                                               \
    X(cudaFreeHost)                                                                                \
    X(cudaStreamCreateWithPriority)                                                                \
    X(cudaStreamDestroy)                                                                           \
    X(cudaStreamSynchronize)                                                                       \
    X(cudaStreamQuery)                                                                             \
    X(cudaStreamWaitEvent)                                                                         \
    X(cudaEventCreateWithFlags)                                                                    \
    X(cudaEventDestroy)                                                                            \
    X(cudaEventRecord)                                                                             \
    X(cudaEventQuery)                                                                              \
    X(cudaEventSynchronize)                                                                        \
    X(cudaMemcpyAsync)                                                                             \
    X(cudaMemsetAsync)                                                                             \
    X(cudaLaunchHostFunc)                                                                          \
    X(cudaLaunchKernel)                                                                            \
    X(cudaLibraryLoadData)                                                                         \
    X(cudaLibraryGetKernel)                                                                        \
    X(cudaStreamBeginCapture)                                                                      \
    X(cudaStreamEndCapture)                                                                        \
    X(cudaGraphCreate)                                                                             \
    X(cudaGraphDestroy)                                                                            \
    X(cudaGraphAddKernelNode)                                                                      \
    X(cudaGraphAddChildGraphNode)                                                                  \
    X(cudaGraphInstantiate)                                                                        \
    X(cudaGraphExecKernelNodeSetParams)                                                            \
    X(cudaGraphLaunch)                                                                             \
    X(cudaGraphExecDestroy)

/* libcublasLt.so, likewise */
#define MR_CUDA_BLAS(X)                                                                            \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)

/* libcudnn.so.9 */
#define MR_CUDA_DNN(X)                                                                             \
    X(cudnnGetVersion)                                                                             \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnCreateTensorDescriptor)                                                                 \
    X(cudnnDestroyTensorDescriptor)                                                                \
    X(cudnnSetTensor4dDescriptor)                                                                  \
    X(cudnnCreateFilterDescriptor)                                                                 \
    X(cudnnDestroyFilterDescriptor)                                                                \
    X(cudnnSetFilter4dDescriptor)                                                                  \
    X(cudnnCreateConvolutionDescriptor)                                                            \
    X(cudnnDestroyConvolutionDescriptor)                                                           \
    X(cudnnSetConvolution2dDescriptor)                                                             \
    X(cudnnSetConvolutionMathType)                                                                 \
    X(cudnnSetConvolutionGroupCount)                                                               \
    X(cudnnGetConvolutionForwardAlgorithm_v7)                                                      \
    X(cudnnGetConvolutionBackwardDataAlgorithm_v7)                                                 \
    X(cudnnGetConvolutionBackwardFilterAlgorithm_v7)                                               \
    X(cudnnConvolutionForward)                                                                     \
    X(cudnnConvolutionBackwardData)                                                                \
    X(cudnnConvolutionBackwardFilter)

/* libnccl.so.2 */
#define MR_CUDA_NCCL(X)                                                                            \
    X(ncclGetVersion)                                                                              \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRankConfig)                                                                      \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclAllReduce)

/* libnvidia-ml.so.1, of the driver, for its version alone */
#define MR_CUDA_NVML(X)                                                                            \
    X(nvmlInit_v2)                                                                                 \
    X(nvmlSystemGetDriverVersion)                                                                  \
    X(nvmlShutdown)

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

/* Resolves the functions of a library; does nothing if that is done. They stay valid until the
 * process ends.
 * errors   MR_NOT_FOUND: no such library · MR_FAILED_PRECONDITION: it lacks a function */
mr_code mr__cuda_need(mr__cuda_library which, mr_status *st) MR_NODISCARD;

/* The driver's version, "580.65.06"; "" if unknown. */
void mr__cuda_driver_version(char *out, size_t size);

/* Converts a library's failure to a status; `what` is the action that failed: "copy to the
 * device". */
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
