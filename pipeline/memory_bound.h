/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_BOUND_H
#define MR_PIPELINE_MEMORY_BOUND_H
/* The most bytes that one allocation of this thread may have. Set while an op of a run with a
 * memory limit works, so that no element that a damaged file claims takes the process down.
 *
 * thread   any; each has its own */
#include <stddef.h>

/* SIZE_MAX: no bound. Returns what was set before. */
size_t mr__memory_bound_set(size_t bytes);
size_t mr__memory_bound(void);
#endif
