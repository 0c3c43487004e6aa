/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_BOUND_H
#define MR_PIPELINE_MEMORY_BOUND_H
/* The size limit of a single allocation in this thread, in bytes. Set while an op runs under a
 * memory limit, so that a damaged file that claims a huge element cannot bring the process down.
 *
 * thread   any; the bound is thread-local */
#include <stddef.h>

/* SIZE_MAX: no bound. Returns the previous bound. */
size_t mr__memory_bound_set(size_t bytes);
size_t mr__memory_bound(void);
#endif
