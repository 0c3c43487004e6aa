/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_SMALL_MEMORY_H
#define MR_TESTS_SMALL_MEMORY_H
/* Fuzzers' allocator: a graph may rightly ask for more memory than a fuzzer has
 * (zeros([1000000000])), and then finds none. */
#include <stdlib.h>

#include "pipeline/memory/alloc.h"

enum { LARGEST_ALLOCATION = 32 << 20 };

static void *small_malloc(void *ctx, size_t bytes)
{
    (void)ctx;
    return bytes <= LARGEST_ALLOCATION ? malloc(bytes) : NULL;
}

static void *small_realloc(void *ctx, void *old, size_t bytes)
{
    (void)ctx;
    return bytes <= LARGEST_ALLOCATION ? realloc(old, bytes) : NULL;
}

static void *small_aligned_alloc(void *ctx, size_t alignment, size_t bytes)
{
    void *p;
    (void)ctx;
    if (bytes > LARGEST_ALLOCATION || posix_memalign(&p, alignment, bytes) != 0)
        return NULL;
    return p;
}

static void small_free(void *ctx, void *p)
{
    (void)ctx;
    free(p);
}

/* Puts it in place at the first call. */
static void small_memory(void)
{
    static const mr_allocator table = {small_malloc, small_realloc, small_aligned_alloc, small_free,
                                       NULL};
    static int done;
    if (!done)
        mr_allocator_set(&table);
    done = 1;
}
#endif
