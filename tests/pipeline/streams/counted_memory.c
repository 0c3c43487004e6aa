/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/streams/counted_memory.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "pipeline/memory/alloc.h"

static atomic_llong live, peak;

static void *count(void *p)
{
    long long now = atomic_fetch_add(&live, p ? (long long)malloc_usable_size(p) : 0) +
                    (p ? (long long)malloc_usable_size(p) : 0);
    long long most = atomic_load(&peak);
    while (now > most && !atomic_compare_exchange_weak(&peak, &most, now))
        ;
    return p;
}

static void forget(void *p)
{
    if (p)
        atomic_fetch_sub(&live, (long long)malloc_usable_size(p));
}

static void *counted_malloc(void *ctx, size_t bytes)
{
    (void)ctx;
    return count(malloc(bytes));
}

static void *counted_realloc(void *ctx, void *old, size_t bytes)
{
    (void)ctx;
    forget(old);
    void *p = realloc(old, bytes);
    return p ? count(p) : (count(old), NULL);
}

static void *counted_aligned(void *ctx, size_t alignment, size_t bytes)
{
    void *p = NULL;
    (void)ctx;
    return posix_memalign(&p, alignment, bytes) == 0 ? count(p) : NULL;
}

static void counted_free(void *ctx, void *p)
{
    (void)ctx;
    forget(p);
    free(p);
}

void mr_count_memory(void)
{
    static const mr_allocator counted = {counted_malloc, counted_realloc, counted_aligned,
                                         counted_free, NULL};
    mr_allocator_set(&counted);
}

long long mr_live_memory(void)
{
    return atomic_load(&live);
}

long long mr_peak_memory(void)
{
    return atomic_load(&peak);
}

void mr_restart_peak(void)
{
    atomic_store(&peak, atomic_load(&live));
}
