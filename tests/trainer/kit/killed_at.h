/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRAINER_KILLED_AT_H
#define MR_TESTS_TRAINER_KILLED_AT_H
/* Processes that are killed (SIGKILL) when they are about to make their n-th system call that
 * changes files or names. */
#include <stdbool.h>
#include <stdint.h>

/* Runs fn(ctx) in a child process, which is killed at its n-th call of killed_at_count(). true: it
 * was killed; false: it ended successfully before that. Anything else fails the test. */
bool killed_at(int64_t n, void (*fn)(void *ctx), void *ctx);
void killed_at_count(void);
#endif
