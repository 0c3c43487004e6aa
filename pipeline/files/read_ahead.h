/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_READ_AHEAD_H
#define MR_PIPELINE_FILES_READ_AHEAD_H
/* One file, read from front to back.
 *
 * What lies in the page cache is read by plain pread into the caller's buffer (RWF_NOWAIT shows
 * it); from the first place that does not, several large reads are kept in flight through io_uring,
 * or through a small pool of threads where the kernel or a container's policy forbids io_uring. The
 * bytes are the same. A ring is made only for a large file that is not cached. The path "-" is
 * standard input, from where it stands; of a regular file that is byte 0 of what follows.
 *
 *     cached      pread  -> caller's buffer
 *     uncached    slot 0 | slot 1 | slot 2     in flight, returned in order as whole buffers
 *
 * thread   one at a time per reader */
#include "pipeline/memory/buffer.h"
#include "pipeline/wait/cancel.h"
#include <stdint.h>

typedef struct mr__read_ahead mr__read_ahead;

/* Bytes left free in front of a slot's data, so that the rest of the previous chunk can be put
 * there, and bytes of data in it. All slots of a file and its current chunk stay below 4 MiB. */
#define MR__READ_HEADROOM ((size_t)64 << 10)
#define MR__READ_SLOT     ((size_t)768 << 10)
#define MR__READ_DEPTH    3

typedef struct mr__read_opts {
    bool direct;   /* leave the page cache alone where the file system can (silently not, where it
                          cannot); files larger than half of the memory always do */
    bool no_uring; /* a pool of threads instead */
    mr_cancel *cancel; /* ends every wait but that of close; NULL, or borrowed until then */
    void (*on_read)(void *ctx, size_t bytes); /* called for every piece returned; or NULL */
    void *on_read_ctx;
    bool no_ahead; /* nothing in flight, and no slots: memory for them is short */
} mr__read_opts;

/* Opens path, to be read from byte `start` on (a pipe: from where it stands). opts NULL: all zero.
 * A FIFO is opened without waiting for its writer; the first read does.
 * errors   MR_NOT_FOUND, MR_PERMISSION_DENIED, ...: as open(2)
 *          MR_FAILED_PRECONDITION: a directory; standard input, a pipe that was opened before
 *          MR_RESOURCE_EXHAUSTED */
mr_code mr__read_ahead_open(mr__read_ahead **out, const char *path, int64_t start,
                            const mr__read_opts *opts, mr_status *st) MR_NODISCARD;
/* Waits for reads in flight, which belong to the kernel; NULL: nothing. */
void mr__read_ahead_close(mr__read_ahead *r);

/* Size of the file when it was opened; -1: not known (a pipe; a file of /proc, whose size is said
 * to be 0 although there is something to read). */
int64_t mr__read_ahead_size(const mr__read_ahead *r);
/* false: a pipe or the like, which is read once. */
bool mr__read_ahead_seekable(const mr__read_ahead *r);

/* Goes on at byte `offset`; what is in flight is dropped.
 * errors   MR_FAILED_PRECONDITION: a pipe, and offset is not where it stands */
mr_code mr__read_ahead_seek(mr__read_ahead *r, int64_t offset, mr_status *st) MR_NODISCARD;

/* The next bytes, by one of two ways:
 *   into the caller's `dst` (at most `want`, at least 1): *slot = NULL, *got bytes
 *   in a slot of its own: *slot is a buffer (returned owned), *data and *got its bytes, with
 *   MR__READ_HEADROOM writable bytes in front of *data
 * MR_END at the end of the file. errors: from read, with file and offset; the next call tries
 * again; MR_CANCELLED. */
mr_code mr__read_ahead_next(mr__read_ahead *r, void *dst, size_t want, mr_buffer **slot,
                            uint8_t **data, size_t *got, mr_status *st) MR_NODISCARD;
/* The next bytes into dst, at most n, as far as the page cache has them and is what is read from;
 * 0: none. An error or the end is left to the next call of mr__read_ahead_next. */
size_t mr__read_ahead_cached(mr__read_ahead *r, void *dst, size_t n);
#endif
