/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_CUDA_DOUBLE_WARPS_H
#define MR_TESTS_CUDA_DOUBLE_WARPS_H
/* What the kernels, which are C++, and the rest of the double have of each other. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* -1: no kernel has that name. */
int cd_kernel_find(const char *name);
size_t cd_kernel_params(int kernel);
/* NULL: there is no such kernel. */
const char *cd_kernel_name(int kernel);
/* Runs all threads of the grid; params: translated. */
void cd_kernel_run(int kernel, const void *params, unsigned blocks, unsigned threads,
                   uint64_t seed);
/* This thread runs no more kernels. */
void cd_kernel_end(void);

/* What its accesses of memory call. */
void cd_touched(const void *p, size_t bytes, bool write);
/* The thread of the kernel that makes it, from 1; 0: an atomic access, or no kernel. */
extern __thread uint32_t cd_thread_now;
/* One that is in no arena: of the lane's own stack, or an illegal one that ends the kernel. */
void cd_touched_elsewhere(const void *p);
/* The device of the kernel that runs fails. */
void cd_fault(void);
/* Ends the process; the message goes to stderr. */
void cd_misuse(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* A step of a generator whose state is *s. */
uint64_t cd_random(uint64_t *s);
#ifdef __cplusplus
}
#endif
#endif
