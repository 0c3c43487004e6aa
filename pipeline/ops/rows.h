/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_OPS_ROWS_H
#define MR_PIPELINE_OPS_ROWS_H
/* A dataset of rows that an op holds: what a window or a group is. It is an ordinary node whose
 * parameters are the rows, so that it travels and is saved like any graph. */
#include "pipeline/engine/op_iterator.h"

/* The rows of b, with their identities if it has any, whose elements are of `spec`. Always returns
 * a dataset, which may carry an error. */
mr_dataset *mr__rows_dataset(const mr_block *b, const mr_spec *spec);
#endif
