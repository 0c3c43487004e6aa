/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_ROWS_H
#define MR_PIPELINE_OPS_ROWS_H
/* A dataset of rows that an op holds, such as a window or a group. It is an ordinary node whose
 * parameters are the rows, so it can be sent and saved like any graph. */
#include "pipeline/engine/op_iterator.h"

/* A dataset of the rows of b, with their identities if b has any; spec describes its elements.
 * Always returns a dataset, which may carry an error. */
mr_dataset *mr__rows_dataset(const mr_block *b, const mr_spec *spec);
#endif
