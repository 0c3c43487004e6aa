/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_ALLOC_H
#define MR_PIPELINE_MEMORY_ALLOC_H
/* The allocator: one table of functions for the whole process; alloc.c is the only file that calls
 * malloc and its kin. A program may put its own allocator here before the first other call; the
 * tests put one that fails the n-th call.
 *
 * thread   any; mr_allocator_set before any other use
 * since    0.1 */
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_allocator {
    /* Each works as its C namesake; aligned_alloc's size need not be a multiple. All memory is
     * given back through free. */
    void *(*malloc)(void *ctx, size_t bytes);
    void *(*realloc)(void *ctx, void *old, size_t bytes);
    void *(*aligned_alloc)(void *ctx, size_t alignment, size_t bytes);
    void (*free)(void *ctx, void *p);
    void *ctx;
} mr_allocator;

/* Replaces the table; NULL puts the C library's back. Memory from the old one must be gone. */
MR_API void mr_allocator_set(const mr_allocator *a);

/* It is the C library's. */
bool mr__allocator_is_plain(void);

/* NULL when there is no memory. mr_calloc checks n * bytes for overflow and zeroes. A size of 0
 * gives a pointer that may be freed. */
MR_API void *mr_malloc(size_t bytes);
MR_API void *mr_calloc(size_t n, size_t bytes);
MR_API void *mr_realloc(void *old, size_t bytes);
MR_API void *mr_aligned_alloc(size_t alignment, size_t bytes);
MR_API char *mr_strdup(const char *s);
MR_API char *mr_strndup(const char *s, size_t n);
MR_API void *mr_memdup(const void *p, size_t bytes);
MR_API void mr_free(void *p); /* NULL: nothing */

/* Makes *array (of elements of `size` bytes, room for *capacity) hold at least `need` elements:
 * grows by half, never shrinks, never beyond max_elements.
 * errors   MR_RESOURCE_EXHAUSTED: need > max_elements, or no memory; *array is unchanged */
MR_API mr_code mr_grow(void **array, size_t *capacity, size_t need, size_t size,
                       size_t max_elements, const char *what, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
