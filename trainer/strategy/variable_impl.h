/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_STRATEGY_VARIABLE_IMPL_H
#define MR_TRAINER_STRATEGY_VARIABLE_IMPL_H
/* Central storage: one copy of the variables, whose updates all replicas must see. */
#include "trainer/strategy/variable.h"

/* Called on each replica, inside a step, after replica 0 has submitted its updates of the
 * variables: work submitted from now on sees them. word: a value in device memory; summing it over
 * the replicas enforces this order. */
mr_code mr__variables_publish(mr_variable *const *variables, size_t n, mr_replica *r, float *word,
                              mr_status *st) MR_NODISCARD;
#endif
