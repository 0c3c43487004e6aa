/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CPU_MATMUL_H
#define MR_TRAINER_CPU_MATMUL_H
/* The matrix product of the CPU device, by oneDNN; the only file that knows it. */
#include <stdbool.h>
#include <stddef.h>
#include "pipeline/status.h"

/* c[m,n] = op(a)[m,k] * op(b)[k,n] (+ c if `add`), all row-major and dense; op transposes where
 * asked: then a is stored [k,m], b [n,k]. Any of m, n, k may be 0. */
mr_code mr__matmul(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, const float *a,
                   const float *b, bool add, float *c, mr_status *st) MR_NODISCARD;

/* Makes products of the calling thread run in it alone: replicas are the parallelism here, and the
 * same number of threads gives the same bits everywhere. */
void mr__matmul_use_one_thread(void);
#endif
