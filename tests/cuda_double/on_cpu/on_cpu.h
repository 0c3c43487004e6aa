/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_CUDA_DOUBLE_ON_CPU_H
#define MR_TESTS_CUDA_DOUBLE_ON_CPU_H
/* What a kernel needs of CUDA's language, so that a C++ compiler takes it as code for a GPU: it is
 * included before the first line of a .cu file. The threads of a warp run one after another, each
 * until it wants something of the others (warps.cpp). */
#include <math.h>
#include <stdint.h>
#include <string.h>
#define __CUDACC__    1
#define __CUDA_ARCH__ 900
#define __global__
#define __host__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(n)

struct cd_index {
    unsigned x, y, z;
};
struct cd_thread {
    cd_index thread, block, block_size, grid_size;
};
extern thread_local cd_thread cd_self;
#define threadIdx (cd_self.thread)
#define blockIdx  (cd_self.block)
#define blockDim  (cd_self.block_size)
#define gridDim   (cd_self.grid_size)

/* Gives all lanes of the warp `bytes` of this one's, and takes those of lane ^ by. */
void cd_shuffle(unsigned mask, void *value, size_t bytes, unsigned by);
template <typename T> inline T __shfl_xor_sync(unsigned mask, T v, int by)
{
    cd_shuffle(mask, &v, sizeof v, (unsigned)by);
    return v;
}

unsigned long long atomicAdd(unsigned long long *p, unsigned long long v);
unsigned long long atomicMin(unsigned long long *p, unsigned long long v);
#endif
