/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_BUFFER_H
#define MR_PIPELINE_MEMORY_BUFFER_H
/* Reference-counted memory.
 *
 * A buffer is a range of bytes with a reference count and a way to free them. It is writable if its
 * count is 1, it was not wrapped read-only and no other process still reads it. Buffers from
 * mr_buffer_alloc come from a pool (new pages cost more than the work done on them), are 64-byte
 * aligned and are followed by MR_SLACK readable bytes: vector code may load past the end, but must
 * not use these bytes.
 *
 * A buffer may *hold* others: an array of views (mr_bytes, mr_row) holds the buffers that its views
 * point into, so that one reference keeps everything alive.
 *
 *     views buffer [ptr,len][ptr,len]...   --holds-->  chunk buffer  "....record....record..."
 *
 * thread   any for ref and unref; only the holder of the sole reference may write the bytes
 * since    0.1 */
#include <stdbool.h>
#include "alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr_buffer mr_buffer;

#define MR_SLACK 64 /* readable bytes after every buffer from mr_buffer_alloc */

/* Allocates a buffer of `bytes` bytes with undefined contents. Returns owned in *out.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_buffer_alloc(mr_buffer **out, size_t bytes, mr_status *st) MR_NODISCARD;

/* Wraps foreign memory. release (may be NULL) is called once, from any thread, when the last
 * reference is dropped; not if this call fails. A read_only buffer is never writable. */
MR_API mr_code mr_buffer_wrap(mr_buffer **out, void *data, size_t bytes, bool read_only,
                              void (*release)(void *ctx, void *data), void *ctx,
                              mr_status *st) MR_NODISCARD;

/* Memory of the user that file contents are read into instead of the pool's: for example memory
 * that is shared with another process, or known to a device. */
typedef struct mr_read_slots {
    /* A writable buffer of `bytes` bytes that starts 64-byte aligned and is followed by MR_SLACK
     * readable ones, with one reference. NULL: no slot is free, and the pool's memory is used.
     * thread any */
    mr_buffer *(*take)(void *ctx, size_t bytes);
    void *ctx;
} mr_read_slots;

MR_API mr_buffer *mr_buffer_ref(mr_buffer *b); /* returns b */
MR_API void mr_buffer_unref(mr_buffer *b);     /* NULL: no-op */
MR_API void *mr_buffer_data(const mr_buffer *b);
MR_API size_t mr_buffer_size(const mr_buffer *b); /* as requested, in bytes */
MR_API bool mr_buffer_writable(const mr_buffer *b);
/* True if [p, p + n) lies in b or in a buffer that b holds, and this reference to b is the only way
 * to it: every buffer from b to the one that contains it is writable. since 0.2 */
MR_API bool mr_buffer_is_sole_way(const mr_buffer *b, const void *p, size_t n);

/* Makes b keep `other` alive until b is freed; the caller must have the only reference to b.
 * Holding the same buffer again costs nothing. mr_buffer_hold_all makes b keep alive what `views`
 * (may be NULL) holds: it holds the same buffers, or `views` itself if they are more than a few.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_buffer_hold(mr_buffer *b, mr_buffer *other, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_buffer_hold_all(mr_buffer *b, const mr_buffer *views, mr_status *st) MR_NODISCARD;
/* Total size of the buffers that b holds directly and indirectly: the cost of keeping b, without b
 * itself. A buffer held along two paths may count twice. */
MR_API size_t mr_buffer_held_bytes(const mr_buffer *b);

/* The origin of bytes read from a file, for error messages: stored per chunk, at no cost per
 * record. */
typedef struct mr_origin {
    mr_buffer *path;        /* the file's name, NUL-terminated */
    const void *at;         /* start of a record in the buffer */
    int64_t offset, record; /* byte offset in the (uncompressed) file and number of that record */
    /* Returns the start of the record that contains p, and in *n the number of records from `at` to
     * it. NULL: there is one record, at `at`. */
    const void *(*record_of)(const void *at, const void *p, int64_t *n);
} mr_origin;
/* Sets the origin of b's bytes from o->at on, replacing any earlier one; takes a reference to
 * o->path. No other thread may use b during the call. */
MR_API void mr_buffer_set_origin(mr_buffer *b, const mr_origin *o);
/* Finds the origin of the byte at p among b and the buffers it holds, and adds file, byte offset
 * and record to st. Does nothing if p was copied or does not come from a file.
 * thread   any, while b is held */
MR_API void mr_buffer_locate(const mr_buffer *b, const void *p, mr_status *st);

/* Calls fn(ctx, data) when b is freed, before its memory is reused: for arrays of references. A
 * buffer has at most one such function. */
MR_API void mr_buffer_on_release(mr_buffer *b, void (*fn)(void *ctx, void *data), void *ctx);

/* Returns the pool's free memory to the system. Without this call the pool keeps up to 32 MiB. */
MR_API void mr_buffer_pool_trim(void);
/* Adds (change 1) or removes (change -1) a limit on the pool's free memory. While any limit
 * remains, the pool keeps at most the `bytes` of the latest call. */
void mr__buffer_pool_limit(int change, size_t bytes);
int mr__buffer_pool_limits(void); /* number of limits */

/* For the project's other libraries. Pages of a buffer may be lent to the kernel, which passes them
 * to another process without a copy. As long as that process may read them, they must not be
 * written, and the lender keeps a reference. If it cannot know when the process has finished, it
 * forsakes the buffer: from then on no holder may write it, and when the last reference is dropped,
 * the pages are left to the other process and not reused here. Only memory that this library
 * allocates itself can be lent, not wrapped memory or memory from a program's own allocator. */
enum {
    MR__PAGE = 4096,           /* smallest page size; larger ones are multiples */
    MR__LENT_LEAST = 64 << 10, /* in bytes; a copy of less is cheaper than lending */
};
/* The buffer that contains [p, p + n), among b (may be NULL) and the buffers it holds. NULL if none
 * does or if it cannot be lent. */
mr_buffer *mr__buffer_owning(const mr_buffer *b, const void *p, size_t n);
void mr__buffer_forsake(mr_buffer *b); /* the caller holds a reference */

/* Bytes in pooled buffers that are in use, and in free ones that the pool keeps. */
MR_API void mr_buffer_pool_usage(size_t *live_bytes, size_t *free_bytes);

#ifdef __cplusplus
}
#endif
#endif
