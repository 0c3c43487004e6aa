/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/memory/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/memory_bound.h"

static void *libc_malloc(void *ctx, size_t bytes)
{
    (void)ctx;
    return malloc(bytes);
}
static void *libc_realloc(void *ctx, void *old, size_t bytes)
{
    (void)ctx;
    return realloc(old, bytes);
}
static void *libc_aligned_alloc(void *ctx, size_t alignment, size_t bytes)
{
    (void)ctx;
    void *p = NULL;
    return posix_memalign(&p, alignment, bytes) == 0 ? p : NULL;
}
static void libc_free(void *ctx, void *p)
{
    (void)ctx;
    free(p);
}

static const mr_allocator libc_table = {libc_malloc, libc_realloc, libc_aligned_alloc, libc_free,
                                        NULL};
static mr_allocator table = {libc_malloc, libc_realloc, libc_aligned_alloc, libc_free, NULL};

/* No memory limit sets a lower bound, so smaller requests skip the check. */
#define BOUND_FROM ((size_t)1 << 20)

static bool too_large(size_t bytes)
{
    return bytes > BOUND_FROM && bytes > mr__memory_bound();
}

void mr_allocator_set(const mr_allocator *a)
{
    table = a ? *a : libc_table;
}

bool mr__allocator_is_plain(void)
{
    return table.malloc == libc_malloc;
}

void *mr_malloc(size_t bytes)
{
    return too_large(bytes) ? NULL : table.malloc(table.ctx, bytes ? bytes : 1);
}

void *mr_calloc(size_t n, size_t bytes)
{
    size_t all;
    if (__builtin_mul_overflow(n, bytes, &all))
        return NULL;
    void *p = mr_malloc(all);
    if (p)
        memset(p, 0, all ? all : 1);
    return p;
}

void *mr_realloc(void *old, size_t bytes)
{
    return too_large(bytes) ? NULL : table.realloc(table.ctx, old, bytes ? bytes : 1);
}

void *mr_aligned_alloc(size_t alignment, size_t bytes)
{
    return too_large(bytes) ? NULL : table.aligned_alloc(table.ctx, alignment, bytes ? bytes : 1);
}

void *mr_memdup(const void *p, size_t bytes)
{
    void *copy = mr_malloc(bytes);
    if (copy && bytes)
        memcpy(copy, p, bytes);
    return copy;
}

char *mr_strndup(const char *s, size_t n)
{
    char *copy = mr_malloc(n + 1);
    if (copy) {
        memcpy(copy, s, n);
        copy[n] = '\0';
    }
    return copy;
}

char *mr_strdup(const char *s)
{
    return mr_strndup(s, strlen(s));
}

char *mr__vformat(const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *text = n < 0 ? NULL : mr_malloc((size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

char *mr_strf(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = mr__vformat(fmt, ap);
    va_end(ap);
    return text;
}

void mr_free(void *p)
{
    if (p)
        table.free(table.ctx, p);
}

mr_code mr_grow(void **array, size_t *capacity, size_t need, size_t size, size_t max_elements,
                const char *what, mr_status *st)
{
    if (need <= *capacity)
        return MR_OK;
    if (need > max_elements)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "%s would grow to %zu, more than the %zu allowed",
                       what, need, max_elements);
    size_t want = *capacity + *capacity / 2;
    if (want < need)
        want = need;
    if (want < 8)
        want = 8;
    if (want > max_elements)
        want = max_elements;
    size_t most = mr__memory_bound() / size;
    if (want > most) /* the bound leaves no room for growth */
        want = need > most ? need : most;
    size_t bytes;
    void *grown = __builtin_mul_overflow(want, size, &bytes) ? NULL : mr_realloc(*array, bytes);
    if (!grown)
        return mr_fail_memory(st, want * size, what);
    *array = grown;
    *capacity = want;
    return MR_OK;
}
