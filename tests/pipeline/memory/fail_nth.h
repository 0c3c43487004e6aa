/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_FAIL_NTH_H
#define MR_TESTS_FAIL_NTH_H
/* An allocator that counts what is live and fails one chosen call. Use:
 *
 *     for (size_t nth = 0; fail_nth_next(nth); nth++) { ... code under test ...; fail_nth_end(); }
 *
 * runs the body with call 0, 1, ... failing, until one run meets no failure. The body checks what
 * it got against fail_nth_hit(); whatever it leaves allocated is an error. */
#include <stdatomic.h>
#include <stdlib.h>

#include "pipeline/memory/buffer.h"
#include "tests/harness.h"

static atomic_size_t fail_calls, fail_at;
static atomic_long fail_live;
static bool fail_done;

static inline bool fail_now(void)
{
    return atomic_fetch_add(&fail_calls, 1) == atomic_load(&fail_at);
}
static inline void *fail_count(void *p)
{
    if (p)
        atomic_fetch_add(&fail_live, 1);
    return p;
}
static inline void *fail_malloc(void *ctx, size_t bytes)
{
    (void)ctx;
    return fail_now() ? NULL : fail_count(malloc(bytes));
}
static inline void *fail_realloc(void *ctx, void *old, size_t bytes)
{
    (void)ctx;
    if (fail_now())
        return NULL;
    void *p = realloc(old, bytes);
    return old ? p : fail_count(p);
}
static inline void *fail_aligned(void *ctx, size_t alignment, size_t bytes)
{
    (void)ctx;
    void *p = NULL;
    if (fail_now() || posix_memalign(&p, alignment, bytes))
        return NULL;
    return fail_count(p);
}
static inline void fail_free(void *ctx, void *p)
{
    (void)ctx;
    atomic_fetch_sub(&fail_live, 1);
    free(p);
}

static inline bool fail_nth_hit(void)
{
    return atomic_load(&fail_calls) > atomic_load(&fail_at);
}

/* Starts the run in which call nth fails; false: the run before had no failure. SIZE_MAX: none
 * fails. */
static inline bool fail_nth_next(size_t nth)
{
    static const mr_allocator table = {fail_malloc, fail_realloc, fail_aligned, fail_free, NULL};
    if (nth == 0 || nth == SIZE_MAX)
        fail_done = false;
    if (fail_done)
        return false;
    mr_buffer_pool_trim();
    mr_allocator_set(&table);
    atomic_store(&fail_calls, 0);
    atomic_store(&fail_at, nth);
    atomic_store(&fail_live, 0);
    return true;
}

static inline void fail_nth_end(void)
{
    fail_done = !fail_nth_hit();
    mr_buffer_pool_trim();
    mr_allocator_set(NULL);
    mr_eq_i64(atomic_load(&fail_live), 0);
}
#endif
