/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_VARIABLE_IMPL_H
#define MR_TRAINER_VARIABLE_IMPL_H
/* Central storage: one copy, of which all replicas must see the updates. */
#include "trainer/strategy/variable.h"

/* Each replica, inside a step, after replica 0 has submitted its updates of the variables: what is
 * submitted from now on sees them. word: a value in device memory that is summed over the replicas,
 * which brings this about. */
mr_code mr__variables_publish(mr_variable *const *variables, size_t n, mr_replica *r, float *word,
                              mr_status *st) MR_NODISCARD;
#endif
