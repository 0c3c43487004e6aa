/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/cuda/cuda_module.h"
#include "trainer/device/cuda/cuda_host.h"

__attribute__((visibility("default"))) mr_module_fn millrace_module;

const mr_module *millrace_module(const mr_module_host *host)
{
    static const mr_module m = {MR_DEVICE_ABI, &mr__device_cuda, &mr__collective_nccl};
    if (host->abi != MR_DEVICE_ABI || host->size < sizeof *host)
        return NULL;
    mr__cuda_host_set(host);
    return &m;
}
