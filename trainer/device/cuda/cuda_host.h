/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CUDA_CUDA_HOST_H
#define MR_TRAINER_DEVICE_CUDA_CUDA_HOST_H
/* The program's functions under their own names: mr_fail, mr_calloc and the few others that this
 * module calls are forwarded to the table of the program. */
#include "trainer/device/device_modules.h"

void mr__cuda_host_set(const mr_module_host *host);
/* mr_log. */
void mr__cuda_log(mr_log_level level, const char *fmt, ...) MR_PRINTF(2, 3);
#endif
