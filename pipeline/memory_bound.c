/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory_bound.h"

#include <stdint.h>

static _Thread_local size_t bound = SIZE_MAX;

size_t mr__memory_bound_set(size_t bytes)
{
    size_t before = bound;
    bound = bytes;
    return before;
}

size_t mr__memory_bound(void)
{
    return bound;
}
