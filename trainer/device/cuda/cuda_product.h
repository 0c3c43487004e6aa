/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CUDA_CUDA_PRODUCT_H
#define MR_TRAINER_CUDA_CUDA_PRODUCT_H
/* Matrix products by cuBLASLt. */
#include "trainer/device/cuda/cuda_device.h"

void mr__cuda_plans_free(mr__cuda_device *d);
#endif
