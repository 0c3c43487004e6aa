/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_TENSOR_H
#define MR_TRAINER_DEVICE_TENSOR_H
/* Single values and shapes of tensors in host memory. */
#include <stddef.h>
#include <stdint.h>
#include "pipeline/memory/dtype.h"

/* Element i of `data`. Numbers and bools only; 0 for any other type. */
double mr__value_as_double(mr_dtype t, const void *data, size_t i);

/* Writes the shape as "[28, 28]", truncated to `size`. */
void mr__shape_text(int rank, const int64_t *shape, char *buf, size_t size);
#endif
