/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_COLLECTIVE_RING_RING_SUMS_H
#define MR_TRAINER_COLLECTIVE_RING_RING_SUMS_H
/* Arithmetic on received values: own[i] = in[i] (+, max, min) own[i]. */
#include "trainer/collective/ring/ring.h"

typedef void (*mr__fold_fn)(void *own, const void *in, size_t n);
/* NULL: not supported for this dtype. MEAN is a sum here. */
mr__fold_fn mr__ring_fold(mr__ring_op op, mr_dtype dtype);
/* values[i] /= by. Floats only. */
void mr__ring_divide(mr_dtype dtype, void *values, size_t n, uint32_t by);
#endif
