/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CUDA_CUDA_KERNELS_H
#define MR_TRAINER_DEVICE_CUDA_CUDA_KERNELS_H
/* Millrace's own kernels, as launched by the host. */
#include "trainer/device/cuda/cuda_graph.h"
#include "trainer/device/cuda/kernels/kernel_params.h"

typedef enum mr__cuda_kernel {
#define MR_CUDA_KERNEL_NUMBER(family, name, params) MR__KERNEL_##name,
    MR_CUDA_KERNELS(MR_CUDA_KERNEL_NUMBER)
#undef MR_CUDA_KERNEL_NUMBER
        MR__N_KERNELS
} mr__cuda_kernel;

/* Registers the kernels with the runtime; once per process. */
mr_code mr__cuda_kernels_load(mr_status *st) MR_NODISCARD;

mr_code mr__cuda_launch(mr__cuda_stream *s, mr__cuda_kernel k, const void *params, size_t n,
                        mr_status *st) MR_NODISCARD;

/* For graphs: whether run submits a kernel; whether two of its arguments differ only in parameters;
 * and *p as a node, valid as long as args and *params. */
bool mr__cuda_is_kernel(mr__cuda_run *run);
bool mr__cuda_same_launch(const void *args, const void *others);
void mr__cuda_kernel_node(const void *args, struct cudaKernelNodeParams *p, void **params);

/* mr__cuda_launch with the type of the parameters checked against the kernel: mr__launch_fill(s,
 * &p, n, st). n: number of indices; 0: nothing is launched. */
#define MR_CUDA_KERNEL_LAUNCH(family, name, params)                                                \
    MR_NODISCARD static inline mr_code mr__launch_##name(mr__cuda_stream *s, const params *p,      \
                                                         size_t n, mr_status *st)                  \
    {                                                                                              \
        return mr__cuda_launch(s, MR__KERNEL_##name, p, n, st);                                    \
    }
MR_CUDA_KERNELS(MR_CUDA_KERNEL_LAUNCH)
#undef MR_CUDA_KERNEL_LAUNCH
#endif
