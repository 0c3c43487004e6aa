/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_MODEL_CHECK_REPLICAS_H
#define MR_TRAINER_MODEL_CHECK_REPLICAS_H
#include "trainer/model/model.h"

/* Between steps, on all workers: checks that all replicas hold the same bits of each variable. step
 * 0: before the first.
 * errors   MR_DATA_LOSS: names the first variable that differs, two replicas, and the step ·
 *          MR_FAILED_PRECONDITION: workers start with different values; names two of them */
mr_code mr__check_replicas(mr_model *m, int64_t step, mr_status *st) MR_NODISCARD;
#endif
