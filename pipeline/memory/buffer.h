/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_BUFFER_H
#define MR_PIPELINE_MEMORY_BUFFER_H
/* Reference-counted memory.
 *
 * A buffer is bytes with an owner count and a way to give them back. It is writable iff its count
 * is 1 and it was not wrapped read-only. Buffers from mr_buffer_alloc come from a pool (fresh pages
 * cost more than the work done on them), start 64-byte aligned and are followed by MR_SLACK
 * readable bytes, which vector code may read (never use) past the end.
 *
 * A buffer may *hold* others: an array of views (mr_bytes, mr_row) holds the buffers its views
 * point into, so that one reference keeps everything alive.
 *
 *     views buffer [ptr,len][ptr,len]...   --holds-->  chunk buffer  "....record....record..."
 *
 * thread   any for ref/unref; the bytes belong to whoever holds the sole reference
 * since    0.1 */
#include <stdbool.h>
#include "alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_buffer mr_buffer;

#define MR_SLACK 64 /* readable bytes behind every pooled buffer */

/* A buffer of `bytes` bytes, contents undefined. Returns owned in *out.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_buffer_alloc(mr_buffer **out, size_t bytes, mr_status *st) MR_NODISCARD;

/* Wraps foreign memory; release(ctx, data) is called once, from any thread, when the last reference
 * goes (NULL: nothing to do). read_only: never writable. On failure release is not called. */
MR_API mr_code mr_buffer_wrap(mr_buffer **out, void *data, size_t bytes, bool read_only,
                              void (*release)(void *ctx, void *data), void *ctx,
                              mr_status *st) MR_NODISCARD;

MR_API mr_buffer *mr_buffer_ref(mr_buffer *b); /* returns b */
MR_API void mr_buffer_unref(mr_buffer *b);     /* NULL: nothing */
MR_API void *mr_buffer_data(const mr_buffer *b);
MR_API size_t mr_buffer_size(const mr_buffer *b); /* bytes that were asked for */
MR_API bool mr_buffer_writable(const mr_buffer *b);

/* Makes b (sole reference) keep `other` alive until b goes. Holding one again costs
 * nothing. mr_buffer_hold_all holds everything that `views` holds, not `views` itself. */
MR_API mr_code mr_buffer_hold(mr_buffer *b, mr_buffer *other, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_buffer_hold_all(mr_buffer *b, const mr_buffer *views, mr_status *st) MR_NODISCARD;
/* Bytes of all buffers that b holds, and those hold: what keeping b costs besides itself. One held
 * along two ways may count twice. */
MR_API size_t mr_buffer_held_bytes(const mr_buffer *b);

/* Runs fn(ctx, data) on b's data when b goes, before its memory is reused: for arrays of
 * references. b must have no such function yet. */
MR_API void mr_buffer_on_release(mr_buffer *b, void (*fn)(void *ctx, void *data), void *ctx);

/* Gives the pool's free memory back to the system. The pool keeps at most 32 MiB by itself. */
MR_API void mr_buffer_pool_trim(void);
/* Bytes in live pooled buffers, and in free ones kept by the pool. */
MR_API void mr_buffer_pool_usage(size_t *live_bytes, size_t *free_bytes);

#ifdef __cplusplus
}
#endif
#endif
