/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_ALLOC_H
#define MR_PIPELINE_MEMORY_ALLOC_H
/* The allocator: one table of functions for the whole process. Only alloc.c calls malloc and its
 * relatives. A program may install its own allocator before any other call; the tests install one
 * that fails the n-th call.
 *
 * thread   any; mr_allocator_set before any other use
 * since    0.1 */
#include <stdarg.h>
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_allocator {
    /* Each works like its C namesake, except that the size passed to aligned_alloc need not be a
     * multiple of the alignment. All memory is released through free. */
    void *(*malloc)(void *ctx, size_t bytes);
    void *(*realloc)(void *ctx, void *old, size_t bytes);
    void *(*aligned_alloc)(void *ctx, size_t alignment, size_t bytes);
    void (*free)(void *ctx, void *p);
    void *ctx;
} mr_allocator;

/* Replaces the table; NULL restores the C library's. All memory from the old one must have been
 * freed. */
MR_API void mr_allocator_set(const mr_allocator *a);

/* True while the C library's allocator is installed. */
bool mr__allocator_is_plain(void);

/* Each returns NULL if it is out of memory. mr_calloc checks n * bytes for overflow and zeroes the
 * memory. A size of 0 returns a pointer that may be freed. */
MR_API void *mr_malloc(size_t bytes);
MR_API void *mr_calloc(size_t n, size_t bytes);
MR_API void *mr_realloc(void *old, size_t bytes);
MR_API void *mr_aligned_alloc(size_t alignment, size_t bytes);
MR_API char *mr_strdup(const char *s);
MR_API char *mr_strndup(const char *s, size_t n);
MR_API void *mr_memdup(const void *p, size_t bytes);
MR_API char *mr_strf(const char *fmt, ...) MR_PRINTF(1, 2);
char *mr__vformat(const char *fmt, va_list ap);
MR_API void mr_free(void *p); /* NULL: no-op */

/* Grows *array, which has room for *capacity elements of `size` bytes, to hold at least `need`:
 * grows by half, never shrinks, never exceeds max_elements.
 * errors   MR_RESOURCE_EXHAUSTED: need > max_elements, or out of memory; *array is unchanged */
MR_API mr_code mr_grow(void **array, size_t *capacity, size_t need, size_t size,
                       size_t max_elements, const char *what, mr_status *st) MR_NODISCARD;
/* The same for the lvalues array, of any type of pointer but void *, and capacity. */
#define MR_GROW(array, capacity, need, max_elements, what, st)                                     \
    mr_grow((void **)&(array), &(capacity), need, sizeof *(array), max_elements, what, st)

#ifdef __cplusplus
}
#endif
#endif
