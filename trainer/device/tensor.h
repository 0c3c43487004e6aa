/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_TENSOR_H
#define MR_TRAINER_TENSOR_H
/* What the trainer's files share about tensors and contexts. */
#include <stdbool.h>
#include "pipeline/memory/array.h"

/* Value i of `data`; numbers and bools only. */
double mr__value_as_double(mr_dtype t, const void *data, size_t i);

/* "[28, 28]" into buf. */
void mr__shape_text(int rank, const int64_t *shape, char *buf, size_t size);
#endif
