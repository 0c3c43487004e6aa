/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_CPU_MATMUL_H
#define MR_TRAINER_DEVICE_CPU_MATMUL_H
/* The matrix product of the CPU device, by oneDNN. */
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include "pipeline/status.h"

/* c[m,n] = op(a)[m,k] * op(b)[k,n] (+ c if `add`), all row-major and dense; op transposes if the
 * flag is set: then a is stored [k,m], b [n,k]. Any of m, n, k may be 0. */
mr_code mr__matmul(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, const float *a,
                   const float *b, bool add, float *c, mr_status *st) MR_NODISCARD;

/* oneDNN and its dependencies end the process if an allocation fails. If the address space of the
 * process is limited (ulimit -v), this checks for free space before each call of oneDNN; otherwise
 * it does nothing. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__onednn_room(mr_status *st) MR_NODISCARD;

/* Between the two calls, which enclose what oneDNN computes, no handler of a signal runs in the
 * calling thread: the stack pointer may be an address in the heap there (oneDNN's issue 4845), and
 * the handler's frame would overwrite what is below it. leave takes what enter stored. */
void mr__onednn_enter(sigset_t *before);
void mr__onednn_leave(const sigset_t *before);
/* For threads of the library: blocks all signals for good, so that these calls cost nothing. */
void mr__onednn_own_thread(void);

/* Writes "2.6.3" to buf. */
void mr__matmul_version(char *buf, size_t size);

/* Between the two calls, products of the calling thread run in that thread alone: parallelism comes
 * from the replicas, and a fixed number of threads yields the same bits everywhere. leave takes the
 * value that enter returned. */
int mr__matmul_enter_one_thread(void);
void mr__matmul_leave_one_thread(int threads);
#endif
