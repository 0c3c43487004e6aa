/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CUDA_CUDA_MODULE_H
#define MR_TRAINER_DEVICE_CUDA_CUDA_MODULE_H
/* The contents of the module: cuda_device.c, cuda_nccl.c. */
#include "trainer/collective/collective.h"
#include "trainer/device/device_modules.h"

extern const mr_device_backend mr__device_cuda;
extern const mr_collective_backend mr__collective_nccl;
#endif
