/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FILES_READ_AHEAD_H
#define MR_PIPELINE_FILES_READ_AHEAD_H
/* Reads one file, or the object of a URL, sequentially.
 *
 * Data in the page cache is read by plain preads into the caller's buffer (RWF_NOWAIT detects it).
 * From the first uncached byte on, several large reads are kept in flight, through io_uring, or
 * through a small pool of threads if the kernel or a container's policy forbids io_uring. The bytes
 * are the same. A ring is made only for a large file that is not cached. The path "-" is standard
 * input from its current offset, which counts as byte 0 if it is a regular file.
 *
 *     cached      pread  -> caller's buffer
 *     uncached    slot 0 | slot 1 | slot 2     in flight, returned in order as whole buffers
 *
 * thread   one at a time per reader */
#include "pipeline/memory/buffer.h"
#include "pipeline/wait/cancel.h"
#include <stdint.h>

typedef struct mr__read_ahead mr__read_ahead;

/* Space before the data of a slot, for the rest of the previous chunk; and the size of its data.
 * All slots of a file and its current chunk take less than 4 MiB. */
#define MR__READ_HEADROOM ((size_t)64 << 10)
#define MR__READ_SLOT     ((size_t)768 << 10)
#define MR__READ_DEPTH    3

typedef struct mr__read_opts {
    bool direct;   /* bypass the page cache if the file system supports it; always true for files
                    larger than half of the memory */
    bool no_uring; /* use the pool of threads */
    mr_cancel *cancel; /* ends every wait except that of close; borrowed until close; or NULL */
    void (*on_read)(void *ctx, size_t bytes); /* called for every piece returned; or NULL */
    void *on_read_ctx;
    bool no_ahead;  /* no reads in flight, and no memory for slots */
    uint64_t *mark; /* as in mr_file_opts; or NULL */
} mr__read_opts;

/* Opens path for reading from byte `start` on (a pipe: from its current position). opts NULL: all
 * zero. A FIFO is opened without waiting for its writer; the first read waits.
 * errors   MR_NOT_FOUND, MR_PERMISSION_DENIED, ...: as open(2)
 *          MR_FAILED_PRECONDITION: a directory; standard input is a pipe that was opened before
 *          MR_RESOURCE_EXHAUSTED */
mr_code mr__read_ahead_open(mr__read_ahead **out, const char *path, int64_t start,
                            const mr__read_opts *opts, mr_status *st) MR_NODISCARD;
/* Waits for reads in flight, since the kernel may still write to their memory. NULL: no-op. */
void mr__read_ahead_close(mr__read_ahead *r);

/* Size of the file when it was opened; -1 if unknown (a pipe; a file of /proc, which is not empty
 * although its size is 0). */
int64_t mr__read_ahead_size(const mr__read_ahead *r);
/* False for a pipe or similar, which can be read only once. */
bool mr__read_ahead_seekable(const mr__read_ahead *r);

/* Continues at byte `offset`; reads in flight are dropped.
 * errors   MR_FAILED_PRECONDITION: a pipe, and offset is not its current position */
mr_code mr__read_ahead_seek(mr__read_ahead *r, int64_t offset, mr_status *st) MR_NODISCARD;

/* Returns the next bytes in one of two ways:
 *   in the caller's `dst` (1 to `want` bytes): *slot is NULL, *got the number of bytes
 *   in a slot: *slot is a buffer (owned), *data and *got are its bytes, preceded by
 *   MR__READ_HEADROOM writable bytes
 * MR_END at the end of the file.
 * errors   those of read(2), with file and offset; the next call tries again
 *          MR_CANCELLED */
mr_code mr__read_ahead_next(mr__read_ahead *r, void *dst, size_t want, mr_buffer **slot,
                            uint8_t **data, size_t *got, mr_status *st) MR_NODISCARD;
/* Copies up to n of the next bytes to dst, as far as they are in the page cache, and returns their
 * number; 0 once the file is read asynchronously. Errors and the end of the file are left to
 * mr__read_ahead_next. */
size_t mr__read_ahead_cached(mr__read_ahead *r, void *dst, size_t n);
#endif
