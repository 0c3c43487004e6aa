/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CPU_DEVICE_CPU_H
#define MR_TRAINER_DEVICE_CPU_DEVICE_CPU_H
/* The back end "cpu": a thread per stream; all memory kinds are aligned host memory. */
#include "trainer/device/device.h"

extern const mr_device_backend mr__device_cpu;
#endif
