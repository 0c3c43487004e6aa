/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_OBJECTIVES_CLASS_WEIGHTS_H
#define MR_TRAINER_OBJECTIVES_CLASS_WEIGHTS_H
#include "pipeline/graph/dataset.h"

/* *out = ds with weights[label] as sample weights, or multiplied with the existing ones; owned.
 * Without weights it is a reference to ds.
 * errors   MR_INVALID_ARGUMENT: weights that are negative or not finite as float32, more than
 *          MR_MAX_CLASS_WEIGHTS; data without labels */
mr_code mr__weigh_classes(mr_dataset *ds, const double *weights, size_t n, mr_dataset **out,
                          mr_status *st) MR_NODISCARD;
#endif
