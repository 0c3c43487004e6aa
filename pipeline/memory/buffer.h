/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_MEMORY_BUFFER_H
#define MR_PIPELINE_MEMORY_BUFFER_H
/* Reference-counted memory.
 *
 * A buffer is bytes with a reference count and a way to free them. It is writable if its count is
 * 1, it was not wrapped read-only and no other process still reads it. Buffers from mr_buffer_alloc
 * come from a pool (fresh pages cost more than the work done on them), start 64-byte aligned and
 * are followed by MR_SLACK readable bytes, which vector code may read (never use) past the end.
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

#define MR_SLACK 64 /* readable bytes after every pooled buffer */

/* A buffer of `bytes` bytes, contents undefined. Returns owned in *out.
 * errors   MR_RESOURCE_EXHAUSTED */
MR_API mr_code mr_buffer_alloc(mr_buffer **out, size_t bytes, mr_status *st) MR_NODISCARD;

/* Wraps foreign memory; release(ctx, data) is called once, from any thread, when the last reference
 * goes (NULL: nothing to do). read_only: never writable. On failure release is not called. */
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
MR_API void mr_buffer_unref(mr_buffer *b);     /* NULL: nothing */
MR_API void *mr_buffer_data(const mr_buffer *b);
MR_API size_t mr_buffer_size(const mr_buffer *b); /* bytes that were asked for */
MR_API bool mr_buffer_writable(const mr_buffer *b);

/* Makes b (sole reference) keep `other` alive until b goes. Holding one again costs
 * nothing. mr_buffer_hold_all holds everything that `views` holds, not `views` itself unless that
 * holds very many. */
MR_API mr_code mr_buffer_hold(mr_buffer *b, mr_buffer *other, mr_status *st) MR_NODISCARD;
MR_API mr_code mr_buffer_hold_all(mr_buffer *b, const mr_buffer *views, mr_status *st) MR_NODISCARD;
/* Bytes of all buffers that b holds, and those hold: what keeping b costs besides itself. One held
 * along two ways may count twice. */
MR_API size_t mr_buffer_held_bytes(const mr_buffer *b);

/* Where bytes that were read from a file come from, so that an error in them can say so: kept per
 * chunk, at no cost per record. */
typedef struct mr_origin {
    mr_buffer *path;        /* the file's name, with its NUL byte */
    const void *at;         /* a place in the buffer where a record starts */
    int64_t offset, record; /* byte offset in the (uncompressed) file and number of that record */
    /* Where the record that p lies in starts; *n is the number of records from `at` to it. */
    const void *(*record_of)(const void *at, const void *p, int64_t *n);
} mr_origin;
/* Says where b's bytes from o->at on come from, replacing what was said before; takes a reference
 * of o->path. b must not be in use by another thread. */
MR_API void mr_buffer_set_origin(mr_buffer *b, const mr_origin *o);
/* Finds the origin of the byte at p among b and the buffers it holds: adds file, byte offset and
 * record to the place of st. Nothing if p was copied, or does not come from a file.
 * thread   any, while b is held */
MR_API void mr_buffer_locate(const mr_buffer *b, const void *p, mr_status *st);

/* Runs fn(ctx, data) on b's data when b goes, before its memory is reused: for arrays of
 * references. b must have no such function yet. */
MR_API void mr_buffer_on_release(mr_buffer *b, void (*fn)(void *ctx, void *data), void *ctx);

/* Gives the pool's free memory back to the system. The pool keeps at most 32 MiB by itself. */
MR_API void mr_buffer_pool_trim(void);
/* One more user (change 1), or one less (-1), who wants no more than `bytes` kept. */
void mr__buffer_pool_limit(int change, size_t bytes);
int mr__buffer_pool_limits(void); /* how many such users there are */

/* For the project's other libraries. Pages of a buffer may be lent to the kernel, which gives them
 * to another process without a copy: nothing may be written there as long as that may read them.
 * Who lends keeps a reference till then; where that is not known, he forsakes the buffer: for
 * whoever else has it, it is not writable any more, and when the last reference goes its pages are
 * left to the other process, and not used again here. Only what this library allocates itself can
 * be lent, not what it wraps or a program's own allocator gives. */
enum {
    MR__PAGE = 4096,           /* the smallest; larger ones are multiples */
    MR__LENT_LEAST = 64 << 10, /* bytes, below which a copy costs less */
};
/* The buffer that [p, p + n) lies in, among b (NULL: none) and what it holds; NULL: none, or not
 * one that can be lent. */
mr_buffer *mr__buffer_owning(const mr_buffer *b, const void *p, size_t n);
void mr__buffer_forsake(mr_buffer *b); /* of which the caller holds a reference */

/* Bytes in live pooled buffers, and in free ones kept by the pool. */
MR_API void mr_buffer_pool_usage(size_t *live_bytes, size_t *free_bytes);

#ifdef __cplusplus
}
#endif
#endif
