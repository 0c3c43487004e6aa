/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CUDA_CUDA_KERNELS_H
#define MR_TRAINER_CUDA_CUDA_KERNELS_H
/* The kernels of our own, as the host starts them. */
#include "trainer/cuda/cuda_device.h"
#include "trainer/cuda/kernels/kernel_params.h"

typedef enum mr__cuda_kernel {
#define MR_CUDA_KERNEL_NUMBER(family, name, params) MR__KERNEL_##name,
    MR_CUDA_KERNELS(MR_CUDA_KERNEL_NUMBER)
#undef MR_CUDA_KERNEL_NUMBER
        MR__N_KERNELS
} mr__cuda_kernel;

/* Makes the kernels known to the runtime; once a process. */
mr_code mr__cuda_kernels_load(mr_status *st) MR_NODISCARD;

mr_code mr__cuda_launch(mr__cuda_stream *s, mr__cuda_kernel k, const void *params, size_t n,
                        mr_status *st) MR_NODISCARD;

/* mr__cuda_launch with the parameters checked against the kernel: mr__launch_fill(s, &p, n, st).
 * n: indices to go over; 0: nothing is started. */
#define MR_CUDA_KERNEL_LAUNCH(family, name, params)                                                \
    MR_NODISCARD static inline mr_code mr__launch_##name(mr__cuda_stream *s, const params *p,      \
                                                         size_t n, mr_status *st)                  \
    {                                                                                              \
        return mr__cuda_launch(s, MR__KERNEL_##name, p, n, st);                                    \
    }
MR_CUDA_KERNELS(MR_CUDA_KERNEL_LAUNCH)
#undef MR_CUDA_KERNEL_LAUNCH
#endif
