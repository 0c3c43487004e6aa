/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CLASS_WEIGHTS_H
#define MR_TRAINER_CLASS_WEIGHTS_H
#include "trainer/loop/fit.h"

/* *out = ds with the weights of the labels' classes as sample weights, owned; a reference to ds
 * where there are none.
 * errors   MR_INVALID_ARGUMENT: weights that are not numbers from 0, data without labels */
mr_code mr__weigh_classes(mr_dataset *ds, const mr_fit_opts *o, mr_dataset **out,
                          mr_status *st) MR_NODISCARD;
#endif
