/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CUDA_CUDA_CONVOLUTION_H
#define MR_TRAINER_CUDA_CUDA_CONVOLUTION_H
/* What a stream keeps for convolutions. */
#include "trainer/device/cuda/cuda_device.h"

void mr__cuda_convolutions_free(mr__cuda_stream *s);
#endif
