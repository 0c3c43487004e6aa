/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CUDA_CUDA_ENTRIES_H
#define MR_TRAINER_CUDA_CUDA_ENTRIES_H
/* Every function of NVIDIA's libraries that the module calls, by library. cuda_api.c looks them up
 * by these lists and nothing is linked, so that this is all that must be there at run time, and all
 * that something in the libraries' place must offer.
 *
 * Kernels of our own come in as data (cudaLibraryLoadData) and start through cudaLaunchKernel: the
 * module has no code of nvcc's on the host's side. */

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
#endif
