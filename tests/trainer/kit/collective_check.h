/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRAINER_COLLECTIVE_CHECK_H
#define MR_TESTS_TRAINER_COLLECTIVE_CHECK_H
/* Every operation of a strategy's collective with every dtype, against the same done here; for
 * replicas of one process and of several. */
#include "trainer/strategy/strategy.h"

/* errors   MR_INTERNAL: a value is wrong, which it names */
mr_code test_collective(mr_strategy *s, mr_status *st) MR_NODISCARD;
#endif
